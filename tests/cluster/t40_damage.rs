//! Flipped bits: in the log they are named and nothing is served; in the database they are named,
//! never served, and healed from the log.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use drover_testkit::{LONG, Setup, wait_for};

use crate::support::{Known, check, check_replay, put, replay, stop, words};

/// A server that wrote some variables and was stopped in order.
fn written(dir: &Path) -> Result<(Setup, Known)> {
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.join("data"))?;
    let agent = setup.start()?;
    let mut http = agent.http();
    let mut known = Known::new();
    for number in 0..200 {
        let value = format!("value {number} ").repeat(20);
        let answer = put(&mut http, &mut known, &format!("v/{number}"), &value)?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    stop(agent)?;
    Ok((setup, known))
}

/// The largest file with this ending.
fn largest(dir: &Path, ending: &str) -> Result<PathBuf> {
    let mut best = None;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == ending) {
            best = best.max(Some((path.metadata()?.len(), path)));
        }
    }
    Ok(best.context("no such file")?.1)
}

pub(crate) fn flip(path: &Path, at: usize) -> Result<()> {
    let mut bytes = fs::read(path)?;
    bytes[at] ^= 0x10;
    Ok(fs::write(path, bytes)?)
}

/// Starts an agent that is to end by itself; what it said.
pub(crate) fn gives_up(setup: &Setup) -> Result<String> {
    let agent = setup.spawn()?;
    let running = Path::new("/proc").join(agent.pid().to_string()).join("exe");
    wait_for("the agent to give up", LONG, || {
        ensure!(!running.exists(), "it runs: {}", agent.log_tail(20));
        Ok(())
    })?;
    Ok(agent.log_tail(20))
}

#[test]
fn a_log_without_its_end_or_an_id_is_refused_and_nothing_is_dropped() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, known) = written(dir.path())?;
    let server = setup.data_dir.join("server");
    let segment = largest(&server.join("log"), "log")?;
    let (whole, id) = (fs::read(&segment)?, fs::read(server.join("node-id"))?);

    // The end is gone, as a crash between two writes would leave it.
    fs::File::options()
        .write(true)
        .open(&segment)?
        .set_len(4096 + 20_000)?;
    let log = gives_up(&setup)?;
    ensure!(log.contains("its end is lost"), "{log}");
    fs::write(&segment, &whole)?;

    fs::remove_file(server.join("node-id"))?;
    let log = gives_up(&setup)?;
    ensure!(log.contains("node-id") && log.contains("missing"), "{log}");
    fs::write(server.join("node-id"), id)?;

    let agent = setup.start()?;
    check(&agent, &known)?;
    // A second agent on the directory of one that runs changes nothing there either.
    let second = gives_up(&setup)?;
    ensure!(second.contains("is used by another agent"), "{second}");
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    stop(agent)
}

#[test]
fn a_log_without_its_end_is_refused_by_its_checkpoints_alone() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, known) = written(dir.path())?;
    let server = setup.data_dir.join("server");
    let agent = setup.start()?;
    wait_for("a checkpoint at the end", LONG, || {
        let note = agent.http().get("/v1/log/checkpoint")?.text();
        let index = note.lines().find_map(|line| line.strip_prefix("index "));
        let index: u64 = index.context("no index")?.parse()?;
        ensure!(index > 200, "{note}");
        Ok(())
    })?;
    // A kill and a start take nothing from a log that is whole.
    agent.kill()?;
    stop(setup.start()?)?;
    let segment = largest(&server.join("log"), "log")?;
    let whole = fs::read(&segment)?;
    fs::File::options()
        .write(true)
        .open(&segment)?
        .set_len(4096 + 20_000)?;
    let tables = server.join("projections");
    let retired = dir.path().join("tables");
    // No tables, damaged ones: neither are built of less than was signed.
    fs::rename(&tables, &retired)?;
    let log = gives_up(&setup)?;
    ensure!(log.contains("was signed: its end is lost"), "{log}");
    let _ = fs::remove_dir_all(&tables);
    fs::rename(&retired, &tables)?;
    flip(&largest(&tables, "sst")?, 200)?;
    let log = gives_up(&setup)?;
    ensure!(log.contains("its end is lost"), "{log}");
    fs::write(&segment, &whole)?;
    let agent = setup.start()?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    stop(agent)
}

#[test]
fn a_backup_without_one_of_its_keys_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, _) = written(dir.path())?;
    let agent = setup.start()?;
    let keystore = setup.data_dir.join("server/keystore");
    let entry = fs::read_dir(&keystore)?.next().context("a key")??;
    fs::write(entry.path(), "{}")?;
    let answer = agent.http().get("/v1/operator/snapshot")?;
    ensure!(answer.status == 500, "{}", answer.status);
    let (answer_text, name) = (answer.text(), entry.file_name());
    ensure!(
        answer_text.contains(&*name.to_string_lossy()),
        "{answer_text}"
    );
    agent.kill()?;
    Ok(())
}

#[test]
fn a_flipped_bit_in_a_segment_is_named_and_the_server_refuses_to_start() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, _) = written(dir.path())?;
    let segment = largest(&setup.data_dir.join("server/log"), "log")?;
    // Behind the header, in the middle of what was written and synced long ago.
    flip(&segment, 4096 + 20_000)?;
    let name = segment.file_name().context("a name")?.to_string_lossy();
    let inspected = Command::new(&setup.binary)
        .args(["log", "inspect", "-data-dir"])
        .arg(&setup.data_dir)
        .output()?;
    let log = gives_up(&setup)?;
    for text in [&*words(&inspected), &log] {
        let place = format!("corruption in segment {name} at offset ");
        ensure!(text.contains(&place), "{text}");
        ensure!(text.contains(", index "), "{text}");
    }
    ensure!(log.contains("restore a backup"), "how to heal: {log}");
    ensure!(!inspected.status.success(), "inspect finds no fault");
    let data = format!("-data-dir={}", setup.data_dir.display());
    let read = |words: &[&str]| Command::new(&setup.binary).args(words).arg(&data).output();
    for reads in [["log", "events"], ["log", "export"]] {
        let output = read(&reads)?;
        ensure!(
            output.status.code() == Some(1),
            "{reads:?}: {}",
            output.status
        );
        let lines = output.stdout.split(|byte| *byte == b'\n').count();
        ensure!(
            lines > 10,
            "{reads:?} shows what can be read: {lines} lines"
        );
        let stderr = String::from_utf8_lossy(&output.stderr);
        let place = format!("corruption in segment {name} at offset ");
        ensure!(stderr.contains(&place), "{reads:?}: {stderr}");
        ensure!(!stderr.contains("peer"), "there is one server: {stderr}");
        // What ends before the damage is whole.
        let before = read(&[reads[0], reads[1], "-to=5"])?;
        ensure!(before.status.success(), "{}", words(&before));
    }
    Ok(())
}

#[test]
fn a_flipped_bit_in_a_table_file_is_named_by_replay_and_healed_at_start() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, known) = written(dir.path())?;
    let projections = setup.data_dir.join("server/projections");
    let file = largest(&projections, "sst")?;
    flip(&file, 200)?;
    let name = file.file_name().context("a name")?.to_string_lossy();
    let found = replay(&setup, None)?;
    let printed = words(&found);
    ensure!(!found.status.success(), "{printed}");
    ensure!(printed.contains(&*name), "{name} is not named: {printed}");
    let agent = setup.start()?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    let log = agent.log_tail(200);
    ensure!(log.contains("built again from the log"), "{log}");
    let retired = projections.with_extension("set-aside-1");
    ensure!(retired.is_dir(), "{} is not there", retired.display());
    stop(agent)?;
    let healed = replay(&setup, None)?;
    ensure!(healed.status.success(), "{}", words(&healed));
    Ok(())
}

#[test]
fn a_flipped_bit_in_a_table_file_is_never_served() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, known) = written(dir.path())?;
    flip(
        &largest(&setup.data_dir.join("server/projections"), "sst")?,
        200,
    )?;
    let agent = setup.start()?;
    let mut http = agent.http();
    let mut refused = 0;
    for (path, value) in &known {
        let answer = http.get(&format!("/v1/var/{path}"))?;
        match answer.status {
            200 => ensure!(
                answer.json()?["Items"]["v"] == **value,
                "served damaged: {path}"
            ),
            _ => {
                ensure!(answer.text().contains(".sst"), "{}", answer.text());
                refused += 1;
            }
        }
    }
    agent.kill()?;
    let agent = setup.start()?;
    check(&agent, &known)?;
    let retired = setup.data_dir.join("server/projections.set-aside-1");
    ensure!(
        retired.is_dir() || refused == 0,
        "{refused} refused, not healed"
    );
    check_replay(&setup, &agent)
}

#[test]
fn verify_names_a_flipped_bit_in_every_file_that_it_reads_beside_the_log() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, known) = written(dir.path())?;
    let agent = setup.start()?;
    // Reads of secrets are in the request log.
    check(&agent, &known)?;
    stop(agent)?;
    let server = setup.data_dir.join("server");
    let wrap = server.join("keystore/wrap.key");
    for (path, gone, what) in [
        (
            largest(&server.join("requests"), "log")?,
            false,
            "the request log",
        ),
        (
            largest(&server.join("keystore"), "json")?,
            false,
            "keystore",
        ),
        (wrap.clone(), false, "wrapped by another key"),
        (wrap, true, "wrap.key is gone"),
    ] {
        let whole = fs::read(&path)?;
        // A segment is longer than what is written in it.
        let written = whole.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        match gone {
            true => fs::remove_file(&path)?,
            false => flip(&path, written / 2)?,
        }
        let mut command = Command::new(&setup.binary);
        command.args(["log", "verify", "-data-dir"]);
        let output = command.arg(&setup.data_dir).output()?;
        fs::write(&path, whole)?;
        let printed = words(&output);
        ensure!(
            output.status.code() == Some(1),
            "{}: {printed}",
            path.display()
        );
        ensure!(printed.contains(what), "{}: {printed}", path.display());
    }
    Ok(())
}
