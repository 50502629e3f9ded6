//! The `system` noun.

use super::conn::Conn;
use super::out::Out;
use anyhow::Result;
use clap::Subcommand;
use serde::de::IgnoredAny;
use serde_json::json;

/// What can be done with the system as a whole.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Collect garbage now: dead jobs, evaluations, allocations, deployments and nodes
    Gc(Args),
    /// Correct counts that the servers keep
    #[command(subcommand)]
    Reconcile(Reconcile),
}

/// What can be put right.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Reconcile {
    /// Count the allocations of every job's summary again
    Summaries(Args),
}

/// Flags of `system gc` and `system reconcile summaries`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, _: &Out) -> Result<u8> {
    let (args, path, failed) = match verb {
        Verb::Gc(args) => (
            args,
            "/v1/system/gc",
            "Error running system garbage-collection",
        ),
        Verb::Reconcile(Reconcile::Summaries(args)) => (
            args,
            "/v1/system/reconcile/summaries",
            "Error running system summary reconciliation",
        ),
    };
    let client = args.conn.client()?;
    let done = client.put::<IgnoredAny>(path, &[], &json!({})).await;
    done.map_err(|err| err.context(failed))?;
    Ok(0)
}
