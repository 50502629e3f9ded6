//! `completions`

use super::out::Out;
use anyhow::Result;
use clap_complete::Shell;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover completions bash > /etc/bash_completion.d/drover
  drover completions fish > ~/.config/fish/completions/drover.fish")]
pub(super) struct Args {
    /// Which shell
    pub(super) shell: Shell,
}

/// Writes a completion script.
pub(super) fn run(args: &Args, command: &mut clap::Command, out: &Out) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "drover", &mut script);
    out.raw(&script);
    Ok(0)
}
