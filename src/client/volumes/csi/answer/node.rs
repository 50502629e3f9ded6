//! What servers ask of the volumes of this node.

use drover_csi::mounts::{MountError, Returned};
use drover_csi::proto;

use super::controller::TURN;
use super::failed;
use super::messages::{one_way, range};
use crate::volumes::csi::registry::Part;
use crate::volumes::csi::{Csi, Known};
use drover_error::{ApiError, Code};
use drover_rpc::csi::*;

impl Csi {
    /// Takes a volume back from an allocation, however it was mounted for it: never from one that
    /// may still write. It is done where the node does not count the allocation among the volume's
    /// users, whether or not the plugin is there (CSI-34, CSI-45).
    pub(super) async fn node_detach(
        &self,
        asked: NodeDetachVolumeRequest,
    ) -> Result<Done, ApiError> {
        let unavailable = |text: String| ApiError::new(Code::Unavailable, text);
        if self.known(&asked.alloc_id) == Some(Known::Lives) {
            let text = format!("allocation {} has not ended on this node", asked.alloc_id);
            return Err(unavailable(text));
        }
        let key = (&*asked.volume_namespace, &*asked.volume_id);
        let used = self.is_used(&asked.plugin_id, key, &asked.alloc_id).await;
        if !used.map_err(|error| unavailable(error.to_string()))? {
            return Ok(Done::default());
        }
        let live = self.part(Part::Node, &asked.plugin_id).await;
        let live = live.map_err(unavailable)?;
        let remote = match asked.external_id.is_empty() {
            true => asked.volume_id.clone(),
            false => asked.external_id,
        };
        let given = Returned {
            alloc: asked.alloc_id,
            namespace: asked.volume_namespace,
            volume: asked.volume_id,
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
                Err(ApiError::new(Code::Timeout, text))
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
        asked: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, ApiError> {
        let unavailable = |text: String| ApiError::new(Code::Unavailable, text);
        let live = self.part(Part::Node, &asked.plugin_id).await;
        let live = live.map_err(unavailable)?;
        let root = self.root(&live.instance);
        let key = (&*asked.volume_namespace, &*asked.volume_id);
        let stages = live.found.features.node.unwrap_or_default().stage;
        let places = drover_csi::mounts::places(&root, key, &asked.alloc_id).await;
        let places = places.map_err(|error| unavailable(error.to_string()))?;
        let options = asked.mount_options.as_ref();
        let way = one_way(&asked.attachment_mode, &asked.access_mode, options)?;
        let (mut bytes, mut made) = (0, 0);
        for (staging, target) in places {
            let request = proto::NodeExpandVolumeRequest {
                volume_id: asked.external_id.clone(),
                volume_path: target,
                capacity_range: range(asked.required_bytes, asked.limit_bytes),
                staging_target_path: if stages { staging } else { String::new() },
                volume_capability: Some(way.clone()),
                secrets: asked.secrets.0.clone(),
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
