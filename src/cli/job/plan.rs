//! `job plan`

use super::super::answer;
use super::super::client::encode;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::placement;
use super::super::show::{Format, counted};
use super::diff::job_diff;
use super::source::JobSource;
use crate::http::answers::JobPlanResponse;
use anyhow::Result;
use drover_events::gojson::Map;
use drover_events::model::{DesiredUpdates, status as words};
use serde::Deserialize;
use serde_json::{Value as Json, json};

/// Flags of `job plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job plan web.nomad.hcl

Exit codes: 0 nothing would change, 1 something would, 255 failed.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    source: JobSource,
    /// Show the difference to the running job
    #[arg(long, default_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    diff: bool,
    /// Override soft policies
    #[arg(long)]
    policy_override: bool,
    /// Show unchanged fields too
    #[arg(long)]
    verbose: bool,
    /// Print the API's answer
    #[arg(long)]
    json_output: bool,
    /// Print the API's answer through a Go template
    #[arg(short = 't', value_name = "TEMPLATE")]
    template: Option<String>,
}

/// Plans a job.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    match plan(&args, out).await {
        Ok(code) => Ok(code),
        Err(err) => {
            out.error(&format!("{err:#}"));
            Ok(255)
        }
    }
}

async fn plan(args: &Args, out: &Out) -> Result<u8> {
    let mut loaded = args.source.load(&args.conn)?;
    loaded.job.canonicalise_for_server();
    let client = args.conn.client()?;
    let id = loaded.job.id().unwrap_or("").to_owned();
    let namespace = loaded.job.namespace();
    let namespace = namespace.unwrap_or(words::DEFAULT_NAMESPACE).to_owned();
    let body = json!({
        "Job": loaded.job.to_json(),
        "Diff": args.diff,
        "PolicyOverride": args.policy_override,
    });
    let path = format!("/v1/job/{}/plan", encode(&id));
    let answer = client.put(&path, &[("namespace", &namespace)], &body).await;
    let raw: Json = answer.map_err(|err| err.context("Error during plan"))?;
    let format = Format {
        json: args.json_output,
        template: args.template.clone(),
    };
    if format.print(&raw, out)? {
        let planned: Planned = answer::of(raw)?;
        return Ok(code(&planned.annotations.desired_tg_updates));
    }
    let answer: JobPlanResponse = answer::of(raw)?;
    if let Some(diff) = answer.diff.as_ref().filter(|_| args.diff) {
        let reported = job_diff(diff, answer.annotations.as_ref(), args.verbose);
        out.line(&format!("{reported}\n"));
    }
    out.line("Scheduler dry-run:");
    out.line(&dry_run(&answer));
    let warnings = &answer.warnings;
    if !warnings.is_empty() {
        out.line(&format!("Job Warnings:\n{warnings}\n"));
    }
    let index = answer.job_modify_index;
    let path = &args.source.path;
    out.line(&format!("Job Modify Index: {index}"));
    out.line("To submit the job with version verification run:\n");
    out.line(&format!("drover job run -check-index {index} {path}\n"));
    out.line(
        "When running the job with the check-index flag, the job will only be run if the\njob \
            modify index \
         given matches the server-side version. If the index has\nchanged, another user has \
         modified the \
         job and the plan's results are\npotentially invalid.",
    );
    let notes = answer.annotations.as_ref();
    Ok(notes.map_or(0, |notes| code(&notes.desired_tg_updates)))
}

/// What the exit code is read from: all else is passed on as it came.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Planned {
    annotations: Annotations,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "DesiredTGUpdates")]
    desired_tg_updates: Map<DesiredUpdates>,
}

fn code(updates: &Map<DesiredUpdates>) -> u8 {
    let changes = updates.values().any(|group| {
        [
            group.place,
            group.stop,
            group.migrate,
            group.in_place_update,
            group.destructive_update,
            group.canary,
        ]
        .iter()
        .any(|count| *count > 0)
    });
    u8::from(changes)
}

fn dry_run(answer: &JobPlanResponse) -> String {
    let failed = &answer.failed_tg_allocs;
    let mut out = if failed.is_empty() {
        "- All tasks successfully allocated.\n".to_owned()
    } else {
        let lines = placement::failed_groups(failed);
        let lines: Vec<_> = lines.iter().map(|l| format!("  {l}")).collect();
        format!(
            "- WARNING: Failed to place all allocations.\n{}\n",
            lines.join("\n")
        )
    };
    for eval in &answer.created_evals {
        if eval.triggered_by == words::trigger::ROLLING_UPDATE {
            let wait = crate::jobspec::duration::format(eval.wait);
            out += &format!("- Rolling update, next evaluation will be in {wait}.\n");
        }
    }
    let next = answer.next_periodic_launch;
    if !next.is_unset() {
        out += &format!("- If submitted now, next periodic launch would be at {next}.\n");
    }
    let notes = answer.annotations.as_ref();
    let preempted = notes.map_or(0, |notes| notes.preempted_allocs.len());
    if preempted > 0 {
        let allocs = counted(preempted, "allocation");
        out += &format!("\nPreemptions:\n- {allocs} would be preempted.\n");
    }
    out
}
