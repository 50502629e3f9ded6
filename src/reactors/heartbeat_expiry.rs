//! Heartbeats: a node whose deadline has passed is late; then its heartbeat is committed as missed,
//! which marks the node down, or disconnected where its allocations may wait for it (SCH-01).
//!
//! The deadlines are in memory only. A new leader gives every node a generous one, so that no
//! heartbeat is missed for a change of leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_events::model::status::node;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::{Interest, Scan};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::node::MissHeartbeat;
use crate::config::ServerConfig;
use crate::telemetry::took;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatSettings {
    /// The shortest time a node is given.
    pub min_ttl: Duration,
    /// How many heartbeats a second the servers want at most.
    pub max_per_second: f64,
    /// How much later than due a heartbeat may come.
    pub grace: Duration,
    /// What every node is given after a change of leaders.
    pub failover_ttl: Duration,
}

impl From<&ServerConfig> for HeartbeatSettings {
    fn from(config: &ServerConfig) -> Self {
        Self {
            min_ttl: config.min_heartbeat_ttl,
            max_per_second: config.max_heartbeats_per_second,
            grace: config.heartbeat_grace,
            failover_ttl: config.failover_heartbeat_ttl,
        }
    }
}

impl Default for HeartbeatSettings {
    fn default() -> Self {
        Self::from(&ServerConfig::default())
    }
}

/// How many heartbeats one activation commits as missed at most.
const BATCH: usize = 100;

/// The deadlines of all nodes.
#[derive(Debug, Default)]
struct Deadlines {
    by_node: BTreeMap<String, i64>,
    by_time: BTreeSet<(i64, String)>,
}

impl Deadlines {
    fn set(&mut self, node: &str, at: i64) {
        self.clear(node);
        self.by_node.insert(node.to_owned(), at);
        self.by_time.insert((at, node.to_owned()));
    }

    fn clear(&mut self, node: &str) {
        if let Some(at) = self.by_node.remove(node) {
            self.by_time.remove(&(at, node.to_owned()));
        }
    }

    fn late(&self, now: i64) -> Vec<(i64, String)> {
        let late = self.by_time.iter().take_while(|(at, _)| *at <= now);
        late.take(BATCH).cloned().collect()
    }

    fn is_at(&self, node: &str, at: i64) -> bool {
        self.by_node.get(node) == Some(&at)
    }
}

/// When each node is late.
#[derive(Debug, Default)]
pub struct Heartbeats {
    settings: HeartbeatSettings,
    deadlines: Mutex<Deadlines>,
}

impl Heartbeats {
    /// No node is waited for yet.
    pub fn new(settings: HeartbeatSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            deadlines: Mutex::default(),
        })
    }

    /// A node sent a heartbeat at `now` (Unix nanoseconds): answers when the next heartbeat is due.
    /// `chance` is a random number from 0 to 1, so that nodes do not all come at once.
    pub fn beat(&self, node: &str, now: i64, chance: f64) -> Duration {
        let mut deadlines = self.deadlines.lock();
        let nodes = deadlines.by_node.len().max(1) as f64;
        let base = self
            .settings
            .min_ttl
            .as_secs_f64()
            .max(nodes / self.settings.max_per_second);
        let ttl = Duration::from_secs_f64(base + base * chance.clamp(0.0, 1.0));
        deadlines.set(node, later(now, ttl + self.settings.grace));
        ttl
    }

    /// A node is not waited for any more.
    pub fn clear(&self, node: &str) {
        self.deadlines.lock().clear(node);
    }

    /// A node that was late for this deadline is dealt with, unless a heartbeat came meanwhile.
    fn clear_late(&self, node: &str, at: i64) {
        let mut deadlines = self.deadlines.lock();
        if deadlines.is_at(node, at) {
            deadlines.clear(node);
        }
    }

    /// The heartbeat of a node that was late for this deadline could not be committed as missed: it
    /// has another turn at `again`, behind those that are late already.
    fn postpone(&self, node: &str, at: i64, again: i64) {
        let mut deadlines = self.deadlines.lock();
        if deadlines.is_at(node, at) {
            deadlines.set(node, again);
        }
    }

    /// Whether this is still a node's deadline.
    fn is_late(&self, node: &str, at: i64) -> bool {
        self.deadlines.lock().is_at(node, at)
    }

    /// Starts anew with these nodes.
    pub fn reset(&self, nodes: impl IntoIterator<Item = String>, now: i64) {
        let mut deadlines = self.deadlines.lock();
        *deadlines = Deadlines::default();
        for node in nodes {
            deadlines.set(&node, later(now, self.settings.failover_ttl));
        }
    }

    /// How many nodes are waited for.
    pub fn len(&self) -> usize {
        self.deadlines.lock().by_node.len()
    }

    /// Whether no node is waited for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn late(&self, now: i64) -> Vec<(i64, String)> {
        self.deadlines.lock().late(now)
    }

    fn next(&self) -> Option<i64> {
        self.deadlines.lock().by_time.first().map(|(at, _)| *at)
    }
}

fn later(now: i64, by: Duration) -> i64 {
    now.saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX))
}

/// Commits the heartbeats of late nodes as missed.
pub struct HeartbeatExpiry {
    heartbeats: Arc<Heartbeats>,
    begun: Mutex<bool>,
}

impl HeartbeatExpiry {
    /// Works on these deadlines.
    pub fn new(heartbeats: Arc<Heartbeats>) -> Self {
        Self {
            heartbeats,
            begun: Mutex::new(false),
        }
    }

    /// After a change of leaders every node that is not down has its time. A node whose state
    /// cannot be read has no deadline until its heartbeat comes: that it missed one could not be
    /// written either.
    fn begin(&self, context: &Context, each: &mut Each) -> Result<(), Failure> {
        let mut begun = self.begun.lock();
        if *begun {
            return Ok(());
        }
        let view = context.projections.view();
        let mut nodes = Vec::new();
        for state in view.scan::<NodeStates>(Scan::all()) {
            let waited_for = each.row(state)?.filter(|state| state.status != node::DOWN);
            nodes.extend(waited_for.map(|state| state.node_id));
        }
        self.heartbeats.reset(nodes, context.clock.now());
        *begun = true;
        Ok(())
    }
}

/// The longest sleep between two looks.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// When a node whose heartbeat could not be committed as missed has its next turn.
const AGAIN: Duration = Duration::from_secs(1);

impl HeartbeatExpiry {
    /// Commits the heartbeat of one node as missed. Whatever is wrong with it, the next one has its
    /// turn.
    async fn miss(&self, context: &Context, node: &str, at: i64, each: &mut Each) {
        tracing::warn!(node, "node heartbeat missed");
        let began = Instant::now();
        let command = MissHeartbeat {
            node_id: node.to_owned(),
        };
        let missed = context.proposer.submit(Arc::new(command), self.name());
        let missed = missed.await;
        took("nomad.nomad.heartbeat.invalidate", began);
        let is_done = match missed {
            Ok(_) => true,
            // The heartbeats of a removed node are not missed.
            Err(error) => {
                let known = context.projections.view().modify_index::<NodeStates>(node);
                let gone = matches!(known, Ok(None));
                if !gone {
                    each.fail(node, &error);
                }
                gone
            }
        };
        if is_done {
            self.heartbeats.clear_late(node, at);
        } else {
            let again = later(context.clock.now(), AGAIN);
            self.heartbeats.postpone(node, at, again);
        }
    }
}

impl Reactor for HeartbeatExpiry {
    fn name(&self) -> &'static str {
        "heartbeat_expiry"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        &[]
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            let mut each = Each::default();
            self.begin(context, &mut each)?;
            let late = self.heartbeats.late(context.clock.now());
            let count = late.len();
            for (at, node) in late {
                if self.heartbeats.is_late(&node, at) {
                    self.miss(context, &node, at, &mut each).await;
                }
            }
            let now = context.clock.now();
            let sleep = self.heartbeats.next().map_or(MAX_SLEEP, |at| {
                Duration::from_nanos(at.saturating_sub(now).max(0).unsigned_abs()).min(MAX_SLEEP)
            });
            let waiting = self.heartbeats.len();
            let mut status = json!({ "Waiting": waiting, "Missed": count });
            each.report(&mut status);
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "heartbeat_expiry_test.rs"]
mod tests;
