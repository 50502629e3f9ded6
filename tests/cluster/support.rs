//! What the suite shares: variables that were acknowledged, and the log's own proof.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, Http, Response, Setup};
use serde_json::json;

/// Values by path.
pub(crate) type Known = BTreeMap<String, String>;

/// Writes a variable; remembers it if it was acknowledged.
pub(crate) fn put(http: &mut Http, known: &mut Known, path: &str, value: &str) -> Result<Response> {
    let body = json!({"Items": {"v": value}}).to_string();
    let answer = http.send("PUT", &format!("/v1/var/{path}"), body.as_bytes())?;
    if answer.status == 200 {
        known.insert(path.to_owned(), value.to_owned());
    }
    Ok(answer)
}

/// Everything that was acknowledged is there.
pub(crate) fn check(agent: &Agent, known: &Known) -> Result<()> {
    let mut http = agent.http();
    for (path, value) in known {
        let found = http.json(&format!("/v1/var/{path}"))?;
        ensure!(
            found["Items"]["v"] == **value,
            "{path} is not what was acknowledged"
        );
    }
    Ok(())
}

/// `drover log replay`, beside the agent if there is one.
pub(crate) fn replay(setup: &Setup, agent: Option<&Agent>) -> Result<Output> {
    let address = match agent {
        Some(agent) => agent.addr().to_string(),
        None => format!("127.0.0.1:{}", setup.http),
    };
    let mut command = Command::new(&setup.binary);
    command
        .args(["log", "replay", "-data-dir"])
        .arg(&setup.data_dir);
    command.args(["-address", &format!("http://{address}")]);
    command.output().context("drover log replay")
}

/// The log, folded from zero, gives what the agent holds.
pub(crate) fn check_replay(setup: &Setup, agent: &Agent) -> Result<()> {
    let output = replay(setup, Some(agent))?;
    ensure!(output.status.success(), "{}", words(&output));
    Ok(())
}

/// All that a command wrote.
pub(crate) fn words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    format!("{text}{}", String::from_utf8_lossy(&output.stderr))
}

/// Runs a command that must succeed; answers all that it wrote.
pub(crate) fn run(setup: &Setup, args: &[&str]) -> Result<String> {
    let output = Command::new(&setup.binary).args(args).output()?;
    ensure!(output.status.success(), "{args:?}: {}", words(&output));
    Ok(words(&output))
}

/// Saves a backup of a running agent.
pub(crate) fn save(setup: &Setup, agent: &Agent, path: &Path) -> Result<()> {
    let address = format!("-address=http://{}", agent.addr());
    let path = path.to_str().context("a path")?;
    run(setup, &["operator", "snapshot", "save", &address, path])?;
    Ok(())
}
