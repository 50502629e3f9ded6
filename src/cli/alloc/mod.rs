//! The `alloc` noun.

mod change;
mod checks;
pub(super) mod exec;
mod fs;
pub(super) mod logs;
mod pick;
mod stats;
pub(super) mod status;
mod tail;

use super::columns::ColumnTable;
use super::out::Out;
use super::show::{ago, short};
use anyhow::Result;
use clap::Subcommand;
use drover_events::model::{AllocListStub, Allocation};

/// What can be done with allocations.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Show an allocation
    Status(status::Args),
    /// Print or follow a task's output
    Logs(logs::Args),
    /// List an allocation's files, or print one
    Fs(fs::Args),
    /// Run a command beside a task
    Exec(exec::Args),
    /// Show the checks of an allocation's services
    Checks(checks::Args),
    /// Show what an allocation's tasks use
    Stats(stats::Args),
    /// Restart tasks of an allocation
    Restart(change::RestartArgs),
    /// Send a signal to tasks of an allocation
    Signal(change::SignalArgs),
    /// Stop an allocation; another takes its place
    Stop(change::StopArgs),
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Status(args) => status::run(args, out).await,
        Verb::Logs(args) => logs::run(args, out).await,
        Verb::Fs(args) => fs::run(args, out).await,
        Verb::Exec(args) => exec::run(args).await,
        Verb::Checks(args) => checks::run(args, out).await,
        Verb::Stats(args) => stats::run(args, out).await,
        Verb::Restart(args) => change::restart(args, out).await,
        Verb::Signal(args) => change::signal(args, out).await,
        Verb::Stop(args) => change::stop(args, out).await,
    }
}

/// What a list shows of an allocation, whole or not.
pub(super) struct ListedAlloc<'a> {
    id: &'a str,
    eval_id: &'a str,
    node_id: &'a str,
    node_name: &'a str,
    task_group: &'a str,
    version: u64,
    desired_status: &'a str,
    client_status: &'a str,
    create_time: i64,
    modify_time: i64,
}

impl<'a> From<&'a AllocListStub> for ListedAlloc<'a> {
    fn from(stub: &'a AllocListStub) -> Self {
        Self {
            id: &stub.id,
            eval_id: &stub.eval_id,
            node_id: &stub.node_id,
            node_name: &stub.node_name,
            task_group: &stub.task_group,
            version: stub.job_version,
            desired_status: &stub.desired_status,
            client_status: &stub.client_status,
            create_time: stub.create_time,
            modify_time: stub.modify_time,
        }
    }
}

impl<'a> From<&'a Allocation> for ListedAlloc<'a> {
    fn from(alloc: &'a Allocation) -> Self {
        Self {
            id: &alloc.id,
            eval_id: &alloc.eval_id,
            node_id: &alloc.node_id,
            node_name: &alloc.node_name,
            task_group: &alloc.task_group,
            version: alloc.job.as_ref().map_or(0, |job| job.version),
            desired_status: &alloc.desired_status,
            client_status: &alloc.client_status,
            create_time: alloc.create_time,
            modify_time: alloc.modify_time,
        }
    }
}

/// A list of allocations, the newest first; ages count from `now`, Unix nanoseconds.
pub(super) fn table<'a, A>(allocs: &'a [A], (verbose, now): (bool, i64)) -> String
where
    ListedAlloc<'a>: From<&'a A>,
{
    let mut allocs: Vec<ListedAlloc<'_>> = allocs.iter().map(ListedAlloc::from).collect();
    if allocs.is_empty() {
        return "No allocations placed".to_owned();
    }
    allocs.sort_by_key(|alloc| std::cmp::Reverse(alloc.create_time));
    let mut head = vec!["ID"];
    if verbose {
        head.push("Eval ID");
    }
    head.push("Node ID");
    if verbose {
        head.push("Node Name");
    }
    head.extend([
        "Task Group",
        "Version",
        "Desired",
        "Status",
        "Created",
        "Modified",
    ]);
    let mut table = ColumnTable::with_head(head);
    let when = |ns: i64| {
        if verbose {
            super::show::time(ns)
        } else {
            ago(ns, now)
        }
    };
    for alloc in allocs {
        let mut row = vec![short(alloc.id, verbose)];
        if verbose {
            row.push(alloc.eval_id.to_owned());
        }
        row.push(short(alloc.node_id, verbose));
        if verbose {
            row.push(alloc.node_name.to_owned());
        }
        row.push(alloc.task_group.to_owned());
        row.push(alloc.version.to_string());
        row.extend([alloc.desired_status, alloc.client_status].map(str::to_owned));
        row.extend([when(alloc.create_time), when(alloc.modify_time)]);
        table.row(row);
    }
    table.to_string()
}
