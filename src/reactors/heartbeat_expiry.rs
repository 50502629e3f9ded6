//! Heartbeats: a node that is silent for longer than it was told is taken for lost, or for out of
//! contact (scheduler.md 10, SCH-01).
//!
//! The deadlines are in memory only. A new leader gives every node a generous one, so that nobody
//! is lost by a change of leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_projections::tables::node_states::NodeStates;
use drover_projections::{Interest, Scan};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::driver::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::node::MissHeartbeat;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatSettings {
    /// The shortest time a node is given.
    pub min_ttl: Duration,
    /// How many heartbeats a second the servers want at most.
    pub max_per_second: f64,
    /// How much later than told a heartbeat may come.
    pub grace: Duration,
    /// What every node is given after a change of leaders.
    pub failover_ttl: Duration,
}

impl Default for HeartbeatSettings {
    fn default() -> Self {
        Self {
            min_ttl: Duration::from_secs(10),
            max_per_second: 50.0,
            grace: Duration::from_secs(10),
            failover_ttl: Duration::from_secs(300),
        }
    }
}

/// How many nodes one activation gives up at most.
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

    fn late(&self, now: i64) -> Vec<String> {
        let late = self.by_time.iter().take_while(|(at, _)| *at <= now);
        late.take(BATCH).map(|(_, node)| node.clone()).collect()
    }
}

/// When each node is taken for lost.
#[derive(Debug, Default)]
pub struct Heartbeats {
    settings: HeartbeatSettings,
    deadlines: Mutex<Deadlines>,
}

impl Heartbeats {
    /// Nobody is waited for yet.
    pub fn new(settings: HeartbeatSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            deadlines: Mutex::default(),
        })
    }

    /// A node was heard of at `now` (Unix nanoseconds): answers when the next heartbeat is due.
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

    /// Whether nobody is waited for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn late(&self, now: i64) -> Vec<String> {
        self.deadlines.lock().late(now)
    }

    fn next(&self) -> Option<i64> {
        self.deadlines.lock().by_time.first().map(|(at, _)| *at)
    }
}

fn later(now: i64, by: Duration) -> i64 {
    now.saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX))
}

/// Gives up nodes whose heartbeats did not come.
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

    /// After a change of leaders every node that is not lost has its time.
    fn begin(&self, context: &Context) -> Result<(), Failure> {
        let mut begun = self.begun.lock();
        if *begun {
            return Ok(());
        }
        let view = context.projections.view();
        let mut nodes = Vec::new();
        for state in view.scan::<NodeStates>(Scan::all()) {
            let state = state?;
            if state.status != "down" {
                nodes.push(state.node_id);
            }
        }
        self.heartbeats.reset(nodes, context.clock.now());
        *begun = true;
        Ok(())
    }
}

/// The longest sleep between two looks.
const LONGEST: Duration = Duration::from_secs(1);

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
            self.begin(context)?;
            let late = self.heartbeats.late(context.clock.now());
            let missed = late.len();
            for node in late {
                tracing::warn!(node, "node heartbeat missed");
                let command = MissHeartbeat {
                    node_id: node.clone(),
                };
                match context
                    .proposer
                    .submit(Arc::new(command), self.name())
                    .await
                {
                    Ok(_) => self.heartbeats.clear(&node),
                    Err(error) if error.code == crate::error::Code::NotFound => {
                        self.heartbeats.clear(&node);
                    }
                    Err(error) => return Err(error.to_string().into()),
                }
            }
            let now = context.clock.now();
            let sleep = self.heartbeats.next().map_or(LONGEST, |at| {
                Duration::from_nanos(at.saturating_sub(now).max(0).unsigned_abs()).min(LONGEST)
            });
            let waiting = self.heartbeats.len();
            let status = serde_json::json!({ "Waiting": waiting, "Missed": missed });
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn the_time_grows_with_the_nodes_and_the_late_are_found_in_order() {
        let heartbeats = Heartbeats::new(HeartbeatSettings::default());
        assert_eq!(heartbeats.beat("a", 0, 0.0), Duration::from_secs(10));
        assert_eq!(heartbeats.beat("b", 0, 1.0), Duration::from_secs(20));
        assert!(heartbeats.late(20 * SECOND - 1).is_empty());
        assert_eq!(heartbeats.late(20 * SECOND), ["a"], "ten seconds of grace");
        assert_eq!(heartbeats.late(30 * SECOND), ["a", "b"]);
        heartbeats.beat("a", 30 * SECOND, 0.0);
        assert_eq!(heartbeats.late(30 * SECOND), ["b"]);
        heartbeats.clear("b");
        assert!(heartbeats.late(30 * SECOND).is_empty());

        let names = (0..5000).map(|n| format!("n{n}"));
        heartbeats.reset(names, 0);
        assert!(heartbeats.late(300 * SECOND - 1).is_empty());
        assert_eq!(heartbeats.late(300 * SECOND).len(), BATCH);
        assert_eq!(
            heartbeats.beat("n1", 0, 0.0),
            Duration::from_secs(100),
            "5,000 by 50"
        );
    }
}
