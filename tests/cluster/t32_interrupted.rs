//! Sealing and exports that are killed, or meet a full disk: gone on with or begun again, nothing
//! lost, one truth.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, moment, wait_for};

use crate::support::{Known, check, check_replay, large, put, run, small_disk, stop, words};

/// A server with the smallest segments.
fn small_segments(dir: &Path) -> Result<Setup> {
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), dir)?;
    setup.config = "server {\n  enabled = true\n  bootstrap_expect = 1\n  retention {\n    \
                    segment_size = \"8M\"\n  }\n}\n"
        .to_owned();
    Ok(setup)
}

/// The files of the log whose names end so.
fn files(setup: &Setup, ending: &str) -> Result<Vec<PathBuf>> {
    let list = fs::read_dir(setup.data_dir.join("server/log"))?;
    let paths = list.flatten().map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect())
}

/// Whether the next segment has its space. Its file is there before that, without a length.
fn next_has_space(setup: &Setup) -> Result<bool> {
    let has_length = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    Ok(files(setup, "next-1.tmp")?.iter().any(has_length))
}

/// The log's segments: whether each is sealed.
fn sealed(agent: &Agent) -> Result<Vec<bool>> {
    let segments = agent.http().json("/v1/log/segments")?;
    let list = segments.as_array().context("no list")?;
    Ok(list.iter().map(|one| one["Sealed"] == true).collect())
}

fn all_but_the_last_sealed(agent: &Agent) -> Result<()> {
    wait_for("the segment to be sealed", LONG, || {
        let found = sealed(agent)?;
        let full = &found[..found.len() - 1];
        ensure!(!full.is_empty() && full.iter().all(|one| *one), "{found:?}");
        Ok(())
    })
}

/// What was acknowledged is there, and everything that is there is proved.
fn is_whole(setup: &Setup, agent: &Agent, known: &Known) -> Result<()> {
    check(agent, known)?;
    check_replay(setup, agent)?;
    let data = format!("-data-dir={}", setup.data_dir.display());
    run(setup, &["log", "verify", &data])?;
    Ok(())
}

#[test]
fn a_segment_that_finds_no_space_to_be_sealed_is_sealed_later() -> Result<()> {
    for killed in [false, true] {
        let dir = tempfile::tempdir()?;
        let Some(disk) = small_disk(dir.path(), 96, "sealing on a full disk") else {
            return Ok(());
        };
        let setup = small_segments(&disk.0.join("data"))?;
        let mut agent = setup.start()?;
        let mut http = agent.http().timeout(Duration::from_secs(30));
        let mut known = Known::new();
        let mut numbers = 0..;
        let mut write = |known: &mut Known| {
            let number = numbers.next().unwrap_or_default();
            put(&mut http, known, &format!("s/{number}"), &large(number + 1))
        };
        // The next segment has its space before the disk is full.
        while !next_has_space(&setup)? {
            let answer = write(&mut known)?;
            ensure!(answer.status == 200, "{}", answer.text());
        }
        let filler = disk.fill()?;
        while files(&setup, ".log")?.len() < 2 {
            let answer = write(&mut known)?;
            ensure!(answer.status == 200, "{}", answer.text());
        }
        wait_for("sealing to fail", LONG, || {
            let log = agent.log_tail(200);
            ensure!(log.contains("cannot seal a log segment"), "{log}");
            Ok(())
        })?;
        ensure!(sealed(&agent)? == [false, false], "{:?}", sealed(&agent)?);
        check(&agent, &known)?;
        if killed {
            agent.kill()?;
            fs::remove_file(filler)?;
            agent = setup.start()?;
        } else {
            fs::remove_file(filler)?;
        }
        all_but_the_last_sealed(&agent)?;
        is_whole(&setup, &agent, &known)?;
        stop(agent)?;
    }
    Ok(())
}

#[test]
fn a_kill_while_a_segment_is_sealed_leaves_it_once_and_whole() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = small_segments(&dir.path().join("data"))?;
    let mut known = Known::new();
    let mut seen = 0;
    for round in 0..4 {
        let agent = setup.start()?;
        let before = files(&setup, ".seal")?.len();
        let mut http = agent.http().timeout(Duration::from_secs(30));
        std::thread::scope(|scope| {
            let known = &mut known;
            let writer = scope.spawn(move || {
                for number in 0..400 {
                    let path = format!("k{round}/{number}");
                    if put(&mut http, known, &path, &large(number + 1)).is_err() {
                        return;
                    }
                }
            });
            let sealed = || {
                let sealing = !files(&setup, ".seal.tmp")
                    .expect("they are listed")
                    .is_empty();
                seen += usize::from(sealing);
                sealing || files(&setup, ".seal").expect("they are listed").len() > before
            };
            moment(sealed, || writer.is_finished());
            agent.kill()
        })?;
        let agent = setup.start()?;
        all_but_the_last_sealed(&agent)?;
        ensure!(
            files(&setup, ".seal.tmp")?.is_empty(),
            "half a segment is left"
        );
        for path in files(&setup, ".seal")? {
            let open = path.with_extension("log");
            ensure!(!open.exists(), "{} is there twice", open.display());
        }
        is_whole(&setup, &agent, &known)?;
        stop(agent)?;
    }
    ensure!(seen > 0, "no kill came while a segment was sealed");
    Ok(())
}

/// A stopped server that wrote some megabytes, and how its whole log is exported.
fn written(dir: &Path) -> Result<(Setup, Vec<String>)> {
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.join("data"))?;
    let agent = setup.start()?;
    let mut http = agent.http();
    for number in 0..60 {
        let path = format!("e/{number}");
        let answer = put(&mut http, &mut Known::new(), &path, &large(number + 1))?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    stop(agent)?;
    let data = format!("-data-dir={}", setup.data_dir.display());
    let words = ["log", "export", "-bodies", &data].map(str::to_owned);
    Ok((setup, words.to_vec()))
}

fn export(setup: &Setup, words: &[String], to: &Path) -> Command {
    let mut command = Command::new(&setup.binary);
    command.args(words).arg("-out").arg(to);
    command
}

/// How often something is begun again that was over before it could be killed.
const TRIES: usize = 20;

/// Kills an export as soon as something is so, and sees to it that this was midway: begun again,
/// once what it wrote is removed, where it was over.
fn killed_when(
    export: impl Fn() -> Command,
    to: &Path,
    reached: impl Fn() -> bool,
    midway: impl Fn() -> bool,
) -> Result<()> {
    for _ in 0..TRIES {
        let mut export = export();
        let quiet = export.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = quiet.spawn()?;
        moment(&reached, || !matches!(child.try_wait(), Ok(None)));
        child.kill()?;
        // One that ended by itself has a code.
        if child.wait()?.code().is_none() && midway() {
            return Ok(());
        }
        match to.is_dir() {
            true => fs::remove_dir_all(to)?,
            false => fs::remove_file(to)?,
        }
    }
    anyhow::bail!("no kill came before the end of the export")
}

fn resumes_to(setup: &Setup, words: &[String], to: &Path, whole: &[u8]) -> Result<()> {
    let output = export(setup, words, to).arg("-resume").output()?;
    ensure!(
        output.status.success(),
        "{}",
        crate::support::words(&output)
    );
    ensure!(fs::read(to)? == whole, "{} is another export", to.display());
    Ok(())
}

#[test]
fn an_export_that_was_killed_or_found_no_space_goes_on_to_the_same_bytes() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, flags) = written(dir.path())?;
    let there = dir.path().join("whole.ndjson");
    let output = export(&setup, &flags, &there).output()?;
    ensure!(output.status.success(), "{}", words(&output));
    let whole = fs::read(&there)?;
    ensure!(whole.len() > 4 << 20, "{} bytes only", whole.len());

    for part in [1, whole.len() as u64 / 2] {
        let to = dir.path().join(format!("killed-{part}.ndjson"));
        let reached = || fs::metadata(&to).is_ok_and(|found| found.len() >= part);
        let midway = || fs::metadata(&to).is_ok_and(|found| found.len() < whole.len() as u64);
        killed_when(|| export(&setup, &flags, &to), &to, reached, midway)?;
        resumes_to(&setup, &flags, &to, &whole)?;
    }

    let Some(disk) = small_disk(dir.path(), 24, "an export on a full disk") else {
        return Ok(());
    };
    let filler = disk.fill_with((24 << 20) - whole.len() / 2)?;
    let to = disk.0.join("full.ndjson");
    let output = export(&setup, &flags, &to).output()?;
    let printed = words(&output);
    ensure!(output.status.code() == Some(1), "{printed}");
    ensure!(
        printed.contains("No space left") && printed.contains("-resume"),
        "{printed}"
    );
    ensure!(fs::metadata(&to)?.len() > 1 << 20, "nothing of it is there");
    fs::remove_file(filler)?;
    resumes_to(&setup, &flags, &to, &whole)
}

#[test]
fn tables_for_analysts_that_were_killed_or_found_no_space_are_made_again_whole() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (setup, _) = written(dir.path())?;
    let data = format!("-data-dir={}", setup.data_dir.display());
    let flags = ["log", "export", "-format", "parquet", &data].map(str::to_owned);
    let again = |to: &Path| -> Result<()> {
        let output = export(&setup, &flags, to).output()?;
        ensure!(output.status.success(), "{}", words(&output));
        ensure!(to.join("export.json").exists(), "it is not called whole");
        Ok(())
    };
    let to = dir.path().join("killed");
    let midway = || !to.join("export.json").exists();
    killed_when(|| export(&setup, &flags, &to), &to, || to.exists(), midway)?;
    again(&to)?;
    let Some(disk) = small_disk(dir.path(), 8, "an export on a full disk") else {
        return Ok(());
    };
    let to = disk.0.join("events");
    let filler = disk.fill()?;
    let output = export(&setup, &flags, &to).output()?;
    let printed = words(&output);
    ensure!(output.status.code() == Some(1), "{printed}");
    ensure!(
        printed.contains("No space left") && printed.contains("-resume"),
        "{printed}"
    );
    ensure!(!to.join("export.json").exists(), "it is called whole");
    fs::remove_file(filler)?;
    again(&to)
}
