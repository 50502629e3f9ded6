//! Volumes and plugins for callers with a token. What a method does, whom it lets do it and what it
//! refuses is what the route of the HTTP API says that does the same: the method calls it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use drover_events::gojson;
use drover_events::model::status::volume_type;
use drover_projections::Table as _;
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::CsiVolumes;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ClientEndpoints;
use super::auth::Allowed;
use crate::commands::csi::DeleteCsiPlugin;
use crate::error::{Code, Refusal};
use crate::identity::Identity;
use crate::net::Peer;
use crate::net::denies;
use crate::rpc::csi::{Done, Secrets};
use crate::rpc::forward::{Answered, Question, Web};
use crate::rpc::methods::WriteResponse;
use crate::rpc::service::Call;
use crate::rpc::volumes::{
    ExternalRequest, ExternalResponse, NamedRequest, PluginGetResponse, PluginListRequest,
    PluginListResponse, SnapshotsRequest, SnapshotsResponse, VolumeGetResponse, VolumeIdsRequest,
    VolumeListRequest, VolumeListResponse, VolumesRequest, VolumesResponse,
};

/// What a plugin needs to be let in where it keeps its volumes.
const SECRETS: &str = "x-nomad-csi-secrets";

fn missing(what: &str) -> Refusal {
    Refusal::bad_request(format!("missing {what}"))
}

fn read<T: DeserializeOwned>(answered: &Answered) -> Result<T, Refusal> {
    gojson::from_slice(&answered.body).map_err(|error| Refusal::internal(error.to_string()))
}

fn written(name: &str, listed: &impl Serialize) -> Result<bytes::Bytes, Refusal> {
    let body = serde_json::to_vec(&BTreeMap::from([(name, listed)]));
    Ok(body
        .map_err(|error| Refusal::internal(error.to_string()))?
        .into())
}

/// Secrets, as a header holds them.
fn in_head(secrets: &Secrets) -> Result<String, Refusal> {
    let mut text = String::new();
    for (name, value) in &secrets.0 {
        if name.contains(['=', ',']) || value.contains(',') {
            let text =
                format!("Secrets: {name:?} cannot be given: it has a comma, or = in its name");
            return Err(Refusal::bad_request(text));
        }
        let between = if text.is_empty() { "" } else { "," };
        text.push_str(&format!("{between}{name}={value}"));
    }
    Ok(text)
}

/// What waits for a change.
fn waits(question: Question, index: u64, time: i64) -> Question {
    let time = match time {
        ..=0 => String::new(),
        time => format!("{time}ns"),
    };
    question.number("index", index).text("wait", &time)
}

/// The refusal in an answer.
fn refusal(answered: &Answered) -> Refusal {
    let text = String::from_utf8_lossy(&answered.body).into_owned();
    let code = match crate::net::code(answered.status) {
        Some(code) => code,
        None if text == Refusal::no_leader().message => Code::NoLeader,
        None => Code::Refused,
    };
    Refusal::new(code, text).after(answered.retry_after)
}

impl ClientEndpoints {
    /// The HTTP API.
    pub(super) fn web(&self) -> Result<&Arc<dyn Web>, Refusal> {
        let closed = || Refusal::new(Code::Unavailable, "the API of this server is not open");
        self.server.web.get().ok_or_else(closed)
    }

    /// Calls the HTTP API in the name of the caller.
    async fn ask(self: &Arc<Self>, call: Call, question: Question) -> Result<Answered, Refusal> {
        let address = call.addr.parse().ok();
        let peer = Peer {
            address: address.map(|ip| SocketAddr::new(ip, 0)),
            certificate: call.certificate.clone(),
            behind: None,
        };
        let question = question.header("x-nomad-token", call.token.clone());
        let answered = self.web()?.ask(peer, question).await?;
        // Over HTTP a node is anonymous: what it is denied is written down of the call.
        if denies(answered.status) && !self.knows(&call).await {
            // The request has it in the request log.
            call.noted.note();
        }
        match answered.status {
            200..300 => Ok(answered),
            _ => Err(refusal(&answered)),
        }
    }

    /// The same about one thing, which may not be there.
    async fn found(
        self: &Arc<Self>,
        call: Call,
        question: Question,
    ) -> Result<Option<Answered>, Refusal> {
        match self.ask(call, question).await {
            Ok(answered) => Ok(Some(answered)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Authorizes a caller with a token, or with none, that may do this.
    pub(super) async fn authorize_token(
        self: &Arc<Self>,
        call: &Call,
        may: impl FnOnce(&Identity) -> bool,
    ) -> Result<Allowed, Refusal> {
        let who = self.authenticate(call).await?;
        let may = may(&who);
        Allowed::when(&who, may)
    }
}

/// `CSIVolume.List`.
pub(super) async fn list(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: VolumeListRequest,
) -> Result<VolumeListResponse, Refusal> {
    let question = Question::new(Method::GET, &["volumes"])
        .text("type", volume_type::CSI)
        .text("region", &requested.region)
        .text("namespace", &requested.namespace)
        .text("prefix", &requested.prefix)
        .text("filter", &requested.filter)
        .number("per_page", requested.per_page)
        .text("next_token", &requested.next_token)
        .flag("reverse", requested.reverse)
        .text("plugin_id", &requested.plugin_id)
        .text("node_id", &requested.node_id);
    let question = waits(
        question,
        requested.min_query_index,
        requested.max_query_time,
    );
    let answered = endpoints.ask(call, question).await?;
    Ok(VolumeListResponse {
        volumes: read(&answered)?,
        next_token: answered.next_token,
        index: answered.index,
    })
}

/// `CSIVolume.Get`.
pub(super) async fn get(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: NamedRequest,
) -> Result<VolumeGetResponse, Refusal> {
    if requested.id.is_empty() {
        return Err(missing("volume ID"));
    }
    let question = Question::new(Method::GET, &["volume", "csi", &requested.id])
        .text("region", &requested.region)
        .text("namespace", &requested.namespace);
    let question = waits(
        question,
        requested.min_query_index,
        requested.max_query_time,
    );
    let Some(answered) = endpoints.found(call, question).await? else {
        return Ok(VolumeGetResponse {
            index: endpoints.index_of(CsiVolumes::ID),
            ..VolumeGetResponse::default()
        });
    };
    // The volume is the whole answer, and its allocations stand in it.
    Ok(VolumeGetResponse {
        volume: Some(read(&answered)?),
        index: answered.index,
        ..read(&answered)?
    })
}

/// `CSIVolume.Register`.
pub(super) async fn register(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: VolumesRequest,
) -> Result<VolumesResponse, Refusal> {
    let mut question = Question::new(Method::PUT, &["volumes"])
        .text("region", &requested.region)
        .text("namespace", &requested.namespace);
    question.body = written("Volumes", &requested.volumes)?;
    volumes(endpoints.ask(call, question).await?)
}

/// `CSIVolume.Create`: one after the other, until one is refused.
pub(super) async fn create(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: VolumesRequest,
) -> Result<VolumesResponse, Refusal> {
    let mut made = VolumesResponse::default();
    if requested.volumes.is_empty() {
        return Err(missing("volume definition"));
    }
    for volume in requested.volumes.into_vec() {
        if volume.id.is_empty() {
            return Err(missing("volume ID"));
        }
        let mut question = Question::new(Method::PUT, &["volume", "csi", &volume.id, "create"])
            .text("region", &requested.region)
            .text("namespace", &requested.namespace);
        question.body = written("Volumes", &[volume])?;
        let one = volumes(endpoints.ask(call.clone(), question).await?)?;
        made.volumes.to_mut().extend(one.volumes.into_vec());
        made.warnings.push_str(&one.warnings);
        made.index = one.index;
    }
    Ok(made)
}

fn volumes(answered: Answered) -> Result<VolumesResponse, Refusal> {
    Ok(VolumesResponse {
        index: answered.index,
        ..read(&answered)?
    })
}

/// `CSIVolume.Deregister`.
pub(super) async fn deregister(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: VolumeIdsRequest,
) -> Result<WriteResponse, Refusal> {
    let force = requested.force;
    let end = |question: Question| question.flag("force", force);
    one_by_one(&endpoints, call, &requested, (&[], end)).await
}

/// `CSIVolume.Delete`.
pub(super) async fn delete(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: VolumeIdsRequest,
) -> Result<WriteResponse, Refusal> {
    let secrets = in_head(&requested.secrets)?;
    let end = |question: Question| question.header(SECRETS, secrets.clone());
    one_by_one(&endpoints, call, &requested, (&["delete"], end)).await
}

async fn one_by_one(
    endpoints: &Arc<ClientEndpoints>,
    call: Call,
    requested: &VolumeIdsRequest,
    (verb, end): (&[&str], impl Fn(Question) -> Question),
) -> Result<WriteResponse, Refusal> {
    if requested.volume_ids.is_empty() || requested.volume_ids.iter().any(String::is_empty) {
        return Err(missing("volume IDs"));
    }
    let mut index = 0;
    for id in &requested.volume_ids {
        let mut path = vec!["volume", "csi", id.as_str()];
        path.extend(verb);
        let question = Question::new(Method::DELETE, &path)
            .text("region", &requested.region)
            .text("namespace", &requested.namespace);
        index = endpoints.ask(call.clone(), end(question)).await?.index;
    }
    Ok(WriteResponse { index })
}

/// What a provider has.
async fn external(
    endpoints: &Arc<ClientEndpoints>,
    call: Call,
    requested: &ExternalRequest,
    what: &str,
) -> Result<Answered, Refusal> {
    let question = Question::new(Method::GET, &["volumes", what])
        .text("region", &requested.region)
        .text("namespace", &requested.namespace)
        .text("plugin_id", &requested.plugin_id)
        .number("per_page", requested.per_page)
        .text("next_token", &requested.next_token)
        .header(SECRETS, in_head(&requested.secrets)?);
    endpoints.ask(call, question).await
}

/// `CSIVolume.ListExternal`.
pub(super) async fn list_external(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: ExternalRequest,
) -> Result<ExternalResponse, Refusal> {
    let answered = external(&endpoints, call, &requested, "external").await?;
    read(&answered)
}

/// `CSIVolume.ListSnapshots`.
pub(super) async fn list_snapshots(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: ExternalRequest,
) -> Result<SnapshotsResponse, Refusal> {
    read(&external(&endpoints, call, &requested, "snapshot").await?)
}

/// `CSIVolume.CreateSnapshot`.
pub(super) async fn create_snapshots(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: SnapshotsRequest,
) -> Result<SnapshotsResponse, Refusal> {
    let mut question = Question::new(Method::PUT, &["volumes", "snapshot"])
        .text("region", &requested.region)
        .text("namespace", &requested.namespace);
    question.body = written("Snapshots", &requested.snapshots)?;
    read(&endpoints.ask(call, question).await?)
}

/// `CSIVolume.DeleteSnapshot`: one after the other, until one is refused.
pub(super) async fn delete_snapshots(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: SnapshotsRequest,
) -> Result<Done, Refusal> {
    if requested.snapshots.is_empty() {
        return Err(missing("snapshot ID"));
    }
    for snapshot in requested.snapshots.iter() {
        let secrets = Secrets(snapshot.secrets.clone().into_iter().collect());
        let question = Question::new(Method::DELETE, &["volumes", "snapshot"])
            .text("region", &requested.region)
            .text("namespace", &requested.namespace)
            .text("plugin_id", &snapshot.plugin_id)
            .text("snapshot_id", &snapshot.id)
            .header(SECRETS, in_head(&secrets)?);
        endpoints.ask(call.clone(), question).await?;
    }
    Ok(Done {})
}

/// `CSIPlugin.List`.
pub(super) async fn list_plugins(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: PluginListRequest,
) -> Result<PluginListResponse, Refusal> {
    let question = Question::new(Method::GET, &["plugins"])
        .text("type", volume_type::CSI)
        .text("region", &requested.region)
        .text("prefix", &requested.prefix)
        .text("filter", &requested.filter)
        .number("per_page", requested.per_page)
        .text("next_token", &requested.next_token)
        .flag("reverse", requested.reverse);
    let question = waits(
        question,
        requested.min_query_index,
        requested.max_query_time,
    );
    let answered = endpoints.ask(call, question).await?;
    Ok(PluginListResponse {
        plugins: read(&answered)?,
        next_token: answered.next_token,
        index: answered.index,
    })
}

/// `CSIPlugin.Get`.
pub(super) async fn get_plugin(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: NamedRequest,
) -> Result<PluginGetResponse, Refusal> {
    if requested.id.is_empty() {
        return Err(missing("plugin ID"));
    }
    let question = Question::new(Method::GET, &["plugin", "csi", &requested.id])
        .text("region", &requested.region)
        .text("namespace", &requested.namespace);
    let question = waits(
        question,
        requested.min_query_index,
        requested.max_query_time,
    );
    Ok(match endpoints.found(call, question).await? {
        Some(answered) => PluginGetResponse {
            plugin: Some(read(&answered)?),
            index: answered.index,
        },
        None => PluginGetResponse {
            plugin: None,
            index: endpoints.index_of(CsiPlugins::ID),
        },
    })
}

/// `CSIPlugin.Delete`: no route of the HTTP API does it; for managers.
pub(super) async fn delete_plugin(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: NamedRequest,
) -> Result<WriteResponse, Refusal> {
    let allowed = endpoints
        .authorize_token(&call, Identity::is_management)
        .await?;
    let command = DeleteCsiPlugin { id: requested.id };
    let index = endpoints.server.submit(&allowed, command).await?;
    Ok(WriteResponse { index })
}

impl ClientEndpoints {
    fn index_of(&self, table: u16) -> u64 {
        self.server.projections.view().last_changed_at(table)
    }
}
