//! Requests of servers about the volumes of this node.

use drover_csi::mounts::{MountError, Returned};
use drover_csi::proto;

use super::controller::TURN;
use super::failed;
use super::messages::{one_way, range};
use crate::volumes::csi::registry::CsiPart;
use crate::volumes::csi::{AllocKnowledge, Csi};
use drover_error::{Code, Refusal};
use drover_rpc::csi::*;

impl Csi {
    /// Takes a volume back from an allocation, however it was mounted for it: never from one that
    /// may still write. It is done where the node does not count the allocation among the volume's
    /// users, whether or not the plugin is there (CSI-34, CSI-45).
    pub(super) async fn node_detach(
        &self,
        requested: NodeDetachVolumeRequest,
    ) -> Result<Done, Refusal> {
        let unavailable = |text: String| Refusal::new(Code::Unavailable, text);
        if self.known(&requested.alloc_id) == Some(AllocKnowledge::Lives) {
            let text = format!(
                "allocation {} has not ended on this node",
                requested.alloc_id
            );
            return Err(unavailable(text));
        }
        let key = (&*requested.volume_namespace, &*requested.volume_id);
        let used = self
            .is_used(&requested.plugin_id, key, &requested.alloc_id)
            .await;
        if !used.map_err(|error| unavailable(error.to_string()))? {
            return Ok(Done::default());
        }
        let live = self.part(CsiPart::Node, &requested.plugin_id).await;
        let live = live.map_err(unavailable)?;
        let remote = match requested.external_id.is_empty() {
            true => requested.volume_id.clone(),
            false => requested.external_id,
        };
        let given = Returned {
            alloc: requested.alloc_id,
            namespace: requested.volume_namespace,
            volume: requested.volume_id,
            remote,
        };
        let stages = live.found.features.node.unwrap_or_default().stage;
        let root = self.root(&live.instance);
        let by = (&live.plugin, stages);
        let done = self.mounts.unmount_within(TURN, by, &root, &given);
        match done.await {
            Ok(true) => Ok(Done::default()),
            Ok(false) => {
                let volume = &given.volume;
                let text = format!("another call about volume \"{volume}\" is under way");
                Err(Refusal::new(Code::Timeout, text))
            }
            Err(MountError::Call(error)) => Err(failed(&error)),
            Err(error) => Err(unavailable(error.to_string())),
        }
    }

    /// Whether an allocation is counted among the users of a volume, be its plugin here or not.
    async fn is_used(
        &self,
        plugin: &str,
        key: (&str, &str),
        alloc: &str,
    ) -> Result<bool, MountError> {
        let users = self.users(plugin);
        self.mounts.is_used_by(&users, key, alloc).await
    }

    pub(super) async fn node_expand(
        &self,
        requested: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Refusal> {
        let unavailable = |text: String| Refusal::new(Code::Unavailable, text);
        let live = self.part(CsiPart::Node, &requested.plugin_id).await;
        let live = live.map_err(unavailable)?;
        let root = self.root(&live.instance);
        let key = (&*requested.volume_namespace, &*requested.volume_id);
        let stages = live.found.features.node.unwrap_or_default().stage;
        let places = drover_csi::mounts::places(&root, key, &requested.alloc_id).await;
        let places = places.map_err(|error| unavailable(error.to_string()))?;
        let options = requested.mount_options.as_ref();
        let way = one_way(&requested.attachment_mode, &requested.access_mode, options)?;
        let (mut bytes, mut made) = (0, 0);
        for (staging, target) in places {
            let request = proto::NodeExpandVolumeRequest {
                volume_id: requested.external_id.clone(),
                volume_path: target,
                capacity_range: range(requested.required_bytes, requested.limit_bytes),
                staging_target_path: if stages { staging } else { String::new() },
                volume_capability: Some(way.clone()),
                secrets: requested.secrets.0.clone(),
            };
            let answer = live.plugin.node_expand_volume(request).await;
            bytes = answer.map_err(|error| failed(&error))?.capacity_bytes;
            made += 1;
        }
        Ok(NodeExpandVolumeResponse {
            capacity_bytes: bytes,
            places: made,
        })
    }
}
