//! The agent itself and its cluster: status, members, health, metrics.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::answer::{Answer, TEXT};
use super::front::Read;
use super::gate::Write;
use crate::error::{Code, Refusal};
use crate::server::Around;
use crate::table_reads::offload;

/// What of a configuration that was read anew needs a restart.
type Reloaded = Result<Vec<String>, String>;

/// `GET /v1/status/leader`.
pub(super) fn leader(read: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&read.api.server.leader_address().unwrap_or_default())
}

/// `GET /v1/status/peers`.
pub(super) fn peers(read: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&read.api.server.peers())
}

/// `GET /v1/regions`.
pub(super) fn regions(read: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&[&read.api.settings.region])
}

/// `GET /v1/agent/self`.
pub(super) fn describe(read: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&read.api.server.describe())
}

/// `GET /v1/agent/members`.
pub(super) fn members(read: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&read.api.server.members())
}

/// `GET /v1/agent/servers`: the servers that the client of this agent talks to.
pub(super) fn servers(read: &Read<'_>) -> Result<Answer, Refusal> {
    match read.api.server.client() {
        Some(_) => Answer::json(&read.api.server.peers()),
        None => Err(Refusal::new(Code::NotImplemented, "Invalid method")),
    }
}

/// `GET /v1/agent/health`.
pub(super) fn health(read: &Read<'_>) -> Result<Answer, Refusal> {
    let kinds: Vec<&str> = read.request.query.all("type").collect();
    let wanted = |kind: &str| kinds.is_empty() || kinds.contains(&kind);
    let mut parts = serde_json::Map::new();
    let mut healthy = true;
    let agent = &read.api.server;
    let roles = [
        ("client", agent.client_health()),
        ("server", Some(agent.server_health())),
    ];
    for (kind, health) in roles {
        if !wanted(kind) || (health.is_none() && kinds.is_empty()) {
            continue;
        }
        let health = health.unwrap_or_else(|| Err(format!("{kind} not enabled")));
        healthy &= health.is_ok();
        let message = health.as_ref().err().map_or("ok", String::as_str);
        parts.insert(
            kind.to_owned(),
            json!({ "message": message, "ok": health.is_ok() }),
        );
    }
    // A broker that is away is reported, and no reason to send requests elsewhere.
    if wanted("event_publisher")
        && let Some(health) = publisher_health(&agent.reactor("event_publisher"))
    {
        parts.insert("event_publisher".to_owned(), health);
    }
    let body = Value::Object(parts);
    if healthy {
        return Answer::json(&body);
    }
    Ok(Answer::of(TEXT, body.to_string()).status(500))
}

/// How the publisher of events fares; none where none runs.
fn publisher_health(publisher: &Value) -> Option<Value> {
    let status = &publisher["Status"];
    if publisher["Running"] != true || status.is_null() {
        return None;
    }
    let error = status["Error"].as_str().unwrap_or_default();
    let ok = error.is_empty() && status["Lagging"] != true;
    let behind = match status["Lag"].as_u64() {
        Some(1) => "1 event behind".to_owned(),
        _ => format!("{} events behind", status["Lag"]),
    };
    let message = match (ok, error) {
        (true, _) => "ok".to_owned(),
        (false, "") => behind,
        (false, error) => format!("{behind}: {error}"),
    };
    Some(json!({ "message": message, "ok": ok }))
}

/// `PUT /v1/agent/reload`: as SIGHUP. What of the new configuration needs a restart is in a header.
pub(super) async fn reload(write: Write) -> Result<Answer, Refusal> {
    let server = Arc::clone(&write.api.server);
    // It reads files.
    reload_answer(tokio::task::spawn_blocking(move || server.reload()).await)
}

/// The same of an agent without a server.
pub(super) async fn reloaded(around: Arc<dyn Around>) -> Result<Answer, Refusal> {
    reload_answer(tokio::task::spawn_blocking(move || around.reload()).await)
}

fn reload_answer(done: Result<Reloaded, tokio::task::JoinError>) -> Result<Answer, Refusal> {
    let done = done.unwrap_or_else(|error| Err(error.to_string()));
    let rest = done.map_err(|error| Refusal::new(Code::Internal, error))?;
    let answer = Answer::nothing();
    Ok(match rest.is_empty() {
        true => answer,
        false => answer.header("x-drover-needs-restart", rest.join(", ")),
    })
}

/// `GET /v1/metrics`.
pub(super) fn metrics(read: &Read<'_>) -> Result<Answer, Refusal> {
    let form = read.request.query.text("format");
    let (text, summary) = (
        || read.api.server.prometheus(),
        || read.api.server.metrics(),
    );
    measured(form, read.api.settings.now().prometheus, text, summary)
}

/// The metrics in a form, as text or as a summary.
///
/// # Errors
/// 415 where Prometheus' form is not offered, 400 for another.
pub(super) fn measured<S: Serialize>(
    form: &str,
    prometheus: bool,
    text: impl FnOnce() -> String,
    summary: impl FnOnce() -> S,
) -> Result<Answer, Refusal> {
    match form {
        "prometheus" if !prometheus => Err(Refusal::new(
            Code::UnsupportedMediaType,
            "Prometheus is not enabled",
        )),
        "prometheus" => Ok(Answer::of(
            "text/plain; version=0.0.4; charset=utf-8",
            offload(text),
        )),
        "" => Answer::json(&offload(summary)),
        other => {
            let text = format!("unknown metrics format {other:?}");
            Err(Refusal::new(Code::BadRequest, text))
        }
    }
}
