//! A list for a caller that may see one of fifty namespaces, beside the whole list.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_benchkit::{Line, Run, run};
use drover_testkit::{Agent, Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

const NAMESPACES: usize = 50;
/// Simulated nodes: capacity for all allocations.
const NODES: usize = 250;
/// How often each is requested.
const REQUESTED: usize = 20;

/// Simulated nodes; dropping it ends them.
struct Nodes(Child);

impl Drop for Nodes {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The figure: how much longer it takes than its share of the whole.
pub(crate) fn listed(drover: &Path, dir: &Path, allocs: usize) -> Result<()> {
    let mut setup = Setup::server(drover, &dir.join("lists"))?;
    setup.config.push_str("acl { enabled = true }\n");
    let agent = setup.start()?;
    let root = crate::served::bootstrapped(&mut agent.http())?;
    // They stay to the end: what was theirs would be placed anew.
    let _nodes = nodes(drover, &setup)?;
    fill(&agent, &root, allocs)?;
    let narrow = narrow(&agent, &root)?;
    let (mut whole, all) = measure(&agent, &root)?;
    let (mut part, seen) = measure(&agent, &narrow)?;
    // What was placed anew for a node that was late is there twice.
    ensure!(
        all >= allocs && (allocs / NAMESPACES..all / 10).contains(&seen),
        "{seen} of {all}"
    );
    let share = middle(&mut whole) / NAMESPACES as f64;
    let took = middle(&mut part);
    Line::new("list for one of 50 namespaces")
        .number("over_share_ms", (took - share) * 1e3)
        .number("p50_us", took * 1e6)
        .number("share_us", share * 1e6)
        .number("rows", seen as f64)
        .print();
    Ok(())
}

/// Seconds of the one in the middle.
fn middle(run: &mut Run) -> f64 {
    run.latencies.sort_unstable();
    let at = run.latencies.len() / 2;
    run.latencies.get(at).map_or(0.0, Duration::as_secs_f64)
}

fn nodes(drover: &Path, setup: &Setup) -> Result<Nodes> {
    let child = Command::new(drover)
        .args(["nodesim", "-nodes", &NODES.to_string()])
        .args(["-servers", &format!("127.0.0.1:{}", setup.rpc)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("nodesim")?;
    Ok(Nodes(child))
}

fn fill(agent: &Agent, root: &str, allocs: usize) -> Result<()> {
    let mut http = agent.http().header("X-Nomad-Token", root);
    for number in 0..NAMESPACES {
        let name = namespace(number);
        let made = http.put("/v1/namespace", &json!({"Name": name}))?;
        ensure!(made.status == 200, "{}", made.text());
        let job = json!({"Job": {
            "ID": name, "Name": name, "Namespace": name, "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{
                "Name": "g", "Count": allocs / NAMESPACES, "EphemeralDisk": {"SizeMB": 10},
                "Tasks": [{
                    "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1h"},
                    "Resources": {"CPU": 20, "MemoryMB": 10},
                    "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
                }],
            }],
        }});
        let put = http.put(&format!("/v1/jobs?namespace={name}"), &job)?;
        ensure!(put.status == 200, "{}", put.text());
    }
    wait_for("the allocations", LONG * 5, || {
        let mut running = 0;
        for number in 0..NAMESPACES {
            let name = namespace(number);
            let path = format!("/v1/job/{name}/summary?namespace={name}");
            let summary = http.json(&path)?;
            running += summary["Summary"]["g"]["Running"].as_u64().unwrap_or(0);
        }
        ensure!(running >= allocs as u64, "{running} of {allocs} run");
        Ok::<_, anyhow::Error>(())
    })
}

fn namespace(number: usize) -> String {
    format!("team-{number:02}")
}

/// A token that may read one namespace.
fn narrow(agent: &Agent, root: &str) -> Result<String> {
    let mut http = agent.http().header("X-Nomad-Token", root);
    let rules = format!("namespace \"{}\" {{ policy = \"read\" }}", namespace(7));
    let policy = json!({"Name": "narrow", "Rules": rules});
    let made = http.put("/v1/acl/policy/narrow", &policy)?;
    ensure!(made.status == 200, "{}", made.text());
    let token = json!({"Name": "narrow", "Type": "client", "Policies": ["narrow"]});
    let token = http.put("/v1/acl/token", &token)?.json()?;
    Ok(token["SecretID"].as_str().context("a secret")?.to_owned())
}

/// The list of all namespaces as this token sees it: how long it took, how many rows.
fn measure(agent: &Agent, token: &str) -> Result<(Run, usize)> {
    let path = "/v1/allocations?namespace=*";
    let one = |http: &mut Http, _| {
        let answer = http.get(path)?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(answer.body.len())
    };
    let connect = || agent.http().header("X-Nomad-Token", token);
    let rows = connect().json(path)?;
    let rows = rows.as_array().map_or(0, Vec::<Value>::len);
    let done = run(REQUESTED, 1, connect, one);
    ensure!(done.errors == 0, "{:?}", done.first_error);
    Ok((done, rows))
}
