//! What identities and rights, TLS and standing streams cost: `gate -drover PATH [-only NAME]`.
//!
//! Prints JSON lines. In this process: who calls and with which rights (`rights`), and the control
//! streams of clients, which another process holds (`streams`). Against the real program: a list
//! for a caller that may see a fiftieth of it (`lists`), and jobs registered and read with access
//! control and TLS beside without, then full handshakes beside resumed ones (`served`).

mod handshakes;
mod lists;
mod rights;
mod served;
mod streams;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use drover_benchkit::{Line, runtime};

/// What identities and rights, TLS and standing streams cost.
#[derive(Parser)]
struct Options {
    /// The program to measure.
    #[arg(long, default_value = "drover")]
    drover: PathBuf,
    /// Tokens that the server knows.
    #[arg(long, default_value_t = 100_000)]
    tokens: u64,
    /// Control streams.
    #[arg(long, default_value_t = 5_000)]
    streams: usize,
    /// Allocations in the list.
    #[arg(long, default_value_t = 24_000)]
    allocs: usize,
    /// Only the parts whose name begins so: rights, streams, lists, served.
    #[arg(long, default_value = "")]
    only: String,
    /// Where data directories are made.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Holds control streams open to this address, over so many connections; for the benchmark
    /// itself.
    #[arg(long, hide = true)]
    hold: Option<String>,
    /// See `hold`.
    #[arg(long, hide = true, default_value_t = 4)]
    connections: usize,
}

fn main() -> Result<()> {
    let options = Options::parse();
    drover::net::raise_open_files();
    if let Some(addr) = &options.hold {
        return runtime()?.block_on(streams::hold(addr, options.streams, options.connections));
    }
    let dir = tempfile::tempdir_in(&options.dir)?;
    let dir = dir.path().canonicalize()?;
    let wanted = |name: &str| name.starts_with(&options.only);
    if wanted("rights") {
        let checked = rights::checked(options.tokens, &dir);
        part("rights", runtime()?.block_on(checked));
    }
    if wanted("streams") {
        part("streams", streams::kept(options.streams));
    }
    if wanted("lists") {
        part(
            "lists",
            lists::listed(&options.drover, &dir, options.allocs),
        );
    }
    if wanted("served") {
        part("served", served::compared(&options.drover, &dir));
    }
    Ok(())
}

/// A part that fails is printed as failed, and the others continue.
fn part(name: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("gate: {name}: {error:#}");
        Line::new(name)
            .text("failed", format!("{error:#}").replace('\n', " "))
            .print();
    }
}
