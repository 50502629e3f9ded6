//! Control streams that stand open and say nothing: what each costs the server.
//!
//! The server is this process and nothing else is in it; the clients are another one. Once over few
//! connections, as simulated nodes share them, and once over a connection each, as real ones are.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover::rpc::caller::{Caller, Servers};
use drover::rpc::client::Pool;
use drover::rpc::methods::{Empty, StatusPing};
use drover::rpc::server::{CallerLimits, serve};
use drover::rpc::service::Access::Public;
use drover::rpc::service::{Call, Service};
use drover::rpc::sessions::{ControlRequest, NodeControl, Sessions};
use drover_benchkit::usage::rss_mb;
use drover_benchkit::{Line, runtime};
use drover_testkit::{LONG, wait_for};

/// Streams that are open before it is measured: what is made for the first ones is not theirs.
const BEFORE: usize = 200;

/// Both figures.
pub(crate) fn kept(streams: usize) -> Result<()> {
    measured("control streams", streams, 4)?;
    measured("control streams, a connection each", streams, streams)
}

/// Clients in another process; dropping it ends them.
struct Clients(Child);

impl Drop for Clients {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn clients(addr: &str, streams: usize, connections: usize) -> Result<Clients> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--hold", addr, "--streams", &streams.to_string()])
        .args(["--connections", &connections.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().context("its output")?;
    let clients = Clients(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    ensure!(line.trim() == "held", "the clients say {line:?}");
    Ok(clients)
}

fn measured(what: &str, streams: usize, connections: usize) -> Result<()> {
    let runtime = runtime()?;
    let _within = runtime.enter();
    let sessions = Arc::<Sessions>::default();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let limits = CallerLimits::new(
        Some(0),
        Duration::from_secs(20),
        CallerLimits::default().bodies,
    );
    let rpc = serve(listener, Arc::new(service(&sessions)), limits)?;
    let addr = rpc.addr().to_string();
    let all = |count: usize| {
        wait_for("the streams", LONG, || {
            let here = sessions.len();
            ensure!(here == count, "{here} of {count} are held");
            Ok(())
        })
    };
    let few = connections.min(BEFORE);
    let first = clients(&addr, BEFORE, few)?;
    all(BEFORE)?;
    drop(first);
    all(0)?;
    let before = rss_mb();
    let _clients = clients(&addr, streams, connections)?;
    all(streams)?;
    let mb = rss_mb() - before;
    Line::new(what)
        .number("mb", mb)
        .number("kb_each", mb * 1e3 / streams as f64)
        .print();
    Ok(())
}

fn service(sessions: &Arc<Sessions>) -> Service<Arc<Sessions>> {
    type State = Arc<Arc<Sessions>>;
    Service::new(Arc::new(Arc::clone(sessions)))
        .method::<StatusPing, _, _>(Public, async |_, _: Call, Empty {}| Ok(Empty {}))
        .stream::<NodeControl, _, _>(
            Public,
            |sessions: State, call: Call, requested: ControlRequest, stream| async move {
                sessions.hold_until(&requested.node_id, stream, call.parting);
                Ok(())
            },
        )
}

/// Holds streams open until it is killed; says so on a line once all are.
pub(crate) async fn hold(addr: &str, streams: usize, connections: usize) -> Result<()> {
    let pool = Pool::new(connections);
    let mut held = Vec::with_capacity(streams);
    for number in 0..streams {
        let servers = Servers::new(vec![addr.to_owned()]);
        let node_id = uuid(number);
        let caller = Caller::network(pool.clone(), servers, "").of_node(&node_id);
        let requested = ControlRequest { node_id };
        held.push(caller.open::<NodeControl>(&requested, LONG).await?);
    }
    println!("held");
    std::future::pending::<()>().await;
    drop(held);
    Ok(())
}

fn uuid(number: usize) -> String {
    drover_benchkit::sample::uuid(7, number as u64)
}
