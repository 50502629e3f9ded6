//! `job status`

use super::super::alloc;
use super::super::client::Client;
use super::super::columns::{Table, pairs};
use super::super::conn::Past;
use super::super::deployment::deployment_text;
use super::super::out::Out;
use super::super::placement;
use super::super::query::{Thing, find, job_path};
use super::super::show::{Format, boolean, joined, number, short, text, time};
use super::periodic::next_launch;
use anyhow::Result;
use drover_events::model::status::eval;
use serde_json::Value as Json;

/// Flags of `job status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job status
  drover job status web
  drover job status -evals -all-allocs web")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// A job's ID or a prefix of it; without one all jobs are listed
    job: Option<String>,
    /// Only the job itself
    #[arg(long)]
    short: bool,
    /// Show evaluations
    #[arg(long)]
    evals: bool,
    /// Show allocations of earlier jobs of this ID too
    #[arg(long)]
    all_allocs: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

impl Args {
    /// Those that show what this ID begins.
    pub(in crate::cli) fn of(conn: Past, format: Format, id: String, verbose: bool) -> Self {
        Self {
            conn,
            format,
            job: Some(id),
            short: false,
            evals: false,
            all_allocs: false,
            verbose,
        }
    }
}

/// Lists jobs or shows one.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let Some(name) = &args.job else {
        let failed = "Error querying jobs";
        let Some(jobs) = args
            .format
            .ask(&client, ("/v1/jobs", &[]), failed, out)
            .await?
        else {
            return Ok(0);
        };
        out.line(&job_list(&jobs, args.conn.namespace == "*"));
        return Ok(0);
    };
    let stub = find(&client, Thing::Job, name).await?;
    let (id, namespace) = (text(&stub, "ID"), text(&stub, "Namespace"));
    let scope = [("namespace", namespace.as_str())];
    let job = client.get_json(&job_path(&id, ""), &scope).await;
    let job = job.map_err(|err| err.context("Error querying job"))?;
    if args.format.print(&job, out)? {
        return Ok(0);
    }
    client.tell_moment(out);
    out.line(&basics(&job));
    if !args.short {
        details(&args, &client, &job, &scope, out).await?;
    }
    Ok(0)
}

/// The list of jobs; `all`: of several namespaces.
pub(in crate::cli) fn job_list(jobs: &Json, all: bool) -> String {
    let jobs = jobs.as_array().map(Vec::as_slice).unwrap_or_default();
    if jobs.is_empty() {
        return "No running jobs".to_owned();
    }
    let mut head = vec!["ID", "Type", "Priority", "Status", "Submit Date"];
    if all {
        head.insert(1, "Namespace");
    }
    let mut table = Table::with_head(head);
    for job in jobs {
        let mut kind = text(job, "Type");
        if boolean(job, "Periodic") {
            kind += "/periodic";
        }
        if boolean(job, "ParameterizedJob") {
            kind += "/parameterized";
        }
        let mut status = text(job, "Status");
        if boolean(job, "Stop") {
            status += " (stopped)";
        }
        let mut row = vec![
            text(job, "ID"),
            kind,
            number(job, "Priority").to_string(),
            status,
            time(number(job, "SubmitTime")),
        ];
        if all {
            row.insert(1, text(job, "Namespace"));
        }
        table.row(row);
    }
    table.to_string()
}

fn basics(job: &Json) -> String {
    let periodic = boolean(&job["Periodic"], "Enabled");
    let parameterized = !job["ParameterizedJob"].is_null() && !boolean(job, "Dispatched");
    let mut status = text(job, "Status");
    if boolean(job, "Stop") {
        status += " (stopped)";
    }
    let mut rows = vec![
        ("ID", text(job, "ID")),
        ("Name", text(job, "Name")),
        ("Submit Date", time(number(job, "SubmitTime"))),
        ("Type", text(job, "Type")),
        ("Priority", number(job, "Priority").to_string()),
        ("Datacenters", joined(job, "Datacenters")),
        ("Namespace", text(job, "Namespace")),
        ("Node Pool", text(job, "NodePool")),
        ("Status", status),
        ("Periodic", periodic.to_string()),
        ("Parameterized", parameterized.to_string()),
    ];
    if periodic && !parameterized {
        let next = match boolean(job, "Stop") {
            true => "none (job stopped)".to_owned(),
            false => next_launch(job).unwrap_or_else(|| "never".to_owned()),
        };
        rows.push(("Next Periodic Launch", next));
    }
    pairs(&rows)
}

async fn details(
    args: &Args,
    client: &Client,
    job: &Json,
    scope: &[(&str, &str)],
    out: &Out,
) -> Result<()> {
    let id = text(job, "ID");
    let get = |suffix: &'static str| {
        let path = job_path(&id, suffix);
        async move { client.get_json(&path, scope).await }
    };
    let summary = get("/summary").await?;
    let launcher = !job["Periodic"].is_null()
        || (!job["ParameterizedJob"].is_null() && !boolean(job, "Dispatched"));
    if launcher {
        children(client, job, &summary, scope, out).await?;
        return Ok(());
    }
    groups(&summary, out);
    let evals = get("/evaluations").await?;
    let evals = evals.as_array().map(Vec::as_slice).unwrap_or_default();
    if args.evals || args.verbose {
        evaluations(evals, args.verbose, out);
    }
    let latest = evals.iter().max_by_key(|e| number(e, "CreateIndex"));
    if let Some(eval) = latest.filter(|e| {
        e["FailedTGAllocs"]
            .as_object()
            .is_some_and(|m| !m.is_empty())
    }) {
        out.head("Placement Failure");
        out.line(&placement::failed_groups(&eval["FailedTGAllocs"]).join("\n"));
    }
    let deployment = get("/deployment").await?;
    if !deployment.is_null() {
        out.head("Latest Deployment");
        out.line(&deployment_text(&deployment, args.verbose));
    }
    let all = [
        scope[0],
        ("all", if args.all_allocs { "true" } else { "false" }),
    ];
    let allocs = client
        .get_json(&job_path(&id, "/allocations"), &all)
        .await?;
    out.head("Allocations");
    out.line(&alloc::table(&allocs, (args.verbose, client.now())));
    Ok(())
}

fn groups(summary: &Json, out: &Out) {
    let Some(groups) = summary["Summary"].as_object().filter(|g| !g.is_empty()) else {
        return;
    };
    let keys = [
        "Queued", "Starting", "Running", "Failed", "Complete", "Lost", "Unknown",
    ];
    let mut table = Table::with_head(std::iter::once("Task Group").chain(keys).collect());
    for (name, counts) in groups {
        let cells = keys.iter().map(|k| number(counts, k).to_string());
        table.row(std::iter::once(name.clone()).chain(cells));
    }
    out.head("Summary");
    out.line(&table.to_string());
}

fn evaluations(evals: &[Json], verbose: bool, out: &Out) {
    let mut table = Table::new([
        "ID",
        "Priority",
        "Triggered By",
        "Status",
        "Placement Failures",
    ]);
    let mut evals: Vec<&Json> = evals.iter().collect();
    evals.sort_by_key(|e| std::cmp::Reverse(number(e, "CreateIndex")));
    for eval in evals {
        let failures = match text(eval, "Status").as_str() {
            eval::BLOCKED => "N/A - In Progress".to_owned(),
            _ => (!list_empty(&eval["FailedTGAllocs"])).to_string(),
        };
        table.row([
            short(&text(eval, "ID"), verbose),
            number(eval, "Priority").to_string(),
            text(eval, "TriggeredBy"),
            text(eval, "Status"),
            failures,
        ]);
    }
    if !table.is_empty() {
        out.head("Evaluations");
        out.line(&table.to_string());
    }
}

fn list_empty(map: &Json) -> bool {
    map.as_object().is_none_or(serde_json::Map::is_empty)
}

async fn children(
    client: &Client,
    job: &Json,
    summary: &Json,
    scope: &[(&str, &str)],
    out: &Out,
) -> Result<()> {
    let counts = &summary["Children"];
    let mut table = Table::new(["Pending", "Running", "Dead"]);
    table.row(["Pending", "Running", "Dead"].map(|k| number(counts, k).to_string()));
    out.head("Children Job Summary");
    out.line(&table.to_string());
    let (title, mark) = match job["Periodic"].is_null() {
        true => ("Dispatched Jobs", "/dispatch-"),
        false => ("Previously Launched Jobs", "/periodic-"),
    };
    let prefix = text(job, "ID") + mark;
    let query = [scope[0], ("prefix", prefix.as_str())];
    let jobs = client.get_json("/v1/jobs", &query).await?;
    let mut table = Table::new(["ID", "Status"]);
    let id = text(job, "ID");
    for child in jobs
        .as_array()
        .into_iter()
        .flatten()
        .filter(|j| text(j, "ParentID") == id)
    {
        table.row([text(child, "ID"), text(child, "Status")]);
    }
    out.head(title);
    if table.is_empty() {
        out.line(&format!(
            "No instances of {} job found",
            if mark.contains("dispatch") {
                "dispatched"
            } else {
                "periodic"
            }
        ));
    } else {
        out.line(&table.to_string());
    }
    Ok(())
}
