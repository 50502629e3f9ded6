//! kill -9 at random moments under load: what was acknowledged is there, and replay agrees.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, Http, Setup};
use serde_json::json;

use crate::support::check_replay;

/// How often the agent is killed.
const KILLS: usize = 100;

/// What was acknowledged: path → (modify index, value).
type Acknowledged = Mutex<BTreeMap<String, (u64, String)>>;

/// Writes until `stop` is set or the server is gone, and notes what was acknowledged.
fn write(mut http: Http, writer: usize, round: usize, stop: &AtomicBool, done: &Acknowledged) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let path = format!("kill/{writer}/{}", number % 50);
        let value = format!("{round}-{number}");
        let body = json!({"Items": {"v": value}});
        let Ok(answer) = http.send(
            "PUT",
            &format!("/v1/var/{path}"),
            body.to_string().as_bytes(),
        ) else {
            return;
        };
        if let Ok(answer) = answer.json() {
            let index = answer["ModifyIndex"].as_u64().unwrap_or_default();
            done.lock().expect("no panic").insert(path, (index, value));
        }
    }
}

/// Every acknowledged write is there, or a later one of the same writer is.
fn check(agent: &Agent, done: &Acknowledged) -> Result<()> {
    let mut http = agent.http();
    for (path, (index, value)) in done.lock().expect("no panic").iter_mut() {
        let found = http.json(&format!("/v1/var/{path}"))?;
        let now = found["ModifyIndex"].as_u64().unwrap_or_default();
        ensure!(
            now >= *index,
            "{path}: index {now}, acknowledged at {index}"
        );
        if now == *index {
            ensure!(
                found["Items"]["v"] == **value,
                "{path}: {found}, acknowledged {value}"
            );
        }
        *index = now;
        *value = found["Items"]["v"].as_str().unwrap_or_default().to_owned();
    }
    Ok(())
}

#[test]
fn a_hundred_kills_lose_no_acknowledged_write() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let done = Acknowledged::default();
    // A small generator of its own: the moments differ, and the seed makes a failure repeatable.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut agent = setup.start()?;
    for round in 0..KILLS {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let moment = Instant::now() + Duration::from_millis(5 + seed % 300);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            for writer in 0..4 {
                let http = agent.http().timeout(Duration::from_secs(5));
                let (stop, done) = (&stop, &done);
                scope.spawn(move || write(http, writer, round, stop, done));
            }
            while let Some(left) = moment.checked_duration_since(Instant::now()) {
                std::thread::park_timeout(left);
            }
            agent.kill()?;
            stop.store(true, Ordering::Relaxed);
            Ok(())
        })?;
        agent = setup
            .start()
            .with_context(|| format!("after kill {round}"))?;
        check(&agent, &done).with_context(|| format!("after kill {round}"))?;
    }
    ensure!(
        !done.lock().expect("no panic").is_empty(),
        "nothing was written at all"
    );
    check_replay(&setup, &agent)
}
