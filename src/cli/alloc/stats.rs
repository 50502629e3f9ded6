//! `alloc stats`

use super::super::conn::Conn;
use super::super::node::stats;
use super::super::out::Out;
use super::super::query::{Thing, find};
use super::super::show::{Format, short, text};
use anyhow::Result;
use serde_json::Value as Json;

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
    let stub = find(&client, Thing::Alloc, &args.allocation).await?;
    let path = format!("/v1/client/allocation/{}/stats", text(&stub, "ID"));
    let namespace = text(&stub, "Namespace");
    let asked = (path.as_str(), &[("namespace", namespace.as_str())][..]);
    let failed = "Error querying what the allocation uses";
    let Some(stats) = args.format.ask(&client, asked, failed, out).await? else {
        return Ok(0);
    };
    let id = short(&text(&stub, "ID"), args.verbose);
    let tasks = stats["Tasks"].as_object().filter(|tasks| !tasks.is_empty());
    let Some(tasks) = tasks else {
        out.line(&format!("No task of allocation {id:?} is measured"));
        return Ok(0);
    };
    out.line(&format!("What the tasks of allocation {id:?} use"));
    for (name, task) in tasks {
        shown(name, task, out);
    }
    Ok(0)
}

fn shown(name: &str, task: &Json, out: &Out) {
    out.head(&format!("Task {name:?}"));
    stats::of_task(&task["ResourceUsage"], out);
}
