//! Follows a deployment on the event stream, and the one that takes it back.

use crate::cli::client::is_status;
use crate::cli::deployment_text::deployment_text;
use crate::cli::monitor::Monitor;
use crate::cli::show::short;
use anyhow::{Context, Result};
use drover_events::model::status as words;
use drover_events::model::{AllocListStub, Deployment};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What was reported of a deployment's progress, and when.
#[derive(Debug, Default)]
pub(in crate::cli) struct DeploymentProgress {
    /// The least time between two reports.
    pub(in crate::cli) pause: Duration,
    lines: BTreeMap<String, String>,
    last: Option<Instant>,
}

impl DeploymentProgress {
    /// When the next report may be made; none where it may be now.
    fn due(&self) -> Option<Instant> {
        let due = self.last? + self.pause;
        (due > Instant::now()).then_some(due)
    }
}

/// What the description of a failed deployment says where an older version is deployed again.
const ROLLS_BACK: &str = "rolling back to job version";

impl Monitor<'_> {
    /// A deployment until nothing more happens to it by itself, then the one that rolls it back.
    /// 0: successful, or it waits for its promotion; 1: anything else, whatever the rollback does.
    pub(in crate::cli) async fn deployment(&mut self, id: &str, from: u64) -> Result<u8> {
        let (mut id, mut from) = (id.to_owned(), from);
        let mut code = None;
        loop {
            let Some((deployment, waits)) = self.one_deployment(&id, from).await? else {
                return Ok(code.unwrap_or(0));
            };
            let own = u8::from(deployment.status != words::deployment::SUCCESSFUL && !waits);
            let code = *code.get_or_insert(own);
            from = deployment.modify_index;
            match self.rollback(&deployment).await? {
                Some(next) => id = next,
                None => return Ok(code),
            }
        }
    }

    /// A deployment once nothing more happens to it by itself, and whether it waits for its
    /// promotion; none if it does not exist.
    async fn one_deployment(&mut self, id: &str, from: u64) -> Result<Option<(Deployment, bool)>> {
        let path = format!("/v1/deployment/{id}");
        let mut deployment: Deployment = match self.get(&path).await {
            Ok(found) => found,
            Err(err) if is_status(&err, 404) => return Ok(None),
            Err(err) => return Err(err.context("Error reading deployment")),
        };
        let shown = short(id, self.verbose);
        self.header(&format!("Monitoring deployment {shown:?}"));
        if !has_ended(&deployment) {
            let from = from.max(deployment.create_index);
            let mut stream = self.stream(&deployment.job_id, from).await?;
            while !has_ended(&deployment) {
                let frame = match self.progress.due() {
                    None => stream.frame().await?,
                    Some(due) => match timeout_at(due, stream.frame()).await {
                        Ok(frame) => frame?,
                        Err(_) => {
                            self.report_progress(&deployment);
                            continue;
                        }
                    },
                };
                let Some(frame) = frame else {
                    break;
                };
                for event in frame.events {
                    if let Some(alloc) = &event.payload.allocation {
                        self.report_alloc(&alloc.into(), None);
                    }
                    let changed = event.payload.deployment;
                    if let Some(changed) = changed.filter(|changed| changed.id == id) {
                        deployment = changed;
                        self.report_progress(&deployment);
                    }
                }
            }
        }
        let deployment = self.get(&path).await.unwrap_or(deployment);
        self.say(&format!("Deployment {shown:?} {}", deployment.status));
        let shown_whole = deployment_text(&deployment, self.verbose);
        self.out.line(&format!("\n{shown_whole}"));
        if !waits(&deployment) {
            return Ok(Some((deployment, false)));
        }
        let allocs = self.get(&format!("/v1/deployment/allocations/{id}")).await;
        let allocs: Vec<AllocListStub> =
            allocs.context("Error reading the deployment's allocations")?;
        let gone = canaries_gone(&deployment, &allocs);
        self.out.line(&match gone {
            0 => format!(
                "\nAll canaries are healthy and wait for you: `drover deployment promote {shown}` \
                 goes on, `drover deployment fail {shown}` takes them back."
            ),
            _ => format!(
                "\nCanaries were healthy, but {gone} of those that are wanted do not run now: \
                 others take their place as soon as there is capacity. `drover deployment \
                 status {shown}` shows them; `drover deployment fail {shown}` gives the version up."
            ),
        });
        Ok(Some((deployment, gone == 0)))
    }

    /// The deployment that takes a failed one back, if there is one.
    async fn rollback(&self, failed: &Deployment) -> Result<Option<String>> {
        let rolls_back = failed.status_description.contains(ROLLS_BACK);
        if failed.status != words::deployment::FAILED || !rolls_back {
            return Ok(None);
        }
        let (job, own) = (&failed.job_id, &failed.id);
        self.out.line("");
        self.header(&format!("Waiting for the rollback of job {job:?}"));
        // Not by when the failed one was last written: what becomes of its allocations moves that
        // even after it was rolled back.
        let born = failed.create_index;
        let newer = |made: &Deployment| made.job_id == *job && made.create_index > born;
        let mut failed_at = None;
        let mut stream = self.stream(job, born).await?;
        while let Some(frame) = stream.frame().await? {
            for event in &frame.events {
                if let Some(made) = &event.payload.deployment {
                    if newer(made) {
                        return Ok(Some(made.id.clone()));
                    }
                    if made.id == *own && made.status == words::deployment::FAILED {
                        failed_at.get_or_insert(frame.index);
                    }
                }
                let Some(eval) = &event.payload.evaluation else {
                    continue;
                };
                let done = eval.status().is_some_and(words::EvalStatus::is_terminal);
                if done && failed_at.is_some_and(|at| eval.create_index >= at) {
                    // What is deployed without a change makes no deployment.
                    let path = crate::cli::query::job_path(job, "/deployment");
                    let latest = self.get(&path).await;
                    let latest: Option<Deployment> = latest.context("Error reading deployment")?;
                    return Ok(latest.filter(newer).map(|latest| latest.id));
                }
            }
        }
        Ok(None)
    }

    fn report_progress(&mut self, deployment: &Deployment) {
        if self.progress.due().is_some() {
            return;
        }
        for (name, state) in &deployment.task_groups {
            let line = format!(
                "Group {name:?}: desired {}, placed {}, healthy {}, unhealthy {}",
                state.desired_total,
                state.placed_allocs,
                state.healthy_allocs,
                state.unhealthy_allocs,
            );
            if self.progress.lines.get(name) != Some(&line) {
                self.say(&line);
                self.progress.lines.insert(name.clone(), line);
                self.progress.last = Some(Instant::now());
            }
        }
    }
}

/// How many of the wanted canaries do not run in health: a count of what was healthy once does not
/// say that.
fn canaries_gone(deployment: &Deployment, allocs: &[AllocListStub]) -> i64 {
    let runs = |id: &String| {
        let mut own = allocs.iter().filter(|alloc| alloc.id == *id);
        own.any(|alloc| {
            let status = alloc.deployment_status.as_ref();
            alloc.desired_status == words::desired::RUN
                && alloc.client_status == words::client::RUNNING
                && status.is_some_and(|status| status.healthy == Some(true))
        })
    };
    let missing = deployment.task_groups.values().map(|group| {
        let running = group.placed_canaries.iter().filter(|id| runs(id)).count();
        group.desired_canaries - i64::try_from(running).unwrap_or(i64::MAX)
    });
    missing.map(|missing| missing.max(0)).sum()
}

/// Whether nothing more happens to a deployment by itself.
fn has_ended(deployment: &Deployment) -> bool {
    use words::DeploymentStatus::{
        Blocked, Cancelled, Failed, Initializing, Paused, Pending, Running, Successful, Unblocking,
    };
    match words::DeploymentStatus::of(&deployment.status) {
        Some(Running | Pending | Blocked | Unblocking | Initializing) => waits(deployment),
        Some(Paused | Failed | Successful | Cancelled) | None => true,
    }
}

/// Whether all canaries of a running deployment are healthy, and an operator has to promote them.
fn waits(deployment: &Deployment) -> bool {
    deployment.status == words::deployment::RUNNING
        && deployment
            .status_description
            .contains("requires manual promotion")
        && deployment.task_groups.values().all(|group| {
            group.desired_canaries == 0 || group.healthy_allocs >= group.desired_canaries
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::answer;

    #[test]
    fn canaries_that_ended_do_not_wait_for_anybody() {
        let deployment = json!({"Status": "running",
            "StatusDescription": "Deployment is running but requires manual promotion",
            "TaskGroups": {"g": {"DesiredCanaries": 2, "HealthyAllocs": 2,
                "PlacedCanaries": ["a", "b"]}}});
        let deployment: Deployment = answer::of(deployment).unwrap();
        assert!(waits(&deployment));
        let alloc = |id: &str, desired: &str, client: &str| {
            let alloc = json!({"ID": id, "DesiredStatus": desired, "ClientStatus": client,
                "DeploymentStatus": {"Healthy": true, "Canary": true}});
            answer::of::<AllocListStub>(alloc).unwrap()
        };
        let both = [alloc("a", "run", "running"), alloc("b", "run", "running")];
        assert_eq!(canaries_gone(&deployment, &both), 0);
        let one = [alloc("a", "stop", "complete"), alloc("b", "run", "running")];
        assert_eq!(canaries_gone(&deployment, &one), 1);
    }
}
