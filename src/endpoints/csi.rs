//! Volumes of allocations: taken and given back by the client that runs them. A node does so for
//! its own allocations only (CSI-20); what they are, servers know by themselves (CSI-21).

use std::sync::Arc;

use drover_events::csi::{CsiVolumeClaimed, mode, state};
use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_projections::query::csi;
use drover_projections::tables::allocs::Allocs;

use super::Clients;
use super::auth::Allowed;
use crate::error::Refusal;
use crate::identity::Identity;
use crate::rpc::csi::{
    CsiVolumeClaimRequest, CsiVolumeClaimResponse, CsiVolumeUnpublishRequest, NamedClaim,
};
use crate::rpc::methods::WriteResponse;
use crate::rpc::service::Call;
use crate::table_reads::{deciding, going_on};

/// `CSIVolume.Claim`.
pub(super) async fn claim(
    clients: Arc<Clients>,
    call: Call,
    requested: CsiVolumeClaimRequest,
) -> Result<CsiVolumeClaimResponse, Refusal> {
    if requested.state != state::TAKEN {
        // Claiming and releasing share one method; a release is one, whichever way it is named
        // (CSI-23).
        let index = unpublish(clients, call, released(requested)).await?.index;
        return Ok(CsiVolumeClaimResponse {
            index,
            ..CsiVolumeClaimResponse::default()
        });
    }
    let origin = clients
        .asker(&call, &requested.node_id)
        .await?
        .into_origin();
    if requested.claim >= mode::GC {
        return Err(Refusal::permission_denied());
    }
    named((&requested.volume_id, &requested.allocation_id))?;
    let claim = CsiVolumeClaimed {
        namespace: namespace(requested.namespace),
        volume_id: requested.volume_id,
        allocation_id: requested.allocation_id,
        node_id: requested.node_id,
        claim: requested.claim,
        access_mode: requested.access_mode,
        attachment_mode: requested.attachment_mode,
        ..CsiVolumeClaimed::default()
    };
    let own = (
        clients.clone(),
        claim.allocation_id.clone(),
        claim.node_id.clone(),
    );
    deciding(move || own.0.runs_on(&own.1, &own.2)).await??;
    let volumes = Arc::clone(&clients.server.volumes);
    if requested.expanded != 0 {
        let reported = async move { volumes.expanded(&claim, requested.expanded, &origin).await };
        return Ok(CsiVolumeClaimResponse {
            index: going_on(reported).await??,
            ..CsiVolumeClaimResponse::default()
        });
    }
    // It goes on where the caller is gone: it calls again, and finds it done.
    let taken = going_on(async move { volumes.claim(claim, origin).await }).await??;
    Ok(CsiVolumeClaimResponse {
        publish_context: taken.publish_context,
        volume: Some(taken.volume),
        index: taken.index,
        node_expansion: taken.node_expansion,
    })
}

/// Refuses what names no volume or no allocation.
fn named((volume, alloc): (&str, &str)) -> Result<(), Refusal> {
    let all = [("volume ID", volume), ("allocation ID", alloc)];
    match all.into_iter().find(|(_, named)| named.is_empty()) {
        Some((what, _)) => Err(Refusal::bad_request(format!("missing {what}"))),
        None => Ok(()),
    }
}

/// `CSIVolume.Unpublish`.
pub(super) async fn unpublish(
    clients: Arc<Clients>,
    call: Call,
    requested: CsiVolumeUnpublishRequest,
) -> Result<WriteResponse, Refusal> {
    // A request that names no claim names no node either: its caller has not said who it is.
    let claim = requested.claim.unwrap_or_default();
    let namespace = namespace(requested.namespace);
    // A caller that names no node calls with a token, and detaches what any allocation left.
    let by_token = call.node.is_empty() && !clients.is_server(&call);
    let allowed = match by_token {
        true => clients.detacher(&call, &namespace).await?,
        false => clients.asker(&call, &claim.node_id).await?,
    };
    named((&requested.volume_id, &claim.allocation_id))?;
    let id = requested.volume_id;
    let of_node = !by_token && !clients.is_server(&call);
    if of_node {
        let own = (
            clients.clone(),
            namespace.clone(),
            id.clone(),
            claim.clone(),
        );
        deciding(move || own.0.holds((&own.1, &own.2), &own.3)).await??;
    }
    if by_token {
        let past = (clients.clone(), namespace.clone(), id.clone());
        let alloc = claim.allocation_id.clone();
        deciding(move || past.0.is_past((&past.1, &past.2), &alloc)).await??;
    }
    let volumes = Arc::clone(&clients.server.volumes);
    let giving = async move {
        let (place, alloc) = ((&*namespace, &*id), claim.allocation_id.as_str());
        match of_node {
            true => volumes.give_back(place, &claim, allowed.origin()).await,
            false => volumes.unpublish(place, alloc, allowed.origin()).await,
        }
    };
    let index = going_on(giving).await??;
    Ok(WriteResponse { index })
}

fn released(requested: CsiVolumeClaimRequest) -> CsiVolumeUnpublishRequest {
    CsiVolumeUnpublishRequest {
        namespace: requested.namespace,
        volume_id: requested.volume_id,
        claim: Some(NamedClaim {
            allocation_id: requested.allocation_id,
            node_id: requested.node_id,
            mode: requested.claim,
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

impl Clients {
    /// Who calls: a server, or the node that the request names.
    async fn asker(self: &Arc<Self>, call: &Call, node: &str) -> Result<Allowed, Refusal> {
        match self.server_calls(call, "volumes") {
            Some(allowed) => Ok(allowed),
            None => self.caller(call, node).await,
        }
    }

    /// A caller with a token, if it may detach volumes of the namespace.
    async fn detacher(self: &Arc<Self>, call: &Call, namespace: &str) -> Result<Allowed, Refusal> {
        self.bearer(call, |who: &Identity| who.acl.csi_mount_allows(namespace))
            .await
    }

    /// Refuses a claim for an allocation of another node. One that is not there is refused with
    /// its own text, where all of that is decided.
    fn runs_on(&self, alloc: &str, node: &str) -> Result<(), Refusal> {
        let view = self.server.projections.view();
        let row = view.get::<Allocs>(alloc)?;
        match row.is_some_and(|row| row.alloc.node_id != node) {
            true => Err(Refusal::permission_denied()),
            false => Ok(()),
        }
    }

    /// Refuses to take a volume from an allocation that lives: its node would refuse that too, but
    /// its claim were on its way back already, for good.
    fn is_past(&self, volume: (&str, &str), alloc: &str) -> Result<(), Refusal> {
        let view = self.server.projections.view();
        let known = csi::volume(&view, volume)?;
        let lives = known.is_some_and(|known| {
            let row = &known.row;
            row.claim_of(alloc).is_some() && !row.past_claims.contains_key(alloc)
        });
        match lives {
            true => Err(Refusal::refused(format!(
                "volume \"{}\" is in use by allocation \"{alloc}\"",
                volume.1
            ))),
            false => Ok(()),
        }
    }

    /// Refuses to give back what another node holds.
    fn holds(&self, volume: (&str, &str), claim: &NamedClaim) -> Result<(), Refusal> {
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
