//! `node eligibility`: whether a node takes new allocations.

use crate::cli::conn::Conn;
use crate::cli::node::named;
use crate::cli::out::Out;
use anyhow::{Context, Result, bail};
use drover_events::model::status::eligibility;
use serde::de::IgnoredAny;
use serde_json::json;

/// Flags of `node eligibility`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover node eligibility -disable 8ba85cef
  drover node eligibility -enable -self")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The node's id or a prefix of it
    node: Option<String>,
    /// Let the node take new allocations
    #[arg(long)]
    enable: bool,
    /// Let the node take no new allocations; those there stay
    #[arg(long)]
    disable: bool,
    /// The node of the agent that is called
    #[arg(long = "self", conflicts_with = "node")]
    own: bool,
}

/// Sets it.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    if args.enable == args.disable {
        bail!("Either the '-enable' or '-disable' flag must be set");
    }
    let client = args.conn.client()?;
    let node = named(&client, args.node.as_deref(), args.own).await?;
    let id = &node.id;
    let wanted = if args.enable {
        eligibility::ELIGIBLE
    } else {
        eligibility::INELIGIBLE
    };
    client
        .put::<IgnoredAny>(
            &format!("/v1/node/{id}/eligibility"),
            &[],
            &json!({ "NodeID": id, "Eligibility": wanted }),
        )
        .await
        .context("Error updating scheduling eligibility")?;
    out.line(&format!(
        "Node {id:?} scheduling eligibility set: {wanted} for scheduling"
    ));
    Ok(0)
}
