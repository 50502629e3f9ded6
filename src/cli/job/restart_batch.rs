//! One allocation of a job that is restarted.

use super::super::monitor::Monitor;
use super::super::show::short;
use super::FoundJob;
use crate::http::answers::StopResponse;
use anyhow::{Result, bail};
use drover_events::model::AllocListStub;
use drover_events::model::status as words;
use serde::de::IgnoredAny;
use serde_json::json;

/// What is restarted of it.
pub(super) struct How<'a> {
    /// Only these tasks; all that run where none is named.
    pub(super) tasks: &'a [String],
    /// Tasks that ended as well.
    pub(super) all_tasks: bool,
    /// With a replacement: no shutdown delays.
    pub(super) no_shutdown_delay: bool,
}

/// Restarts its tasks where it is.
pub(super) async fn restart(
    job: &FoundJob,
    monitor: &Monitor<'_>,
    alloc: &AllocListStub,
    how: &How<'_>,
) -> Result<()> {
    let id = &alloc.id;
    let path = format!("/v1/client/allocation/{id}/restart");
    let (shown, group) = (short(id, monitor.verbose), &alloc.task_group);
    let here = |name: &&String| alloc.task_states.contains_key(*name);
    if how.tasks.is_empty() {
        let what = match how.all_tasks {
            true => "all tasks",
            false => "running tasks",
        };
        monitor.say(&format!(
            "Restarting {what} in group {group:?} for allocation {shown:?}"
        ));
        let body = json!({ "AllTasks": how.all_tasks });
        let scope = job.scope();
        let done = job.client.put::<IgnoredAny>(&path, &scope, &body).await;
        return done.map(drop);
    }
    for task in how.tasks.iter().filter(here) {
        monitor.say(&format!(
            "Restarting task {task:?} in group {group:?} for allocation {shown:?}"
        ));
        let body = json!({ "TaskName": task });
        let scope = job.scope();
        let done = job.client.put::<IgnoredAny>(&path, &scope, &body).await;
        done?;
    }
    Ok(())
}

/// Stops it, and waits until another runs in its place.
pub(super) async fn replace(
    job: &FoundJob,
    monitor: &Monitor<'_>,
    alloc: &AllocListStub,
    how: &How<'_>,
) -> Result<()> {
    let id = &alloc.id;
    let (shown, group) = (short(id, monitor.verbose), &alloc.task_group);
    monitor.say(&format!(
        "Rescheduling allocation {shown:?} of group {group:?}"
    ));
    let mut query = job.scope().to_vec();
    if how.no_shutdown_delay {
        query.push(("no_shutdown_delay", "true"));
    }
    let path = format!("/v1/allocation/{id}/stop");
    let done: StopResponse = job.client.put(&path, &query, &json!({})).await?;
    let mut stream = monitor.stream(&job.id, done.index).await?;
    let mut replacement = String::new();
    while let Some(frame) = stream.frame().await? {
        for event in frame.events {
            let Some(other) = event.payload.allocation else {
                continue;
            };
            if other.previous_allocation == *id && replacement.is_empty() {
                replacement.clone_from(&other.id);
                let shown = short(&replacement, monitor.verbose);
                monitor.say(&format!("Allocation {shown:?} takes its place"));
            }
            if replacement.is_empty() || other.id != replacement {
                continue;
            }
            match words::ClientStatus::of(&other.client_status) {
                Some(words::ClientStatus::Running | words::ClientStatus::Complete) => return Ok(()),
                Some(status @ (words::ClientStatus::Failed | words::ClientStatus::Lost)) => {
                    bail!(
                        "its replacement {:?} is {status}",
                        short(&replacement, monitor.verbose)
                    )
                }
                Some(words::ClientStatus::Pending | words::ClientStatus::Unknown) | None => {}
            }
        }
    }
    bail!("the event stream ended before another ran in its place")
}
