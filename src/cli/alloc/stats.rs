//! `alloc stats`

use super::super::conn::Conn;
use super::super::out::Out;
use super::super::query::find;
use super::super::show::{Format, short};
use super::super::stats;
use anyhow::Result;
use drover_events::model::{AllocListStub, AllocResourceUsage};

/// Flags of `alloc stats`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc stats 8ba85cef
  drover alloc stats -t '{{.ResourceUsage.MemoryStats.RSS}}' 8ba85cef")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// The allocation's id or a prefix of it
    allocation: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Shows what the tasks of an allocation use, as its client measured it last.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub: AllocListStub = find(&client, &args.allocation).await?;
    let path = format!("/v1/client/allocation/{}/stats", stub.id);
    let requested = (path.as_str(), &[("namespace", stub.namespace.as_str())][..]);
    let failed = "Error querying what the allocation uses";
    let stats = args
        .format
        .ask::<AllocResourceUsage>(&client, requested, failed, out);
    let Some(stats) = stats.await? else {
        return Ok(0);
    };
    let id = short(&stub.id, args.verbose);
    if stats.tasks.is_empty() {
        out.line(&format!("No task of allocation {id:?} is measured"));
        return Ok(0);
    }
    out.line(&format!("What the tasks of allocation {id:?} use"));
    for (name, task) in &stats.tasks {
        out.head(&format!("Task {name:?}"));
        stats::of_task(task.resource_usage.as_ref(), out);
    }
    Ok(0)
}
