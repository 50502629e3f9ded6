//! `nodesim`: many simulated nodes in one process.

use anyhow::{Result, anyhow};

use super::out::Out;
use crate::nodesim::{self, SimOptions};

/// What is simulated.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover nodesim -nodes 5000 -servers 127.0.0.1:4647

Prints a line of JSON when all nodes are ready, and one at the end (SIGINT or SIGTERM).")]
pub(super) struct Args {
    /// How many nodes
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// RPC addresses of servers, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "ADDR")]
    servers: Vec<String>,
    /// Their datacenter
    #[arg(long, default_value = "dc1")]
    dc: String,
    /// Their class
    #[arg(long, default_value = "")]
    node_class: String,
}

/// Simulates until a signal ends it.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let options = SimOptions {
        nodes: args.nodes,
        servers: args.servers,
        datacenter: args.dc,
        class: args.node_class,
    };
    nodesim::run(&options, |line| out.line(line), stopped())
        .await
        .map_err(|text| anyhow!(text))?;
    Ok(0)
}

async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut term) = signal(SignalKind::terminate()) else {
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
