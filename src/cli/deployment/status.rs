//! `deployment status`

use super::super::conn::PastConnection;
use super::super::deployment_text::deployment_text;
use super::super::monitor::Monitor;
use super::super::out::Out;
use super::super::query::find;
use super::super::show::Format;
use crate::jobspec::duration::parse;
use anyhow::{Context, Result};
use drover_events::model::Deployment;
use std::time::Duration;

/// Flags of `deployment status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover deployment status 8ba85cef
  drover deployment status -monitor 8ba85cef     and wait until it has ended
  drover deployment status -monitor -wait 10s 8ba85cef     with a report every ten seconds at most

With -monitor: 0 where it succeeds or waits for its promotion, 1 where it does not succeed.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// The deployment's id or a prefix of it
    deployment: String,
    /// Follow it until it has ended
    #[arg(long)]
    monitor: bool,
    /// With -monitor, the least time between two reports of progress, such as 10s
    #[arg(long, value_name = "TIME", requires = "monitor")]
    wait: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
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
            deployment: id,
            monitor: false,
            wait: None,
            verbose,
        }
    }
}

/// Shows a deployment.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let wait = args.wait.as_deref().map(parse).transpose();
    let wait = wait.context("Error reading -wait")?.unwrap_or(0);
    let wait = Duration::from_nanos(u64::try_from(wait).context("-wait goes back")?);
    let client = args.conn.client()?;
    let Deployment { id, namespace, .. } = find(&client, &args.deployment).await?;
    if args.monitor && !args.format.is_given() {
        return Monitor::new(&client, out, args.verbose, &namespace)
            .paced(wait)
            .deployment(&id, 0)
            .await;
    }
    let path = format!("/v1/deployment/{id}");
    let requested = (path.as_str(), &[("namespace", namespace.as_str())][..]);
    let failed = "Error querying deployment";
    let found = args.format.ask(&client, requested, failed, out).await?;
    let Some(found): Option<Deployment> = found else {
        return Ok(0);
    };
    out.line(&deployment_text(&found, args.verbose));
    Ok(0)
}
