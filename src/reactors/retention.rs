//! Retention: how much of the log is kept, by bytes, by age, by number of events.
//!
//! Bases are made as the log grows. When a policy says that what lies below a base may go, in this
//! order: the base is read back, every digest computed again, and signed; what lies below is
//! copied to the archive, where one is named, and read back there; what later proofs need is kept;
//! the past that questions reach is cut off; segments go, then history, changes and postings. A
//! kill between any two steps leaves what the next look continues with. Without a policy nothing is
//! ever dropped. Each server does it for its own files. The request log, which nothing is built
//! from, loses its oldest segments by a policy of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_projections::{Interest, Pruned};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::each::Each;
use super::kafka::{Hold, PublisherPosition};
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::history::backup::base;
use crate::history::proof::Ledger;
use crate::history::store::archiver::{self, Archived};
use crate::history::store::{ArchiveLocation, Store};
use crate::keyring::Keyring;
use crate::log::{RetentionPolicy, SegmentInfo};
use crate::raft::RaftNode;
use crate::raft::snapshot::SnapshotDir;
use crate::requests::RequestLog;

/// Bases are made when this part of what is kept has come since the last.
const PARTS: u32 = 4;
/// How long it sleeps where nothing is ever dropped.
const OFF: Duration = Duration::from_secs(24 * 3600);
/// Where a base is read back, among the snapshots: it is gone after a kill.
const CHECK: &str = "check.tmp";

/// What retention works on.
#[derive(Clone)]
pub struct Keeping {
    /// What is kept of the log.
    pub keep: RetentionPolicy,
    /// The request log, and what is kept of it.
    pub requests: (Arc<RequestLog>, RetentionPolicy),
    /// How often it is looked at.
    pub interval: Duration,
    /// Where what is dropped is copied to before.
    pub archive: Option<ArchiveLocation>,
    /// The server's directory.
    pub server: PathBuf,
    /// The server's id, under which its copies lie in the archive.
    pub id: String,
    /// The way to the log.
    pub raft: Arc<RaftNode>,
    /// What a publisher of events has not published yet, where there is one.
    pub held: Option<Arc<PublisherPosition>>,
}

pub struct Retention {
    keeping: Keeping,
    ledger: Arc<Ledger>,
    keyring: Arc<Keyring>,
}

/// How far the horizon came.
#[derive(Default)]
struct Moved {
    archived: Option<Archived>,
    /// Why it did not move, where it is only too early.
    waits: Option<String>,
}

impl Retention {
    /// Retention of a server's log.
    pub fn new(keeping: Keeping, ledger: Arc<Ledger>, keyring: Arc<Keyring>) -> Self {
        Self {
            keeping,
            ledger,
            keyring,
        }
    }

    fn first(&self) -> u64 {
        self.keeping.raft.log().bounds().0
    }

    /// A failure is noted, and does not hold up the rest: a base that cannot be used gives way to
    /// the one before it.
    async fn look(&self, context: &Context, each: &mut Each) -> Result<Value, Failure> {
        // What a kill left of the last time.
        let pruned = prune(context).await;
        let mut pruned = each.take("what lies below", pruned).unwrap_or_default();
        let hold = self.hold(context)?;
        let bases = self.bases(context, hold).await?;
        let wanted = self.droppable(context, &self.keeping.keep)?;
        let (limit, held) = held_back(wanted, hold);
        let fits = |(index, _): &&(u64, SnapshotDir)| {
            *index >= self.first() && limit.is_some_and(|limit| *index <= limit)
        };
        let mut moved = Moved::default();
        for (index, base) in bases.iter().rev().filter(fits) {
            self.report_unpublished(context, *index)?;
            let what = format!("the base at {index}");
            let Some(went) = each.attend(&what, self.move_to(*index, base)).await else {
                continue;
            };
            moved = went;
            let again = prune(context).await;
            pruned = each.take("what lies below", again).unwrap_or(pruned);
            break;
        }
        moved.waits = moved.waits.or(held);
        // What the log says in memory its files may not say yet, and those count after a kill.
        let (first, log) = (self.first(), Arc::clone(self.keeping.raft.log()));
        tokio::task::spawn_blocking(move || log.sync()).await??;
        forget_bases(&bases, first, each);
        Ok(json!({
            "First": self.first(),
            "Horizon": context.projections.view().position().floor,
            "Bases": bases.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
            "Archived": moved.archived.map(|archived| archived.next),
            "Waits": moved.waits,
            "Versions": pruned.versions,
            "Postings": pruned.postings,
        }))
    }

    /// Drops what need not be kept of the request log; answers its first record.
    async fn forget_requests(&self, context: &Context) -> Result<u64, Failure> {
        let (requests, keep) = &self.keeping.requests;
        let (requests, keep, now) = (Arc::clone(requests), *keep, context.clock.now());
        Ok(tokio::task::spawn_blocking(move || requests.forget(&keep, now)).await??)
    }

    fn droppable(&self, context: &Context, keep: &RetentionPolicy) -> Result<Option<u64>, Failure> {
        let (log, now) = (self.keeping.raft.log(), context.clock.now());
        Ok(keep.droppable(log, context.projections.applied_index(), now)?)
    }

    /// What a publisher of events has not published yet.
    fn unpublished(&self, context: &Context) -> Result<Option<Hold>, Failure> {
        let Some(held) = &self.keeping.held else {
            return Ok(None);
        };
        let view = context.projections.view();
        held.hold(&view, self.keeping.raft.log())
    }

    /// What is held back of that, while it is waited for.
    fn hold(&self, context: &Context) -> Result<Option<Hold>, Failure> {
        let (hold, now) = (self.unpublished(context)?, context.clock.now());
        Ok(hold.filter(|hold| hold.until.is_none_or(|until| now < until)))
    }

    /// Says that what is dropped now never came to Kafka, where that is so.
    fn report_unpublished(&self, context: &Context, index: u64) -> Result<(), Failure> {
        let hold = self.unpublished(context)?;
        if let Some(hold) = hold.filter(|hold| hold.published < index) {
            tracing::warn!(
                from = hold.published + 1,
                to = index,
                "events are dropped that Kafka has not received: it was waited for as long as \
                 server.retention.publisher_wait says"
            );
        }
        Ok(())
    }

    /// The bases there are, with a new one if it is time for it. No base is made while the last one
    /// could not be used.
    async fn bases(
        &self,
        context: &Context,
        hold: Option<Hold>,
    ) -> Result<Vec<(u64, SnapshotDir)>, Failure> {
        let bases = base::all(&self.keeping.server)?;
        let newest = bases
            .last()
            .map_or(self.first().saturating_sub(1), |(index, _)| *index);
        let due = self.droppable(context, &self.keeping.keep.part(PARTS))?;
        let of_no_use = hold.is_some_and(|hold| hold.published < newest && !bases.is_empty());
        if due.is_none_or(|due| due <= newest) || of_no_use {
            return Ok(bases);
        }
        self.keeping.raft.make_snapshot().await?;
        Ok(base::all(&self.keeping.server)?)
    }

    /// Moves the horizon to a base.
    async fn move_to(&self, index: u64, base: &SnapshotDir) -> Result<Moved, Failure> {
        let moved = self.secure(index, base).await?;
        if moved.waits.is_none() {
            self.drop_below(index).await?;
            tracing::info!(index, "the horizon of the log has moved");
        }
        Ok(moved)
    }

    /// Makes sure that what lies below a base may be dropped, whatever is written, ended and sealed
    /// before it is; says what it waits for otherwise.
    async fn secure(&self, index: u64, base: &SnapshotDir) -> Result<Moved, Failure> {
        if let Some(waits) = self.sign(index, base).await? {
            return Ok(Moved {
                waits: Some(waits.to_owned()),
                ..Moved::default()
            });
        }
        match &self.keeping.archive {
            Some(place) => self.archive(index, base, &Store::open(place)?).await,
            None => Ok(Moved::default()),
        }
    }

    /// Reads a base back and signs it; says what that waits for otherwise.
    async fn sign(&self, index: u64, base: &SnapshotDir) -> Result<Option<&'static str>, Failure> {
        if self.ledger.status().index < index {
            return Ok(Some("for a checkpoint at the base or above"));
        }
        let Ok(key) = self.keyring.active().map(|key| key.checkpoint_key()) else {
            return Ok(Some("for a key to sign with"));
        };
        let (ours, check) = (base.clone(), self.keeping.server.join("snapshots"));
        let signed = tokio::task::spawn_blocking(move || {
            base::read_back(&ours, &check.join(CHECK))?;
            base::sign(&ours, &key)
        });
        signed.await??;
        Ok(None)
    }

    /// Copies what lies below a base to the archive.
    async fn archive(
        &self,
        index: u64,
        base: &SnapshotDir,
        store: &Store,
    ) -> Result<Moved, Failure> {
        let whose = (self.keeping.server.as_path(), self.keeping.id.as_str());
        let done = archiver::archive(whose, base, index + 1, store).await?;
        let log = Arc::clone(self.keeping.raft.log());
        let segments = log.segments();
        let mut waits = None;
        if !covers(&segments, done, index) {
            // The one that is written ends with the base: without events it would end, and be
            // sealed, never.
            let before = segments.split_last().map_or(&[][..], |(_, before)| before);
            if covers(before, done, index) {
                tokio::task::spawn_blocking(move || log.roll()).await??;
            }
            waits = Some("for segments below the base to be sealed".to_owned());
        }
        let archived = Some(done);
        Ok(Moved { archived, waits })
    }

    /// Drops what lies below a base, for good.
    async fn drop_below(&self, index: u64) -> Result<(), Failure> {
        let ledger = Arc::clone(&self.ledger);
        tokio::task::spawn_blocking(move || ledger.keep_below(index)).await??;
        Ok(self.keeping.raft.forget_below(index).await?)
    }
}

/// Whether the archive holds every segment that a purge of `index` may drop. The last one too: by
/// the time of the purge it may have been ended, and is then dropped like the others.
fn covers(segments: &[SegmentInfo], archived: Archived, index: u64) -> bool {
    let mut ends = segments
        .iter()
        .map(|segment| segment.first + segment.entries);
    ends.all(|end| end > index + 1 || end <= archived.next)
}

/// How far the horizon may go, and what it waits for if that is not as far as it should.
fn held_back(wanted: Option<u64>, hold: Option<Hold>) -> (Option<u64>, Option<String>) {
    let (Some(limit), Some(hold)) = (wanted, hold) else {
        return (wanted, None);
    };
    if hold.published >= limit {
        return (wanted, None);
    }
    let next = hold.published + 1;
    let until = hold
        .until
        .and_then(|until| jiff::Timestamp::from_nanosecond(until.into()).ok())
        .map_or_else(String::new, |until| {
            format!(", until {until:.0} at most (server.retention.publisher_wait)")
        });
    let text = format!("for Kafka, which has not received the events from {next} on{until}");
    (Some(hold.published), Some(text))
}

/// Removes the bases below the one at which the log begins in its files, but for the last: a reader
/// may still use it.
fn forget_bases(bases: &[(u64, SnapshotDir)], first: u64, each: &mut Each) {
    if !bases.iter().any(|(index, _)| index + 1 == first) {
        return;
    }
    let below = bases.iter().filter(|(index, _)| index + 1 < first);
    for (index, dir) in below.rev().skip(1) {
        each.look(&format!("the base at {index}"), || dir.remove());
    }
}

async fn prune(context: &Context) -> Result<Pruned, Failure> {
    let projections = Arc::clone(&context.projections);
    Ok(tokio::task::spawn_blocking(move || projections.prune()).await??)
}

impl Reactor for Retention {
    fn name(&self) -> &'static str {
        "retention"
    }

    fn scope(&self) -> Scope {
        Scope::EveryServer
    }

    fn interests(&self) -> &'static [Interest] {
        &[]
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            let mut each = Each::default();
            let requests = self.forget_requests(context).await;
            let requests = each.take("the request log", requests);
            let mut status = match self.keeping.keep.is_on() {
                true => self.look(context, &mut each).await?,
                false => json!({"First": self.first()}),
            };
            let on = self.keeping.keep.is_on() || self.keeping.requests.1.is_on();
            let sleep = if on { self.keeping.interval } else { OFF };
            status["FirstRequest"] = requests.into();
            each.report(&mut status);
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "retention_test.rs"]
pub(super) mod tests;
