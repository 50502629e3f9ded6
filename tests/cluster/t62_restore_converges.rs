//! A restore under running jobs: whatever the state was that is restored, soon what is wanted is
//! what runs is what is listed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::support::{run, save};

/// Every process that a task ever was: its number, and its allocation.
struct Tasks(PathBuf);

impl Tasks {
    fn job(&self, id: &str, count: u32) -> Value {
        let script = format!(
            "echo $$ $NOMAD_ALLOC_ID >> {}; trap 'exit 0' INT TERM; while :; do sleep 0.05; done",
            self.0.display()
        );
        json!({"Job": {"ID": id, "Name": id, "Type": "service", "Datacenters": ["dc1"],
            "TaskGroups": [{"Name": "g", "Count": count,
                "EphemeralDisk": {"SizeMB": 20},
                "Update": {"MinHealthyTime": 1_000_000, "HealthCheck": "task_states",
                    "MaxParallel": 5},
                "Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "http"}]}],
                "Services": [{"Name": format!("{id}-service"), "PortLabel": "http",
                    "Provider": "nomad"}],
                "Tasks": [{"Name": "t", "Driver": "raw_exec", "KillTimeout": 2_000_000_000_u64,
                    "Config": {"command": "/bin/sh", "args": ["-c", script]},
                    "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 5},
                "Resources": {"CPU": 20, "MemoryMB": 16}}]}]}})
    }

    /// The allocations whose processes live, each as often as it has one.
    fn alive(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let mut alive: Vec<String> = lines
            .filter(|(pid, alloc)| lives(pid, alloc))
            .map(|(_, alloc)| alloc.to_owned())
            .collect();
        alive.sort();
        alive
    }
}

/// Whether a process lives and is the allocation's: numbers come again.
fn lives(pid: &str, alloc: &str) -> bool {
    let environment = fs::read(Path::new("/proc").join(pid).join("environ")).unwrap_or_default();
    String::from_utf8_lossy(&environment).contains(alloc)
}

fn list(agent: &Agent, path: &str) -> Result<Vec<Value>> {
    let all = agent.http().json(path)?;
    Ok(all.as_array().context("no list")?.clone())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Waits until what is wanted (a count per job) is what runs is what is listed.
fn converged(agent: &Agent, tasks: &Tasks, wanted: &BTreeMap<&str, usize>) -> Result<()> {
    wait_for("wanted, running and listed to be the same", LONG, || {
        let mut running: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for alloc in list(agent, "/v1/allocations")? {
            let desired = alloc["DesiredStatus"] == "run";
            let status = text(&alloc["ClientStatus"]);
            let over = ["complete", "failed", "lost"].contains(&status.as_str());
            ensure!(desired || over, "to end, and {status}: {alloc}");
            if desired && !over {
                ensure!(status == "running", "to run, and {status}");
                let of_job = running.entry(text(&alloc["JobID"])).or_default();
                of_job.insert(text(&alloc["ID"]));
            }
        }
        let counts: BTreeMap<&str, usize> = running
            .iter()
            .map(|(job, ids)| (job.as_str(), ids.len()))
            .collect();
        ensure!(counts == *wanted, "{counts:?}, wanted {wanted:?}");
        let all: Vec<String> = running
            .values()
            .flatten()
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        ensure!(
            tasks.alive() == all,
            "{:?} run, {all:?} should",
            tasks.alive()
        );
        let mut listed = Vec::new();
        for name in ["one", "two", "three"] {
            for service in list(agent, &format!("/v1/service/{name}-service"))? {
                listed.push(text(&service["AllocID"]));
            }
        }
        listed.sort();
        ensure!(listed == all, "{listed:?} are listed, {all:?} run");
        let evals = list(agent, "/v1/evaluations")?;
        let open = evals.iter().find(|eval| eval["Status"] == "pending");
        ensure!(open.is_none(), "{open:?}");
        Ok(())
    })
}

fn put(agent: &Agent, job: &Value) -> Result<()> {
    let answer = agent.http().put("/v1/jobs", job)?;
    ensure!(answer.status == 200, "{}", answer.text());
    Ok(())
}

fn stop(agent: &Agent, id: &str) -> Result<()> {
    let answer = agent.http().send("DELETE", &format!("/v1/job/{id}"), &[])?;
    ensure!(answer.status == 200, "{}", answer.text());
    Ok(())
}

fn applied(agent: &Agent) -> Result<u64> {
    let digests = agent.http().json("/v1/operator/digests")?;
    digests["Index"].as_u64().context("no index")
}

fn restore(setup: &Setup, agent: &Agent, backup: &Path, at: u64) -> Result<()> {
    let last = applied(agent)?;
    let address = format!("-address=http://{}", agent.addr());
    let (at, file) = (format!("-at={at}"), backup.to_str().context("a path")?);
    run(
        setup,
        &["operator", "snapshot", "restore", &address, &at, file],
    )?;
    wait_for("the new epoch", LONG, || {
        let now = applied(agent)?;
        ensure!(now > last, "index {now}");
        Ok(())
    })
}

#[test]
fn a_restore_under_running_jobs_converges_to_three_points() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let agent = setup.start()?;
    let tasks = Tasks(dir.path().join("pids"));
    wait_for("the node", LONG, || {
        let nodes = agent.http().json("/v1/nodes")?;
        ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        Ok(())
    })?;
    let mut points: Vec<(u64, BTreeMap<&str, usize>)> = Vec::new();
    let mut reached = |wanted: BTreeMap<&'static str, usize>| -> Result<()> {
        converged(&agent, &tasks, &wanted)?;
        points.push((applied(&agent)?, wanted));
        Ok(())
    };
    put(&agent, &tasks.job("one", 3))?;
    reached([("one", 3)].into())?;
    put(&agent, &tasks.job("one", 1))?;
    put(&agent, &tasks.job("two", 2))?;
    reached([("one", 1), ("two", 2)].into())?;
    stop(&agent, "one")?;
    stop(&agent, "two")?;
    put(&agent, &tasks.job("three", 2))?;
    reached([("three", 2)].into())?;
    let backup = dir.path().join("backup.tar");
    save(&setup, &agent, &backup)?;
    let ended = applied(&agent)?;
    // Back, further back, forth again, and to a moment at which a stop was under way.
    for (at, wanted) in [&points[1], &points[0], &points[2]] {
        restore(&setup, &agent, &backup, *at)?;
        converged(&agent, &tasks, wanted)
            .with_context(|| format!("restored to {at}, of {points:?}"))?;
    }
    let requested = applied(&agent)?;
    for at in points[1].0 + 1..points[1].0 + 4 {
        restore(&setup, &agent, &backup, at)?;
        converges(&agent, &tasks)?;
    }
    // A query about the time before says where that is kept.
    let gone = agent.http().get(&format!("/v1/jobs?as_of={ended}"))?;
    ensure!(gone.status == 410, "{}", gone.status);
    let text = gone.text();
    ensure!(text.contains("a backup was restored"), "{text}");
    let shown = dir.path().join("state").display().to_string();
    let mut reported = Vec::new();
    for command in text.split('`').filter(|part| part.starts_with("drover ")) {
        let words = command.split(' ').skip(1);
        let words: Vec<&str> = words
            .map(|word| if word == "OUT" { &shown } else { word })
            .collect();
        reported.push(run(&setup, &words).with_context(|| command.to_owned())?);
    }
    ensure!(reported.len() == 3, "{text}");
    // It is the epoch that the index is of, not the last one: nothing was restored before it.
    ensure!(reported[0].contains(&format!("{ended}")), "{}", reported[0]);
    ensure!(!reported[0].contains("ClusterRestored"), "{}", reported[0]);
    let wanted = format!("The state at index {ended} ");
    ensure!(reported[1].contains(&wanted), "{}", reported[1]);
    let address = format!("-address=http://{}", agent.addr());
    let trail = run(&setup, &["audit", &address, "job", "one"])?;
    ensure!(trail.contains("is kept on the server"), "{trail}");
    ensure!(requested > ended, "an index ran backwards");
    for id in ["one", "two", "three"] {
        stop(&agent, id)?;
    }
    converged(&agent, &tasks, &BTreeMap::new())
}

/// Waits until every job has what it requests, whatever that is.
fn converges(agent: &Agent, tasks: &Tasks) -> Result<()> {
    let mut wanted = BTreeMap::new();
    for job in ["one", "two", "three"] {
        let answer = agent.http().get(&format!("/v1/job/{job}"))?;
        if answer.status == 404 {
            continue;
        }
        let found = answer.json()?;
        let count = found["TaskGroups"][0]["Count"].as_u64().unwrap_or_default();
        if found["Stop"] != true && count > 0 {
            wanted.insert(job, usize::try_from(count)?);
        }
    }
    converged(agent, tasks, &wanted)
}
