//! What the reconciler answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::model::{
    Allocation, Deployment, DeploymentStatusUpdate, DesiredUpdates, Evaluation, Job, TaskGroup,
};

use super::Alloc;
use crate::outcome::Stop;

/// An allocation that is wanted.
#[derive(Clone, Debug, Default)]
pub struct Place {
    pub name: String,
    pub group: String,
    /// The one it takes over from.
    pub previous: Option<Alloc>,
    /// It takes over from one that failed.
    pub reschedule: bool,
    /// It takes over from one that was lost.
    pub lost: bool,
    /// It tries a new version out.
    pub canary: bool,
    /// It must run the version before, since the new one is still being tried out.
    pub downgrade: bool,
    /// The oldest version it may run.
    pub min_version: u64,
}

/// An allocation that is replaced by one of the new version.
#[derive(Clone, Debug)]
pub struct Destructive {
    /// The one that stops.
    pub old: Alloc,
}

/// Has the search for places check an update in place: the allocation as it would be with the new
/// version, if it can stay where it is.
pub type InPlace<'a> = dyn FnMut(&Alloc, &Arc<Job>, &TaskGroup) -> Option<Allocation> + 'a;

/// The differences.
#[derive(Clone, Debug, Default)]
pub struct Reconciled {
    /// Allocations to find places for.
    pub place: Vec<Place>,
    /// Allocations to replace.
    pub destructive: Vec<Destructive>,
    /// Allocations to stop.
    pub stop: Vec<Stop>,
    /// Allocations that get the new version where they are: before and after.
    pub in_place: Vec<(Alloc, Allocation)>,
    /// Allocations of which only attributes change (follow-ups, disconnects, reconnects): before
    /// and after. They keep their version of the job.
    pub attributes: Vec<(Alloc, Allocation)>,
    /// A deployment that is created.
    pub deployment: Option<Deployment>,
    /// The deployment of this version, if there is one.
    pub current_deployment: Option<Deployment>,
    /// Deployments whose status changes.
    pub deployment_updates: Vec<DeploymentStatusUpdate>,
    /// What it means for each group.
    pub desired: BTreeMap<String, DesiredUpdates>,
    /// Evaluations that do the rest later.
    pub follow_ups: Vec<Evaluation>,
}
