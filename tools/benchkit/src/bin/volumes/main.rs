//! Volumes: `volumes -drover PATH [-volumes N] [-only NAME]`.
//!
//! What the watcher of a leader takes for volumes at rest, and how fast it frees many (`watcher`);
//! then, with a real agent, the plugin of this project and real mounts, how long a volume takes to
//! come and to go (`agent`), and what others feel of a plugin that takes a minute per call
//! (`slow`). The plugin is looked for beside the program; only root can mount.

mod agent;
mod slow;
mod watcher;
mod world;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

/// The work on volumes.
#[derive(Parser)]
pub(crate) struct Options {
    /// The program to measure; drover-hostpath lies beside it.
    #[arg(long)]
    drover: PathBuf,
    /// How many volumes are at rest.
    #[arg(long, default_value_t = 10_000)]
    volumes: usize,
    /// How often a volume comes and goes.
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// How many jobs are placed beside a slow plugin, and as many without one.
    #[arg(long, default_value_t = 2_000)]
    jobs: usize,
    /// How many simulated nodes they are placed on.
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// Only the part of this name: watcher, agent, slow.
    #[arg(long, default_value = "")]
    only: String,
    /// Where data directories are made.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let is_requested = |name: &str| name.starts_with(&options.only);
    let base = std::fs::canonicalize(&options.dir)?;
    if is_requested("watcher") {
        let dir = tempfile::tempdir_in(&base)?;
        watcher::run(options.volumes, dir.path())?;
    }
    if is_requested("agent") {
        agent::run(&options)?;
    }
    if is_requested("slow") {
        slow::run(&options)?;
    }
    Ok(())
}
