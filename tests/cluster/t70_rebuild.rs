//! Projections built again by the real program: whole, killed, interrupted, refused, without space.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use drover_testkit::{LONG, Setup, moment, wait_for};
use serde_json::Value;

use crate::support::{Known, check, check_replay, put, small_disk, stop, words};

/// A server that wrote some variables and was stopped in order.
fn written(dir: &Path) -> Result<(Setup, Known)> {
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.join("data"))?;
    let agent = setup.start()?;
    let mut http = agent.http();
    let mut known = Known::new();
    for number in 0..120 {
        let value = format!("value {number} ").repeat(20);
        let answer = put(&mut http, &mut known, &format!("v/{}", number % 50), &value)?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    wait_for("a checkpoint of it", LONG, || {
        let answer = http.send("GET", "/v1/log/checkpoint", &[])?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })?;
    stop(agent)?;
    Ok((setup, known))
}

fn command(setup: &Setup, verb: &str) -> Command {
    let mut command = Command::new(&setup.binary);
    command.args(["projection", verb, "-data-dir"]);
    command.arg(&setup.data_dir);
    command
}

fn run(setup: &Setup, verb: &str, flags: &[&str]) -> Result<Output> {
    let mut command = command(setup, verb);
    command.args(flags).output().context("drover projection")
}

fn succeeds(setup: &Setup, verb: &str, flags: &[&str]) -> Result<String> {
    let output = run(setup, verb, flags)?;
    let printed = words(&output);
    ensure!(output.status.success(), "{verb} {flags:?}: {printed}");
    Ok(printed)
}

fn server_dir(setup: &Setup) -> PathBuf {
    setup.data_dir.join("server")
}

#[test]
fn ev_05_every_table_is_built_again_and_is_what_it_was() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, known) = written(dir.path())?;
    let list = succeeds(&setup, "list", &["-json"])?;
    let before: Value = serde_json::from_str(&list)?;
    ensure!(before["Applied"].as_u64() > Some(120), "{before}");
    succeeds(&setup, "verify", &["-whole"])?;
    let printed = succeeds(&setup, "rebuild", &[])?;
    ensure!(
        printed.contains("equal to those of the old database"),
        "{printed}"
    );
    ensure!(
        printed.contains("equal to those of the signed checkpoint"),
        "{printed}"
    );
    let after: Value = serde_json::from_str(&succeeds(&setup, "list", &["-json"])?)?;
    for key in ["Applied", "Tables", "Schema"] {
        ensure!(after[key] == before[key], "{key}: {after} after {before}");
    }
    let kept = server_dir(&setup).join("projections.set-aside-1");
    ensure!(kept.is_dir(), "{} is not there", kept.display());
    let printed = succeeds(&setup, "verify", &["-whole"])?;
    ensure!(printed.contains("verified every entry"), "{printed}");
    succeeds(&setup, "discard", &[])?;
    ensure!(!kept.exists(), "{} is there", kept.display());
    let agent = setup.start()?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    let refused = run(&setup, "rebuild", &[])?;
    let printed = words(&refused);
    ensure!(
        !refused.status.success() && printed.contains("is in use"),
        "{printed}"
    );
    stop(agent)
}

/// How often a rebuild is begun that was over, or past the moment, before it could be killed.
const TRIES: usize = 25;

/// Kills a rebuild as soon as a file is there; answers whether the kill came before its end.
fn killed_at(setup: &Setup, mark: &Path) -> Result<bool> {
    let mut child = command(setup, "rebuild")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let seen = moment(|| mark.exists(), || !matches!(child.try_wait(), Ok(None)));
    child.kill()?;
    // One that ended by itself has a code.
    Ok(child.wait()?.code().is_none() && seen)
}

/// Where the next tables that are given up are put.
fn next_retired(server: &Path) -> PathBuf {
    let names = (1..).map(|number| server.join(format!("projections.set-aside-{number}")));
    let mut free = names.filter(|name| !name.exists());
    free.next().unwrap_or_default()
}

#[test]
fn a_rebuild_killed_anywhere_leaves_a_whole_database_in_use() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, known) = written(dir.path())?;
    let server = server_dir(&setup);
    let work = server.join("projections-rebuild");
    for name in [
        "",
        "rebuild.json",
        "staging",
        "staging/generation.json",
        "aside",
        "aside",
    ] {
        let mut killed = false;
        for _ in 0..TRIES {
            let mark = match name {
                "" => work.clone(),
                "aside" => next_retired(&server),
                name => work.join(name),
            };
            // What an earlier kill left would be taken for this rebuild's.
            if mark.exists() {
                succeeds(&setup, "rebuild", &["-discard-old"])?;
            }
            killed = killed_at(&setup, &mark)?;
            let printed = succeeds(&setup, "verify", &["-whole"])
                .with_context(|| format!("killed at {}", mark.display()))?;
            ensure!(printed.contains("verified every entry"), "{printed}");
            if killed {
                break;
            }
        }
        ensure!(killed, "no kill came at {name:?}");
    }
    let agent = setup.start()?;
    check(&agent, &known)?;
    stop(agent)?;
    succeeds(&setup, "rebuild", &["-discard-old"])?;
    succeeds(&setup, "verify", &["-whole"])?;
    let left: Vec<_> = fs::read_dir(&server)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    let left = left.iter().filter(|name| name.starts_with("projections"));
    ensure!(
        left.clone().eq(["projections"]),
        "{:?}",
        left.collect::<Vec<_>>()
    );
    Ok(())
}

fn interrupt(child: &Child) -> Result<()> {
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()?;
    ensure!(kill.success(), "kill -INT");
    Ok(())
}

#[test]
fn an_interrupted_rebuild_ends_by_itself_and_goes_on_later() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, _) = written(dir.path())?;
    let child = command(&setup, "rebuild")
        .args(["-rate", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let work = server_dir(&setup).join("projections-rebuild");
    wait_for("the rebuild to begin", LONG, || {
        ensure!(work.join("staging").exists(), "no staging yet");
        Ok(())
    })?;
    interrupt(&child)?;
    let output = child.wait_with_output()?;
    let printed = words(&output);
    ensure!(output.status.code() == Some(1), "{printed}");
    ensure!(printed.contains("cancelled"), "{printed}");
    succeeds(&setup, "verify", &["-whole"])?;
    let printed = succeeds(&setup, "rebuild", &["-json"])?;
    let done: Value = serde_json::from_str(&printed)?;
    ensure!(done["From"].as_u64() > Some(0), "it began again: {done}");
    succeeds(&setup, "verify", &["-whole"])?;
    Ok(())
}

#[test]
fn a_rebuild_without_space_says_so_and_the_old_database_stays_in_use() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let Some(disk) = small_disk(dir.path(), 96, "a full disk") else {
        return Ok(());
    };
    let (setup, known) = written(&disk.0)?;
    let filler = disk.fill()?;
    let output = run(&setup, "rebuild", &[])?;
    let printed = words(&output);
    ensure!(!output.status.success(), "{printed}");
    ensure!(printed.contains("the disk is full"), "{printed}");
    fs::remove_file(filler)?;
    let agent = setup.start()?;
    check(&agent, &known)?;
    stop(agent)?;
    succeeds(&setup, "rebuild", &["-discard-old"])?;
    succeeds(&setup, "verify", &["-whole"])?;
    Ok(())
}

#[test]
fn the_state_of_any_index_is_made_beside_a_running_agent() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, _) = written(dir.path())?;
    let agent = setup.start()?;
    let state_at = |index: &str, out: &Path| {
        Command::new(&setup.binary)
            .args(["state", "at", index, "-ndjson", "-json", "-data-dir"])
            .arg(&setup.data_dir)
            .arg("-out")
            .arg(out)
            .output()
    };
    let out = dir.path().join("then");
    let output = state_at("60", &out)?;
    ensure!(output.status.success(), "{}", words(&output));
    let done: Value = serde_json::from_slice(&output.stdout)?;
    let rows = fs::read_to_string(out.join("tables/variables.ndjson"))?;
    let count = done["Rows"]["variables"].as_u64();
    ensure!(
        count > Some(0) && count == Some(rows.lines().count() as u64),
        "{done}"
    );
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line)?;
        ensure!(row["Index"].as_u64() <= Some(60), "{row}");
        ensure!(row["Row"]["Path"].as_str().is_some(), "{row}");
    }
    for (index, out) in [("60", out.clone()), ("1000000", dir.path().join("never"))] {
        let output = state_at(index, &out)?;
        ensure!(output.status.code() == Some(1), "{}", words(&output));
    }
    ensure!(!dir.path().join("never").exists(), "half a state is left");
    ensure!(
        out.join("projections/CURRENT").exists(),
        "what was there is gone"
    );
    stop(agent)
}
