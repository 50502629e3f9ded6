//! The event stream against a real server: `stream -drover PATH [-events N] [-idle N]`.
//!
//! One reader catches up with small events (variables; their payload is about 250 bytes), in
//! Nomad's form, as CloudEvents and by a key that few of them have; then many subscribers wait for
//! something that never happens, and what each costs the server is measured. The program and the
//! server share the machine's cores.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use drover_benchkit::{Line, run};
use drover_testkit::{Agent, Setup};
use serde_json::json;

/// The event stream.
#[derive(Parser)]
struct Options {
    /// The program to measure.
    #[arg(long)]
    drover: PathBuf,
    /// How many events a reader catches up with.
    #[arg(long, default_value_t = 200_000)]
    events: usize,
    /// How many subscribers wait.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Where data directories are made.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

/// How long a reader may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The path of the last variable.
const END: &str = "the-last-of-all";

fn main() -> Result<()> {
    let options = Options::parse();
    let dir = tempfile::tempdir_in(&options.dir)?;
    let agent = Setup::server(&options.drover, &dir.path().join("server"))?.start()?;
    fill(&agent, options.events)?;
    let all = catch_up(&agent, "index=1&namespace=*", "catch-up, NDJSON", None)?;
    let form = "index=1&namespace=*&format=cloudevents";
    catch_up(&agent, form, "catch-up, CloudEvents", None)?;
    let kind = "index=1&namespace=*&kind=VariableApplied&format=sse";
    catch_up(&agent, kind, "catch-up, SSE by kind", None)?;
    let rare = format!("index=1&topic=Variable:{END}");
    catch_up(&agent, &rare, "catch-up, one key of all", Some(all))?;
    let scan = format!("index=1&topic=Variable&filter=Metadata.Path==%22{END}%22");
    catch_up(&agent, &scan, "catch-up, one payload of all", Some(all))?;
    idle(&agent, options.idle)
}

/// Writes the events.
fn fill(agent: &Agent, events: usize) -> Result<()> {
    let filled = run(
        events,
        64,
        || agent.http(),
        |http, number| {
            let body = json!({ "Items": { "k": "v" } });
            let answer = http.put(&format!("/v1/var/app/{number:09}"), &body)?;
            ensure!(answer.status < 300, "{} {}", answer.status, answer.text());
            Ok(answer.body.len())
        },
    );
    ensure!(filled.errors == 0, "{:?}", filled.first_error);
    let body = json!({ "Items": { "k": "v" } });
    let last = agent.http().put(&format!("/v1/var/{END}"), &body)?;
    ensure!(last.status < 300, "{}", last.text());
    Ok(())
}

fn open(agent: &Agent, query: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(agent.addr())?;
    stream.set_read_timeout(Some(LIMIT))?;
    let request = format!("GET /v1/event/stream?{query} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Reads until the last event; answers how long that took.
fn catch_up(agent: &Agent, query: &str, what: &str, all: Option<f64>) -> Result<f64> {
    let start = Instant::now();
    let mut stream = open(agent, query)?;
    let mut buffer = vec![0; 1 << 20];
    let (mut events, mut bytes, mut last) = (0_u64, 0_u64, b'\n');
    let mut tail: Vec<u8> = Vec::new();
    let end = END.as_bytes();
    loop {
        let read = stream.read(&mut buffer).context(what.to_owned())?;
        ensure!(read > 0, "{what}: the stream ended");
        let chunk = &buffer[..read];
        bytes += read as u64;
        // A frame begins behind a line's end, or behind the head of a chunk; counted as bytes,
        // for decoding here would measure this program.
        for byte in chunk {
            events += u64::from(last == b'\n' && (*byte == b'{' || *byte == b'd'));
            last = *byte;
        }
        tail.extend_from_slice(chunk);
        if tail.windows(end.len()).any(|window| window == end) {
            break;
        }
        tail.drain(..tail.len().saturating_sub(end.len()));
    }
    let seconds = start.elapsed().as_secs_f64();
    let line = Line::new(what)
        .number("per_second", events as f64 / seconds)
        .number("mb_per_second", bytes as f64 / seconds / 1e6)
        .number("seconds_taken", seconds);
    match all {
        Some(all) => line.number("times_all", all / seconds).print(),
        None => line.print(),
    }
    Ok(seconds)
}

/// Subscribers to whom nothing happens.
fn idle(agent: &Agent, wanted: usize) -> Result<()> {
    // As many as this process may have open, beside what it needs itself.
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let open_files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    let count = wanted.min(open_files.unwrap_or(1024).saturating_sub(64));
    let before = steady_memory(agent)?;
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = open(agent, "index=latest&topic=Job:none")?;
        let mut byte = [0; 512];
        ensure!(stream.read(&mut byte)? > 0, "a subscriber was turned away");
        streams.push(stream);
    }
    let after = steady_memory(agent)?;
    Line::new("idle subscribers")
        .number("subscribers", count as f64)
        .number("kb_each", (after - before) / count as f64 / 1000.0)
        .print();
    drop(streams);
    Ok(())
}

/// The server's memory once it changes no more.
fn steady_memory(agent: &Agent) -> Result<f64> {
    let mut last = agent.resident_bytes()?;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(250));
        let now = agent.resident_bytes()?;
        if now.abs_diff(last) < 1 << 18 {
            return Ok(now as f64);
        }
        last = now;
    }
    Ok(last as f64)
}
