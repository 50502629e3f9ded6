//! `job run`

use super::super::conn::Conn;
use super::super::monitor::Monitor;
use super::super::out::Out;
use super::super::show::pretty;
use super::periodic::next_launch;
use super::source::JobSource;
use crate::http::answers::JobRegisterResponse;
use anyhow::Result;
use drover_events::gojson;
use drover_events::model::Job;
use drover_events::model::status::DEFAULT_NAMESPACE;
use serde_json::json;

/// Flags of `job run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job run web.nomad.hcl
  drover job run -var image=redis:7 -detach web.nomad.hcl
  drover job run -check-index 42 web.nomad.hcl     only if nobody changed it since

Exit codes: 0 placed, 1 failed, 2 not everything could be placed.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    source: JobSource,
    /// Do not wait for the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Print the job as JSON and do nothing else
    #[arg(long)]
    output: bool,
    /// Register only if the job's modify index is this; 0 means only if it is new
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// Override soft policies
    #[arg(long)]
    policy_override: bool,
    /// Keep the counts of a running job
    #[arg(long)]
    preserve_counts: bool,
    /// Keep the resources of a running job
    #[arg(long)]
    preserve_resources: bool,
    /// The evaluation's priority
    #[arg(long, value_name = "N")]
    eval_priority: Option<i64>,
}

/// Registers a job and follows its evaluation.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let mut loaded = args.source.load(&args.conn)?;
    loaded.job.canonicalise_for_server();
    if args.output {
        out.exact(&pretty(&json!({"Job": loaded.job.to_json()})));
        return Ok(0);
    }
    let job: Option<Job> = gojson::from_value(loaded.job.to_json()).ok();
    let is_template = |job: &Job| job.periodic.is_some() || job.parameterized_job.is_some();
    let waits_for_launch = job.as_ref().is_some_and(is_template);
    let mut body = json!({
        "Job": loaded.job.to_json(),
        "Submission": loaded.submission,
        "PolicyOverride": args.policy_override,
        "PreserveCounts": args.preserve_counts,
        "PreserveResources": args.preserve_resources,
    });
    if let Some(index) = args.check_index {
        body["EnforceIndex"] = true.into();
        body["JobModifyIndex"] = index.into();
    }
    if let Some(priority) = args.eval_priority {
        body["EvalPriority"] = priority.into();
    }
    let client = args.conn.client()?;
    let namespace = loaded.job.namespace();
    let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned();
    let done: JobRegisterResponse = match client
        .put("/v1/jobs", &[("namespace", &namespace)], &body)
        .await
    {
        Ok(done) => done,
        Err(err) => {
            let text = format!("{err:#}");
            if let Some(at) = text.find("Enforcing job modify index") {
                out.error(&text[at..]);
                out.error("Job not updated");
                return Ok(1);
            }
            out.error(&format!("Error submitting job: {text}"));
            return Ok(1);
        }
    };
    let warnings = &done.warnings;
    if !warnings.is_empty() {
        out.line(&format!("Job Warnings:\n{warnings}\n"));
    }
    let eval = &done.eval_id;
    if args.detach || waits_for_launch || eval.is_empty() {
        out.line("Job registration successful");
        if !eval.is_empty() {
            out.line(&format!("Evaluation ID: {eval}"));
        }
        if let Some(next) = job.as_ref().and_then(next_launch) {
            out.line(&format!("Approximate next launch time: {next}"));
        }
        return Ok(0);
    }
    Monitor::new(&client, out, args.verbose, &namespace)
        .follow(eval, done.eval_create_index)
        .await
}
