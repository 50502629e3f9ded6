//! `alloc checks`

use super::super::columns::pairs;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::query::find;
use super::super::show::{Format, counted, short, time};
use anyhow::Result;
use drover_events::model::{AllocListStub, CheckQueryResult};
use std::collections::BTreeMap;

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
    let stub: AllocListStub = find(&client, &args.allocation).await?;
    let path = format!("/v1/client/allocation/{}/checks", stub.id);
    let requested = (path.as_str(), &[("namespace", stub.namespace.as_str())][..]);
    let failed = "Error querying allocation checks";
    let checks = args.format.ask(&client, requested, failed, out).await?;
    let Some(checks): Option<BTreeMap<String, CheckQueryResult>> = checks else {
        return Ok(0);
    };
    let mut checks: Vec<CheckQueryResult> = checks.into_values().collect();
    let shown = short(&stub.id, args.verbose);
    if checks.is_empty() {
        out.line(&format!("No checks found for allocation {shown:?}"));
        return Ok(0);
    }
    checks.sort_by(|a, b| (&a.service, &a.check).cmp(&(&b.service, &b.check)));
    let count = counted(checks.len(), "Nomad Service Check");
    out.line(&format!("Status of {count}"));
    for check in &checks {
        out.line(&format!("\n{}", shown_check(check, args.verbose)));
    }
    Ok(0)
}

fn shown_check(check: &CheckQueryResult, verbose: bool) -> String {
    let mut rows = vec![
        ("ID", short(&check.id, verbose)),
        ("Name", check.check.clone()),
        ("Group", check.group.clone()),
        ("Task", check.task.clone()),
        ("Service", check.service.clone()),
        ("Status", check.status.clone()),
    ];
    if check.status_code != 0 {
        rows.push(("StatusCode", check.status_code.to_string()));
    }
    rows.push(("Mode", check.mode.clone()));
    // Results are of whole seconds.
    let at = check.timestamp.saturating_mul(1_000_000_000);
    rows.push(("Timestamp", time(at)));
    rows.push(("Output", check.output.clone()));
    pairs(&rows)
}
