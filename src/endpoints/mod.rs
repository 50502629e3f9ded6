//! What the methods mean: read a view, or submit a command, and nothing else.
//!
//! Methods of clients prove who calls with the node's secret, whether ACLs are on or off.

#[cfg(test)]
mod access_test;
mod acl;
#[cfg(test)]
mod acl_test;
mod alloc_batch;
mod auth;
mod blocking;
mod control;
mod csi;
#[cfg(test)]
mod csi_test;
mod host_volume;
#[cfg(test)]
mod host_volume_test;
#[cfg(test)]
mod labels_test;
mod node;
mod node_allocs;
mod service;
#[cfg(test)]
mod strangers_test;
#[cfg(test)]
pub(crate) mod testing;
mod volumes;
#[cfg(test)]
mod volumes_test;

#[cfg(test)]
mod endpoints_test;

use std::sync::Arc;
use std::time::Duration;

use crate::net::Rates;
use crate::rpc::csi::{CsiVolumeClaim, CsiVolumeUnpublish};
use crate::rpc::forward::ServerForward;
use crate::rpc::host_volume::{
    HostVolumeCreate, HostVolumeDelete, HostVolumeGet, HostVolumeList, HostVolumeRegister,
    TaskGroupVolumeClaimDelete, TaskGroupVolumeClaimList,
};
use crate::rpc::methods::{
    AclGetClaimPolicies, AclGetPolicies, AclGetRoles, AclResolveToken, AclWhoAmI, AllocGetAllocs,
    Empty, LeaderResponse, NodeEmitEvents, NodeGetClientAllocs, NodeGetNode, NodeRegister,
    NodeUpdateAlloc, NodeUpdateDrain, NodeUpdateStatus, ServiceDelete, ServiceUpsert, StatusLeader,
    StatusPing,
};
use crate::rpc::service::Access::{
    Agent, Management, NewNode, Node, NodeOr, NodeOrGone, NodeOrToken, Peer, Public, Token,
};
use crate::rpc::service::{Call, Service};
use crate::rpc::sessions::{NodeControl, NodeDial, NodeSession};
use crate::rpc::volumes as calls;
use crate::server::Server;

pub use auth::secret_hash;

/// Notes a heartbeat of a node and answers when the next one is due.
pub type Beat = Box<dyn Fn(&str) -> Duration + Send + Sync>;

/// What the handlers work with.
pub struct ClientEndpoints {
    server: auth::Guarded,
    beat: Beat,
    batch: alloc_batch::Batcher,
    proven: auth::Proven,
    pace: blocking::WakePace,
    requests: Arc<Rates>,
}

/// What callers may request in a second.
pub struct Limited {
    /// How many calls, by their caller and from where.
    pub calls: Arc<Rates>,
    /// Of how many requests a namespace's share is, which calls that stand for one take of.
    pub requests: Arc<Rates>,
}

impl Limited {
    /// As much as they like.
    #[must_use]
    pub fn none() -> Self {
        Self {
            calls: Rates::none(),
            requests: Rates::none(),
        }
    }
}

impl ClientEndpoints {
    /// The epoch of the log, as clients compare it.
    fn epoch(&self) -> String {
        hex::encode(self.server.raft.log().epoch().id)
    }

    /// The answer to `Status.Leader`.
    fn leader_response(&self) -> LeaderResponse {
        let leader = self.server.leader().map(|member| member.rpc_addr);
        LeaderResponse {
            leader: leader.unwrap_or_default(),
        }
    }
}

/// The methods that clients call, over `server`. Must be called within a runtime.
pub fn service(server: Arc<Server>, beat: Beat) -> Service<ClientEndpoints> {
    service_within(server, beat, Limited::none())
}

/// The same, of which callers may request so much.
pub fn service_within(
    server: Arc<Server>,
    beat: Beat,
    limited: Limited,
) -> Service<ClientEndpoints> {
    let rates = limited.calls;
    let batch = alloc_batch::Batcher::start(server.clone());
    let endpoints = Arc::new(ClientEndpoints {
        server: auth::Guarded::new(server),
        beat,
        batch,
        proven: auth::Proven::default(),
        pace: blocking::WakePace::default(),
        requests: limited.requests,
    });
    of_host_volumes(of_volumes(Service::new(endpoints)))
        .labelled_by(ClientEndpoints::label)
        .found_by(async |endpoints: Arc<ClientEndpoints>, call: Call| {
            // Where that cannot be read the caller is not known here; the check of the method says
            // why.
            let _ = endpoints.authenticate(&call).await;
        })
        .limited_by(move |endpoints: Arc<ClientEndpoints>, name, call: Call| {
            let rates = Arc::clone(&rates);
            async move { endpoints.within(&rates, name, &call).await }
        })
        .guarded_by(
            async |endpoints: Arc<ClientEndpoints>, access, call: Call| {
                endpoints.admit(access, &call).await
            },
        )
        .denied_by(
            async |endpoints: Arc<ClientEndpoints>, name, call: Call, error| {
                endpoints.denied(name, &call, error).await
            },
        )
        .known_by(async |endpoints: Arc<ClientEndpoints>, call: Call| endpoints.admits(&call).await)
        .method::<NodeRegister, _, _>(NewNode, node::register)
        .method::<NodeUpdateStatus, _, _>(NodeOrGone, node::update_status)
        .method::<NodeUpdateAlloc, _, _>(Node, node::update_alloc)
        .method::<NodeEmitEvents, _, _>(Node, node::emit_events)
        .method::<NodeUpdateDrain, _, _>(Node, node::update_drain)
        .method::<NodeGetNode, _, _>(Node, node::get)
        .method::<NodeGetClientAllocs, _, _>(Node, node_allocs::client_allocs)
        .method::<AllocGetAllocs, _, _>(Node, node_allocs::get_allocs)
        .method::<ServiceUpsert, _, _>(Node, service::upsert)
        .method::<ServiceDelete, _, _>(Node, service::delete)
        .method::<AclResolveToken, _, _>(Public, acl::resolve_token)
        .method::<AclGetPolicies, _, _>(NodeOrToken, acl::get_policies)
        .method::<AclGetRoles, _, _>(NodeOrToken, acl::get_roles)
        .method::<AclGetClaimPolicies, _, _>(Public, acl::get_claim_policies)
        .method::<AclWhoAmI, _, _>(Public, acl::who_am_i)
        .method::<CsiVolumeClaim, _, _>(NodeOr(SERVER), csi::claim)
        .method::<CsiVolumeUnpublish, _, _>(NodeOr(MOUNT), csi::unpublish)
        .stream::<NodeControl, _, _>(Node, control::control)
        .stream::<NodeSession, _, _>(Node, control::session)
        .stream::<NodeDial, _, _>(Peer, control::dial)
        .stream::<ServerForward, _, _>(Agent, control::forward)
        .method::<StatusPing, _, _>(Public, async |_, _: Call, Empty {}| Ok(Empty {}))
        .method::<StatusLeader, _, _>(
            Public,
            async |endpoints: Arc<ClientEndpoints>, _: Call, Empty {}| {
                Ok(endpoints.leader_response())
            },
        )
}

/// Another server.
const SERVER: &str = "a server's certificate";
/// Attaching and detaching volumes.
const MOUNT: &str = "csi-mount-volume and plugin:read";
/// Changing volumes.
const WRITE: &str = "csi-write-volume and plugin:read";
/// Seeing volumes in lists.
const LIST: &str = "csi-list-volume, csi-read-volume, csi-mount-volume or list-jobs";
/// Seeing what a provider has.
const EXTERNAL: &str = "csi-list-volume and plugin:read";
/// Seeing a volume.
const READ: &str = "csi-read-volume or csi-mount-volume or read-job, and plugin:read";

/// Volumes and plugins for callers with a token.
fn of_volumes(service: Service<ClientEndpoints>) -> Service<ClientEndpoints> {
    service
        .method::<calls::VolumeList, _, _>(Token(LIST), volumes::list)
        .method::<calls::VolumeGet, _, _>(Token(READ), volumes::get)
        .method::<calls::VolumeRegister, _, _>(Token(WRITE), volumes::register)
        .method::<calls::VolumeDeregister, _, _>(Token("csi-write-volume"), volumes::deregister)
        .method::<calls::VolumeCreate, _, _>(Token(WRITE), volumes::create)
        .method::<calls::VolumeDelete, _, _>(Token(WRITE), volumes::delete)
        .method::<calls::VolumeListExternal, _, _>(Token(EXTERNAL), volumes::list_external)
        .method::<calls::SnapshotCreate, _, _>(Token(WRITE), volumes::create_snapshots)
        .method::<calls::SnapshotDelete, _, _>(Token(WRITE), volumes::delete_snapshots)
        .method::<calls::SnapshotList, _, _>(Token(EXTERNAL), volumes::list_snapshots)
        .method::<calls::PluginList, _, _>(Token("plugin:list"), volumes::list_plugins)
        .method::<calls::PluginGet, _, _>(Token("plugin:read"), volumes::get_plugin)
        .method::<calls::PluginDelete, _, _>(Management, volumes::delete_plugin)
}

/// Host volumes for callers with a token.
fn of_host_volumes(service: Service<ClientEndpoints>) -> Service<ClientEndpoints> {
    service
        .method::<HostVolumeCreate, _, _>(Token("host-volume-create"), host_volume::create)
        .method::<HostVolumeRegister, _, _>(Token("host-volume-register"), host_volume::register)
        .method::<HostVolumeDelete, _, _>(Token("host-volume-delete"), host_volume::delete)
        .method::<HostVolumeGet, _, _>(Token("host-volume-read"), host_volume::get)
        .method::<HostVolumeList, _, _>(Token("host-volume-read"), host_volume::list)
        .method::<TaskGroupVolumeClaimList, _, _>(Token("host-volume-read"), host_volume::claims)
        .method::<TaskGroupVolumeClaimDelete, _, _>(
            Token("host-volume-delete"),
            host_volume::release,
        )
}
