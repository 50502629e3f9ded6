//! The drainer: moves what runs on draining nodes, and says when nothing is left.
//!
//! [`mod@look`] says from rows alone what is to be done; here it is done, in one event for all
//! nodes while none of them makes it fail. What is marked for migration the scheduler stops and
//! places elsewhere; a drain is complete when the clients have reported that everything ended, or a
//! while after its deadline.

pub mod look;

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

use self::look::{Steps, look};
use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::Command;
use crate::commands::node::CompleteDrains;
use crate::error::Refusal;

/// The longest sleep between two looks while nothing drains.
const LONGEST: Duration = Duration::from_secs(60);
/// What happens within this time is dealt with together.
const TOGETHER: Duration = Duration::from_millis(100);
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
    /// Whether a step was refused.
    failed: bool,
    /// Whether anything that changed concerns a drain.
    concerns: bool,
    /// How often it was looked.
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
        self.concerns = true;
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
            self.concerns |= match drains {
                true => {
                    self.draining.insert(id.into_string());
                    true
                }
                false => self.draining.remove(id.as_str()),
            };
        } else if let Some(id) = row.key_of::<Allocs>()
            && !self.draining.is_empty()
            && !self.concerns
        {
            let alloc = each.look(id.as_str(), || view.get::<Allocs>(id.as_str()));
            self.concerns = alloc.flatten().is_none_or(|alloc| {
                self.draining.contains(&alloc.node_id)
                    || self
                        .movable
                        .contains(&(alloc.namespace.clone(), alloc.job_id.clone()))
            });
        }
        Ok(())
    }
}

/// Looks at the nodes that drain, where something happened that concerns them.
fn look_at(
    projections: &Projections,
    mut known: DrainCache,
    wall: i64,
) -> Result<(DrainCache, Steps, Each), StorageError> {
    let view = projections.view();
    let mut each = Each::default();
    known.concerns = false;
    known.refresh(projections, &view, &mut each)?;
    let concerns = known.concerns;
    let is_due = known.failed || known.next.is_some_and(|next| next <= wall);
    if known.draining.is_empty() || !(concerns || is_due) {
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
    let steps = look(&view, &nodes, wall, &mut each);
    known.next = steps.next;
    known.movable.clone_from(&steps.movable);
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

    async fn fails(&self, context: &Context, command: impl Command) -> Option<Refusal> {
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
            let projections = Arc::clone(&context.projections);
            // Where the look fails everything is read anew.
            let known = std::mem::take(&mut *self.known.lock());
            let looked = move || look_at(&projections, known, wall);
            let (known, steps, mut each) = tokio::task::spawn_blocking(looked).await??;
            let mut status = serde_json::json!({
                "Draining": known.draining.len(),
                "Marked": steps.moves.transitions.len(),
                "Completed": steps.done.len(),
            });
            *self.known.lock() = known;
            let next = steps.next;
            self.take(context, steps, &mut each).await;
            self.known.lock().failed = each.failed() > 0;
            let sleep = match (each.failed(), next) {
                (0, None) => LONGEST,
                (0, Some(next)) => {
                    let left = next.saturating_sub(wall).max(0).unsigned_abs();
                    Duration::from_nanos(left).min(LONGEST)
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
