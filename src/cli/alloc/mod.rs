//! The `alloc` noun.

mod change;
mod checks;
mod exec;
mod fs;
pub(super) mod logs;
mod pick;
mod stats;
pub(super) mod status;
mod tail;

use super::columns::Table;
use super::out::Out;
use super::show::{ago, number, short, text};
use anyhow::Result;
use clap::Subcommand;
use serde_json::Value as Json;

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

/// A list of allocations, the newest first; ages count from `now`, Unix nanoseconds.
pub(super) fn table(allocs: &Json, (verbose, now): (bool, i64)) -> String {
    let mut allocs: Vec<&Json> = allocs.as_array().into_iter().flatten().collect();
    if allocs.is_empty() {
        return "No allocations placed".to_owned();
    }
    allocs.sort_by_key(|a| std::cmp::Reverse(number(a, "CreateTime")));
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
    let mut table = Table::with_head(head);
    let when = |ns: i64| {
        if verbose {
            super::show::time(ns)
        } else {
            ago(ns, now)
        }
    };
    for alloc in allocs {
        let mut row = vec![short(&text(alloc, "ID"), verbose)];
        if verbose {
            row.push(text(alloc, "EvalID"));
        }
        row.push(short(&text(alloc, "NodeID"), verbose));
        if verbose {
            row.push(text(alloc, "NodeName"));
        }
        row.push(text(alloc, "TaskGroup"));
        // Whole allocations have their job, stubs its version.
        let version = match &alloc["Job"] {
            Json::Null => number(alloc, "JobVersion"),
            job => number(job, "Version"),
        };
        row.push(version.to_string());
        row.extend([text(alloc, "DesiredStatus"), text(alloc, "ClientStatus")]);
        row.extend([
            when(number(alloc, "CreateTime")),
            when(number(alloc, "ModifyTime")),
        ]);
        table.row(row);
    }
    table.to_string()
}
