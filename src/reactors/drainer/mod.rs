//! The drainer: moves what runs on draining nodes, and says when nothing is left.
//!
//! [`mod@steps`] says from rows alone what is to be done; here it is done, in one event for all
//! nodes while none of them makes it fail. What is marked for migration the scheduler stops and
//! places elsewhere; a drain is complete when the clients have reported that everything ended, or
//! one minute after its deadline.

pub mod steps;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::Node;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::nodes::Nodes;
use drover_projections::{
    ChangedRow, Follow, Followed, Interest, Projections, Scan, StorageError, Table, View,
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use self::steps::{Steps, next_steps};
use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::Command;
use crate::commands::node::CompleteDrains;
use crate::error::Refusal;

/// The longest sleep between two looks while nothing drains.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// What happens within this time is dealt with together.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// How many drains end in one event.
const BATCH: usize = 256;

#[derive(Debug, Default)]
pub struct Drainer {
    known: Mutex<DrainCache>,
}

/// What is known of drains: a cache of the view.
#[derive(Clone, Debug, Default)]
struct DrainCache {
    followed: Option<Followed>,
    draining: BTreeSet<String>,
    /// The jobs of which something may move, at the last look.
    movable: BTreeSet<(String, String)>,
    /// When it is to be looked again whatever happens, Unix nanoseconds.
    next: Option<i64>,
    /// Whether a step failed.
    failed: bool,
    /// Whether anything changed that may let a drain go on.
    has_relevant_change: bool,
    /// How often the next steps were worked out.
    looks: usize,
    /// How many nodes were read to know which of them drain.
    read: usize,
}

impl Follow for DrainCache {
    // Nodes come first: what is known of them says which allocations matter.
    const TABLES: &'static [u16] = &[Nodes::ID, Allocs::ID];
    type With = Each;

    fn followed(&mut self) -> &mut Option<Followed> {
        &mut self.followed
    }

    fn all(&mut self, view: &View, each: &mut Each) -> Result<(), StorageError> {
        self.has_relevant_change = true;
        self.draining.clear();
        for node in view.scan::<Nodes>(Scan::all()) {
            self.read += 1;
            let drained = each.row(node)?.filter(Node::draining);
            self.draining.extend(drained.map(|node| node.id));
        }
        Ok(())
    }

    fn row(&mut self, view: &View, row: &ChangedRow, each: &mut Each) -> Result<(), StorageError> {
        if let Some(id) = row.key_of::<Nodes>() {
            self.read += 1;
            let node = each.look(id.as_str(), || view.get::<Nodes>(id.as_str()));
            let drains = node.flatten().is_some_and(|node| node.draining());
            self.has_relevant_change |= match drains {
                true => {
                    self.draining.insert(id.into_string());
                    true
                }
                false => self.draining.remove(id.as_str()),
            };
        } else if let Some(id) = row.key_of::<Allocs>()
            && !self.draining.is_empty()
            && !self.has_relevant_change
        {
            let alloc = each.look(id.as_str(), || view.get::<Allocs>(id.as_str()));
            self.has_relevant_change = alloc.flatten().is_none_or(|alloc| {
                self.draining.contains(&alloc.node_id)
                    || self
                        .movable
                        .contains(&(alloc.namespace.clone(), alloc.job_id.clone()))
            });
        }
        Ok(())
    }
}

/// Works out the next steps of the nodes that drain, where something relevant to them changed or is
/// due.
fn next_steps_if_due(
    projections: &Projections,
    mut known: DrainCache,
    wall: i64,
) -> Result<(DrainCache, Steps, Each), StorageError> {
    let view = projections.view();
    let mut each = Each::default();
    known.has_relevant_change = false;
    known.refresh(projections, &view, &mut each)?;
    let is_due = known.failed || known.next.is_some_and(|next| next <= wall);
    if known.draining.is_empty() || !(known.has_relevant_change || is_due) {
        known.next = known.next.filter(|_| !known.draining.is_empty());
        let steps = Steps {
            next: known.next,
            ..Steps::default()
        };
        return Ok((known, steps, each));
    }
    known.looks += 1;
    let mut nodes = Vec::with_capacity(known.draining.len());
    for id in &known.draining {
        let node = each.look(id, || view.get::<Nodes>(id.as_str()));
        nodes.extend(node.flatten().filter(Node::draining));
    }
    let steps = next_steps(&view, &nodes, wall, &mut each);
    known.next = steps.next;
    known.movable.clone_from(&steps.movable);
    Ok((known, steps, each))
}

impl Drainer {
    /// Submits all steps of a kind in one command, and where that fails each by itself, so that one
    /// node or job that fails holds up no other. What failed by itself is worked out anew the next
    /// time.
    async fn execute(&self, context: &Context, steps: Steps, each: &mut Each) {
        if !steps.moves.transitions.is_empty()
            && let Some(error) = self.submit_step(context, steps.moves).await
        {
            if error.concerns_all() {
                return each.fail("drains", &error);
            }
            for moves in steps.individual {
                let nodes = moves.nodes.keys().cloned().collect::<Vec<_>>().join(" ");
                if let Some(error) = self.submit_step(context, moves).await {
                    each.fail(&nodes, &error);
                }
            }
        }
        for nodes in steps.done.chunks(BATCH) {
            let together = CompleteDrains {
                nodes: nodes.to_vec(),
            };
            let Some(error) = self.submit_step(context, together).await else {
                continue;
            };
            if error.concerns_all() {
                return each.fail("drains", &error);
            }
            for node in nodes {
                let alone = CompleteDrains {
                    nodes: vec![node.clone()],
                };
                if let Some(error) = self.submit_step(context, alone).await {
                    each.fail(&node.id, &error);
                }
            }
        }
    }

    /// Submits a command; answers why it failed.
    async fn submit_step(&self, context: &Context, command: impl Command) -> Option<Refusal> {
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
            tokio::time::sleep(BATCH_DELAY).await;
            let wall = context.clock.wall();
            let projections = Arc::clone(&context.projections);
            // Where this fails everything is read anew.
            let known = std::mem::take(&mut *self.known.lock());
            let worked_out = move || next_steps_if_due(&projections, known, wall);
            let (known, steps, mut each) = tokio::task::spawn_blocking(worked_out).await??;
            let mut status = serde_json::json!({
                "Draining": known.draining.len(),
                "Marked": steps.moves.transitions.len(),
                "Completed": steps.done.len(),
            });
            *self.known.lock() = known;
            let next = steps.next;
            self.execute(context, steps, &mut each).await;
            self.known.lock().failed = each.failed() > 0;
            let sleep = match (each.failed(), next) {
                (0, None) => MAX_SLEEP,
                (0, Some(next)) => {
                    let left = next.saturating_sub(wall).max(0).unsigned_abs();
                    Duration::from_nanos(left).min(MAX_SLEEP)
                }
                _ => Duration::from_secs(1),
            };
            each.report(&mut status);
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "drainer_test.rs"]
mod tests;
