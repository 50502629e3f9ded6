//! Exports, backups and restores of the real program: what comes back is what was, by digest, and
//! whatever dies meanwhile leaves one truth.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, moment, wait_for};
use serde_json::{Value, json};

use crate::support::{Known, check, check_replay, put, replay, run as done, save, stop, words};

fn drover(setup: &Setup, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(&setup.binary);
    command.args(words);
    command.output().context("drover")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Runs a command that must fail.
fn refused(setup: &Setup, args: &[&str]) -> Result<String> {
    let output = drover(setup, args)?;
    ensure!(!output.status.success(), "{args:?}: {}", words(&output));
    Ok(words(&output))
}

fn write(agent: &Agent, known: &mut Known, from: usize, to: usize, value: &str) -> Result<()> {
    let mut http = agent.http();
    for number in from..to {
        let answer = put(&mut http, known, &format!("v/{number}"), value)?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    Ok(())
}

fn digests(agent: &Agent) -> Result<Value> {
    agent.http().json("/v1/operator/digests")
}

fn index_of(agent: &Agent, path: &str) -> Result<u64> {
    let answer = agent.http().get(path)?;
    let index = answer.header("x-nomad-index").context("no index")?;
    Ok(index.parse()?)
}

/// The same digests, but for the indexes of the tables and what a new leader says first.
fn same_rows(before: &Value, after: &Value) -> Result<()> {
    let rows = |all: &Value| -> Vec<(String, String)> {
        let tables = all["Tables"].as_array().cloned().unwrap_or_default();
        let text = |table: &Value, key: &str| table[key].as_str().unwrap_or_default().to_owned();
        let own = ["table_index", "cluster_meta"];
        tables
            .iter()
            .map(|table| (text(table, "Name"), text(table, "Digest")))
            .filter(|(name, _)| !own.contains(&name.as_str()))
            .collect()
    };
    ensure!(rows(before).len() > 10, "{before}");
    ensure!(rows(before) == rows(after), "{before}\n{after}");
    Ok(())
}

/// An export that broke off in its first line begins anew; a file of another log is refused.
fn resumes_only_its_own(setup: &Setup, dir: &Path, whole: &str) -> Result<()> {
    let path = dir.join("other.ndjson");
    let data = format!("-data-dir={}", text(&setup.data_dir));
    let out = format!("-out={}", text(&path));
    let export = ["log", "export", &data, "-bodies", &out, "-resume"];
    fs::write(&path, &whole[..30])?;
    done(setup, &export)?;
    ensure!(fs::read_to_string(&path)? == whole, "not the whole export");
    for index in [5_000, u64::MAX] {
        fs::write(&path, format!("{{\"Index\":{index}}}\n"))?;
        let printed = refused(setup, &export)?;
        ensure!(printed.contains("is no export of this log"), "{printed}");
    }
    let last = whole.lines().last().context("no line")?;
    let last: Value = serde_json::from_str(last)?;
    let epoch = last["Epoch"].as_str().context("no epoch")?;
    // Of another log; with other flags.
    let plain = ["log", "export", &data, &out, "-resume"];
    let kind = "-kind=JobRegistered";
    let part = ["log", "export", &data, "-bodies", &out, "-resume", kind];
    for (lines, export) in [
        (whole.replace(epoch, &"0".repeat(32)), &export[..]),
        (whole.to_owned(), &plain[..]),
        (whole.to_owned(), &part[..]),
    ] {
        fs::write(&path, &lines)?;
        let printed = refused(setup, export)?;
        ensure!(
            printed.contains("of this log with these flags"),
            "{printed}"
        );
        ensure!(fs::read_to_string(&path)? == lines, "it was changed");
    }
    let beyond = refused(setup, &["log", "export", &data, "-from=5000"])?;
    let end = format!("ends at index {}", last["Index"]);
    ensure!(beyond.contains(&end), "{beyond}");
    Ok(())
}

/// What was imported without its keys: old variables are lost, all else continues.
fn goes_on_without_keys(setup: &Setup, lines: &Path, dir: &Path) -> Result<()> {
    let to = dir.join("keyless");
    let into = format!("-data-dir={}", text(&to));
    let printed = done(setup, &["log", "import", text(lines), &into])?;
    ensure!(printed.contains("keys are in no export"), "{printed}");
    let mut there = Setup::server(env!("CARGO_BIN_EXE_drover"), &to)?;
    there.config.clone_from(&setup.config);
    let agent = there.start()?;
    let mut known = Known::new();
    wait_for("a new root key", LONG, || {
        write(&agent, &mut known, 0, 5, "again")
    })?;
    check(&agent, &known)?;
    let lost = agent.http().get("/v1/var/v/40")?;
    ensure!(lost.status == 500, "{}", lost.status);
    ensure!(lost.text().contains("no such key"), "{}", lost.text());
    ensure!(agent.http().send("DELETE", "/v1/var/v/40", &[])?.status < 300);
    wait_for("a checkpoint", LONG, || {
        let answer = agent.http().get("/v1/log/checkpoint")?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })?;
    check_replay(&there, &agent)?;
    save(&there, &agent, &dir.join("keyless.tar"))?;
    stop(agent)?;
    let printed = done(&there, &["log", "verify", &into])?;
    ensure!(!printed.contains("signer nobody"), "{printed}");
    Ok(())
}

#[test]
fn an_exported_log_is_imported_with_its_proof_and_its_state() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, 0, 50, "before")?;
    let half = dir.path().join("half.ndjson");
    let data = format!("-data-dir={}", text(&setup.data_dir));
    let out = format!("-out={}", text(&half));
    done(&setup, &["log", "export", &data, "-bodies", &out])?;
    write(&agent, &mut known, 50, 100, "after")?;
    stop(agent)?;
    // A line that a kill cut short is written again.
    let mut torn = fs::read(&half)?;
    torn.truncate(torn.len() - 40);
    fs::write(&half, torn)?;
    done(
        &setup,
        &["log", "export", &data, "-bodies", &out, "-resume"],
    )?;
    let lines = fs::read_to_string(&half)?;
    for (at, line) in lines.lines().enumerate() {
        let line: Value = serde_json::from_str(line)?;
        ensure!(line["Index"] == at, "line {at} is {line}");
    }
    resumes_only_its_own(&setup, dir.path(), &lines)?;
    let to = dir.path().join("imported");
    let into = format!("-data-dir={}", text(&to));
    done(&setup, &["log", "import", text(&half), &into])?;
    let again = refused(&setup, &["log", "import", text(&half), &into])?;
    ensure!(again.contains("only an empty data directory"), "{again}");
    let verified = done(&setup, &["log", "verify", &into])?;
    let own = done(&setup, &["log", "verify", &data])?;
    let root = |printed: &str| {
        let line = printed.lines().find(|line| line.starts_with("Root"));
        line.and_then(|line| line.split(" = ").nth(1))
            .map(str::to_owned)
    };
    ensure!(root(&verified).is_some(), "{verified}");
    ensure!(root(&verified) == root(&own), "{verified}\n{own}");
    // Keys are in no export.
    let keys = to.join("server/keystore");
    fs::create_dir_all(&keys)?;
    for file in fs::read_dir(setup.data_dir.join("server/keystore"))? {
        let file = file?;
        fs::copy(file.path(), keys.join(file.file_name()))?;
    }
    let mut there = Setup::server(env!("CARGO_BIN_EXE_drover"), &to)?;
    there.config.clone_from(&setup.config);
    let agent = there.start()?;
    check(&agent, &known)?;
    check_replay(&there, &agent)?;
    goes_on_without_keys(&setup, &half, dir.path())
}

/// Restores a backup into an empty data directory, which takes the key that wraps its keys.
fn restore_into(
    setup: &Setup,
    into: &str,
    backup: &Path,
    wrap: &Path,
    at: Option<u64>,
) -> Result<()> {
    let at = at.map(|index| format!("-at={index}"));
    let mut words = vec!["operator", "snapshot", "restore", into, text(backup)];
    words.extend(at.as_deref());
    let locked = refused(setup, &words)?;
    ensure!(locked.contains("-wrap-key"), "{locked}");
    let wrap = format!("-wrap-key={}", text(wrap));
    words.push(&wrap);
    let printed = done(setup, &words)?;
    ensure!(printed.contains("tables proved"), "{printed}");
    Ok(())
}

#[test]
fn ev_05_a_backup_is_restored_into_an_empty_data_directory() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, 0, 40, "first")?;
    let middle = index_of(&agent, "/v1/vars")?;
    let early = known.clone();
    write(&agent, &mut known, 20, 60, "second")?;
    let backup = dir.path().join("backup.tar");
    save(&setup, &agent, &backup)?;
    let before = digests(&agent)?;
    let last = index_of(&agent, "/v1/vars")?;
    stop(agent)?;
    let shown = done(&setup, &["operator", "snapshot", "inspect", text(&backup)])?;
    for part in ["Every part is what was written", "variables", "(unpinned)"] {
        ensure!(shown.contains(part), "{shown}");
    }
    let unpacked = dir.path().join("unpacked");
    fs::create_dir_all(&unpacked)?;
    let tar = Command::new("tar")
        .arg("-xf")
        .arg(&backup)
        .arg("-C")
        .arg(&unpacked)
        .status()?;
    ensure!(tar.success(), "tar cannot read it");
    done(
        &setup,
        &["log", "verify", &format!("-data-dir={}", text(&unpacked))],
    )?;

    let wrap = setup.data_dir.join("server/keystore/wrap.key");
    for (name, at, wanted) in [("newest", None, &known), ("early", Some(middle), &early)] {
        let to = dir.path().join(name);
        let into = format!("-data-dir={}", text(&to));
        restore_into(&setup, &into, &backup, &wrap, at)?;
        let there = Setup::server(env!("CARGO_BIN_EXE_drover"), &to)?;
        let agent = there.start()?;
        check(&agent, wanted)?;
        let gone = agent.http().get("/v1/var/v/59")?.status;
        ensure!((gone == 404) == (name == "early"), "{name}: {gone}");
        if name == "newest" {
            same_rows(&before, &digests(&agent)?)?;
        }
        for path in ["/v1/vars", "/v1/var/v/1", "/v1/jobs", "/v1/nodes"] {
            let index = index_of(&agent, path)?;
            ensure!(index > last, "{path}: {index} after {last}");
        }
        check_replay(&there, &agent)?;
        let first = done(&setup, &["log", "events", &into, "-json"])?;
        let first: Value = serde_json::from_str(first.lines().next().context("no event")?)?;
        ensure!(first["Kind"] == "ClusterRestored", "{first}");
        done(&setup, &["log", "verify", &into])?;
        let too_old = agent.http().get(&format!("/v1/vars?as_of={middle}"))?;
        ensure!(too_old.status == 410, "{}", too_old.text());
        let mut more = wanted.clone();
        write(&agent, &mut more, 100, 110, "third")?;
        agent.kill()?;
        let agent = there.start()?;
        check(&agent, &more)?;
        check_replay(&there, &agent)?;
    }
    Ok(())
}

/// Waits until the server serves an epoch that begins above an index.
fn served_above(agent: &Agent, index: u64) -> Result<()> {
    wait_for("the new epoch", LONG, || {
        let now = index_of(agent, "/v1/vars")?;
        ensure!(now > index, "index {now}");
        let leader = agent.http().json("/v1/status/leader")?;
        ensure!(
            leader.as_str().is_some_and(|leader| !leader.is_empty()),
            "no leader"
        );
        Ok(())
    })
}

#[test]
fn a_running_server_takes_a_backup_as_a_new_epoch_and_wakes_who_waits() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, 0, 30, "kept")?;
    let backup = dir.path().join("backup.tar");
    save(&setup, &agent, &backup)?;
    write(&agent, &mut Known::new(), 10, 50, "lost")?;
    let last = index_of(&agent, "/v1/vars")?;
    let row = index_of(&agent, "/v1/var/v/10")?;
    let mut http = agent.http();
    let waiter = std::thread::spawn(move || http.get(&format!("/v1/vars?index={last}&wait=120s")));
    let address = format!("-address=http://{}", agent.addr());
    let printed = done(
        &setup,
        &["operator", "snapshot", "restore", &address, text(&backup)],
    )?;
    ensure!(printed.contains("tables proved"), "{printed}");
    let woken = waiter
        .join()
        .map_err(|_| anyhow::anyhow!("the waiter panicked"))?;
    // It is answered, or its connection ends; it does not wait on.
    if let Ok(answer) = woken {
        ensure!(answer.status == 200, "{}", answer.text());
    }
    served_above(&agent, last)?;
    check(&agent, &known)?;
    ensure!(
        agent.http().get("/v1/var/v/45")?.status == 404,
        "the future is gone"
    );
    ensure!(
        index_of(&agent, "/v1/var/v/10")? > row,
        "an index ran backwards"
    );
    check_replay(&setup, &agent)?;
    let mut former = fs::read_dir(setup.data_dir.join("server/former"))?;
    let former: PathBuf = former.next().context("no former log")??.path();
    done(
        &setup,
        &["log", "verify", &format!("-data-dir={}", text(&former))],
    )?;
    done(
        &setup,
        &[
            "log",
            "verify",
            &format!("-data-dir={}", text(&setup.data_dir)),
        ],
    )?;
    second_epoch(&setup, &agent, &known, dir.path())
}

/// A backup of a new epoch holds the base that its log continues.
fn second_epoch(setup: &Setup, agent: &Agent, known: &Known, dir: &Path) -> Result<()> {
    let address = format!("-address=http://{}", agent.addr());
    let mut more = known.clone();
    write(agent, &mut more, 60, 70, "of the new epoch")?;
    let middle = index_of(agent, "/v1/vars")?;
    write(agent, &mut Known::new(), 60, 80, "later")?;
    let second = dir.join("second.tar");
    save(setup, agent, &second)?;
    let at = format!("-at={middle}");
    let last = index_of(agent, "/v1/vars")?;
    done(
        setup,
        &[
            "operator",
            "snapshot",
            "restore",
            &address,
            &at,
            text(&second),
        ],
    )?;
    served_above(agent, last)?;
    check(agent, &more)?;
    check_replay(setup, agent)
}

#[test]
fn a_flipped_bit_in_a_backup_is_named_and_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, 0, 30, "kept")?;
    let backup = dir.path().join("backup.tar");
    save(&setup, &agent, &backup)?;
    let whole = fs::read(&backup)?;
    let address = format!("-address=http://{}", agent.addr());
    let bad = dir.path().join("bad.tar");
    for part in 1..8 {
        let mut bytes = whole.clone();
        bytes[whole.len() * part / 8] ^= 4;
        fs::write(&bad, &bytes)?;
        let shown = refused(&setup, &["operator", "snapshot", "inspect", text(&bad)])?;
        ensure!(
            shown.contains("damaged") || shown.contains("sum"),
            "{shown}"
        );
        let printed = refused(
            &setup,
            &["operator", "snapshot", "restore", &address, text(&bad)],
        )?;
        ensure!(printed.contains("not what was written"), "{printed}");
    }
    fs::write(&bad, &whole[..whole.len() / 2])?;
    let shown = refused(&setup, &["operator", "snapshot", "inspect", text(&bad)])?;
    ensure!(shown.contains("ends"), "{shown}");
    let printed = refused(
        &setup,
        &[
            "operator",
            "snapshot",
            "restore",
            &address,
            "-at=99999999",
            text(&backup),
        ],
    )?;
    ensure!(printed.contains("is not in the backup"), "{printed}");
    says_400(&agent, &whole)?;
    check(&agent, &known)?;
    write(&agent, &mut known, 30, 40, "it goes on")?;
    check_replay(&setup, &agent)?;
    ensure!(
        !setup.data_dir.join("server/restoring.tmp").exists(),
        "something is left"
    );
    Ok(())
}

/// A body of which no state can be made is refused as such.
fn says_400(agent: &Agent, whole: &[u8]) -> Result<()> {
    let size = std::str::from_utf8(&whole[124..135])?;
    let padding = 512 + usize::from_str_radix(size, 8)? + 1;
    ensure!((padding - 1) % 512 != 0, "the first part has no padding");
    for (at, sent, wanted) in [
        ("2001-01-01T00:00:00Z", whole, "as old as that time"),
        ("2200-01-01T00:00:00Z", whole, "the backup was made at"),
        ("", &whole[..padding], "it ends here"),
    ] {
        let path = format!("/v1/operator/snapshot?at={at}");
        let answer = agent.http().send("PUT", &path, sent)?;
        let reason = answer.text();
        ensure!(answer.status == 400, "{at}: {} {reason}", answer.status);
        ensure!(reason.contains(wanted), "{reason}");
    }
    Ok(())
}

#[test]
fn a_restore_that_is_killed_leaves_one_truth() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let mut agent = setup.start()?;
    let mut first = Known::new();
    write(&agent, &mut first, 0, 30, "first")?;
    let backup = dir.path().join("backup.tar");
    save(&setup, &agent, &backup)?;
    let (mut old, mut new) = (0, 0);
    for round in 0..12 {
        let mut second = Known::new();
        write(&agent, &mut second, 0, 30, &format!("second {round}"))?;
        let last = index_of(&agent, "/v1/vars")?;
        let address = format!("-address=http://{}", agent.addr());
        let mut restore = Command::new(&setup.binary)
            .args([
                "operator",
                "snapshot",
                "restore",
                "-detach",
                &address,
                text(&backup),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // From before the upload to after the start of the new epoch.
        let ready = setup.data_dir.join("server/restored");
        let draft = setup.data_dir.join("server/restoring.tmp");
        let due = || match round % 4 {
            0 => draft.exists(),
            1 => draft.join("projections").exists(),
            2 => draft.join("log").exists() || ready.exists(),
            _ => ready.exists(),
        };
        moment(due, || !matches!(restore.try_wait(), Ok(None)));
        agent.kill()?;
        restore.wait()?;
        agent = setup.start()?;
        let value = agent.http().json("/v1/var/v/3")?;
        match value["Items"]["v"].as_str() {
            Some("first") => {
                new += 1;
                check(&agent, &first)?;
                ensure!(
                    index_of(&agent, "/v1/vars")? > last,
                    "an index ran backwards"
                );
            }
            _ => {
                old += 1;
                check(&agent, &second)?;
            }
        }
        check_replay(&setup, &agent)?;
        for left in [&ready, &draft] {
            ensure!(!left.exists(), "{} is left", left.display());
        }
    }
    ensure!(old > 0 && new > 0, "{old} rolled back, {new} went on");
    stop(agent)?;
    let found = replay(&setup, None)?;
    ensure!(found.status.success(), "{}", words(&found));
    Ok(())
}

#[test]
fn a_task_outlives_a_restore() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let agent = setup.start()?;
    let pids = dir.path().join("pids");
    let script = format!("echo $$ >> {}; while :; do sleep 0.05; done", text(&pids));
    let job = json!({"Job": {"ID": "stays", "Name": "stays", "Type": "service",
        "Datacenters": ["dc1"], "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
            "Name": "t", "Driver": "raw_exec",
            "Config": {"command": "/bin/sh", "args": ["-c", script]},
            "Resources": {"CPU": 20, "MemoryMB": 16}}]}]}});
    let mut http = agent.http();
    wait_for("the node", LONG, || {
        let nodes = http.json("/v1/nodes")?;
        ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        Ok(())
    })?;
    ensure!(http.put("/v1/jobs", &job)?.status == 200);
    let running = |agent: &Agent| -> Result<String> {
        let all = agent.http().json("/v1/job/stays/allocations")?;
        ensure!(all[0]["ClientStatus"] == "running", "{all}");
        Ok(all[0]["ID"].as_str().unwrap_or_default().to_owned())
    };
    wait_for("the task", LONG, || running(&agent).map(|_| ()))?;
    let backup = dir.path().join("backup.tar");
    save(&setup, &agent, &backup)?;
    let (id, last) = (running(&agent)?, index_of(&agent, "/v1/vars")?);
    let address = format!("-address=http://{}", agent.addr());
    let pid = agent.pid();
    done(
        &setup,
        &["operator", "snapshot", "restore", &address, text(&backup)],
    )?;
    served_above(&agent, last)?;
    ensure!(agent.pid() == pid);
    wait_for("the task again", LONG, || {
        ensure!(running(&agent)? == id, "another allocation");
        Ok(())
    })?;
    let started = fs::read_to_string(&pids)?;
    ensure!(started.lines().count() == 1, "started again: {started}");
    let task = Path::new("/proc").join(started.trim());
    ensure!(task.exists(), "the task is gone");
    http = agent.http();
    ensure!(http.send("DELETE", "/v1/job/stays", &[])?.status == 200);
    wait_for("the end of the task", LONG, || {
        ensure!(!task.exists(), "it runs");
        Ok(())
    })
}
