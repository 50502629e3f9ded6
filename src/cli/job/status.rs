//! `job status`

use super::super::alloc;
use super::super::client::Client;
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::PastConnection;
use super::super::deployment_text::deployment_text;
use super::super::out::Out;
use super::super::placement;
use super::super::query::{find, job_path};
use super::super::show::{Format, short, time};
use super::periodic::next_launch;
use crate::http::answers::JobListStub;
use anyhow::Result;
use drover_events::model::status as words;
use drover_events::model::{AllocListStub, Deployment, Evaluation, Job, JobSummary};

/// Flags of `job status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job status
  drover job status web
  drover job status -evals -all-allocs web")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
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
    pub(in crate::cli) fn of(
        conn: PastConnection,
        format: Format,
        id: String,
        verbose: bool,
    ) -> Self {
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
        let jobs = args.format.ask(&client, ("/v1/jobs", &[]), failed, out);
        let Some(jobs): Option<Vec<JobListStub>> = jobs.await? else {
            return Ok(0);
        };
        out.line(&job_list(&jobs, args.conn.namespace == "*"));
        return Ok(0);
    };
    let JobListStub { id, namespace, .. } = find(&client, name).await?;
    let scope = [("namespace", namespace.as_str())];
    let path = job_path(&id, "");
    let job = args
        .format
        .ask::<Job>(&client, (&path, &scope), "Error querying job", out);
    let Some(job) = job.await? else {
        return Ok(0);
    };
    out.line(&basics(&job));
    if !args.short {
        details(&args, &client, &job, &scope, out).await?;
    }
    Ok(0)
}

/// The list of jobs; `all`: of several namespaces.
pub(in crate::cli) fn job_list(jobs: &[JobListStub], all: bool) -> String {
    if jobs.is_empty() {
        return "No running jobs".to_owned();
    }
    let mut head = vec!["ID", "Type", "Priority", "Status", "Submit Date"];
    if all {
        head.insert(1, "Namespace");
    }
    let mut table = ColumnTable::with_head(head);
    for job in jobs {
        let mut kind = job.r#type.clone();
        if job.periodic {
            kind += "/periodic";
        }
        if job.parameterized_job {
            kind += "/parameterized";
        }
        let mut status = job.status.clone();
        if job.stop {
            status += " (stopped)";
        }
        let mut row = vec![
            job.id.clone(),
            kind,
            job.priority.to_string(),
            status,
            time(job.submit_time),
        ];
        if all {
            row.insert(1, job.namespace.clone());
        }
        table.row(row);
    }
    table.to_string()
}

fn basics(job: &Job) -> String {
    let periodic = job.periodic.as_ref().is_some_and(|own| own.enabled);
    let parameterized = job.is_parameterized();
    let mut status = job.status.clone();
    if job.stop {
        status += " (stopped)";
    }
    let mut rows = vec![
        ("ID", job.id.clone()),
        ("Name", job.name.clone()),
        ("Submit Date", time(job.submit_time)),
        ("Type", job.r#type.clone()),
        ("Priority", job.priority.to_string()),
        ("Datacenters", job.datacenters.join(",")),
        ("Namespace", job.namespace.clone()),
        ("Node Pool", job.node_pool.clone()),
        ("Status", status),
        ("Periodic", periodic.to_string()),
        ("Parameterized", parameterized.to_string()),
    ];
    if periodic && !parameterized {
        let next = match job.stop {
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
    job: &Job,
    scope: &[(&str, &str)],
    out: &Out,
) -> Result<()> {
    let path = |suffix: &str| job_path(&job.id, suffix);
    let summary: JobSummary = client.fetch(&path("/summary"), scope).await?;
    if job.has_children() {
        children(client, job, &summary, scope, out).await?;
        return Ok(());
    }
    groups(&summary, out);
    let mut evals: Vec<Evaluation> = client.fetch(&path("/evaluations"), scope).await?;
    evals.sort_by_key(|eval| std::cmp::Reverse(eval.create_index));
    if args.evals || args.verbose {
        evaluations(&evals, args.verbose, out);
    }
    let latest = evals.iter().max_by_key(|eval| eval.create_index);
    if let Some(eval) = latest.filter(|eval| !eval.failed_tg_allocs.is_empty()) {
        out.head("Placement Failure");
        out.line(&placement::failed_groups(&eval.failed_tg_allocs).join("\n"));
    }
    let deployment: Option<Deployment> = client.fetch(&path("/deployment"), scope).await?;
    if let Some(deployment) = deployment {
        out.head("Latest Deployment");
        out.line(&deployment_text(&deployment, args.verbose));
    }
    let all = [
        scope[0],
        ("all", if args.all_allocs { "true" } else { "false" }),
    ];
    let allocs: Vec<AllocListStub> = client.fetch(&path("/allocations"), &all).await?;
    out.head("Allocations");
    out.line(&alloc::table(&allocs, (args.verbose, client.now())));
    Ok(())
}

fn groups(summary: &JobSummary, out: &Out) {
    if summary.summary.is_empty() {
        return;
    }
    let mut table = ColumnTable::new([
        "Task Group",
        "Queued",
        "Starting",
        "Running",
        "Failed",
        "Complete",
        "Lost",
        "Unknown",
    ]);
    for (name, counts) in &summary.summary {
        let counts = [
            counts.queued,
            counts.starting,
            counts.running,
            counts.failed,
            counts.complete,
            counts.lost,
            counts.unknown,
        ];
        let cells = counts.iter().map(i64::to_string);
        table.row(std::iter::once(name.clone()).chain(cells));
    }
    out.head("Summary");
    out.line(&table.to_string());
}

/// Evaluations, the newest first.
fn evaluations(evals: &[Evaluation], verbose: bool, out: &Out) {
    let mut table = ColumnTable::new([
        "ID",
        "Priority",
        "Triggered By",
        "Status",
        "Placement Failures",
    ]);
    for eval in evals {
        let failures = match eval.status.as_str() {
            words::eval::BLOCKED => "N/A - In Progress".to_owned(),
            _ => (!eval.failed_tg_allocs.is_empty()).to_string(),
        };
        table.row([
            short(&eval.id, verbose),
            eval.priority.to_string(),
            eval.triggered_by.clone(),
            eval.status.clone(),
            failures,
        ]);
    }
    if !table.is_empty() {
        out.head("Evaluations");
        out.line(&table.to_string());
    }
}

async fn children(
    client: &Client,
    job: &Job,
    summary: &JobSummary,
    scope: &[(&str, &str)],
    out: &Out,
) -> Result<()> {
    let counts = summary.children.clone().unwrap_or_default();
    let mut table = ColumnTable::new(["Pending", "Running", "Dead"]);
    let counts = [counts.pending, counts.running, counts.dead];
    table.row(counts.map(|count| count.to_string()));
    out.head("Children Job Summary");
    out.line(&table.to_string());
    let (title, infix) = match job.is_periodic() {
        false => ("Dispatched Jobs", "/dispatch-"),
        true => ("Previously Launched Jobs", "/periodic-"),
    };
    let prefix = format!("{}{infix}", job.id);
    let query = [scope[0], ("prefix", prefix.as_str())];
    let jobs: Vec<JobListStub> = client.fetch("/v1/jobs", &query).await?;
    let mut table = ColumnTable::new(["ID", "Status"]);
    for child in jobs.into_iter().filter(|child| child.parent_id == job.id) {
        table.row([child.id, child.status]);
    }
    out.head(title);
    if table.is_empty() {
        out.line(&format!(
            "No instances of {} job found",
            if infix.contains("dispatch") {
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
