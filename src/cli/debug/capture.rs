//! What is captured: the cluster once, its state again and again, agents all the time.

use super::super::client::{Client, Query, Stream};
use super::super::out::Out;
use super::super::show::pretty;
use super::Args;
use super::agents::{Agent, Agents};
use super::store::Store;
use crate::diagnostics::redact;
use anyhow::{Context, Result, anyhow};
use futures_util::future::try_join_all;
use serde_json::Value as Json;
use std::io::Write as _;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// What a cluster is, by file.
const CLUSTER: [(&str, &str); 6] = [
    ("agent-self", "/v1/agent/self"),
    ("members", "/v1/agent/members"),
    ("regions", "/v1/regions"),
    ("leader", "/v1/status/leader"),
    ("peers", "/v1/status/peers"),
    ("health", "/v1/agent/health"),
];

/// The parts that are text: where the log is, signed, and by which keys.
const SIGNED: [(&str, &str); 2] = [
    ("log-checkpoint", "/v1/log/checkpoint"),
    ("log-keys", "/v1/log/keys"),
];

/// What changes, by file.
const STATE: [(&str, &str); 15] = [
    ("allocations", "/v1/allocations?namespace=*"),
    ("deployments", "/v1/deployments?namespace=*"),
    ("evaluations", "/v1/evaluations?namespace=*"),
    ("jobs", "/v1/jobs?namespace=*"),
    ("metrics", "/v1/metrics"),
    ("namespaces", "/v1/namespaces"),
    ("node-pools", "/v1/node/pools"),
    ("nodes", "/v1/nodes?resources=true&os=true"),
    ("operator-autopilot-health", "/v1/operator/autopilot/health"),
    ("operator-raft", "/v1/operator/raft/configuration"),
    ("operator-reactors", "/v1/operator/reactors"),
    ("operator-scheduler", "/v1/operator/scheduler/configuration"),
    ("plugins", "/v1/plugins?type=csi"),
    ("services", "/v1/services?namespace=*"),
    ("volumes", "/v1/volumes?namespace=*"),
];

/// What is captured of processes and their threads, by file and its ending.
const THREADS: [(&str, &str, &str); 2] = [
    ("goroutine-debug1", "goroutine?debug=1", "txt"),
    ("goroutine", "goroutine", "prof"),
];

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of a log or of events.
const MOST: u64 = 256 << 20;

/// A capture under way.
pub(super) struct Capture<'a> {
    pub(super) client: Client,
    pub(super) args: Args,
    pub(super) agents: Agents,
    pub(super) store: Store,
    pub(super) out: &'a Out,
}

impl Capture<'_> {
    /// Captures for the requested time. Only a failed write is an error.
    pub(super) async fn run(&self) -> Result<()> {
        let begin = Instant::now();
        let end = begin + self.args.duration;
        for (who, why) in &self.agents.left_out {
            self.store.missing(who, why);
        }
        let logs = try_join_all(self.agents.all.iter().map(|agent| self.log(agent, end)));
        let (logs, state) = (async { logs.await.map(drop) }, self.state(begin, end));
        tokio::try_join!(
            self.cluster(),
            logs,
            state,
            self.profiles(begin, end),
            self.events(end)
        )?;
        Ok(())
    }

    /// What does not change meanwhile.
    async fn cluster(&self) -> Result<()> {
        for (name, path) in CLUSTER {
            self.json(&format!("cluster/{name}.json"), path, &[])
                .await?;
        }
        for (name, path) in SIGNED {
            self.bytes(&format!("cluster/{name}.txt"), path, &[])
                .await?;
        }
        for agent in &self.agents.all {
            let (folder, whose) = (agent.folder(), [agent.parameter()]);
            let host = format!("{folder}/agent-host.json");
            self.json(&host, "/v1/agent/host", &whose).await?;
            let command = format!("{folder}/cmdline.txt");
            self.bytes(&command, "/v1/agent/pprof/cmdline", &whose)
                .await?;
            if agent.role == "client" {
                let meta = format!("{folder}/metadata.json");
                self.json(&meta, "/v1/client/metadata", &whose).await?;
            }
            self.former(agent).await?;
        }
        Ok(())
    }

    /// What an agent logged before.
    async fn former(&self, agent: &Agent) -> Result<()> {
        let since = self
            .args
            .log_lookback
            .map(|back| format!("{}s", back.as_secs()));
        let mut query = vec![agent.parameter(), ("plain", "true")];
        match &since {
            Some(since) => {
                query.extend([("logs_since", since.as_str()), ("service_name", "drover")])
            }
            None if self.args.log_file_export => query.push(("on_disk", "true")),
            None => return Ok(()),
        }
        let path = format!("{}/monitor_export.log", agent.folder());
        let stream = self.client.stream("/v1/agent/monitor/export", &query).await;
        self.lines(&path, stream, Instant::now() + self.args.duration)
            .await
    }

    /// The state, again and again.
    async fn state(&self, begin: Instant, end: Instant) -> Result<()> {
        self.out.line("Capturing cluster data...");
        let stale = if self.args.stale { "true" } else { "false" };
        for round in 0_u32.. {
            let next = begin + self.args.interval * round;
            if next >= end {
                break;
            }
            sleep_until(next).await;
            self.out.line(&format!("    Capture interval {round:04}"));
            for (name, path) in STATE {
                let file = format!("nomad/{round:04}/{name}.json");
                self.json(&file, path, &[("stale", stale)]).await?;
            }
            for agent in self
                .agents
                .all
                .iter()
                .filter(|agent| agent.role == "client")
            {
                let file = format!("{}/stats_{round:04}.json", agent.folder());
                self.json(&file, "/v1/client/stats", &[agent.parameter()])
                    .await?;
            }
        }
        sleep_until(end).await;
        Ok(())
    }

    /// Where agents spend their time, one after the other: several may be one process, of which one
    /// profile is made at a time.
    async fn profiles(&self, begin: Instant, end: Instant) -> Result<()> {
        let every = self.args.pprof_interval.unwrap_or(self.args.interval);
        let time = self.args.pprof_duration;
        let seconds = time.as_secs().max(1).to_string();
        if time.is_zero() {
            return Ok(());
        }
        for round in 0_u32.. {
            // Rounds that others took longer for are left out.
            let next = begin + every * round;
            if next >= end {
                break;
            }
            if Instant::now() > next + every {
                continue;
            }
            sleep_until(next).await;
            for agent in &self.agents.all {
                let folder = agent.folder();
                for (name, profile, ending) in THREADS {
                    let file = format!("{folder}/{name}_{round:04}.{ending}");
                    let path = format!("/v1/agent/pprof/{profile}");
                    self.bytes(&file, &path, &[agent.parameter()]).await?;
                }
                let file = format!("{folder}/profile_{round:04}.prof");
                let query = [agent.parameter(), ("seconds", seconds.as_str())];
                let requested = self.client.get("/v1/agent/pprof/profile", &query);
                match timeout(time + PATIENCE, requested).await {
                    Ok(Ok(reply)) => self.store.put(&file, &reply.body)?,
                    Ok(Err(error)) => self.store.missing(&file, &format!("{error:#}")),
                    Err(_) => self.store.missing(&file, "no answer in time"),
                }
            }
        }
        Ok(())
    }

    /// What an agent logs.
    async fn log(&self, agent: &Agent, end: Instant) -> Result<()> {
        let location = self.args.log_include_location.to_string();
        let query = [
            agent.parameter(),
            ("plain", "true"),
            ("log_level", self.args.log_level.as_str()),
            ("log_include_location", location.as_str()),
        ];
        let path = format!("{}/monitor.log", agent.folder());
        let stream = self.client.stream("/v1/agent/monitor", &query).await;
        self.lines(&path, stream, end).await
    }

    /// What happens meanwhile.
    async fn events(&self, end: Instant) -> Result<()> {
        if self.args.event_topic.is_empty() {
            return Ok(());
        }
        let index = self.args.event_index.map(|index| index.to_string());
        let mut query: Vec<(&str, &str)> = vec![("namespace", "*")];
        query.extend(self.args.event_topic.iter().map(|topic| {
            let topic = if topic == "all" { "*" } else { topic };
            ("topic", topic)
        }));
        query.extend(index.iter().map(|index| ("index", index.as_str())));
        let path = "cluster/eventstream.json";
        let mut stream = match self.client.stream("/v1/event/stream", &query).await {
            Ok(stream) => stream,
            Err(error) => {
                self.store.missing(path, &format!("{error:#}"));
                return Ok(());
            }
        };
        let mut file = self.store.open(path)?;
        let mut left = MOST;
        while let Ok(line) = timeout_at(end, stream.json_line()).await {
            match line {
                Ok(Some(mut event)) => {
                    if event.as_object().is_some_and(serde_json::Map::is_empty) {
                        continue;
                    }
                    redact::json(&mut event);
                    let text = format!("{event}\n");
                    left = left.saturating_sub(text.len() as u64);
                    if left == 0 {
                        self.store
                            .missing(path, "the rest: there are too many of them");
                        break;
                    }
                    file.write_all(text.as_bytes())
                        .context("Error writing events")?;
                }
                Ok(None) => {
                    self.store.missing(path, "the rest: the stream ended");
                    break;
                }
                Err(error) => {
                    self.store.missing(path, &format!("the rest: {error:#}"));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Writes what comes of a text until its end, or that of the time.
    async fn lines(&self, path: &str, stream: Result<Stream>, end: Instant) -> Result<()> {
        let mut stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                self.store.missing(path, &format!("{error:#}"));
                return Ok(());
            }
        };
        let mut file = self.store.open(path)?;
        let (mut open, mut left) = (Vec::new(), MOST);
        let failed = || format!("Error writing {path}");
        loop {
            let chunk = match timeout_at(end, stream.chunk()).await {
                Err(_) | Ok(Ok(None)) => break,
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Err(error)) => {
                    self.store.missing(path, &format!("the rest: {error:#}"));
                    break;
                }
            };
            open.extend_from_slice(&chunk);
            let whole = open.iter().rposition(|byte| *byte == b'\n');
            let whole = whole.map_or(0, |at| at + 1);
            let rest = open.split_off(whole);
            let text = redact::text(&String::from_utf8_lossy(&open));
            left = left.saturating_sub(text.len() as u64);
            if left == 0 {
                self.store.missing(path, "the rest: it is too long");
                return Ok(());
            }
            file.write_all(text.as_bytes()).with_context(failed)?;
            open = rest;
        }
        let text = redact::text(&String::from_utf8_lossy(&open));
        file.write_all(text.as_bytes()).with_context(failed)
    }

    async fn fetch(&self, path: &str, query: Query<'_>) -> Result<bytes::Bytes> {
        let requested = self.client.get(path, query);
        let reply = timeout(PATIENCE, requested).await;
        let reply = reply.map_err(|_| anyhow!("no answer in {} s", PATIENCE.as_secs()))??;
        Ok(reply.body)
    }

    /// Writes an answer that is JSON, without what may be a secret.
    async fn json(&self, file: &str, path: &str, query: Query<'_>) -> Result<()> {
        let read = async {
            let body = self.fetch(path, query).await?;
            let mut value: Json = serde_json::from_slice(&body)?;
            redact::json(&mut value);
            Ok::<_, anyhow::Error>(pretty(&value))
        };
        match read.await {
            Ok(text) => self.store.put(file, text.as_bytes()),
            Err(error) => {
                self.store.missing(file, &format!("{error:#}"));
                Ok(())
            }
        }
    }

    /// Writes an answer as it comes.
    async fn bytes(&self, file: &str, path: &str, query: Query<'_>) -> Result<()> {
        match self.fetch(path, query).await {
            Ok(body) => self.store.put(file, &body),
            Err(error) => {
                self.store.missing(file, &format!("{error:#}"));
                Ok(())
            }
        }
    }
}
