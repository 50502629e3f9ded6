//! What the client of this agent is asked: files, logs, figures, restarts, signals, removal.
//!
//! A request for a node that is not this agent's is refused: servers forward none yet.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use tokio::sync::mpsc;

use super::allocations::namespace_of;
use super::answer::{Answer, JSON, TEXT};
use super::body::Body;
use super::gate::{Late, READ_JOB, Write};
use super::query;
use super::stream::right;
use crate::acl::NamespaceCapability as Ns;
use crate::client::agent::Client;
use crate::client::endpoints::logs::LogRequest;
use crate::client::endpoints::{Frame, Origin, alloc, fs, host, logs};
use crate::error::{ApiError, Code};

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

fn client(write: &Write) -> Result<Arc<Client>, ApiError> {
    let none = || ApiError::bad_request("No local Node and node_id not provided");
    let client = write.api.server.client().ok_or_else(none)?;
    let node = write.request.query.text("node_id");
    if node.is_empty() || node == client.node_id() {
        return Ok(client);
    }
    Err(ApiError::not_found(format!("No path to node {node:?}")))
}

/// An allocation that is none.
fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("Unknown allocation {id:?}"))
}

/// Whether only the head of an answer is asked for: that changes nothing, whatever else takes any
/// method.
fn is_head(write: &Write) -> bool {
    write.request.method == Method::HEAD
}

/// `GET /v1/client/stats`.
pub(super) async fn stats(write: Write) -> Result<Answer, ApiError> {
    let client = client(&write)?;
    Answer::json(&host::stats(&client))
}

/// Any of `/v1/client/gc`.
pub(super) async fn collect_all(write: Write) -> Result<Answer, ApiError> {
    if is_head(&write) {
        return Err(ApiError::new(Code::MethodNotAllowed, "Invalid method"));
    }
    client(&write)?.collect_all().await;
    Ok(Answer::nothing())
}

/// `/v1/client/allocation/{id}/{verb}`.
pub(super) async fn allocation(late: Late) -> Result<Answer, ApiError> {
    let (id, verb) = (late.request.segment(3)?, late.request.segment(4)?);
    let any_of: &[Ns] = match verb.as_str() {
        "restart" | "signal" => &[Ns::AllocLifecycle],
        "gc" => &[Ns::SubmitJob, Ns::GcAllocation],
        "exec" => &[Ns::AllocExec],
        "pause" => &[Ns::SubmitJob, Ns::PauseAllocation],
        _ => READ_JOB,
    };
    let write =
        late.in_namespace_of(any_of, |call| namespace_of(&call.api, &id), || unknown(&id))?;
    match verb.as_str() {
        // Schedules of tasks, which a pause overrides, are another edition's.
        "pause" => return super::absent::enterprise(write).await,
        "exec" => {
            let advice = "a shell on the node does it; GET /v1/allocation/:id names the node";
            return Err(super::absent::unsupported(
                "exec of an allocation is",
                advice,
            ));
        }
        "snapshot" => {
            let advice = "an allocation's disk does not move to another node; \
                          GET /v1/client/fs/cat/:id reads its files";
            return Err(super::absent::unsupported(
                "snapshot of an allocation is",
                advice,
            ));
        }
        _ => {}
    }
    let client = client(&write)?;
    let writes = !matches!(write.request.method, Method::GET | Method::HEAD);
    match verb.as_str() {
        "stats" => {
            let task = write.request.query.text("task");
            Answer::json(&alloc::stats(&client, &id, task).await?)
        }
        "checks" => checked(&client, &id),
        "restart" if writes => {
            let body: RestartRequest = write.json_or_default().await?;
            alloc::restart(&client, &id, &body.task_name, body.all_tasks).await?;
            changed(&write)
        }
        "signal" if writes => {
            let body: SignalRequest = write.json().await?;
            alloc::signal(&client, &id, &body.task, &body.signal)?;
            changed(&write)
        }
        "restart" | "signal" => Err(ApiError::new(Code::MethodNotAllowed, "Invalid method")),
        "gc" if is_head(&write) => Err(ApiError::new(Code::MethodNotAllowed, "Invalid method")),
        "gc" => {
            alloc::collect(&client, &id).await?;
            Ok(Answer::nothing())
        }
        _ => Err(ApiError::not_found("resource not found")),
    }
}

/// `GET /v1/allocation/:id/checks`.
pub(super) async fn checks(late: Late) -> Result<Answer, ApiError> {
    let id = late.request.segment(2)?;
    let write = late.in_namespace_of(
        READ_JOB,
        |call| namespace_of(&call.api, &id),
        || unknown(&id),
    )?;
    let client = client(&write)?;
    checked(&client, &id)
}

/// The checks of an allocation; `null` where it has none.
fn checked(client: &Client, id: &str) -> Result<Answer, ApiError> {
    let checks = alloc::checks(client, id)?;
    Answer::json(&Some(checks).filter(|checks| !checks.is_empty()))
}

/// A change on the client is none of the replicated state: the index is that of the state now.
fn changed(write: &Write) -> Result<Answer, ApiError> {
    let index = write.api.projections.applied_index();
    Answer::json(&serde_json::json!({ "Index": index }))
}

/// `/v1/client/fs/{verb}/{alloc}`.
pub(super) async fn files(late: Late) -> Result<Answer, ApiError> {
    let verb = late.request.segment(3)?;
    let id = late.request.segment(4)?;
    let any_of: &[Ns] = match verb.as_str() {
        "logs" => &[Ns::ReadLogs, Ns::ReadFs],
        _ => &[Ns::ReadFs],
    };
    let write =
        late.in_namespace_of(any_of, |call| namespace_of(&call.api, &id), || unknown(&id))?;
    if !["ls", "stat", "cat", "readat", "stream", "logs"].contains(&verb.as_str()) {
        return Err(ApiError::not_found("Invalid method"));
    }
    if id.is_empty() {
        return Err(ApiError::bad_request("must provide a valid alloc id"));
    }
    let client = client(&write)?;
    if verb == "logs" {
        return task_logs(&write, &client, &id).await;
    }
    let path = write.request.query.text("path");
    if path.is_empty() && verb != "ls" {
        return Err(ApiError::bad_request("must provide a file name"));
    }
    match verb.as_str() {
        "ls" => {
            let path = if path.is_empty() { "/" } else { path };
            Answer::json(&fs::list(&client, &id, path).await?)
        }
        "stat" => Answer::json(&fs::stat(&client, &id, path).await?),
        "cat" => Ok(whole(fs::read(&client, &id, path, 0, None).await?)),
        "readat" => {
            let offset = offset(&write)?.ok_or_else(|| bad_offset(""))?;
            let limit = limit(&write)?;
            Ok(whole(fs::read(&client, &id, path, offset, limit).await?))
        }
        _ => file_stream(&write, &client, &id, path).await,
    }
}

/// A switch of a stream.
fn flag(write: &Write, name: &str, default: bool) -> Result<bool, ApiError> {
    match write.request.query.text(name) {
        "" => Ok(default),
        raw => query::parse_bool(raw).ok_or_else(|| {
            ApiError::bad_request(format!(
                "failed to parse {name} field to boolean: strconv.ParseBool: parsing \"{raw}\": \
                 invalid syntax"
            ))
        }),
    }
}

/// The place in a file a request names.
fn offset<T: std::str::FromStr>(write: &Write) -> Result<Option<T>, ApiError> {
    match write.request.query.text("offset") {
        "" => Ok(None),
        raw => raw.parse().map(Some).map_err(|_| bad_offset(raw)),
    }
}

fn bad_offset(raw: &str) -> ApiError {
    ApiError::bad_request(format!(
        "error parsing offset: strconv.ParseInt: parsing \"{raw}\": invalid syntax"
    ))
}

/// How many bytes a request wants; nothing and whatever is not above it mean all, as with Nomad.
fn limit(write: &Write) -> Result<Option<u64>, ApiError> {
    let raw = write.request.query.text("limit");
    if raw.is_empty() {
        return Ok(None);
    }
    let limit: i64 = raw.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "error parsing limit: strconv.ParseInt: parsing \"{raw}\": invalid syntax"
        ))
    })?;
    Ok(u64::try_from(limit).ok().filter(|limit| *limit > 0))
}

/// A file, sent as fast as it is taken.
fn whole((pieces, kind): (fs::Pieces, &'static str)) -> Answer {
    Answer::of(kind, Body::whole(pieces))
}

async fn file_stream(
    write: &Write,
    client: &Client,
    id: &str,
    path: &str,
) -> Result<Answer, ApiError> {
    let query = &write.request.query;
    let origin = Origin::parse(query.text("origin"))?;
    let offset = offset(write)?.unwrap_or(0);
    let follow = flag(write, "follow", true)?;
    let frames = fs::stream(client, id, path, (origin, offset), follow).await?;
    Ok(streamed(write, frames, flag(write, "plain", false)?))
}

async fn task_logs(write: &Write, client: &Client, id: &str) -> Result<Answer, ApiError> {
    let query = &write.request.query;
    let request = LogRequest {
        task: query.text("task").to_owned(),
        stream: query.text("type").to_owned(),
        origin: Origin::parse(query.text("origin"))?,
        offset: offset(write)?.unwrap_or(0),
        follow: flag(write, "follow", false)?,
    };
    let plain = flag(write, "plain", false)?;
    let frames = logs::stream(client, id, &request).await?;
    Ok(streamed(write, frames, plain))
}

/// Frames as JSON objects one after the other, or their bytes alone. They end with the right to
/// read them, and with whoever reads them.
pub(super) fn streamed(write: &Write, mut frames: mpsc::Receiver<Frame>, plain: bool) -> Answer {
    let (tx, rx) = mpsc::channel::<Bytes>(WINDOW);
    let right = right::changed(Arc::clone(&write.api), Arc::clone(&write.request));
    let reader = tx.clone();
    let sent = async move {
        while let Some(frame) = frames.recv().await {
            let piece = if plain {
                frame.data
            } else {
                serde_json::to_vec(&frame).unwrap_or_default()
            };
            // An empty plain piece says nothing: the reader's end shows when there is more.
            if !piece.is_empty() && tx.send(piece.into()).await.is_err() {
                return;
            }
        }
    };
    tokio::spawn(async move {
        tokio::select! {
            () = sent => {}
            () = right => {}
            // Plain pieces come only when there is something: nothing else would show it.
            () = reader.closed() => {}
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
