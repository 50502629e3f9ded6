//! The `eval` noun.

mod delete;
mod explain;
mod list;
pub(super) mod status;

use super::out::Out;
use anyhow::Result;
use clap::Subcommand;

/// What can be done with evaluations.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Show an evaluation
    Status(status::Args),
    /// List evaluations
    List(list::Args),
    /// Explain a decision: every node with its score or why it was refused
    Explain(explain::Args),
    /// Delete evaluations by id or by filter
    Delete(delete::Args),
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Status(args) => status::run(args, out).await,
        Verb::List(args) => list::run(args, out).await,
        Verb::Explain(args) => explain::run(args, out).await,
        Verb::Delete(args) => delete::run(args, out).await,
    }
}
