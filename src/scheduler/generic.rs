//! Service and batch jobs: what the reconciler wants, given places by the search.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::model::status::{
    ALL_NODE_POOL, ClientStatus, DeploymentStatus, NodeStatus, algorithm, client, desired,
    job_type, node,
};
use drover_events::model::{
    AllocDeploymentStatus, AllocMetric, Allocation, Deployment, Evaluation, Job, PlanAnnotations,
    TaskGroup,
};

use super::cluster::{Cluster, Demand, demand_of, takes_resources};
use super::evals::{self, Progress};
use super::outcome::{Inputs, Outcome, Placement, Plan};
use super::rank::{PlacementRequest, Selection, Stack, StackOptions, add_exhausted};
use super::reconcile::{
    self, Alloc, Input, NodeState, Place, Reconciled, next_tracker, penalty_nodes,
};
use super::rng::Rng;
use super::searches::{Former, Searches};
use super::state::{ReadError, StateView};

/// The least number of candidates where affinities or spreads are weighed.
const WIDE_LIMIT: usize = 100;

/// Runs one evaluation of a service or batch job.
pub(super) fn schedule(
    view: &dyn StateView,
    eval: &Evaluation,
    inputs: &Inputs,
    explained: bool,
) -> Result<Outcome, ReadError> {
    let job = view.job(&eval.namespace, &eval.job_id)?;
    let allocs = view.allocs_of_job(&eval.namespace, &eval.job_id)?;
    let batch = eval.r#type == job_type::BATCH;
    let deployment = if batch {
        None
    } else {
        view.latest_deployment(&eval.namespace, &eval.job_id)?
    };
    let versions = match &job {
        Some(job) => former_versions(view, job, &allocs, deployment.as_ref())?,
        None => Vec::new(),
    };
    let nodes = node_states(view.cluster(), &allocs);
    let mut rng = Rng::new(inputs.seed);
    let search_job = job.clone().filter(|job| !job.stop).unwrap_or_default();
    let of_version = |job: &Arc<Job>| -> Result<Former, ReadError> {
        Ok((Arc::clone(job), options(view, job, batch, inputs)?))
    };
    let former = versions.iter().map(of_version);
    let former = former.collect::<Result<Vec<_>, _>>()?;
    let live = allocs.iter().filter(|alloc| takes_resources(alloc));
    let live = live.map(|alloc| (alloc.node_id.clone(), alloc.task_group.clone()));
    let own = of_version(&search_job)?;
    let cluster = view.cluster();
    let mut searches = Searches::new(cluster, own, &former, live.collect(), explained);
    let groups = job.iter().flat_map(|job| &job.task_groups);
    let groups: Vec<String> = groups.map(|group| group.name.clone()).collect();
    let reconciled = {
        let stack = searches.own();
        let mut in_place = |alloc: &Alloc, job: &Arc<Job>, group: &TaskGroup| {
            updated(stack, eval, alloc, job, group)
        };
        let input = Input {
            job: job.as_ref(),
            allocs: allocs.clone(),
            deployment,
            former: versions.last().cloned(),
            nodes,
            eval,
            batch,
            now: inputs.now,
        };
        reconcile::reconcile(input, &mut in_place, &mut rng)
    };
    let mut attempt = Attempt {
        eval,
        inputs,
        job: search_job,
        searches,
        without: BTreeSet::new(),
        rng,
        plan: Plan::default(),
        progress: Progress::default(),
        deployment_id: String::new(),
        versions,
    };
    attempt.plan.all_at_once = attempt.job.all_at_once;
    let lost: Vec<Alloc> = allocs
        .into_iter()
        .filter(|a| stopped_but_running_on_lost(view.cluster(), a))
        .collect();
    attempt.mark_lost(lost);
    Ok(attempt.finish(groups, reconciled))
}

pub(super) fn options(
    view: &dyn StateView,
    job: &Job,
    batch: bool,
    inputs: &Inputs,
) -> Result<StackOptions, ReadError> {
    let config = view.config()?;
    let pool = view
        .node_pool(&job.node_pool)?
        .and_then(|p| p.scheduler_configuration);
    let of_pool = pool.as_ref().map(|p| p.scheduler_algorithm.as_str());
    let algorithm = of_pool
        .filter(|a| !a.is_empty())
        .unwrap_or(config.scheduler_algorithm.as_str());
    let oversubscription = pool
        .as_ref()
        .and_then(|p| p.memory_oversubscription_enabled)
        .unwrap_or(config.memory_oversubscription_enabled);
    let wide = usize::try_from(config.node_limit_for_feasibility_checks).unwrap_or(0);
    Ok(StackOptions {
        spread: algorithm == algorithm::SPREAD,
        oversubscription,
        wide_limit: if wide == 0 { WIDE_LIMIT } else { wide },
        batch,
        seed: inputs.seed,
    })
}

/// The states of the nodes that allocations are on, where something is wrong with them.
pub(super) fn node_states(cluster: &Cluster, allocs: &[Alloc]) -> BTreeMap<String, NodeState> {
    let ids: BTreeSet<&str> = allocs.iter().map(|a| a.node_id.as_str()).collect();
    let mut states = BTreeMap::new();
    for id in ids {
        let state = match cluster.node(id) {
            None => NodeState::Gone,
            Some(info) => match info.node.status() {
                Some(NodeStatus::Down) => NodeState::Down,
                Some(NodeStatus::Disconnected) => NodeState::Disconnected,
                Some(NodeStatus::Init | NodeStatus::Ready) | None
                    if info.node.drain_strategy.is_some() =>
                {
                    NodeState::Draining
                }
                Some(NodeStatus::Init | NodeStatus::Ready) | None => continue,
            },
        };
        states.insert(id.to_owned(), state);
    }
    states
}

/// Stopped by the server, still running for the client, and the node is lost: its end will never be
/// reported.
fn stopped_but_running_on_lost(cluster: &Cluster, alloc: &Allocation) -> bool {
    let open = match alloc.client() {
        Some(ClientStatus::Pending | ClientStatus::Running | ClientStatus::Unknown) => true,
        Some(ClientStatus::Complete | ClientStatus::Failed | ClientStatus::Lost) | None => false,
    };
    let lost = cluster
        .node(&alloc.node_id)
        .is_none_or(|info| info.node.status == node::DOWN);
    alloc.server_terminal() && open && lost
}

/// The versions before the job's own that its allocations ran, oldest first, but for those that
/// were only ever tried out. Where canaries are out and no such allocation is left, the newest
/// that was stable.
fn former_versions(
    view: &dyn StateView,
    job: &Job,
    allocs: &[Alloc],
    deployment: Option<&Deployment>,
) -> Result<Vec<Arc<Job>>, ReadError> {
    let mut versions: BTreeMap<u64, Arc<Job>> = BTreeMap::new();
    let ran = allocs.iter().filter(|alloc| !alloc.is_canary());
    let older = ran.filter_map(|alloc| alloc.job.as_ref());
    for job in older.filter(|own| own.version < job.version) {
        versions
            .entry(job.version)
            .or_insert_with(|| Arc::clone(job));
    }
    let unsettled = deployment.is_some_and(|deployment| {
        let mut states = deployment.task_groups.values();
        matches!(
            deployment.status(),
            Some(DeploymentStatus::Paused | DeploymentStatus::Failed)
        ) || states.any(|state| state.desired_canaries > 0 && !state.promoted)
    });
    if unsettled && versions.is_empty() {
        let stable = view.stable_before(&job.namespace, &job.id, job.version)?;
        versions.extend(stable.map(|job| (job.version, job)));
    }
    Ok(versions.into_values().collect())
}

/// An allocation as it would be with a new version of its job, if the search says that it may stay
/// where it is.
pub(super) fn updated(
    stack: &mut Stack<'_>,
    eval: &Evaluation,
    alloc: &Alloc,
    job: &Arc<Job>,
    group: &TaskGroup,
) -> Option<Allocation> {
    let cluster = stack.cluster();
    let slot = cluster.find(&alloc.node_id)?;
    let info = cluster.slot(slot).info.as_ref()?;
    let in_datacenter = job
        .datacenters
        .iter()
        .any(|pattern| super::feasible::glob_matches(pattern, &info.node.datacenter));
    let in_pool = job.node_pool == ALL_NODE_POOL || job.node_pool == info.node.node_pool;
    if !in_datacenter || !in_pool {
        return None;
    }
    let wanted = PlacementRequest {
        group: &group.name,
        name: &alloc.name,
    };
    stack.fits_in_place(wanted, slot, &demand_of(alloc))?;
    let mut given = stack.given(&group.name)?.clone();
    if let Some(before) = &alloc.allocated_resources {
        for (name, task) in given.tasks.iter_mut() {
            if let Some(before) = before.tasks.get(name) {
                task.networks.clone_from(&before.networks);
                task.devices.clone_from(&before.devices);
                if !before.cpu.reserved_cores.is_empty() {
                    task.cpu.clone_from(&before.cpu);
                }
            }
        }
        given.shared.ports.clone_from(&before.shared.ports);
        given.shared.networks.clone_from(&before.shared.networks);
    }
    let mut updated = Allocation::clone(alloc);
    updated.eval_id.clone_from(&eval.id);
    updated.allocated_resources = Some(given);
    updated.job = None;
    Some(updated)
}

/// What an allocation takes that stays where it is: its volumes stay with it.
pub(super) fn kept_volumes(demand: Demand, before: &Demand) -> Demand {
    Demand {
        volumes: before.volumes.clone(),
        ..demand
    }
}

/// One evaluation in the making.
struct Attempt<'a> {
    eval: &'a Evaluation,
    inputs: &'a Inputs,
    job: Arc<Job>,
    searches: Searches<'a>,
    /// Groups of a version of the job for which no place was found.
    without: BTreeSet<(String, u64)>,
    rng: Rng,
    plan: Plan,
    progress: Progress,
    deployment_id: String,
    versions: Vec<Arc<Job>>,
}

impl Attempt<'_> {
    fn mark_lost(&mut self, lost: Vec<Alloc>) {
        for alloc in lost {
            let description = "alloc is lost since its node is down";
            self.plan.stops.push(super::outcome::Stop {
                alloc,
                description,
                client_status: client::LOST,
                followup_eval_id: String::new(),
                alloc_states: None,
                reschedule_tracker: None,
            });
        }
    }

    /// `groups` are the job's own: one that is stopped wants nothing any more.
    fn finish(mut self, groups: Vec<String>, reconciled: Reconciled) -> Outcome {
        let Reconciled {
            place,
            destructive,
            stop,
            in_place,
            attributes,
            deployment,
            current_deployment,
            deployment_updates,
            desired,
            follow_ups,
        } = reconciled;
        if let Some(current) = &current_deployment {
            self.deployment_id.clone_from(&current.id);
        }
        for one in stop {
            self.free(&one.alloc);
            self.plan.stops.push(one);
        }
        self.change(in_place, attributes);
        self.plan.deployment = deployment;
        self.plan.deployment_updates = deployment_updates;
        self.progress
            .queued
            .extend(groups.into_iter().map(|group| (group, 0)));
        for replace in &destructive {
            *self
                .progress
                .queued
                .entry(replace.old.task_group.clone())
                .or_default() += 1;
        }
        for one in &place {
            *self.progress.queued.entry(one.group.clone()).or_default() += 1;
        }
        for replace in destructive {
            self.replace(replace.old);
        }
        for one in place {
            self.place(one);
        }
        self.progress.annotations = Some(PlanAnnotations {
            desired_tg_updates: desired.clone().into(),
            ..Default::default()
        });
        self.progress.classes = self.searches.class_eligibility();
        self.progress.escaped = self.searches.escaped();
        self.progress.deployment_id = self.deployment_id.clone();
        let (finished, blocked) =
            evals::finish(self.eval, self.inputs, &self.progress, &mut self.rng);
        Outcome {
            plan: self.plan,
            finished,
            follow_ups,
            blocked,
            next: None,
            desired,
            failed: self.progress.failed,
            searches: self.searches.take_searches(),
        }
    }

    fn free(&mut self, alloc: &Alloc) {
        if takes_resources(alloc) {
            let demand = demand_of(alloc);
            self.searches
                .stop(&alloc.node_id, &alloc.task_group, &demand);
        }
    }

    fn change(&mut self, in_place: Vec<(Alloc, Allocation)>, attributes: Vec<(Alloc, Allocation)>) {
        for (before, mut after) in in_place {
            let old = demand_of(&before);
            let demand = kept_volumes(demand_of(&after), &old);
            self.searches
                .stop(&before.node_id, &before.task_group, &old);
            self.searches
                .add(&before.node_id, &before.task_group, &demand);
            if !self.deployment_id.is_empty() && after.deployment_id != self.deployment_id {
                after.deployment_id.clone_from(&self.deployment_id);
                after.deployment_status = None;
            }
            self.plan.placements.push(Placement {
                alloc: after,
                job_modify_index: self.job.job_modify_index,
                demand,
                replaces: takes_resources(&before).then_some(old),
            });
        }
        for (before, mut after) in attributes {
            let job_modify_index = before.job.as_ref().map_or(0, |job| job.job_modify_index);
            after.job = None;
            let old = demand_of(&before);
            let demand = match takes_resources(&after) {
                true => kept_volumes(demand_of(&after), &old),
                false => Demand::default(),
            };
            let replaces = takes_resources(&before).then_some(old);
            self.plan.placements.push(Placement {
                alloc: after,
                job_modify_index,
                demand,
                replaces,
            });
        }
    }

    /// The old one stops and its resources are used, unless no place is found for the new one.
    fn replace(&mut self, old: Alloc) {
        let demand = demand_of(&old);
        let live = takes_resources(&old);
        if live {
            self.searches.stop(&old.node_id, &old.task_group, &demand);
        }
        let wanted = Place {
            name: old.name.clone(),
            group: old.task_group.clone(),
            previous: Some(Alloc::clone(&old)),
            ..Place::default()
        };
        if self.place(wanted) {
            self.plan.stops.push(super::outcome::Stop {
                alloc: old,
                description: "alloc is being updated due to job update",
                client_status: "",
                followup_eval_id: String::new(),
                alloc_states: None,
                reschedule_tracker: None,
            });
        } else if live {
            self.searches.add(&old.node_id, &old.task_group, &demand);
        }
    }

    /// Looks for a place; answers whether there was one.
    fn place(&mut self, wanted: Place) -> bool {
        let job = self.version_for(&wanted);
        let Some(group) = job.task_groups.iter().find(|g| g.name == wanted.group) else {
            return false;
        };
        let version = (wanted.group.clone(), job.version);
        if self.failed_before(&version, group) {
            self.note_no_place(&wanted);
            return false;
        }
        let (penalty, preferred) = self.preferences(&wanted, group);
        let sought = PlacementRequest {
            group: &wanted.group,
            name: &wanted.name,
        };
        let selection = self.searches.select(&job, sought, &penalty, preferred);
        let Selection { choice, metric } = selection;
        let Some(choice) = choice else {
            self.fail(version, group, metric);
            self.note_no_place(&wanted);
            return false;
        };
        let cluster = self.searches.cluster();
        let Some(info) = &cluster.slot(choice.slot).info else {
            return false;
        };
        let mut alloc = Allocation {
            id: self.rng.uuid(),
            namespace: self.eval.namespace.clone(),
            eval_id: self.eval.id.clone(),
            name: wanted.name,
            node_id: info.node.id.clone(),
            node_name: info.node.name.clone(),
            job_id: self.eval.job_id.clone(),
            task_group: wanted.group,
            allocated_resources: Some(choice.resources),
            metrics: Some(metric),
            desired_status: desired::RUN.to_owned(),
            client_status: client::PENDING.to_owned(),
            deployment_id: self.deployment_of(&job, wanted.previous.as_ref()),
            ..Allocation::default()
        };
        if wanted.canary && !self.deployment_id.is_empty() {
            alloc.deployment_status = Some(AllocDeploymentStatus {
                canary: true,
                ..Default::default()
            });
            self.note_canary(&alloc);
        }
        if let Some(previous) = &wanted.previous {
            alloc.previous_allocation.clone_from(&previous.id);
            let kept = previous.reschedule_tracker.clone();
            alloc.reschedule_tracker = match wanted.reschedule {
                true => Some(next_tracker(previous, self.inputs.now)),
                false => kept.filter(|_| wanted.lost),
            };
        }
        self.searches
            .add(&alloc.node_id, &alloc.task_group, &choice.demand);
        if let Some(queued) = self.progress.queued.get_mut(&alloc.task_group) {
            *queued -= 1;
        }
        self.plan.placements.push(Placement {
            alloc,
            job_modify_index: job.job_modify_index,
            demand: choice.demand,
            replaces: None,
        });
        true
    }

    /// Whether a group of a version found no place before; then it is counted once more.
    fn failed_before(&mut self, version: &(String, u64), group: &TaskGroup) -> bool {
        let known = self.progress.failed.get_mut(&version.0);
        let Some(metric) = known.filter(|_| self.without.contains(version)) else {
            return false;
        };
        metric.coalesced_failures += 1;
        add_exhausted(metric, group);
        true
    }

    /// Notes that a group of a version finds no place. Of two versions the first one gives the
    /// reason; the other is counted.
    fn fail(&mut self, version: (String, u64), group: &TaskGroup, mut metric: AllocMetric) {
        match self.progress.failed.entry(version.0.clone()) {
            Entry::Vacant(entry) => {
                add_exhausted(&mut metric, group);
                entry.insert(metric);
            }
            Entry::Occupied(mut known) => {
                known.get_mut().coalesced_failures += 1;
                add_exhausted(known.get_mut(), group);
            }
        }
        // Where each allocation has volumes of its own, one without a place says nothing of the
        // next.
        if !group.volumes.values().any(|volume| volume.per_alloc) {
            self.without.insert(version);
        }
    }

    /// The deployment of a new allocation. What runs a former version is no part of this one's.
    fn deployment_of(&self, job: &Job, previous: Option<&Alloc>) -> String {
        match job.version == self.job.version {
            true => self.deployment_id.clone(),
            false => previous.map_or_else(String::new, |one| one.deployment_id.clone()),
        }
    }

    /// While canaries are out, what replaces an old allocation runs the old version.
    fn version_for(&self, wanted: &Place) -> Arc<Job> {
        if wanted.downgrade {
            let older =
                self.versions.iter().rev().find(|job| {
                    job.version >= wanted.min_version && job.version < self.job.version
                });
            if let Some(older) = older {
                return Arc::clone(older);
            }
        }
        Arc::clone(&self.job)
    }

    fn preferences(&self, wanted: &Place, group: &TaskGroup) -> (BTreeSet<u32>, Option<u32>) {
        let Some(previous) = &wanted.previous else {
            return Default::default();
        };
        let cluster = self.searches.cluster();
        let mut penalty = BTreeSet::new();
        if wanted.reschedule {
            penalty = penalty_nodes(previous)
                .into_iter()
                .filter_map(|node| cluster.find(node))
                .collect();
        }
        let sticky = group
            .ephemeral_disk
            .as_ref()
            .is_some_and(|disk| disk.sticky);
        let preferred = cluster.find(&previous.node_id).filter(|slot| {
            sticky
                && cluster
                    .slot(*slot)
                    .info
                    .as_ref()
                    .is_some_and(|info| info.ready)
        });
        (penalty, preferred)
    }

    /// A failed allocation for which no successor found a place is noted as such.
    fn note_no_place(&mut self, wanted: &Place) {
        let Some(previous) = wanted.previous.as_ref().filter(|_| wanted.reschedule) else {
            return;
        };
        let mut tracker = previous.reschedule_tracker.clone().unwrap_or_default();
        tracker.last_reschedule = "no placement".to_owned();
        let stop = self
            .plan
            .stops
            .iter_mut()
            .find(|stop| stop.alloc.id == previous.id);
        if let Some(stop) = stop {
            stop.reschedule_tracker = Some(tracker);
        }
    }

    fn note_canary(&mut self, alloc: &Allocation) {
        let Some(deployment) = &mut self.plan.deployment else {
            return;
        };
        if let Some(state) = deployment.task_groups.get_mut(&alloc.task_group) {
            state.placed_canaries.push(alloc.id.clone());
        }
    }
}
