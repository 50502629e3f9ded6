//! Restart, signal, figures and removal of allocations.

use std::collections::BTreeMap;

use drover_events::model::{AllocResourceUsage, CheckQueryResult};

use super::{control, runner};
use crate::agent::Client;
use drover_error::Refusal;

/// Restarts tasks: one, all that run, or all that can (JOB-11), and waits until those that ran have
/// ended.
///
/// # Errors
/// Unknown allocation or task, a task together with all, nothing that runs; tasks that cannot be
/// requested to end.
pub async fn restart(client: &Client, alloc: &str, task: &str, all: bool) -> Result<(), Refusal> {
    if all && !task.is_empty() {
        let text = "cannot restart all tasks and a single task at the same time";
        return Err(Refusal::bad_request(text));
    }
    let runner = runner(client, alloc)?;
    let requested = control(&runner)?.restart(named(task), all);
    Ok(requested.await?)
}

/// Sends a signal to one task, or to all that run.
///
/// # Errors
/// Unknown allocation, task or signal; nothing that runs.
pub fn signal(client: &Client, alloc: &str, task: &str, signal: &str) -> Result<(), Refusal> {
    let runner = runner(client, alloc)?;
    Ok(control(&runner)?.signal(named(task), signal)?)
}

/// What an allocation uses; of one task, if named.
///
/// # Errors
/// Unknown allocation or task.
pub async fn stats(
    client: &Client,
    alloc: &str,
    task: &str,
) -> Result<AllocResourceUsage, Refusal> {
    let runner = runner(client, alloc)?;
    let control = control(&runner)?;
    control.sampled().await;
    let mut usage = control.stats(named(task))?;
    if let Some(devices) = client.devices() {
        devices.add_figures(&runner.alloc(), &mut usage);
    }
    Ok(usage)
}

/// The last results of the checks of its services, by their ids (CHK-06).
///
/// # Errors
/// Unknown allocation.
pub fn checks(client: &Client, alloc: &str) -> Result<BTreeMap<String, CheckQueryResult>, Refusal> {
    let runner = runner(client, alloc)?;
    Ok(control(&runner)?.checks())
}

/// Removes what is left of a finished allocation.
///
/// # Errors
/// It is not here, or not finished.
pub async fn collect(client: &Client, alloc: &str) -> Result<(), Refusal> {
    client.collect(alloc).await.map_err(Refusal::not_found)
}

fn named(task: &str) -> Option<&str> {
    (!task.is_empty()).then_some(task)
}
