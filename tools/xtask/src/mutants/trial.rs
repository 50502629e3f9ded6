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

use super::build::{Executable, Executables};
use super::jail::{End, Jail, TOGETHER, With};

/// A test that takes longer than this is run where nothing quicker is, and last, [`FEW`] of them,
/// where it is a row's of the same module.
const LONG: Duration = Duration::from_secs(3);
/// A test that takes longer than this is never run.
const LONGEST: Duration = Duration::from_secs(15);
/// So much of tests is started at once: the next are not run where these notice the change.
const AT_ONCE: Duration = Duration::from_millis(500);
/// What the tests of one change may take together, had they been run one after the other: those
/// nearby (nearer than 1), and the others.
const NEAR: Duration = Duration::from_secs(25);
const FAR: Duration = Duration::from_secs(2);
const FEW: usize = 2;
/// Tests that fail later than this may have waited for a machine that had no time for them.
const SOON: Duration = Duration::from_secs(1);

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
        short(&self.name)
    }

    fn keep(&mut self, of_interest: &BTreeSet<&str>) {
        self.reaches
            .retain(|function| of_interest.contains(function.as_str()));
    }
}

/// A test's own name, without its modules'.
pub(crate) fn short(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Learns what tests reach.
pub(crate) struct Tracer<'a> {
    pub(crate) executables: &'a Executables,
    /// The functions that have a probe, by its number.
    pub(crate) functions: &'a [String],
    /// The functions of interest: a test that is run reports other functions that it reaches too,
    /// and no memory is spent on those.
    pub(crate) of_interest: &'a BTreeSet<&'a str>,
    /// Where it is written down what tests reach: what is there is taken from there.
    pub(crate) known: &'a Path,
    pub(crate) jails: &'a [Jail],
}

impl Tracer<'_> {
    /// The tests that are wanted, by the names of their executable and their own.
    pub(crate) fn trace(&self, wanted: &dyn Fn(&str, &str) -> bool) -> Result<Vec<Test>> {
        let old = read(self.known, self.of_interest);
        let mut todo = Vec::new();
        let mut tests = Vec::new();
        for (crate_name, executable) in self.executables {
            for name in list(executable)? {
                if !wanted(crate_name, &name) {
                    continue;
                }
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
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.known)?;
        let found = Mutex::new((&mut tests, &mut file));
        spread(self.jails, todo.len(), |jail, at| {
            let (crate_name, name) = &todo[at];
            let (end, mut test) = self.reached(jail, crate_name, name)?;
            let passed = end == End::Passed;
            let mut found = found.lock().expect("no holder panics");
            writeln!(found.1, "{}", line(&test, passed))?;
            if passed {
                test.keep(self.of_interest);
                found.0.push(test);
            } else {
                println!("mutants: is not run, as it ends with {end:?} here: {name}");
            }
            Ok(())
        })?;
        Ok(tests)
    }

    /// Runs one test as it is. Once more where it fails: a machine with much to do is no reason to
    /// leave a test out.
    fn reached(&self, jail: &Jail, crate_name: &str, name: &str) -> Result<(End, Test)> {
        let run = || {
            let limit = Duration::from_secs(120);
            jail.run(&self.executables[crate_name], &[name], With::Trace, limit)
        };
        let (mut end, mut took) = run()?;
        if end != End::Passed {
            (end, took) = run()?;
        }
        let reached = jail.take("trace")?;
        let numbers = reached
            .lines()
            .filter_map(|line| line.parse::<usize>().ok());
        let reaches = numbers
            .filter_map(|number| self.functions.get(number).cloned())
            .collect();
        let test = Test {
            executable: crate_name.to_owned(),
            name: name.to_owned(),
            took,
            reaches,
        };
        Ok((end, test))
    }
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

/// Whether tests notice change number `id`, and which of them were run when one did: the first
/// failure or time-out ends it. Tests whose turn does not come within `most` are not run.
pub(crate) fn noticed(
    executables: &Executables,
    jail: &Jail,
    order: &[&Test],
    id: usize,
    most: Duration,
) -> Result<(End, Vec<String>)> {
    let begun = Instant::now();
    for batch in batches(order) {
        if begun.elapsed() >= most {
            break;
        }
        let executable = &executables[&batch[0].executable];
        let names: Vec<&str> = batch.iter().map(|test| test.name.as_str()).collect();
        let took: Duration = batch.iter().map(|test| test.took).sum();
        // No test is given less time than it takes as it is.
        let most = most.max(took * 2);
        let limit = (Duration::from_secs(5) + took * 20).min(most);
        let changed = |limit| jail.run(executable, &names, With::Change(id), limit);
        let start = Instant::now();
        let (mut end, _) = changed(limit)?;
        // The machine may have much to do, or may have stood still: what came late counts only if
        // it comes again, and tests that do not end count only if they end in time as they are.
        if end == End::TimedOut {
            let (clean, _) = jail.run(executable, &names, With::Nothing, limit)?;
            let patience = if clean == End::Passed { 1 } else { 4 };
            (end, _) = changed((limit * patience).min(most))?;
        } else if end == End::Failed && start.elapsed() > SOON + took * 2 {
            (end, _) = changed(limit)?;
        }
        if end != End::Passed {
            return Ok((end, names.into_iter().map(str::to_owned).collect()));
        }
    }
    Ok((End::Passed, Vec::new()))
}

/// The order to run tests in: those that noticed another change of the function, then the nearest
/// of them, the quickest first.
pub(crate) fn order<'a>(
    tests: &[&'a Test],
    noticed_before: &BTreeSet<String>,
    near: &dyn Fn(&Test) -> usize,
) -> Vec<&'a Test> {
    let quicker = |most: Duration| -> Vec<&'a Test> {
        let all = tests.iter().copied();
        all.filter(|test| test.took < most).collect()
    };
    let mut sorted = quicker(LONG);
    if sorted.is_empty() {
        sorted = quicker(LONGEST);
    }
    let key = |test: &&Test| (std::cmp::Reverse(near(test)), test.took);
    sorted.sort_by_key(key);
    let mut last = quicker(LONGEST);
    last.retain(|test| test.took >= LONG && near(test) > 2 && !sorted.is_empty());
    last.sort_by_key(key);
    last.truncate(FEW);
    let (first, sorted): (Vec<&Test>, Vec<&Test>) = sorted
        .into_iter()
        .partition(|test| noticed_before.contains(&test.name));
    let (near, far): (Vec<&Test>, Vec<&Test>) = sorted.into_iter().partition(|test| near(test) > 1);
    let mut order = first;
    order.extend(no_longer_than(near, NEAR));
    order.extend(no_longer_than(far, FAR));
    let requested: BTreeSet<&str> = order.iter().map(|test| test.name.as_str()).collect();
    last.retain(|test| !requested.contains(test.name.as_str()));
    order.extend(last);
    order
}

/// The first of these that take so long together, and always one.
fn no_longer_than(tests: Vec<&Test>, most: Duration) -> Vec<&Test> {
    let mut all = Duration::ZERO;
    let mut within = |test: &&Test| {
        let first = all.is_zero();
        all += test.took;
        first || all <= most
    };
    tests.into_iter().filter(|test| within(test)).collect()
}

/// What is run together: few at first, as the first mostly notice, then more.
fn batches<'a>(order: &[&'a Test]) -> Vec<Vec<&'a Test>> {
    let mut parts: Vec<Vec<&Test>> = Vec::new();
    let (mut most, mut took) = (1, Duration::ZERO);
    for test in order {
        took += test.took;
        let fits = |last: &Vec<&Test>| {
            last.len() < most && took <= AT_ONCE && last[0].executable == test.executable
        };
        if let Some(last) = parts.last_mut().filter(|last| fits(last)) {
            last.push(test);
            continue;
        }
        most = (1 << parts.len().min(5)).min(TOGETHER);
        took = test.took;
        parts.push(vec![test]);
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
fn read(path: &Path, of_interest: &BTreeSet<&str>) -> BTreeMap<String, Option<Test>> {
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
                .filter_map(Value::as_str)
                .filter(|name| of_interest.contains(name))
                .map(str::to_owned)
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
            reaches: ["src/a.rs: f", "src/b.rs: g"].map(str::to_owned).into(),
        };
        let path = dir.path().join("reached");
        let lines = [line(&test, false), line(&test, true)];
        let text = format!("{}\n{}\n{{\"crate\"", lines[0], lines[1]);
        std::fs::write(&path, text).expect("written");
        let known = read(&path, &["src/a.rs: f"].into());
        let again = known["drover a::b"].as_ref().expect("it passed last");
        assert_eq!((known.len(), again.took), (1, test.took));
        assert_eq!(again.reaches, ["src/a.rs: f".to_owned()].into());
        assert_eq!(again.short(), "b");
        let known = read(&path, &["src/a.rs: f", "src/b.rs: g"].into());
        let again = known["drover a::b"].as_ref().expect("it passed last");
        assert_eq!(again.reaches, test.reaches, "all of it is written down");
    }

    fn test(name: &str, ms: u64) -> Test {
        Test {
            executable: "drover".to_owned(),
            name: name.to_owned(),
            took: Duration::from_millis(ms),
            reaches: BTreeSet::new(),
        }
    }

    fn ordered(all: &[Test], before: &[&str]) -> Vec<String> {
        let requested: Vec<&Test> = all.iter().collect();
        let before = before.iter().map(|name| (*name).to_owned()).collect();
        let near = |test: &Test| {
            2 * usize::from(test.name.starts_with("near")) + usize::from(test.name.contains("row"))
        };
        let order = order(&requested, &before, &near);
        order.iter().map(|test| test.name.clone()).collect()
    }

    #[test]
    fn quick_tests_nearby_come_first_and_long_ones_never() {
        let all = [
            test("near::slow", 2_000),
            test("far::quick", 1),
            test("near::quick", 5),
            test("near::too", 7),
            test("far::slow", 4_000),
            test("near::endless", 60_000),
        ];
        let order = ["near::quick", "near::too", "near::slow", "far::quick"];
        assert_eq!(ordered(&all, &[]), order);
        let order = ["near::slow", "near::quick", "near::too", "far::quick"];
        assert_eq!(ordered(&all, &["near::slow"]), order);
        assert_eq!(ordered(&all[4..], &[]), ["far::slow"], "nothing is quicker");
        let all = [test("near::slow", 4_000), test("near::quick", 1)];
        assert_eq!(ordered(&all, &[]), ["near::quick"]);
        let all = [test("near::row_slow", 4_000), test("near::row_quick", 1)];
        assert_eq!(ordered(&all, &[]), ["near::row_quick", "near::row_slow"]);
    }

    #[test]
    fn few_tests_are_run_together_at_first() {
        let all: Vec<Test> = (0..10).map(|at| test(&at.to_string(), 10)).collect();
        let requested: Vec<&Test> = all.iter().collect();
        let sizes = |order: &[&Test]| batches(order).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(&requested), [1, 2, 4, 3]);
        let long: Vec<Test> = (0..3).map(|at| test(&at.to_string(), 400)).collect();
        assert_eq!(sizes(&long.iter().collect::<Vec<_>>()), [1, 1, 1]);
        let other = Test {
            executable: "other".to_owned(),
            ..test("a", 1)
        };
        assert_eq!(sizes(&[requested[0], requested[1], &other]), [1, 1, 1]);
    }
}
