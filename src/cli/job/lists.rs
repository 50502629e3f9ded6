//! `job allocs` and `job deployments`

use super::super::alloc;
use super::super::conn::Past;
use super::super::deployment::{self, deployment_text};
use super::super::out::Out;
use super::super::show::Format;
use super::Found;
use anyhow::Result;

/// Flags of `job allocs`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct AllocsArgs {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// The job's ID or a prefix of it
    job: String,
    /// Those of earlier jobs of this ID too
    #[arg(long)]
    all: bool,
    /// Show full ids and times
    #[arg(long)]
    verbose: bool,
}

/// Flags of `job deployments`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DeploymentsArgs {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// The job's ID or a prefix of it
    job: String,
    /// Only the latest, whole
    #[arg(long)]
    latest: bool,
    /// Those of earlier jobs of this ID too
    #[arg(long)]
    all: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Lists a job's allocations.
pub(super) async fn allocs(args: AllocsArgs, out: &Out) -> Result<u8> {
    let job = Found::new(&args.conn, &args.job).await?;
    let query = [
        job.scope()[0],
        ("all", if args.all { "true" } else { "false" }),
    ];
    let all = job.client.get_json(&job.path("/allocations"), &query).await;
    let all = all.map_err(|err| err.context("Error retrieving allocations"))?;
    if args.format.print(&all, out)? {
        return Ok(0);
    }
    job.client.tell_moment(out);
    out.line(&alloc::table(&all, (args.verbose, job.client.now())));
    Ok(0)
}

/// Lists a job's deployments, or shows the latest.
pub(super) async fn deployments(args: DeploymentsArgs, out: &Out) -> Result<u8> {
    let job = Found::new(&args.conn, &args.job).await?;
    let failed = |err: anyhow::Error| err.context("Error retrieving deployments");
    if args.latest {
        let latest = job.get("/deployment").await.map_err(failed)?;
        if args.format.print(&latest, out)? {
            return Ok(0);
        }
        job.client.tell_moment(out);
        out.line(&match latest.is_null() {
            true => "No deployment found".to_owned(),
            false => deployment_text(&latest, args.verbose),
        });
        return Ok(0);
    }
    let query = [
        job.scope()[0],
        ("all", if args.all { "true" } else { "false" }),
    ];
    let all = job.client.get_json(&job.path("/deployments"), &query).await;
    let all = all.map_err(failed)?;
    if args.format.print(&all, out)? {
        return Ok(0);
    }
    job.client.tell_moment(out);
    out.line(&deployment::table(&all, args.verbose, false));
    Ok(0)
}
