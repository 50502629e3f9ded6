//! A plugin in the process of a test, which answers as the test sets.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;

pub use drover_csi::proto;
use drover_csi::proto::controller_server::{Controller, ControllerServer};
use drover_csi::proto::identity_server::{Identity, IdentityServer};
use drover_csi::proto::node_server::{Node, NodeServer};
use drover_csi::proto::{
    controller_service_capability, node_service_capability, plugin_capability,
};
use tokio::net::UnixListener;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What the fake says instead of what is right.
#[derive(Default)]
pub struct Says {
    /// Every call fails with this.
    pub refuses: Mutex<Option<Status>>,
    /// No call answers.
    pub hangs: Mutex<bool>,
    /// No call answers before this is false again.
    pub holds: watch::Sender<bool>,
    /// No call answers that has this in it; empty for none.
    pub stuck: Mutex<String>,
    /// A call came.
    pub arrived: Notify,
    /// The name it has.
    pub name: Mutex<String>,
    /// The ids it gives.
    pub id: Mutex<String>,
    /// It says that it did what it did not.
    pub lies: Mutex<bool>,
    /// How it says that its volumes grow.
    pub grows: Mutex<Vec<plugin_capability::volume_expansion::Type>>,
    /// It makes nothing larger on its node, and says this.
    pub no_growing: Mutex<Option<Status>>,
    /// What came, as `Debug` shows it, with the deadline that came along.
    pub seen: Mutex<Vec<(String, Option<String>)>>,
}

impl Says {
    async fn of<R: std::fmt::Debug, A>(
        &self,
        requested: Request<R>,
        answer: A,
    ) -> Result<Response<A>, Status> {
        let deadline = requested.metadata().get("grpc-timeout");
        let deadline = deadline.and_then(|given| given.to_str().ok().map(str::to_owned));
        let shown = format!("{:?}", requested.get_ref());
        let stuck = self.stuck.lock().unwrap().clone();
        let hangs = !stuck.is_empty() && shown.contains(&stuck);
        self.seen.lock().unwrap().push((shown, deadline));
        self.arrived.notify_one();
        // The sender is part of this very value.
        let _ = self.holds.subscribe().wait_for(|holds| !holds).await;
        if hangs || *self.hangs.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        match self.refuses.lock().unwrap().clone() {
            Some(status) => Err(status),
            None => Ok(Response::new(answer)),
        }
    }
}

/// A fake that listens; it stops when this is dropped.
pub struct Fake {
    /// What it says.
    pub says: Arc<Says>,
    /// Where it listens.
    pub socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Fake {
    /// Listens there.
    ///
    /// # Panics
    /// Where it cannot.
    pub fn at(socket: &Path) -> Fake {
        let says = Arc::new(Says::default());
        *says.name.lock().unwrap() = "fake.example.com".to_owned();
        *says.id.lock().unwrap() = "one".to_owned();
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        let serving = Server::builder()
            .add_service(IdentityServer::from_arc(Arc::clone(&says)))
            .add_service(ControllerServer::from_arc(Arc::clone(&says)))
            .add_service(NodeServer::from_arc(Arc::clone(&says)))
            .serve_with_incoming_shutdown(listener, async {
                let _ = stopped.await;
            });
        let server = tokio::spawn(async move { serving.await.unwrap() });
        Fake {
            says,
            socket: socket.to_owned(),
            stop: Some(stop),
            server,
        }
    }

    /// An answer that is a refusal.
    pub fn status(&self, code: tonic::Code, text: &str) -> Status {
        Status::new(code, text)
    }

    /// Stops it and takes its socket away, as a plugin that is restarted.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.server.abort();
        let _ = (&mut self.server).await;
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[tonic::async_trait]
impl Identity for Says {
    async fn get_plugin_info(
        &self,
        requested: Request<proto::GetPluginInfoRequest>,
    ) -> Result<Response<proto::GetPluginInfoResponse>, Status> {
        let answer = proto::GetPluginInfoResponse {
            name: self.name.lock().unwrap().clone(),
            vendor_version: "1.2.3".to_owned(),
            ..Default::default()
        };
        self.of(requested, answer).await
    }

    async fn get_plugin_capabilities(
        &self,
        requested: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<proto::GetPluginCapabilitiesResponse>, Status> {
        let kinds = [
            plugin_capability::service::Type::ControllerService,
            plugin_capability::service::Type::VolumeAccessibilityConstraints,
        ];
        let mut capabilities = kinds
            .map(|kind| proto::PluginCapability {
                r#type: Some(plugin_capability::Type::Service(
                    plugin_capability::Service {
                        r#type: i32::from(kind),
                    },
                )),
            })
            .to_vec();
        for how in self.grows.lock().unwrap().iter() {
            let grows = plugin_capability::VolumeExpansion {
                r#type: i32::from(*how),
            };
            capabilities.push(proto::PluginCapability {
                r#type: Some(plugin_capability::Type::VolumeExpansion(grows)),
            });
        }
        self.of(
            requested,
            proto::GetPluginCapabilitiesResponse { capabilities },
        )
        .await
    }

    async fn probe(
        &self,
        requested: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeResponse>, Status> {
        self.of(requested, proto::ProbeResponse { ready: None })
            .await
    }
}

#[tonic::async_trait]
impl Controller for Says {
    async fn controller_get_capabilities(
        &self,
        requested: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
        // The third is of a version that does not exist yet.
        let capabilities = [1, 2, 4_711]
            .map(|kind| proto::ControllerServiceCapability {
                r#type: Some(controller_service_capability::Type::Rpc(
                    controller_service_capability::Rpc { r#type: kind },
                )),
            })
            .to_vec();
        let answer = proto::ControllerGetCapabilitiesResponse { capabilities };
        self.of(requested, answer).await
    }

    async fn create_volume(
        &self,
        requested: Request<proto::CreateVolumeRequest>,
    ) -> Result<Response<proto::CreateVolumeResponse>, Status> {
        let volume_id = self.id.lock().unwrap().clone();
        let volume = Some(proto::Volume {
            volume_id,
            content_source: requested.get_ref().volume_content_source.clone(),
            ..Default::default()
        });
        self.of(requested, proto::CreateVolumeResponse { volume })
            .await
    }

    async fn controller_publish_volume(
        &self,
        requested: Request<proto::ControllerPublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerPublishVolumeResponse>, Status> {
        self.of(requested, proto::ControllerPublishVolumeResponse::default())
            .await
    }

    async fn controller_expand_volume(
        &self,
        requested: Request<proto::ControllerExpandVolumeRequest>,
    ) -> Result<Response<proto::ControllerExpandVolumeResponse>, Status> {
        let range = requested.get_ref().capacity_range;
        let answer = proto::ControllerExpandVolumeResponse {
            capacity_bytes: range.map_or(0, |range| range.required_bytes),
            node_expansion_required: true,
        };
        self.of(requested, answer).await
    }

    async fn create_snapshot(
        &self,
        requested: Request<proto::CreateSnapshotRequest>,
    ) -> Result<Response<proto::CreateSnapshotResponse>, Status> {
        let snapshot = Some(proto::Snapshot {
            snapshot_id: "of-another".to_owned(),
            source_volume_id: "another".to_owned(),
            ..Default::default()
        });
        self.of(requested, proto::CreateSnapshotResponse { snapshot })
            .await
    }

    async fn validate_volume_capabilities(
        &self,
        requested: Request<proto::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<proto::ValidateVolumeCapabilitiesResponse>, Status> {
        let confirmed = proto::validate_volume_capabilities_response::Confirmed {
            volume_capabilities: requested.get_ref().volume_capabilities[..1].to_vec(),
            ..Default::default()
        };
        let answer = proto::ValidateVolumeCapabilitiesResponse {
            confirmed: Some(confirmed),
            message: String::new(),
        };
        self.of(requested, answer).await
    }
}

#[tonic::async_trait]
impl Node for Says {
    async fn node_get_capabilities(
        &self,
        requested: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<proto::NodeGetCapabilitiesResponse>, Status> {
        let rpc = node_service_capability::Rpc {
            r#type: i32::from(node_service_capability::rpc::Type::StageUnstageVolume),
        };
        let capabilities = vec![proto::NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(rpc)),
        }];
        let answer = proto::NodeGetCapabilitiesResponse { capabilities };
        self.of(requested, answer).await
    }

    async fn node_get_info(
        &self,
        requested: Request<proto::NodeGetInfoRequest>,
    ) -> Result<Response<proto::NodeGetInfoResponse>, Status> {
        let node_id = self.id.lock().unwrap().clone();
        let answer = proto::NodeGetInfoResponse {
            node_id,
            max_volumes_per_node: -1,
            accessible_topology: None,
        };
        self.of(requested, answer).await
    }

    async fn node_stage_volume(
        &self,
        requested: Request<proto::NodeStageVolumeRequest>,
    ) -> Result<Response<proto::NodeStageVolumeResponse>, Status> {
        self.of(requested, proto::NodeStageVolumeResponse {}).await
    }

    async fn node_publish_volume(
        &self,
        requested: Request<proto::NodePublishVolumeRequest>,
    ) -> Result<Response<proto::NodePublishVolumeResponse>, Status> {
        let target = requested.get_ref().target_path.clone();
        let answer = self
            .of(requested, proto::NodePublishVolumeResponse {})
            .await?;
        if !*self.lies.lock().unwrap() {
            std::fs::create_dir(target).ok();
        }
        Ok(answer)
    }

    async fn node_expand_volume(
        &self,
        requested: Request<proto::NodeExpandVolumeRequest>,
    ) -> Result<Response<proto::NodeExpandVolumeResponse>, Status> {
        let answer = self.of(requested, proto::NodeExpandVolumeResponse::default());
        let answer = answer.await?;
        let refusal = self.no_growing.lock().unwrap().clone();
        refusal.map_or(Ok(answer), Err)
    }

    async fn node_unpublish_volume(
        &self,
        requested: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<proto::NodeUnpublishVolumeResponse>, Status> {
        let target = requested.get_ref().target_path.clone();
        let answer = self
            .of(requested, proto::NodeUnpublishVolumeResponse {})
            .await?;
        if !*self.lies.lock().unwrap() && !target.is_empty() {
            std::fs::remove_dir(target).ok();
        }
        Ok(answer)
    }

    async fn node_unstage_volume(
        &self,
        requested: Request<proto::NodeUnstageVolumeRequest>,
    ) -> Result<Response<proto::NodeUnstageVolumeResponse>, Status> {
        self.of(requested, proto::NodeUnstageVolumeResponse {})
            .await
    }
}
