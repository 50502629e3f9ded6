//! Tables built again by a serving agent: killed in every phase, without space, and started again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::Value;

use crate::support::{Known, check, check_replay, put, run, save, small_disk, words};

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

/// Begins a rebuild and kills the agent at the moment that a file is there which was not, or when
/// the rebuild is over; answers whether it was seen.
fn killed_at(setup: &Setup, agent: Agent, mark: &Path) -> Result<bool> {
    ensure!(!mark.exists(), "{} is there before", mark.display());
    let mut begin = Command::new(&setup.binary)
        .args(["projection", "rebuild", "-detach", "-address"])
        .arg(format!("http://{}", agent.addr()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let over = AtomicBool::new(false);
    let mut http = agent.http();
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            let _ = begin.wait();
            // No answer: it was killed.
            let runs = |status: &Value| status["Running"] == true;
            while http
                .json("/v1/operator/projections/rebuild")
                .is_ok_and(|s| runs(&s))
            {}
            over.store(true, Ordering::SeqCst);
        });
        let mut seen = mark.exists();
        while !seen && !over.load(Ordering::SeqCst) {
            std::hint::spin_loop();
            seen = mark.exists();
        }
        agent.kill()?;
        Ok(seen)
    })
}

/// How often a phase is waited for that comes and goes in a moment.
const TRIES: usize = 8;

#[test]
fn an_agent_killed_in_any_phase_of_a_rebuild_has_one_truth_afterwards() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let mut known = Known::new();
    let agent = setup.start()?;
    write(&agent, &mut known, 0..150)?;
    agent.stop(Duration::from_secs(8))?;
    let server = server_dir(&setup);
    let work = server.join("projections-rebuild");
    for (mark, tries) in [
        (work.clone(), TRIES),
        (work.join("rebuild.json"), TRIES),
        (work.join("staging"), TRIES),
        (work.join("staging/generation.json"), TRIES),
        (server.join("projections.in-use"), TRIES),
        (server.join("projections.set-aside-1"), TRIES),
        // There for as long as a rename takes, and never: after the end of it all.
        (server.join("projections.in-use.new"), 0),
        (server.join("never"), 0),
    ] {
        let at = || format!("killed at {}", mark.display());
        let mut seen = false;
        for _ in 0..tries.max(1) {
            // Half of what an earlier one built is not what this one is to be killed at.
            if work.exists() {
                fs::remove_dir_all(&work)?;
            }
            let agent = setup.start().with_context(at)?;
            write(&agent, &mut known, 0..3)?;
            succeeds(&setup, &agent, "discard", &[]).with_context(at)?;
            seen = killed_at(&setup, agent, &mark).with_context(at)?;
            let agent = setup.start().with_context(at)?;
            ensure!(!server.join("projections.in-use").exists(), "{}", at());
            ensure!(server.join("projections").is_dir(), "{}", at());
            check(&agent, &known).with_context(at)?;
            check_replay(&setup, &agent).with_context(at)?;
            let said = succeeds(&setup, &agent, "verify", &[]).with_context(at)?;
            ensure!(said.contains("verified the digests"), "{}: {said}", at());
            agent.stop(Duration::from_secs(8))?;
            if seen {
                break;
            }
        }
        ensure!(
            seen || tries == 0,
            "no kill came when {} was there",
            mark.display()
        );
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
    let said = succeeds(&setup, &agent, "rebuild", &[])?;
    ensure!(said.contains("nothing was applied for"), "{said}");
    ensure!(
        said.contains("equal to those of the old database"),
        "{said}"
    );
    write(&agent, &mut known, 100..120)?;
    let list = succeeds(&setup, &agent, "list", &["-json"])?;
    let list: Value = serde_json::from_str(&list)?;
    ensure!(list["Applied"].as_u64() > Some(120), "{list}");
    let again = succeeds(&setup, &agent, "status", &[])?;
    ensure!(again.contains("rebuild: done"), "{again}");
    agent.stop(Duration::from_secs(8))?;
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
    let said = succeeds(&setup, &agent, "discard", &[])?;
    ensure!(said.contains("Removed 1"), "{said}");
    agent.stop(Duration::from_secs(8))?;
    Ok(())
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
    let said = words(&output);
    ensure!(!output.status.success(), "{said}");
    ensure!(said.contains("the disk is full"), "{said}");
    let work = server_dir(&setup).join("projections-rebuild");
    wait_for("what was built to be gone", LONG, || {
        ensure!(!work.exists(), "{} is there", work.display());
        Ok(())
    })?;
    write(&agent, &mut known, 100..110)?;
    check(&agent, &known)?;
    agent.stop(Duration::from_secs(8))?;
    Ok(())
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
    let slowly = ["-detach", "-memory", "1", "-rate", "40"];
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
    let said = succeeds(&setup, &agent, "verify", &[])?;
    ensure!(said.contains("verified the digests"), "{said}");
    let said = succeeds(&setup, &agent, "rebuild", &["-memory", "1"])?;
    ensure!(
        said.contains("equal to those of the old database"),
        "{said}"
    );
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    agent.stop(Duration::from_secs(8))?;
    Ok(())
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
    let said = words(&output);
    ensure!(
        !output.status.success() && said.contains("is gone"),
        "{said}"
    );
    Ok(())
}
