//! `alloc status`

use super::super::columns::{Table, pairs};
use super::super::conn::Past;
use super::super::node::stats;
use super::super::out::Out;
use super::super::placement;
use super::super::query::{Thing, find};
use super::super::show::{Format, ago, boolean, list, number, short, stamp, text, time};
use super::super::volume;
use anyhow::Result;
use drover_events::model::status::client as status;
use serde_json::Value as Json;

/// Flags of `alloc status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc status 8ba85cef
  drover alloc status -json 8ba85cef")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// The allocation's id or a prefix of it
    allocation: String,
    /// Only the tasks' states
    #[arg(long)]
    short: bool,
    /// Show full ids and times
    #[arg(long)]
    verbose: bool,
    /// Show in detail what the tasks use
    #[arg(long, conflicts_with = "at")]
    stats: bool,
}

impl Args {
    /// Those that show what this id begins.
    pub(in crate::cli) fn of(conn: Past, format: Format, id: String, verbose: bool) -> Self {
        Self {
            conn,
            format,
            allocation: id,
            short: false,
            verbose,
            stats: false,
        }
    }
}

/// Shows an allocation.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub = find(&client, Thing::Alloc, &args.allocation).await?;
    let path = format!("/v1/allocation/{}", text(&stub, "ID"));
    let namespace = text(&stub, "Namespace");
    let asked = (path.as_str(), &[("namespace", namespace.as_str())][..]);
    let failed = "Error querying allocation";
    let Some(alloc) = args.format.ask(&client, asked, failed, out).await? else {
        return Ok(0);
    };
    out.line(&basics(&alloc, (args.verbose, client.now())));
    if args.short {
        out.head("Tasks");
        let mut table = Table::new(["Name", "State", "Last Event", "Time", "Lifecycle"]);
        for (name, state) in alloc["TaskStates"].as_object().into_iter().flatten() {
            let last = list(state, "Events").last().cloned().unwrap_or_default();
            let (kind, at) = (text(&last, "Type"), time(number(&last, "Time")));
            table.row([
                name.clone(),
                text(state, "State"),
                kind,
                at,
                lifecycle(&alloc, name),
            ]);
        }
        out.line(&table.to_string());
        return Ok(0);
    }
    addresses(&alloc, out);
    volume::show_of_alloc(&client, &alloc, out).await;
    // What is used is known of now alone.
    let running = text(&alloc, "ClientStatus") == status::RUNNING && args.conn.at.is_empty();
    let stats = match running || args.stats {
        true => stats::of_alloc(&client, &alloc).await,
        false => Ok(Json::Null),
    };
    let (stats, failed) = match stats {
        Ok(stats) => (stats, None),
        Err(err) => (Json::Null, Some(err)),
    };
    for (name, state) in alloc["TaskStates"].as_object().into_iter().flatten() {
        let used = &stats["Tasks"][name]["ResourceUsage"];
        resources(&alloc, (name, state), used, out);
        if args.stats {
            stats::of_task(used, out);
        }
        events(state, out);
    }
    if args.verbose && !alloc["Metrics"].is_null() {
        out.head("Placement Metrics");
        let lines = placement::lines(&alloc["Metrics"], "");
        out.line(&if lines.is_empty() {
            metrics(&alloc["Metrics"])
        } else {
            lines.join("\n")
        });
    }
    match failed.filter(|_| args.stats) {
        Some(err) => Err(err.context("Error querying what the allocation uses")),
        None => Ok(0),
    }
}

fn basics(alloc: &Json, (verbose, now): (bool, i64)) -> String {
    let when = |ns: i64| if verbose { time(ns) } else { ago(ns, now) };
    let mut rows = vec![
        ("ID", text(alloc, "ID")),
        ("Eval ID", short(&text(alloc, "EvalID"), verbose)),
        ("Name", text(alloc, "Name")),
        ("Node ID", short(&text(alloc, "NodeID"), verbose)),
        ("Node Name", text(alloc, "NodeName")),
        ("Job ID", text(alloc, "JobID")),
        ("Job Version", number(&alloc["Job"], "Version").to_string()),
        ("Client Status", text(alloc, "ClientStatus")),
        ("Client Description", text(alloc, "ClientDescription")),
        ("Desired Status", text(alloc, "DesiredStatus")),
        ("Desired Description", text(alloc, "DesiredDescription")),
        ("Created", when(number(alloc, "CreateTime"))),
        ("Modified", when(number(alloc, "ModifyTime"))),
    ];
    if !text(alloc, "DeploymentID").is_empty() {
        rows.push((
            "Deployment ID",
            short(&text(alloc, "DeploymentID"), verbose),
        ));
        let status = &alloc["DeploymentStatus"];
        let health = match status["Healthy"].as_bool() {
            Some(true) => "healthy",
            Some(false) => "unhealthy",
            None => "unset",
        };
        rows.push(("Deployment Health", health.to_owned()));
        if boolean(status, "Canary") {
            rows.push(("Canary", "true".to_owned()));
        }
    }
    let next = text(alloc, "NextAllocation");
    if !next.is_empty() {
        rows.push(("Replacement Alloc ID", short(&next, verbose)));
    }
    let follow = text(alloc, "FollowupEvalID");
    if !follow.is_empty() {
        rows.push((
            "Reschedule Eligibility",
            format!("evaluation {}", short(&follow, verbose)),
        ));
    }
    pairs(&rows)
}

fn addresses(alloc: &Json, out: &Out) {
    let ports = list(&alloc["AllocatedResources"]["Shared"], "Ports");
    if ports.is_empty() {
        return;
    }
    let networks = list(&alloc["AllocatedResources"]["Shared"], "Networks");
    let fixed = |label: &str| {
        networks
            .iter()
            .flat_map(|n| list(n, "ReservedPorts"))
            .any(|p| text(p, "Label") == label)
    };
    let mut table = Table::new(["Label", "Dynamic", "Address"]);
    for port in ports {
        let label = text(port, "Label");
        let to = number(port, "To");
        let to = if to > 0 {
            format!(" -> {to}")
        } else {
            String::new()
        };
        let address = format!("{}:{}{to}", text(port, "HostIP"), number(port, "Value"));
        table.row([
            format!("*{label}"),
            if fixed(&label) { "no" } else { "yes" }.to_owned(),
            address,
        ]);
    }
    let mode = networks
        .first()
        .map(|n| text(n, "Mode"))
        .filter(|m| !m.is_empty());
    let mode = mode.map(|m| format!(" (mode = {m:?})")).unwrap_or_default();
    out.head(&format!("Allocation Addresses{mode}:"));
    out.line(&table.to_string());
}

fn spec<'a>(alloc: &'a Json, task: &str) -> Option<&'a Json> {
    let group = text(alloc, "TaskGroup");
    let groups = list(&alloc["Job"], "TaskGroups");
    let group = groups.iter().find(|g| text(g, "Name") == group)?;
    list(group, "Tasks")
        .iter()
        .find(|t| text(t, "Name") == task)
}

fn lifecycle(alloc: &Json, task: &str) -> String {
    let hook = spec(alloc, task)
        .map(|t| &t["Lifecycle"])
        .filter(|l| !l.is_null());
    hook.map_or_else(
        || "main".to_owned(),
        |l| {
            text(l, "Hook")
                + if boolean(l, "Sidecar") {
                    "_sidecar"
                } else {
                    ""
                }
        },
    )
}

/// A task's head and what it was given, beside what is used of it.
fn resources(alloc: &Json, (name, state): (&str, &Json), used: &Json, out: &Out) {
    let kind = lifecycle(alloc, name);
    let kind = if kind == "main" {
        String::new()
    } else {
        format!(" ({kind})")
    };
    out.head(&format!(
        "Task {name:?}{kind} is {:?}",
        text(state, "State")
    ));
    let given = &alloc["AllocatedResources"]["Tasks"][name];
    let mhz = number(&given["Cpu"], "CpuShares");
    let mib = number(&given["Memory"], "MemoryMB");
    let cpu = match used["CpuStats"]["TotalTicks"].as_f64() {
        Some(ticks) => format!("{ticks:.0}/{mhz} MHz"),
        None => format!("{mhz} MHz"),
    };
    let memory = match used["MemoryStats"]["RSS"].as_f64() {
        Some(bytes) => format!("{:.1} MiB/{mib} MiB", bytes / 1_048_576.0),
        None => format!("{mib} MiB"),
    };
    let disk = number(&alloc["AllocatedResources"]["Shared"], "DiskMB");
    let mut table = Table::new(["CPU", "Memory", "Disk", "Addresses"]);
    table.row([cpu, memory, format!("{disk} MiB"), " ".to_owned()]);
    out.line("Task Resources:");
    out.line(table.to_string().replace("<none>", "").trim_end());
}

/// What happened to a task.
fn events(state: &Json, out: &Out) {
    let at = |key: &str| stamp(state, key);
    out.line("\nTask Events:");
    out.line(&pairs(&[
        ("Started At", at("StartedAt")),
        ("Finished At", at("FinishedAt")),
        ("Total Restarts", number(state, "Restarts").to_string()),
        ("Last Restart", at("LastRestart")),
    ]));
    out.line("\nRecent Events:");
    let mut table = Table::new(["Time", "Type", "Description"]);
    for event in list(state, "Events").iter().rev() {
        let said = [text(event, "DisplayMessage"), text(event, "Message")];
        let said = said.into_iter().find(|s| !s.is_empty()).unwrap_or_default();
        table.row([time(number(event, "Time")), text(event, "Type"), said]);
    }
    out.line(&table.to_string());
}

fn metrics(metrics: &Json) -> String {
    let mut table = Table::new(["Node", "Final Score"]);
    for score in list(metrics, "ScoreMetaData") {
        let value = score["NormScore"].as_f64().unwrap_or(0.0);
        table.row([text(score, "NodeID"), format!("{value:.3}")]);
    }
    table.to_string()
}
