//! The `acl` noun.

mod bootstrap;
mod policy;
mod role;
mod token;
mod token_write;

use super::out::Out;
use anyhow::Result;
use clap::Subcommand;

/// What can be done with access control.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Make the first management token
    Bootstrap(bootstrap::Args),
    /// Work with policies
    #[command(subcommand)]
    Policy(policy::Verb),
    /// Work with roles
    #[command(subcommand)]
    Role(role::Verb),
    /// Work with tokens
    #[command(subcommand)]
    Token(token::Verb),
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Bootstrap(args) => bootstrap::run(args, out).await,
        Verb::Policy(verb) => policy::run(verb, out).await,
        Verb::Role(verb) => role::run(verb, out).await,
        Verb::Token(verb) => token::run(verb, out).await,
    }
}
