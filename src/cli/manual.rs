//! `manual`

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

use super::out::Out;
use super::show::counted;

/// Flags of `manual`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover manual -out-dir /usr/local/share/man/man1    then: man drover-job-run

A page for each command. The packages bring them along.")]
pub(super) struct Args {
    /// The directory that the pages are written to; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out_dir: PathBuf,
}

/// Writes the manual pages.
pub(super) fn run(args: &Args, command: Command, out: &Out) -> Result<u8> {
    let dir = &args.out_dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let pages = write(&command, dir)?;
    out.line(&format!("{} in {}", counted(pages, "page"), dir.display()));
    Ok(0)
}

/// Writes the page of a command and those of its subcommands; how many these are.
fn write(command: &Command, dir: &Path) -> Result<usize> {
    let man = Man::new(command.clone()).manual("drover");
    let path = dir.join(man.get_filename());
    let mut page = Vec::new();
    man.render(&mut page)?;
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    shown
        .map(|verb| write(verb, dir))
        .try_fold(1, |sum, pages| Ok(sum + pages?))
}
