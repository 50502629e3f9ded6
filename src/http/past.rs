//! `?as_of=`: reads of an earlier state.
//!
//! Every read takes it: an index of the log, an RFC 3339 time, or a duration back from now
//! (`-5m`). A time means the last event at or before it. The answer names the index it shows in
//! `X-Drover-As-Of` and its time in `X-Drover-As-Of-Time`; handlers know nothing of it, since a
//! view of the past reads like any other.

use std::path::PathBuf;

use drover_projections::view::View;
use hyper::Method;

use super::answer::Answer;
use super::query::Query;
use super::request::Request;
use super::state::Api;
use crate::base::clock::Moment;
use crate::error::{Code, Refusal};
use crate::history::backup::adopt;
use crate::log::{LogEngine, LogError, last_index_at_or_before, time_of};

/// The header that names the index an answer shows.
pub(super) const HEADER: &str = "x-drover-as-of";
/// The header that names when that was, Unix nanoseconds: the requested moment, or the time of the
/// event with the index.
pub(super) const TIME_HEADER: &str = "x-drover-as-of-time";
/// The header that names the directory in which the log before a restore is kept.
const FORMER_HEADER: &str = "x-drover-former";
const PARAMETER: &str = "as_of";

/// Whether a request is about the past.
pub(super) fn is_requested(query: &Query) -> bool {
    query.get(PARAMETER).is_some_and(|raw| !raw.is_empty())
}

/// The view of the past that a request names, and its time in Unix nanoseconds.
///
/// # Errors
/// 400: no index, time or duration, or one beyond the last event. 410: below the first event that
/// is kept.
pub(super) fn view(api: &Api, query: &Query) -> Result<(View, i64), Refusal> {
    let raw = query.text(PARAMETER);
    if !query.text("index").is_empty() {
        return Err(Refusal::bad_request(
            "as_of and index exclude one another: the past does not change",
        ));
    }
    let now = crate::base::clock::unix_nanos();
    let moment = parse(PARAMETER, raw, now)?;
    if matches!(moment, Moment::Time(time) if time > now) {
        let text = format!("as_of {raw} has not happened yet");
        return Err(Refusal::bad_request(text));
    }
    let view = api.projections.view();
    let newest = view.index();
    let index = match moment {
        Moment::Index(index) => index,
        Moment::Time(time) => before(&api.log, time, newest)?.ok_or_else(|| {
            gone(
                &format!("nothing had happened yet at {raw}"),
                None,
                &api.log,
            )
        })?,
    };
    if index > newest {
        return Err(Refusal::bad_request(format!(
            "as_of {index} has not happened yet: the last event is {newest}"
        )));
    }
    let first = api.log.bounds().0;
    if index < first {
        let text = format!("the state as of {index} is not kept");
        return Err(gone(&text, Some(index), &api.log));
    }
    let time = time_at(&api.log, index)?;
    let floor = view.position().floor;
    let shown = match moment {
        Moment::Time(requested) => requested.max(time),
        Moment::Index(_) => time,
    };
    let then = view.as_of(index, time).map(|view| (view, shown));
    then.ok_or_else(|| {
        let text = format!(
            "the state as of {index} is not kept; what this server knows begins at {floor}"
        );
        Refusal::new(Code::Gone, text)
    })
}

/// The first index of a stretch that begins at a parameter's moment; none without it.
///
/// # Errors
/// 400: no moment, or an index beyond `newest`. 410: before the first event that is kept.
pub(super) fn since(
    log: &LogEngine,
    query: &Query,
    name: &str,
    newest: u64,
) -> Result<Option<u64>, Refusal> {
    let Some(moment) = moment(query, name, newest)? else {
        return Ok(None);
    };
    let first = log.bounds().0;
    let index = match moment {
        Moment::Index(index) => index,
        Moment::Time(time) => match before(log, time.saturating_sub(1), newest)? {
            Some(last) => last + 1,
            None if first > log.epoch().first_index => first - 1,
            None => first,
        },
    };
    if index < first {
        let text = format!("{name} {:?} is no longer kept", query.text(name));
        let requested = matches!(moment, Moment::Index(_)).then_some(index);
        return Err(gone(&text, requested, log));
    }
    Ok(Some(index))
}

/// The last index of a stretch that ends at a parameter's moment; none without it. A moment before
/// anything happened gives nothing: `Some(None)`.
///
/// # Errors
/// 400: no moment, or an index beyond `newest`.
pub(super) fn until(
    log: &LogEngine,
    query: &Query,
    name: &str,
    newest: u64,
) -> Result<Option<Option<u64>>, Refusal> {
    Ok(match moment(query, name, newest)? {
        None => None,
        Some(Moment::Index(index)) => Some(Some(index)),
        Some(Moment::Time(time)) => Some(before(log, time, newest)?),
    })
}

/// The moment that a parameter names; an index may not be beyond `newest`.
fn moment(query: &Query, name: &str, newest: u64) -> Result<Option<Moment>, Refusal> {
    match named(query, name)? {
        Some(Moment::Index(index)) if index > newest => Err(Refusal::bad_request(format!(
            "{name} {index} has not happened yet: the last event is {newest}"
        ))),
        moment => Ok(moment),
    }
}

/// The moment that a parameter names, whether it has come or not; none without it.
///
/// # Errors
/// 400 that names the parameter.
pub(super) fn named(query: &Query, name: &str) -> Result<Option<Moment>, Refusal> {
    let raw = query.text(name);
    (!raw.is_empty())
        .then(|| parse(name, raw, crate::base::clock::unix_nanos()))
        .transpose()
}

/// Refuses the parameter where nothing of the past can be answered, and says what to use instead.
///
/// # Errors
/// 400 when it is there.
pub(super) fn refuse(request: &Request) -> Result<(), Refusal> {
    let reads = matches!(request.method, Method::GET | Method::HEAD);
    let requested = request.query.get(PARAMETER);
    if requested.is_none_or(|raw| reads && raw.is_empty()) {
        return Ok(());
    }
    Err(Refusal::bad_request(match reads {
        true => no_past(&request.path),
        false => "as_of is for reads: the past cannot be changed".to_owned(),
    }))
}

/// The refusal where a path has no past, by what it begins with, and what to use instead.
const INSTEAD: [(&str, &str); 8] = [
    (
        "/v1/event/stream",
        "begin in the past with index=N or since=-5m",
    ),
    ("/v1/audit/requests", "use since= and until="),
    (
        "/v1/log/",
        "use /v1/log/proof/consistency?from=N&to=M for a log that ended earlier",
    ),
    (
        "/v1/status/",
        "use /v1/audit?kind=LeaderElected to see who led when",
    ),
    (
        "/v1/operator/snapshot",
        "use drover state at, or drover operator snapshot restore -at",
    ),
    ("/v1/schema/", "every version of an event is in it"),
    (
        "/v1/client/",
        "it asks a client, which keeps no past; see /v1/allocation/<id>",
    ),
    (
        "/v1/operator/reactors",
        "use /v1/audit?kind=PublisherLagged for lags of the publisher",
    ),
];

fn no_past(path: &str) -> String {
    let instead = INSTEAD.iter().find(|(begin, _)| path.starts_with(begin));
    let instead = instead.map_or("leave it out", |(_, instead)| instead);
    format!("as_of: {path} has no past, it shows what is now; {instead}")
}

/// Reads the moment that a parameter of this name gives.
///
/// # Errors
/// 400 that names it.
pub(super) fn parse(name: &str, raw: &str, now: i64) -> Result<Moment, Refusal> {
    Moment::parse(raw, now).map_err(|error| Refusal::bad_request(format!("{name} {error}")))
}

/// The refusal of a past that is not kept; `requested`: the requested index, where it is known. If
/// it lies before a restore, the commands are named that read it on this server.
fn gone(what: &str, requested: Option<u64>, log: &LogEngine) -> Refusal {
    let first = log.bounds().0;
    let mut text = format!("{what}; the log begins at index {first}");
    if let Some(dir) = former(requested, log) {
        text += &kept_in(requested, &dir);
    }
    Refusal::new(Code::Gone, text)
}

fn kept_in(requested: Option<u64>, dir: &str) -> String {
    let mut text = format!(
        ", where a backup was restored. What came before is kept on this server, and is read there \
         with `drover log events -data-dir {dir}`"
    );
    if let Some(index) = requested {
        text += &format!(" and `drover state at {index} -data-dir {dir} -out OUT`");
    }
    text + &format!("; `drover log verify -data-dir {dir}` proves it")
}

/// An error about a past that is gone, with where it is kept if a restore is why.
pub(super) fn naming_former(mut error: Refusal, log: &LogEngine) -> Refusal {
    if error.code == Code::Gone
        && !error.message.contains("-data-dir")
        && let Some(dir) = former(None, log)
    {
        let first = log.bounds().0;
        error.message += &format!("; the log begins at index {first}");
        error.message += &kept_in(None, &dir);
    }
    error
}

/// An answer about the past, with where what came before is kept if a restore is why it is not
/// here.
pub(super) fn with_former(answer: Answer, log: &LogEngine) -> Answer {
    match former(None, log) {
        Some(dir) => answer.header(FORMER_HEADER, dir),
        None => answer,
    }
}

/// Where the log of the former epoch lies that has an index, or the newest one, if this epoch began
/// with a restore and is whole.
fn former(requested: Option<u64>, log: &LogEngine) -> Option<String> {
    let begin = log.epoch().first_index;
    if begin == 0 || log.bounds().0 > begin {
        return None;
    }
    let mut kept = adopt::former_logs(log.dir().parent()?);
    let newest = kept.pop()?;
    let has = |(first, _): &(u64, PathBuf)| requested.is_none_or(|requested| *first <= requested);
    let found = match has(&newest) {
        true => newest,
        false => kept.into_iter().rev().find(has).unwrap_or(newest),
    };
    Some(found.1.display().to_string())
}

fn unread(error: LogError, log: &LogEngine) -> Refusal {
    if let LogError::Purged { index, .. } = error {
        return gone(&format!("the event {index} is not kept"), Some(index), log);
    }
    tracing::error!(%error, "the log cannot be read");
    Refusal::internal(format!("log error: {error}"))
}

/// The last index at or before a time, `newest` at most; none if all are later.
///
/// # Errors
/// 410 if the log loses its beginning meanwhile, or when it cannot be read.
pub(super) fn before(log: &LogEngine, time: i64, newest: u64) -> Result<Option<u64>, Refusal> {
    last_index_at_or_before(log, time, newest).map_err(|error| unread(error, log))
}

/// The time of an entry; Raft's own have that of the event before them, or 0.
///
/// # Errors
/// As [`before`].
pub(super) fn time_at(log: &LogEngine, index: u64) -> Result<i64, Refusal> {
    let time = time_of(log, index).map_err(|error| unread(error, log))?;
    Ok(time.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::harness::Harness;
    use super::*;
    use crate::log::{Entry, LogOptions};

    #[test]
    fn a_stretch_does_not_begin_before_the_first_event_that_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let opened = LogEngine::open(dir.path(), LogOptions::default());
        let (log, _) = opened.expect("a log");
        // One each second, the first of them in the tenth.
        let entries = (0..10_u8).map(|number| Entry {
            index: u64::from(number),
            kind: 1,
            time: (10 + i64::from(number)) * 1_000_000_000,
            body: Bytes::from_static(b"something"),
        });
        let written = log.append(
            entries.collect(),
            Box::new(|done| done.expect("it is written")),
        );
        written.expect("it is taken");
        log.commit(9, Bytes::new());
        log.sync().expect("it is durable");
        let begins = |text: &str| {
            let query = Query::parse(Some(&format!("since={text}"))).expect("a query");
            since(&log, &query, "since", 9).map_err(|error| error.code)
        };
        let [before, among, later] =
            [5, 12, 16].map(|second: u8| format!("1970-01-01T00:00:{second:02}Z"));
        for (since, index) in [
            ("", None),
            (&*before, Some(0)),
            (&among, Some(2)),
            (&later, Some(6)),
            ("3", Some(3)),
        ] {
            assert_eq!(begins(since), Ok(index), "{since:?}");
        }
        let dropped = log.purge(
            4,
            Bytes::new(),
            Box::new(|done| done.expect("they are dropped")),
        );
        dropped.expect("it is taken");
        log.sync().expect("it is durable");
        for (since, begin) in [
            ("", Ok(None)),
            (&*before, Err(Code::Gone)),
            (&among, Err(Code::Gone)),
            (&later, Ok(Some(6))),
            ("3", Err(Code::Gone)),
            ("5", Ok(Some(5))),
        ] {
            assert_eq!(begins(since), begin, "{since:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_read_shows_the_past_and_names_its_index() {
        let server = Harness::start().await;
        let before = server.register("first").await.index();
        let after = server.register("second").await.index();
        assert_eq!(
            server
                .ask("DELETE", "/v1/job/first?purge=true", "")
                .await
                .status,
            200
        );

        let now = server.get("/v1/jobs").await;
        assert_eq!(ids(&now.json()), ["second"]);
        let then = server.get(&format!("/v1/jobs?as_of={before}")).await;
        assert_eq!(
            (then.status, ids(&then.json())),
            (200, vec!["first".to_owned()])
        );
        assert_eq!(then.header(HEADER), before.to_string());
        let time: i64 = then.header(TIME_HEADER).parse().expect("a time");
        assert!(time > 0 && time <= crate::base::clock::unix_nanos());
        assert!(then.index() <= before);
        let both = server
            .get(&format!("/v1/jobs?as_of={after}&reverse=true&per_page=1"))
            .await;
        assert_eq!(ids(&both.json()), ["second"]);
        let job = server.get(&format!("/v1/job/first?as_of={after}")).await;
        assert_eq!(job.json()["ID"], "first");
        let summary = server
            .get(&format!("/v1/job/first/summary?as_of={after}"))
            .await;
        assert_eq!(summary.json()["JobID"], "first");
        assert_eq!(server.get("/v1/job/first").await.status, 404);
        let evals = server
            .get(&format!("/v1/job/first/evaluations?as_of={before}"))
            .await;
        assert!(!evals.json().as_array().unwrap().is_empty());
        assert_eq!(
            server.get("/v1/jobs?as_of=0").await.json(),
            serde_json::json!([])
        );
        server.stop().await;
    }

    fn ids(list: &serde_json::Value) -> Vec<String> {
        let stubs = list.as_array().unwrap().iter();
        stubs
            .map(|stub| stub["ID"].as_str().unwrap().to_owned())
            .collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_cannot_be_answered_is_said() {
        let server = Harness::start().await;
        let index = server.register("one").await.index();
        for (target, status, text) in [
            ("/v1/jobs?as_of=soon".to_owned(), 400, "neither an index"),
            (
                "/v1/jobs?as_of=1000000".to_owned(),
                400,
                "has not happened yet",
            ),
            (
                format!("/v1/jobs?as_of={index}&index=3"),
                400,
                "exclude one another",
            ),
            (
                "/v1/jobs?as_of=1999-01-01T00:00:00Z".to_owned(),
                410,
                "the log begins at",
            ),
            (
                "/v1/jobs?as_of=1600-01-01T00:00:00Z".to_owned(),
                410,
                "nothing had happened yet",
            ),
            (
                "/v1/jobs?as_of=2500-01-01T00:00:00Z".to_owned(),
                400,
                "has not happened yet",
            ),
        ] {
            let reply = server.get(&target).await;
            assert_eq!(reply.status, status, "{target}: {}", reply.text());
            assert!(reply.text().contains(text), "{target}: {}", reply.text());
        }
        for (path, instead) in [
            ("/v1/agent/self", "no past"),
            ("/v1/metrics", "no past"),
            ("/v1/status/leader", "/v1/audit?kind=LeaderElected"),
            ("/v1/event/stream", "index=N or since=-5m"),
            ("/v1/log/checkpoint", "/v1/log/proof/consistency"),
            ("/v1/operator/projections/rebuild", "no past"),
        ] {
            let answer = server.get(&format!("{path}?as_of=2")).await;
            let text = answer.text();
            assert_eq!(answer.status, 400, "{path}: {text}");
            assert!(
                text.contains("as_of: ") && text.contains(instead),
                "{path}: {text}"
            );
            assert!(text.contains(path), "{path}: {text}");
        }
        assert_eq!(server.get("/v1/agent/self?as_of=").await.status, 200);
        let write = server.ask("DELETE", "/v1/job/one?as_of=2", "").await;
        assert_eq!(
            (write.status, write.text().contains("cannot be changed")),
            (400, true)
        );
        assert_eq!(server.get("/v1/jobs?as_of=-0s").await.status, 200);
        server.stop().await;
    }
}
