//! `alloc status`

use super::super::columns::{ColumnTable, pairs};
use super::super::conn::PastConnection;
use super::super::out::Out;
use super::super::placement;
use super::super::query::find;
use super::super::show::{Format, ago, short, stamp, time};
use super::super::stats;
use super::super::volume;
use anyhow::Result;
use drover_events::model::status as words;
use drover_events::model::{
    AllocListStub, AllocMetric, AllocatedResources, Allocation, ResourceUsage, Task, TaskState,
};

/// Flags of `alloc status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc status 8ba85cef
  drover alloc status -json 8ba85cef")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
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
    pub(in crate::cli) fn of(
        conn: PastConnection,
        format: Format,
        id: String,
        verbose: bool,
    ) -> Self {
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
    let stub: AllocListStub = find(&client, &args.allocation).await?;
    let path = format!("/v1/allocation/{}", stub.id);
    let requested = (path.as_str(), &[("namespace", stub.namespace.as_str())][..]);
    let failed = "Error querying allocation";
    let alloc = args
        .format
        .ask::<Allocation>(&client, requested, failed, out);
    let Some(alloc) = alloc.await? else {
        return Ok(0);
    };
    out.line(&basics(&alloc, (args.verbose, client.now())));
    if args.short {
        out.head("Tasks");
        out.line(&tasks(&alloc).to_string());
        return Ok(0);
    }
    addresses(alloc.allocated_resources.as_ref(), out);
    volume::show_of_alloc(&client, &alloc, out).await;
    // What is used is known of now alone.
    let running = alloc.client_status == words::client::RUNNING && args.conn.at.is_empty();
    let (stats, failed) = match running || args.stats {
        true => match stats::of_alloc(&client, &alloc.id, &alloc.namespace).await {
            Ok(stats) => (Some(stats), None),
            Err(err) => (None, Some(err)),
        },
        false => (None, None),
    };
    for (name, state) in &alloc.task_states {
        let used = stats.as_ref().and_then(|stats| stats.tasks.get(name));
        let used = used.and_then(|task| task.resource_usage.as_ref());
        resources(&alloc, (name, state), used, out);
        if args.stats {
            stats::of_task(used, out);
        }
        events(state, out);
    }
    if let Some(metric) = alloc.metrics.as_ref().filter(|_| args.verbose) {
        out.head("Placement Metrics");
        let lines = placement::lines(metric, "");
        out.line(&if lines.is_empty() {
            metrics(metric)
        } else {
            lines.join("\n")
        });
    }
    match failed.filter(|_| args.stats) {
        Some(err) => Err(err.context("Error querying what the allocation uses")),
        None => Ok(0),
    }
}

/// The tasks with what happened to each last.
fn tasks(alloc: &Allocation) -> ColumnTable {
    let mut table = ColumnTable::new(["Name", "State", "Last Event", "Time", "Lifecycle"]);
    for (name, state) in &alloc.task_states {
        let last = state.events.last();
        table.row([
            name.clone(),
            state.state.clone(),
            last.map(|event| event.r#type.clone()).unwrap_or_default(),
            last.map(|event| time(event.time)).unwrap_or_default(),
            lifecycle(alloc, name),
        ]);
    }
    table
}

fn basics(alloc: &Allocation, (verbose, now): (bool, i64)) -> String {
    let when = |ns: i64| if verbose { time(ns) } else { ago(ns, now) };
    let version = alloc.job.as_ref().map_or(0, |job| job.version);
    let mut rows = vec![
        ("ID", alloc.id.clone()),
        ("Eval ID", short(&alloc.eval_id, verbose)),
        ("Name", alloc.name.clone()),
        ("Node ID", short(&alloc.node_id, verbose)),
        ("Node Name", alloc.node_name.clone()),
        ("Job ID", alloc.job_id.clone()),
        ("Job Version", version.to_string()),
        ("Client Status", alloc.client_status.clone()),
        ("Client Description", alloc.client_description.clone()),
        ("Desired Status", alloc.desired_status.clone()),
        ("Desired Description", alloc.desired_description.clone()),
        ("Created", when(alloc.create_time)),
        ("Modified", when(alloc.modify_time)),
    ];
    if !alloc.deployment_id.is_empty() {
        rows.push(("Deployment ID", short(&alloc.deployment_id, verbose)));
        let status = alloc.deployment_status.as_ref();
        let health = match status.and_then(|status| status.healthy) {
            Some(true) => "healthy",
            Some(false) => "unhealthy",
            None => "unset",
        };
        rows.push(("Deployment Health", health.to_owned()));
        if status.is_some_and(|status| status.canary) {
            rows.push(("Canary", "true".to_owned()));
        }
    }
    let next = &alloc.next_allocation;
    if !next.is_empty() {
        rows.push(("Replacement Alloc ID", short(next, verbose)));
    }
    let follow = &alloc.followup_eval_id;
    if !follow.is_empty() {
        rows.push((
            "Reschedule Eligibility",
            format!("evaluation {}", short(follow, verbose)),
        ));
    }
    pairs(&rows)
}

fn addresses(given: Option<&AllocatedResources>, out: &Out) {
    let Some(shared) = given.map(|given| &given.shared) else {
        return;
    };
    if shared.ports.is_empty() {
        return;
    }
    let fixed = |label: &str| {
        let networks = shared.networks.iter();
        networks
            .flat_map(|network| &network.reserved_ports)
            .any(|port| port.label == label)
    };
    let mut table = ColumnTable::new(["Label", "Dynamic", "Address"]);
    for port in &shared.ports {
        let to = if port.to > 0 {
            format!(" -> {}", port.to)
        } else {
            String::new()
        };
        table.row([
            format!("*{}", port.label),
            if fixed(&port.label) { "no" } else { "yes" }.to_owned(),
            format!("{}:{}{to}", port.host_ip, port.value),
        ]);
    }
    let mode = shared
        .networks
        .first()
        .map(|network| &network.mode)
        .filter(|mode| !mode.is_empty());
    let mode = mode.map(|m| format!(" (mode = {m:?})")).unwrap_or_default();
    out.head(&format!("Allocation Addresses{mode}:"));
    out.line(&table.to_string());
}

fn spec<'a>(alloc: &'a Allocation, task: &str) -> Option<&'a Task> {
    alloc
        .job
        .as_ref()?
        .task_group(&alloc.task_group)?
        .task(task)
}

fn lifecycle(alloc: &Allocation, task: &str) -> String {
    let lifecycle = spec(alloc, task).and_then(|task| task.lifecycle.as_ref());
    match lifecycle {
        None => "main".to_owned(),
        Some(lifecycle) if lifecycle.sidecar => format!("{}_sidecar", lifecycle.hook),
        Some(lifecycle) => lifecycle.hook.clone(),
    }
}

/// A task's head and what it was given, beside what is used of it.
fn resources(
    alloc: &Allocation,
    (name, state): (&str, &TaskState),
    used: Option<&ResourceUsage>,
    out: &Out,
) {
    let kind = lifecycle(alloc, name);
    let kind = if kind == "main" {
        String::new()
    } else {
        format!(" ({kind})")
    };
    out.head(&format!("Task {name:?}{kind} is {:?}", state.state));
    let all = alloc.allocated_resources.as_ref();
    let given = all.and_then(|all| all.tasks.get(name));
    let mhz = given.map_or(0, |given| given.cpu.cpu_shares);
    let mib = given.map_or(0, |given| given.memory.memory_mb);
    let cpu = match used.and_then(|used| used.cpu_stats.as_ref()) {
        Some(stats) => format!("{:.0}/{mhz} MHz", stats.total_ticks),
        None => format!("{mhz} MHz"),
    };
    let memory = match used.and_then(|used| used.memory_stats.as_ref()) {
        #[allow(clippy::cast_precision_loss)] // one digit is shown
        Some(stats) => format!("{:.1} MiB/{mib} MiB", stats.rss as f64 / 1_048_576.0),
        None => format!("{mib} MiB"),
    };
    let disk = all.map_or(0, |all| all.shared.disk_mb);
    let mut table = ColumnTable::new(["CPU", "Memory", "Disk", "Addresses"]);
    table.row([cpu, memory, format!("{disk} MiB"), " ".to_owned()]);
    out.line("Task Resources:");
    out.line(table.to_string().replace("<none>", "").trim_end());
}

/// What happened to a task.
fn events(state: &TaskState, out: &Out) {
    out.line("\nTask Events:");
    out.line(&pairs(&[
        ("Started At", stamp(state.started_at.nanos())),
        ("Finished At", stamp(state.finished_at.nanos())),
        ("Total Restarts", state.restarts.to_string()),
        ("Last Restart", stamp(state.last_restart.nanos())),
    ]));
    out.line("\nRecent Events:");
    let mut table = ColumnTable::new(["Time", "Type", "Description"]);
    for event in state.events.iter().rev() {
        let description = match event.display_message.as_str() {
            "" => &event.message,
            _ => &event.display_message,
        };
        table.row([time(event.time), event.r#type.clone(), description.clone()]);
    }
    out.line(&table.to_string());
}

fn metrics(metric: &AllocMetric) -> String {
    let mut table = ColumnTable::new(["Node", "Final Score"]);
    for score in &metric.score_meta_data {
        table.row([score.node_id.clone(), format!("{:.3}", score.norm_score)]);
    }
    table.to_string()
}
