//! The audit trail, cause chains, and the difference between two states. None of it is Nomad's.

use std::sync::Arc;

use drover_events::EventKind;
use drover_events::acl::SealedSecret;
use drover_projections::changes::Change;
use drover_projections::tables::registry;
use serde::Serialize;

use super::answer::Answer;
use super::front::Read;
use super::gate::demand;
use super::past;
use super::permit::Permit;
use super::pieces::{PIECE, Pieces};
use super::query::Query;
use crate::error::{Code, Refusal, chain};
use crate::history::audit::{
    AuditError, Between, Detail, Eyes, Object, ObjectType, OutcomeFilter, Question, RowPosition,
    Sees, Trail,
};
use crate::history::record::Redactor;
use crate::log::LogError;
use crate::table_reads::offload;

/// Rows on a page where the request names no number.
const ROWS: usize = 100;
/// Rows on a page at most.
const MOST: usize = 1_000;
/// Pieces of JSON after which a page ends, however many rows were requested.
const PIECES: usize = (8 << 20) / PIECE;

impl From<AuditError> for Refusal {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Question(text) => Self::bad_request(text),
            AuditError::Unknown(text) => Self::not_found(text),
            AuditError::Gone(text) => Self::new(Code::Gone, text),
            AuditError::Log(error @ LogError::Purged { .. }) => {
                Self::new(Code::Gone, error.to_string())
            }
            AuditError::NoKey => Self::new(Code::Unavailable, error.to_string()),
            error => {
                let text = chain(&error);
                tracing::error!(error = text, "the audit trail cannot be read");
                Self::internal(text)
            }
        }
    }
}

drover_events::wire! {
    /// A query of the audit trail in a body: queries are kept in the logs of proxies.
    struct AuditRequest {
        value: String = "Value",
    }
}

/// What hides confidential values. Their hashes are for callers that may see all: a caller that
/// writes a value and reads its hash finds out a value of which it sees only the hash.
fn redactor(read: &Read<'_>) -> Redactor {
    match permit(read).sees_all() {
        true => Redactor::of(&read.api.keyring),
        false => Redactor::default(),
    }
}

/// What the caller may see, by the tables of now.
fn permit(read: &Read<'_>) -> Permit {
    Permit::of(Arc::clone(&read.identity.acl))
}

/// Whether the caller may see anything of the past. What exactly, is checked for each change.
///
/// # Errors
/// 403.
pub(super) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    demand(permit(read).sees_something())
}

/// The past as the caller may see it.
fn trail<'a>(
    read: &'a Read<'_>,
    redactor: &'a Redactor,
    (permit, sees): (&Permit, Sees<'a>),
) -> Trail<'a> {
    let eyes = match permit.sees_all() {
        true => Eyes::All,
        false => Eyes::Some(sees),
    };
    Trail::new(read.view.unfiltered(), &read.api.log, redactor, eyes)
}

/// `/v1/audit`: what happened, who did it, and what it changed.
///
/// # Errors
/// 400 names the parameter; 404 for what never was; 410 for what is no longer kept.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    offload(|| {
        let redactor = redactor(read);
        let permit = permit(read);
        let sees = |change: &Change| permit.sees_change(change);
        let trail = trail(read, &redactor, (&permit, &sees));
        let Some(question) = question(read, &trail)? else {
            return Ok(kept_since(Answer::json(&[(); 0])?, trail.beginning()?));
        };
        let mut rows = Rows::default();
        let page = trail.answer(&question, |entry| rows.take(entry))?;
        let answer = rows.finish(page.next.map(|next| next.to_string()));
        Ok(kept_since(answer, trail.beginning()?))
    })
    .map(|answer: Answer| past::with_former(answer.at(read.view.index()), &read.api.log))
    .map_err(|error| past::naming_former(error, &read.api.log))
}

/// Says from where on the past is kept, where something of it was dropped.
pub(super) fn kept_since(answer: Answer, beginning: Option<(u64, i64)>) -> Answer {
    match beginning {
        None => answer,
        Some((first, time)) => answer
            .header("x-drover-first", first.to_string())
            .header("x-drover-first-time", time.to_string()),
    }
}

/// `GET /v1/audit/trace?id=`: what an event, a request or a thing came from, and what followed.
///
/// # Errors
/// As [`list`].
pub(super) fn trace(read: &Read<'_>) -> Result<Answer, Refusal> {
    let query = &read.request.query;
    let id = match query.text("id") {
        "" => return Err(Refusal::bad_request("the parameter id is missing")),
        id => id,
    };
    offload(|| {
        let redactor = redactor(read);
        let permit = permit(read);
        let sees = |change: &Change| permit.sees_change(change);
        let trail = trail(read, &redactor, (&permit, &sees));
        let tree = crate::history::audit::trace(&trail, id, &read.options.namespace)?;
        Ok(kept_since(Answer::json(&tree)?, trail.beginning()?))
    })
    .map(|answer: Answer| past::with_former(answer.at(read.view.index()), &read.api.log))
    .map_err(|error| past::naming_former(error, &read.api.log))
}

/// `GET /v1/state/diff?from=&to=`: the rows that differ between two moments.
///
/// # Errors
/// As [`list`].
pub(super) fn between(read: &Read<'_>) -> Result<Answer, Refusal> {
    let query = &read.request.query;
    let newest = read.view.index();
    offload(|| {
        let log = &read.api.log;
        let ends = ["from", "to"].map(|name| past::until(log, query, name, newest));
        let [from, to] = ends;
        let missing = || Refusal::bad_request("the parameter from is missing");
        let from = from?.ok_or_else(missing)?.unwrap_or_default();
        let to = to?.map_or(newest, Option::unwrap_or_default);
        let wanted = Between {
            from,
            to,
            tables: tables(query)?,
            namespace: named(query, "namespace").filter(|name| name != "*"),
            start: place(read)?,
            limit: limit(read),
            fields: detail(query)?.fields,
        };
        let mut rows = Rows::default();
        let redactor = redactor(read);
        let permit = permit(read);
        let sees = |change: &Change| permit.sees_change(change);
        let trail = trail(read, &redactor, (&permit, &sees));
        let next = wanted.answer(&trail, |row| rows.take(row))?;
        let next = next.map(|place| token(read, &place)).transpose()?;
        Ok(rows
            .finish(next)
            .header("x-drover-from", from.to_string())
            .header("x-drover-to", to.to_string()))
    })
    .map(|answer: Answer| answer.at(newest))
    .map_err(|error| past::naming_former(error, &read.api.log))
}

/// A page in the making.
#[derive(Default)]
struct Rows {
    pieces: Pieces,
}

impl Rows {
    /// Adds a row; whether there is space for more.
    fn take<T: Serialize>(&mut self, row: &T) -> Result<bool, Refusal> {
        self.pieces.push(row)?;
        Ok(self.pieces.closed() < PIECES)
    }

    fn finish(self, next: Option<String>) -> Answer {
        let mut answer = Answer::pieces(self.pieces.finish());
        answer.next_token = next;
        answer
    }
}

/// A parameter that says something.
pub(super) fn named(query: &Query, name: &str) -> Option<String> {
    query
        .get(name)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

/// The rows of a page.
pub(super) fn limit(read: &Read<'_>) -> usize {
    match read.options.per_page() as usize {
        0 => ROWS,
        rows => rows.min(MOST),
    }
}

/// The question of a request; none where the requested time ended before anything happened.
fn question(read: &Read<'_>, trail: &Trail<'_>) -> Result<Option<Question>, Refusal> {
    let query = &read.request.query;
    let (log, newest) = (&read.api.log, trail.last());
    if query.get("filter").is_some() {
        return Err(Refusal::bad_request(
            "filter is not for this list: type, id, actor, kind, namespace, request_id, since, \
             until and outcome choose what it lists",
        ));
    }
    let mut from = past::since(log, query, "since", newest)?.unwrap_or_else(|| trail.first());
    if from < trail.first() {
        let (since, first) = (query.text("since"), trail.first());
        let text = format!("since {since:?} is before the first event here, {first}");
        return Err(Refusal::new(Code::Gone, text));
    }
    let Some(mut to) = past::until(log, query, "until", newest)?.unwrap_or(Some(newest)) else {
        return Ok(None);
    };
    let newest_first = read.options.reverse();
    match (query.number::<u64>("next_token")?, newest_first) {
        (Some(next), true) => to = to.min(next),
        (Some(next), false) => from = from.max(next),
        (None, _) => {}
    }
    let object = object(read)?;
    let namespace = match object {
        Some(_) => None,
        None => named(query, "namespace").filter(|name| name != "*"),
    };
    Ok(Some(Question {
        object,
        actor: named(query, "actor"),
        kinds: kinds(query)?,
        namespace,
        request_id: named(query, "request_id"),
        value: value(read)?,
        wanted: wanted(query)?,
        from,
        to,
        newest_first,
        limit: limit(read),
        detail: detail(query)?,
    }))
}

/// The value that is looked for: in the body, or where that does no harm in the query.
fn value(read: &Read<'_>) -> Result<Option<String>, Refusal> {
    let body: AuditRequest = read.request.json_or_default()?;
    let given = Some(body.value).filter(|value| !value.is_empty());
    let value = given.or_else(|| named(&read.request.query, "value"));
    // A caller that may look for a value may find out what it is, by many queries.
    demand(value.is_none() || read.identity.is_management())?;
    Ok(value)
}

fn object(read: &Read<'_>) -> Result<Option<Object>, Refusal> {
    let query = &read.request.query;
    let (kind, id) = (query.text("type"), query.text("id"));
    let bad = |text: String| Err(Refusal::bad_request(text));
    if kind.is_empty() {
        return match id {
            "" => Ok(None),
            _ => bad("id names nothing without type".to_owned()),
        };
    }
    let Some(kind) = ObjectType::from_name(kind) else {
        let known: Vec<&str> = ObjectType::WORDS.iter().map(|words| words[0]).collect();
        return bad(format!("type {kind:?} is none of {}", known.join(", ")));
    };
    let namespace = read.options.namespace.clone();
    if kind.is_in_namespace() && namespace == "*" {
        return bad(format!("namespace * cannot name {}", kind.a_name()));
    }
    if id.is_empty() && !kind.is_single() {
        return bad(format!(
            "the parameter id is missing: which {}",
            kind.name()
        ));
    }
    Ok(Some(Object {
        kind,
        namespace,
        id: id.to_owned(),
        related: flag(query, "related", false)?,
    }))
}

fn kinds(query: &Query) -> Result<Vec<EventKind>, Refusal> {
    let names = query.all("kind").flat_map(|names| names.split(','));
    let kind = |name: &str| {
        EventKind::from_name(name)
            .ok_or_else(|| Refusal::bad_request(format!("kind {name:?} is no kind of event")))
    };
    names.filter(|name| !name.is_empty()).map(kind).collect()
}

fn wanted(query: &Query) -> Result<OutcomeFilter, Refusal> {
    match query.text("outcome") {
        "" | "all" => Ok(OutcomeFilter::All),
        "applied" => Ok(OutcomeFilter::Applied),
        "refused" => Ok(OutcomeFilter::Rejected),
        other => Err(Refusal::bad_request(format!(
            "outcome {other:?} is none of applied, refused, all"
        ))),
    }
}

fn detail(query: &Query) -> Result<Detail, Refusal> {
    let usual = Detail::default();
    let diff = flag(query, "diff", true)?;
    Ok(Detail {
        changes: query.number("changes")?.unwrap_or(usual.changes).min(4_096),
        fields: match diff {
            true => query.number("fields")?.unwrap_or(usual.fields).min(10_000),
            false => 0,
        },
        all_changes: flag(query, "all_changes", false)?,
        payload: flag(query, "payload", false)?,
    })
}

fn flag(query: &Query, name: &str, default: bool) -> Result<bool, Refusal> {
    match query.text(name) {
        "" => Ok(default),
        raw => super::query::parse_bool(raw)
            .ok_or_else(|| Refusal::bad_request(format!("{name} {raw:?} is no boolean"))),
    }
}

fn tables(query: &Query) -> Result<Vec<&'static str>, Refusal> {
    let names = query.all("table").flat_map(|names| names.split(','));
    let table = |name: &str| {
        registry()
            .named(name)
            .map(|table| table.name())
            .ok_or_else(|| {
                let known: Vec<&str> = registry().tables().map(|table| table.name()).collect();
                let known = known.join(", ");
                Refusal::bad_request(format!("table {name:?} is none of {known}"))
            })
    };
    names.filter(|name| !name.is_empty()).map(table).collect()
}

/// What tokens of pages are sealed as.
const PAGE: &str = "a page of /v1/state/diff";

/// Where the next page begins, for the caller: the row may be one that it may not see, so it gets
/// it sealed.
fn token(read: &Read<'_>, place: &RowPosition) -> Result<String, Refusal> {
    let text = place.to_string();
    if permit(read).sees_all() {
        return Ok(text);
    }
    let sealed = read.api.keyring.seal_secret(PAGE, &text, String::new());
    let sealed = sealed.map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))?;
    let text = sealed.ciphertext.replace('+', "-").replace('/', "_");
    Ok(format!("{}.{text}", sealed.key_id))
}

fn place(read: &Read<'_>) -> Result<Option<RowPosition>, Refusal> {
    let token = match read.request.query.text("next_token") {
        "" => return Ok(None),
        token => token,
    };
    let opened = || {
        let (key, text) = token.split_once('.')?;
        let sealed = SealedSecret {
            hash: String::new(),
            ciphertext: text.replace('-', "+").replace('_', "/"),
            key_id: key.to_owned(),
        };
        let clear = read.api.keyring.open_secret(PAGE, &sealed).ok()?;
        RowPosition::parse(&clear)
    };
    RowPosition::parse(token)
        .or_else(opened)
        .map(Some)
        .ok_or_else(|| Refusal::bad_request(format!("next_token {token:?} is none of this list")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_events::model::Namespace;
    use drover_events::namespace::{NamespacesDeleted, NamespacesUpserted};
    use drover_projections::tables::namespaces::Namespaces;

    use super::super::Settings;
    use super::super::harness::{Given, Harness};
    use crate::keyring::Keyring;
    use crate::proposer::decided::{Decided, Propose, RaftPropose, propose};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ev_20_a_refused_intent_is_told_as_refused_and_changes_nothing() {
        let server = Harness::start().await;
        let view = server.server.projections.view();
        let guard = view.guard::<Namespaces>("not there").unwrap();
        let named = |names: &[&str]| NamespacesDeleted {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let proposer: Arc<dyn Propose> =
            Arc::new(RaftPropose::new(server.server.proposer.clone(), "me"));
        let drover_events::Guard::RowAbsent { table, key } = guard else {
            panic!("nothing is there: {guard:?}");
        };
        let wrong = drover_events::Guard::RowAt {
            table,
            key,
            index: 7,
        };
        let decided = Decided::new("tester", named(&["not there"])).guarded(wrong);
        let outcome = propose(&proposer, decided).await.unwrap();
        assert!(outcome.rejection.is_some());

        let reported = server.get("/v1/audit?outcome=refused").await.json();
        assert_eq!(reported.as_array().map(Vec::len), Some(1), "{reported:#}");
        assert_eq!(reported[0]["Index"], outcome.index);
        assert_eq!(reported[0]["Outcome"], "refused");
        assert_eq!(reported[0]["Reason"], "guard 0 did not hold: 0 was found");
        assert_eq!(reported[0]["Changes"], serde_json::json!([]));
        assert_eq!(reported[0]["Actor"]["name"], "tester");
        let applied = server
            .get("/v1/audit?outcome=applied&per_page=1000")
            .await
            .json();
        let applied = applied.as_array().unwrap();
        assert!(!applied.is_empty());
        assert!(applied.iter().all(|entry| entry["Outcome"] == "applied"));
        assert!(applied.iter().all(|entry| entry["Index"] != outcome.index));
        let target = format!("/v1/audit/trace?id={}", outcome.index);
        let tree = server.get(&target).await.json();
        assert_eq!(
            tree["Roots"][0]["Refused"],
            "guard 0 did not hold: 0 was found"
        );
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_dropped_may_have_been_and_what_is_kept_is_said() {
        let server = Harness::start().await;
        server.register("old").await;
        server.ask("DELETE", "/v1/job/old?purge=true", "").await;
        let horizon = server.register("new").await.index();
        let unknown = [
            "/v1/audit?type=job&id=never",
            "/v1/audit?type=alloc&id=ffffffff",
            "/v1/audit/trace?id=never",
        ];
        for target in unknown {
            let reply = server.get(target).await;
            assert_eq!(reply.status, 404, "{target}: {}", reply.text());
        }
        assert_eq!(server.get("/v1/audit").await.header("x-drover-first"), "");
        let raft = &server.server.raft;
        raft.make_snapshot().await.unwrap();
        raft.forget_below(horizon).await.unwrap();
        server.api.projections.prune().unwrap();
        server.register("later").await;
        for target in unknown.into_iter().chain(["/v1/audit?type=job&id=old"]) {
            let reply = server.get(target).await;
            assert_eq!(reply.status, 410, "{target}: {}", reply.text());
            let named = format!("up to index {horizon} is no longer kept");
            assert!(reply.text().contains(&named), "{target}: {}", reply.text());
        }
        for target in [
            "/v1/audit",
            "/v1/audit?type=job&id=new",
            "/v1/audit/trace?id=later",
        ] {
            let reply = server.get(target).await;
            assert_eq!(reply.status, 200, "{target}: {}", reply.text());
            assert_eq!(reply.header("x-drover-first"), (horizon + 1).to_string());
            let time: i64 = reply.header("x-drover-first-time").parse().unwrap();
            assert!(time > 0);
        }
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rows_that_differ_are_shown_first_however_many_came_before_them() {
        let server = Harness::start().await;
        let named = |name: String, description: &str| Namespace {
            name,
            description: description.to_owned(),
            ..Namespace::default()
        };
        let upserted = |namespaces| Given(NamespacesUpserted { namespaces }.into());
        let first = upserted(vec![named("zebra".to_owned(), "before")]);
        server.submit(first).await;
        let came = (0..40).map(|number| named(format!("new-{number}"), "came"));
        let all = came.chain([named("zebra".to_owned(), "after")]);
        let index = server.submit(upserted(all.collect())).await;
        let target = "/v1/audit?kind=NamespacesUpserted&reverse=true&per_page=1";
        let reported = server.get(target).await.json();
        let entry = &reported[0];
        assert_eq!(entry["Index"], index, "{reported:#}");
        let changes = entry["Changes"].as_array().unwrap();
        assert_eq!(
            (changes.len(), &entry["MoreChanges"]),
            (32, &serde_json::json!(9))
        );
        assert_eq!(changes[0]["Operation"], "update", "{reported:#}");
        assert_eq!(changes[0]["Key"], serde_json::json!(["zebra"]));
        let came = |change: &serde_json::Value| change["Operation"] == "insert";
        assert!(changes[1..].iter().all(came), "{reported:#}");
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn values_are_not_looked_for_without_a_key() {
        let keys = tempfile::tempdir().unwrap();
        let (keyring, _) = Keyring::open(keys.path()).unwrap();
        let server = Harness::with(Settings::default(), Some(Arc::new(keyring))).await;
        let reply = server.get("/v1/audit?value=hunter2").await;
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert!(reply.text().contains("no root key"), "{}", reply.text());
        server.stop().await;
    }
}
