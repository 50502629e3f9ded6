//! Follows a deployment on the event stream, and the one that takes it back.

use crate::cli::client::is_status;
use crate::cli::deployment::deployment_text;
use crate::cli::monitor::Monitor;
use crate::cli::show::{list, number, short, text};
use anyhow::{Context, Result};
use drover_events::model::status::{
    DeploymentStatus, EvalStatus, client, deployment as status, desired,
};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What was reported of a deployment's progress, and when.
#[derive(Debug, Default)]
pub(in crate::cli) struct Progress {
    /// The least time between two reports.
    pub(in crate::cli) pause: Duration,
    lines: BTreeMap<String, String>,
    last: Option<Instant>,
}

impl Progress {
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
    pub(in crate::cli) async fn deployment(&mut self, id: &str, from: i64) -> Result<u8> {
        let (mut id, mut from) = (id.to_owned(), from);
        let mut code = None;
        loop {
            let Some((deployment, waits)) = self.one_deployment(&id, from).await? else {
                return Ok(code.unwrap_or(0));
            };
            let own = u8::from(text(&deployment, "Status") != status::SUCCESSFUL && !waits);
            let code = *code.get_or_insert(own);
            from = number(&deployment, "ModifyIndex");
            match self.rollback(&deployment).await? {
                Some(next) => id = next,
                None => return Ok(code),
            }
        }
    }

    /// A deployment until it is settled, and whether it waits for its promotion; none if there is
    /// none.
    async fn one_deployment(&mut self, id: &str, from: i64) -> Result<Option<(Json, bool)>> {
        let path = format!("/v1/deployment/{id}");
        let mut deployment = match self.get(&path).await {
            Ok(found) => found,
            Err(err) if is_status(&err, 404) => return Ok(None),
            Err(err) => return Err(err.context("Error reading deployment")),
        };
        let shown = short(id, self.verbose);
        self.header(&format!("Monitoring deployment {shown:?}"));
        let job = text(&deployment, "JobID");
        if !settled(&deployment) {
            let from = from.max(number(&deployment, "CreateIndex"));
            let mut stream = self.stream(&job, from).await?;
            while !settled(&deployment) {
                let frame = match self.progress.due() {
                    None => stream.json_line().await?,
                    Some(due) => match timeout_at(due, stream.json_line()).await {
                        Ok(frame) => frame?,
                        Err(_) => {
                            self.tell_progress(&deployment);
                            continue;
                        }
                    },
                };
                let Some(frame) = frame else {
                    break;
                };
                for event in list(&frame, "Events") {
                    if text(event, "Topic") == "Allocation" {
                        self.tell_alloc(&event["Payload"]["Allocation"], None);
                    }
                    let changed = &event["Payload"]["Deployment"];
                    if text(changed, "ID") == id {
                        deployment = changed.clone();
                        self.tell_progress(&deployment);
                    }
                }
            }
        }
        let deployment = self.get(&path).await.unwrap_or(deployment);
        let status = text(&deployment, "Status");
        self.say(&format!("Deployment {shown:?} {status}"));
        let shown_whole = deployment_text(&deployment, self.verbose);
        self.out.line(&format!("\n{shown_whole}"));
        if !waits(&deployment) {
            return Ok(Some((deployment, false)));
        }
        let allocs = self.get(&format!("/v1/deployment/allocations/{id}")).await;
        let allocs = allocs.context("Error reading the deployment's allocations")?;
        let gone = canaries_gone(&deployment, &allocs);
        self.out.line(&match gone {
            0 => format!(
                "\nAll canaries are healthy and wait for you: `drover deployment promote {shown}` \
                 goes on, `drover deployment fail {shown}` takes them back."
            ),
            _ => format!(
                "\nCanaries were healthy, but {gone} of those that are wanted do not run now: \
                 others take their place as soon as there is room. `drover deployment status \
                 {shown}` shows them; `drover deployment fail {shown}` gives the version up."
            ),
        });
        Ok(Some((deployment, gone == 0)))
    }

    /// The deployment that takes a failed one back; none where there is none.
    async fn rollback(&self, failed: &Json) -> Result<Option<String>> {
        let rolls_back = text(failed, "StatusDescription").contains(ROLLS_BACK);
        if text(failed, "Status") != status::FAILED || !rolls_back {
            return Ok(None);
        }
        let (job, own) = (text(failed, "JobID"), text(failed, "ID"));
        self.out.line("");
        self.header(&format!("Waiting for the rollback of job {job:?}"));
        // Not by when the failed one was last written: what becomes of its allocations moves that
        // even after it was rolled back.
        let born = number(failed, "CreateIndex");
        let newer = |deployment: &Json| {
            text(deployment, "JobID") == job && number(deployment, "CreateIndex") > born
        };
        let mut failed_at = None;
        let mut stream = self.stream(&job, born).await?;
        while let Some(frame) = stream.json_line().await? {
            for event in list(&frame, "Events") {
                let made = &event["Payload"]["Deployment"];
                if newer(made) {
                    return Ok(Some(text(made, "ID")));
                }
                if text(made, "ID") == own && text(made, "Status") == status::FAILED {
                    failed_at.get_or_insert(number(&frame, "Index"));
                }
                let eval = &event["Payload"]["Evaluation"];
                let done = EvalStatus::of(&text(eval, "Status"));
                let done = done.is_some_and(EvalStatus::is_terminal);
                let since = failed_at.is_some_and(|at| number(eval, "CreateIndex") >= at);
                if done && since {
                    // What is deployed without a change makes no deployment.
                    let path = crate::cli::query::job_path(&job, "/deployment");
                    let latest = self.get(&path).await.context("Error reading deployment")?;
                    return Ok(newer(&latest).then(|| text(&latest, "ID")));
                }
            }
        }
        Ok(None)
    }

    fn tell_progress(&mut self, deployment: &Json) {
        if self.progress.due().is_some() {
            return;
        }
        let states = deployment["TaskGroups"].as_object().into_iter().flatten();
        for (name, state) in states {
            let line = format!(
                "Group {name:?}: desired {}, placed {}, healthy {}, unhealthy {}",
                number(state, "DesiredTotal"),
                number(state, "PlacedAllocs"),
                number(state, "HealthyAllocs"),
                number(state, "UnhealthyAllocs"),
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
/// tell.
fn canaries_gone(deployment: &Json, allocs: &Json) -> i64 {
    let runs = |id: &Json| {
        let allocs = allocs.as_array().into_iter().flatten();
        let mut own = allocs.filter(|alloc| alloc["ID"] == *id);
        own.any(|alloc| {
            text(alloc, "DesiredStatus") == desired::RUN
                && text(alloc, "ClientStatus") == client::RUNNING
                && alloc["DeploymentStatus"]["Healthy"] == true
        })
    };
    let groups = deployment["TaskGroups"].as_object().into_iter().flatten();
    let missing = groups.map(|(_, group)| {
        let placed = group["PlacedCanaries"].as_array().into_iter().flatten();
        let running = placed.filter(|id| runs(id)).count();
        number(group, "DesiredCanaries") - i64::try_from(running).unwrap_or(i64::MAX)
    });
    missing.map(|missing| missing.max(0)).sum()
}

/// Whether nothing more happens to a deployment by itself.
fn settled(deployment: &Json) -> bool {
    match DeploymentStatus::of(&text(deployment, "Status")) {
        Some(
            DeploymentStatus::Running
            | DeploymentStatus::Pending
            | DeploymentStatus::Blocked
            | DeploymentStatus::Unblocking
            | DeploymentStatus::Initializing,
        ) => waits(deployment),
        Some(
            DeploymentStatus::Paused
            | DeploymentStatus::Failed
            | DeploymentStatus::Successful
            | DeploymentStatus::Cancelled,
        )
        | None => true,
    }
}

/// Whether all canaries of a running deployment are healthy, and somebody has to promote them.
fn waits(deployment: &Json) -> bool {
    let groups = deployment["TaskGroups"].as_object();
    text(deployment, "Status") == status::RUNNING
        && text(deployment, "StatusDescription").contains("requires manual promotion")
        && groups.into_iter().flatten().all(|(_, group)| {
            number(group, "DesiredCanaries") == 0
                || number(group, "HealthyAllocs") >= number(group, "DesiredCanaries")
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canaries_that_ended_do_not_wait_for_anybody() {
        let deployment = json!({"Status": "running",
            "StatusDescription": "Deployment is running but requires manual promotion",
            "TaskGroups": {"g": {"DesiredCanaries": 2, "HealthyAllocs": 2,
                "PlacedCanaries": ["a", "b"]}}});
        assert!(waits(&deployment));
        let alloc = |id: &str, desired: &str, client: &str| {
            json!({"ID": id, "DesiredStatus": desired, "ClientStatus": client,
                "DeploymentStatus": {"Healthy": true, "Canary": true}})
        };
        let both = json!([alloc("a", "run", "running"), alloc("b", "run", "running")]);
        assert_eq!(canaries_gone(&deployment, &both), 0);
        let one = json!([alloc("a", "stop", "complete"), alloc("b", "run", "running")]);
        assert_eq!(canaries_gone(&deployment, &one), 1);
    }
}
