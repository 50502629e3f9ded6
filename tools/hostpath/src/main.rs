//! A plugin of the Container Storage Interface that keeps volumes in folders and files of one
//! machine: controller, node, or both. For tests and demonstrations: it is strict about the order
//! of calls, records each of them, and misbehaves where a rule says so. It is no storage for real
//! data.

mod calls;
mod controller;
mod create;
mod faults;
mod identity;
mod kinds;
mod lies;
mod listing;
mod node;
mod place;
mod record;
mod requested;
mod snapshot;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use drover_csi::proto::controller_server::ControllerServer;
use drover_csi::proto::identity_server::IdentityServer;
use drover_csi::proto::node_server::NodeServer;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::calls::HostPath;

/// How the plugin is started.
#[derive(Parser, Debug, Clone)]
#[command(
    name = "drover-hostpath",
    version,
    about = "A CSI plugin of folders and files"
)]
pub(crate) struct Options {
    /// Where it listens: unix:///path or a path.
    #[arg(long, env = "CSI_ENDPOINT")]
    endpoint: String,
    /// Where volumes and what is known of them lie. Several plugins may share it.
    #[arg(long)]
    state_dir: PathBuf,
    /// The name of the node it runs on.
    #[arg(long, default_value = "one")]
    node_id: String,
    /// The name of the plugin.
    #[arg(long, default_value = "hostpath.csi.drover")]
    name: String,
    /// Serve no controller: another process does.
    #[arg(long)]
    no_controller: bool,
    /// There is no controller anywhere.
    #[arg(long)]
    nodes_only: bool,
    /// Serve no node part.
    #[arg(long)]
    no_node: bool,
    /// The controller need not attach volumes to nodes.
    #[arg(long)]
    no_attach: bool,
    /// Nodes need not stage volumes.
    #[arg(long)]
    no_stage: bool,
    /// Make volumes larger only while no node has them.
    #[arg(long)]
    offline: bool,
    /// A segment of the topology the node lies in, KEY=VALUE; volumes are then made in one place.
    #[arg(long = "topology", value_parser = segment)]
    topology: Vec<(String, String)>,
    /// Most volumes attached to the node; 0 for any number.
    #[arg(long, default_value_t = 0)]
    max_volumes: i64,
    /// How many bytes all volumes may have.
    #[arg(long, default_value_t = 1 << 40)]
    capacity: i64,
    /// Do not mount: what is published is a symbolic link. Users other than root always get that.
    #[arg(long)]
    links: bool,
    /// Where calls are recorded, a JSON object a line.
    #[arg(long, env = "DROVER_HOSTPATH_RECORD")]
    record: Option<PathBuf>,
    /// A file that says what to do wrong (see faults.rs); read at every call.
    #[arg(long, env = "DROVER_HOSTPATH_FAULTS")]
    faults: Option<PathBuf>,
}

fn segment(given: &str) -> Result<(String, String), String> {
    let (key, value) = given.split_once('=').ok_or("KEY=VALUE is wanted")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drover-hostpath: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let path = options.endpoint.strip_prefix("unix://");
    let path = PathBuf::from(path.unwrap_or(&options.endpoint));
    let plugin = HostPath::open(options.clone())?;
    let listener = listen(&path)?;
    println!("listening on {}", path.display());
    let mut server = Server::builder().add_service(IdentityServer::new(plugin.clone()));
    if !options.no_controller && !options.nodes_only {
        server = server.add_service(ControllerServer::new(plugin.clone()));
    }
    if !options.no_node {
        server = server.add_service(NodeServer::new(plugin));
    }
    let mut requested = signal(SignalKind::terminate())?;
    let mut pressed = signal(SignalKind::interrupt())?;
    let stopped = async {
        tokio::select! {
            _ = requested.recv() => {}
            _ = pressed.recv() => {}
        }
    };
    // Calls that hang are not waited for.
    tokio::select! {
        served = server.serve_with_incoming(UnixListenerStream::new(listener)) => served?,
        () = stopped => {}
    }
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// Listens, also where one that was killed has left its socket.
fn listen(path: &Path) -> Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
    UnixListener::bind(path).with_context(|| path.display().to_string())
}
