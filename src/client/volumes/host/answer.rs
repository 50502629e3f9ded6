//! Requests of servers about the volumes of this node.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::HostVolumes;
use drover_error::Refusal;
use drover_rpc::csi::Done;
use drover_rpc::duplex::{Duplex, Keepalive};
use drover_rpc::host_volume::{
    ClientHostVolumeCreate, ClientHostVolumeCreateRequest, ClientHostVolumeCreateResponse,
    ClientHostVolumeDelete, ClientHostVolumeDeleteRequest, ClientHostVolumeDeleteResponse,
    ClientHostVolumeRegister, ClientHostVolumeRegisterRequest,
};
use drover_rpc::service::{Access, Call, Dispatch, Service};

/// What the names of the methods begin with.
const NOUN: &str = "ClientHostVolume.";

/// The methods, for the sessions that servers open.
pub fn service(volumes: &Arc<HostVolumes>) -> Service<HostVolumes> {
    Service::new(Arc::clone(volumes))
        .method::<ClientHostVolumeCreate, _, _>(Access::Server, create)
        .method::<ClientHostVolumeRegister, _, _>(Access::Server, register)
        .method::<ClientHostVolumeDelete, _, _>(Access::Server, delete)
}

async fn create(
    volumes: Arc<HostVolumes>,
    _: Call,
    requested: ClientHostVolumeCreateRequest,
) -> Result<ClientHostVolumeCreateResponse, Refusal> {
    let (volume_name, volume_id) = (requested.name.clone(), requested.id.clone());
    let made = volumes.create(requested).await?;
    Ok(ClientHostVolumeCreateResponse {
        volume_name,
        volume_id,
        host_path: made.path,
        capacity_bytes: made.bytes,
    })
}

async fn register(
    volumes: Arc<HostVolumes>,
    _: Call,
    requested: ClientHostVolumeRegisterRequest,
) -> Result<Done, Refusal> {
    volumes.register(requested).await.map(|()| Done::default())
}

async fn delete(
    volumes: Arc<HostVolumes>,
    _: Call,
    requested: ClientHostVolumeDeleteRequest,
) -> Result<ClientHostVolumeDeleteResponse, Refusal> {
    let (volume_name, volume_id) = (requested.name.clone(), requested.id.clone());
    volumes.delete(requested).await?;
    Ok(ClientHostVolumeDeleteResponse {
        volume_name,
        volume_id,
    })
}

/// The methods of host volumes, and beside them those of `others`.
pub struct Beside<S> {
    /// The handlers for host volumes.
    pub volumes: Service<HostVolumes>,
    /// All others.
    pub others: S,
}

impl<S: Dispatch> Beside<S> {
    fn of(&self, name: &str) -> &dyn Dispatch {
        match name.starts_with(NOUN) {
            true => &self.volumes,
            false => &self.others,
        }
    }
}

impl<S: Dispatch> Dispatch for Beside<S> {
    fn dispatch(
        &self,
        name: &str,
        call: Call,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        self.of(name).dispatch(name, call, body)
    }

    fn streams(&self, name: &str) -> Option<Keepalive> {
        self.of(name).streams(name)
    }

    fn open(
        &self,
        name: &str,
        call: Call,
        stream: Duplex,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        self.of(name).open(name, call, stream)
    }

    fn knows(&self, call: &Call) -> BoxFuture<'static, bool> {
        self.others.knows(call)
    }
}
