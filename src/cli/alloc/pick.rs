//! The allocation and the task that arguments name.

use super::super::client::Client;
use super::super::query::{Thing, find, job_path};
use super::super::show::{list, number, text};
use anyhow::{Result, bail};
use drover_events::model::status::client;
use serde_json::Value as Json;

/// An allocation, named by its id or by its job.
pub(super) struct Named<'a> {
    /// The id, or the job's ID, or a prefix of one.
    pub(super) name: &'a str,
    /// Whether the name is a job's: then the newest that runs is meant, or the newest.
    pub(super) is_job: bool,
    /// Of a job: only allocations of this group.
    pub(super) group: Option<&'a str>,
}

impl Named<'_> {
    /// The whole allocation.
    pub(super) async fn allocation(&self, client: &Client) -> Result<Json> {
        let (id, namespace) = match self.is_job {
            true => self.of_job(client).await?,
            false => {
                let stub = find(client, Thing::Alloc, self.name).await?;
                (text(&stub, "ID"), text(&stub, "Namespace"))
            }
        };
        let path = format!("/v1/allocation/{id}");
        let alloc = client.get_json(&path, &[("namespace", &namespace)]).await;
        alloc.map_err(|err| err.context("Error querying allocation"))
    }

    async fn of_job(&self, client: &Client) -> Result<(String, String)> {
        let job = find(client, Thing::Job, self.name).await?;
        let (id, namespace) = (text(&job, "ID"), text(&job, "Namespace"));
        let path = job_path(&id, "/allocations");
        let allocs = client.get_json(&path, &[("namespace", &namespace)]).await?;
        let wanted = |a: &&Json| self.group.is_none_or(|g| text(a, "TaskGroup") == g);
        let allocs = allocs.as_array().into_iter().flatten().filter(wanted);
        // Those that run first, and of these the newest.
        let newest = allocs.max_by_key(|a| {
            let runs = text(a, "ClientStatus") == client::RUNNING;
            (runs, number(a, "CreateTime"))
        });
        match (newest, self.group) {
            (Some(alloc), _) => Ok((text(alloc, "ID"), namespace)),
            (None, None) => bail!("No allocations for job {id:?} found"),
            (None, Some(group)) => bail!("No allocations for job {id:?} and group {group:?} found"),
        }
    }
}

/// The names of the tasks of an allocation.
fn tasks(alloc: &Json) -> Vec<String> {
    let name = text(alloc, "TaskGroup");
    let groups = list(&alloc["Job"], "TaskGroups");
    let group = groups.iter().find(|group| text(group, "Name") == name);
    let tasks = group.map(|group| list(group, "Tasks")).unwrap_or_default();
    tasks.iter().map(|task| text(task, "Name")).collect()
}

/// The task that is named, or the only one there is; `shown` is how the allocation is called.
pub(super) fn pick_task(alloc: &Json, named: Option<&str>, shown: &str) -> Result<String> {
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
pub(super) fn checked_task(alloc: &Json, named: Option<&str>) -> Result<Option<String>> {
    let tasks = tasks(alloc);
    match named {
        Some(named) if !tasks.is_empty() && !tasks.iter().any(|task| task == named) => bail!(
            "Could not find task named: {named}, found:\n  * {}",
            tasks.join("\n  * ")
        ),
        named => Ok(named.map(str::to_owned)),
    }
}
