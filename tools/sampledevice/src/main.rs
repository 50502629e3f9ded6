//! A device plugin without hardware: for tests and demonstrations. It has two devices, `a` and `b`,
//! writes down the calls it gets, and misbehaves as its commands say (see `state.rs`).

mod base;
mod devices;
mod state;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use drover_plugins::handshake::COOKIE;
use drover_plugins::proto::base::base_plugin_server::BasePluginServer;
use drover_plugins::proto::controller::grpc_controller_server::GrpcControllerServer;
use drover_plugins::proto::device::device_plugin_server::DevicePluginServer;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::state::{Served, State};

/// How long the answer to the call that ends this may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drover-sampledevice: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let (name, cookie) = COOKIE;
    let is_plugin = std::env::var(name).is_ok_and(|found| found == cookie);
    ensure!(is_plugin, "this is a plugin: an agent starts it");
    // The first argument is the folder; settings may name it instead.
    let state = Arc::new(State::new(std::env::args().nth(1).map(PathBuf::from)));
    let path = std::env::temp_dir().join(format!("drover-sample-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    println!("1|1|unix|{}|grpc", path.display());
    eprintln!("[INFO] listening");
    let server = Server::builder()
        .add_service(BasePluginServer::new(Served(Arc::clone(&state))))
        .add_service(DevicePluginServer::new(Served(Arc::clone(&state))))
        .add_service(GrpcControllerServer::new(Served(Arc::clone(&state))));
    let incoming = UnixListenerStream::new(listener);
    tokio::select! {
        served = server.serve_with_incoming_shutdown(incoming, state.ended()) => served?,
        () = gone(&state) => {}
        () = Arc::clone(&state).obey() => {}
    }
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// Ready when it was to end and the caller that ended it has had time to read the answer: streams
/// that are still open end with the process.
async fn gone(state: &State) {
    state.ended().await;
    tokio::time::sleep(LAST_WORDS).await;
}
