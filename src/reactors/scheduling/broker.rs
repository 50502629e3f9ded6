//! The evaluation broker: which evaluation is worked on next, and by which worker.
//!
//! One evaluation of a job at a time; higher priorities first; what is not finished in time is
//! given out again, later each time, and given up after a few deliveries. It is a cache of the
//! pending evaluations and can be thrown away at any time. Times are nanoseconds of one clock,
//! passed in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use drover_events::gojson::Time;
use drover_events::model::{Evaluation, JobKey};

use crate::telemetry::milliseconds;

const SECOND: i64 = 1_000_000_000;
/// How many evaluations that wait for a time are shown in metrics, the next first; and how many
/// jobs that found no place, those that want most first.
pub(super) const SHOWN: usize = 100;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct BrokerSettings {
    /// How long an evaluation may be worked on, in nanoseconds.
    pub nack_timeout: i64,
    /// How often one is given out at most.
    pub delivery_limit: u32,
    /// How long it waits after the first failure, in nanoseconds.
    pub initial_nack_delay: i64,
    /// How much longer after each further one, in nanoseconds.
    pub subsequent_nack_delay: i64,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            nack_timeout: 60 * SECOND,
            delivery_limit: 3,
            initial_nack_delay: SECOND,
            subsequent_nack_delay: 20 * SECOND,
        }
    }
}

/// Why the broker refused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// It is not given out.
    #[error("evaluation is not outstanding")]
    NotOutstanding,
    /// It is given out to another worker by now.
    #[error("evaluation token does not match")]
    WrongToken,
}

/// Higher priority first, then the oldest.
type ReadyKey = (Reverse<i64>, u64, String);
/// Higher priority first, then the newest.
type PendingKey = (Reverse<i64>, Reverse<u64>, String);

#[derive(Debug)]
struct Outstanding {
    eval: Evaluation,
    token: u64,
    /// Since when it could be given out, and when it was.
    since: (i64, i64),
    /// None while its plan is queued.
    expires: Option<i64>,
    /// A newer copy, to be given out once this one is done.
    requeue: Option<Evaluation>,
}

/// What the broker holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerStats {
    /// Can be given out now.
    pub ready: usize,
    /// Are worked on.
    pub unacked: usize,
    /// Wait for another one of their job.
    pub pending: usize,
    /// Wait for a time.
    pub waiting: usize,
    /// Need not be worked on any more.
    pub cancelable: usize,
    /// Were given out too often.
    pub failed: usize,
}

#[derive(Debug, Default)]
pub struct Broker {
    settings: BrokerSettings,
    enabled: bool,
    ready: BTreeMap<String, BTreeSet<ReadyKey>>,
    evals: BTreeMap<String, Evaluation>,
    busy: BTreeMap<JobKey, String>,
    pending: BTreeMap<JobKey, BTreeSet<PendingKey>>,
    outstanding: BTreeMap<String, Outstanding>,
    deliveries: BTreeMap<String, u32>,
    /// Since when those can be given out that are ready.
    since: BTreeMap<String, i64>,
    /// The last time that was passed in.
    latest: i64,
    /// When those that wait for a time were shown.
    shown: i64,
    waiting: BTreeSet<(i64, String)>,
    cancelable: VecDeque<Evaluation>,
    failed: VecDeque<Evaluation>,
    tokens: u64,
}

fn job_of(eval: &Evaluation) -> JobKey {
    (eval.namespace.clone(), eval.job_id.clone())
}

/// Nanoseconds as a time, which is never negative.
fn span(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.max(0).unsigned_abs())
}

/// Notes how long something took, by what sort of evaluation it was. Neither its job is named nor
/// its namespace: of those there is no end, and a timing is kept as long as the process.
fn timed(name: &'static str, eval: &Evaluation, nanos: i64) {
    let labels = [
        ("eval_type", eval.r#type.clone()),
        ("triggered_by", eval.triggered_by.clone()),
    ];
    metrics::histogram!(name, &labels).record(milliseconds(span(nanos)));
}

impl Broker {
    /// A broker that holds nothing and gives nothing out yet.
    pub fn new(settings: BrokerSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Starts to take evaluations.
    pub fn enable(&mut self) {
        self.enabled = true;
    }

    /// Forgets everything and takes nothing any more.
    pub fn disable(&mut self) {
        *self = Self {
            settings: self.settings,
            tokens: self.tokens,
            ..Self::default()
        };
    }

    /// Takes a pending evaluation. One that is known already is not taken again, unless it is
    /// worked on and this copy is newer: then it is given out again afterwards.
    pub fn enqueue(&mut self, eval: Evaluation, now: i64) {
        if !self.enabled {
            return;
        }
        self.latest = now;
        if let Some(outstanding) = self.outstanding.get_mut(&eval.id) {
            if eval.modify_index > outstanding.eval.modify_index {
                outstanding.requeue = Some(eval);
            }
            return;
        }
        if self.evals.contains_key(&eval.id) {
            return;
        }
        let id = eval.id.clone();
        // A server that begins to lead does not let it wait from the beginning.
        let wait = match eval.wait_until {
            Time::ZERO if eval.wait > 0 => now.saturating_add(eval.wait),
            Time(until) => until,
        };
        self.evals.insert(id.clone(), eval);
        if wait > now {
            self.waiting.insert((wait, id));
        } else {
            self.make_ready(id);
        }
    }

    fn make_ready(&mut self, id: String) {
        let Some(eval) = self.evals.get(&id) else {
            return;
        };
        let job = job_of(eval);
        if self.busy.contains_key(&job) {
            let key = (Reverse(eval.priority), Reverse(eval.modify_index), id);
            self.pending.entry(job).or_default().insert(key);
            return;
        }
        let key = (Reverse(eval.priority), eval.create_index, id.clone());
        self.since.insert(id.clone(), self.latest);
        self.ready
            .entry(eval.r#type.clone())
            .or_default()
            .insert(key);
        self.busy.insert(job, id);
    }

    /// Gives out the most urgent evaluation of these types, with a token.
    pub fn dequeue(&mut self, types: &[&str], now: i64) -> Option<(Evaluation, u64)> {
        let (kind, key) = types
            .iter()
            .filter_map(|kind| Some((*kind, self.ready.get(*kind)?.first()?.clone())))
            .min_by(|a, b| a.1.cmp(&b.1))?;
        self.ready.get_mut(kind)?.remove(&key);
        let eval = self.evals.remove(&key.2)?;
        self.tokens += 1;
        *self.deliveries.entry(eval.id.clone()).or_default() += 1;
        let since = self.since.remove(&eval.id).unwrap_or(now);
        timed("nomad.nomad.broker.wait_time", &eval, now - since);
        let outstanding = Outstanding {
            eval: eval.clone(),
            token: self.tokens,
            since: (since, now),
            expires: Some(now.saturating_add(self.settings.nack_timeout)),
            requeue: None,
        };
        self.outstanding.insert(eval.id.clone(), outstanding);
        Some((eval, self.tokens))
    }

    fn check(&mut self, id: &str, token: u64) -> Result<&mut Outstanding, BrokerError> {
        let outstanding = self
            .outstanding
            .get_mut(id)
            .ok_or(BrokerError::NotOutstanding)?;
        if outstanding.token != token {
            return Err(BrokerError::WrongToken);
        }
        Ok(outstanding)
    }

    /// Whether an evaluation is worked on under this token.
    pub fn is_outstanding(&mut self, id: &str, token: u64) -> Result<(), BrokerError> {
        self.check(id, token).map(|_| ())
    }

    /// Stops the clock of an evaluation while its plan waits.
    pub fn pause(&mut self, id: &str, token: u64) -> Result<(), BrokerError> {
        self.check(id, token)?.expires = None;
        Ok(())
    }

    /// Starts its clock again.
    pub fn resume(&mut self, id: &str, token: u64, now: i64) -> Result<(), BrokerError> {
        let timeout = self.settings.nack_timeout;
        self.check(id, token)?.expires = Some(now.saturating_add(timeout));
        Ok(())
    }

    /// An evaluation is done. Of those that waited for it the most urgent is next; the others need
    /// not be worked on at all, since the next one sees what they would have seen.
    pub fn ack(&mut self, id: &str, token: u64, now: i64) -> Result<(), BrokerError> {
        self.check(id, token)?;
        let Some(done) = self.outstanding.remove(id) else {
            return Err(BrokerError::NotOutstanding);
        };
        self.latest = now;
        let (since, given) = done.since;
        timed("nomad.nomad.broker.process_time", &done.eval, now - given);
        timed("nomad.nomad.broker.response_time", &done.eval, now - since);
        self.deliveries.remove(id);
        let job = job_of(&done.eval);
        self.busy.remove(&job);
        if let Some(mut waiting) = self.pending.remove(&job)
            && let Some((_, _, next)) = waiting.pop_first()
        {
            self.make_ready(next);
            for (_, _, id) in waiting {
                self.cancelable.extend(self.evals.remove(&id));
            }
        }
        if let Some(again) = done.requeue {
            self.enqueue(again, now);
        }
        Ok(())
    }

    /// An evaluation could not be done: it is given out again later, or given up.
    pub fn nack(&mut self, id: &str, token: u64, now: i64) -> Result<(), BrokerError> {
        self.check(id, token)?;
        let Some(failed) = self.outstanding.remove(id) else {
            return Err(BrokerError::NotOutstanding);
        };
        self.latest = now;
        let eval = failed.requeue.unwrap_or(failed.eval);
        let deliveries = self.deliveries.get(id).copied().unwrap_or_default();
        let job = job_of(&eval);
        if deliveries >= self.settings.delivery_limit {
            self.deliveries.remove(id);
            self.busy.remove(&job);
            self.failed.push_back(eval);
            let next = self.pending.get_mut(&job).and_then(BTreeSet::pop_first);
            if let Some((_, _, next)) = next {
                self.make_ready(next);
            }
            return Ok(());
        }
        let delay = if deliveries <= 1 {
            self.settings.initial_nack_delay
        } else {
            i64::from(deliveries - 1).saturating_mul(self.settings.subsequent_nack_delay)
        };
        self.busy.remove(&job);
        self.waiting
            .insert((now.saturating_add(delay), eval.id.clone()));
        self.evals.insert(eval.id.clone(), eval);
        Ok(())
    }

    /// An evaluation cannot be worked on yet, which is no failure of its own: it is given out again
    /// after this time, as if it had not been given out now.
    pub fn postpone(
        &mut self,
        id: &str,
        token: u64,
        now: i64,
        delay: i64,
    ) -> Result<(), BrokerError> {
        self.check(id, token)?;
        let Some(back) = self.outstanding.remove(id) else {
            return Err(BrokerError::NotOutstanding);
        };
        if let Some(deliveries) = self.deliveries.get_mut(id) {
            *deliveries = deliveries.saturating_sub(1);
        }
        let eval = back.requeue.unwrap_or(back.eval);
        self.busy.remove(&job_of(&eval));
        self.waiting
            .insert((now.saturating_add(delay), eval.id.clone()));
        self.evals.insert(eval.id.clone(), eval);
        Ok(())
    }

    /// Does what is due: takes back what was not finished in time, and lets what waited continue.
    pub fn tick(&mut self, now: i64) {
        self.latest = now;
        let late: Vec<(String, u64)> = self
            .outstanding
            .iter()
            .filter(|(_, o)| o.expires.is_some_and(|at| at <= now))
            .map(|(id, o)| (id.clone(), o.token))
            .collect();
        for (id, token) in late {
            tracing::warn!(eval = %id, "evaluation nack timeout reached");
            let _ = self.nack(&id, token, now);
        }
        while self.waiting.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, id)) = self.waiting.pop_first() {
                self.make_ready(id);
            }
        }
        if now.saturating_sub(self.shown) >= SECOND {
            self.shown = now;
            self.show_waiting(now);
        }
    }

    /// Shows how many seconds those that wait for a time have left.
    fn show_waiting(&self, now: i64) {
        for (at, id) in self.waiting.iter().take(SHOWN) {
            let Some(eval) = self.evals.get(id) else {
                continue;
            };
            let labels = [
                ("eval_id", id.clone()),
                ("job", eval.job_id.clone()),
                ("namespace", eval.namespace.clone()),
            ];
            let left = span(at.saturating_sub(now)).as_secs_f64();
            metrics::gauge!("nomad.nomad.broker.eval_waiting", &labels).set(left);
        }
    }

    /// When something is due next.
    pub fn next_due(&self) -> Option<i64> {
        let expiry = self.outstanding.values().filter_map(|o| o.expires).min();
        let wait = self.waiting.first().map(|(at, _)| *at);
        expiry.into_iter().chain(wait).min()
    }

    /// Forgets an evaluation that was deleted, unless it is worked on.
    pub fn forget(&mut self, id: &str) {
        let Some(eval) = self.evals.remove(id) else {
            return;
        };
        let job = job_of(&eval);
        self.since.remove(id);
        self.waiting.retain(|(_, other)| other != id);
        if let Some(ready) = self.ready.get_mut(&eval.r#type) {
            ready.retain(|(_, _, other)| other != id);
        }
        if let Some(pending) = self.pending.get_mut(&job) {
            pending.retain(|(_, _, other)| other != id);
        }
        if self.busy.get(&job).is_some_and(|other| other == id) {
            self.busy.remove(&job);
        }
        // One that was given back keeps its job free while it waits, and others wait for it.
        if !self.busy.contains_key(&job) {
            let next = self.pending.get_mut(&job).and_then(BTreeSet::pop_first);
            if let Some((_, _, next)) = next {
                self.make_ready(next);
            }
        }
    }

    /// Evaluations that need not be worked on, at most so many.
    pub fn take_cancelable(&mut self, most: usize) -> Vec<Evaluation> {
        let count = most.min(self.cancelable.len());
        self.cancelable.drain(..count).collect()
    }

    /// Evaluations that were given out too often.
    pub fn take_failed(&mut self) -> Vec<Evaluation> {
        self.failed.drain(..).collect()
    }

    /// How often evaluations were given out.
    #[cfg(test)]
    pub fn given(&self) -> u64 {
        self.tokens
    }

    /// How many evaluations of these types can be worked on.
    pub fn ready_of(&self, types: &[&str]) -> usize {
        let ready = types.iter().filter_map(|kind| self.ready.get(*kind));
        ready.map(BTreeSet::len).sum()
    }

    /// How many evaluations of each type can be worked on, and how many are worked on.
    pub fn by_type(&self) -> BTreeMap<String, (usize, usize)> {
        let mut types: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for (name, ready) in &self.ready {
            types.entry(name.clone()).or_default().0 = ready.len();
        }
        for one in self.outstanding.values() {
            types.entry(one.eval.r#type.clone()).or_default().1 += 1;
        }
        types
    }

    /// Numbers.
    pub fn stats(&self) -> BrokerStats {
        BrokerStats {
            ready: self.ready.values().map(BTreeSet::len).sum(),
            unacked: self.outstanding.len(),
            pending: self.pending.values().map(BTreeSet::len).sum(),
            waiting: self.waiting.len(),
            cancelable: self.cancelable.len(),
            failed: self.failed.len(),
        }
    }
}

#[cfg(test)]
#[path = "broker_test.rs"]
mod tests;
