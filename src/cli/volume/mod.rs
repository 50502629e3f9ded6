//! The `volume` noun.

mod change;
mod claim;
mod explain;
mod external;
mod init;
mod register;
mod spec;
mod status;
mod used;

pub(super) use used::{of_node, show_of_alloc, show_of_node};

use super::out::Out;
use anyhow::Result;
use clap::Subcommand;

/// What can be done with volumes.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Write an example of a specification
    Init(init::Args),
    /// Show volumes, or one of them
    Status(Box<status::Args>),
    /// Register a volume that is there already
    Register(register::Args),
    /// Forget a volume; what is stored in it stays
    Deregister(change::DeregisterArgs),
    /// Make a volume, and register it
    Create(register::Args),
    /// Delete a volume and what is stored in it
    Delete(change::DeleteArgs),
    /// Detach a volume from a node where nothing uses it any more
    Detach(change::DetachArgs),
    /// Work with snapshots of volumes
    #[command(subcommand)]
    Snapshot(external::Verb),
    /// Work with task groups' claims on sticky host volumes
    #[command(subcommand)]
    Claim(claim::Verb),
    /// Show everything that ever happened to a volume
    History(explain::HistoryArgs),
    /// Show who holds a volume, and which step waits for what
    Explain(explain::Args),
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Init(args) => init::run(&args, out),
        Verb::Status(args) => status::run(*args, out).await,
        Verb::Register(args) => register::run(args, register::How::Register, out).await,
        Verb::Deregister(args) => change::deregister(args, out).await,
        Verb::Create(args) => register::run(args, register::How::Create, out).await,
        Verb::Delete(args) => change::delete(args, out).await,
        Verb::Detach(args) => change::detach(args, out).await,
        Verb::Snapshot(verb) => external::run(verb, out).await,
        Verb::Claim(verb) => claim::run(verb, out).await,
        Verb::History(args) => explain::history(args, out).await,
        Verb::Explain(args) => explain::run(args, out).await,
    }
}
