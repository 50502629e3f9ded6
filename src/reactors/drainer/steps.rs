//! What is to be done about draining nodes, decided from rows alone.
//!
//! Services move a few at a time, as their `migrate` blocks allow; batch allocations may end by
//! themselves until the deadline; those of system jobs go when nothing else is left. At the
//! deadline, and in a drain without one to wait for, all go at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::model::status::{JobType, client, desired, job_type, trigger};
use drover_events::model::{DesiredTransition, DrainStrategy, Evaluation, Job, JobKey, Node};
use drover_projections::tables::alloc_jobs::AllocJobs;
use drover_projections::tables::allocs::{AllocRow, AllocsByNode};
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Id, ReadRows, Scan, StorageError, View, query};

use crate::commands::node::DrainedNode;
use crate::commands::node_drain::DrainAllocs;
use crate::reactors::each::Each;

/// Deadlines that come within this time of one that has come count as come: nodes that were drained
/// together are dealt with together.
const COALESCE: i64 = 5_000_000_000;
/// How long after the deadline the ends of what was stopped are waited for: a task that does not
/// die keeps no drain from its end.
const PATIENCE: i64 = 60_000_000_000;
/// How many allocations of a group may be on the move where its job does not say.
const MAX_PARALLEL: i64 = 1;

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// The allocations that are to move, with an evaluation of each of their jobs.
    pub moves: DrainAllocs,
    /// The same, each job's of each node by itself: how they are submitted where all together fail.
    pub individual: Vec<DrainAllocs>,
    /// The nodes on which nothing is left.
    pub done: Vec<DrainedNode>,
    /// The next deadline, Unix nanoseconds.
    pub next: Option<i64>,
    /// The jobs of which something may move a few at a time.
    pub movable: BTreeSet<(String, String)>,
}

/// Whether everything must go now: there is nothing to wait for, or the deadline has come.
fn is_forced(drain: &DrainStrategy, horizon: i64) -> bool {
    drain.deadline < 0 || (drain.deadline > 0 && drain.force_deadline.0 <= horizon)
}

/// When a drain ends whatever still runs, once everything was marked to stop.
fn last_moment(node: &Node, drain: &DrainStrategy) -> Option<i64> {
    let from = match drain.deadline {
        0 => return None,
        deadline if deadline > 0 => drain.force_deadline.0,
        // A drain that ran for a while may have been forced just now.
        _ => {
            let updated = node.last_drain.as_ref().map_or(0, |last| last.updated_at.0);
            drain.started_at.0.max(updated)
        }
    };
    Some(from.saturating_add(PATIENCE))
}

/// Whether the end of an allocation is no longer waited for: it was marked to stop, and its client
/// is out of contact, or its time is over.
fn is_given_up(alloc: &AllocRow, late: bool) -> bool {
    let stops = is_marked(alloc) || alloc.desired_status != desired::RUN;
    stops && (late || alloc.client_status == client::UNKNOWN)
}

/// Whether an allocation that runs is to move and does not know it yet.
fn may_be_marked(alloc: &AllocRow) -> bool {
    !is_marked(alloc) && alloc.desired_status == desired::RUN && !alloc.client_terminal()
}

fn is_marked(alloc: &AllocRow) -> bool {
    alloc.desired_transition.migrate == Some(true)
}

/// Works out the next steps of the nodes that drain; `now` is the time on the wall, Unix
/// nanoseconds. A node or a job that cannot be read holds up no other.
pub fn next_steps(view: &View, nodes: &[Node], now: i64, each: &mut Each) -> Steps {
    let drains = || nodes.iter().filter_map(|node| node.drain_strategy.as_ref());
    let one_is_due = drains().any(|drain| is_forced(drain, now));
    let horizon = if one_is_due {
        now.saturating_add(COALESCE)
    } else {
        now
    };
    let mut round = Round::default();
    for node in nodes {
        if let Some(drain) = &node.drain_strategy {
            each.look(&node.id, || round.node(view, node, drain, horizon));
        }
    }
    for ((namespace, id), movable) in std::mem::take(&mut round.movable) {
        each.look(&id, || round.service(view, (&namespace, &id), &movable));
        round.steps.movable.insert((namespace, id));
    }
    for ((namespace, id), row) in std::mem::take(&mut round.jobs) {
        let evaluated = each.look(&id, || round.evaluate(view, (&namespace, &id), &row));
        if evaluated.is_none() {
            // What is marked is never looked at again.
            round.forget((&namespace, &id));
        }
    }
    let next = nodes.iter().filter_map(|node| {
        let drain = node.drain_strategy.as_ref()?;
        match is_forced(drain, horizon) {
            false => Some(drain.force_deadline.0).filter(|_| drain.deadline > 0),
            true => last_moment(node, drain).filter(|last| *last > horizon),
        }
    });
    round.steps.next = next.min();
    round.steps.individual = round.individual.into_values().collect();
    round.steps
}

/// The steps in the making.
#[derive(Default)]
struct Round {
    steps: Steps,
    /// The jobs of what was marked; each with an allocation of it.
    jobs: BTreeMap<(String, String), Arc<AllocRow>>,
    /// What may move a few at a time, by job and allocation, with the index of its node.
    movable: BTreeMap<(String, String), BTreeMap<String, u64>>,
    /// What was marked, by job and node.
    individual: BTreeMap<(JobKey, String), DrainAllocs>,
}

impl Round {
    fn node(
        &mut self,
        view: &View,
        node: &Node,
        drain: &DrainStrategy,
        horizon: i64,
    ) -> Result<(), StorageError> {
        let forced = is_forced(drain, horizon);
        let late = last_moment(node, drain).is_some_and(|last| last <= horizon);
        let mut system = Vec::new();
        let mut others = Vec::new();
        for row in view.rows_by::<AllocsByNode>(Scan::with_key_prefix::<Id>(node.id.as_str())) {
            let row = row?;
            if row.client_terminal() || (forced && is_given_up(&row, late)) {
                continue;
            }
            match JobType::of(&row.job_type) {
                Some(JobType::System) if drain.ignore_system_jobs => {}
                Some(JobType::System) => system.push(row),
                Some(JobType::Service | JobType::Batch | JobType::Sysbatch | JobType::Core)
                | None => others.push(row),
            }
        }
        if system.is_empty() && others.is_empty() {
            self.steps.done.push(DrainedNode {
                id: node.id.clone(),
                modify_index: node.modify_index,
                deadline_reached: forced && drain.deadline > 0,
            });
            return Ok(());
        }
        let last = others.is_empty();
        for row in &others {
            if forced {
                self.mark(row, node.modify_index);
            } else if row.job_type == job_type::SERVICE && may_be_marked(row) {
                let key = (row.namespace.clone(), row.job_id.clone());
                let of_job = self.movable.entry(key).or_default();
                of_job.insert(row.id.clone(), node.modify_index);
            }
        }
        for row in system.iter().filter(|_| forced || last) {
            self.mark(row, node.modify_index);
        }
        Ok(())
    }

    fn is_moving(&self, row: &AllocRow) -> bool {
        self.steps.moves.transitions.contains_key(&row.id)
    }

    /// Batch work that is stopped is not begun anew elsewhere.
    fn mark(&mut self, row: &Arc<AllocRow>, node_index: u64) {
        if !may_be_marked(row) || self.is_moving(row) {
            return;
        }
        let batch = JobType::of(&row.job_type).is_some_and(JobType::is_batch);
        let request = DesiredTransition {
            migrate: Some(true),
            migrate_disable_placement: batch.then_some(true),
            ..DesiredTransition::default()
        };
        let key = (row.namespace.clone(), row.job_id.clone());
        let part = (key.clone(), row.node_id.clone());
        for moves in [
            &mut self.steps.moves,
            self.individual.entry(part).or_default(),
        ] {
            moves.transitions.insert(row.id.clone(), request.clone());
            moves.nodes.insert(row.node_id.clone(), node_index);
        }
        self.jobs.entry(key).or_insert_with(|| Arc::clone(row));
    }

    /// Marks so many of each group that no more are on the move than its job allows.
    fn service(
        &mut self,
        view: &View,
        key: (&str, &str),
        movable: &BTreeMap<String, u64>,
    ) -> Result<(), StorageError> {
        let job = view.get::<Jobs>(key)?;
        let mut groups: BTreeMap<String, Vec<Arc<AllocRow>>> = BTreeMap::new();
        for row in query::allocs_of_job(view, key)? {
            // What is over is neither moved nor counted.
            if !row.terminal_status() {
                let group = groups.entry(row.task_group.clone()).or_default();
                group.push(row);
            }
        }
        for (group, of_group) in &groups {
            let mut here: Vec<_> = of_group
                .iter()
                .filter(|row| movable.contains_key(&row.id) && may_be_marked(row))
                .collect();
            // What is not healthy is missed least.
            here.sort_by(|a, b| {
                let (left, right) = (has_known_health(a), has_known_health(b));
                (left, &a.name, &a.id).cmp(&(right, &b.name, &b.id))
            });
            let known = of_group
                .iter()
                .filter(|row| has_known_health(row) && !self.is_moving(row))
                .count();
            let most = may_move(job.as_ref(), group, known).unwrap_or(here.len());
            for row in here.into_iter().take(most) {
                self.mark(row, movable.get(&row.id).copied().unwrap_or_default());
            }
        }
        Ok(())
    }

    /// What was marked of a job is evaluated: once, or once for each node where each is by itself.
    fn evaluate(
        &mut self,
        view: &View,
        key: (&str, &str),
        row: &AllocRow,
    ) -> Result<(), StorageError> {
        let current = view.get::<Jobs>(key)?;
        let job = match current {
            Some(job) => Some(job),
            None => view.get::<AllocJobs>(&row.job_key())?,
        };
        let Some(job) = job else { return Ok(()) };
        let made = || {
            let id = uuid::Uuid::new_v4().to_string();
            Evaluation::for_job(id, &job, trigger::NODE_DRAIN)
        };
        self.steps.moves.evals.push(made());
        let of_job = (key.0.to_owned(), key.1.to_owned());
        let parts = self.individual.range_mut((of_job.clone(), String::new())..);
        for (_, moves) in parts.take_while(|((job, _), _)| *job == of_job) {
            moves.evals.push(made());
        }
        Ok(())
    }

    /// Nothing of a job moves yet.
    fn forget(&mut self, key: (&str, &str)) {
        let moves = &mut self.steps.moves;
        self.individual.retain(|(job, _), part| {
            let stays = (job.0.as_str(), job.1.as_str()) != key;
            if !stays {
                moves
                    .transitions
                    .retain(|id, _| !part.transitions.contains_key(id));
            }
            stays
        });
        let is_its = |eval: &Evaluation| (eval.namespace.as_str(), eval.job_id.as_str()) == key;
        moves.evals.retain(|eval| !is_its(eval));
    }
}

/// Whether an allocation stays where it is and its health is known: well, or not well within its
/// `healthy_deadline`. An allocation of unknown health is waited for.
fn has_known_health(alloc: &AllocRow) -> bool {
    let is_known = alloc
        .deployment_status
        .as_ref()
        .is_some_and(|status| status.healthy.is_some());
    is_known && !alloc.terminal_status() && !is_marked(alloc)
}

/// How many of a group may be sent away, of which so many are well or given up; `None`: all, as
/// they are no longer wanted.
fn may_move(job: Option<&Job>, group: &str, known: usize) -> Option<usize> {
    let job = job.filter(|job| !job.stop)?;
    let group = job.task_group(group)?;
    let parallel = group
        .migrate
        .as_ref()
        .map_or(MAX_PARALLEL, |migrate| migrate.max_parallel);
    let known = i64::try_from(known).unwrap_or(i64::MAX);
    let free = known.saturating_sub(group.count.saturating_sub(parallel));
    Some(usize::try_from(free).unwrap_or(0))
}
