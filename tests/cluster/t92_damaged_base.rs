//! Damaged bases: a log whose beginning was dropped continues from another base, and serves all
//! that it still holds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use drover_testkit::{LONG, Setup, wait_for};

use crate::support::{Known, check, check_replay, run};
use crate::t40_damage::{flip, gives_up};
use crate::t90_retention::{everything_in_the_log, keeping, status, write};

fn bases(server: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(server.join("snapshots")).into_iter().flatten();
    let paths = list.flatten().map(|entry| entry.path());
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_none() && path.join("head").exists())
        .collect();
    found.sort();
    found
}

/// The bases that the log of a server that does not run can continue from, earliest first.
fn foundations(setup: &Setup) -> Result<Vec<PathBuf>> {
    let data = format!("-data-dir={}", setup.data_dir.display());
    let inspected = run(setup, &["log", "inspect", "-json", &data])?;
    let inspected: serde_json::Value = serde_json::from_str(&inspected)?;
    let first = inspected["First"]
        .as_u64()
        .with_context(|| inspected.to_string())?;
    Ok(bases_from(setup, first))
}

/// The bases that a log with this first index can continue from, earliest first.
fn bases_from(setup: &Setup, first: u64) -> Vec<PathBuf> {
    let mut found = bases(&setup.data_dir.join("server"));
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let index = name.split('-').nth(1).and_then(|index| index.parse().ok());
        index.is_some_and(|index: u64| first > 0 && index + 1 >= first)
    });
    found
}

/// Lets a server write until its log can continue from several bases, and kills it.
fn several(setup: &Setup, known: &mut Known) -> Result<Vec<PathBuf>> {
    for _ in 0..30 {
        let agent = setup.start()?;
        wait_for("two bases", LONG, || {
            write(&agent, known, 0, 5)?;
            // One below the log's beginning may still lie there: no log can continue from it.
            let status = status(&agent)?;
            let first = status["Status"]["First"].as_u64().unwrap_or_default();
            let found = bases_from(setup, first);
            ensure!(first > 1 && found.len() > 1, "{found:?}: {status}");
            Ok(())
        })?;
        agent.kill()?;
        let found = foundations(setup)?;
        if found.len() > 1 {
            return Ok(found);
        }
    }
    bail!("of all that was written the log goes on from one base at most")
}

fn rows(base: &Path) -> Result<PathBuf> {
    let list = fs::read_dir(base.join("state"))?;
    let mut paths = list.flatten().map(|entry| entry.path());
    let rows = paths.find(|path| path.to_string_lossy().contains("rows"));
    rows.with_context(|| format!("no rows in {}", base.display()))
}

#[test]
fn a_log_goes_on_from_the_next_base_where_one_is_damaged() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = keeping(&dir.path().join("data"), "")?;
    let tables = setup.data_dir.join("server/projections");
    let mut known = Known::new();
    for (head, lost) in [(true, false), (true, true), (false, true)] {
        let found = several(&setup, &mut known)?;
        let damaged = match head {
            true => found[0].join("head"),
            false => rows(&found[0])?,
        };
        let at = if head { 0 } else { 100 };
        flip(&damaged, at)?;
        if lost {
            fs::remove_dir_all(&tables)?;
        }
        let agent = setup.start()?;
        check(&agent, &known)?;
        if !lost {
            // Nothing is lost without it, and nothing is dropped while it is damaged.
            wait_for("retention to name it", LONG, || {
                let status = status(&agent)?;
                let error = status["LastError"].as_str().unwrap_or_default();
                ensure!(error.contains("is damaged"), "{status}");
                Ok(())
            })?;
            agent.kill()?;
            flip(&damaged, at)?;
            continue;
        }
        check_replay(&setup, &agent)?;
        let retired = found[0].with_extension("damaged");
        ensure!(
            retired.join("state").is_dir(),
            "{} is gone",
            retired.display()
        );
        ensure!(!found[0].exists(), "{} is in use", found[0].display());
        agent.kill()?;
    }
    Ok(())
}

#[test]
fn lost_tables_come_back_with_all_that_the_log_tells_of() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = keeping(&dir.path().join("data"), "")?;
    let mut known = Known::new();
    several(&setup, &mut known)?;
    let tables = setup.data_dir.join("server/projections");
    fs::remove_dir_all(&tables)?;
    let agent = setup.start()?;
    check(&agent, &known)?;
    everything_in_the_log(&agent)?;
    check_replay(&setup, &agent)?;
    agent.kill()?;
    let found = several(&setup, &mut known)?;
    fs::remove_dir_all(&tables)?;
    // No base is believed that is not what it says; without one nothing is served.
    let mut whole = Vec::new();
    for base in &found {
        let rows = rows(base)?;
        whole.push((rows.clone(), fs::read(&rows)?));
        flip(&rows, 100)?;
    }
    let log = gives_up(&setup)?;
    ensure!(log.contains("is damaged"), "{log}");
    let (last, bytes) = whole.pop().context("no base")?;
    ensure!(last.exists(), "the last one was retired: {log}");
    fs::write(&last, bytes)?;
    let agent = setup.start()?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)
}

/// The indexes of a server's bases.
fn indexes(setup: &Setup) -> Vec<u64> {
    let index = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        name.split('-').nth(1)?.parse().ok()
    };
    let found = bases(&setup.data_dir.join("server"));
    found.iter().filter_map(index).collect()
}

#[test]
fn the_horizon_moves_to_an_older_base_where_a_newer_one_is_damaged() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut setup = keeping(&dir.path().join("data"), "")?;
    let mut known = Known::new();
    // Two bases, and nothing may be dropped yet.
    let agent = setup.start()?;
    wait_for("two bases", LONG, || {
        write(&agent, &mut known, 0, 2)?;
        let found = indexes(&setup);
        ensure!(found.len() > 1, "{found:?}");
        Ok(())
    })?;
    agent.kill()?;
    let found = indexes(&setup);
    let (older, newer) = (found[found.len() - 2], found[found.len() - 1]);
    // Both may be reached by the time of the next look.
    let often = setup.config.clone();
    setup.config = often.replace("interval = \"100ms\"", "interval = \"1h\"");
    let agent = setup.start()?;
    write(&agent, &mut known, 0, usize::try_from(newer)? + 150)?;
    agent.kill()?;
    let now: Vec<u64> = indexes(&setup);
    ensure!(now == found, "{found:?} became {now:?}");
    let list = bases(&setup.data_dir.join("server"));
    flip(&rows(&list[list.len() - 1])?, 100)?;
    setup.config = often;
    let agent = setup.start()?;
    wait_for("the horizon at the older base", LONG, || {
        let status = status(&agent)?;
        let first = status["Status"]["First"].as_u64();
        ensure!(first == Some(older + 1), "not {}: {status}", older + 1);
        let error = status["LastError"].as_str().unwrap_or_default();
        let named = error.contains(&format!("the base at {newer}"));
        ensure!(named, "{status}");
        Ok(())
    })?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)
}
