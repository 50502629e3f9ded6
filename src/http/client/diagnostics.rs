//! What an operator requests of one agent about itself: its log, its machine, its profiles.
//!
//! Parameters become one request; what answers it is in [`crate::diagnostics`], which knows nothing
//! of HTTP. Which agent answers, and who may call, is decided before.

use drover_events::gojson;

use super::local::{Here, streamed};
use crate::diagnostics::export::{self, ExportRequest};
use crate::diagnostics::host::{self, HostRequest, HostResponse};
use crate::diagnostics::monitor::{self, MonitorRequest};
use crate::diagnostics::profile::{self, ProfileRequest, ProfileResponse};
use crate::error::{Code, Refusal};
use crate::http::answer::{Answer, JSON, TEXT};
use crate::http::query;
use crate::http::request::Request;

/// Where profiles are.
const PROFILES: &str = "/v1/agent/pprof/";

fn owned(request: &Request, name: &str) -> String {
    request.query.text(name).to_owned()
}

fn flag(request: &Request, name: &str) -> Result<bool, Refusal> {
    match request.query.text(name) {
        "" => Ok(false),
        raw => query::parse_bool(raw).ok_or_else(|| {
            Refusal::bad_request(format!(
                "Unknown option for {name}: strconv.ParseBool: parsing \"{raw}\": invalid syntax"
            ))
        }),
    }
}

/// `GET /v1/agent/monitor`.
pub(super) async fn monitor(requested: &Request) -> Result<Answer, Refusal> {
    let request = MonitorRequest {
        log_level: owned(requested, "log_level"),
        log_json: flag(requested, "log_json")?,
        log_include_location: flag(requested, "log_include_location")?,
        plain: flag(requested, "plain")?,
        node_id: owned(requested, "node_id"),
        server_id: owned(requested, "server_id"),
    };
    request.level()?;
    let frames = monitor::listen(&request)?;
    Ok(streamed(frames, request.plain))
}

/// `GET /v1/agent/monitor/export`.
pub(super) async fn export(here: &Here, requested: &Request) -> Result<Answer, Refusal> {
    let request = ExportRequest {
        logs_since: owned(requested, "logs_since"),
        service_name: owned(requested, "service_name"),
        on_disk: flag(requested, "on_disk")?,
        follow: flag(requested, "follow")?,
        plain: flag(requested, "plain")?,
        node_id: owned(requested, "node_id"),
        server_id: owned(requested, "server_id"),
    };
    request.check()?;
    let file = here.log_file.as_deref();
    let frames = export::export(&request, file).await?;
    Ok(streamed(frames, request.plain))
}

/// Where there are no tokens to judge callers by, the process is shown only where the configuration
/// says so.
fn may_debug(here: &Here) -> Result<(), Refusal> {
    if here.may_debug {
        return Ok(());
    }
    let text = "enable_debug is not set in the configuration of this agent: Permission denied";
    Err(Refusal::new(Code::PermissionDenied, text))
}

/// `GET /v1/agent/host`.
pub(super) async fn host(here: &Here, requested: &Request) -> Result<Answer, Refusal> {
    may_debug(here)?;
    let request = HostRequest {
        node_id: owned(requested, "node_id"),
        server_id: owned(requested, "server_id"),
    };
    let host_data = tokio::task::spawn_blocking(host::look)
        .await
        .map_err(|error| Refusal::internal(error.to_string()))?;
    let agent_id = match request.node_id {
        none if none.is_empty() => here.agent_id.clone(),
        node => node,
    };
    let answer = HostResponse {
        agent_id,
        host_data,
    };
    let bytes = gojson::to_vec(&answer).map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(Answer::of(JSON, bytes))
}

/// `GET /v1/agent/pprof/{profile}`.
pub(super) async fn pprof(here: &Here, requested: &Request) -> Result<Answer, Refusal> {
    may_debug(here)?;
    let query = &requested.query;
    // What Go does with it, collecting garbage before it looks, has no counterpart.
    let _ = query.text("gc");
    let request = ProfileRequest {
        profile: requested.behind(PROFILES)?,
        seconds: query.number("seconds")?.unwrap_or(0),
        debug: query.number("debug")?.unwrap_or(0),
        node_id: owned(requested, "node_id"),
        server_id: owned(requested, "server_id"),
    };
    Ok(profiled(profile::profile(&request).await?))
}

/// A profile with the headers that Go's own server sends.
fn profiled(profile: ProfileResponse) -> Answer {
    let is_text = |kind: &String| kind == TEXT;
    let kind = match profile.headers.get("Content-Type").is_some_and(is_text) {
        true => TEXT,
        false => "application/octet-stream",
    };
    let known = [
        ("Content-Disposition", "content-disposition"),
        ("X-Content-Type-Options", "x-content-type-options"),
    ];
    let answer = Answer::of(kind, profile.payload);
    known.iter().fold(answer, |answer, (theirs, ours)| {
        match profile.headers.get(*theirs) {
            Some(value) => answer.header(ours, value),
            None => answer,
        }
    })
}

#[cfg(test)]
#[path = "diagnostics_test.rs"]
mod tests;
