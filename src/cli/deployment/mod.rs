//! The `deployment` noun.

mod change;
mod list;
pub(super) mod status;

pub(super) use change::promote;
pub(super) use list::table;

use super::out::Out;
use anyhow::Result;
use clap::Subcommand;

/// What can be done with deployments.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// List deployments
    List(list::Args),
    /// Show a deployment
    Status(status::Args),
    /// Promote canaries
    Promote(change::PromoteArgs),
    /// Fail a deployment by hand
    Fail(change::Args),
    /// Pause a deployment: nothing more is placed for it
    Pause(change::PauseArgs),
    /// Let a paused deployment go on
    Resume(change::Args),
    /// Let a deployment go on that waits for another region
    Unblock(change::Args),
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::List(args) => list::run(args, out).await,
        Verb::Status(args) => status::run(args, out).await,
        Verb::Promote(args) => change::run_promote(args, out).await,
        Verb::Fail(args) => change::fail(args, out).await,
        Verb::Pause(args) => change::pause(args, out).await,
        Verb::Resume(args) => change::resume(args, out).await,
        Verb::Unblock(args) => change::unblock(args, out).await,
    }
}
