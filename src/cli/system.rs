//! The `system` noun.

use super::conn::Conn;
use super::out::Out;
use anyhow::Result;
use clap::Subcommand;
use serde_json::json;

/// What can be done with the system as a whole.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Forget what is dead now rather than when its time comes
    Gc(Args),
}

/// Flags of `system gc`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, _: &Out) -> Result<u8> {
    let Verb::Gc(args) = verb;
    let answer = args
        .conn
        .client()?
        .put("/v1/system/gc", &[], &json!({}))
        .await;
    answer.map_err(|err| err.context("Error running system garbage-collection"))?;
    Ok(0)
}
