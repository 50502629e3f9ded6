//! A plugin, reached at the address that it printed.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status, Streaming};

use crate::handshake::Address;
use crate::proto::base::base_plugin_client::BasePluginClient;
use crate::proto::base::{self, PluginType, Spec};
use crate::proto::controller::{self, grpc_controller_client::GrpcControllerClient};
use crate::proto::device::device_plugin_client::DevicePluginClient;
use crate::proto::device::{self, FingerprintResponse, StatsResponse};

/// What the name in every request's address is: a socket has none.
const AUTHORITY: &str = "http://localhost";
/// How long a plugin may take to say what it knows by itself.
const QUICK: Duration = Duration::from_secs(10);
/// How long it may take to make devices ready for a task.
const WORK: Duration = Duration::from_secs(60);
/// The version of the calls that are made here.
const API: &str = "v0.1.0";
/// How much is repeated of what a plugin says, bytes.
const TEXT: usize = 512;

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub struct CallError {
    pub call: &'static str,
    /// The plugin's error, or that it did not answer.
    pub text: String,
}

/// The identity that a plugin reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub name: String,
    pub version: String,
    /// It gives devices to tasks.
    pub has_devices: bool,
    /// It speaks the version of the calls that are made here.
    pub understood: bool,
}

/// A plugin that listens. Clones share one connection.
#[derive(Clone, Debug)]
pub struct Plugin {
    channel: Channel,
}

impl Plugin {
    /// The plugin that listens there; it is connected to when the first call is made. Call it
    /// inside of a runtime.
    pub fn at(address: Address) -> Plugin {
        let endpoint = Endpoint::from_static(AUTHORITY).connect_timeout(QUICK);
        let channel = match address {
            Address::Unix(path) => {
                endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
                    let path = path.clone();
                    async move { UnixStream::connect(path).await.map(TokioIo::new) }
                }))
            }
            Address::Tcp(address) => {
                endpoint.connect_with_connector_lazy(tower::service_fn(move |_| async move {
                    TcpStream::connect(address).await.map(TokioIo::new)
                }))
            }
        };
        Plugin { channel }
    }

    /// Its identity.
    ///
    /// # Errors
    /// It did not answer.
    pub async fn info(&self) -> Result<Info, CallError> {
        let mut client = BasePluginClient::new(self.channel.clone());
        let requested = client.plugin_info(base::PluginInfoRequest {});
        let answer = made("PluginInfo", QUICK, requested).await?;
        Ok(Info {
            has_devices: answer.r#type() == PluginType::Device,
            understood: answer.plugin_api_versions.iter().any(|one| one == API),
            version: answer.plugin_version,
            name: answer.name,
        })
    }

    /// The form of its settings; none where it takes none.
    ///
    /// # Errors
    /// It did not answer.
    pub async fn schema(&self) -> Result<Option<Spec>, CallError> {
        let mut client = BasePluginClient::new(self.channel.clone());
        let requested = client.config_schema(base::ConfigSchemaRequest {});
        Ok(made("ConfigSchema", QUICK, requested).await?.spec)
    }

    /// Gives it its settings, as [`crate::schema::encoded`] makes them.
    ///
    /// # Errors
    /// It does not take them.
    pub async fn configure(&self, settings: Vec<u8>) -> Result<(), CallError> {
        let mut client = BasePluginClient::new(self.channel.clone());
        let requested = client.set_config(base::SetConfigRequest {
            msgpack_config: settings,
            nomad_config: None,
            plugin_api_version: API.to_owned(),
        });
        made("SetConfig", QUICK, requested).await.map(drop)
    }

    /// Its devices, whenever they change.
    ///
    /// # Errors
    /// It did not answer.
    pub async fn fingerprint(&self) -> Result<Streaming<FingerprintResponse>, CallError> {
        let mut client = DevicePluginClient::new(self.channel.clone());
        let requested = client.fingerprint(device::FingerprintRequest {});
        opened("Fingerprint", requested).await
    }

    /// Makes devices ready for a task; what it needs to use them.
    ///
    /// # Errors
    /// They are not to be had.
    pub async fn reserve(
        &self,
        ids: Vec<String>,
    ) -> Result<device::ContainerReservation, CallError> {
        let mut client = DevicePluginClient::new(self.channel.clone());
        let requested = client.reserve(device::ReserveRequest { device_ids: ids });
        let answer = made("Reserve", WORK, requested).await?;
        Ok(answer.container_res.unwrap_or_default())
    }

    /// How its devices do, once every interval.
    ///
    /// # Errors
    /// It did not answer.
    pub async fn stats(&self, interval: Duration) -> Result<Streaming<StatsResponse>, CallError> {
        let mut client = DevicePluginClient::new(self.channel.clone());
        let requested = client.stats(device::StatsRequest {
            collection_interval: prost_types::Duration::try_from(interval).ok(),
        });
        opened("Stats", requested).await
    }

    /// Requests its end.
    ///
    /// # Errors
    /// It did not answer.
    pub async fn shutdown(&self) -> Result<(), CallError> {
        let mut client = GrpcControllerClient::new(self.channel.clone());
        let requested = client.shutdown(controller::Empty {});
        made("Shutdown", QUICK, requested).await.map(drop)
    }
}

impl CallError {
    /// What a stream ended with.
    pub fn of(call: &'static str, status: &Status) -> CallError {
        let message = status.message();
        let end = (0..=TEXT.min(message.len()))
            .rev()
            .find(|at| message.is_char_boundary(*at));
        let message = &message[..end.unwrap_or_default()];
        let text = match status.code() {
            Code::Unknown if !message.is_empty() => message.to_owned(),
            code => format!("{code:?}: {message}"),
        };
        CallError { call, text }
    }
}

/// Waits until a stream begins, however long: many servers of gRPC say nothing before they have a
/// first message, which comes when something is to be reported. A plugin that has ended is gone.
async fn opened<A>(
    call: &'static str,
    requested: impl Future<Output = Result<Response<Streaming<A>>, Status>>,
) -> Result<Streaming<A>, CallError> {
    match requested.await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(CallError::of(call, &status)),
    }
}

/// Waits for an answer, so long.
async fn made<A>(
    call: &'static str,
    limit: Duration,
    requested: impl Future<Output = Result<Response<A>, Status>>,
) -> Result<A, CallError> {
    match timeout(limit, requested).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(CallError::of(call, &status)),
        Err(_) => Err(CallError {
            call,
            text: format!("no answer within {limit:?}"),
        }),
    }
}
