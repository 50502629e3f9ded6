//! Would a test notice? Changes the code in one place at a time and runs the tests that get there.
//!
//! Changes are compiled by portions, of one crate each, into a copy of the tree: each stands behind
//! a probe that an environment variable turns on, so that there is one build for many. The same
//! probes show which test reaches which function; under a change only tests of its crate that reach
//! its function are run, the nearest and quickest first, until one fails or does not end: that one
//! has caught the change; else it survives. Tests of its own module are all run before any other.
//!
//! What came of a change is written down at once: a run that was interrupted continues with
//! `--continue`, and after tests were added `--again` tries what survived only.
//!
//! `survivors.txt` holds the changes that are known to survive, with the reason. It may only
//! shrink: each is a place that no test holds.

mod build;
mod copy;
mod crates;
mod generate;
mod jail;
mod past;
mod portions;
mod replace;
mod reported;
mod subjects;
mod syntax;
mod trial;
mod tries;
mod weave;
#[cfg(test)]
mod whole_test;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::build::Executables;
use self::generate::{Generated, Mutant};
use self::jail::Jail;
use self::past::Past;
use self::portions::Portion;
use self::reported::Progress;
use self::trial::Tracer;
use self::tries::{Numbered, Record, Trial, Turn};
use crate::{behaviours, tree};

const KNOWN: &str = "tools/xtask/survivors.txt";

/// What to change.
#[derive(Default)]
pub(crate) struct RunOptions {
    /// Files and folders; without them all.
    pub(crate) files: Vec<String>,
    /// Only functions that rows of `behaviours.md` rest on.
    pub(crate) rows: bool,
    /// Files that changed since this commit.
    pub(crate) since: Option<String>,
    /// Only changes whose names begin so.
    pub(crate) only: Vec<String>,
    /// Leave out what was caught before.
    pub(crate) again: bool,
    /// Continue where a run was interrupted.
    pub(crate) go_on: bool,
    /// How many tests run at once.
    pub(crate) jobs: usize,
    /// Try about every so many-th change only.
    pub(crate) sample: usize,
    /// Which of them.
    pub(crate) seed: usize,
    /// How many changes are compiled together.
    pub(crate) portion: usize,
    /// How long the tests of one change may take.
    pub(crate) limit: Duration,
    /// Only print what portions there are.
    pub(crate) plan: bool,
}

/// Changes what is wished for and compares the survivors with those known.
pub(crate) fn run(root: &Path, request: &RunOptions) -> Result<()> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // Cargo runs in another folder.
    within(root, &std::path::absolute(target)?, request)
}

fn within(root: &Path, target: &Path, request: &RunOptions) -> Result<()> {
    let files = tree::read(root)?;
    let rows = behaviours::shown_by(root)?;
    let code = subjects::code(&files);
    let chosen = choose(root, request, &files, &code, &rows)?;
    if chosen.is_empty() {
        println!("mutants: there is nothing to change");
        return Ok(());
    }
    let sources: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| code.contains(&file.path))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let all = names(&sources, &chosen)?;
    if request.plan {
        report_plan(&portions::plan(
            &requested(request, &all, &BTreeSet::new()),
            request.portion,
        ));
        return Ok(());
    }
    let work = place(target)?;
    past::forget_changed(&files, &work.join("traced.txt"), &work.join(REACHED))?;
    let past = Past::open(&work.join("tried.txt"), request)?;
    let requested = requested(request, &all, &past.caught);
    let portions = portions::plan(&requested, request.portion);
    let refused = read_lines(&work.join(REFUSED));
    let is_left = |name: &&&str| !past.answers.contains_key(**name) && !refused.contains(**name);
    let left = requested.iter().filter(is_left).count();
    println!(
        "mutants: {left} of {} changes are left to be tried",
        requested.len()
    );
    let mut run = Run {
        root,
        request,
        work: &work,
        target,
        sources: &sources,
        rows: &rows,
        refused,
        record: Record {
            past,
            progress: Progress::new(left),
        },
    };
    for (at, portion) in portions.iter().enumerate() {
        println!(
            "mutants: portion {} of {}: {}",
            at + 1,
            portions.len(),
            portion.line()
        );
        run.portion(portion)?;
    }
    println!("mutants: what came of all:");
    run.report(&requested);
    let there: BTreeSet<&str> = all.iter().map(String::as_str).collect();
    past::compare(root, &run.record.past.answers, |name| {
        let is_there = there.contains(name) && !run.refused.contains(name);
        chosen.contains(file_of(name)) && !is_there
    })
}

/// What tests reached in former runs, and the names of changes that did not compile.
const REACHED: &str = "reached.jsonl";
const REFUSED: &str = "refused.txt";

fn report_plan(portions: &[Portion]) {
    for portion in portions {
        println!("mutants: {}", portion.line());
    }
    let changes: usize = portions.iter().map(|portion| portion.changes.len()).sum();
    println!("mutants: {changes} changes in {} portions", portions.len());
}

/// Where the work is kept.
fn place(target: &Path) -> Result<PathBuf> {
    ensure!(
        !target.starts_with("/tmp"),
        "CARGO_TARGET_DIR must not lie in /tmp: changed code runs where there is another"
    );
    let work = target.join("mutants");
    fs::create_dir_all(work.join(COPY))?;
    Ok(work)
}

/// The copy of the tree that is built.
const COPY: &str = "tree";

/// The names of all changes of these files.
fn names(sources: &BTreeMap<&str, &str>, chosen: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| chosen.contains(**path)) {
        let file = generate::generate(path, text, (0, 0), &|_| false)?;
        names.extend(file.mutants.into_iter().map(|mutant| mutant.name));
    }
    Ok(names)
}

/// The part of all changes that the options select.
fn requested<'a>(
    request: &RunOptions,
    all: &'a [String],
    caught: &BTreeSet<String>,
) -> Vec<&'a str> {
    let is_named = |name: &&str| {
        let begins = |start: &String| name.starts_with(start.as_str());
        request.only.is_empty() || request.only.iter().any(begins)
    };
    let requested: Vec<&str> = all
        .iter()
        .map(String::as_str)
        .filter(is_named)
        .filter(|name| !caught.contains(*name))
        .collect();
    portions::sample(&requested, request.sample, request.seed)
}

/// Files of code that the options select.
fn choose(
    root: &Path,
    request: &RunOptions,
    files: &[tree::File],
    code: &BTreeSet<String>,
    rows: &BTreeMap<String, String>,
) -> Result<BTreeSet<String>> {
    let mut chosen = BTreeSet::new();
    if let Some(base) = &request.since {
        let changed = changed(root, base)?;
        chosen.extend(code.intersection(&changed).cloned());
    } else if request.files.is_empty() {
        chosen.extend(code.iter().cloned());
    }
    for name in &request.files {
        let below = format!("{}/", name.trim_end_matches('/'));
        let some: Vec<&String> = code
            .iter()
            .filter(|path| *path == name || path.starts_with(&below))
            .collect();
        ensure!(!some.is_empty(), "no code of drover to change: {name}");
        chosen.extend(some.into_iter().cloned());
    }
    if request.rows {
        let of_rows = subjects::of(files, rows);
        chosen.retain(|path| of_rows.contains(path));
    }
    Ok(chosen)
}

fn changed(root: &Path, base: &str) -> Result<BTreeSet<String>> {
    let output = Command::new("git")
        .args(["diff", "--name-only", "--diff-filter=d", base])
        .current_dir(root)
        .output()
        .context("git diff")?;
    ensure!(output.status.success(), "git knows no commit {base:?}");
    Ok(String::from_utf8(output.stdout)?
        .lines()
        .map(str::to_owned)
        .collect())
}

/// The file of a name `src/a.rs: Type::function: what`.
fn file_of(name: &str) -> &str {
    name.split(": ").next().unwrap_or(name)
}

fn read_lines(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A run over all portions.
struct Run<'a> {
    root: &'a Path,
    request: &'a RunOptions,
    work: &'a Path,
    target: &'a Path,
    sources: &'a BTreeMap<&'a str, &'a str>,
    rows: &'a BTreeMap<String, String>,
    /// The names of changes that do not compile.
    refused: BTreeSet<String>,
    record: Record,
}

impl Run<'_> {
    /// Builds a portion and tries what is left of it.
    fn portion(&mut self, portion: &Portion) -> Result<()> {
        let answers = &self.record.past.answers;
        let is_left =
            |name: &&String| !answers.contains_key(*name) && !self.refused.contains(*name);
        let expected = portion.changes.iter().filter(is_left).count();
        if expected == 0 {
            println!("mutants: nothing of it is left");
            return Ok(());
        }
        let begun = Instant::now();
        let (generated, executables) = self.compile(portion)?;
        println!("mutants: built in {} s", begun.elapsed().as_secs());
        let functions = generated.values().flat_map(|file| file.functions.iter());
        let functions: Vec<String> = functions.cloned().collect();
        let mutants = generated.values().flat_map(|file| &file.mutants);
        let answers = &self.record.past.answers;
        let todo: Vec<Numbered<'_>> = mutants
            .enumerate()
            .filter(|(_, mutant)| !answers.contains_key(&mutant.name))
            .collect();
        let refused = expected.saturating_sub(todo.len());
        self.record.progress.leave_out(refused);
        self.attempt(todo, &functions, &executables)?;
        let changes: Vec<&str> = portion.changes.iter().map(String::as_str).collect();
        self.report(&changes);
        println!("mutants: {}", self.record.progress.now());
        Ok(())
    }

    /// Tries changes with the tests nearest to them, and with the others where that is not enough.
    fn attempt(
        &mut self,
        mut todo: Vec<Numbered<'_>>,
        functions: &[String],
        executables: &Executables,
    ) -> Result<()> {
        // Processes of the executables that were built before are of no use any more.
        let jails: Vec<Jail> = (0..self.request.jobs.max(1))
            .map(|number| Jail::new(&self.work.join(format!("out{number}"))))
            .collect::<Result<_>>()?;
        let function = |mutant: &Mutant| functions[mutant.function].as_str();
        let of_interest = todo.iter().map(|(_, mutant)| function(mutant)).collect();
        let tracer = Tracer {
            executables,
            functions,
            of_interest: &of_interest,
            known: &self.work.join(REACHED),
            jails: &jails,
        };
        let places: BTreeSet<&str> = todo
            .iter()
            .map(|(_, mutant)| file_of(&mutant.name))
            .collect();
        let is_of_row = |test: &str| self.rows.contains_key(trial::short(test));
        let near = tracer.trace(&|executable, test| {
            let nearness = |path: &&str| tries::nearness(path, executable, test);
            places.iter().any(|path| nearness(path) > 1) || (self.request.rows && is_of_row(test))
        })?;
        if self.request.rows {
            let of_rows = near.iter().filter(|test| is_of_row(&test.name));
            let reached: BTreeSet<&str> = of_rows
                .flat_map(|test| test.reaches.iter().map(String::as_str))
                .collect();
            let before = todo.len();
            todo.retain(|(_, mutant)| reached.contains(function(mutant)));
            self.record.progress.leave_out(before - todo.len());
        }
        let trial = Trial {
            functions,
            rows: self.rows,
            executables,
            limit: self.request.limit,
            noticed: Mutex::default(),
        };
        let open = trial.all(&todo, (Turn::Near, &near), &jails, &mut self.record)?;
        if !open.is_empty() {
            println!("mutants: {} are open; the other tests are run", open.len());
            let tests = tracer.trace(&|_, _| true)?;
            trial.all(&open, (Turn::Far, &tests), &jails, &mut self.record)?;
        }
        Ok(())
    }

    /// Writes the copy with every change of a portion that compiles, and builds its tests.
    fn compile(&mut self, portion: &Portion) -> Result<(BTreeMap<String, Generated>, Executables)> {
        let copy = self.work.join(COPY);
        loop {
            let mut generated = BTreeMap::new();
            let mut changed = BTreeMap::new();
            let mut first = (0, 0);
            let is_own = |path: &str| crates::package_of(path) == Some(portion.package);
            for (path, text) in self.sources.iter().filter(|(path, _)| is_own(path)) {
                // Code that is not to be changed has probes that show what tests reach.
                let is_out =
                    |name: &str| !portion.changes.contains(name) || self.refused.contains(name);
                let file = generate::generate(path, text, first, &is_out)?;
                first = (first.0 + file.functions.len(), first.1 + file.mutants.len());
                let mut text = file.text.clone();
                if crates::is_root(path) {
                    text.push_str(copy::declaration());
                }
                changed.insert((*path).to_owned(), text);
                generated.insert((*path).to_owned(), file);
            }
            copy::write(self.root, &copy, &changed, first.0)?;
            println!(
                "mutants: {} changes and {} functions of {} are built",
                first.1, first.0, portion.package
            );
            match build::tests((&copy, self.target), portion.package, &generated)? {
                Ok(executables) => return Ok((generated, executables)),
                Err(names) => self.refused.extend(names),
            }
            let lines: Vec<&str> = self.refused.iter().map(String::as_str).collect();
            fs::write(self.work.join(REFUSED), lines.join("\n"))?;
        }
    }

    /// Prints what came of these.
    fn report(&self, names: &[&str]) {
        for line in reported::counts(names, &self.record.past.answers, &self.refused) {
            println!("mutants: {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wished_for_is_asked() {
        let all = ["src/a.rs: f: 1", "src/a.rs: g: 2", "src/b.rs: f: 3"].map(str::to_owned);
        let request = RunOptions {
            only: vec!["src/a.rs: g".to_owned(), "src/b".to_owned()],
            ..RunOptions::default()
        };
        let caught = BTreeSet::from([all[2].clone()]);
        assert_eq!(
            requested(&request, &all, &BTreeSet::new()),
            [&all[1], &all[2]]
        );
        assert_eq!(requested(&request, &all, &caught), [&all[1]]);
        assert_eq!(
            requested(&RunOptions::default(), &all, &caught),
            [&all[0], &all[1]]
        );
    }
}
