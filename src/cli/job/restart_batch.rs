//! One allocation of a job that is restarted.

use super::super::monitor::Monitor;
use super::super::show::{list, number, short, text};
use super::Found;
use anyhow::{Result, bail};
use drover_events::model::status::ClientStatus;
use serde_json::{Value as Json, json};

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
    job: &Found,
    monitor: &Monitor<'_>,
    alloc: &Json,
    how: &How<'_>,
) -> Result<()> {
    let id = text(alloc, "ID");
    let path = format!("/v1/client/allocation/{id}/restart");
    let (shown, group) = (short(&id, monitor.verbose), text(alloc, "TaskGroup"));
    let states = alloc["TaskStates"].as_object();
    let here = |name: &&String| states.is_some_and(|states| states.contains_key(*name));
    if how.tasks.is_empty() {
        let what = match how.all_tasks {
            true => "all tasks",
            false => "running tasks",
        };
        monitor.say(&format!(
            "Restarting {what} in group {group:?} for allocation {shown:?}"
        ));
        let body = json!({ "AllTasks": how.all_tasks });
        job.client.put(&path, &job.scope(), &body).await?;
        return Ok(());
    }
    for task in how.tasks.iter().filter(here) {
        monitor.say(&format!(
            "Restarting task {task:?} in group {group:?} for allocation {shown:?}"
        ));
        let body = json!({ "TaskName": task });
        job.client.put(&path, &job.scope(), &body).await?;
    }
    Ok(())
}

/// Stops it, and waits until another runs in its place.
pub(super) async fn replace(
    job: &Found,
    monitor: &Monitor<'_>,
    alloc: &Json,
    how: &How<'_>,
) -> Result<()> {
    let id = text(alloc, "ID");
    let (shown, group) = (short(&id, monitor.verbose), text(alloc, "TaskGroup"));
    monitor.say(&format!(
        "Rescheduling allocation {shown:?} of group {group:?}"
    ));
    let mut query = job.scope().to_vec();
    if how.no_shutdown_delay {
        query.push(("no_shutdown_delay", "true"));
    }
    let path = format!("/v1/allocation/{id}/stop");
    let done = job.client.put(&path, &query, &json!({})).await?;
    let mut stream = monitor.stream(&job.id, number(&done, "Index")).await?;
    let mut replacement = String::new();
    while let Some(frame) = stream.json_line().await? {
        for event in list(&frame, "Events") {
            let other = &event["Payload"]["Allocation"];
            if text(other, "PreviousAllocation") == id && replacement.is_empty() {
                replacement = text(other, "ID");
                let shown = short(&replacement, monitor.verbose);
                monitor.say(&format!("Allocation {shown:?} takes its place"));
            }
            if replacement.is_empty() || text(other, "ID") != replacement {
                continue;
            }
            match ClientStatus::of(&text(other, "ClientStatus")) {
                Some(ClientStatus::Running | ClientStatus::Complete) => return Ok(()),
                Some(status @ (ClientStatus::Failed | ClientStatus::Lost)) => {
                    bail!(
                        "its replacement {:?} is {status}",
                        short(&replacement, monitor.verbose)
                    )
                }
                Some(ClientStatus::Pending | ClientStatus::Unknown) | None => {}
            }
        }
    }
    bail!("the event stream ended before another ran in its place")
}
