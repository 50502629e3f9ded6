//! The allocation and the task that arguments name.

use super::super::client::Client;
use super::super::query::{find, job_path};
use crate::http::answers::JobListStub;
use anyhow::{Result, bail};
use drover_events::model::status as words;
use drover_events::model::{AllocListStub, Allocation};

/// An allocation, named by its id or by its job.
pub(super) struct NamedAlloc<'a> {
    /// The id, or the job's ID, or a prefix of one.
    pub(super) name: &'a str,
    /// Whether the name is a job's: then the newest that runs is meant, or the newest.
    pub(super) is_job: bool,
    /// Of a job: only allocations of this group.
    pub(super) group: Option<&'a str>,
}

impl NamedAlloc<'_> {
    /// The whole allocation.
    pub(super) async fn allocation(&self, client: &Client) -> Result<Allocation> {
        let (id, namespace) = match self.is_job {
            true => self.of_job(client).await?,
            false => {
                let stub: AllocListStub = find(client, self.name).await?;
                (stub.id, stub.namespace)
            }
        };
        let path = format!("/v1/allocation/{id}");
        let alloc = client.fetch(&path, &[("namespace", &namespace)]).await;
        alloc.map_err(|err| err.context("Error querying allocation"))
    }

    async fn of_job(&self, client: &Client) -> Result<(String, String)> {
        let JobListStub { id, namespace, .. } = find(client, self.name).await?;
        let path = job_path(&id, "/allocations");
        let mut allocs: Vec<AllocListStub> =
            client.fetch(&path, &[("namespace", &namespace)]).await?;
        allocs.retain(|alloc| self.group.is_none_or(|group| alloc.task_group == group));
        // Those that run first, and of these the newest.
        let newest = allocs.into_iter().max_by_key(|alloc| {
            (
                alloc.client_status == words::client::RUNNING,
                alloc.create_time,
            )
        });
        match (newest, self.group) {
            (Some(alloc), _) => Ok((alloc.id, namespace)),
            (None, None) => bail!("No allocations for job {id:?} found"),
            (None, Some(group)) => bail!("No allocations for job {id:?} and group {group:?} found"),
        }
    }
}

/// The names of the tasks of an allocation.
fn tasks(alloc: &Allocation) -> Vec<String> {
    let job = alloc.job.as_ref();
    let group = job.and_then(|job| job.task_group(&alloc.task_group));
    let tasks = group.map(|group| &group.tasks).into_iter().flatten();
    tasks.map(|task| task.name.clone()).collect()
}

/// The task that is named, or the only one there is; `shown` is how the allocation is called.
pub(super) fn pick_task(alloc: &Allocation, named: Option<&str>, shown: &str) -> Result<String> {
    let tasks = tasks(alloc);
    match (checked_task(alloc, named)?, tasks.as_slice()) {
        (Some(named), _) => Ok(named),
        (None, [one]) => Ok(one.clone()),
        (None, tasks) => bail!(
            "Allocation {shown:?} is running the following tasks:\n  * {}\n\n\
             Please specify the task.",
            tasks.join("\n  * ")
        ),
    }
}

/// The task that is named, if the allocation has it.
pub(super) fn checked_task(alloc: &Allocation, named: Option<&str>) -> Result<Option<String>> {
    let tasks = tasks(alloc);
    match named {
        Some(named) if !tasks.is_empty() && !tasks.iter().any(|task| task == named) => bail!(
            "Could not find task named: {named}, found:\n  * {}",
            tasks.join("\n  * ")
        ),
        named => Ok(named.map(str::to_owned)),
    }
}
