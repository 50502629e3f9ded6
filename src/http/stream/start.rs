//! Where a subscriber begins.

use std::time::Duration;

use super::walk::{horizon, require_horizon};
use crate::base::clock::Moment;
use crate::error::{Code, Refusal};
use crate::http::past;
use crate::http::request::Request;
use crate::http::state::Api;
use crate::table_reads::offload;

/// Batches that a subscriber without a position is given.
const HEAD: usize = 100;
/// How long a position that is not reached here yet is waited for: another server may know it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The header with the epoch that positions belong to, in answers and in requests.
pub(super) const EPOCH: &str = "x-drover-epoch";
/// The header with which a reader of server-sent events comes back.
const LAST: &str = "last-event-id";

/// Where a subscriber wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamStart {
    /// With the newest batches, as Nomad does.
    Head,
    /// With whatever comes next.
    Latest,
    /// With exactly this index.
    At(u64),
    /// With the first event at this time or later, Unix nanoseconds.
    Since(i64),
}

/// The first index for a request.
///
/// # Errors
/// 400 that names the parameter; 410 below the horizon or in another epoch.
pub(super) async fn position(api: &Api, request: &Request) -> Result<u64, Refusal> {
    let (start, epoch) = read(request, crate::base::clock::unix_nanos())?;
    if let StreamStart::At(index) = start {
        let before = api.projections.watch().reached(index.saturating_sub(1));
        if tokio::time::timeout(PATIENCE, before).await.is_err() {
            let newest = api.projections.watch().applied();
            let text = format!("index {index} has not happened yet: the last event is {newest}");
            return Err(Refusal::bad_request(text));
        }
    }
    offload(|| find(api, start, epoch))
}

fn find(api: &Api, start: StreamStart, epoch: Option<String>) -> Result<u64, Refusal> {
    let view = api.projections.view();
    let horizon = horizon(&view, &api.log);
    let ours = hex::encode(api.log.epoch().id);
    if let Some(epoch) = epoch.filter(|epoch| *epoch != ours) {
        let text = format!(
            "positions of epoch {epoch} are gone: this log is {ours}, its horizon is {horizon}"
        );
        return Err(Refusal::new(Code::Gone, text));
    }
    let newest = view.index();
    let position = match start {
        StreamStart::Head => {
            let newest_ones = view.newest_published(HEAD);
            let first = newest_ones.map_err(crate::http::list::storage)?;
            first
                .first()
                .map_or(newest + 1, |first| (*first).max(horizon))
        }
        StreamStart::Latest => newest + 1,
        StreamStart::At(index) => index,
        StreamStart::Since(time) => {
            let before = past::before(&api.log, time.saturating_sub(1), newest)?;
            before.map_or(api.log.epoch().first_index.max(1), |index| index + 1)
        }
    };
    require_horizon(position, horizon)?;
    Ok(position)
}

/// What a request says of it, and the epoch it means.
fn read(request: &Request, now: i64) -> Result<(StreamStart, Option<String>), Refusal> {
    let query = &request.query;
    let header = request.header(EPOCH).or(query.get("epoch"));
    let mut epoch = header.filter(|epoch| !epoch.is_empty()).map(str::to_owned);
    let (index, since) = (query.text("index"), query.text("since"));
    if let Some(last) = request.header(LAST).filter(|last| !last.is_empty()) {
        let (last, of) = last
            .split_once('@')
            .map_or((last, None), |(l, e)| (l, Some(e)));
        let last: u64 = last.parse().map_err(|_| {
            Refusal::bad_request(format!("Last-Event-ID: {last:?} is not the id of an event"))
        })?;
        epoch = of.map(str::to_owned).or(epoch);
        return Ok((StreamStart::At(last.saturating_add(1)), epoch));
    }
    let start = match (index, since) {
        ("" | "0", "") => StreamStart::Head,
        ("", since) => match past::parse("since", since, now)? {
            // What the command line and the audit take it for too.
            Moment::Index(0) => StreamStart::Head,
            Moment::Index(index) => StreamStart::At(index),
            Moment::Time(time) if time > now => {
                return Err(Refusal::bad_request(format!(
                    "since {since} has not come yet"
                )));
            }
            Moment::Time(time) => StreamStart::Since(time),
        },
        ("latest", "") => StreamStart::Latest,
        (index, "") => StreamStart::At(index.parse().map_err(|_| {
            Refusal::bad_request(format!(
                "Unable to parse index: strconv.Atoi: parsing \"{index}\": invalid syntax"
            ))
        })?),
        _ => {
            let text = "index and since exclude one another: give the position or the time";
            return Err(Refusal::bad_request(text));
        }
    };
    Ok((start, epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(
        query: &str,
        headers: &[(&str, &str)],
    ) -> Result<(StreamStart, Option<String>), Refusal> {
        let mut request = hyper::Request::builder().uri(format!("/v1/event/stream?{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        read(&Request::head(parts).unwrap(), 600_000_000_000)
    }

    #[test]
    fn a_start_is_an_index_a_time_the_head_or_the_end() {
        for (query, headers, wanted) in [
            ("", &[][..], StreamStart::Head),
            ("index=0", &[], StreamStart::Head),
            ("index=17", &[], StreamStart::At(17)),
            ("index=latest", &[], StreamStart::Latest),
            ("since=-5m", &[], StreamStart::Since(300_000_000_000)),
            ("since=170", &[], StreamStart::At(170)),
            ("since=0", &[], StreamStart::Head),
            (
                "since=1970-01-01T00:01:00Z",
                &[],
                StreamStart::Since(60_000_000_000),
            ),
            // Now.
            (
                "since=1970-01-01T00:10:00Z",
                &[],
                StreamStart::Since(600_000_000_000),
            ),
            ("index=3", &[("Last-Event-ID", "17")], StreamStart::At(18)),
            ("", &[("Last-Event-ID", "17@ab")], StreamStart::At(18)),
        ] {
            assert_eq!(read_of(query, headers).unwrap().0, wanted, "{query}");
        }
        let epoch = |query: &str, headers: &[(&str, &str)]| read_of(query, headers).unwrap().1;
        assert_eq!(epoch("epoch=cd", &[]).as_deref(), Some("cd"));
        assert_eq!(
            epoch("", &[("X-Drover-Epoch", "ef")]).as_deref(),
            Some("ef")
        );
        assert_eq!(
            epoch("", &[("Last-Event-ID", "17@ab")]).as_deref(),
            Some("ab")
        );
    }

    #[test]
    fn a_start_that_is_none_is_refused_by_name() {
        for (query, headers, text) in [
            ("index=x", &[][..], "Unable to parse index"),
            ("index=-1", &[], "Unable to parse index"),
            ("index=1&since=-5m", &[], "exclude one another"),
            ("since=-1", &[], "since \"-1\""),
            ("index=1&since=5", &[], "exclude one another"),
            ("since=soon", &[], "since \"soon\""),
            ("since=2170-01-01T00:01:00Z", &[], "since 2170"),
            ("", &[("Last-Event-ID", "x")], "Last-Event-ID"),
        ] {
            let error = read_of(query, headers).unwrap_err();
            assert_eq!(error.code, Code::BadRequest, "{query}");
            assert!(error.message.contains(text), "{query}: {error}");
        }
    }
}
