//! `job periodic`: launching a periodic job now, and when the clock will.

use super::super::conn::Conn;
use super::super::monitor::Monitor;
use super::super::out::Out;
use super::super::query::{find, job_path};
use super::super::show::{now, time};
use crate::http::answers::{ForceResponse, JobListStub};
use crate::jobspec::{cron, duration};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use drover_events::model::Job;
use serde_json::json;

const SECOND: i64 = 1_000_000_000;

/// What can be done with periodic jobs.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// Launch a periodic job now, whatever its schedule says
    Force(Force),
}

/// Flags of `job periodic force`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job periodic force backup
  drover job periodic force -detach backup")]
pub(in crate::cli) struct Force {
    #[command(flatten)]
    conn: Conn,
    /// The job's ID or a prefix of it
    job: String,
    /// Do not wait for the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Runs a verb.
pub(in crate::cli) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    let Verb::Force(args) = verb;
    let client = args.conn.client()?;
    let stub: JobListStub = find(&client, &args.job).await?;
    let (id, namespace) = (&stub.id, &stub.namespace);
    if !stub.periodic {
        bail!("No periodic job(s) with prefix or ID {:?} found", args.job);
    }
    let path = job_path(id, "/periodic/force");
    let done: ForceResponse = client
        .put(&path, &[("namespace", namespace.as_str())], &json!({}))
        .await
        .with_context(|| format!("Error forcing periodic job {id:?}"))?;
    let eval = &done.eval_id;
    if args.detach || eval.is_empty() {
        out.line("Force periodic successful");
        if !eval.is_empty() {
            out.line(&format!("Evaluation ID: {eval}"));
        }
        return Ok(0);
    }
    Monitor::new(&client, out, args.verbose, namespace)
        .follow(eval, done.eval_create_index)
        .await
}

/// When the clock launches a job next, as people read it: `2021-01-13T06:00:00Z (17h35m2s from
/// now)`. None where it never does.
pub(in crate::cli) fn next_launch(job: &Job) -> Option<String> {
    let periodic = job.periodic.as_ref()?;
    if !periodic.enabled || job.is_parameterized() {
        return None;
    }
    let now = now();
    let next = cron::next_launch(periodic, now)?;
    let left = (next - now).div_euclid(SECOND) * SECOND;
    Some(format!(
        "{} ({} from now)",
        time(next),
        duration::format(left)
    ))
}
