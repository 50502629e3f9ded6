//! `job allocs` and `job deployments`

use super::super::alloc;
use super::super::conn::PastConnection;
use super::super::deployment;
use super::super::deployment_text::deployment_text;
use super::super::out::Out;
use super::super::show::Format;
use super::FoundJob;
use anyhow::Result;
use drover_events::model::{AllocListStub, Deployment};

/// Flags of `job allocs`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct AllocsArgs {
    #[command(flatten)]
    conn: PastConnection,
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
    conn: PastConnection,
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
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let query = [
        job.scope()[0],
        ("all", if args.all { "true" } else { "false" }),
    ];
    let (path, failed) = (job.path("/allocations"), "Error retrieving allocations");
    let all = args.format.ask(&job.client, (&path, &query), failed, out);
    let Some(all): Option<Vec<AllocListStub>> = all.await? else {
        return Ok(0);
    };
    out.line(&alloc::table(&all, (args.verbose, job.client.now())));
    Ok(0)
}

/// Lists a job's deployments, or shows the latest.
pub(super) async fn deployments(args: DeploymentsArgs, out: &Out) -> Result<u8> {
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let failed = "Error retrieving deployments";
    if args.latest {
        let (path, scope) = (job.path("/deployment"), job.scope());
        let requested = (path.as_str(), &scope[..]);
        let latest = args
            .format
            .ask::<Option<Deployment>>(&job.client, requested, failed, out);
        let Some(latest) = latest.await? else {
            return Ok(0);
        };
        out.line(&match latest {
            None => "No deployment found".to_owned(),
            Some(latest) => deployment_text(&latest, args.verbose),
        });
        return Ok(0);
    }
    let query = [
        job.scope()[0],
        ("all", if args.all { "true" } else { "false" }),
    ];
    let path = job.path("/deployments");
    let all = args.format.ask(&job.client, (&path, &query), failed, out);
    let Some(all): Option<Vec<Deployment>> = all.await? else {
        return Ok(0);
    };
    out.line(&deployment::table(all, args.verbose, false));
    Ok(0)
}
