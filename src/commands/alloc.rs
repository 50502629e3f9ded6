//! Commands about allocations: what clients report, and what operators request.

use std::collections::BTreeMap;

use drover_events::alloc::*;
use drover_events::model::status::{NodeStatus, client, trigger};
use drover_events::model::{
    Allocation, DesiredTransition, Evaluation, Node, ReschedulePolicy, RescheduleTracker,
};
use drover_projections::apply::alloc::says_new;
use drover_projections::tables::alloc_jobs::AllocJobs;
use drover_projections::tables::allocs::{AllocRow, Allocs};
use drover_projections::tables::cluster_meta::ClusterMetaTable;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::nodes;
use drover_projections::{Reply, View};

use super::support::{eval_of, eval_of_missing};
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// A client reports what became of its allocations. Everything else in them is ignored (EV-14).
#[derive(Clone, Debug)]
pub struct UpdateAllocsFromClient {
    /// The allocations as the client sends them: id, node, and what a client may say.
    pub allocs: Vec<Allocation>,
    /// The node that calls, where that is known from its identity.
    pub caller: Option<String>,
}

/// What of a client's report is recorded.
#[derive(Debug, Default)]
pub struct ClientReport {
    /// The event, unless nothing is to be recorded.
    pub event: Option<AllocsUpdatedByClient>,
    /// The event that caused what is reported: the last one by which the servers changed the
    /// allocation (its placement, or its stop); the earliest where there are several allocations.
    /// Each update names its own.
    pub cause: Option<u64>,
}

/// Whether events may name the nodes that report.
///
/// # Errors
/// The state cannot be read.
pub fn names_nodes(view: &View) -> Result<bool, Refusal> {
    let meta = view.get::<ClusterMetaTable>(())?.unwrap_or_default();
    Ok(meta.feature_level >= REPORT_LEVEL)
}

impl Command for UpdateAllocsFromClient {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let report = self.report(view, stamp, names_nodes(view)?)?;
        let nothing = Decision::Nothing(Reply::None);
        Ok(report.event.map_or(nothing, Decision::unguarded))
    }
}

impl UpdateAllocsFromClient {
    /// What changes nothing is no event, unless it is what the node is waited for (SCH-12). What is
    /// new is copied, and nothing else.
    ///
    /// # Errors
    /// The refusal, in the words a client reads.
    pub fn report(
        &self,
        view: &View,
        stamp: &Stamp,
        names_nodes: bool,
    ) -> Result<ClientReport, Refusal> {
        let node = self.check_node(view)?;
        let is_waited_for = node.last_missed_heartbeat_index > 0
            && node.last_alloc_update_index <= node.last_missed_heartbeat_index;
        let mut updates = Vec::new();
        let mut evals: Vec<Evaluation> = Vec::new();
        let mut cause: Option<u64> = None;
        for alloc in &self.allocs {
            let Some(known) = view.get::<Allocs>(alloc.id.as_str())? else {
                continue;
            };
            if known.node_id != alloc.node_id {
                let text = format!("allocation {} is not on node {}", alloc.id, alloc.node_id);
                return Err(Refusal::by_rule(text));
            }
            let is_new = says_new(&known, alloc);
            if !is_new && (names_nodes || !is_waited_for) {
                continue;
            }
            let changed = known.alloc_modify_index;
            if is_new && changed > 0 {
                cause = Some(cause.map_or(changed, |first| first.min(changed)));
            }
            updates.push(ClientAllocUpdate {
                cause: if names_nodes { changed } else { 0 },
                ..client_update(alloc)
            });
            let id = stamp.uuid(evals.len() as u64);
            if let Some(made) = follow_up(view, &known, alloc, (id, stamp.now))? {
                let same =
                    |e: &Evaluation| (&e.namespace, &e.job_id) == (&made.namespace, &made.job_id);
                if !evals.iter().any(same) {
                    evals.push(made);
                }
            }
        }
        if updates.is_empty() && !(names_nodes && is_waited_for) {
            return Ok(ClientReport::default());
        }
        let event = AllocsUpdatedByClient {
            updates,
            evals,
            updated_at: stamp.now,
            nodes: names_nodes.then_some(node.id).into_iter().collect(),
        };
        Ok(ClientReport {
            event: Some(event),
            cause,
        })
    }

    /// The node is read from the allocations; it must be one that is in contact (SCH-09, SCH-10).
    fn check_node(&self, view: &View) -> Result<Node, Refusal> {
        let Some(first) = self.allocs.first() else {
            return Err(Refusal::by_rule("must update at least one allocation"));
        };
        if first.node_id.is_empty() {
            return Err(Refusal::by_rule(format!(
                "allocation {} has no node",
                first.id
            )));
        }
        let foreign = self
            .allocs
            .iter()
            .find(|alloc| alloc.node_id != first.node_id);
        if let Some(foreign) = foreign {
            return Err(Refusal::by_rule(format!(
                "allocations of one update must be of one node, not of {} and {}",
                first.node_id, foreign.node_id
            )));
        }
        if self
            .caller
            .as_ref()
            .is_some_and(|caller| *caller != first.node_id)
        {
            return Err(Refusal::permission_denied());
        }
        let node = nodes::get(view, &first.node_id)?
            .ok_or_else(|| Refusal::by_rule(format!("node {} not found", first.node_id)))?;
        if matches!(
            node.status(),
            Some(NodeStatus::Down | NodeStatus::Disconnected)
        ) {
            return Err(Refusal::by_rule(format!(
                "node {} is not allowed to update allocs while in status {}",
                node.id, node.status
            )));
        }
        Ok(node)
    }
}

/// Takes out of a client's allocation what a client may say.
fn client_update(alloc: &Allocation) -> ClientAllocUpdate {
    ClientAllocUpdate {
        id: alloc.id.clone(),
        client_status: alloc.client_status.clone(),
        client_description: alloc.client_description.clone(),
        task_states: alloc.task_states.clone().into_map(),
        network_status: alloc.network_status.clone(),
        deployment_status: alloc.deployment_status.clone(),
        cause: 0,
    }
}

/// The evaluation that an update makes necessary, if it does (EVAL-15).
fn follow_up(
    view: &View,
    known: &AllocRow,
    update: &Allocation,
    (id, now): (String, i64),
) -> Result<Option<Evaluation>, Refusal> {
    let returns = known.client_status == client::UNKNOWN && update.client_status != client::UNKNOWN;
    let ended = update.client_terminal() && !known.client_terminal();
    if !ended && !returns {
        return Ok(None);
    }
    let key = (known.namespace.as_str(), known.job_id.as_str());
    let Some(job) = view.get::<Jobs>(key)? else {
        let gone = match view.get::<AllocJobs>(&known.job_key())? {
            Some(job) => eval_of(id, &job, trigger::JOB_DEREGISTER, now),
            None => eval_of_missing(id, key, trigger::JOB_DEREGISTER, now),
        };
        return Ok(Some(gone));
    };
    let policy = job
        .task_group(&known.task_group)
        .and_then(|g| g.reschedule_policy.as_ref());
    let failed = update.client_status == client::FAILED
        && known.followup_eval_id.is_empty()
        && policy
            .is_some_and(|policy| may_reschedule(policy, known.reschedule_tracker.as_ref(), now));
    let triggered_by = match (failed, returns) {
        (true, _) => trigger::ALLOC_FAILURE,
        (false, true) => trigger::RECONNECT,
        (false, false) => return Ok(None),
    };
    Ok(Some(eval_of(id, &job, triggered_by, now)))
}

/// Whether the policy allows another attempt now.
fn may_reschedule(
    policy: &ReschedulePolicy,
    tracker: Option<&RescheduleTracker>,
    now: i64,
) -> bool {
    if policy.unlimited {
        return true;
    }
    let since = now.saturating_sub(policy.interval);
    let attempts = tracker.map_or(0, |tracker| {
        tracker
            .events
            .iter()
            .filter(|event| event.reschedule_time > since)
            .count()
    });
    policy.attempts > 0 && (attempts as i64) < policy.attempts
}

/// An operator stops an allocation; the scheduler puts another in its place.
#[derive(Clone, Debug)]
pub struct StopAlloc {
    pub alloc_id: String,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
    /// Whether it stops without the shutdown delay.
    pub no_shutdown_delay: bool,
    /// Whether it is rescheduled as if it had failed, not migrated.
    pub reschedule: bool,
}

impl Command for StopAlloc {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let known = view
            .get::<Allocs>(self.alloc_id.as_str())?
            .ok_or_else(|| Refusal::not_found("allocation not found"))?;
        let key = (known.namespace.as_str(), known.job_id.as_str());
        let job = match view.get::<Jobs>(key)? {
            Some(job) => Some(job),
            None => view.get::<AllocJobs>(&known.job_key())?,
        };
        let eval_id = self.eval_id.clone();
        let made = match &job {
            Some(job) => eval_of(eval_id, job, trigger::ALLOC_STOP, stamp.now),
            None => eval_of_missing(eval_id, key, trigger::ALLOC_STOP, stamp.now),
        };
        let request = DesiredTransition {
            migrate: Some(!self.reschedule),
            reschedule: self.reschedule.then_some(true),
            force_reschedule: self.reschedule.then_some(true),
            no_shutdown_delay: self.no_shutdown_delay.then_some(true),
            ..DesiredTransition::default()
        };
        Ok(Decision::unguarded(AllocsDesiredTransitionUpdated {
            transitions: BTreeMap::from([(self.alloc_id.clone(), request)]),
            evals: vec![made],
            updated_at: stamp.now,
        }))
    }
}

/// A reactor requests a transition of allocations (drainer, deployment watcher).
#[derive(Clone, Debug)]
pub struct UpdateDesiredTransitions {
    /// By allocation.
    pub transitions: BTreeMap<String, DesiredTransition>,
    /// The evaluations that go with it.
    pub evals: Vec<Evaluation>,
}

impl Command for UpdateDesiredTransitions {
    fn decide(&self, _view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.transitions.is_empty() && self.evals.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        let mut evals = self.evals.clone();
        for eval in &mut evals {
            eval.create_time = stamp.now;
            eval.modify_time = stamp.now;
        }
        let transitions = self.transitions.clone();
        let updated = AllocsDesiredTransitionUpdated {
            transitions,
            evals,
            updated_at: stamp.now,
        };
        Ok(Decision::unguarded(updated))
    }
}

#[cfg(test)]
#[path = "alloc_test.rs"]
mod tests;
