//! Runs tests: once as they are, to learn what each reaches, and then under each change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::build::Executable;
use super::jail::{End, Jail};

/// A test that takes longer than this is not run for every change.
const LONGEST: Duration = Duration::from_secs(15);
/// So much of tests is started at once: the next are not run where these notice the change.
const AT_ONCE: Duration = Duration::from_secs(3);
/// What the tests of one change may take together, had they been run one after the other.
const NEAR: Duration = Duration::from_secs(90);
const FAR: Duration = Duration::from_secs(6);

/// A test that passes on the changed tree while no change is in force.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) executable: String,
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// Functions by name.
    pub(crate) reaches: BTreeSet<String>,
}

impl Test {
    /// Its own name, without its modules'.
    pub(crate) fn short(&self) -> &str {
        self.name.rsplit("::").next().unwrap_or(&self.name)
    }
}

/// Every test of these executables with what it reaches. What `known` says is taken from there.
pub(crate) fn trace(
    executables: &BTreeMap<String, Executable>,
    functions: &[String],
    known: &Path,
    jails: &[Jail],
) -> Result<Vec<Test>> {
    let old = read(known);
    let mut todo = Vec::new();
    let mut tests = Vec::new();
    for (crate_name, executable) in executables {
        for name in list(executable)? {
            match old.get(&format!("{crate_name} {name}")) {
                Some(test) => tests.extend(test.clone()),
                None => todo.push((crate_name.as_str(), name)),
            }
        }
    }
    println!(
        "mutants: {} tests known, {} to be tried as they are",
        tests.len(),
        todo.len()
    );
    let mut file = OpenOptions::new().create(true).append(true).open(known)?;
    let found = Mutex::new((&mut tests, &mut file));
    spread(jails, todo.len(), |jail, at| {
        let (crate_name, name) = &todo[at];
        let mut command = command(&executables[*crate_name], &[name]);
        command.env("DROVER_MUTANT_TRACE", "/tmp/out/trace");
        let mut start = Instant::now();
        let mut end = jail.run(&mut command, Duration::from_secs(120))?;
        if end != End::Passed {
            // Once more: a machine with much to do is no reason not to ask a test.
            start = Instant::now();
            end = jail.run(&mut command, Duration::from_secs(120))?;
        }
        let took = start.elapsed();
        let reached = jail.take("trace")?;
        let numbers = reached
            .lines()
            .filter_map(|line| line.parse::<usize>().ok());
        let reaches = numbers
            .filter_map(|number| functions.get(number).cloned())
            .collect();
        let test = Test {
            executable: (*crate_name).to_owned(),
            name: name.clone(),
            took,
            reaches,
        };
        let passed = end == End::Passed;
        let mut found = found.lock().expect("no holder panics");
        writeln!(found.1, "{}", line(&test, passed))?;
        if passed {
            found.0.push(test);
        } else {
            println!("mutants: is not asked, as it ends with {end:?} here: {name}");
        }
        Ok(())
    })?;
    Ok(tests)
}

/// The names of an executable's tests.
fn list(executable: &Executable) -> Result<Vec<String>> {
    let output = Command::new(&executable.path)
        .args(["--list", "--format", "terse"])
        .current_dir(&executable.folder)
        .output()
        .context("a list of tests")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ignored = Command::new(&executable.path)
        .args(["--list", "--format", "terse", "--ignored"])
        .current_dir(&executable.folder)
        .output()
        .context("a list of tests")?;
    let ignored = String::from_utf8_lossy(&ignored.stdout).into_owned();
    let ignored: BTreeSet<&str> = ignored.lines().collect();
    let kept = text.lines().filter(|line| !ignored.contains(line));
    Ok(kept
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

fn command(executable: &Executable, names: &[&str]) -> Command {
    let mut command = Command::new(&executable.path);
    command
        .args(["--exact", "--test-threads", "2"])
        .args(names)
        .current_dir(&executable.folder)
        .env("CARGO_MANIFEST_DIR", &executable.folder);
    command
}

/// Whether tests notice change number `id`: the first failure or time-out ends it.
pub(crate) fn noticed(
    executables: &BTreeMap<String, Executable>,
    jail: &Jail,
    tests: &[&Test],
    near: &dyn Fn(&Test) -> bool,
    id: usize,
) -> Result<End> {
    for batch in batches(tests, near) {
        for (crate_name, executable) in executables {
            let own: Vec<&Test> = batch
                .iter()
                .copied()
                .filter(|test| test.executable == *crate_name)
                .collect();
            if own.is_empty() {
                continue;
            }
            let names: Vec<&str> = own.iter().map(|test| test.name.as_str()).collect();
            let took: Duration = own.iter().map(|test| test.took).sum();
            let mut command = command(executable, &names);
            command.env("DROVER_MUTANT", id.to_string());
            let end = jail.run(&mut command, Duration::from_secs(10) + took * 3)?;
            if end != End::Passed {
                return Ok(end);
            }
        }
    }
    Ok(End::Passed)
}

/// What is run together, one after the other: the quickest of those nearby, the quickest of the
/// others, and the rest of those nearby.
fn batches<'a>(tests: &[&'a Test], near: &dyn Fn(&Test) -> bool) -> Vec<Vec<&'a Test>> {
    let mut sorted: Vec<&Test> = tests
        .iter()
        .copied()
        .filter(|test| test.took < LONGEST)
        .collect();
    sorted.sort_by_key(|test| test.took);
    let (near, far): (Vec<&Test>, Vec<&Test>) = sorted.into_iter().partition(|test| near(test));
    let mut batches = cut(near, NEAR);
    let others = cut(far, FAR);
    let second = batches.len().min(1);
    batches.splice(second..second, others);
    batches
}

/// Tests that take so long together, in parts that are run at once.
fn cut(tests: Vec<&Test>, most: Duration) -> Vec<Vec<&Test>> {
    let mut parts: Vec<Vec<&Test>> = Vec::new();
    let (mut all, mut part) = (Duration::ZERO, Duration::ZERO);
    for test in tests {
        all += test.took;
        if all > most {
            break;
        }
        part += test.took;
        if part > AT_ONCE || parts.is_empty() {
            parts.push(Vec::new());
            part = test.took;
        }
        if let Some(last) = parts.last_mut() {
            last.push(test);
        }
    }
    parts
}

/// Does `count` things, as many at once as there are jails.
pub(crate) fn spread(
    jails: &[Jail],
    count: usize,
    one: impl Fn(&Jail, usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let worker = |jail: &Jail| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok(());
            }
            if let Err(error) = one(jail, at) {
                next.store(count, Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    let worker = &worker;
    std::thread::scope(|scope| {
        let start = |jail| scope.spawn(move || worker(jail));
        let workers: Vec<_> = jails.iter().map(start).collect();
        let end = |handle: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            handle.join().expect("a worker answers")
        };
        workers.into_iter().try_for_each(end)
    })
}

/// Tests by crate and name, of lines as `line` makes them; `None` is one that does not pass here.
fn read(path: &Path) -> BTreeMap<String, Option<Test>> {
    let mut tests = BTreeMap::new();
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A last line that was cut short is as good as none.
    for value in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let reaches = value["reaches"].as_array().into_iter().flatten();
        let test = Test {
            executable: text("crate"),
            name: text("test"),
            took: Duration::from_millis(value["ms"].as_u64().unwrap_or_default()),
            reaches: reaches
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
        };
        let passed = value["passed"] == true;
        tests.insert(
            format!("{} {}", test.executable, test.name),
            passed.then_some(test),
        );
    }
    tests
}

fn line(test: &Test, passed: bool) -> Value {
    json!({
        "crate": test.executable,
        "test": test.name,
        "passed": passed,
        "ms": u64::try_from(test.took.as_millis()).unwrap_or(u64::MAX),
        "reaches": test.reaches,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_reaches_is_remembered() {
        let dir = tempfile::tempdir().expect("dir");
        let test = Test {
            executable: "drover".to_owned(),
            name: "a::b".to_owned(),
            took: Duration::from_millis(7),
            reaches: ["src/a.rs: f".to_owned()].into(),
        };
        let path = dir.path().join("reached");
        let lines = [line(&test, false), line(&test, true)];
        let text = format!("{}\n{}\n{{\"crate\"", lines[0], lines[1]);
        std::fs::write(&path, text).expect("written");
        let known = read(&path);
        let again = known["drover a::b"].as_ref().expect("it passed last");
        assert_eq!(
            (known.len(), again.took, &again.reaches),
            (1, test.took, &test.reaches)
        );
        assert_eq!(again.short(), "b");
    }

    #[test]
    fn quick_tests_nearby_come_first_and_long_ones_never() {
        let test = |name: &str, ms| Test {
            executable: "drover".to_owned(),
            name: name.to_owned(),
            took: Duration::from_millis(ms),
            reaches: BTreeSet::new(),
        };
        let all = [
            test("near::slow", 3_000),
            test("far::quick", 1),
            test("near::quick", 5),
            test("near::too", 7),
            test("far::slow", 14_000),
            test("near::endless", 60_000),
        ];
        let asked: Vec<&Test> = all.iter().collect();
        let batches = batches(&asked, &|test| test.name.starts_with("near"));
        let names: Vec<Vec<&str>> = batches
            .iter()
            .map(|batch| batch.iter().map(|test| test.name.as_str()).collect())
            .collect();
        assert_eq!(
            names,
            [
                vec!["near::quick", "near::too"],
                vec!["far::quick"],
                vec!["near::slow"]
            ]
        );
    }
}
