//! Requests to clients through a server: files, logs, figures, restarts, signals, removal.
//!
//! The server decides who may call, and finds the node; the client of that node answers
//! ([`local`]), in this process or over a session to its machine ([`far`]).

mod diagnostics;
pub(super) mod exec;
pub(super) mod far;
pub(super) mod local;
pub(super) mod ran;

use std::sync::Arc;

use drover_projections::tables::allocs::Allocs;
use hyper::Method;

use self::local::Here;
use super::allocations::namespace_of;
use super::answer::Answer;
use super::gate::{self, Late, READ_JOB, Write};
use super::list::storage;
use super::request::Request;
use super::state::Api;
use super::stream::right;
use super::target::{Target, target};
use crate::acl::NamespaceCapability as Ns;
use crate::client::metadata::MetadataRequest;
use crate::error::{Code, Refusal};
use crate::identity::Identity;
use crate::table_reads::glance;

/// An allocation that is none.
pub(super) fn unknown(id: &str) -> Refusal {
    Refusal::not_found(format!("Unknown allocation {id:?}"))
}

/// What let a caller in, to be checked again.
type Holds = Box<dyn Fn(&Identity) -> bool + Send>;

/// One of these rights in a namespace.
fn within(namespace: String, any_of: &'static [Ns]) -> Holds {
    Box::new(move |who| gate::in_namespace(&who.acl, &namespace, any_of))
}

/// Calls the client that is to answer. What flows ends with the right to it.
async fn call_client(write: &Write, whom: Target, holds: Holds) -> Result<Answer, Refusal> {
    let request = &write.request;
    let mut answer = match whom {
        Target::Here => {
            let server = &write.api.server;
            let here = Here {
                may_debug: write.api.gate.is_guarded() || write.api.settings.enable_debug,
                ..Here::new(&server.config, server.me.id.clone(), server.client())
            };
            local::answer(&here, request).await?
        }
        Target::Node(node) => far::ask(&write.api.server.sessions, &node, request).await?,
        Target::Server(name) => {
            return Err(Refusal::bad_request(format!("unknown Nomad server {name}")));
        }
    };
    if answer.body.len().is_none() {
        let (api, request) = (Arc::clone(&write.api), Arc::clone(&write.request));
        answer.body = answer.body.until(right::changed(api, request, holds));
    }
    Ok(answer)
}

/// `/v1/client/stats`, `/v1/client/gc`, `GET /v1/client/metadata`.
pub(super) async fn of_node(write: Write) -> Result<Answer, Refusal> {
    let node = write.request.query.text("node_id");
    let whom = target(&write.api, node, "")?;
    call_client(&write, whom, Box::new(|who| who.acl.node_read())).await
}

/// Requests to one agent about itself, below `/v1/agent/`.
pub(super) async fn of_agent(write: Write) -> Result<Answer, Refusal> {
    let query = &write.request.query;
    let (node, server) = (query.text("node_id"), query.text("server_id"));
    if !node.is_empty() && !server.is_empty() && write.request.path == "/v1/agent/host" {
        let text = "Can only forward to either client node or server";
        return Err(Refusal::bad_request(text));
    }
    let whom = target(&write.api, node, server)?;
    let looks_inside = write.request.path.starts_with("/v1/agent/pprof/");
    let holds = move |who: &Identity| match looks_inside {
        true => who.acl.agent_write(),
        false => who.acl.agent_read(),
    };
    call_client(&write, whom, Box::new(holds)).await
}

/// `POST /v1/client/metadata`: the node is named in the query or in the body.
pub(super) async fn describe(write: Write) -> Result<Answer, Refusal> {
    let body: MetadataRequest = write.json().await?;
    let node = match write.request.query.text("node_id") {
        "" => body.node_id.as_str(),
        node => node,
    };
    let whom = target(&write.api, node, "")?;
    call_client(&write, whom, Box::new(|who| who.acl.node_write())).await
}

/// Calls the client that has an allocation.
async fn of_allocation(write: &Write, id: &str, any_of: &'static [Ns]) -> Result<Answer, Refusal> {
    let whom = target_of(&write.api, id)?;
    let namespace = namespace_of(&write.api, id)?.unwrap_or_default();
    call_client(write, whom, within(namespace, any_of)).await
}

/// Whose client has an allocation.
///
/// # Errors
/// 404 where there is none.
pub(super) fn target_of(api: &Api, id: &str) -> Result<Target, Refusal> {
    let here = api.server.client();
    if here.is_some_and(|client| client.runner(id).is_some()) {
        return Ok(Target::Here);
    }
    let view = api.projections.view();
    let row = glance(|| view.get::<Allocs>(id)).map_err(storage)?;
    let node = row.ok_or_else(|| unknown(id))?.alloc.node_id.clone();
    target(api, &node, "")
}

/// Restarting tasks, and sending them signals.
pub(super) const LIFECYCLE: &[Ns] = &[Ns::AllocLifecycle];
/// Removing what is left of an allocation.
pub(super) const COLLECT: &[Ns] = &[Ns::SubmitJob, Ns::GcAllocation];
/// Reading what tasks wrote to their output.
pub(super) const READ_LOGS: &[Ns] = &[Ns::ReadLogs, Ns::ReadFs];
/// Reading files of an allocation.
pub(super) const READ_FS: &[Ns] = &[Ns::ReadFs];

/// What gives the right to do something with an allocation where it is; none for what a client does
/// not answer by itself.
pub(super) fn rights_of_allocation(verb: &str) -> Option<&'static [Ns]> {
    match verb {
        "restart" | "signal" => Some(LIFECYCLE),
        "gc" => Some(COLLECT),
        "stats" | "checks" => Some(READ_JOB),
        _ => None,
    }
}

/// What gives the right to read files of an allocation; none for what there is not.
pub(super) fn rights_in_files(verb: &str) -> Option<&'static [Ns]> {
    match verb {
        "logs" => Some(READ_LOGS),
        "ls" | "stat" | "cat" | "readat" | "stream" => Some(READ_FS),
        _ => None,
    }
}

/// `/v1/client/allocation/{id}/{verb}`.
pub(super) async fn allocation(late: Late) -> Result<Answer, Refusal> {
    let (id, verb) = (late.request.segment(3)?, late.request.segment(4)?);
    let any_of: &'static [Ns] = match verb.as_str() {
        "pause" => &[Ns::SubmitJob, Ns::PauseAllocation],
        verb => rights_of_allocation(verb).unwrap_or(READ_JOB),
    };
    let write =
        late.in_namespace_of(any_of, |call| namespace_of(&call.api, &id), || unknown(&id))?;
    match verb.as_str() {
        // Schedules of tasks, which a pause overrides, are Nomad Enterprise's.
        "pause" => super::absent::enterprise(write).await,
        "snapshot" => {
            let advice = "an allocation's disk does not move to another node; \
                          GET /v1/client/fs/cat/:id reads its files";
            Err(super::absent::unsupported(
                "snapshot of an allocation is",
                advice,
            ))
        }
        "restart" | "signal" | "gc" if is_head(&write.request) => Err(wrong_method()),
        "stats" | "checks" | "gc" => of_allocation(&write, &id, any_of).await,
        "restart" | "signal" => changed(&write, of_allocation(&write, &id, any_of).await?),
        _ => Err(Refusal::not_found("resource not found")),
    }
}

/// `GET /v1/allocation/:id/checks`.
pub(super) async fn checks(late: Late) -> Result<Answer, Refusal> {
    let id = late.request.segment(2)?;
    let write = late.in_namespace_of(
        READ_JOB,
        |call| namespace_of(&call.api, &id),
        || unknown(&id),
    )?;
    of_allocation(&write, &id, READ_JOB).await
}

/// Whether only the head of an answer is requested: that changes nothing, whatever else takes any
/// method.
fn is_head(request: &Request) -> bool {
    request.method == Method::HEAD
}

fn wrong_method() -> Refusal {
    Refusal::new(Code::MethodNotAllowed, "Invalid method")
}

/// A change on the client is none of the replicated state: the index is that of the state now.
fn changed(write: &Write, answer: Answer) -> Result<Answer, Refusal> {
    if answer.status != 200 {
        return Ok(answer);
    }
    let index = write.api.projections.applied_index();
    Answer::json(&serde_json::json!({ "Index": index }))
}

/// `/v1/client/fs/{verb}/{alloc}`.
pub(super) async fn files(late: Late) -> Result<Answer, Refusal> {
    let verb = late.request.segment(3)?;
    let id = late.request.segment(4)?;
    let any_of = rights_in_files(&verb);
    let write = late.in_namespace_of(
        any_of.unwrap_or(READ_FS),
        |call| namespace_of(&call.api, &id),
        || unknown(&id),
    )?;
    let any_of = any_of.ok_or_else(|| Refusal::not_found("Invalid method"))?;
    if id.is_empty() {
        return Err(Refusal::bad_request("must provide a valid alloc id"));
    }
    of_allocation(&write, &id, any_of).await
}
