//! `alloc checks`

use super::super::columns::pairs;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::query::{Thing, find};
use super::super::show::{Format, counted, number, short, text, time};
use anyhow::Result;
use serde_json::Value as Json;

/// Flags of `alloc checks`.
#[derive(Debug, clap::Args)]
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

/// Shows the last result of each check.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub = find(&client, Thing::Alloc, &args.allocation).await?;
    let path = format!("/v1/client/allocation/{}/checks", text(&stub, "ID"));
    let namespace = text(&stub, "Namespace");
    let asked = (path.as_str(), &[("namespace", namespace.as_str())][..]);
    let failed = "Error querying allocation checks";
    let Some(checks) = args.format.ask(&client, asked, failed, out).await? else {
        return Ok(0);
    };
    let mut checks: Vec<&Json> = checks
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, c)| c)
        .collect();
    let shown = short(&text(&stub, "ID"), args.verbose);
    if checks.is_empty() {
        out.line(&format!("No checks found for allocation {shown:?}"));
        return Ok(0);
    }
    checks.sort_by_key(|check| (text(check, "Service"), text(check, "Check")));
    let count = counted(checks.len(), "Nomad Service Check");
    out.line(&format!("Status of {count}"));
    for check in checks {
        out.line(&format!("\n{}", shown_check(check, args.verbose)));
    }
    Ok(0)
}

fn shown_check(check: &Json, verbose: bool) -> String {
    let mut rows = vec![
        ("ID", short(&text(check, "ID"), verbose)),
        ("Name", text(check, "Check")),
        ("Group", text(check, "Group")),
        ("Task", text(check, "Task")),
        ("Service", text(check, "Service")),
        ("Status", text(check, "Status")),
    ];
    if number(check, "StatusCode") != 0 {
        rows.push(("StatusCode", number(check, "StatusCode").to_string()));
    }
    rows.push(("Mode", text(check, "Mode")));
    // Results are of whole seconds.
    let at = number(check, "Timestamp").saturating_mul(1_000_000_000);
    rows.push(("Timestamp", time(at)));
    rows.push(("Output", text(check, "Output")));
    pairs(&rows)
}
