//! `job revert`, `job eval` and `job promote`.

use super::super::conn::Conn;
use super::super::deployment;
use super::super::monitor::Wait;
use super::super::out::Out;
use super::FoundJob;
use super::history::{Numbered, Versions};
use anyhow::{Result, bail};
use drover_events::model::Deployment;
use serde_json::json;

/// Flags of `job revert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job revert web 3
  drover job revert web golden     the version that is tagged so")]
pub(in crate::cli) struct RevertArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    wait: Wait,
    /// The job's ID or a prefix of it
    job: String,
    /// The version, or its tag
    version: String,
}

/// Flags of `job eval`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct EvalArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    wait: Wait,
    /// The job's ID or a prefix of it
    job: String,
    /// Reschedule failed allocations even where they are not eligible for it
    #[arg(long)]
    force_reschedule: bool,
}

/// Flags of `job promote`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct PromoteArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    wait: Wait,
    /// The job's ID or a prefix of it
    job: String,
    /// Only this group's canaries; may be repeated
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
}

/// Registers an earlier version again.
pub(super) async fn revert(args: RevertArgs, out: &Out) -> Result<u8> {
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let version = version(&job, &args.version).await?;
    let body = json!({ "JobID": job.id, "JobVersion": version, "EnforcePriorVersion": null });
    let done = job
        .change("/revert", &body, "Error reverting job", out)
        .await?;
    let eval = (done.eval_id.as_str(), done.eval_create_index);
    job.follow(eval, &args.wait, out).await
}

/// A version, named by its number or by its tag.
async fn version(job: &FoundJob, named: &str) -> Result<u64> {
    if let Ok(version) = named.parse() {
        return Ok(version);
    }
    let versions = job.get("/versions").await;
    let versions: Versions<Numbered> =
        versions.map_err(|err| err.context("Error retrieving job versions"))?;
    let mut versions = versions.versions.iter();
    match versions.find(|one| one.is_tagged(named)) {
        Some(one) => Ok(one.version),
        None => bail!(
            "Error retrieving job versions: job {:?} has no version tagged {named:?}",
            job.id
        ),
    }
}

/// Has a job evaluated again.
pub(super) async fn eval(args: EvalArgs, out: &Out) -> Result<u8> {
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let options = json!({ "ForceReschedule": args.force_reschedule });
    let body = json!({ "JobID": job.id, "EvalOptions": options });
    let done = job
        .change("/evaluate", &body, "Error evaluating job", out)
        .await?;
    if args.wait.detach {
        out.line(&format!("Created eval ID: {:?}", done.eval_id));
        return Ok(0);
    }
    let eval = (done.eval_id.as_str(), done.eval_create_index);
    job.follow(eval, &args.wait, out).await
}

/// Promotes the canaries of the latest deployment.
pub(super) async fn promote(args: PromoteArgs, out: &Out) -> Result<u8> {
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let latest = job.get("/deployment").await;
    let latest: Option<Deployment> =
        latest.map_err(|err| err.context("Error retrieving deployment"))?;
    let Some(latest) = latest else {
        bail!("Unable to find a deployment to promote");
    };
    let place = (&job.client, job.namespace.as_str());
    deployment::promote(place, &latest.id, &args.group, &args.wait, out).await
}
