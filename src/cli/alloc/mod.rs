//! The `alloc` noun.

pub(super) mod logs;
pub(super) mod status;

use super::columns::Table;
use super::out::Out;
use super::show::{ago, now, number, short, text};
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
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Status(args) => status::run(args, out).await,
        Verb::Logs(args) => logs::run(args, out).await,
    }
}

/// A list of allocations, the newest first.
pub(super) fn table(allocs: &Json, verbose: bool, with_group: bool) -> String {
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
    head.push(if with_group { "Task Group" } else { "Job ID" });
    head.extend(["Version", "Desired", "Status", "Created", "Modified"]);
    let mut table = Table::with_head(head);
    let now = now();
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
        row.push(text(alloc, if with_group { "TaskGroup" } else { "JobID" }));
        row.push(number(alloc, "JobVersion").to_string());
        row.extend([text(alloc, "DesiredStatus"), text(alloc, "ClientStatus")]);
        row.extend([
            when(number(alloc, "CreateTime")),
            when(number(alloc, "ModifyTime")),
        ]);
        table.row(row);
    }
    table.to_string()
}
