//! The `var` noun.

mod init;
mod put;
mod read;

use super::out::Out;
use anyhow::Result;
use clap::Subcommand;

/// What can be done with variables.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Create or change a variable
    Put(put::Args),
    /// Show a variable
    Get(read::GetArgs),
    /// List variables
    List(read::ListArgs),
    /// Write an example of a specification
    Init(init::Args),
    /// Delete a variable; its past stays readable with -at
    Purge(read::PurgeArgs),
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Put(args) => put::run(args, out).await,
        Verb::Get(args) => read::get(args, out).await,
        Verb::List(args) => read::list(args, out).await,
        Verb::Init(args) => init::run(&args, out),
        Verb::Purge(args) => read::purge(args, out).await,
    }
}
