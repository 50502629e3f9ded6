//! Raft on one server, with a state machine that discards: `raft [seconds] [directory]`.
//!
//! Prints a JSON line per measurement, the raw `fdatasync` floor of the same run first. Payloads
//! are 300 bytes; a writer waits for its entry to be applied before it sends the next.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use drover::log::{LogEngine, LogOptions};
use drover::raft::network::Alone;
use drover::raft::{Discard, Leadership, Member, Payload, RaftNode, RaftSettings, RaftStart};
use drover_benchkit::{arguments, floor, runtime};

fn main() -> Result<()> {
    let (seconds, dir) = arguments(3.0)?;
    let span = Duration::from_secs_f64(seconds);
    let floor = floor::syncs(dir.path(), span)?;
    println!("{{\"what\":\"raw fdatasync floor\",\"per_second\":{floor:.0}}}");
    let runtime = runtime()?;
    runtime.block_on(async {
        for writers in [1, 32, 256, 1024] {
            measure(dir.path(), writers, span, floor).await?;
        }
        Ok(())
    })
}

/// One that no projection reads: its kind is no event's.
fn payload() -> Payload {
    let mut bytes = vec![0xAB; 300];
    bytes[..4].copy_from_slice(&[0xFF, 0xFF, 1, 0]);
    Payload(bytes.into())
}

async fn measure(dir: &Path, writers: usize, span: Duration, floor: f64) -> Result<()> {
    let (log, _) = LogEngine::open(&dir.join(format!("log-{writers}")), LogOptions::default())?;
    let member = Member {
        id: "1".to_owned(),
        name: "bench".to_owned(),
        ..Member::default()
    };
    let node = RaftNode::start(RaftStart {
        number: 1,
        log: Arc::new(log),
        fold: Box::new(Discard::default()),
        snapshots: dir.join("snapshots"),
        transport: Arc::new(Alone),
        settings: RaftSettings::default(),
        bootstrap: Some(BTreeMap::from([(1, member)])),
    })
    .await?;
    let mut leadership = node.leadership();
    leadership
        .wait_for(|l| matches!(l, Leadership::Leading { .. }))
        .await?;
    let start = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let node = Arc::clone(&node);
            tokio::spawn(async move {
                let mut micros = Vec::new();
                while start.elapsed() < span {
                    let at = Instant::now();
                    node.commit(payload()).await?;
                    micros.push(u64::try_from(at.elapsed().as_micros())?);
                }
                Ok::<_, anyhow::Error>(micros)
            })
        })
        .collect();
    let mut micros = Vec::new();
    for task in tasks {
        micros.extend(task.await??);
    }
    let rate = micros.len() as f64 / start.elapsed().as_secs_f64();
    micros.sort_unstable();
    let p = |q: f64| micros[((micros.len() - 1) as f64 * q) as usize];
    let line = serde_json::json!({
        "what": format!("commit, {writers} writers"),
        "per_second": rate.round(),
        "of_floor": (rate / floor * 100.0).round() / 100.0,
        "p50_us": p(0.5),
        "p99_us": p(0.99),
        "p999_us": p(0.999),
        "rss_mb": drover_benchkit::usage::rss_mb().round(),
    });
    println!("{line}");
    node.shutdown().await;
    Ok(())
}
