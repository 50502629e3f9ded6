//! The work of the HTTP API against a real server: `http -drover PATH [-nodes N] [-only NAME]`.
//!
//! A lone server in its default configuration (but for compression, which clients on this machine
//! get too if they request it), simulated nodes registered over the real RPC, and this load
//! generator share the machine's cores. Lists and single reads have a floor: a constant body of the
//! same size from a minimal server in this process.

mod boot;
mod floor;
mod jobs;
mod reads;
mod writes;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use drover_benchkit::{Line, floor as floors};
use drover_testkit::{Agent, LONG, Setup, wait_for};

/// The work of the HTTP API.
#[derive(Parser)]
struct Options {
    /// The program to measure.
    #[arg(long)]
    drover: PathBuf,
    /// How many simulated nodes.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Only the parts whose name begins so: register, place, read, vars, evals, stream, boot.
    #[arg(long, default_value = "")]
    only: String,
    /// Where data directories are made.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

/// Simulated nodes; dropping it ends them.
struct Nodes(Child);

impl Drop for Nodes {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let dir = tempfile::tempdir_in(&options.dir)?;
    if "boot".starts_with(&options.only) {
        part("boot", boot::dev(&options.drover, dir.path()));
    }
    if options.only == "boot" {
        return Ok(());
    }
    let mut setup = Setup::server(&options.drover, &dir.path().join("server"))?;
    // Clients that request compressed answers get them, on this machine too.
    setup.config.push_str("http_compression = \"always\"\n");
    let agent = setup.start()?;
    let nodes = nodes(&options, &setup, &agent)?;
    type Work = fn(&Agent, f64) -> Result<()>;
    let syncs = floors::syncs(dir.path(), Duration::from_secs(1))?;
    let parts: [(&str, Work); 6] = [
        ("register", writes::register),
        ("vars", writes::variables),
        ("place", |agent, _| jobs::place(agent)),
        ("read", |agent, _| reads::all(agent)),
        ("evals", writes::evaluations),
        ("stream", |agent, _| jobs::stream(agent)),
    ];
    for (name, work) in parts {
        if name.starts_with(&options.only) {
            part(name, work(&agent, syncs));
        }
    }
    drop(nodes);
    let resident = agent.resident_bytes()? as f64 / 1e6;
    Line::new("resident memory after all")
        .number("mb", resident)
        .print();
    part("restart", boot::restart(agent, &setup));
    Ok(())
}

/// A part that fails is printed as failed, and the others continue.
fn part(name: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("http: {name}: {error:#}");
        Line::new(name)
            .text("failed", format!("{error:#}").replace('\n', " "))
            .print();
    }
}

/// Registers the simulated nodes and waits until the server counts them all.
fn nodes(options: &Options, setup: &Setup, agent: &Agent) -> Result<Nodes> {
    let child = Command::new(&options.drover)
        .args(["nodesim", "-nodes", &options.nodes.to_string()])
        .args(["-servers", &format!("127.0.0.1:{}", setup.rpc)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("nodesim")?;
    let nodes = Nodes(child);
    let mut http = agent.http();
    wait_for("the nodes to be ready", LONG, || {
        let list = http.json("/v1/nodes")?;
        let ready = list
            .as_array()
            .map(|list| list.iter().filter(|node| node["Status"] == "ready").count());
        ensure!(
            ready == Some(options.nodes),
            "{ready:?} of {} nodes are ready",
            options.nodes
        );
        Ok(())
    })?;
    Ok(nodes)
}
