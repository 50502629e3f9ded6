//! What a client answers for itself, wherever the request came in: its figures, and the files, logs
//! and tasks of its allocations. Nothing here knows a server; who may call is decided before.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use tokio::sync::mpsc;

use super::{diagnostics, is_head, wrong_method};
use crate::client::agent::Client;
use crate::client::endpoints::logs::LogRequest;
use crate::client::endpoints::{FileFrame, Origin, alloc, fs, host, logs};
use crate::client::metadata::MetadataRequest;
use crate::config::Config;
use crate::error::Refusal;
use crate::http::answer::{Answer, JSON, TEXT};
use crate::http::body::Body;
use crate::http::query;
use crate::http::request::Request;

/// Pieces of a stream that may wait for a slow reader.
const WINDOW: usize = 8;

drover_events::wire! {
    /// The body of a restart.
    struct RestartRequest {
        task_name: String = "TaskName",
        all_tasks: bool = "AllTasks",
    }

    /// The body of a signal.
    struct SignalRequest {
        task: String = "Task",
        signal: String = "Signal",
    }
}

/// The agent that answers for itself.
#[derive(Clone)]
pub(in crate::http) struct Here {
    /// Its client, if it has one.
    pub(in crate::http) client: Option<Arc<Client>>,
    /// What it is called: its server's id, or its node's.
    pub(in crate::http) agent_id: String,
    /// Where its log is written, if to a file.
    pub(in crate::http) log_file: Option<PathBuf>,
    /// Whether a caller that is let in may look into the process.
    pub(in crate::http) may_debug: bool,
}

impl Here {
    /// An agent with this configuration.
    pub(in crate::http) fn new(
        config: &Config,
        agent_id: String,
        client: Option<Arc<Client>>,
    ) -> Self {
        Self {
            client,
            agent_id,
            log_file: config.log.file.clone(),
            may_debug: config.acl.enabled || config.enable_debug,
        }
    }
}

/// Answers a request below `/v1/client/`, about the checks of an allocation, or about the agent.
///
/// # Errors
/// What is wrong with it, or with what it requests.
pub(in crate::http) async fn answer(here: &Here, request: &Request) -> Result<Answer, Refusal> {
    if let Some(about) = request.path.strip_prefix("/v1/agent/") {
        return match about {
            "monitor" => diagnostics::monitor(request).await,
            "monitor/export" => diagnostics::export(here, request).await,
            "host" => diagnostics::host(here, request).await,
            _ => diagnostics::pprof(here, request).await,
        };
    }
    let none = || Refusal::bad_request("No local Node and node_id not provided");
    let client = here.client.as_ref().ok_or_else(none)?;
    if request.path.starts_with("/v1/allocation/") {
        return checks(client, &request.segment(2)?);
    }
    match request.segment(2)?.as_str() {
        "stats" => Answer::json(&host::stats(client)),
        "gc" => collect_all(client, request).await,
        "metadata" => metadata(client, request).await,
        "allocation" => allocation(client, request).await,
        "fs" => files(client, request).await,
        _ => Err(Refusal::not_found("resource not found")),
    }
}

async fn collect_all(client: &Client, request: &Request) -> Result<Answer, Refusal> {
    if is_head(request) {
        return Err(wrong_method());
    }
    client.collect_all().await;
    Ok(Answer::nothing())
}

/// What a node says of itself, and what is set of that.
async fn metadata(client: &Client, request: &Request) -> Result<Answer, Refusal> {
    if matches!(request.method, Method::GET | Method::HEAD) {
        return Answer::json(&client.metadata());
    }
    let body: MetadataRequest = request.json()?;
    Answer::json(&client.apply_metadata(body.meta).await?)
}

/// The checks of an allocation; `null` where it has none.
fn checks(client: &Client, id: &str) -> Result<Answer, Refusal> {
    let checks = alloc::checks(client, id)?;
    Answer::json(&Some(checks).filter(|checks| !checks.is_empty()))
}

/// `/v1/client/allocation/{id}/{verb}`.
async fn allocation(client: &Arc<Client>, request: &Request) -> Result<Answer, Refusal> {
    let (id, verb) = (request.segment(3)?, request.segment(4)?);
    let writes = !matches!(request.method, Method::GET | Method::HEAD);
    match verb.as_str() {
        "stats" => {
            let task = request.query.text("task");
            Answer::json(&alloc::stats(client, &id, task).await?)
        }
        "checks" => checks(client, &id),
        "restart" if writes => {
            let body: RestartRequest = request.json_or_default()?;
            alloc::restart(client, &id, &body.task_name, body.all_tasks).await?;
            Ok(Answer::nothing())
        }
        "signal" if writes => {
            let body: SignalRequest = request.json()?;
            alloc::signal(client, &id, &body.task, &body.signal)?;
            Ok(Answer::nothing())
        }
        "gc" if !is_head(request) => {
            alloc::collect(client, &id).await?;
            Ok(Answer::nothing())
        }
        "restart" | "signal" | "gc" => Err(wrong_method()),
        _ => Err(Refusal::not_found("resource not found")),
    }
}

/// `/v1/client/fs/{verb}/{alloc}`.
async fn files(client: &Arc<Client>, request: &Request) -> Result<Answer, Refusal> {
    let (verb, id) = (request.segment(3)?, request.segment(4)?);
    if verb == "logs" {
        return task_logs(request, client, &id).await;
    }
    let path = request.query.text("path");
    if path.is_empty() && verb != "ls" {
        return Err(Refusal::bad_request("must provide a file name"));
    }
    match verb.as_str() {
        "ls" => {
            let path = if path.is_empty() { "/" } else { path };
            Answer::json(&fs::list(client, &id, path).await?)
        }
        "stat" => Answer::json(&fs::stat(client, &id, path).await?),
        "cat" => Ok(whole(fs::read(client, &id, path, 0, None).await?)),
        "readat" => {
            let offset = offset(request)?.ok_or_else(|| bad_offset(""))?;
            let limit = limit(request)?;
            Ok(whole(fs::read(client, &id, path, offset, limit).await?))
        }
        "stream" => file_stream(request, client, &id, path).await,
        _ => Err(Refusal::not_found("Invalid method")),
    }
}

/// A switch of a stream.
fn flag(request: &Request, name: &str, default: bool) -> Result<bool, Refusal> {
    match request.query.text(name) {
        "" => Ok(default),
        raw => query::parse_bool(raw).ok_or_else(|| {
            Refusal::bad_request(format!(
                "failed to parse {name} field to boolean: strconv.ParseBool: parsing \"{raw}\": \
                 invalid syntax"
            ))
        }),
    }
}

/// The place in a file a request names.
fn offset<T: std::str::FromStr>(request: &Request) -> Result<Option<T>, Refusal> {
    match request.query.text("offset") {
        "" => Ok(None),
        raw => raw.parse().map(Some).map_err(|_| bad_offset(raw)),
    }
}

fn bad_offset(raw: &str) -> Refusal {
    Refusal::bad_request(format!(
        "error parsing offset: strconv.ParseInt: parsing \"{raw}\": invalid syntax"
    ))
}

/// How many bytes a request wants; nothing and whatever is not above it mean all, as with Nomad.
fn limit(request: &Request) -> Result<Option<u64>, Refusal> {
    let raw = request.query.text("limit");
    if raw.is_empty() {
        return Ok(None);
    }
    let limit: i64 = raw.parse().map_err(|_| {
        Refusal::bad_request(format!(
            "error parsing limit: strconv.ParseInt: parsing \"{raw}\": invalid syntax"
        ))
    })?;
    Ok(u64::try_from(limit).ok().filter(|limit| *limit > 0))
}

/// A file, sent as fast as it is taken.
fn whole((pieces, kind): (fs::FilePieces, &'static str)) -> Answer {
    Answer::of(kind, Body::whole(pieces))
}

async fn file_stream(
    request: &Request,
    client: &Client,
    id: &str,
    path: &str,
) -> Result<Answer, Refusal> {
    let query = &request.query;
    let origin = Origin::parse(query.text("origin"))?;
    let offset = offset(request)?.unwrap_or(0);
    let follow = flag(request, "follow", true)?;
    let frames = fs::stream(client, id, path, (origin, offset), follow).await?;
    Ok(streamed(frames, flag(request, "plain", false)?))
}

async fn task_logs(request: &Request, client: &Client, id: &str) -> Result<Answer, Refusal> {
    let query = &request.query;
    let wanted = LogRequest {
        task: query.text("task").to_owned(),
        stream: query.text("type").to_owned(),
        origin: Origin::parse(query.text("origin"))?,
        offset: offset(request)?.unwrap_or(0),
        follow: flag(request, "follow", false)?,
    };
    let plain = flag(request, "plain", false)?;
    let frames = logs::stream(client, id, &wanted).await?;
    Ok(streamed(frames, plain))
}

/// Frames as JSON objects one after the other, or their bytes alone.
pub(in crate::http) fn streamed(mut frames: mpsc::Receiver<FileFrame>, plain: bool) -> Answer {
    let (tx, rx) = mpsc::channel::<Bytes>(WINDOW);
    tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            let piece = if plain {
                frame.data
            } else {
                serde_json::to_vec(&frame).unwrap_or_default()
            };
            // An empty plain piece says nothing: the reader's end shows when there is more.
            if tx.is_closed() || (!piece.is_empty() && tx.send(piece.into()).await.is_err()) {
                return;
            }
        }
    });
    Answer::of(if plain { TEXT } else { JSON }, Body::stream(rx))
}

#[cfg(test)]
mod tests {
    use drover_events::gojson::{from_slice, to_vec};

    use super::*;

    #[test]
    fn mod_18_a_restart_and_a_signal_are_asked_for_as_nomads_clients_do() {
        let restart = r#"{"TaskName":"server","AllTasks":true}"#;
        let read: RestartRequest = from_slice(restart.as_bytes()).unwrap();
        assert_eq!((read.task_name.as_str(), read.all_tasks), ("server", true));
        assert_eq!(to_vec(&read).unwrap(), restart.as_bytes());
        let signal = r#"{"Task":"server","Signal":"SIGHUP"}"#;
        let read: SignalRequest = from_slice(signal.as_bytes()).unwrap();
        assert_eq!((&*read.task, &*read.signal), ("server", "SIGHUP"));
        assert_eq!(to_vec(&read).unwrap(), signal.as_bytes());
    }
}
