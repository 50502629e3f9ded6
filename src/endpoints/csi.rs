//! Volumes of allocations: claimed and released by the client that runs them. A node does so for
//! its own allocations only (CSI-20). Servers call these methods without naming a node (CSI-21).

use std::sync::Arc;

use drover_events::csi::{CsiVolumeClaimed, claim_mode, state};
use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_projections::query::csi;
use drover_projections::tables::allocs::Allocs;

use super::ClientEndpoints;
use super::auth::Allowed;
use crate::error::Refusal;
use crate::identity::Identity;
use crate::rpc::csi::{
    CsiVolumeClaimRequest, CsiVolumeClaimResponse, CsiVolumeUnpublishRequest, NamedClaim,
};
use crate::rpc::methods::WriteResponse;
use crate::rpc::service::Call;
use crate::table_reads::{read_apart_from_api, spawn_detached};

/// `CSIVolume.Claim`.
pub(super) async fn claim(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: CsiVolumeClaimRequest,
) -> Result<CsiVolumeClaimResponse, Refusal> {
    if requested.state != state::CLAIMED {
        // A claim request in any other state is a release (CSI-23).
        let index = unpublish(endpoints, call, as_unpublish(requested))
            .await?
            .index;
        return Ok(CsiVolumeClaimResponse {
            index,
            ..CsiVolumeClaimResponse::default()
        });
    }
    let origin = endpoints
        .authorize_server_or_node(&call, &requested.node_id)
        .await?
        .into_origin();
    if requested.mode >= claim_mode::GC {
        return Err(Refusal::permission_denied());
    }
    check_ids((&requested.volume_id, &requested.allocation_id))?;
    let claim = CsiVolumeClaimed {
        namespace: namespace(requested.namespace),
        volume_id: requested.volume_id,
        allocation_id: requested.allocation_id,
        node_id: requested.node_id,
        mode: requested.mode,
        access_mode: requested.access_mode,
        attachment_mode: requested.attachment_mode,
        ..CsiVolumeClaimed::default()
    };
    let check = {
        let endpoints = Arc::clone(&endpoints);
        let (alloc, node) = (claim.allocation_id.clone(), claim.node_id.clone());
        move || endpoints.require_alloc_on_node(&alloc, &node)
    };
    read_apart_from_api(check).await??;
    let volumes = Arc::clone(&endpoints.server.volumes);
    // The node reports its part of an expansion.
    if requested.expanded != 0 {
        let reported = async move {
            volumes
                .record_node_expansion(&claim, requested.expanded, &origin)
                .await
        };
        return Ok(CsiVolumeClaimResponse {
            index: spawn_detached(reported).await??,
            ..CsiVolumeClaimResponse::default()
        });
    }
    // It continues if the caller disconnects. The client retries and finds it done.
    let taken = spawn_detached(async move { volumes.claim(claim, origin).await }).await??;
    Ok(CsiVolumeClaimResponse {
        publish_context: taken.publish_context,
        volume: Some(taken.volume),
        index: taken.index,
        node_expansion: taken.node_expansion,
    })
}

/// Refuses a request that names no volume or no allocation.
fn check_ids((volume, alloc): (&str, &str)) -> Result<(), Refusal> {
    let all = [("volume ID", volume), ("allocation ID", alloc)];
    match all.into_iter().find(|(_, named)| named.is_empty()) {
        Some((what, _)) => Err(Refusal::bad_request(format!("missing {what}"))),
        None => Ok(()),
    }
}

/// `CSIVolume.Unpublish`.
pub(super) async fn unpublish(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: CsiVolumeUnpublishRequest,
) -> Result<WriteResponse, Refusal> {
    // Without a claim the node id is empty, and no node is authorized by it.
    let claim = requested.claim.unwrap_or_default();
    let namespace = namespace(requested.namespace);
    // A call from neither a node nor a server needs a token; it may detach what an ended
    // allocation left.
    let by_token = call.node.is_empty() && !endpoints.is_server(&call);
    let allowed = match by_token {
        true => endpoints.authorize_detach(&call, &namespace).await?,
        false => {
            endpoints
                .authorize_server_or_node(&call, &claim.node_id)
                .await?
        }
    };
    check_ids((&requested.volume_id, &claim.allocation_id))?;
    let id = requested.volume_id;
    let of_node = !by_token && !endpoints.is_server(&call);
    if of_node {
        let (endpoints, claim) = (endpoints.clone(), claim.clone());
        let (namespace, id) = (namespace.clone(), id.clone());
        read_apart_from_api(move || endpoints.require_claim_of_node((&namespace, &id), &claim))
            .await??;
    }
    if by_token {
        let (endpoints, alloc) = (endpoints.clone(), claim.allocation_id.clone());
        let (namespace, id) = (namespace.clone(), id.clone());
        read_apart_from_api(move || endpoints.require_no_live_claim((&namespace, &id), &alloc))
            .await??;
    }
    let volumes = Arc::clone(&endpoints.server.volumes);
    let release = async move {
        let (volume_key, alloc) = ((&*namespace, &*id), claim.allocation_id.as_str());
        match of_node {
            true => {
                volumes
                    .release_by_node(volume_key, &claim, allowed.origin())
                    .await
            }
            false => volumes.unpublish(volume_key, alloc, allowed.origin()).await,
        }
    };
    let index = spawn_detached(release).await??;
    Ok(WriteResponse { index })
}

/// The request to release the claim that the request names.
fn as_unpublish(requested: CsiVolumeClaimRequest) -> CsiVolumeUnpublishRequest {
    CsiVolumeUnpublishRequest {
        namespace: requested.namespace,
        volume_id: requested.volume_id,
        claim: Some(NamedClaim {
            allocation_id: requested.allocation_id,
            node_id: requested.node_id,
            mode: requested.mode,
            ..NamedClaim::default()
        }),
    }
}

fn namespace(named: String) -> String {
    match named.is_empty() {
        true => DEFAULT_NAMESPACE.to_owned(),
        false => named,
    }
}

impl ClientEndpoints {
    /// Authorizes a server, or the node that the request names.
    async fn authorize_server_or_node(
        self: &Arc<Self>,
        call: &Call,
        node: &str,
    ) -> Result<Allowed, Refusal> {
        match self.authorize_server(call, "volumes") {
            Some(allowed) => Ok(allowed),
            None => self.authorize_node(call, node).await,
        }
    }

    /// Authorizes a caller with a token that may detach volumes of the namespace.
    async fn authorize_detach(
        self: &Arc<Self>,
        call: &Call,
        namespace: &str,
    ) -> Result<Allowed, Refusal> {
        self.authorize_token(call, |who: &Identity| who.acl.csi_mount_allows(namespace))
            .await
    }

    /// Refuses a claim for an allocation of another node. An allocation that does not exist is
    /// refused when the claim is decided, with a text of its own.
    fn require_alloc_on_node(&self, alloc: &str, node: &str) -> Result<(), Refusal> {
        let view = self.server.projections.view();
        let row = view.get::<Allocs>(alloc)?;
        match row.is_some_and(|row| row.alloc.node_id != node) {
            true => Err(Refusal::permission_denied()),
            false => Ok(()),
        }
    }

    /// Refuses to detach a volume from an allocation that lives. The node would refuse it too, but
    /// by then the release would be recorded and could not be undone.
    fn require_no_live_claim(&self, volume: (&str, &str), alloc: &str) -> Result<(), Refusal> {
        let view = self.server.projections.view();
        let known = csi::volume(&view, volume)?;
        let lives = known.is_some_and(|known| {
            let row = &known.row;
            row.claim_of(alloc).is_some() && !row.past_claims.contains_key(alloc)
        });
        match lives {
            true => Err(Refusal::by_rule(format!(
                "volume \"{}\" is in use by allocation \"{alloc}\"",
                volume.1
            ))),
            false => Ok(()),
        }
    }

    /// Refuses to release a claim that another node holds.
    fn require_claim_of_node(
        &self,
        volume: (&str, &str),
        claim: &NamedClaim,
    ) -> Result<(), Refusal> {
        let view = self.server.projections.view();
        let known = csi::volume(&view, volume)?;
        let held = known
            .as_ref()
            .and_then(|known| known.row.claim_of(&claim.allocation_id));
        match held.is_some_and(|held| held.node_id != claim.node_id) {
            true => Err(Refusal::permission_denied()),
            false => Ok(()),
        }
    }
}
