//! What the drainer does about allocations. Setting, changing and ending drains is in
//! [`super::node`].

use std::collections::{BTreeMap, BTreeSet};

use drover_events::alloc::AllocsDesiredTransitionUpdated;
use drover_events::model::{DesiredTransition, Evaluation};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::nodes::Nodes;
use drover_projections::{Reply, View};

use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// Allocations on draining nodes are to move. Where one of the nodes has changed since, its drain
/// may have ended: those on it stay for now.
#[derive(Clone, Debug, Default)]
pub struct DrainAllocs {
    /// The nodes they are on, each with the modify index of its description at which that was
    /// decided.
    pub nodes: BTreeMap<String, u64>,
    /// What is wished, by allocation.
    pub transitions: BTreeMap<String, DesiredTransition>,
    /// An evaluation of each job.
    pub evals: Vec<Evaluation>,
}

impl Command for DrainAllocs {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let mut guards = Vec::with_capacity(self.nodes.len());
        let mut changed = BTreeSet::new();
        for (id, index) in &self.nodes {
            if view.modify_index::<Nodes>(id.as_str())? == Some(*index) {
                guards.push(view.guard::<Nodes>(id.as_str())?);
            } else {
                changed.insert(id.as_str());
            }
        }
        let mut transitions = self.transitions.clone();
        if !changed.is_empty() {
            for id in self.transitions.keys() {
                let alloc = view.get::<Allocs>(id.as_str())?;
                if alloc.is_none_or(|alloc| changed.contains(alloc.node_id.as_str())) {
                    transitions.remove(id);
                }
            }
        }
        if transitions.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        let mut evals = self.evals.clone();
        for eval in &mut evals {
            eval.create_time = stamp.now;
            eval.modify_time = stamp.now;
        }
        let updated = AllocsDesiredTransitionUpdated {
            transitions,
            evals,
            updated_at: stamp.now,
        };
        Ok(Decision::guarded(updated, guards))
    }

    /// What moves follows from the drains; with several drains, from the first.
    fn cause(&self, _: &View) -> Option<u64> {
        self.nodes.values().copied().min()
    }
}
