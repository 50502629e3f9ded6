//! Tables built again by a serving agent: killed in every phase, without space, and started again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail, ensure};
use drover_testkit::{Agent, LONG, Setup, moment, wait_for};
use serde_json::Value;

use crate::support::{Known, check, check_replay, put, run, save, small_disk, stop, words};

fn write(agent: &Agent, known: &mut Known, numbers: std::ops::Range<u32>) -> Result<()> {
    let mut http = agent.http();
    for number in numbers {
        let value = format!("value {number} ").repeat(20);
        let answer = put(&mut http, known, &format!("v/{}", number % 50), &value)?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    Ok(())
}

fn projection(setup: &Setup, agent: &Agent, verb: &str, flags: &[&str]) -> Result<Output> {
    let mut command = Command::new(&setup.binary);
    command.args(["projection", verb, "-address"]);
    command.arg(format!("http://{}", agent.addr()));
    command.args(flags).output().context("drover projection")
}

fn succeeds(setup: &Setup, agent: &Agent, verb: &str, flags: &[&str]) -> Result<String> {
    let output = projection(setup, agent, verb, flags)?;
    ensure!(
        output.status.success(),
        "{verb} {flags:?}: {}",
        words(&output)
    );
    Ok(words(&output))
}

fn server_dir(setup: &Setup) -> PathBuf {
    setup.data_dir.join("server")
}

/// How often a rebuild is begun whose mark comes and goes in a moment.
const TRIES: usize = 25;

/// Begins a rebuild and kills the agent as soon as a file is there, or the rebuild is over; answers
/// whether the file was there.
fn killed_at(setup: &Setup, agent: Agent, mark: &Path) -> Result<bool> {
    // What a kill left of one that was broken off would be taken for this one's.
    if mark.exists() {
        succeeds(setup, &agent, "rebuild", &[])?;
        agent.stop(LONG)?;
        return Ok(false);
    }
    let over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let ended = succeeds(setup, &agent, "rebuild", &[]);
            over.store(true, Ordering::SeqCst);
            ended
        });
        let seen = moment(|| mark.exists(), || over.load(Ordering::SeqCst));
        let mut kill = Command::new("kill");
        let killed = kill.args(["-9", &agent.pid().to_string()]).status()?;
        ensure!(killed.success(), "it cannot be killed");
        let ended = waiting.join().map_err(|_| anyhow!("it panicked"))?;
        ensure!(seen || ended.is_ok(), "{ended:?}");
        Ok(seen)
    })?;
    agent.kill()?;
    Ok(seen)
}

/// Where the tables that are in use now will be retired. That is done by the agent that comes to
/// it first: the one that switched, once no view reads from them any more, or the one that is
/// started next. An agent that saw its rebuild end has done it, and leaves nothing of it to the
/// next.
fn next_retired(server: &Path) -> PathBuf {
    let path = |number: u32| server.join(format!("projections.set-aside-{number}"));
    (1..)
        .map(path)
        .find(|path| !path.exists())
        .unwrap_or_default()
}

/// A point at which an agent is killed.
enum Point {
    /// This file is there.
    File(PathBuf),
    /// The former tables are retired.
    RetiredDatabase,
    /// All is over.
    Over,
}

/// Rebuilds until a kill came at its point.
fn kill_at(setup: &Setup, known: &mut Known, server: &Path, point: &Point) -> Result<()> {
    for _ in 0..TRIES {
        let agent = setup.start()?;
        write(&agent, known, 0..3)?;
        let mark = match point {
            Point::File(mark) => mark.clone(),
            Point::RetiredDatabase => next_retired(server),
            Point::Over => server.join("never"),
        };
        if killed_at(setup, agent, &mark)? != matches!(point, Point::Over) {
            return Ok(());
        }
    }
    bail!("it never came to that")
}

#[test]
fn an_agent_killed_in_any_phase_of_a_rebuild_has_one_truth_afterwards() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let mut known = Known::new();
    let agent = setup.start()?;
    write(&agent, &mut known, 0..150)?;
    stop(agent)?;
    let server = server_dir(&setup);
    let work = server.join("projections-rebuild");
    let home = server.join("projections");
    for (at, point) in [
        ("the first file", Point::File(work.clone())),
        ("its record", Point::File(work.join("rebuild.json"))),
        ("what is staged", Point::File(work.join("staging"))),
        (
            "the generation of that",
            Point::File(work.join("staging/generation.json")),
        ),
        (
            "the pointer",
            Point::File(server.join("projections.in-use.new")),
        ),
        ("the switch", Point::File(server.join("projections.in-use"))),
        ("retired", Point::RetiredDatabase),
        ("never", Point::Over),
    ] {
        let at = || format!("killed at {at}");
        kill_at(&setup, &mut known, &server, &point).with_context(at)?;
        let (retired, both) = (next_retired(&server), home.is_dir());
        let switched = server.join("projections.in-use").exists();
        let agent = setup.start().with_context(at)?;
        ensure!(!server.join("projections.in-use").exists(), "{}", at());
        ensure!(home.is_dir(), "{}", at());
        ensure!(
            retired.exists() == (switched && both),
            "{}: the former tables are retired by whoever comes to it first",
            at()
        );
        check(&agent, &known).with_context(at)?;
        check_replay(&setup, &agent).with_context(at)?;
        let printed = succeeds(&setup, &agent, "verify", &[]).with_context(at)?;
        ensure!(
            printed.contains("verified the digests"),
            "{}: {printed}",
            at()
        );
        stop(agent)?;
    }
    let whole = Command::new(&setup.binary)
        .args(["projection", "verify", "-whole", "-data-dir"])
        .arg(&setup.data_dir)
        .output()?;
    ensure!(whole.status.success(), "{}", words(&whole));
    Ok(())
}

#[test]
fn a_switched_database_is_at_home_after_an_orderly_stop_too() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let mut known = Known::new();
    let agent = setup.start()?;
    write(&agent, &mut known, 0..100)?;
    let printed = succeeds(&setup, &agent, "rebuild", &[])?;
    ensure!(printed.contains("nothing was applied for"), "{printed}");
    ensure!(
        printed.contains("equal to those of the old database"),
        "{printed}"
    );
    write(&agent, &mut known, 100..120)?;
    let list = succeeds(&setup, &agent, "list", &["-json"])?;
    let list: Value = serde_json::from_str(&list)?;
    ensure!(list["Applied"].as_u64() > Some(120), "{list}");
    let again = succeeds(&setup, &agent, "status", &[])?;
    ensure!(again.contains("rebuild: done"), "{again}");
    stop(agent)?;
    // The tools on a directory find the one in use, and bring it home.
    let listed = Command::new(&setup.binary)
        .args(["projection", "list", "-json", "-data-dir"])
        .arg(&setup.data_dir)
        .output()?;
    ensure!(listed.status.success(), "{}", words(&listed));
    let listed: Value = serde_json::from_slice(&listed.stdout)?;
    ensure!(
        listed["Applied"].as_u64() >= list["Applied"].as_u64(),
        "{listed}"
    );
    ensure!(!server_dir(&setup).join("projections.in-use").exists());
    let agent = setup.start()?;
    check(&agent, &known)?;
    let printed = succeeds(&setup, &agent, "discard", &[])?;
    ensure!(printed.contains("Removed 1"), "{printed}");
    stop(agent)
}

#[test]
fn a_rebuild_without_space_leaves_the_disk_to_who_serves() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let Some(disk) = small_disk(dir.path(), 200, "a full disk") else {
        return Ok(());
    };
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &disk.0.join("data"))?;
    let mut known = Known::new();
    let agent = setup.start()?;
    write(&agent, &mut known, 0..100)?;
    let output = projection(&setup, &agent, "rebuild", &[])?;
    let printed = words(&output);
    ensure!(!output.status.success(), "{printed}");
    ensure!(printed.contains("the disk is full"), "{printed}");
    let work = server_dir(&setup).join("projections-rebuild");
    wait_for("what was built to be gone", LONG, || {
        ensure!(!work.exists(), "{} is there", work.display());
        Ok(())
    })?;
    write(&agent, &mut known, 100..110)?;
    check(&agent, &known)?;
    stop(agent)
}

#[test]
fn a_disk_that_fills_during_a_rebuild_ends_it_and_serving_goes_on() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let Some(disk) = small_disk(dir.path(), 320, "a disk that fills") else {
        return Ok(());
    };
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &disk.0.join("data"))?;
    let mut known = Known::new();
    let agent = setup.start()?;
    write(&agent, &mut known, 0..150)?;
    // So slowly that the disk is full before it is done, however slow the machine is.
    let slowly = ["-detach", "-memory", "1", "-rate", "10"];
    succeeds(&setup, &agent, "rebuild", &slowly)?;
    let work = server_dir(&setup).join("projections-rebuild");
    let status = || agent.http().json("/v1/operator/projections/rebuild");
    wait_for("the fold to be on its way", LONG, || {
        let status = status()?;
        ensure!(
            status["Running"] == true && status["At"].as_u64() > Some(0),
            "{status}"
        );
        Ok(())
    })?;
    ensure!(work.exists(), "nothing is built");
    let filler = disk.fill()?;
    let ended = wait_for("the rebuild to end", LONG, || {
        let status = status()?;
        ensure!(status["Running"] == false, "{status}");
        Ok(status)
    })?;
    ensure!(ended["Stage"] == "failed", "{ended}");
    ensure!(!work.exists(), "{} is there", work.display());
    check(&agent, &known)?;
    fs::remove_file(filler)?;
    wait_for("writes to be taken again", LONG, || {
        write(&agent, &mut known, 150..151)
    })?;
    let printed = succeeds(&setup, &agent, "verify", &[])?;
    ensure!(printed.contains("verified the digests"), "{printed}");
    let printed = succeeds(&setup, &agent, "rebuild", &["-memory", "1"])?;
    ensure!(
        printed.contains("equal to those of the old database"),
        "{printed}"
    );
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    stop(agent)
}

/// `projection verify` of a directory that no agent uses.
fn verified(setup: &Setup) -> Result<Output> {
    let mut command = Command::new(&setup.binary);
    command.args(["projection", "verify", "-data-dir"]);
    command.arg(&setup.data_dir).output().context("verify")
}

#[test]
fn a_restored_state_takes_the_place_of_tables_built_again_beside_the_agent() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let (mut known, backup) = (Known::new(), dir.path().join("backup.tar"));
    let agent = setup.start()?;
    write(&agent, &mut known, 0..20)?;
    save(&setup, &agent, &backup)?;
    agent.stop(LONG)?;
    let agent = setup.start()?;
    write(&agent, &mut Known::new(), 20..22)?;
    succeeds(&setup, &agent, "rebuild", &[])?;
    agent.stop(LONG)?;
    let (server, former) = (server_dir(&setup), dir.path().join("former"));
    ensure!(server.join("projections.in-use").exists());
    let (data, backup) = (setup.data_dir.to_str(), backup.to_str());
    let (data, backup) = data.zip(backup).context("a path")?;
    let restore = ["operator", "snapshot", "restore", "-data-dir", data, backup];
    let copied = Command::new("cp")
        .arg("-a")
        .args([&server.join("projections-rebuild"), &former])
        .status()?;
    ensure!(copied.success());
    run(&setup, &restore)?;
    let agent = setup.start()?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    agent.stop(LONG)?;
    ensure!(verified(&setup)?.status.success());
    // Tables of a former epoch are not those of this log.
    let home = server.join("projections");
    fs::rename(&home, dir.path().join("own"))?;
    fs::rename(&former, &home)?;
    let output = verified(&setup)?;
    let printed = words(&output);
    ensure!(
        !output.status.success() && printed.contains("is gone"),
        "{printed}"
    );
    Ok(())
}
