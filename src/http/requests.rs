//! Which requests the request log keeps, and the list of what it holds.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::Method;

use super::answer::Answer;
use super::audit::{kept_since, limit, named};
use super::front::Read;
use super::past;
use super::pieces::Pieces;
use super::request::Request;
use super::state::Api;
use crate::base::clock::Moment;
use crate::error::{Code, Refusal, chain};
use crate::log::{LogEngine, LogError};
use crate::net::denies;
use crate::requests::{Class, LeftOut, Ran, Received, RequestLog, RequestQuery, Ticket, unwritten};
use crate::table_reads::offload;

/// Why a request matters that changes nothing; none where it does not.
fn class(method: &Method, path: &str) -> Option<Class> {
    let reads = method == Method::GET || method == Method::HEAD;
    let below = |prefix: &str| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty())
    };
    match path {
        "/v1/acl/login"
        | "/v1/acl/oidc/auth-url"
        | "/v1/acl/oidc/complete-auth"
        | "/v1/acl/token/onetime"
        | "/v1/acl/token/onetime/exchange"
        | "/v1/acl/bootstrap" => Some(Class::Login),
        "/v1/audit" | "/v1/audit/requests" | "/v1/audit/trace" | "/v1/state/diff" => {
            Some(Class::Audit)
        }
        // Events as they are hide nothing, and a backup holds them all and wrapped keys.
        "/v1/log/entries" | "/v1/operator/snapshot" | "/v1/operator/keyring/keys" if reads => {
            Some(Class::Secret)
        }
        _ if reads && below("/v1/var/") => Some(Class::Secret),
        _ if reads && below("/v1/agent/pprof/") => Some(Class::Secret),
        // A token that is changed is shown with its secret, as one that is read.
        _ if *method != Method::DELETE && below("/v1/acl/token/") => Some(Class::Secret),
        _ if below("/v1/client/fs/") => Some(Class::Files),
        _ if below("/v1/client/allocation/") && path.ends_with("/exec") => Some(Class::Exec),
        // What is sent directly to an agent is in no event: this is where it is logged who did it.
        "/v1/client/metadata" | "/v1/agent/reload" | "/v1/agent/servers" if !reads => {
            Some(Class::Control)
        }
        _ if !reads && below("/v1/operator/projections/") => Some(Class::Control),
        _ if !reads && below("/v1/client/allocation/") => Some(Class::Control),
        "/v1/client/gc" => Some(Class::Control),
        _ if below("/v1/client/allocation/") && path.ends_with("/gc") => Some(Class::Control),
        _ => None,
    }
}

/// A request that may come to be denied.
pub(super) struct Denial {
    received: Received,
    /// Where from, where its caller is anonymous.
    stranger: Option<IpAddr>,
}

/// What is written of a request if it is denied.
pub(super) fn denial(request: &Request) -> Denial {
    let known = request.identity.known_as().is_some();
    Denial {
        received: received_as(Class::Denied, request),
        stranger: (!known).then(|| request.address()),
    }
}

fn received_as(class: Class, request: &Request) -> Received {
    Received {
        class,
        request_id: request.id(),
        method: request.method.to_string(),
        path: request.path.clone(),
        namespace: request.namespace().to_owned(),
        actor: request.identity.actor.clone(),
        trace: request.header("traceparent").unwrap_or_default().to_owned(),
        ran: None,
        servers: request.servers(),
        left_out: LeftOut::new(),
    }
}

/// Where a request is from, where its caller is anonymous and it will be denied: the caller may do
/// nothing. One that signs in may do nothing yet.
fn stranger(request: &Request, class: Class) -> Option<IpAddr> {
    let who = &request.identity;
    let stranger = who.known_as().is_none() && who.acl.is_nothing() && class != Class::Login;
    stranger.then(|| request.address())
}

/// Writes that a request was received, if it matters whatever becomes of it; of strangers only so
/// many that are refused.
///
/// # Errors
/// 503 where it must be written and cannot be.
pub(super) async fn received(
    log: &Arc<RequestLog>,
    request: &Request,
) -> Result<Option<Ticket>, Refusal> {
    let Some(class) = class(&request.method, &request.path) else {
        return Ok(None);
    };
    let record = received_as(class, request);
    let ticket = log.receive_of(record, stranger(request, class)).await;
    ticket.map(Some).map_err(unwritten)
}

/// Writes that a caller requests a command to be run beside a task.
///
/// # Errors
/// 503 where it must be written and cannot be.
pub(super) async fn requested_to_run(
    api: &Api,
    request: &Request,
    ran: Ran,
) -> Result<Ticket, Refusal> {
    let record = Received {
        ran: Some(ran),
        ..received_as(Class::Exec, request)
    };
    let from = stranger(request, Class::Exec);
    let ticket = api.requests.receive_of(record, from).await;
    ticket.map_err(unwritten)
}

/// Writes that a request is about to be shown a secret that its method and path do not name.
///
/// # Errors
/// 503 where it must be written and cannot be.
pub(super) async fn shown(api: &Api, request: &Request) -> Result<Ticket, Refusal> {
    let record = received_as(Class::Secret, request);
    api.requests.receive(&record).await.map_err(unwritten)
}

/// Writes how a request ended that was received, or that it was denied; of strangers only so many.
///
/// # Errors
/// The request's own, or 503 where the end must be written and cannot be.
pub(super) async fn answered(
    log: &Arc<RequestLog>,
    ticket: Option<Ticket>,
    denied: impl FnOnce() -> Denial,
    answer: Result<Answer, Refusal>,
) -> Result<Answer, Refusal> {
    let status = match &answer {
        Ok(answer) => answer.status,
        Err(error) => crate::net::status(error.code),
    };
    let written = match ticket {
        Some(ticket) => ticket.complete(status).await,
        None if denies(status) => {
            let Denial { received, stranger } = denied();
            match stranger.filter(|from| !log.has_capacity_for_stranger(*from)) {
                Some(from) => log.leave_out(from),
                None => log.denied(received, status).await,
            }
        }
        None => Ok(()),
    };
    written.map_err(unwritten)?;
    answer
}

/// `GET /v1/audit/requests`: requests to this server that change nothing but matter.
///
/// # Errors
/// 400 names the parameter; 404 where nothing is kept.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let requests = &read.api.requests;
    let Some(log) = &requests.records() else {
        let why = requests.broken();
        let why = why.unwrap_or_else(|| "audit { enabled = false }".to_owned());
        let text = format!("this server keeps no request log: {why}");
        return Err(Refusal::not_found(text));
    };
    offload(|| {
        let requested = request_query(read, log)?;
        let listing = crate::requests::list(&**log, &requested).map_err(unread)?;
        let beginning = crate::requests::beginning(&**log).map_err(unread)?;
        let mut pieces = Pieces::default();
        for entry in &listing.entries {
            pieces.push(entry)?;
        }
        let mut answer = Answer::pieces(pieces.finish());
        answer.next_token = listing.next.map(|next| next.to_string());
        Ok(kept_since(answer, beginning).header("x-drover-lost", requests.lost().to_string()))
    })
}

fn unread(error: LogError) -> Refusal {
    let text = chain(&error);
    tracing::error!(error = text, "the request log cannot be read");
    Refusal::internal(format!("log error: {text}"))
}

fn request_query(read: &Read<'_>, log: &LogEngine) -> Result<RequestQuery, Refusal> {
    let query = &read.request.query;
    let class = match query.text("class") {
        "" => None,
        name => Some(Class::from_name(name).ok_or_else(|| {
            let known = Class::ALL.map(Class::name).join(", ");
            Refusal::bad_request(format!("class {name:?} is none of {known}"))
        })?),
    };
    let mut requested = RequestQuery {
        class,
        actor: named(query, "actor"),
        path: named(query, "path"),
        newest_first: read.options.reverse(),
        limit: limit(read),
        ..RequestQuery::default()
    };
    match past::named(query, "since")? {
        Some(Moment::Index(index)) if index < log.bounds().0 => {
            let first = log.bounds().0;
            let text = format!("since {index} is no longer kept; this log begins at {first}");
            return Err(Refusal::new(Code::Gone, text));
        }
        Some(Moment::Index(index)) => requested.from = index,
        Some(Moment::Time(time)) => requested.since = Some(time),
        None => {}
    }
    match past::named(query, "until")? {
        Some(Moment::Index(index)) => requested.to = Some(index),
        Some(Moment::Time(time)) => requested.until = Some(time),
        None => {}
    }
    match (query.number("next_token")?, requested.newest_first) {
        (Some(token), true) => requested.to = Some(requested.to.map_or(token, |to| to.min(token))),
        (Some(token), false) => requested.from = requested.from.max(token),
        (None, _) => {}
    }
    Ok(requested)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use drover_events::Actor;
    use drover_events::model::AclToken;
    use http_body_util::Full;
    use serde_json::json;

    use super::super::front;
    use super::super::gate::Access;
    use super::super::harness::Harness;
    use super::*;
    use crate::acl::Acl;
    use crate::gate::Gate;
    use crate::identity::{Identity, Rejection};
    use crate::log::DiskSpace;
    use crate::requests::{Guarantee, RequestLogEntry};
    use drover_fake_disk::FakeDisk;

    #[test]
    fn what_matters_is_told_from_what_does_not() {
        let [secret, exec, control] = [Class::Secret, Class::Exec, Class::Control].map(Some);
        let login = Some(Class::Login);
        for (method, path, wanted) in [
            (Method::GET, "/v1/var/db/pass", secret),
            (Method::PUT, "/v1/var/db/pass", None),
            (Method::GET, "/v1/vars", None),
            (Method::GET, "/v1/client/allocation/x/exec", exec),
            (Method::GET, "/v1/client/allocation/x/stats", None),
            (Method::PUT, "/v1/client/allocation/x/restart", control),
            (Method::POST, "/v1/client/allocation/x/signal", control),
            (Method::GET, "/v1/client/allocation/x/gc", control),
            (Method::GET, "/v1/client/gc", control),
            (Method::GET, "/v1/client/metadata", None),
            (Method::POST, "/v1/client/metadata", control),
            (Method::PUT, "/v1/agent/reload", control),
            (Method::POST, "/v1/agent/reload", control),
            (Method::GET, "/v1/agent/pprof/cmdline", secret),
            (Method::GET, "/v1/agent/servers", None),
            (Method::PUT, "/v1/agent/servers", control),
            (Method::POST, "/v1/agent/servers", control),
            (Method::GET, "/v1/operator/projections", None),
            (Method::GET, "/v1/operator/projections/rebuild", None),
            (Method::PUT, "/v1/operator/projections/rebuild", control),
            (Method::DELETE, "/v1/operator/projections/rebuild", control),
            (Method::PUT, "/v1/operator/projections/verify", control),
            (Method::DELETE, "/v1/operator/projections/verify", control),
            (Method::DELETE, "/v1/operator/projections/kept", control),
            (Method::POST, "/v1/acl/login", login),
            (Method::PUT, "/v1/acl/bootstrap", login),
            (Method::PUT, "/v1/acl/token/onetime", login),
            (Method::PUT, "/v1/acl/token/onetime/exchange", login),
            (Method::GET, "/v1/acl/token/self", secret),
            (Method::GET, "/v1/acl/token/x", secret),
            (Method::PUT, "/v1/acl/token/x", secret),
            (Method::DELETE, "/v1/acl/token/x", None),
            (Method::GET, "/v1/acl/tokens", None),
            (Method::GET, "/v1/audit", Some(Class::Audit)),
            (Method::GET, "/v1/client/fs/logs/x", Some(Class::Files)),
            (Method::GET, "/v1/operator/snapshot", secret),
            (Method::GET, "/v1/log/entries", secret),
            (Method::GET, "/v1/log/segments", None),
            (Method::PUT, "/v1/operator/snapshot", None),
            (Method::GET, "/v1/operator/keyring/keys", secret),
            (Method::HEAD, "/v1/var/a", secret),
            (Method::GET, "/v1/jobs", None),
        ] {
            assert_eq!(class(&method, path), wanted, "{method} {path}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_loses_a_check_and_set_is_recorded_as_a_reader_of_the_secret() {
        let server = Harness::start().await;
        let body = json!({"Path": "db/pass", "Items": {"password": "hunter2"}});
        assert_eq!(server.put("/v1/var/db/pass", &body).await.status, 200);
        let lost = server.put("/v1/var/db/pass?cas=1", &body).await;
        assert_eq!(lost.status, 409);
        assert!(lost.text().contains("hunter2"));
        let gone = server.ask("DELETE", "/v1/var/db/pass?cas=1", "").await;
        assert_eq!(gone.status, 409);
        // Nothing is shown of what is not there.
        let absent = server.put("/v1/var/not/there?cas=7", &body).await;
        assert_eq!(absent.status, 409);
        let reported = server.get("/v1/audit/requests?class=secret").await.json();
        let reported: Vec<_> = reported
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| (&entry["Method"], &entry["Path"], &entry["Status"]))
            .collect();
        let path = &json!("/v1/var/db/pass");
        assert_eq!(
            reported,
            [
                (&json!("PUT"), path, &json!(409)),
                (&json!("DELETE"), path, &json!(409)),
            ]
        );
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn reads_of_secrets_are_kept_with_who_and_how_they_ended() {
        let server = Harness::start().await;
        let body = json!({"Path": "db/pass", "Items": {"password": "hunter2"}});
        assert_eq!(server.put("/v1/var/db/pass", &body).await.status, 200);
        assert_eq!(server.get("/v1/var/db/pass").await.status, 200);
        assert_eq!(server.get("/v1/var/not/there").await.status, 404);
        assert_eq!(server.get("/v1/jobs").await.status, 200);
        let reply = server.get("/v1/audit/requests?class=secret").await;
        assert!(!reply.text().contains("hunter2"));
        assert_eq!(reply.header("x-drover-lost"), "0");
        let reported = reply.json();
        let reported: Vec<_> = reported
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| (&entry["Path"], &entry["Complete"], &entry["Status"]))
            .collect();
        assert_eq!(
            reported,
            [
                (&json!("/v1/var/db/pass"), &json!(true), &json!(200)),
                (&json!("/v1/var/not/there"), &json!(true), &json!(404)),
            ]
        );
        let newest = server
            .get("/v1/audit/requests?reverse=true&per_page=1")
            .await;
        assert_eq!(newest.json()[0]["Class"], "audit");
        assert_eq!(
            newest.json()[0]["Complete"],
            false,
            "it was not answered yet"
        );
        let next = newest.header("x-nomad-nexttoken").to_owned();
        let rest = format!("/v1/audit/requests?reverse=true&next_token={next}");
        assert!(
            !server
                .get(&rest)
                .await
                .json()
                .as_array()
                .unwrap()
                .is_empty()
        );
        for (query, name) in [("class=x", "class"), ("since=soon", "since")] {
            let reply = server.get(&format!("/v1/audit/requests?{query}")).await;
            assert_eq!(reply.status, 400);
            assert!(reply.text().contains(name), "{}", reply.text());
        }
        server.stop().await;
    }

    /// A log whose disk is full from now on.
    async fn full(guarantee: Guarantee) -> (FakeDisk, RequestLog) {
        let disk = FakeDisk::default();
        let files = Arc::new(disk.clone());
        let log = RequestLog::open_with(files, Path::new("/requests"), guarantee).unwrap();
        let log = Arc::new(log);
        disk.set_capacity(Some(disk.used()));
        let long = Received {
            class: Class::Audit,
            request_id: String::new(),
            method: "GET".to_owned(),
            path: "x".repeat(4_000),
            namespace: String::new(),
            actor: Actor::default(),
            trace: String::new(),
            ran: None,
            servers: Vec::new(),
            left_out: LeftOut::new(),
        };
        let limit = std::time::Instant::now() + drover_testkit::LONG;
        while log.records().unwrap().space() != DiskSpace::Full {
            assert!(std::time::Instant::now() < limit, "it is never full");
            drop(log.receive(&long).await);
        }
        crate::requests::requests_test::fill(&log);
        let log = Arc::into_inner(log).expect("no ticket is left");
        (disk, log)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn enforced_refuses_what_cannot_be_written_and_nothing_else() {
        let (disk, log) = full(Guarantee::Enforced).await;
        let server = Harness::keeping(log).await;
        let body = json!({"Path": "db/pass", "Items": {"password": "hunter2"}});
        assert_eq!(server.put("/v1/var/db/pass", &body).await.status, 200);
        assert_eq!(server.get("/v1/jobs").await.status, 200);
        for target in ["/v1/var/db/pass", "/v1/audit", "/v1/client/fs/ls/x"] {
            let reply = server.get(target).await;
            assert_eq!(reply.status, 503, "{target}: {}", reply.text());
            assert!(!reply.text().contains("hunter2"));
            assert!(
                reply.text().contains("the request log cannot be written"),
                "{}",
                reply.text()
            );
        }
        // A caller that loses a check-and-set is shown nothing that is not written down.
        for method in ["PUT", "DELETE"] {
            let body = body.to_string();
            let reply = server.ask(method, "/v1/var/db/pass?cas=1", body).await;
            assert_eq!(reply.status, 503, "{method}: {}", reply.text());
            assert!(!reply.text().contains("hunter2"));
        }
        disk.set_capacity(None);
        assert_eq!(server.get("/v1/var/db/pass").await.status, 200);
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn best_effort_answers_and_counts_what_could_not_be_written() {
        let (_disk, log) = full(Guarantee::BestEffort).await;
        let before = log.lost();
        let server = Harness::keeping(log).await;
        let body = json!({"Path": "db/pass", "Items": {"password": "hunter2"}});
        assert_eq!(server.put("/v1/var/db/pass", &body).await.status, 200);
        let reply = server.get("/v1/var/db/pass").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.json()["Items"]["password"], "hunter2");
        // The writer counts when it has tried; a log that is opened again may have space for some.
        let begun = std::time::Instant::now();
        while server.api.requests.lost() < before + 2 {
            assert!(begun.elapsed() < drover_testkit::LONG, "nothing is lost");
            assert_eq!(server.get("/v1/var/db/pass").await.status, 200);
        }
        let reply = server.get("/v1/audit/requests").await;
        let lost: u64 = reply.header("x-drover-lost").parse().unwrap();
        assert!(lost >= before + 2, "{lost} after {before}");
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn denied_requests_of_any_method_are_kept_without_their_tokens() {
        let server = Harness::asking(Gate::fixed(|token, addr| match token {
            Some("canary-token-77") => Identity::open(addr),
            _ => Identity::refused(addr, Rejection::Unknown),
        }))
        .await;
        for (method, target) in [
            ("GET", "/v1/jobs?token=canary-query-1"),
            ("PUT", "/v1/jobs"),
            ("PUT", "/v1/operator/snapshot"),
            ("GET", "/v1/var/a"),
        ] {
            let request = hyper::Request::builder()
                .method(method)
                .uri(target)
                .header("x-nomad-token", "canary-forged-2")
                .header("x-request-id", "r-7")
                .body(Full::new(Bytes::from("canary-body-3")))
                .unwrap();
            assert_eq!(server.send(request).await.status, 403, "{method} {target}");
        }
        let request = hyper::Request::builder()
            .uri("/v1/audit/requests")
            .header("authorization", "Bearer canary-token-77")
            .body(Full::default())
            .unwrap();
        let reply = server.send(request).await;
        assert!(!reply.text().contains("canary"), "{}", reply.text());
        let reported = reply.json();
        let denied: Vec<_> = reported
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["Class"] == "denied")
            .map(|entry| (entry["Method"].as_str().unwrap(), entry["Status"].as_u64()))
            .collect();
        let wanted = ["GET", "PUT", "PUT", "GET"].map(|method| (method, Some(403)));
        assert_eq!(denied, wanted, "{reported:#}");
        assert!(
            reported.as_array().unwrap()[..4]
                .iter()
                .all(|e| e["RequestID"] == "r-7")
        );
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn auth_09_requests_of_strangers_over_http_are_bounded_as_their_calls_are() {
        const REQUESTED: u64 = 300;
        let server = Harness::asking(Gate::fixed(|token, addr| match token {
            Some(name) => {
                let token = AclToken {
                    accessor_id: name.to_owned(),
                    ..AclToken::default()
                };
                Identity::bearer(Arc::new(token), addr, Arc::new(Acl::denied()))
            }
            None => Identity::refused(addr, Rejection::Unknown),
        }))
        .await;
        // Those too that are written before it is decided about them.
        let paths = ["/v1/jobs", "/v1/var/db/pass", "/v1/client/fs/ls/a1"];
        for (_, path) in (0..REQUESTED).zip(paths.iter().cycle()) {
            assert_eq!(server.get(path).await.status, 403, "{path}");
        }
        // A caller that is known is written down each time.
        for _ in 0..3 {
            let reply = server.by("somebody", "GET", "/v1/jobs", "").await;
            assert_eq!(reply.status, 403);
        }
        let log = server.api.requests.records().expect("one is kept");
        let requested = RequestQuery {
            limit: 1_000,
            ..RequestQuery::default()
        };
        let reported = crate::requests::list(&*log, &requested).unwrap().entries;
        let known = |entry: &&RequestLogEntry| entry.received.actor.id == "somebody";
        assert_eq!(reported.iter().filter(known).count(), 3);
        let written = u64::try_from(reported.len()).unwrap() - 3;
        assert!(written < REQUESTED, "all are written down");
        let left_out = reported
            .iter()
            .flat_map(|entry| entry.received.left_out.values());
        assert_eq!(written + left_out.sum::<u64>(), REQUESTED);
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn writes_and_uploads_that_a_handler_denies_are_kept() {
        let server = Harness::start().await;
        let incoming = |target: &str| {
            let request = hyper::Request::builder().method("PUT").uri(target);
            request.body(axum::body::Body::empty()).unwrap()
        };
        let api = || Arc::clone(&server.api);
        let refused = || async { Err(Refusal::permission_denied()) };
        let written =
            front::write(api(), incoming("/v1/jobs"), Access::Anyone, |_| refused()).await;
        let target = "/v1/operator/snapshot";
        let uploaded =
            front::upload(api(), incoming(target), Access::Anyone, |_, _| refused()).await;
        assert_eq!(
            [written, uploaded].map(|answer| answer.status().as_u16()),
            [403, 403]
        );
        let reported = server.get("/v1/audit/requests?class=denied").await.json();
        let reported: Vec<_> = reported
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| (entry["Path"].as_str().unwrap(), entry["Status"].as_u64()))
            .collect();
        assert_eq!(reported, [("/v1/jobs", Some(403)), (target, Some(403))]);
        server.stop().await;
    }
}
