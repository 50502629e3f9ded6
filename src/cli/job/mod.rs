//! The `job` noun.

pub(super) mod history;
pub(super) mod inspect;
mod periodic;
pub(super) mod plan;
pub(super) mod run;
mod source;
pub(super) mod status;
pub(super) mod stop;
pub(super) mod validate;

use super::out::Out;
use anyhow::Result;
use clap::Subcommand;

/// What can be done with jobs.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Run a new job or update a running one
    Run(run::Args),
    /// Show what a run would change
    Plan(plan::Args),
    /// List jobs, or show one
    Status(status::Args),
    /// Stop a job
    Stop(stop::Args),
    /// Check a job's file without running it
    Validate(validate::Args),
    /// Print a job as the servers hold it
    Inspect(inspect::Args),
    /// Work with periodic jobs
    #[command(subcommand)]
    Periodic(periodic::Verb),
    /// List a job's versions
    History(history::Args),
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Run(args) => run::run(args, out).await,
        Verb::Plan(args) => plan::run(args, out).await,
        Verb::Status(args) => status::run(args, out).await,
        Verb::Stop(args) => stop::run(args, out).await,
        Verb::Validate(args) => validate::run(args, out).await,
        Verb::Inspect(args) => inspect::run(args, out).await,
        Verb::Periodic(verb) => periodic::run(verb, out).await,
        Verb::History(args) => history::run(args, out).await,
    }
}
