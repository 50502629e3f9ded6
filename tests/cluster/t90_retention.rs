//! Retention: the horizon moves to a signed base, questions below it are refused by name, and what
//! is left is proved, replayed, backed up, and survives a kill at every step.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, moment, wait_for};

use crate::support::{Known, check, check_replay, large, put, run, save, small_disk, stop};

pub(crate) fn keeping(dir: &Path, more: &str) -> Result<Setup> {
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), dir)?;
    setup.config = format!(
        "server {{\n  enabled = true\n  bootstrap_expect = 1\n  retention {{\n    \
         log {{\n      events = 100\n    }}\n    interval = \"100ms\"\n    \
         segment_size = \"8M\"\n  }}\n  {more}\n}}\n"
    );
    Ok(setup)
}

fn archived_in(dir: &Path) -> String {
    format!("archive {{\n    url = \"file://{}\"\n  }}", dir.display())
}

pub(crate) fn write(agent: &Agent, known: &mut Known, from: usize, to: usize) -> Result<()> {
    let mut http = agent.http();
    for number in from..to {
        let path = format!("v/{}", number % 60);
        let answer = put(&mut http, known, &path, &format!("value {number}"))?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    Ok(())
}

/// Values that do not compress, so that segments fill.
pub(crate) fn write_much(agent: &Agent, known: &mut Known, from: usize, to: usize) -> Result<()> {
    let mut http = agent.http().timeout(Duration::from_secs(30));
    for number in from..to {
        let text = large(number as u64 + 1);
        let answer = put(&mut http, known, &format!("m/{}", number % 20), &text)?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    Ok(())
}

/// What the reactor says.
pub(crate) fn status(agent: &Agent) -> Result<serde_json::Value> {
    let mut all = agent.http().json("/v1/operator/reactors")?;
    Ok(all["Reactors"]["retention"].take())
}

/// The first index that the log has.
fn first(agent: &Agent) -> Result<u64> {
    let retention = status(agent)?;
    let failed = retention["LastError"].as_str().unwrap_or_default();
    ensure!(retention["Failures"] == 0, "{failed}");
    retention["Status"]["First"]
        .as_u64()
        .with_context(|| retention.to_string())
}

/// Writes until the log begins beyond an index: where bases lie is a matter of time, and the last
/// of them below the limit is the horizon.
fn dropped_beyond(agent: &Agent, known: &mut Known, index: u64) -> Result<u64> {
    let mut found = 0;
    wait_for("the horizon to move", LONG, || {
        found = first(agent)?;
        write(agent, known, 0, 3)?;
        ensure!(found > index, "{}", status(agent)?);
        Ok(())
    })?;
    Ok(found)
}

/// What the log still holds can still be read.
pub(crate) fn everything_in_the_log(agent: &Agent) -> Result<()> {
    wait_for("the past from the log's beginning on", LONG, || {
        let status = status(agent)?;
        let (first, horizon) = (&status["Status"]["First"], &status["Status"]["Horizon"]);
        let first = first.as_u64().with_context(|| status.to_string())?;
        ensure!(*horizon == first.saturating_sub(1), "{status}");
        Ok(())
    })
}

/// A command that must fail; answers what it says.
fn fails(setup: &Setup, words: &[&str]) -> Result<String> {
    match run(setup, words) {
        Ok(printed) => anyhow::bail!("{words:?} succeeded: {printed}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

fn data_flag(setup: &Setup) -> String {
    format!("-data-dir={}", setup.data_dir.display())
}

#[test]
fn age_alone_moves_the_horizon_within_a_segment() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut setup = keeping(&dir.path().join("data"), "")?;
    setup.config = setup.config.replace("events = 100", "age = \"2s\"");
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, 0, 60)?;
    let first = dropped_beyond(&agent, &mut known, 50)?;
    let segments = agent.http().json("/v1/log/segments")?;
    let segments = segments.as_array().context("no list")?;
    ensure!(segments.len() == 1, "{segments:?}");
    ensure!(first > 50, "{first}");
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    // What lies in the same tile is verified by its hashes, and that is said.
    let address = format!("-address=http://{}", agent.addr());
    wait_for("an agent that is verified", LONG, || {
        let verified = run(&setup, &["log", "verify", &address])?;
        ensure!(
            verified.contains("some or all were dropped: their hashes)"),
            "{verified}"
        );
        Ok(())
    })?;
    stop(agent)?;
    let verified = run(&setup, &["log", "verify", &data_flag(&setup)])?;
    ensure!(verified.contains("from the signed base"), "{verified}");
    Ok(())
}

/// Every query about what is gone is refused with the horizon.
fn gone_by_name(setup: &Setup, agent: &Agent, horizon: u64) -> Result<()> {
    let mut http = agent.http();
    let h = horizon - 1;
    for path in [
        "/v1/vars?as_of=50",
        "/v1/jobs?as_of=50",
        "/v1/event/stream?index=50",
        "/v1/log/proof/inclusion?event=50",
        "/v1/state/diff?from=50&to=60",
        "/v1/audit/trace?id=50",
        "/v1/audit?since=50",
    ] {
        let answer = http.get(path)?;
        let text = answer.text();
        ensure!(answer.status == 410, "{path}: {} {text}", answer.status);
        let named = [h, horizon].iter().any(|n| text.contains(&n.to_string()));
        ensure!(named, "{path}: {horizon} is not named: {text}");
    }
    let later = http.get(&format!("/v1/vars?as_of={}", horizon + 1))?;
    ensure!(later.status == 200, "{}", later.text());
    let proof = format!("/v1/log/proof/inclusion?event={}", horizon + 1);
    let proof = http.get(&proof)?;
    ensure!(proof.status == 200, "{}", proof.text());
    let printed = fails(setup, &["log", "events", "-from", "50", &data_flag(setup)])?;
    ensure!(
        printed.contains(&format!("begins at {horizon}")),
        "{printed}"
    );
    Ok(())
}

#[test]
fn what_is_below_the_horizon_is_gone_by_name_and_the_rest_is_proved() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = keeping(&dir.path().join("data"), "")?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, 0, 400)?;
    // Beyond the first tile, of which not even the hashes are left one by one.
    let mut horizon = dropped_beyond(&agent, &mut known, 300)?;
    // While segments are sealed and bases signed the horizon moves on; a query may meet the next
    // one.
    wait_for("answers that name the horizon", LONG, || {
        horizon = first(&agent)?;
        gone_by_name(&setup, &agent, horizon)
    })?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    let data = data_flag(&setup);
    wait_for("a log that is verified from its horizon on", LONG, || {
        horizon = first(&agent)?;
        let verified = run(&setup, &["log", "verify", "-digests", &data])?;
        let from = format!("from the signed base at {}", horizon - 1);
        ensure!(verified.contains(&from), "{verified}");
        ensure!(!verified.contains("no checkpoint"), "{verified}");
        Ok(())
    })?;
    wait_for(
        "an agent that is verified from its horizon on",
        LONG,
        || {
            for hashes in ["-hashes=false", "-hashes=true"] {
                let address = format!("-address=http://{}", agent.addr());
                let verified = run(&setup, &["log", "verify", hashes, &address])?;
                ensure!(
                    verified.contains("were dropped: their hashes)"),
                    "{verified}"
                );
            }
            Ok(())
        },
    )?;
    // A backup holds the base, is verified, and is restored to any index from there on.
    let backup = dir.path().join("backup.tar");
    save(&setup, &agent, &backup)?;
    let shown = backup.display().to_string();
    let printed = run(&setup, &["log", "verify", &shown])?;
    ensure!(printed.contains("tables equal"), "{printed}");
    let middle: u64 = agent
        .http()
        .get("/v1/vars")?
        .header("x-nomad-index")
        .context("an index")?
        .parse()?;
    stop(agent)?;
    let printed = run(&setup, &["projection", "verify", "-whole", &data])?;
    ensure!(printed.contains("verified"), "{printed}");
    let verified = run(&setup, &["log", "verify", &data])?;
    let base = verified
        .split("from the signed base at ")
        .nth(1)
        .and_then(|rest| rest.split(')').next())
        .with_context(|| verified.clone())?;
    tampered(&setup, base.parse()?)?;
    damaged_backup(&setup, &backup)?;
    restored(&setup, dir.path(), &shown, middle)
}

/// A base that is not what was signed is named, and so is a wrong key.
fn tampered(setup: &Setup, index: u64) -> Result<()> {
    let data = data_flag(setup);
    let words = ["log", "verify", &data];
    let snapshots = setup.data_dir.join("server/snapshots");
    let base: PathBuf = fs::read_dir(&snapshots)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(&format!("{index:020}")))
        .context("no base")?;
    let rows = fs::read_dir(base.join("state"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().contains("rows"))
        .context("no rows")?;
    let whole = fs::read(&rows)?;
    let mut bytes = whole.clone();
    bytes[100] ^= 1;
    fs::write(&rows, bytes)?;
    let printed = fails(setup, &words)?;
    ensure!(printed.contains("the base"), "{printed}");
    fs::write(&rows, whole)?;
    let other = "drover/00000000000000000000000000000000+17a2a1c9+\
                 AZ7rfwJdwKFvYRVxSgV8JmlKXzqhcTDs4XBy3yDCZvbr";
    let printed = fails(setup, &["log", "verify", "-key", other, &data])?;
    ensure!(printed.contains("rror"), "{printed}");
    let note = base.join("note");
    let text = fs::read_to_string(&note)?;
    fs::remove_file(&note)?;
    let printed = fails(setup, &words)?;
    ensure!(printed.contains("no signed base"), "{printed}");
    fs::write(&note, text)?;
    run(setup, &words)?;
    Ok(())
}

fn damaged_backup(setup: &Setup, backup: &Path) -> Result<()> {
    let mut bytes = fs::read(backup)?;
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    let bad = backup.with_extension("bad");
    fs::write(&bad, bytes)?;
    let printed = fails(setup, &["log", "verify", &bad.display().to_string()])?;
    ensure!(printed.contains("is not what was written"), "{printed}");
    Ok(())
}

fn restored(setup: &Setup, dir: &Path, backup: &str, middle: u64) -> Result<()> {
    let wrap = setup.data_dir.join("server/keystore/wrap.key");
    let wrap = format!("-wrap-key={}", wrap.display());
    let to = dir.join("restored");
    let into = format!("-data-dir={}", to.display());
    let at = |index: u64| format!("-at={index}");
    let words = |at| ["operator", "snapshot", "restore", &into, &wrap, at, backup];
    let (early, late) = (at(50), at(middle - 5));
    let printed = fails(setup, &words(&early))?;
    ensure!(printed.contains("is not in the backup"), "{printed}");
    run(setup, &words(&late))?;
    let there = Setup::server(env!("CARGO_BIN_EXE_drover"), &to)?;
    let agent = there.start()?;
    let shown = agent.http().json("/v1/var/v/30")?;
    ensure!(shown["Items"]["v"] == "value 390", "{shown}");
    check_replay(&there, &agent)?;
    stop(agent)?;
    // The state it began with is no event and was not signed, but is read and compared.
    let data = data_flag(&there);
    let verified = run(&there, &["log", "verify", &data])?;
    ensure!(verified.contains("tables equal at "), "{verified}");
    let snapshots = fs::read_dir(to.join("server/snapshots"))?;
    let rows = snapshots
        .flat_map(|base| fs::read_dir(base.ok()?.path().join("state")).ok())
        .flatten()
        .filter_map(|file| Some(file.ok()?.path()))
        .find(|path| path.to_string_lossy().contains("rows"))
        .context("no rows")?;
    let mut bytes = fs::read(&rows)?;
    bytes[100] ^= 1;
    fs::write(&rows, bytes)?;
    let printed = fails(&there, &["log", "verify", &data])?;
    ensure!(printed.contains("the base"), "{printed}");
    Ok(())
}

/// Whether some server's copy in an archive has a checkpoint.
fn has_checkpoints(archive: &Path) -> Result<bool> {
    for epoch in fs::read_dir(archive)? {
        for server in fs::read_dir(epoch?.path())? {
            let path = server?.path().join("checkpoints");
            if path.metadata().is_ok_and(|found| found.len() > 0) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[test]
fn an_archive_and_the_log_together_are_verified_from_the_beginning() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let elsewhere = dir.path().join("archive");
    let setup = keeping(&dir.path().join("data"), &archived_in(&elsewhere))?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write_much(&agent, &mut known, 0, 420)?;
    dropped_beyond(&agent, &mut known, 200)?;
    // A segment may be full before anything was signed; one of several is not.
    for beyond in (350..2000).step_by(150) {
        if has_checkpoints(&elsewhere)? {
            break;
        }
        write_much(&agent, &mut known, 0, 150)?;
        dropped_beyond(&agent, &mut known, beyond)?;
    }
    check(&agent, &known)?;
    stop(agent)?;
    let data = data_flag(&setup);
    let archive = format!("-archive=file://{}", elsewhere.display());
    let first = setup.data_dir.join("server/log/00000000000000000000");
    for ending in ["log", "seal"] {
        let path = first.with_extension(ending);
        ensure!(!path.exists(), "{} is still there", path.display());
    }
    let both = run(&setup, &["log", "verify", "-digests", &archive, &data])?;
    ensure!(both.contains("= 0 to "), "{both}");
    ensure!(both.contains("tables equal"), "{both}");
    let alone = run(&setup, &["log", "verify", &archive])?;
    ensure!(alone.contains("= 0 to "), "{alone}");
    ensure!(alone.contains(", signed to "), "{alone}");
    let local = run(&setup, &["log", "verify", &data])?;
    ensure!(local.contains("from the signed base"), "{local}");
    for words in [
        vec!["log", "inspect", &archive],
        vec!["log", "events", "-to", "5", &archive, &data],
        vec!["log", "export", "-to", "5", &archive, &data],
        vec![
            "log",
            "replay",
            "-address",
            "http://127.0.0.1:1",
            &archive,
            &data,
        ],
    ] {
        run(&setup, &words)?;
    }
    tables_of_both(&setup, dir.path(), (&archive, &data))?;
    wrong_copies(&setup, &elsewhere, (&archive, &data))
}

/// Tables are made, compared and built again from an archive too.
fn tables_of_both(setup: &Setup, dir: &Path, (archive, data): (&str, &str)) -> Result<()> {
    for (name, place) in [("both", vec![archive, data]), ("alone", vec![archive])] {
        let to = format!("-out={}", dir.join(name).display());
        let printed = run(setup, &[vec!["state", "at", "60", &to], place].concat())?;
        ensure!(printed.contains("The state at index 60"), "{printed}");
    }
    let to = format!("-out={}", dir.join("never").display());
    let printed = fails(setup, &["state", "at", "60", &to, data])?;
    ensure!(printed.contains("is gone"), "{printed}");
    let printed = run(setup, &["projection", "verify", "-whole", archive, data])?;
    ensure!(printed.contains("verified every entry"), "{printed}");
    let printed = run(setup, &["projection", "rebuild", "-json", archive, data])?;
    let done: serde_json::Value = serde_json::from_str(&printed)?;
    ensure!(done["From"] == 0, "{done}");
    let printed = run(setup, &["projection", "verify", "-whole", data])?;
    ensure!(printed.contains("verified every entry"), "{printed}");
    let printed = fails(setup, &["projection", "verify", archive])?;
    ensure!(printed.contains("holds no tables"), "{printed}");
    Ok(())
}

/// A wrong copy is named where it is the only one, and hides no right one.
fn wrong_copies(setup: &Setup, elsewhere: &Path, (archive, data): (&str, &str)) -> Result<()> {
    let epoch = fs::read_dir(elsewhere)?.next().context("empty")??.path();
    let own = fs::read_dir(&epoch)?.next().context("no copy")??.path();
    let another = epoch.join("00000000-0000-4000-8000-000000000002");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([&own, &another])
        .status()?;
    ensure!(copied.success(), "cp");
    // The first one: later ones may be there still, and of two the server's own is read.
    let name = "00000000000000000000.seal".to_owned();
    let segment = own.join("log").join(&name);
    let mut bytes = fs::read(&segment)?;
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&segment, bytes)?;
    let printed = run(setup, &["log", "verify", archive, data])?;
    ensure!(printed.contains("= 0 to "), "{printed}");
    ensure!(
        printed.contains("is wrong") && printed.contains(&name),
        "{printed}"
    );
    let printed = run(setup, &["log", "verify", archive])?;
    ensure!(printed.contains("= 0 to "), "{printed}");
    fs::remove_dir_all(&another)?;
    let printed = fails(setup, &["log", "verify", archive, data])?;
    ensure!(printed.contains(&name), "{printed}");
    Ok(())
}

#[test]
fn a_full_archive_drops_nothing_and_is_gone_on_with() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let Some(disk) = small_disk(dir.path(), 32, "a full archive") else {
        return Ok(());
    };
    let filler = disk.fill()?;
    let elsewhere = disk.0.join("archive");
    let setup = keeping(&dir.path().join("data"), &archived_in(&elsewhere))?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, 0, 300)?;
    wait_for("the archive to be full", LONG, || {
        let status = status(&agent)?;
        let error = status["LastError"].as_str().unwrap_or_default();
        ensure!(error.contains("cannot"), "{status}");
        Ok(())
    })?;
    let log = agent.http().json("/v1/log/segments")?;
    ensure!(log[0]["First"] == 0, "{log}");
    let answer = agent.http().get("/v1/vars?as_of=50")?;
    ensure!(answer.status == 200, "{}", answer.text());
    fs::remove_file(filler)?;
    wait_for("the horizon to move", LONG, || {
        let status = status(&agent)?;
        ensure!(status["Status"]["First"].as_u64() > Some(100), "{status}");
        Ok(())
    })?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)
}

/// A step's name, and whether it was seen on the disk.
type Step = (&'static str, Box<dyn Fn() -> bool>);

/// What is seen on the disk while the horizon moves, in this order.
fn steps(server: &Path, archive: &Path) -> Vec<Step> {
    let snapshots = server.join("snapshots");
    let bases = |dir: &Path, file: &str| -> usize {
        let list = fs::read_dir(dir).into_iter().flatten().flatten();
        list.filter(|entry| entry.path().join(file).exists())
            .count()
    };
    let changed = |path: PathBuf| {
        let time = move || fs::metadata(&path).and_then(|found| found.modified()).ok();
        let before = time();
        move || time() != before
    };
    let count = |dir: PathBuf, file: &'static str| {
        let before = bases(&dir, file);
        move || bases(&dir, file) != before
    };
    let inside = |dir: PathBuf| {
        let mut list = fs::read_dir(dir).into_iter().flatten().flatten();
        list.next().map(|entry| entry.path())
    };
    let copy = inside(archive.to_owned()).and_then(inside);
    let kept = copy.unwrap_or(archive.join("none")).join("snapshots");
    let (building, reading) = (snapshots.join("building.tmp"), snapshots.join("check.tmp"));
    vec![
        ("a base is written", Box::new(move || building.exists())),
        (
            "a base is there",
            Box::new(count(snapshots.clone(), "head")),
        ),
        ("a base is read back", Box::new(move || reading.exists())),
        ("a base is signed", Box::new(count(snapshots, "note"))),
        ("a base is archived", Box::new(count(kept, "head"))),
        (
            "the edge is kept",
            Box::new(changed(server.join("tree.edge"))),
        ),
    ]
}

/// The bases of a server, and whether each is signed.
fn bases_there(server: &Path) -> Vec<(PathBuf, bool)> {
    let list = fs::read_dir(server.join("snapshots"));
    let paths = list.into_iter().flatten().flatten().map(|one| one.path());
    paths
        .map(|path| (path.clone(), path.join("note").exists()))
        .collect()
}

/// How often a step is waited for that comes and goes in a moment.
const TRIES: usize = 12;

/// Writes until something is seen on the disk and kills the agent there and then; answers whether
/// it was seen. What was written then may or may not be there: no such path is written again.
fn killed_at(
    agent: Agent,
    known: &mut Known,
    prefix: &str,
    reached: Box<dyn Fn() -> bool>,
) -> Result<bool> {
    let mut http = agent.http().timeout(Duration::from_secs(30));
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for number in 0..600 {
                let path = format!("k{prefix}/{number}");
                if put(&mut http, known, &path, "a value").is_err() {
                    return;
                }
            }
        });
        let seen = moment(reached, || writer.is_finished());
        agent.kill()?;
        Ok(seen)
    })
}

#[test]
fn a_kill_at_every_step_loses_nothing() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let elsewhere = dir.path().join("archive");
    let setup = keeping(&dir.path().join("data"), &archived_in(&elsewhere))?;
    let server = setup.data_dir.join("server");
    let (mut known, written) = (Known::new(), 150);
    let agent = setup.start()?;
    write(&agent, &mut known, 0, written)?;
    let before = dropped_beyond(&agent, &mut known, 0)?;
    agent.kill()?;
    for step in 0..steps(&server, &elsewhere).len() {
        let mut seen = None;
        for attempt in 0..TRIES {
            let agent = setup.start()?;
            check(&agent, &known)?;
            check_replay(&setup, &agent)?;
            everything_in_the_log(&agent)?;
            let (name, reached) = steps(&server, &elsewhere).swap_remove(step);
            let killed = killed_at(agent, &mut known, &format!("{step}-{attempt}"), reached)?;
            seen = Some(name).filter(|_| killed);
            if killed {
                break;
            }
        }
        let (name, _) = steps(&server, &elsewhere).swap_remove(step);
        ensure!(seen.is_some(), "no kill came when {name}");
    }
    let agent = setup.start()?;
    check(&agent, &known)?;
    write(&agent, &mut known, written, written + 150)?;
    dropped_beyond(&agent, &mut known, before.max(300))?;
    check_replay(&setup, &agent)?;
    // The database is built again from the base and the log behind it.
    stop(agent)?;
    let verified = run(&setup, &["log", "verify", &data_flag(&setup)]);
    verified.with_context(|| format!("{:?}", bases_there(&server)))?;
    fs::remove_dir_all(server.join("projections"))?;
    let agent = setup.start()?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)
}
