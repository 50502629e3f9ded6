//! The drainer: moves what runs on draining nodes, and says when nothing is left (scheduler.md 8).
//!
//! [`mod@look`] says from rows alone what is to be done; here it is done, in one event for all
//! nodes. What is marked for migration the scheduler stops and places elsewhere; a drain is
//! complete when the clients have reported that everything ended.

pub mod look;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::Node;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::nodes::Nodes;
use drover_projections::{Followed, Interest, Projections, Scan, StorageError, Table, View};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use self::look::{Steps, look};
use super::driver::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::Command;
use crate::commands::node::CompleteDrains;

/// The longest sleep between two looks while nothing drains.
const LONGEST: Duration = Duration::from_secs(60);
/// What happens within this time is dealt with together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How many drains end in one event.
const BATCH: usize = 256;

/// The drainer.
#[derive(Debug, Default)]
pub struct Drainer {
    known: Mutex<Known>,
}

/// What is known of drains: a cache of the view.
#[derive(Clone, Debug, Default)]
struct Known {
    followed: Option<Followed>,
    draining: BTreeSet<String>,
    /// The jobs of which something may move, at the last look.
    movable: BTreeSet<(String, String)>,
    /// When it is to be looked again whatever happens, Unix nanoseconds.
    next: Option<i64>,
    /// Whether a step was refused.
    failed: bool,
    /// How often it was looked.
    looks: usize,
}

impl Known {
    /// Reads what changed; says whether anything of it concerns a drain.
    fn refresh(&mut self, projections: &Projections, view: &View) -> Result<bool, StorageError> {
        let followed = self
            .followed
            .get_or_insert_with(|| projections.follow(&[Nodes::ID, Allocs::ID]));
        let Some(changed) = followed.take(view) else {
            self.draining.clear();
            for node in view.scan::<Nodes>(Scan::all()) {
                let drained = Some(node?).filter(Node::draining);
                self.draining.extend(drained.map(|node| node.id));
            }
            return Ok(true);
        };
        let mut concerns = false;
        for id in changed.iter().filter_map(|row| row.key_of::<Nodes>()) {
            let node = view.get::<Nodes>(id.as_str())?;
            let drains = node.is_some_and(|node| node.draining());
            concerns |= match drains {
                true => {
                    self.draining.insert(id.into_string());
                    true
                }
                false => self.draining.remove(id.as_str()),
            };
        }
        if self.draining.is_empty() {
            return Ok(concerns);
        }
        for id in changed.iter().filter_map(|row| row.key_of::<Allocs>()) {
            if concerns {
                break;
            }
            let alloc = view.get::<Allocs>(id.as_str())?;
            concerns = alloc.is_none_or(|alloc| {
                self.draining.contains(&alloc.node_id)
                    || self
                        .movable
                        .contains(&(alloc.namespace.clone(), alloc.job_id.clone()))
            });
        }
        Ok(concerns)
    }
}

/// Looks at the nodes that drain, where something happened that concerns them.
fn look_at(
    projections: &Projections,
    mut known: Known,
    wall: i64,
) -> Result<(Known, Steps), StorageError> {
    let view = projections.view();
    let concerns = known.refresh(projections, &view)?;
    let is_due = known.failed || known.next.is_some_and(|next| next <= wall);
    if known.draining.is_empty() || !(concerns || is_due) {
        known.next = known.next.filter(|_| !known.draining.is_empty());
        let steps = Steps {
            next: known.next,
            ..Steps::default()
        };
        return Ok((known, steps));
    }
    known.looks += 1;
    let mut nodes = Vec::with_capacity(known.draining.len());
    for id in &known.draining {
        let node = view.get::<Nodes>(id.as_str())?;
        nodes.extend(node.filter(Node::draining));
    }
    let steps = look(&view, &nodes, wall)?;
    known.next = steps.next;
    known.movable.clone_from(&steps.movable);
    Ok((known, steps))
}

impl Drainer {
    /// Does what is to be done. What is refused is looked at anew the next time.
    async fn take(&self, context: &Context, steps: &Steps) -> usize {
        let mut commands: Vec<Arc<dyn Command>> = Vec::new();
        if !steps.moves.transitions.is_empty() {
            commands.push(Arc::new(steps.moves.clone()));
        }
        for nodes in steps.done.chunks(BATCH) {
            let nodes = nodes.to_vec();
            commands.push(Arc::new(CompleteDrains { nodes }));
        }
        let mut failed = 0;
        for command in commands {
            if let Err(error) = context.proposer.submit(command, self.name()).await {
                tracing::warn!(%error, "a step of a drain was refused");
                failed += 1;
            }
        }
        failed
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
            let (known, steps) = tokio::task::spawn_blocking(looked).await??;
            let draining = known.draining.len();
            *self.known.lock() = known;
            let failed = self.take(context, &steps).await;
            self.known.lock().failed = failed > 0;
            let sleep = match (failed, steps.next) {
                (0, None) => LONGEST,
                (0, Some(next)) => {
                    let left = next.saturating_sub(wall).max(0).unsigned_abs();
                    Duration::from_nanos(left).min(LONGEST)
                }
                _ => Duration::from_secs(1),
            };
            let status = serde_json::json!({
                "Draining": draining,
                "Marked": steps.moves.transitions.len(),
                "Completed": steps.done.len(),
                "Failed": failed,
            });
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "drainer_test.rs"]
mod tests;
