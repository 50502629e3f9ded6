//! Commands about deployments.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::deployment::*;
use drover_events::model::status::{deployment as status, deployment_reason, trigger};
use drover_events::model::{Deployment, DeploymentStatusUpdate, Evaluation, Job, JobSubmission};
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::job_submissions::JobSubmissions;
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Reply, Scan, View};
use parking_lot::Mutex;

use super::limits::MAX_ROWS;
use super::support::{all_servers_support, eval_of, eval_of_missing};
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// The version of its job that a failed deployment goes back to: known once it is decided, for
/// the answer.
#[derive(Clone, Debug, Default)]
pub struct Reverted(Arc<Mutex<Option<u64>>>);

impl Reverted {
    /// The version, if there is one to go back to.
    pub fn version(&self) -> Option<u64> {
        *self.0.lock()
    }

    fn set(&self, job: Option<&Job>) {
        *self.0.lock() = job.map(|job| job.version);
    }
}

/// The feature level whose events say what follows from a deployment's change.
const FOLLOW_UP_LEVEL: u32 = 6;

/// A deployment gets a status: by an operator, or by the watcher.
#[derive(Clone, Debug)]
pub struct SetDeploymentStatus {
    pub deployment_id: String,
    /// What happens to it.
    pub change: DeploymentChange,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
    /// What the answer names beside it.
    pub reverted: Reverted,
}

/// What can happen to a deployment's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeploymentChange {
    /// An operator marks it as failed.
    Fail,
    /// An operator pauses it.
    Pause,
    /// An operator resumes it.
    Resume,
    /// The watcher: allocations became unhealthy.
    UnhealthyAllocations,
    /// The watcher: the deadline for progress passed.
    ProgressDeadline,
}

impl DeploymentChange {
    fn verb(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Fail | Self::UnhealthyAllocations | Self::ProgressDeadline => "fail",
        }
    }

    fn fails(self) -> bool {
        self.verb() == "fail"
    }
}

impl Command for SetDeploymentStatus {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let row = fetch_active(view, &self.deployment_id, self.change.verb())?;
        let (to, description) = match self.change {
            DeploymentChange::Fail => (status::FAILED, deployment_reason::FAILED_BY_USER),
            DeploymentChange::Pause => (status::PAUSED, deployment_reason::PAUSED),
            DeploymentChange::Resume => (status::RUNNING, deployment_reason::RUNNING),
            DeploymentChange::UnhealthyAllocations => {
                (status::FAILED, deployment_reason::FAILED_ALLOCATIONS)
            }
            DeploymentChange::ProgressDeadline => {
                (status::FAILED, deployment_reason::PROGRESS_DEADLINE)
            }
        };
        if row.status == to {
            return Ok(Decision::Nothing(Reply::None));
        }
        let mut update = DeploymentStatusUpdate {
            deployment_id: row.id.clone(),
            status: to.to_owned(),
            status_description: description.to_owned(),
            updated_at: stamp.now,
        };
        let mut back = Back::default();
        if self.change.fails() && row.has_auto_revert() {
            back = revert(view, &row, stamp.now, &mut update.status_description)?;
        }
        self.reverted.set(back.job.as_deref());
        let says_more = all_servers_support(view, FOLLOW_UP_LEVEL)?;
        let mut progress_by = BTreeMap::new();
        if says_more && matches!(to, status::PAUSED | status::RUNNING) {
            // While it is paused it cannot fail; its time is recorded all the same.
            let timed = row
                .task_groups
                .iter()
                .filter(|(_, group)| group.progress_deadline > 0);
            progress_by.extend(timed.map(|(name, group)| {
                let by = stamp.now.saturating_add(group.progress_deadline);
                (name.clone(), by)
            }));
        }
        // A pause needs no evaluation: nothing is to be placed.
        let eval = (self.change != DeploymentChange::Pause)
            .then(|| eval_for(view, &row, self.eval_id.clone(), stamp.now))
            .transpose()?;
        let guards = vec![view.guard::<Deployments>(row.id.as_str())?];
        let updated = DeploymentStatusUpdated {
            update,
            job: back.job,
            eval,
            submission: back.submission.filter(|_| says_more),
            progress_by,
        };
        Ok(Decision::guarded(updated, guards))
    }
}

/// What a job goes back to.
#[derive(Default)]
struct Back {
    job: Option<Arc<Job>>,
    submission: Option<JobSubmission>,
}

/// The latest stable version before the failed one, submitted `now` (Unix nanoseconds); the text
/// says what comes of it.
fn revert(
    view: &View,
    row: &Deployment,
    now: i64,
    description: &mut String,
) -> Result<Back, Refusal> {
    let key = (row.namespace.as_str(), row.job_id.as_str());
    let scan = Scan::with_key_prefix::<(String, String)>(key).reverse();
    let mut stable = None;
    for version in view.scan::<JobVersions>(scan) {
        let version = version?;
        if version.stable && version.version < row.job_version {
            stable = Some(version);
            break;
        }
    }
    let Some(mut stable) = stable else {
        description.push_str(" - no stable job version to auto revert to");
        return Ok(Back::default());
    };
    let Some(current) = view.get::<Jobs>(key)? else {
        return Ok(Back::default());
    };
    let version = stable.version;
    if stable.same_spec(&current) {
        description.push_str(&format!(
            " - not rolling back to stable job version {version} as current job has same \
             specification"
        ));
        return Ok(Back::default());
    }
    description.push_str(&format!(" - rolling back to job version {version}"));
    stable.submit_time = now;
    Ok(Back {
        submission: view.get::<JobSubmissions>((key.0, key.1, version))?,
        job: Some(Arc::new(stable)),
    })
}

/// Canaries are promoted.
#[derive(Clone, Debug)]
pub struct PromoteDeployment {
    pub deployment_id: String,
    /// Whether all groups are meant, and not only those named.
    pub all: bool,
    pub groups: Vec<String>,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
}

impl Command for PromoteDeployment {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let row = fetch_active(view, &self.deployment_id, "promote")?;
        if !self.all {
            for group in &self.groups {
                if !row.task_groups.contains_key(group) {
                    let text = format!("task group \"{group}\" is not part of the deployment");
                    return Err(Refusal::by_rule(text));
                }
            }
        }
        let canaries = row
            .task_groups
            .values()
            .map(|group| group.placed_canaries.len());
        let canaries: usize = canaries.sum();
        if canaries > MAX_ROWS / 2 {
            let most = MAX_ROWS / 2;
            return Err(Refusal::bad_request(format!(
                "the deployment has {canaries} canaries, more than the {most} promoted at once"
            )));
        }
        let promoted = DeploymentPromoted {
            deployment_id: row.id.clone(),
            all: self.all,
            groups: self.groups.clone(),
            promoted_at: stamp.now,
            eval: Some(eval_for(view, &row, self.eval_id.clone(), stamp.now)?),
            keeps_paused_description: all_servers_support(view, FOLLOW_UP_LEVEL)?,
        };
        Ok(Decision::unguarded(promoted))
    }
}

/// The health of a deployment's allocations is set by hand.
#[derive(Clone, Debug)]
pub struct SetDeploymentAllocHealth {
    pub deployment_id: String,
    /// Allocations that are healthy.
    pub healthy: Vec<String>,
    /// Allocations that are not; they fail the deployment.
    pub unhealthy: Vec<String>,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
    /// What the answer names beside it.
    pub reverted: Reverted,
}

impl Command for SetDeploymentAllocHealth {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.healthy.is_empty() && self.unhealthy.is_empty() {
            let text = "must specify at least one healthy/unhealthy allocation ID";
            return Err(Refusal::by_rule(text));
        }
        let row = fetch_active(view, &self.deployment_id, "set health of allocations for")?;
        let mut back = Back::default();
        let mut update = None;
        if !self.unhealthy.is_empty() {
            let mut description = deployment_reason::FAILED_ALLOCATIONS.to_owned();
            if row.has_auto_revert() {
                back = revert(view, &row, stamp.now, &mut description)?;
            }
            update = Some(DeploymentStatusUpdate {
                deployment_id: row.id.clone(),
                status: status::FAILED.to_owned(),
                status_description: description,
                updated_at: stamp.now,
            });
        }
        self.reverted.set(back.job.as_deref());
        let says_more = all_servers_support(view, FOLLOW_UP_LEVEL)?;
        let set = DeploymentAllocHealthUpdated {
            deployment_id: row.id.clone(),
            healthy: self.healthy.clone(),
            unhealthy: self.unhealthy.clone(),
            timestamp: stamp.now,
            update,
            job: back.job,
            eval: Some(eval_for(view, &row, self.eval_id.clone(), stamp.now)?),
            submission: back.submission.filter(|_| says_more),
        };
        Ok(Decision::unguarded(set))
    }
}

/// Garbage collection removes deployments that are over.
#[derive(Clone, Debug)]
pub struct DeleteDeployments {
    /// The deployments; those gone already are passed over.
    pub ids: Vec<String>,
}

impl Command for DeleteDeployments {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.ids.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        Ok(Decision::unguarded(DeploymentsDeleted {
            ids: self.ids.clone(),
        }))
    }

    fn is_tried(&self) -> bool {
        true
    }
}

/// A deployment that can still change; `verb` says in the refusal what is to be done to it.
fn fetch_active(view: &View, id: &str, verb: &str) -> Result<Deployment, Refusal> {
    if id.is_empty() {
        return Err(Refusal::by_rule("missing deployment ID"));
    }
    let row = view.get::<Deployments>(id)?;
    let row = row.ok_or_else(|| Refusal::by_rule("deployment not found"))?;
    if !row.active() {
        let what = match verb {
            "set health of allocations for" => "can't set health of allocations for a terminal",
            _ => {
                return Err(Refusal::by_rule(format!(
                    "can't {verb} terminal deployment"
                )));
            }
        };
        return Err(Refusal::by_rule(format!("{what} deployment")));
    }
    Ok(row)
}

fn eval_for(view: &View, row: &Deployment, id: String, now: i64) -> Result<Evaluation, Refusal> {
    let key = (row.namespace.as_str(), row.job_id.as_str());
    let mut made = match view.get::<Jobs>(key)? {
        Some(job) => eval_of(id, &job, trigger::DEPLOYMENT_WATCHER, now),
        None => eval_of_missing(id, key, trigger::DEPLOYMENT_WATCHER, now),
    };
    made.deployment_id.clone_from(&row.id);
    Ok(made)
}

#[cfg(test)]
#[path = "deployment_test.rs"]
mod tests;
