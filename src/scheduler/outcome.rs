//! What a decision is made from, and its outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::model::{
    AllocMetric, AllocState, Allocation, Deployment, DeploymentStatusUpdate, DesiredUpdates,
    Evaluation, RescheduleTracker,
};
use drover_events::plan::{DecisionInputs, StoppedAlloc};

use super::cluster::Demand;
use super::rank::Search;

/// The version of the scheduler's rules. It goes up with every change that can alter a decision.
pub const SCHEDULER_VERSION: u32 = 9;

/// What a decision depends on beside the state: with the same state and these, it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// The index of the state.
    pub snapshot_index: u64,
    /// Unix nanoseconds.
    pub now: i64,
    /// Where the pseudo-random choices begin.
    pub seed: u64,
    /// The version of the rules.
    pub scheduler_version: u32,
}

/// What the event keeps of them.
impl From<Inputs> for DecisionInputs {
    fn from(inputs: Inputs) -> Self {
        Self {
            snapshot_index: inputs.snapshot_index,
            now: inputs.now,
            seed: inputs.seed,
            scheduler_version: inputs.scheduler_version,
        }
    }
}

/// An allocation that the plan stops.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The allocation as it is.
    pub alloc: Arc<Allocation>,
    /// Why, in Nomad's words.
    pub description: &'static str,
    /// `lost`, `unknown`, or empty for as it is.
    pub client_status: &'static str,
    /// The evaluation that will replace it later.
    pub followup_eval_id: String,
    /// Its history of statuses, when the plan adds to it.
    pub alloc_states: Option<Vec<AllocState>>,
    /// Its history of reschedules, when the plan changes it.
    pub reschedule_tracker: Option<RescheduleTracker>,
}

/// The stop as the event has it.
impl From<Stop> for StoppedAlloc {
    fn from(stop: Stop) -> Self {
        Self {
            id: stop.alloc.id.clone(),
            desired_description: stop.description.to_owned(),
            client_status: stop.client_status.to_owned(),
            followup_eval_id: stop.followup_eval_id,
            alloc_states: stop.alloc_states,
            reschedule_tracker: stop.reschedule_tracker,
        }
    }
}

/// An allocation that the plan writes: a new one, or one that exists and changes in place.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The allocation, without its job.
    pub alloc: Allocation,
    /// The `JobModifyIndex` of the version of the job it runs.
    pub job_modify_index: u64,
    /// What it takes of its node.
    pub demand: Demand,
    /// What it took of the node before, for one that exists and takes resources.
    pub replaces: Option<Demand>,
}

/// What one evaluation wants to change.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Allocations that stop.
    pub stops: Vec<Stop>,
    /// Allocations that are placed or changed.
    pub placements: Vec<Placement>,
    /// Allocations that are preempted, each with the id of the one that needs its resources.
    pub preemptions: Vec<(Arc<Allocation>, String)>,
    /// The deployment that is created, or whose totals are set.
    pub deployment: Option<Deployment>,
    /// New statuses of deployments.
    pub deployment_updates: Vec<DeploymentStatusUpdate>,
    /// All or nothing.
    pub all_at_once: bool,
}

impl Plan {
    /// An allocation that is stopped or preempted is not also changed, which would undo the stop:
    /// the change is dropped, and what it adds to the history of the allocation is kept with the
    /// stop. So each allocation has one place in the plan, in whatever order its parts are
    /// committed.
    pub fn drop_overwritten_stops(&mut self) {
        let stops = self.stops.iter_mut();
        let mut stops: BTreeMap<String, &mut Stop> =
            stops.map(|stop| (stop.alloc.id.clone(), stop)).collect();
        let victims = self.preemptions.iter();
        let victims: BTreeSet<&str> = victims.map(|(victim, _)| victim.id.as_str()).collect();
        self.placements.retain(|placement| {
            let alloc = &placement.alloc;
            if let Some(stop) = stops.get_mut(&alloc.id) {
                if stop.alloc_states.is_none() && alloc.alloc_states != stop.alloc.alloc_states {
                    stop.alloc_states = Some(alloc.alloc_states.to_vec());
                }
                return false;
            }
            !victims.contains(alloc.id.as_str())
        });
    }

    /// Whether the plan changes nothing.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
            && self.placements.is_empty()
            && self.preemptions.is_empty()
            && self.deployment.is_none()
            && self.deployment_updates.is_empty()
    }
}

/// What comes of one evaluation at one state.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What changes.
    pub plan: Plan,
    /// The evaluation as it is once the plan is committed in full: complete, failed, or blocked
    /// again.
    pub finished: Evaluation,
    /// Evaluations that do the rest later; they must exist when the plan is committed.
    pub follow_ups: Vec<Evaluation>,
    /// A new blocked evaluation for what could not be placed.
    pub blocked: Option<Evaluation>,
    /// The evaluation that continues where this one came to a limit; it exists once this one is
    /// finished.
    pub next: Option<Evaluation>,
    /// What the plan means for each group.
    pub desired: BTreeMap<String, DesiredUpdates>,
    /// Why groups could not be placed in full.
    pub failed: BTreeMap<String, AllocMetric>,
    /// Every search for a place, when an explanation was requested.
    pub searches: Vec<Search>,
}
