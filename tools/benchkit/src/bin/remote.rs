//! Requests to the client of another machine: `remote -drover PATH [-rounds N] [-mb N]`.
//!
//! A server and a client agent are two processes on this machine. A byte goes to `cat` beside a
//! task and comes back, requested from the client's own agent and from the server. Then a gibibyte
//! goes into `wc` beside it, and a task's output is read, both through the server. The floor of
//! these is the same request to the client's own agent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use drover_benchkit::Line;
use drover_events::gojson::Base64;
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client::client};

/// What goes into a command: so many pieces of so many bytes, a gibibyte.
const PIECES: (usize, usize) = (8_192, 128 << 10);

/// Requests to the client of another machine.
#[derive(Parser)]
struct Options {
    /// The program to measure.
    #[arg(long)]
    drover: PathBuf,
    /// How often a byte goes there and back.
    #[arg(long, default_value_t = 5_000)]
    rounds: usize,
    /// How long the output is, MB.
    #[arg(long, default_value_t = 500)]
    mb: usize,
    /// Where data directories are made.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let dir = tempfile::tempdir_in(&options.dir)?;
    let server = Setup::server(&options.drover, &dir.path().join("server"))?.start()?;
    let client = Setup {
        config: format!(
            "name = \"remote\"\nclient {{\n  enabled = true\n  servers = [\"{}\"]\n  \
             options {{\n    \"driver.raw_exec.enable\" = \"true\"\n  }}\n}}\n",
            server.rpc_addr()
        ),
        dev: false,
        ..Setup::dev(&options.drover, &dir.path().join("client"))?
    };
    let client = client.spawn()?;
    let _left = drover_testkit::Leftovers(dir.path().join("client"));
    let bytes = options.mb * 1_000_000;
    let alloc = task(&server, bytes)?;
    for (what, agent) in [
        ("exec round trip", &client),
        ("exec round trip, remote task", &server),
    ] {
        echo(what, agent, &alloc, options.rounds)?;
    }
    swallowed(&server, &client, &alloc)?;
    let near = logs(&client, &alloc, bytes)?;
    let far = logs(&server, &alloc, bytes)?;
    Line::new("logs of a remote task")
        .number("mb_per_second", far)
        .number("near_mb_per_second", near)
        .number("of_near", far / near)
        .print();
    Ok(())
}

/// A task that wrote so many bytes and keeps running; its allocation.
fn task(server: &Agent, bytes: usize) -> Result<String> {
    let script = format!("yes 0123456789abcde | head -c {bytes}; exec sleep 1000");
    let job = json!({"Job": {"ID": "remote", "Name": "remote", "Type": "service",
    "Datacenters": ["*"], "TaskGroups": [{"Name": "g", "EphemeralDisk": {"SizeMB": 1_500},
        "Tasks": [{
            "Name": "t", "Driver": "raw_exec",
            "Config": {"command": "/bin/sh", "args": ["-c", script]},
            "Resources": {"CPU": 10, "MemoryMB": 10},
            "LogConfig": {"MaxFiles": 10, "MaxFileSizeMB": 100},
    }]}]}});
    let mut http = server.http();
    let put = http.put("/v1/jobs", &job)?;
    ensure!(put.status == 200, "{}", put.text());
    let alloc = wait_for("the task", LONG, || {
        let allocs = http.json("/v1/job/remote/allocations")?;
        ensure!(allocs[0]["ClientStatus"] == "running", "{allocs}");
        Ok::<_, anyhow::Error>(allocs[0]["ID"].as_str().context("an id")?.to_owned())
    })?;
    let files = format!("/v1/client/fs/ls/{alloc}?path=alloc/logs");
    wait_for("its output", LONG, || {
        let files = http.json(&files)?;
        let sizes = files.as_array().into_iter().flatten();
        let sum: u64 = sizes.filter_map(|file| file["Size"].as_u64()).sum();
        ensure!(sum >= bytes as u64, "{sum} bytes so far");
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(alloc)
}

/// A command beside the task.
fn exec(agent: &Agent, alloc: &str, command: &str) -> Result<WebSocket<TcpStream>> {
    let path = format!("/v1/client/allocation/{alloc}/exec?task=t&command={command}");
    let stream = TcpStream::connect(agent.addr())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    let (socket, _) = client(format!("ws://{}{path}", agent.addr()), stream)
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(socket)
}

/// A byte goes to `cat` and comes back.
fn echo(what: &str, agent: &Agent, alloc: &str, rounds: usize) -> Result<()> {
    let mut socket = exec(agent, alloc, "%5B%22cat%22%5D")?;
    let mut latencies = Vec::with_capacity(rounds);
    // The first ones are not counted: what they need is made for them.
    for round in 0..rounds + 100 {
        let start = Instant::now();
        socket.send(Message::text(r#"{"stdin":{"data":"eA=="}}"#))?;
        loop {
            let message = socket.read()?;
            if let Message::Close(frame) = &message {
                bail!("closed: {frame:?}");
            }
            if !message.is_text() {
                continue;
            }
            let frame: Value = serde_json::from_str(message.to_text()?)?;
            if frame["stdout"]["data"] == "eA==" {
                break;
            }
        }
        if round >= 100 {
            latencies.push(start.elapsed());
        }
    }
    Line::new(what).latencies(&mut latencies).print();
    Ok(())
}

/// A gibibyte goes into a command through the server, and what both hold of it meanwhile. The
/// client's own agent is measured after that: what it has grown by then would hide what it grows.
fn swallowed(server: &Agent, client: &Agent, alloc: &str) -> Result<()> {
    let before = [server.resident_bytes()?, client.resident_bytes()?];
    let over = AtomicBool::new(false);
    let (far, most) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| -> Result<[u64; 2]> {
            let mut most = before;
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                for (most, agent) in most.iter_mut().zip([server, client]) {
                    *most = (*most).max(agent.resident_bytes()?);
                }
            }
            Ok(most)
        });
        let far = pour(server, alloc);
        over.store(true, Ordering::Relaxed);
        (far, watch.join())
    });
    let far = far?;
    let most = most.map_err(|_| anyhow::anyhow!("nobody looked at the memory"))??;
    let near = pour(client, alloc)?;
    let grew = |at: usize| (most[at] - before[at]) as f64 / 1e6;
    Line::new("1 GiB into an exec, remote task")
        .number("mb_per_second", far)
        .number("near_mb_per_second", near)
        .number("of_near", far / near)
        .number("server_grew_mb", grew(0))
        .number("client_grew_mb", grew(1))
        .print();
    Ok(())
}

/// How fast a command takes what it is sent, MB per second. It says how much that was.
fn pour(agent: &Agent, alloc: &str) -> Result<f64> {
    let (pieces, size) = PIECES;
    let piece = Base64::encode(&vec![b'x'; size]);
    let frame = Message::text(json!({"stdin": {"data": piece}}).to_string());
    let mut socket = exec(agent, alloc, "%5B%22wc%22,%22-c%22%5D")?;
    let start = Instant::now();
    for _ in 0..pieces {
        socket.send(frame.clone())?;
    }
    socket.send(Message::text(r#"{"stdin":{"close":true}}"#))?;
    let mut output = Vec::new();
    loop {
        let message = socket.read()?;
        if let Message::Close(frame) = &message {
            bail!("closed: {frame:?}");
        }
        if !message.is_text() {
            continue;
        }
        let frame: Value = serde_json::from_str(message.to_text()?)?;
        if let Some(data) = frame["stdout"]["data"].as_str() {
            output.extend(Base64::decode(data).context("base64")?);
        }
        if frame["exited"] == true {
            break;
        }
    }
    let took = start.elapsed().as_secs_f64();
    let (output, sent) = (String::from_utf8_lossy(&output), pieces * size);
    ensure!(
        output.trim() == sent.to_string(),
        "{output:?} of {sent} bytes"
    );
    Ok(sent as f64 / 1e6 / took)
}

/// How fast a task's whole output is read, MB per second.
fn logs(agent: &Agent, alloc: &str, bytes: usize) -> Result<f64> {
    let path = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    let mut stream = TcpStream::connect(agent.addr())?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let start = Instant::now();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n"
    )?;
    let mut buf = vec![0; 256 << 10];
    let mut read = 0;
    loop {
        match stream.read(&mut buf)? {
            0 => break,
            n => read += n,
        }
    }
    ensure!(read >= bytes, "{read} bytes of {bytes}");
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}
