//! What this server knows of calls to controllers whose end is not known: a call without an answer
//! may still be done. An attach that is done late leaves a volume attached without a claim, a
//! detach that is done late takes it from the next claim there.
//!
//! What another server began before this one led is in no memory. A claim that was not taken in
//! this term, and that says nothing of its attach, may have one under way; one that was on its way
//! back when the term began may have a detach under way.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::time::Duration;

use drover_events::csi::{CsiVolumeClaimed, state};
use drover_projections::query::csi::Volume;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{ClaimKey, CsiVolumeKey, attachment_node};

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallStep {
    Attach,
    Detach,
    /// It is made larger, wherever it is.
    Grow,
}

/// How long a call that was given up is remembered: no client waits for a plugin longer than that.
const REMEMBERED: Duration = Duration::from_secs(150);

/// What one server knows, in one term.
pub(super) struct InDoubtCalls {
    /// For how long nothing is attached where a detach was not answered.
    quiet: Duration,
    /// For how long after its start a call without an answer may still be under way.
    max_call_age: Duration,
    known: Mutex<PendingCalls>,
    /// Signalled when a growth is known to be over.
    growth_ended: Notify,
}

#[derive(Default)]
struct PendingCalls {
    /// The term, and since when it is known.
    term: Option<(u64, Instant)>,
    /// Claims that were taken in this term, and whose attach is not noted yet.
    taken: HashSet<ClaimKey>,
    /// Claims whose way back began in this term, and has not ended.
    released: HashSet<ClaimKey>,
    /// Calls that were given up, and where.
    unanswered: HashMap<(CallStep, ClaimKey), GivenUp>,
    /// Volumes that are being made larger.
    growing: HashSet<ClaimKey>,
}

/// The calls to one place that were given up.
#[derive(Clone, Copy)]
struct GivenUp {
    /// When; of those that make a volume larger, when the last began.
    at: Instant,
    /// The largest size in bytes that one of them may still make of a volume.
    size: i64,
}

/// A call that is under way: where it is dropped without an answer, its end is not known.
pub(super) struct PendingCall<'d> {
    in_doubt: &'d InDoubtCalls,
    what: Option<(CallStep, ClaimKey)>,
    /// What it makes of a volume, bytes.
    size: i64,
    /// When it was made last.
    begun: Mutex<Instant>,
}

impl PendingCall<'_> {
    /// It is made now: once more, where other controllers were called before.
    pub(super) fn again(&self) {
        *self.begun.lock() = Instant::now();
    }

    /// All controllers that were called have answered.
    pub(super) fn answered(mut self) {
        if let Some((step, at)) = self.what.take() {
            self.in_doubt.known.lock().ends(step, &at);
        }
    }

    /// The volume is so large now: what was requested before and is done late changes nothing, by
    /// the specification of `ControllerExpandVolume` (CSI 1.11).
    pub(super) fn grown(self, to: i64) {
        if let Some(what) = &self.what {
            let mut known = self.in_doubt.known.lock();
            let late = known.unanswered.get(what);
            if late.is_some_and(|late| late.size <= to) {
                known.unanswered.remove(what);
            }
        }
        let in_doubt = self.in_doubt;
        self.answered();
        in_doubt.growth_ended.notify_waiters();
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            let now = Instant::now();
            let mut known = self.in_doubt.known.lock();
            known.ends(what.0, &what.1);
            let remembered = REMEMBERED + self.in_doubt.quiet;
            known
                .unanswered
                .retain(|_, call| now - call.at < remembered);
            let at = match what.0 {
                CallStep::Grow => *self.begun.lock(),
                CallStep::Attach | CallStep::Detach => now,
            };
            let before = known.unanswered.get(&what);
            let size = before.map_or(0, |before| before.size).max(self.size);
            known.unanswered.insert(what, GivenUp { at, size });
        }
    }
}

impl PendingCalls {
    /// A call is not under way any more, as far as a caller waits for it.
    fn ends(&mut self, step: CallStep, at: &ClaimKey) {
        if step == CallStep::Grow {
            self.growing.remove(at);
        }
    }
}

impl InDoubtCalls {
    /// For a server that waits so long for an attach that may be late, and so long for a detach.
    pub(super) fn new((max_call_age, quiet): (Duration, Duration)) -> Self {
        Self {
            quiet,
            max_call_age,
            known: Mutex::default(),
            growth_ended: Notify::new(),
        }
    }

    /// This server leads in this term: what it knew of claims in another term does not count.
    pub(super) fn enter_term(&self, term: u64) {
        let mut known = self.known.lock();
        if known.term.is_none_or(|(last, _)| last != term) {
            known.term = Some((term, Instant::now()));
            known.taken.clear();
            known.released.clear();
        }
    }

    /// A claim was taken now: no call attached for it before.
    pub(super) fn record_claim(&self, claim: ClaimKey) {
        self.known.lock().taken.insert(claim);
    }

    /// It is noted that a claim is attached.
    pub(super) fn record_attached(&self, claim: &ClaimKey) {
        self.known.lock().taken.remove(claim);
    }

    /// A claim is on its way back from now on: no call detached for it before.
    pub(super) fn record_release(&self, claim: ClaimKey) {
        self.known.lock().released.insert(claim);
    }

    /// Nothing is left of a claim.
    pub(super) fn forget(&self, claim: &ClaimKey) {
        let mut known = self.known.lock();
        known.taken.remove(claim);
        known.released.remove(claim);
    }

    /// Keeps of the claims on a volume only those that are held.
    pub(super) fn retain(&self, (namespace, id): (&str, &str), held: impl Fn(&str) -> bool) {
        let mut known = self.known.lock();
        let kept = |key: &ClaimKey| key.0 != namespace || key.1 != id || held(&key.2);
        known.taken.retain(kept);
        known.released.retain(kept);
    }

    /// How many claims it knows something of.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let known = self.known.lock();
        known.taken.len() + known.released.len()
    }

    /// A call at a place begins: volume, and where it is attached.
    pub(super) fn record_start(&self, step: CallStep, at: ClaimKey) -> PendingCall<'_> {
        self.begun((step, at), 0)
    }

    /// A call begins that makes a volume so large, in bytes.
    pub(super) fn record_growth_start(&self, key: &CsiVolumeKey, size: i64) -> PendingCall<'_> {
        let at = anywhere(key);
        self.known.lock().growing.insert(at.clone());
        self.begun((CallStep::Grow, at), size)
    }

    fn begun(&self, what: (CallStep, ClaimKey), size: i64) -> PendingCall<'_> {
        PendingCall {
            in_doubt: self,
            what: Some(what),
            size,
            begun: Mutex::new(Instant::now()),
        }
    }

    /// Whether an attach for a claim may still be under way.
    pub(super) fn attach_in_doubt(&self, key: &ClaimKey, claim: &CsiVolumeClaimed) -> bool {
        if claim.external_node_id.is_empty() {
            return false;
        }
        let known = self.known.lock();
        let foreign = !claim.published && !known.taken.contains(key);
        let at = (
            key.0.clone(),
            key.1.clone(),
            attachment_node(claim).to_owned(),
        );
        let last = known.unanswered.get(&(CallStep::Attach, at));
        foreign || last.is_some_and(|last| last.at.elapsed() < REMEMBERED)
    }

    /// Until when a call that was given up may make a volume larger; none where none does.
    pub(super) fn growth_in_doubt(&self, key: &CsiVolumeKey) -> Option<Instant> {
        let known = self.known.lock();
        let last = known.unanswered.get(&(CallStep::Grow, anywhere(key)))?;
        Some(last.at + self.max_call_age + self.quiet).filter(|until| *until > Instant::now())
    }

    /// Waits until no call that was given up may make a volume larger.
    pub(super) async fn wait_for_growth(&self, key: &CsiVolumeKey) {
        loop {
            let mut ended = pin!(self.growth_ended.notified());
            // A growth that ends from here on is noticed.
            ended.as_mut().enable();
            let Some(until) = self.growth_in_doubt(key) else {
                return;
            };
            tokio::select! {
                () = sleep_until(until) => {}
                () = ended => {}
            }
        }
    }

    /// Whether a volume is being made larger, or may be.
    pub(super) fn is_growing(&self, key: &CsiVolumeKey) -> bool {
        let requested = self.known.lock().growing.contains(&anywhere(key));
        requested || self.growth_in_doubt(key).is_some()
    }

    /// Until when a detach may be under way at a place; none where none is. The caller holds the
    /// lock of that place.
    pub(super) fn detach_in_doubt(&self, volume: &Volume, at: &ClaimKey) -> Option<Instant> {
        let known = self.known.lock();
        let here = |claim: &CsiVolumeClaimed| attachment_node(claim) == at.2;
        let own = |alloc: &str| {
            let key = (at.0.clone(), at.1.clone(), alloc.to_owned());
            known.released.contains(&key)
        };
        let mut begun = volume.row.past_claims.iter();
        // What another server had begun when this one took over.
        let begun = begun.any(|(alloc, claim)| {
            let requested = [
                state::NODE_DETACHED,
                state::UNPUBLISHING,
                state::DETACH_UNCONFIRMED,
            ];
            here(claim) && requested.contains(&claim.state) && !own(alloc)
        });
        let before = known.term.filter(|_| begun).map(|(_, since)| since);
        let last = known.unanswered.get(&(CallStep::Detach, at.clone()));
        let until = before
            .max(last.map(|last| last.at))
            .map(|since| since + self.quiet);
        until.filter(|until| *until > Instant::now())
    }
}

/// A volume, wherever it is.
fn anywhere(key: &CsiVolumeKey) -> ClaimKey {
    (key.0.clone(), key.1.clone(), String::new())
}
