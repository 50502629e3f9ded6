//! Garbage collection of what is over: evaluations with their allocations, jobs, deployments, nodes
//! and plugins that are left over; and a sign for volumes with claims that were not released, which
//! wakes the volume watcher (VW-12).
//!
//! Everything is judged by the times in the rows against the leader's clock; what goes is named in
//! the event, a bounded number at a time.

mod over;
mod sweep;
mod volumes;

use std::collections::BTreeSet;
use std::time::Duration;

use drover_events::eval::EvalsUpserted;
use drover_events::model::status::{EvalStatus, JobType, client, eval, job_type, node};
use drover_events::model::{Allocation, Deployment, Evaluation, Job, Node};
use drover_projections::tables::alloc_jobs::AllocJobs;
use drover_projections::tables::allocs::{
    AllocsByDeployment, AllocsByEval, AllocsByJob, AllocsByNode,
};
use drover_projections::tables::evals::{Evals, EvalsByJob, EvalsByNamespace};
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Interest, StorageError, View};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;

use self::sweep::Sweep;
use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::config::ServerConfig;
use crate::proposer::decided::{Decided, propose};
use crate::scheduler::reconcile::{is_active, is_client_terminal, is_terminal};

/// For how long what is over is kept.
#[derive(Clone, Copy, Debug)]
pub struct GcSettings {
    /// How often it is looked.
    pub interval: Duration,
    /// Evaluations and allocations.
    pub evals: Duration,
    /// Those of batch jobs.
    pub batch_evals: Duration,
    pub jobs: Duration,
    pub deployments: Duration,
    pub nodes: Duration,
    /// Claims on volumes that were not released.
    pub claims: Duration,
    /// How often it is looked for those.
    pub claims_interval: Duration,
    /// CSI plugins that are no longer in use.
    pub plugins: Duration,
}

impl From<&ServerConfig> for GcSettings {
    fn from(config: &ServerConfig) -> Self {
        Self {
            interval: config.job_gc_interval,
            evals: config.eval_gc_threshold,
            batch_evals: config.batch_eval_gc_threshold,
            jobs: config.job_gc_threshold,
            deployments: config.deployment_gc_threshold,
            nodes: config.node_gc_threshold,
            claims: config.csi_volume_claim_gc_threshold,
            claims_interval: config.csi_volume_claim_gc_interval,
            plugins: config.csi_plugin_gc_threshold,
        }
    }
}

impl Default for GcSettings {
    fn default() -> Self {
        Self::from(&ServerConfig::default())
    }
}

/// The shortest age: everything is older.
const AT_ONCE: Duration = Duration::from_millis(1);

impl GcSettings {
    /// Keeps nothing that is over.
    pub fn forced(self) -> Self {
        let now = AT_ONCE;
        Self {
            evals: now,
            batch_evals: now,
            jobs: now,
            deployments: now,
            nodes: now,
            claims: now,
            plugins: now,
            ..self
        }
    }
}

/// The shortest pause between two looks for claims, whatever is configured.
const SHORTEST: Duration = Duration::from_secs(1);
/// The namespace of evaluations that are no job's.
const CORE_NAMESPACE: &str = "-";
/// Requests that come within this time are dealt with together.
const BATCH_DELAY: Duration = Duration::from_millis(200);

/// What was collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Collected {
    pub evals: usize,
    pub allocs: usize,
    pub jobs: usize,
    pub deployments: usize,
    pub nodes: usize,
}

/// The collector.
pub struct CoreGc {
    settings: GcSettings,
    /// When everything was looked through last.
    last: Mutex<Option<i64>>,
    /// When claims on volumes were.
    last_claims: Mutex<Option<i64>>,
    /// What could not be removed the last time: it has its turn again after the others.
    deferred: Mutex<BTreeSet<String>>,
    /// The same of what operators request, over the passes that it takes.
    requested_deferred: Mutex<BTreeSet<String>>,
    status: Mutex<GcStatus>,
}

/// What operators see of the collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct GcStatus {
    /// When something was looked for last, Unix nanoseconds; 0 for never.
    pub last_run: i64,
    /// What was collected then.
    pub last: Collected,
    /// What was collected since this server leads.
    pub total: Collected,
}

impl GcStatus {
    fn note(&mut self, now: i64, collected: Collected) {
        self.last_run = now;
        self.last = collected;
        self.total.evals += collected.evals;
        self.total.allocs += collected.allocs;
        self.total.jobs += collected.jobs;
        self.total.deployments += collected.deployments;
        self.total.nodes += collected.nodes;
    }
}

/// The times before which things may go.
#[derive(Clone, Copy, Debug)]
pub struct Cutoffs {
    now: i64,
    evals: i64,
    batch_evals: i64,
    jobs: i64,
    deployments: i64,
    nodes: i64,
    claims: i64,
    plugins: i64,
}

impl Cutoffs {
    /// Works them out from the clock.
    pub fn new(settings: &GcSettings, now: i64) -> Self {
        let before =
            |kept: Duration| now.saturating_sub(i64::try_from(kept.as_nanos()).unwrap_or(i64::MAX));
        Self {
            now,
            evals: before(settings.evals),
            batch_evals: before(settings.batch_evals),
            jobs: before(settings.jobs),
            deployments: before(settings.deployments),
            nodes: before(settings.nodes),
            claims: before(settings.claims),
            plugins: before(settings.plugins),
        }
    }
}

/// Whether an allocation can go: it is over on both sides, long enough, and will not be replaced
/// any more.
pub fn alloc_is_over(alloc: &Allocation, job: Option<&Job>, before: i64, now: i64) -> bool {
    if !is_terminal(alloc) || !is_client_terminal(alloc) || alloc.modify_time > before {
        return false;
    }
    let Some(job) = job.filter(|job| !job.stop && !job.is_dead()) else {
        return true;
    };
    if alloc.server_terminal() || alloc.client_status != client::FAILED {
        return true;
    }
    if !alloc.next_allocation.is_empty() {
        return true;
    }
    let group = job
        .task_groups
        .iter()
        .find(|group| group.name == alloc.task_group);
    let Some(policy) = group.and_then(|group| group.reschedule_policy.as_ref()) else {
        return true;
    };
    if policy.unlimited {
        return false;
    }
    if policy.attempts == 0 {
        return true;
    }
    let events = alloc
        .reschedule_tracker
        .as_ref()
        .map_or(&[][..], |tracker| &tracker.events);
    let recent = events
        .iter()
        .filter(|e| now - e.reschedule_time < policy.interval)
        .count();
    recent as i64 >= policy.attempts || alloc.modify_time.saturating_add(policy.interval) < now
}

/// The allocations that go with an evaluation, if it can go. Evaluations of batch jobs stay while
/// their job may still need to know what ran.
pub fn eval_is_over(
    view: &View,
    eval: &Evaluation,
    cutoffs: &Cutoffs,
) -> Result<Option<Vec<String>>, StorageError> {
    let batch = eval.kind().is_some_and(JobType::is_batch);
    let before = if batch {
        cutoffs.batch_evals
    } else {
        cutoffs.evals
    };
    if !eval.terminal_status() || eval.modify_time > before {
        return Ok(None);
    }
    let job = view.get::<Jobs>((eval.namespace.as_str(), eval.job_id.as_str()))?;
    let mut allocs = Vec::new();
    let alive = job.as_ref().is_some_and(|job| !job.stop && !job.is_dead());
    for row in view.by_index::<AllocsByEval>(eval.id.as_str()) {
        let row = row?;
        let key = (
            row.namespace.as_str(),
            row.job_id.as_str(),
            row.job_modify_index,
        );
        let older = match (&job, view.get::<AllocJobs>(key)?) {
            (Some(job), Some(own)) => own.version < job.version,
            _ => true,
        };
        if (batch && alive && !older)
            || !alloc_is_over(&row.alloc, job.as_ref(), before, cutoffs.now)
        {
            return Ok(None);
        }
        allocs.push(row.alloc.id);
    }
    if batch && alive && allocs.is_empty() && eval.status == eval::COMPLETE {
        // What a live batch job has placed is shown by its newest evaluation too.
        return Ok(None);
    }
    Ok(Some(allocs))
}

/// Whether a job can go: none of its parts are needed any more.
pub fn job_is_over(view: &View, job: &Job, cutoffs: &Cutoffs) -> Result<bool, StorageError> {
    if job.submit_time > cutoffs.jobs {
        return Ok(false);
    }
    let key = (job.namespace.as_str(), job.id.as_str());
    for eval in view.by_index::<EvalsByJob>(key) {
        let eval = eval?;
        let open = matches!(
            eval.status(),
            Some(EvalStatus::Pending | EvalStatus::Blocked)
        );
        if open || eval.modify_time > cutoffs.jobs {
            return Ok(false);
        }
    }
    for row in view.by_index::<AllocsByJob>(key) {
        let row = row?;
        if !alloc_is_over(&row.alloc, None, cutoffs.jobs, cutoffs.now) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a deployment can go.
pub fn deployment_is_over(
    view: &View,
    deployment: &Deployment,
    cutoffs: &Cutoffs,
) -> Result<bool, StorageError> {
    let key = (deployment.namespace.as_str(), deployment.job_id.as_str());
    let goes_on = is_active(deployment) && view.contains::<Jobs>(key)?;
    if goes_on || deployment.modify_time > cutoffs.deployments {
        return Ok(false);
    }
    for row in view.by_index::<AllocsByDeployment>(deployment.id.as_str()) {
        if !is_terminal(&row?.alloc) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a node can go: down for long, and without open allocations.
pub fn node_is_over(view: &View, node: &Node, cutoffs: &Cutoffs) -> Result<bool, StorageError> {
    let since = node.status_updated_at.saturating_mul(1_000_000_000);
    if node.status != node::DOWN || since > cutoffs.nodes {
        return Ok(false);
    }
    for row in view.by_index::<AllocsByNode>(node.id.as_str()) {
        if !is_terminal(&row?.alloc) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What an operator requested is done.
async fn complete(context: &Context, mut eval: Evaluation) -> Result<(), Failure> {
    let guard = context
        .projections
        .view()
        .guard::<Evals>(eval.id.as_str())?;
    eval.status = eval::COMPLETE.to_owned();
    eval.modify_time = context.clock.now();
    let event = EvalsUpserted {
        evals: vec![eval],
        decision: None,
    };
    let decided = Decided::new("core_gc", event).guarded(guard);
    propose(&context.proposer, decided).await?;
    Ok(())
}

impl CoreGc {
    /// Collects by these settings.
    pub fn new(settings: GcSettings) -> Self {
        Self {
            settings,
            last: Mutex::new(None),
            last_claims: Mutex::new(None),
            deferred: Mutex::default(),
            requested_deferred: Mutex::default(),
            status: Mutex::default(),
        }
    }

    /// Does what operators requested by evaluations of type `_core` that are pending. They are
    /// complete once nothing is left.
    async fn obey(&self, context: &Context, each: &mut Each) -> Result<Option<Pass>, Failure> {
        let view = context.projections.view();
        let mut requested = Vec::new();
        for eval in view.by_index::<EvalsByNamespace>(CORE_NAMESPACE) {
            let asks =
                |eval: &Evaluation| eval.status == eval::PENDING && eval.r#type == job_type::CORE;
            requested.extend(each.row(eval)?.filter(asks));
        }
        drop(view);
        if requested.is_empty() {
            return Ok(None);
        }
        let forced = Self::new(self.settings.forced());
        let before = std::mem::take(&mut *self.requested_deferred.lock());
        forced.deferred.lock().clone_from(&before);
        let mut pass = forced.pass(context, each).await?;
        forced.volumes(context, each).await?;
        let mut resisted = std::mem::take(&mut *forced.deferred.lock());
        // What cannot be removed does not hold up what comes behind it.
        pass.newly_deferred = resisted.iter().any(|what| !before.contains(what));
        if pass.goes_on() {
            resisted.extend(before);
            *self.requested_deferred.lock() = resisted;
        }
        for eval in requested.into_iter().filter(|_| !pass.goes_on()) {
            let id = eval.id.clone();
            if let Err(error) = complete(context, eval).await {
                each.fail(&id, &*error);
            }
        }
        Ok(Some(pass))
    }

    /// Collects what can be collected now, a bounded amount.
    ///
    /// # Errors
    /// Nothing can be read or proposed at all. What concerns one thing alone is in `each`.
    pub async fn collect(&self, context: &Context, each: &mut Each) -> Result<Collected, Failure> {
        let collected = self.pass(context, each).await?.collected;
        self.volumes(context, each).await?;
        Ok(collected)
    }

    /// Plugins that are left over, and claims that were not released.
    async fn volumes(&self, context: &Context, each: &mut Each) -> Result<(), Failure> {
        let now = context.clock.now();
        let cutoffs = Cutoffs::new(&self.settings, now);
        volumes::collect(context, &cutoffs, each).await?;
        *self.last_claims.lock() = Some(now);
        Ok(())
    }

    /// When it is looked for those again, Unix nanoseconds.
    fn claims_due(&self, now: i64) -> i64 {
        let interval = self.settings.claims_interval.max(SHORTEST);
        let interval = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX);
        let last = *self.last_claims.lock();
        last.map_or(now, |last| last.saturating_add(interval))
    }

    async fn pass(&self, context: &Context, each: &mut Each) -> Result<Pass, Failure> {
        let cutoffs = Cutoffs::new(&self.settings, context.clock.now());
        let deferred = std::mem::take(&mut *self.deferred.lock());
        let mut sweep = Sweep::new(context, each, deferred);
        let (found, more_jobs) = over::jobs(&context.projections.view(), &cutoffs, &mut sweep)?;
        sweep.remove(found).await?;
        // What went with the jobs is not there any more.
        let view = context.projections.view();
        let (mut found, more_evals) = over::evals(&view, &cutoffs, &mut sweep)?;
        found.extend(over::deployments(&view, &cutoffs, &mut sweep)?);
        found.extend(over::nodes(&view, &cutoffs, &mut sweep)?);
        drop(view);
        sweep.remove(found).await?;
        let (collected, failed) = sweep.end();
        *self.deferred.lock() = failed;
        Ok(Pass {
            collected,
            more: more_jobs || more_evals,
            newly_deferred: false,
        })
    }
}

/// One look at what is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pass {
    collected: Collected,
    /// Whether the look was cut short.
    more: bool,
    /// Whether what resisted has been deferred, so that another look at once finds other things.
    newly_deferred: bool,
}

impl Pass {
    /// Whether another one at once gets on: there is more, and not all of it resists.
    fn goes_on(self) -> bool {
        self.more && (self.newly_deferred || self.collected != Collected::default())
    }
}

impl Reactor for CoreGc {
    fn name(&self) -> &'static str {
        "core_gc"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        const INTERESTS: &[Interest] = &[Interest::table::<Evals>()];
        INTERESTS
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            tokio::time::sleep(BATCH_DELAY).await;
            let mut each = Each::default();
            let requested = self.obey(context, &mut each).await?;
            let now = context.clock.now();
            let interval = i64::try_from(self.settings.interval.as_nanos()).unwrap_or(i64::MAX);
            let due = self
                .last
                .lock()
                .map_or(now, |last| last.saturating_add(interval));
            let mut passes = vec![requested];
            if due <= now {
                let pass = self.pass(context, &mut each).await?;
                // What was cut short is not over.
                *self.last.lock() = Some(now).filter(|_| !pass.goes_on());
                passes.push(Some(pass));
            }
            if self.claims_due(now) <= now {
                self.volumes(context, &mut each).await?;
            }
            let passes: Vec<Pass> = passes.into_iter().flatten().collect();
            let sleep = if passes.iter().any(|pass| pass.goes_on()) {
                Duration::ZERO
            } else if due <= now {
                self.settings.interval
            } else {
                nanos(due.saturating_sub(now))
            };
            let sleep = sleep.min(nanos(self.claims_due(now).saturating_sub(now)));
            let mut known = self.status.lock();
            for pass in passes {
                known.note(now, pass.collected);
            }
            let mut status = serde_json::to_value(*known)?;
            each.report(&mut status);
            Ok(Activation { sleep, status })
        })
    }
}

fn nanos(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.max(0).unsigned_abs())
}

#[cfg(test)]
#[path = "core_gc_test.rs"]
mod tests;
