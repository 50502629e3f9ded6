//! The log of a running agent, verified from outside: what it hands out, what it signed, what was
//! remembered of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, wait_for};

use crate::support::{Known, put, stop, words};

fn write(agent: &Agent, known: &mut Known, numbers: std::ops::Range<u32>) -> Result<()> {
    let mut http = agent.http();
    for number in numbers {
        let answer = put(&mut http, known, &format!("v/{number}"), "value")?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    Ok(())
}

/// Waits until the last checkpoint is of the last event.
fn wait_signed(agent: &Agent) -> Result<()> {
    let mut http = agent.http();
    wait_for("a checkpoint of the last event", LONG, || {
        let applied = http.json("/v1/operator/digests")?["Index"].clone();
        let answer = http.send("GET", "/v1/log/checkpoint", &[])?;
        ensure!(answer.status == 200, "{}", answer.text());
        let text = answer.text();
        ensure!(text.contains(&format!("\nindex {applied}\n")), "{text}");
        Ok(())
    })
}

fn verify(setup: &Setup, agent: &Agent, flags: &[&str], state: Option<&Path>) -> Result<Output> {
    let mut command = Command::new(&setup.binary);
    command.args(["log", "verify", "-address"]);
    command.arg(format!("http://{}", agent.addr())).args(flags);
    if let Some(state) = state {
        command.arg("-state").arg(state);
    }
    command.output().context("drover log verify")
}

fn passes(output: &Output) -> Result<String> {
    let printed = words(output);
    ensure!(
        output.status.success() && printed.contains("verified"),
        "{printed}"
    );
    ensure!(
        printed.starts_with("verified"),
        "the verdict is first: {printed}"
    );
    let longest = printed.lines().map(str::len).max();
    ensure!(longest.is_some_and(|longest| longest < 160), "{printed}");
    Ok(printed)
}

fn fails(output: &Output, why: &str) -> Result<()> {
    let printed = words(output);
    ensure!(output.status.code() == Some(1), "{printed}");
    ensure!(
        printed.contains(why) && printed.contains("NOT verified"),
        "{why}: {printed}"
    );
    Ok(())
}

#[test]
fn a_running_log_is_verified_through_the_api_and_goes_on_from_what_was_remembered() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let mut known = Known::new();
    let agent = setup.start()?;
    write(&agent, &mut known, 0..300)?;
    wait_signed(&agent)?;
    let state = dir.path().join("state.json");
    let printed = passes(&verify(&setup, &agent, &[], Some(&state))?)?;
    ensure!(
        printed.contains("(unpinned)") && printed.contains("tables equal"),
        "{printed}"
    );
    write(&agent, &mut known, 300..320)?;
    wait_signed(&agent)?;
    let printed = passes(&verify(&setup, &agent, &[], Some(&state))?)?;
    ensure!(
        printed.contains("goes on from") && !printed.contains("unpinned"),
        "{printed}"
    );
    let printed = passes(&verify(&setup, &agent, &["-hashes"], Some(&state))?)?;
    ensure!(printed.contains("verified the hashes of"), "{printed}");
    let keys = agent.http().send("GET", "/v1/log/keys", &[])?.text();
    let key = keys.lines().next().context("a key")?;
    let printed = passes(&verify(&setup, &agent, &["-key", key], None)?)?;
    ensure!(
        printed.contains(key) && !printed.contains("unpinned"),
        "{printed}"
    );
    // What was remembered is another log, or another key's.
    let text = fs::read_to_string(&state)?;
    let remembered: serde_json::Value = serde_json::from_str(&text)?;
    let note = remembered["Note"].as_str().context("a note")?;
    let root = note.lines().nth(2).context("a root")?;
    let other = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    write(&agent, &mut known, 320..321)?;
    wait_signed(&agent)?;
    fs::write(&state, text.replace(root, other))?;
    fails(
        &verify(&setup, &agent, &[], Some(&state))?,
        "was changed since",
    )?;
    let longer = note.lines().nth(1).context("a size")?;
    fs::write(
        &state,
        text.replace(&format!("\\n{longer}\\n"), "\\n900000\\n"),
    )?;
    fails(
        &verify(&setup, &agent, &[], Some(&state))?,
        "the log was cut",
    )?;
    let (name, _) = key.split_once('+').context("a name")?;
    fs::write(&state, text.replace(name, "drover/0123"))?;
    let output = verify(&setup, &agent, &[], Some(&state))?;
    ensure!(output.status.code() == Some(1), "{}", words(&output));
    stop(agent)
}

#[test]
fn another_cluster_under_the_same_address_is_told_by_its_key() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state.json");
    for (data, known_before) in [("one", false), ("two", true)] {
        let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join(data))?;
        let agent = setup.start()?;
        write(&agent, &mut Known::new(), 0..3)?;
        wait_signed(&agent)?;
        let output = verify(&setup, &agent, &[], Some(&state))?;
        match known_before {
            false => drop(passes(&output)?),
            true => fails(&output, "signed by another key")?,
        }
        stop(agent)?;
    }
    Ok(())
}
