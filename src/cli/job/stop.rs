//! `job stop`

use super::super::conn::Conn;
use super::super::monitor::Monitor;
use super::super::out::Out;
use super::super::query::{find, job_path};
use crate::http::answers::{JobDeregisterResponse, JobListStub};
use anyhow::Result;

/// Flags of `job stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job stop web
  drover job stop -purge -yes web    and remove it

Exit code 1 also where the job's deployment was no success: one that goes on is cancelled.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The jobs' IDs or prefixes of them
    #[arg(required = true)]
    jobs: Vec<String>,
    /// Do not wait for the evaluation
    #[arg(long)]
    detach: bool,
    /// Purge the job: its versions and allocations are removed at once
    #[arg(long)]
    purge: bool,
    /// Stop in all regions
    #[arg(long)]
    global: bool,
    /// Do not wait for shutdown delays
    #[arg(long)]
    no_shutdown_delay: bool,
    /// Answer yes to every question
    #[arg(long)]
    yes: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// The evaluation's priority
    #[arg(long, value_name = "N")]
    eval_priority: Option<i64>,
}

/// Stops jobs.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let mut worst = 0;
    for name in &args.jobs {
        let JobListStub { id, namespace, .. } = find(&client, name).await?;
        if &id != name && !args.yes {
            let answer = out.ask(&format!("Are you sure you want to stop job {id:?}? [y/N] "));
            if !matches!(answer.as_str(), "y" | "Y" | "yes") {
                out.line("Job stop cancelled");
                continue;
            }
        }
        let flag = |b: bool| if b { "true" } else { "false" };
        let priority = args.eval_priority.unwrap_or(0).to_string();
        let mut query = vec![
            ("namespace", namespace.as_str()),
            ("purge", flag(args.purge)),
            ("no_shutdown_delay", flag(args.no_shutdown_delay)),
            ("eval_priority", priority.as_str()),
        ];
        if args.global {
            query.push(("global", "true"));
        }
        let answer = client.delete(&job_path(&id, ""), &query, None).await;
        let done: JobDeregisterResponse =
            answer.map_err(|err| err.context("Error deregistering job"))?;
        let monitor = Monitor::new(&client, out, args.verbose, &namespace);
        let eval = (done.eval_id.as_str(), done.eval_create_index);
        let code = monitor.after(eval, args.detach).await?;
        worst = worst.max(code);
    }
    Ok(worst)
}
