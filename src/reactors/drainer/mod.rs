//! The drainer: moves what runs on draining nodes, and says when nothing is left (scheduler.md 8).
//!
//! [`mod@look`] says from rows alone what is to be done; here it is done, in one event for all
//! nodes while none of them stands in the way. What is marked for migration the scheduler stops and
//! places elsewhere; a drain is complete when the clients have reported that everything ended, or a
//! while after its deadline.

pub mod look;

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::Node;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::nodes::Nodes;
use drover_projections::{Interest, Projections, Scan, StorageError};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use self::look::{Steps, look};
use super::driver::{Activation, Context, Failure, Reactor, Scope};
use super::each::Each;
use crate::commands::Command;
use crate::commands::node::CompleteDrains;
use crate::error::ApiError;

/// The longest sleep between two looks while nothing drains.
const LONGEST: Duration = Duration::from_secs(60);
/// What happens within this time is dealt with together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How often all nodes are looked through for drains at most.
const NODES_EVERY: i64 = 1_000_000_000;
/// How many drains end in one event.
const BATCH: usize = 256;

/// The drainer.
#[derive(Debug, Default)]
pub struct Drainer {
    known: Mutex<Known>,
}

/// The nodes that drain: a cache of the view.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The index of the table of nodes that they were read at.
    index: u64,
    /// When, by the reactor's clock.
    read_at: i64,
    draining: Vec<String>,
}

/// Reads which nodes drain where that may have changed, and looks at them.
fn look_at(
    projections: &Projections,
    mut known: Known,
    (clock, wall): (i64, i64),
) -> Result<(Known, Steps, Each), StorageError> {
    let view = projections.view();
    let mut each = Each::default();
    let index = view.table_index::<Nodes>();
    let mut again = None;
    if index != known.index {
        let since = clock.saturating_sub(known.read_at);
        if known.index == 0 || since >= NODES_EVERY {
            known.draining.clear();
            for node in view.scan::<Nodes>(Scan::all()) {
                let drained = Some(node?).filter(Node::draining);
                known.draining.extend(drained.map(|node| node.id));
            }
            (known.index, known.read_at) = (index, clock);
        } else {
            again = Some(wall.saturating_add(NODES_EVERY - since));
        }
    }
    let mut nodes = Vec::with_capacity(known.draining.len());
    for id in &known.draining {
        let node = each.look(id, || view.get::<Nodes>(id.as_str()));
        nodes.extend(node.flatten().filter(Node::draining));
    }
    let mut steps = look(&view, &nodes, wall, &mut each);
    steps.next = steps.next.into_iter().chain(again).min();
    if !steps.done.is_empty() {
        // They are about to change.
        known.index = 0;
    }
    Ok((known, steps, each))
}

impl Drainer {
    /// Does what is to be done: together, and where that is refused each by itself, so that what is
    /// wrong with one keeps no other from its turn. What is refused then is looked at anew the next
    /// time.
    async fn take(&self, context: &Context, steps: Steps, each: &mut Each) {
        if !steps.moves.transitions.is_empty()
            && let Some(error) = self.fails(context, steps.moves).await
        {
            if error.concerns_all() {
                return each.fail("drains", &error);
            }
            for moves in steps.apart {
                let nodes = moves.nodes.keys().cloned().collect::<Vec<_>>().join(" ");
                if let Some(error) = self.fails(context, moves).await {
                    each.fail(&nodes, &error);
                }
            }
        }
        for nodes in steps.done.chunks(BATCH) {
            let together = CompleteDrains {
                nodes: nodes.to_vec(),
            };
            let Some(error) = self.fails(context, together).await else {
                continue;
            };
            if error.concerns_all() {
                return each.fail("drains", &error);
            }
            for node in nodes {
                let alone = CompleteDrains {
                    nodes: vec![node.clone()],
                };
                if let Some(error) = self.fails(context, alone).await {
                    each.fail(&node.id, &error);
                }
            }
        }
    }

    async fn fails(&self, context: &Context, command: impl Command) -> Option<ApiError> {
        let done = context.proposer.submit(Arc::new(command), self.name());
        done.await.err()
    }
}

impl Reactor for Drainer {
    fn name(&self) -> &'static str {
        "drainer"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        const INTERESTS: &[Interest] = &[Interest::table::<Nodes>(), Interest::table::<Allocs>()];
        INTERESTS
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            tokio::time::sleep(TOGETHER).await;
            let wall = context.clock.wall();
            let times = (context.clock.now(), wall);
            let projections = Arc::clone(&context.projections);
            // Where the look fails everything is read anew.
            let known = std::mem::take(&mut *self.known.lock());
            let looked = move || look_at(&projections, known, times);
            let (known, steps, mut each) = tokio::task::spawn_blocking(looked).await??;
            let mut status = serde_json::json!({
                "Draining": known.draining.len(),
                "Marked": steps.moves.transitions.len(),
                "Completed": steps.done.len(),
            });
            *self.known.lock() = known;
            let next = steps.next;
            self.take(context, steps, &mut each).await;
            let sleep = match (each.failed(), next) {
                (0, None) => LONGEST,
                (0, Some(next)) => {
                    let left = next.saturating_sub(wall).max(0).unsigned_abs();
                    Duration::from_nanos(left).min(LONGEST)
                }
                _ => Duration::from_secs(1),
            };
            each.tell(&mut status);
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "drainer_test.rs"]
mod tests;
