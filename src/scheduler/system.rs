//! System and sysbatch jobs: one allocation of every group, or as many as its count says, on every
//! node that may run it.
//!
//! Updates replace so many allocations of a group as its `max_parallel` says; the next evaluation,
//! `stagger` later, continues with the rest. They make no deployments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::model::status::{client, desired, job_type};
use drover_events::model::{
    AllocMetric, Allocation, DesiredUpdates, Evaluation, Job, PlanAnnotations, TaskGroup,
};

use super::cluster::{demand_of, takes_resources};
use super::evals::{self, Progress};
use super::generic::{kept_volumes, node_states, options, updated};
use super::outcome::{Inputs, Outcome, Placement, Plan, Stop};
use super::rank::{PlacementRequest, Stack, add_exhausted};
use super::reconcile::names::alloc_name;
use super::reconcile::{Alloc, NodeState, is_server_terminal, is_terminal, tasks_updated};
use super::rng::Rng;
use super::state::{ReadError, StateView};

const NOT_NEEDED: &str = "alloc not needed due to job update";
const LOST: &str = "alloc is lost since its node is down";
const MIGRATING: &str = "alloc is being migrated";
const TAINTED: &str = "alloc not needed as node is tainted";
const UPDATING: &str = "alloc is being updated due to job update";

/// Runs one evaluation of a system or sysbatch job.
pub(super) fn schedule(
    view: &dyn StateView,
    eval: &Evaluation,
    inputs: &Inputs,
    explained: bool,
) -> Result<Outcome, ReadError> {
    let job = view
        .job(&eval.namespace, &eval.job_id)?
        .filter(|job| !job.stop);
    let allocs = view.allocs_of_job(&eval.namespace, &eval.job_id)?;
    let search_job = job.clone().unwrap_or_default();
    let options = options(view, &search_job, true, inputs)?;
    let mut stack = Stack::new(view.cluster(), Arc::clone(&search_job), options);
    if explained {
        stack.record();
    }
    for alloc in allocs.iter().filter(|a| takes_resources(a)) {
        stack.is_live(&alloc.node_id, &alloc.task_group);
    }
    let nodes = stack.nodes().iter().copied().collect();
    let mut run = Run {
        eval,
        inputs,
        states: node_states(view.cluster(), &allocs),
        nodes,
        stack,
        rng: Rng::new(inputs.seed),
        plan: Plan::default(),
        progress: Progress::default(),
        desired: BTreeMap::new(),
        destructive: Vec::new(),
        stagger: None,
        sysbatch: eval.r#type == job_type::SYSBATCH,
        filtered: BTreeMap::new(),
        placed: BTreeMap::new(),
        job: search_job,
    };
    match job {
        Some(job) => run.whole(&job, allocs),
        None => run.stop_all(allocs),
    }
    Ok(run.finish())
}

struct Run<'a> {
    eval: &'a Evaluation,
    inputs: &'a Inputs,
    job: Arc<Job>,
    stack: Stack<'a>,
    /// The nodes the job may run on.
    nodes: BTreeSet<u32>,
    states: BTreeMap<String, NodeState>,
    rng: Rng,
    plan: Plan,
    progress: Progress,
    desired: BTreeMap<String, DesiredUpdates>,
    destructive: Vec<Alloc>,
    /// How long what an update may not replace yet has to wait.
    stagger: Option<i64>,
    sysbatch: bool,
    filtered: BTreeMap<String, AllocMetric>,
    placed: BTreeMap<String, u32>,
}

/// What one existing allocation comes to.
enum AllocDisposition {
    /// It stays, and holds its place.
    Stays,
    /// It is over and holds no place.
    Over,
    Stops(&'static str, &'static str),
    /// It is of another version.
    Changes,
}

impl Run<'_> {
    fn desired(&mut self, group: &str) -> &mut DesiredUpdates {
        self.desired.entry(group.to_owned()).or_default()
    }

    fn stop(&mut self, alloc: Alloc, status: &'static str, description: &'static str) {
        if takes_resources(&alloc) {
            self.stack
                .stop(&alloc.node_id, &alloc.task_group, &demand_of(&alloc));
        }
        self.plan.stops.push(Stop {
            alloc,
            description,
            client_status: status,
            followup_eval_id: String::new(),
            alloc_states: None,
            reschedule_tracker: None,
        });
    }

    fn stop_all(&mut self, allocs: Vec<Alloc>) {
        for alloc in allocs.into_iter().filter(|a| !is_server_terminal(a)) {
            self.desired(&alloc.task_group).stop += 1;
            let lost =
                self.state(&alloc) == NodeState::Down || self.state(&alloc) == NodeState::Gone;
            let status = if lost && !is_terminal(&alloc) {
                client::LOST
            } else {
                ""
            };
            self.stop(alloc, status, NOT_NEEDED);
        }
    }

    fn state(&self, alloc: &Allocation) -> NodeState {
        self.states.get(&alloc.node_id).copied().unwrap_or_default()
    }

    fn whole(&mut self, job: &Arc<Job>, allocs: Vec<Alloc>) {
        let mut taken: BTreeSet<(u32, String)> = BTreeSet::new();
        for group in &job.task_groups {
            self.desired(&group.name);
            self.progress.queued.insert(group.name.clone(), 0);
        }
        for alloc in allocs {
            let slot = self.stack.cluster().find(&alloc.node_id);
            let holds = slot.map(|slot| (slot, alloc.name.clone()));
            match self.disposition(job, &alloc, slot) {
                AllocDisposition::Stays => {
                    self.desired(&alloc.task_group).ignore += 1;
                    taken.extend(holds);
                }
                AllocDisposition::Over => {}
                AllocDisposition::Stops(status, why) => {
                    let desired = self.desired(&alloc.task_group);
                    if why == MIGRATING {
                        desired.migrate += 1;
                    } else {
                        desired.stop += 1;
                    }
                    self.stop(alloc, status, why);
                }
                AllocDisposition::Changes => {
                    taken.extend(holds);
                    self.change(job, alloc);
                }
            }
        }
        self.replace();
        let nodes: Vec<u32> = self.stack.nodes().to_vec();
        for group in &job.task_groups {
            for slot in &nodes {
                for index in 0..usize::try_from(group.count).unwrap_or(0) {
                    let name = alloc_name(&job.id, &group.name, index);
                    if taken.contains(&(*slot, name.clone())) {
                        continue;
                    }
                    self.place(group, *slot, name, None);
                }
            }
        }
    }

    fn disposition(&self, job: &Job, alloc: &Alloc, slot: Option<u32>) -> AllocDisposition {
        let same_version = alloc.job.as_ref().is_some_and(|own| {
            own.job_modify_index == job.job_modify_index && own.create_index == job.create_index
        });
        if is_server_terminal(alloc) {
            return AllocDisposition::Over;
        }
        if alloc.client_terminal() {
            let done = self.sysbatch && same_version && alloc.client_status != client::LOST;
            return if done {
                AllocDisposition::Stays
            } else {
                AllocDisposition::Over
            };
        }
        let required = job.task_groups.iter().any(|group| {
            let indexes = 0..usize::try_from(group.count).unwrap_or(0);
            group.name == alloc.task_group
                && indexes
                    .into_iter()
                    .any(|i| alloc_name(&job.id, &group.name, i) == alloc.name)
        });
        if !required {
            return AllocDisposition::Stops("", NOT_NEEDED);
        }
        // What an operator stops comes again here, by either request: a system job is not
        // rescheduled.
        let request = &alloc.desired_transition;
        let again = request.reschedule == Some(true) && request.force_reschedule == Some(true);
        if request.migrate == Some(true) || again {
            return AllocDisposition::Stops("", MIGRATING);
        }
        match self.state(alloc) {
            NodeState::Gone | NodeState::Down => {
                return AllocDisposition::Stops(client::LOST, LOST);
            }
            NodeState::Disconnected => return AllocDisposition::Stays,
            NodeState::Fine | NodeState::Draining => {}
        }
        if alloc.client_status == client::UNKNOWN {
            return AllocDisposition::Stays;
        }
        if slot.is_none_or(|slot| !self.nodes.contains(&slot)) {
            // An ineligible or draining node keeps what it has until a newer version comes.
            let ready = slot
                .and_then(|slot| self.stack.cluster().slot(slot).info.as_ref())
                .is_some_and(|info| info.ready);
            return if ready {
                AllocDisposition::Stops("", TAINTED)
            } else if same_version {
                AllocDisposition::Stays
            } else {
                AllocDisposition::Stops("", TAINTED)
            };
        }
        if same_version {
            AllocDisposition::Stays
        } else {
            AllocDisposition::Changes
        }
    }

    fn change(&mut self, job: &Arc<Job>, alloc: Alloc) {
        let Some(group) = job.task_groups.iter().find(|g| g.name == alloc.task_group) else {
            return;
        };
        let old = alloc.job.as_ref().and_then(|own| {
            Some((
                own,
                own.task_groups
                    .iter()
                    .find(|g| g.name == alloc.task_group)?,
            ))
        });
        let replaced = old.is_none_or(|(own, old)| tasks_updated(job, group, own, old));
        let updated = if replaced {
            None
        } else {
            updated(&mut self.stack, self.eval, &alloc, job, group)
        };
        let Some(updated) = updated else {
            self.destructive.push(alloc);
            return;
        };
        self.desired(&group.name).in_place_update += 1;
        let before = demand_of(&alloc);
        let after = kept_volumes(demand_of(&updated), &before);
        self.stack.stop(&alloc.node_id, &alloc.task_group, &before);
        self.stack.add(&alloc.node_id, &alloc.task_group, &after);
        self.plan.placements.push(Placement {
            alloc: updated,
            job_modify_index: job.job_modify_index,
            demand: after,
            replaces: Some(before),
        });
    }

    /// Replaces allocations of older versions, so many of each group at a time as it allows. One
    /// that says nothing of its own is updated as the job says.
    fn replace(&mut self) {
        let list = std::mem::take(&mut self.destructive);
        let job = Arc::clone(&self.job);
        let mut replaced: BTreeMap<&str, i64> = BTreeMap::new();
        for alloc in list {
            let group = job.task_groups.iter().find(|g| g.name == alloc.task_group);
            let slot = self.stack.cluster().find(&alloc.node_id);
            let (Some(group), Some(slot)) = (group, slot) else {
                continue;
            };
            let update = group.update.as_ref().unwrap_or(&job.update);
            let begun = replaced.entry(group.name.as_str()).or_default();
            if update.max_parallel > 0 && *begun >= update.max_parallel {
                self.desired(&group.name).ignore += 1;
                self.stagger = self.stagger.max(Some(update.stagger));
                continue;
            }
            *begun += 1;
            self.desired(&group.name).destructive_update += 1;
            let name = alloc.name.clone();
            self.stop(Alloc::clone(&alloc), "", UPDATING);
            self.place(group, slot, name, Some(alloc));
        }
    }

    fn place(&mut self, group: &TaskGroup, slot: u32, name: String, previous: Option<Alloc>) {
        let wanted = PlacementRequest {
            group: &group.name,
            name: &name,
        };
        let selection = self.stack.select_only(wanted, slot);
        let mut metric = selection.metric;
        let Some(choice) = selection.choice else {
            if metric.nodes_filtered > 0 {
                // A node that may not run the group does not count for it.
                let all = self.filtered.entry(group.name.clone()).or_default();
                merge(all, &metric);
                return;
            }
            *self.progress.queued.entry(group.name.clone()).or_default() += 1;
            add_exhausted(&mut metric, group);
            match self.progress.failed.get_mut(&group.name) {
                Some(known) => {
                    merge(known, &metric);
                    known.coalesced_failures += 1;
                }
                None => drop(self.progress.failed.insert(group.name.clone(), metric)),
            }
            return;
        };
        let Some(info) = &self.stack.cluster().slot(slot).info else {
            return;
        };
        if previous.is_none() {
            self.desired(&group.name).place += 1;
        }
        *self.placed.entry(group.name.clone()).or_default() += 1;
        let alloc = Allocation {
            id: self.rng.uuid(),
            namespace: self.eval.namespace.clone(),
            eval_id: self.eval.id.clone(),
            name,
            node_id: info.node.id.clone(),
            node_name: info.node.name.clone(),
            job_id: self.eval.job_id.clone(),
            task_group: group.name.clone(),
            allocated_resources: Some(choice.resources),
            metrics: Some(metric),
            desired_status: desired::RUN.to_owned(),
            client_status: client::PENDING.to_owned(),
            previous_allocation: previous.map(|p| p.id.clone()).unwrap_or_default(),
            ..Allocation::default()
        };
        self.stack
            .add(&alloc.node_id, &alloc.task_group, &choice.demand);
        self.plan.placements.push(Placement {
            alloc,
            job_modify_index: self.job.job_modify_index,
            demand: choice.demand,
            replaces: None,
        });
    }

    fn finish(mut self) -> Outcome {
        // Only where every node was filtered out and nothing runs is that a failure.
        for (group, metric) in std::mem::take(&mut self.filtered) {
            let runs = self.placed.contains_key(&group)
                || self
                    .desired
                    .get(&group)
                    .is_some_and(|d| d.ignore + d.in_place_update > 0);
            if !runs && !self.progress.failed.contains_key(&group) {
                self.progress.failed.insert(group, metric);
            }
        }
        let annotations = PlanAnnotations {
            desired_tg_updates: self.desired.clone().into(),
            ..PlanAnnotations::default()
        };
        self.progress.annotations = Some(annotations);
        self.progress.classes = self.stack.class_eligibility();
        self.progress.escaped = self.stack.escaped();
        let (mut finished, blocked) =
            evals::finish(self.eval, self.inputs, &self.progress, &mut self.rng);
        let next = self
            .stagger
            .map(|wait| evals::rolling(self.eval, self.inputs, wait, &mut self.rng));
        if let Some(next) = &next {
            finished.next_eval.clone_from(&next.id);
        }
        Outcome {
            plan: self.plan,
            finished,
            follow_ups: Vec::new(),
            blocked,
            next,
            desired: self.desired,
            failed: self.progress.failed,
            searches: self.stack.take_searches(),
        }
    }
}

/// Adds what was seen on another node.
fn merge(all: &mut AllocMetric, one: &AllocMetric) {
    if all.nodes_evaluated == 0 {
        *all = one.clone();
        return;
    }
    all.nodes_evaluated += one.nodes_evaluated;
    all.nodes_filtered += one.nodes_filtered;
    all.nodes_exhausted += one.nodes_exhausted;
    for (to, from) in [
        (&mut all.class_filtered, &one.class_filtered),
        (&mut all.constraint_filtered, &one.constraint_filtered),
        (&mut all.class_exhausted, &one.class_exhausted),
        (&mut all.dimension_exhausted, &one.dimension_exhausted),
    ] {
        for (key, count) in from {
            *to.to_mut().entry(key.clone()).or_default() += count;
        }
    }
}
