//! From what happened to the bytes of one subscriber: out of the ring, or out of the past.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use super::form::{self, Form, IndexFrame};
use super::own;
use super::page::{self, Clouds, EventBatch, Needs};
use super::payload;
use super::selection::Selection;
use super::walk::{StreamWalk, WalkItem, WalkSource};
use crate::error::Refusal;
use crate::http::list::storage;
use crate::http::permit::Permit;

/// Bytes sent in one piece, roughly: what a slow reader costs is some of these.
pub(super) const PIECE: usize = 64 << 10;
/// The same for one that is far behind: threads change less often.
const LARGE: usize = 256 << 10;
/// Indexes looked at in one view at most.
const LOOK: usize = 1 << 14;
/// How far back it pays to look up where the wanted keys changed.
const FAR: u64 = 256;
/// Positions looked up at a time.
const POSITIONS: usize = 1 << 15;

/// What one subscriber wants, in which form, and what it may see of it.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) selection: Selection,
    pub(super) form: Form,
    pub(super) permit: Permit,
    pub(super) clouds: Clouds,
}

impl Subscription {
    /// What is needed of events to fulfil it.
    pub(super) fn needs(&self) -> Needs {
        let own = drover_events::Topic::ALL.iter().filter(|t| t.is_own());
        let own = own.fold(0, |all, topic| all | topic.bit());
        Needs {
            payloads: self.selection.asks_what() && !self.form.cloud,
            log: self.form.cloud || self.selection.asks_who() || self.selection.topics() & own != 0,
            cloud_events: self.form.cloud && self.permit.sees_all(),
            cloud_events_without_hashes: self.form.cloud && !self.permit.sees_all(),
            documents: self.selection.asks_what() && self.form.cloud,
        }
    }

    /// Whether lines can be passed on as they are.
    pub(super) fn takes_lines(&self) -> bool {
        !self.form.sse && !self.form.cloud && self.permit.sees_all() && self.selection.takes_all()
    }

    /// Writes what is wanted of a batch.
    ///
    /// # Errors
    /// When the filter cannot be decided within its limits.
    pub(super) fn report(&self, batch: &EventBatch, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let (selection, form) = (&self.selection, self.form);
        let Some(kind) = batch.kind else {
            page::damaged(batch.index, form, out);
            return Ok(());
        };
        if !selection.is_by(batch.actor.as_ref()) {
            return Ok(());
        }
        let mut frame = IndexFrame::default();
        for event in &batch.events {
            let headline = event.headline(kind);
            if !selection.takes(&headline) || !self.permit.sees(&headline) {
                continue;
            }
            if let Some(cloud) = batch.cloud(self.permit.sees_all())
                && form.cloud
            {
                // It holds the whole event: every object in it must be one that may be seen.
                let mut all = batch.events.iter();
                if !all.all(|event| self.permit.sees(&event.headline(kind))) {
                    return Ok(());
                }
                if !selection.passes_cloud(&cloud.text, cloud.document.as_ref())? {
                    return Ok(());
                }
                self.framed(batch.index, out, |out| {
                    out.extend_from_slice(&cloud.text);
                    Ok(())
                })?;
                return Ok(());
            }
            if let Some(payload) = &event.payload
                && !selection.passes(&**payload)?
            {
                continue;
            }
            frame.event(form, batch.index, out);
            out.extend_from_slice(&event.json);
        }
        frame.end(form, out);
        Ok(())
    }

    /// Writes one CloudEvent in its frame.
    fn framed(
        &self,
        index: u64,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if self.form.sse {
            form::line(out, format_args!("id: {index}\ndata: "));
        }
        write(out)?;
        out.extend_from_slice(if self.form.sse { b"\n\n" } else { b"\n" });
        Ok(())
    }
}

/// How far one subscriber is with what the ring has no longer.
#[derive(Debug, Default)]
pub(super) struct PastWalk {
    /// The index it is in the middle of, and how many of that one's changes it knows.
    within: Option<(u64, usize)>,
    frame: IndexFrame,
    /// Where its keys changed next, and up to where that is known.
    found: VecDeque<u64>,
    found_upto: u64,
    /// Indexes that filled a piece the last time, roughly; 0 where two were never sent at once.
    pub(super) width: u64,
}

/// The right to one thread that reads ahead: there are as many as the machine has processors beside
/// the one that sends.
struct Helper;

static HELPERS: AtomicUsize = AtomicUsize::new(0);
static MOST: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(0, |all| all.get() - 1));

impl Helper {
    fn take() -> Option<Self> {
        let free = |taken: usize| (taken < *MOST).then_some(taken + 1);
        HELPERS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, free)
            .ok()
            .map(|_| Self)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One report of the past.
struct PastReport<'a> {
    source: WalkSource<'a>,
    subscription: &'a Subscription,
    needs: Needs,
    past: &'a mut PastWalk,
    /// Bytes after which a piece ends.
    full: usize,
    out: &'a mut Vec<u8>,
}

impl PastWalk {
    /// The index it is in the middle of.
    pub(super) fn within(&self) -> Option<u64> {
        self.within.map(|(index, _)| index)
    }

    /// Writes what is wanted of the indexes `first..=last` until a piece is full; answers the next
    /// index to report.
    ///
    /// # Errors
    /// When what happened cannot be read.
    pub(super) fn report(
        &mut self,
        source: WalkSource<'_>,
        subscription: &Subscription,
        (first, last): (u64, u64),
        out: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        let last = last.min(source.view.index());
        let far = last.saturating_sub(first) >= FAR && self.within.is_none();
        match far && subscription.selection.keys().is_none() {
            true => self.report_two(source, subscription, (first, last), out),
            false => self.report_one(source, subscription, (first, last), PIECE, out),
        }
    }

    /// Writes two pieces that follow each other, the second by a thread of its own, where one is
    /// free. What was read too far is read again.
    fn report_two(
        &mut self,
        source: WalkSource<'_>,
        subscription: &Subscription,
        (first, last): (u64, u64),
        out: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        let Some(_thread) = Helper::take() else {
            return self.report_one(source, subscription, (first, last), LARGE, out);
        };
        let width = self.width.clamp(FAR / 4, (last - first) / 2);
        let (middle, end) = (first + width, first + 2 * width);
        let (mut behind, mut more) = (Self::default(), Vec::new());
        let (own, other) = std::thread::scope(|scope| {
            let (behind, more) = (&mut behind, &mut more);
            let read = || behind.report_one(source, subscription, (middle, end - 1), LARGE, more);
            let thread = std::thread::Builder::new().name("past".to_owned());
            let other = thread.spawn_scoped(scope, read);
            let own = self.report_one(source, subscription, (first, middle - 1), LARGE, out);
            (own, other.map(ScopedJoinHandle::join))
        });
        let own = own?;
        self.width = match own < middle {
            true => own - first,
            // As many as would have filled it.
            false => width * LARGE as u64 / (out.len() as u64 + 1),
        }
        .clamp(1, LOOK as u64);
        match other.map(|joined| joined.unwrap_or_else(|panic| resume_unwind(panic))) {
            Ok(Ok(next)) if own == middle && self.within.is_none() => {
                out.append(&mut more);
                (self.within, self.frame) = (behind.within, behind.frame);
                Ok(next)
            }
            // It is read again, and so is what is wrong with it, or there was no thread.
            _ => Ok(own),
        }
    }

    /// As [`PastWalk::report`], by this thread alone, in pieces of about `full` bytes.
    ///
    /// # Errors
    /// As it.
    pub(super) fn report_one(
        &mut self,
        source: WalkSource<'_>,
        subscription: &Subscription,
        (first, last): (u64, u64),
        full: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        let mut reporting = PastReport {
            source,
            subscription,
            needs: subscription.needs(),
            past: self,
            full,
            out,
        };
        if reporting.past.within.is_some() {
            return reporting.walk(first, first);
        }
        match subscription.selection.keys() {
            Some(keys) if last.saturating_sub(first) >= FAR => {
                reporting.sparse(&keys, (first, last))
            }
            _ => reporting.walk(first, last),
        }
    }
}

impl PastReport<'_> {
    /// Reports all indexes in order.
    fn walk(&mut self, first: u64, last: u64) -> Result<u64, Refusal> {
        if first > last {
            return Ok(first);
        }
        let mut walk = StreamWalk::new(self.source, (first, last), self.needs.log)?;
        let mut looked = 0;
        while let Some(item) = walk.next()? {
            if !self.index(&walk, &item)? {
                return Ok(item.index);
            }
            looked += 1;
            if self.out.len() >= self.full || looked >= LOOK {
                return Ok(item.index + 1);
            }
        }
        Ok(last + 1)
    }

    /// Reports those indexes only at which the wanted keys changed.
    fn sparse(
        &mut self,
        keys: &[(drover_events::Topic, &str, &str)],
        (first, last): (u64, u64),
    ) -> Result<u64, Refusal> {
        let view = self.source.view;
        self.past.found.retain(|index| *index >= first);
        if self.past.found.is_empty() && self.past.found_upto < first {
            let found = view.first_positions(keys, first, POSITIONS);
            let (found, upto) = found.map_err(storage)?;
            self.past.found = found.into_iter().collect();
            self.past.found_upto = upto;
        }
        while let Some(index) = self.past.found.front().copied().filter(|i| *i <= last) {
            let next = self.walk(index, index)?;
            if next == index {
                return Ok(index);
            }
            self.past.found.pop_front();
            if self.out.len() >= self.full {
                return Ok(index + 1);
            }
        }
        let upto = self.past.found_upto.min(last);
        Ok(match self.past.found.is_empty() {
            true => upto.max(first) + 1,
            false => last + 1,
        })
    }

    /// Reports one index; false where the piece is full and more of it is to come.
    fn index(&mut self, walk: &StreamWalk<'_>, item: &WalkItem) -> Result<bool, Refusal> {
        let selection = &self.subscription.selection;
        let Some(kind) = item.kind else {
            page::damaged(item.index, self.subscription.form, self.out);
            return Ok(true);
        };
        if !selection.may_take(kind, item.topics)
            || (item.is_own() && walk.was_refused(item)?)
            || (selection.asks_who() && !selection.is_by(item.actor()?.as_ref()))
        {
            return Ok(true);
        }
        if self.subscription.form.cloud {
            if self.any(walk, item)? {
                let mut cloud = Vec::new();
                let how = (
                    &self.subscription.clouds,
                    self.subscription.permit.sees_all(),
                );
                page::cloud(item, how, &mut cloud)?;
                if selection.passes_cloud(&cloud, None)? {
                    let write = |out: &mut Vec<u8>| {
                        out.extend_from_slice(&cloud);
                        Ok(())
                    };
                    self.subscription.framed(item.index, self.out, write)?;
                }
            }
            return Ok(true);
        }
        if item.is_own() {
            return self.own(item).map(|()| true);
        }
        self.changes(walk, item)
    }

    /// Whether any event of the index is wanted and all may be seen, before the document is looked
    /// at.
    fn any(&self, walk: &StreamWalk<'_>, item: &WalkItem) -> Result<bool, Refusal> {
        let Subscription {
            selection, permit, ..
        } = self.subscription;
        if item.is_own() {
            let Some((kind, topic, namespace, keys, _)) = own::of(item.recorded()?) else {
                return Ok(false);
            };
            let headline = super::selection::Headline {
                kind,
                topic,
                namespace: &namespace,
                keys: &keys,
            };
            return Ok(selection.takes(&headline) && permit.sees(&headline));
        }
        let mut wanted = false;
        for change in walk.changes(item)? {
            let Some((headline, _)) = page::headline(&change) else {
                continue;
            };
            // The document holds the whole event: every object in it must be one to be seen.
            if !permit.sees(&headline) {
                return Ok(false);
            }
            wanted |= selection.takes(&headline);
        }
        Ok(wanted)
    }

    fn own(&mut self, item: &WalkItem) -> Result<(), Refusal> {
        let Some((kind, topic, namespace, keys, payload)) = own::of(item.recorded()?) else {
            return Ok(());
        };
        let headline = super::selection::Headline {
            kind,
            topic,
            namespace: &namespace,
            keys: &keys,
        };
        let Subscription {
            selection,
            permit,
            form,
            ..
        } = self.subscription;
        if selection.takes(&headline) && permit.sees(&headline) && selection.passes(&payload)? {
            let mut frame = IndexFrame::default();
            frame.event(*form, item.index, self.out);
            form::event(self.out, (item.index, kind.name()), &headline, &payload)?;
            frame.end(*form, self.out);
        }
        Ok(())
    }

    fn changes(&mut self, walk: &StreamWalk<'_>, item: &WalkItem) -> Result<bool, Refusal> {
        let Subscription {
            selection,
            permit,
            form,
            ..
        } = self.subscription;
        // What it is in the middle of is this index: it goes on with no other.
        let known = self.past.within.take().map_or(0, |(_, known)| known);
        let changes = walk.changes(item)?;
        for (seq, change) in changes.iter().enumerate().skip(known) {
            if self.out.len() >= self.full {
                self.past.within = Some((item.index, seq));
                return Ok(false);
            }
            let Some((headline, event_type)) = page::headline(change) else {
                continue;
            };
            if !selection.takes(&headline) || !permit.sees(&headline) {
                continue;
            }
            let payload = match payload::payload(self.source.view, change).transpose() {
                None => continue,
                Some(Ok(payload)) if !selection.passes(&*payload)? => continue,
                Some(payload) => payload,
            };
            self.past.frame.event(*form, item.index, self.out);
            page::write(self.out, (item.index, event_type), &headline, payload);
        }
        self.past.frame.end(*form, self.out);
        Ok(true)
    }
}
