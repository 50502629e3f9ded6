//! Jobs registered and read with access control and TLS, beside without, in turns; then the
//! handshakes with the same server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_benchkit::{Line, run};
use drover_testkit::certs::Authority;
use drover_testkit::{Agent, Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

/// Registrations of one turn, and how many at a time.
const REGISTERED: (usize, usize) = (1_000, 32);
/// Reads of one turn, and how many at a time.
const READ: (usize, usize) = (5_000, 16);
/// Turns: what the machine does beside goes to both.
const TURNS: usize = 3;

/// A server and how it is spoken to.
struct Served {
    agent: Agent,
    tls: Option<Arc<rustls::ClientConfig>>,
    token: String,
}

impl Served {
    fn http(&self) -> Http {
        let http = self.agent.http().header("X-Nomad-Token", &self.token);
        match &self.tls {
            Some(config) => http.tls(Arc::clone(config)),
            None => http,
        }
    }
}

/// All figures.
pub(crate) fn compared(drover: &Path, dir: &Path) -> Result<()> {
    let open = Setup::server(drover, &dir.join("open"))?;
    let open = Served {
        agent: open.start()?,
        tls: None,
        token: String::new(),
    };
    let closed = closed(drover, dir)?;
    let (mut registered, mut read) = ([0.0; 2], [0.0; 2]);
    for turn in 0..TURNS {
        for (at, served) in [&open, &closed].into_iter().enumerate() {
            registered[at] += register(served, turn)?;
            read[at] += get(served)?;
        }
    }
    for (what, [without, with]) in [
        ("register with ACLs and TLS", registered),
        ("get job with ACLs and TLS", read),
    ] {
        Line::new(what)
            .number("of_plain", with / without)
            .number("per_second", with / TURNS as f64)
            .number("plain_per_second", without / TURNS as f64)
            .print();
    }
    let tls = closed.tls.as_ref().context("TLS")?;
    crate::handshakes::compared(&closed.agent, tls)
}

fn closed(drover: &Path, dir: &Path) -> Result<Served> {
    let authority = Authority::make(&dir.join("tls"))?;
    let pair = authority.issue("server", &["server.global.nomad", "localhost", "127.0.0.1"])?;
    let mut setup = Setup::server(drover, &dir.join("closed"))?;
    let settings = "http = true\n  rpc = true\n  verify_server_hostname = true";
    setup.config.push_str(&authority.block(&pair, settings));
    setup.config.push_str("acl { enabled = true }\n");
    let (agent, tls) = (setup.spawn()?, authority.trusted()?);
    let mut http = agent.http().tls(Arc::clone(&tls));
    http = http.timeout(Duration::from_secs(5));
    wait_for("the server", LONG, || {
        let leader = http.json("/v1/status/leader")?;
        ensure!(
            leader.as_str().is_some_and(|leader| !leader.is_empty()),
            "no leader"
        );
        Ok::<_, anyhow::Error>(())
    })?;
    let token = bootstrapped(&mut http)?;
    let tls = Some(tls);
    Ok(Served { agent, tls, token })
}

/// The secret of the first token.
pub(crate) fn bootstrapped(http: &mut Http) -> Result<String> {
    wait_for("the first token", LONG, || -> Result<String> {
        let made = http.put("/v1/acl/bootstrap", &json!({}))?.json()?;
        Ok(made["SecretID"].as_str().context("a secret")?.to_owned())
    })
}

fn job(id: &str) -> Value {
    json!({"Job": {
        "ID": id, "Name": id, "Type": "batch", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 0, "Tasks": [{
            "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1h"},
            "Resources": {"CPU": 20, "MemoryMB": 20},
        }]}],
    }})
}

/// Registrations a second.
fn register(served: &Served, turn: usize) -> Result<f64> {
    let (count, clients) = REGISTERED;
    let work = |http: &mut Http, number: usize| {
        let answer = http.put("/v1/jobs", &job(&format!("load-{turn}-{number:06}")))?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        Ok(answer.body.len())
    };
    let done = run(count, clients, || served.http(), work);
    ensure!(done.errors == 0, "{:?}", done.first_error);
    Ok(done.per_second())
}

/// Reads a second of one job.
fn get(served: &Served) -> Result<f64> {
    let (count, clients) = READ;
    let work = |http: &mut Http, _| {
        let answer = http.get("/v1/job/load-0-000000")?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        Ok(answer.body.len())
    };
    let done = run(count, clients, || served.http(), work);
    ensure!(done.errors == 0, "{:?}", done.first_error);
    Ok(done.per_second())
}
