//! One read: waiting for a change, reading off the threads that serve, and going on with a list
//! that is too long for one answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use drover_projections::view::View;
use drover_projections::watch::Interest;
use smallvec::SmallVec;
use tokio::sync::{Semaphore, mpsc};

use super::answer::Answer;
use super::body::Body;
use super::front::{self, Near, Read, Reader, Watched, table_index};
use super::gate::Access;
use super::past;
use super::query::ReadOptions;
use super::request::Request;
use super::sight::Sight;
use super::state::Api;
use crate::error::{Code, Refusal};
use crate::identity::Identity;
use crate::table_reads::{glancing, in_turn, reading};

const WAIT_DEFAULT: Duration = Duration::from_secs(300);
const WAIT_MOST: Duration = Duration::from_secs(300);
/// The part of a wait that is added at random at most, so that waiters spread.
const JITTER_PART: u32 = 16;

/// How long a list that is sent keeps its view; a slower reader goes on from history.
const VIEW_LIFE: Duration = match cfg!(test) {
    true => Duration::from_millis(50),
    false => Duration::from_secs(2),
};
/// Pieces that wait to be sent.
const AHEAD: usize = 2;

/// Reads of what happened ([`Watched::History`]) at a time: a caller of many holds up callers of
/// some, but no list and no caller whose rights have to be looked up.
static HISTORY_READS: Semaphore = Semaphore::const_new(4);

/// A read that is to be answered: its request, and how it is read.
pub(super) struct PendingRead {
    /// The server.
    pub(super) api: Arc<Api>,
    pub(super) request: Arc<Request>,
    /// The parameters of every read.
    pub(super) options: ReadOptions,
    /// What the caller must be allowed.
    pub(super) access: Access,
    /// What a blocking read waits for.
    pub(super) watched: Watched,
    /// The read.
    pub(super) run: Reader,
}

impl PendingRead {
    fn read<'a>(&'a self, who: &Arc<Identity>, options: &'a ReadOptions, view: View) -> Read<'a> {
        Read {
            api: &self.api,
            request: &self.request,
            identity: Arc::clone(who),
            options,
            view: Sight::new(view, Arc::clone(who), self.access.is_whole(&self.request)),
        }
    }

    /// Reads what may be read.
    fn run(&self, read: &Read<'_>) -> Result<Answer, Refusal> {
        self.access.admit_object(read)?;
        (self.run)(read)
    }

    /// Answers it, once there is something to answer. `near` answers from what is in memory.
    ///
    /// # Errors
    /// Those of the read.
    pub(super) async fn answer(self: &Arc<Self>, near: Near) -> Result<Answer, Refusal> {
        let (api, request, options) = (&self.api, &self.request, &self.options);
        let who = &self.request.identity;
        self.access.admit(request, who)?;
        let of_past = past::is_requested(&request.query);
        if matches!(self.watched, Watched::NoPast) {
            past::refuse(request)?;
        }
        if !options.stale && (of_past || self.watched.blocks()) {
            api.proposer.lead().await?;
        }
        if of_past {
            return self.of_past().await;
        }
        if !self.watched.blocks() || options.index() == 0 {
            let view = api.projections.view();
            let begin = api.log.epoch().first_index;
            return match near(&self.read(who, options, view.clone())) {
                Some(answer) => Ok(answer.not_below(begin)),
                None => self.found(who, view).await,
            };
        }
        self.changed().await
    }

    async fn of_past(self: &Arc<Self>) -> Result<Answer, Refusal> {
        let pending = Arc::clone(self);
        let space = self.request.space_to_decode().await?;
        let (answer, view, time) = self
            .reading(move || {
                let _space = space;
                let (view, time) = past::view(&pending.api, &pending.request.query)?;
                let who = &pending.request.identity;
                let answer = pending.run(&pending.read(who, &pending.options, view.clone()))?;
                Ok::<_, Refusal>((answer, view, time))
            })
            .await??;
        let index = view.index();
        Ok(self
            .flowing(answer, view)
            .header(past::HEADER, index.to_string())
            .header(past::TIME_HEADER, time.to_string()))
    }

    /// Waits until what is read has changed since the index, or time is over.
    async fn changed(self: &Arc<Self>) -> Result<Answer, Refusal> {
        let (api, options) = (&self.api, &self.options);
        let deadline = tokio::time::Instant::now() + wait_time(options.wait());
        let interests: SmallVec<[Interest; 2]> = match self.watched {
            Watched::Tables(tables) => tables.iter().map(|t| Interest::Table(*t)).collect(),
            Watched::Rows(named) | Watched::Within(_, named) => named(&self.request)?,
            Watched::NeverBlocks | Watched::History | Watched::NoPast => SmallVec::new(),
        };
        let mut who = Arc::clone(&self.request.identity);
        // A caller that may not see it does not wait for it either.
        self.admitted(&who, api.projections.view()).await?;
        loop {
            // Registered before the read, so that no change falls between the two.
            let waiter = api.projections.watch().register(&interests);
            let view = api.projections.view();
            let changed = match self.watched {
                Watched::Tables(tables) | Watched::Within(tables, _) => {
                    table_index(&view, tables) > options.index()
                }
                _ => true,
            };
            if changed {
                let answer = self.found(&who, view).await?;
                if answer.index() > options.index() {
                    return Ok(answer);
                }
            }
            let woken = tokio::time::timeout_at(deadline, waiter).await.is_ok();
            // What the caller may do may be another thing by now.
            who = front::identity(api, &self.request).await?;
            self.access.admit(&self.request, &who)?;
            // A closed watch wakes every waiter: the state here is about to be another.
            if !woken || api.projections.watch().is_closed() {
                return self.found(&who, api.projections.view()).await;
            }
        }
    }

    /// Checks what must be checked in the view.
    async fn admitted(self: &Arc<Self>, who: &Arc<Identity>, view: View) -> Result<(), Refusal> {
        if !self.access.has_rule() || who.is_management() {
            return Ok(());
        }
        let (pending, who) = (Arc::clone(self), Arc::clone(who));
        let ask = move || {
            pending
                .access
                .admit_object(&pending.read(&who, &pending.options, view))
        };
        reading(ask).await?
    }

    /// Reads; what shows this agent itself is not in tables and is read at once.
    async fn found(self: &Arc<Self>, who: &Arc<Identity>, view: View) -> Result<Answer, Refusal> {
        if matches!(self.watched, Watched::NoPast) {
            return found(self, &self.read(who, &self.options, view));
        }
        loop {
            let (pending, caller, seen) = (Arc::clone(self), Arc::clone(who), view.clone());
            let space = self.request.space_to_decode().await?;
            let read = move || {
                let _space = &space;
                found(
                    &pending,
                    &pending.read(&caller, &pending.options, seen.clone()),
                )
            };
            let mut answer = match self.is_quick() {
                true => glancing(read).await??,
                false => self.reading(read).await??,
            };
            // Waited for without a turn of those that read, so that others can go on.
            match answer.again.take() {
                Some(made) => made.await,
                None => return Ok(self.flowing(answer, view)),
            }
        }
    }

    /// Works on a thread of its own, in turn.
    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        match self.watched {
            Watched::History => in_turn(&HISTORY_READS, work).await,
            _ => reading(work).await,
        }
    }

    /// Whether one thing is read, and nothing is worked out about it: a list that is kept ready was
    /// looked for before, and one that is not is made elsewhere.
    fn is_quick(&self) -> bool {
        let one = matches!(self.watched, Watched::Rows(_));
        one && self.request.body.is_empty() && self.options.is_plain()
    }

    /// An answer whose list is only begun goes on while it is sent.
    fn flowing(self: &Arc<Self>, mut answer: Answer, view: View) -> Answer {
        let Some(rest) = answer.rest.take() else {
            return answer;
        };
        let body = std::mem::replace(&mut answer.body, Body::empty());
        let begun = body.into_pieces().unwrap_or_default();
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::spawn(go_on(Arc::clone(self), view, begun, rest, sender));
        answer.body = Body::whole(receiver);
        answer.flows = true;
        answer
    }

    /// The part of the list that begins with a row.
    async fn part(
        self: &Arc<Self>,
        who: &Arc<Identity>,
        view: View,
        from: String,
    ) -> Result<Answer, Refusal> {
        let (pending, who) = (Arc::clone(self), Arc::clone(who));
        let space = self.request.space_to_decode().await?;
        reading(move || {
            let _space = space;
            let options = pending.options.going_on(from);
            pending.run(&pending.read(&who, &options, view))
        })
        .await?
    }
}

/// Sends a list part by part. It is rendered as it is taken: a caller that reads slowly holds a
/// part of it and, after a while, no view. If it cannot be read to its end, the transfer is cut.
async fn go_on(
    pending: Arc<PendingRead>,
    view: View,
    mut pieces: Vec<Bytes>,
    mut from: String,
    to: mpsc::Sender<Option<Bytes>>,
) {
    let (index, time) = (view.index(), view.time());
    let mut held = Some((view, Instant::now()));
    let mut last = false;
    loop {
        for piece in pieces.drain(..) {
            let left = held
                .as_ref()
                .map_or(VIEW_LIFE, |(_, at)| VIEW_LIFE.saturating_sub(at.elapsed()));
            let space = match tokio::time::timeout(left, to.reserve()).await {
                Ok(space) => space,
                Err(_) => {
                    held = None;
                    #[cfg(test)]
                    tests::GIVEN_BACK.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    to.reserve().await
                }
            };
            match space {
                Ok(space) => space.send(Some(piece)),
                Err(_) => return,
            }
        }
        if last {
            // A caller that is gone does not need to know that this was all.
            let _ = to.send(None).await;
            return;
        }
        let view = match &held {
            Some((view, at)) if at.elapsed() < VIEW_LIFE => view.clone(),
            _ => match pending.api.projections.view().as_of(index, time) {
                Some(view) => {
                    held = Some((view.clone(), Instant::now()));
                    view
                }
                None => return tracing::info!(index, "a slow list is no longer kept: it is cut"),
            },
        };
        // What the caller may do may be another thing by now.
        let now = front::identity(&pending.api, &pending.request).await;
        let now = now.and_then(|now| pending.access.admit(&pending.request, &now).map(|()| now));
        let who = match now {
            Ok(now) => now,
            Err(error) => return tracing::info!(%error, "a list is cut with the right to it"),
        };
        match pending.part(&who, view, std::mem::take(&mut from)).await {
            Ok(mut part) => {
                match part.rest.take() {
                    Some(rest) => from = rest,
                    None => last = true,
                }
                pieces = part.body.into_pieces().unwrap_or_default();
            }
            Err(error) => return tracing::warn!(%error, "a list broke off"),
        }
    }
}

/// Runs a read. What is missing has an index too, that of the tables it would be in, so that
/// clients can wait for it to appear.
///
/// No index runs backwards: after a restore a row may have an older one than it had, and the
/// answer's is that of the epoch's first event then.
fn found(pending: &PendingRead, read: &Read<'_>) -> Result<Answer, Refusal> {
    let begin = read.api.log.epoch().first_index;
    let error = match pending.run(read) {
        Err(error) if error.code == Code::NotFound => error,
        other => return other.map(|answer| answer.not_below(begin)),
    };
    let tables: SmallVec<[u16; 2]> = match pending.watched {
        Watched::NeverBlocks | Watched::History | Watched::NoPast => return Err(error),
        Watched::Tables(tables) | Watched::Within(tables, _) => tables.into(),
        Watched::Rows(named) => {
            let named = named(read.request)?;
            named.iter().filter_map(|row| row.of_table()).collect()
        }
    };
    Ok(Answer::from(error).at(table_index(read.view.unfiltered(), &tables)))
}

fn wait_time(nanos: i64) -> Duration {
    let requested = match u64::try_from(nanos) {
        Ok(0) | Err(_) => WAIT_DEFAULT,
        Ok(nanos) => Duration::from_nanos(nanos).min(WAIT_MOST),
    };
    requested + (requested / JITTER_PART).mul_f64(rand::random::<f64>())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use drover_projections::watch::Watch;
    use drover_testkit::{LONG, eventually, so};
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;
    use crate::http::Settings;
    use crate::http::front;
    use crate::http::gzip::Gzip;
    use crate::http::harness::Harness;

    /// How often a view was given back because the caller did not read on.
    pub(super) static GIVEN_BACK: AtomicUsize = AtomicUsize::new(0);

    async fn small_parts() -> Harness {
        let settings = Settings {
            gzip: Gzip::Always,
            list_part: Some(2_000),
            ..Settings::default()
        };
        let h = Harness::with(settings, None).await;
        for number in 0..40 {
            h.register(&format!("job-{number:02}")).await;
        }
        h
    }

    const TARGET: &str = "/v1/jobs?filter=Type==service";

    fn ids(list: &Value) -> Vec<String> {
        let rows = list.as_array().expect("a list").iter();
        rows.map(|job| job["ID"].as_str().expect("an id").to_owned())
            .collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_list_comes_in_parts_in_every_form() {
        let h = small_parts().await;
        let all: Vec<String> = (0..40).map(|n| format!("job-{n:02}")).collect();
        let plain = h.get(TARGET).await;
        assert_eq!(ids(&plain.json()), all);
        assert_eq!(
            plain.header("content-length"),
            "",
            "its length is not known"
        );
        let back = h.get(&format!("{TARGET}&reverse=true")).await.json();
        assert_eq!(ids(&back).into_iter().rev().collect::<Vec<_>>(), all);
        let pretty = h.get(&format!("{TARGET}&pretty")).await;
        assert_eq!(ids(&pretty.json()), all);
        assert!(pretty.text().starts_with("[\n    {\n        \""));
        assert_eq!(pretty.header("content-length"), "", "indented as it flows");
        let request = hyper::Request::get(TARGET).header("accept-encoding", "gzip");
        let packed = h.send(request.body(Default::default()).unwrap()).await;
        assert_eq!(packed.header("content-encoding"), "gzip");
        assert_eq!(
            packed.header("content-length"),
            "",
            "compressed as it flows"
        );
        let unpacked = flate2::read::GzDecoder::new(&packed.body[..]);
        assert_eq!(ids(&serde_json::from_reader(unpacked).unwrap()), all);
        let page = h.get(&format!("{TARGET}&per_page=39")).await;
        assert_eq!(ids(&page.json()), all[..39]);
        assert_eq!(page.header("x-nomad-nexttoken"), "default.job-39");
        let past = format!("{TARGET}&as_of={}", plain.index());
        assert_eq!(ids(&h.get(&past).await.json()), all);
        h.stop().await;
    }

    /// Fired when what the read below is made of is there.
    static MADE: LazyLock<Watch> = LazyLock::new(Watch::default);

    fn read_once_made(_: &Read<'_>) -> Result<Answer, Refusal> {
        match MADE.is_closed() {
            true => Answer::json(&true),
            false => Ok(Answer::later(MADE.register(&[Interest::Progress]))),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_waits_for_what_is_being_made_holds_no_turn() {
        let h = Harness::start().await;
        let ask = || {
            let request = hyper::Request::get("/v1/jobs").body(Body::empty()).unwrap();
            front::read(
                Arc::clone(&h.api),
                request,
                Access::Anyone,
                Watched::NeverBlocks,
                read_once_made,
            )
        };
        // More than may read at a time.
        let waiting: Vec<_> = (0..80).map(|_| tokio::spawn(ask())).collect();
        let all = || so(MADE.waiting() == waiting.len());
        eventually("all to wait", LONG, all).await.unwrap();
        assert_eq!(h.get("/v1/job/none").await.status, 404, "others are served");
        MADE.close();
        for answered in waiting {
            assert_eq!(answered.await.unwrap().status(), 200);
        }
        h.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn questions_about_the_past_stand_in_no_line_with_lists() {
        let h = Harness::start().await;
        let taken = crate::table_reads::every_read().await;
        for target in [
            "/v1/audit",
            "/v1/audit/trace?id=1",
            "/v1/state/diff?from=0",
            "/v1/state/diff?from=0&as_of=2",
        ] {
            let answer = tokio::time::timeout(LONG, h.get(target)).await;
            let answer = answer.unwrap_or_else(|_| panic!("{target} waits for a list"));
            assert_ne!(answer.status, 503, "{}", answer.text());
        }
        drop(taken);
        h.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slow_reader_gets_the_list_as_it_was() {
        let h = small_parts().await;
        let before = h.get("/v1/jobs").await.json();
        let request = hyper::Request::get(TARGET).body(Body::empty()).unwrap();
        let response = h.router().oneshot(request).await.unwrap();
        let mut body = response.into_body();
        let views = GIVEN_BACK.load(Ordering::SeqCst);
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        h.register("job-99").await;
        h.ask("DELETE", "/v1/job/job-39?purge=true", "").await;
        // The reader is too slow for a view: what comes now comes from history.
        eventually("the view to be given back", LONG, || {
            match GIVEN_BACK.load(Ordering::SeqCst) > views {
                true => Ok(()),
                false => Err("it is held"),
            }
        })
        .await
        .unwrap();
        let rest = body.collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&[first, rest].concat()).unwrap();
        assert_eq!(ids(&list), ids(&before));
        h.stop().await;
    }
}
