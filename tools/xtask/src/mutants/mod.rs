//! Would a test notice? Changes the code in one place at a time and runs the tests that get there.
//!
//! All changes are compiled at once into a copy of the tree, each behind a probe that an
//! environment variable turns on, so that there is one build and not one for each. The same probes
//! tell which test reaches which function; under a change only the tests that reach its function
//! are run, the nearest and quickest first, until one fails or does not end: that one has caught
//! the change; else it survives.
//!
//! What came of a change is written down at once: a run that was interrupted goes on with
//! `--resume`, and after tests were added `--again` asks for what survived only.
//!
//! `survivors.txt` holds the changes that are known to survive, with the reason. It may only
//! shrink: each is a place that no test holds.

mod build;
mod copy;
mod crates;
mod generate;
mod jail;
mod past;
mod replace;
mod subjects;
mod syntax;
mod trial;
mod weave;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use self::generate::{Generated, Mutant};
use self::jail::{End, Jail};
use self::past::Past;
use self::trial::Test;
use crate::{behaviours, tree};

const KNOWN: &str = "tools/xtask/survivors.txt";

/// What to change.
pub(crate) struct Wish {
    /// Files and folders; without them all.
    pub(crate) files: Vec<String>,
    /// Only functions that rows of `behaviours.md` rest on.
    pub(crate) rows: bool,
    /// Files that changed since this commit.
    pub(crate) since: Option<String>,
    /// Of all that is compiled, only changes whose names begin so.
    pub(crate) only: Vec<String>,
    /// Leave out what was caught before.
    pub(crate) again: bool,
    /// Go on where a run was interrupted.
    pub(crate) resume: bool,
    /// How many tests run at once.
    pub(crate) jobs: usize,
    /// Try every so many-th change only.
    pub(crate) every: usize,
}

/// Changes what is wished for and compares the survivors with those known.
pub(crate) fn run(root: &Path, wish: &Wish) -> Result<()> {
    let files = tree::read(root)?;
    let rows = behaviours::shown_by(root)?;
    let of_rows = subjects::of(&files, &rows);
    let chosen = choose(root, wish, &files, &of_rows)?;
    if chosen.is_empty() {
        println!("mutants: there is nothing to change");
        return Ok(());
    }
    let (work, copy) = places(root)?;
    let code = subjects::code(&files);
    let sources: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| code.contains(&file.path))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let Compiled {
        generated,
        refused,
        executables,
    } = compile(root, &copy, (&sources, &chosen), &work.join("refused.txt"))?;
    let jails: Vec<Jail> = (0..wish.jobs.max(1))
        .map(|number| Jail::new(&work.join(format!("out{number}"))))
        .collect::<Result<_>>()?;
    let functions = generated.values().flat_map(|file| file.functions.iter());
    let functions: Vec<String> = functions.cloned().collect();
    let reached = work.join("reached.jsonl");
    past::forget_changed(&files, &work.join("traced.txt"), &reached)?;
    let tests = trial::trace(&executables, &functions, &reached, &jails)?;
    let in_rows: BTreeSet<&str> = tests
        .iter()
        .filter(|test| rows.contains_key(test.short()))
        .flat_map(|test| test.reaches.iter().map(String::as_str))
        .collect();
    let asked = asked(wish, &generated, |mutant| {
        !wish.rows || in_rows.contains(functions[mutant.function].as_str())
    });
    let past = Past::open(&work.join("tried.txt"), wish)?;
    let todo: Vec<(usize, &Mutant)> = asked
        .iter()
        .filter(|(_, mutant)| !past.caught.contains(&mutant.name))
        .step_by(wish.every.max(1))
        .filter(|(_, mutant)| !past.is_done(&mutant.name))
        .copied()
        .collect();
    println!(
        "mutants: {} changes, {} to be tried",
        asked.len(),
        todo.len()
    );
    tell_folders(&asked);
    let trial = Trial {
        functions: &functions,
        tests: &tests,
        rows: &rows,
        executables: &executables,
        noticed: Mutex::default(),
    };
    let tried = trial.all(&todo, &jails, past)?;
    let refused = refused.iter().filter(|name| chosen.contains(file_of(name)));
    tell(&tried, todo.len(), asked.len(), refused.count());
    let names = asked.iter().map(|(_, mutant)| mutant.name.as_str());
    let names: BTreeSet<&str> = names.collect();
    past::compare(root, &tried, |name| {
        !wish.rows
            && wish.only.is_empty()
            && chosen.contains(file_of(name))
            && !names.contains(name)
    })
}

/// Where the work is kept, and the copy of the tree that is built.
fn places(root: &Path) -> Result<(PathBuf, PathBuf)> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let work = target.join("mutants");
    let copy = work.join("tree");
    fs::create_dir_all(&copy)?;
    Ok((work, copy))
}

fn tell(tried: &Tried, todo: usize, asked: usize, refused: usize) {
    println!(
        "mutants: {todo} tried: {} caught, {} of them by their time; {} survive; {} more were not \
         tried, {refused} did not compile",
        tried.caught.len(),
        tried.timed_out,
        tried.survivors.len(),
        asked - todo,
    );
}

/// How many changes there are in each folder of a crate.
fn tell_folders(asked: &[(usize, &Mutant)]) {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, mutant) in asked {
        let path = file_of(&mutant.name);
        let inner = path.find("src/").map_or(0, |at| at + 4);
        let end = path[inner..].find('/').map_or(inner, |at| inner + at);
        *folders.entry(&path[..end]).or_default() += 1;
    }
    for (folder, count) in folders {
        println!("mutants: {count:>6} in {folder}");
    }
}

/// What is compiled and asked for, with its place among all.
fn asked<'a>(
    wish: &Wish,
    generated: &'a BTreeMap<String, Generated>,
    rests: impl Fn(&Mutant) -> bool,
) -> Vec<(usize, &'a Mutant)> {
    let named = |mutant: &Mutant| {
        let begins = |start: &String| mutant.name.starts_with(start.as_str());
        wish.only.is_empty() || wish.only.iter().any(begins)
    };
    let all = generated.values().flat_map(|file| &file.mutants);
    all.enumerate()
        .filter(|(_, mutant)| rests(mutant) && named(mutant))
        .collect()
}

/// Files of code that are asked for.
fn choose(
    root: &Path,
    wish: &Wish,
    files: &[tree::File],
    of_rows: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let code = subjects::code(files);
    let mut chosen = BTreeSet::new();
    if let Some(base) = &wish.since {
        let changed = changed(root, base)?;
        chosen.extend(code.intersection(&changed).cloned());
    } else if wish.files.is_empty() {
        chosen.extend(code.iter().cloned());
    }
    for name in &wish.files {
        let below = format!("{}/", name.trim_end_matches('/'));
        let some: Vec<&String> = code
            .iter()
            .filter(|path| *path == name || path.starts_with(&below))
            .collect();
        ensure!(!some.is_empty(), "no code of drover to change: {name}");
        chosen.extend(some.into_iter().cloned());
    }
    if wish.rows {
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

/// The changed copy, ready to be run.
struct Compiled {
    generated: BTreeMap<String, Generated>,
    /// The names of changes that do not compile.
    refused: BTreeSet<String>,
    executables: BTreeMap<String, build::Executable>,
}

/// Writes the copy with every change that compiles, and builds its tests.
fn compile(
    root: &Path,
    copy: &Path,
    (sources, chosen): (&BTreeMap<&str, &str>, &BTreeSet<String>),
    remembered: &Path,
) -> Result<Compiled> {
    // What was refused before is known: then there is hardly a reason to check first.
    let mut check = !remembered.exists();
    let mut refused = read_lines(remembered);
    loop {
        let mut generated = BTreeMap::new();
        let mut changed = BTreeMap::new();
        let mut first = (0, 0);
        for (path, text) in sources {
            // What is not to be changed tells what is reached of it.
            let is_refused = |name: &str| !chosen.contains(*path) || refused.contains(name);
            let file = generate::generate(path, text, first, &is_refused)?;
            first = (first.0 + file.functions.len(), first.1 + file.mutants.len());
            let mut text = file.text.clone();
            if crates::is_root(path) {
                text.push_str(copy::declaration());
            }
            changed.insert((*path).to_owned(), text);
            generated.insert((*path).to_owned(), file);
        }
        copy::write(root, copy, &changed, first.0)?;
        println!(
            "mutants: {} changes in {} functions, {} refused",
            first.1,
            first.0,
            refused.len()
        );
        let mut more = BTreeSet::new();
        if check {
            more = build::check(copy, &crates::packages(), &generated)?;
            check = !more.is_empty();
        }
        if !check {
            match build::tests(copy, &crates::packages(), &generated)? {
                Ok(executables) => {
                    return Ok(Compiled {
                        generated,
                        refused,
                        executables,
                    });
                }
                Err(names) => more = names,
            }
        }
        refused.extend(more);
        let lines: Vec<&str> = refused.iter().map(String::as_str).collect();
        fs::write(remembered, lines.join("\n"))?;
    }
}

/// What changes are tried with.
struct Trial<'a> {
    functions: &'a [String],
    tests: &'a [Test],
    rows: &'a BTreeMap<String, String>,
    executables: &'a BTreeMap<String, build::Executable>,
    /// The tests that noticed a change, by the function that it was in.
    noticed: Mutex<BTreeMap<usize, BTreeSet<String>>>,
}

#[derive(Default)]
struct Tried {
    caught: BTreeSet<String>,
    timed_out: usize,
    survivors: BTreeSet<String>,
    done: usize,
}

impl Trial<'_> {
    fn all(&self, todo: &[(usize, &Mutant)], jails: &[Jail], past: Past) -> Result<Tried> {
        let Past {
            mut file,
            survivors,
            ..
        } = past;
        let survivors = Tried {
            survivors,
            ..Tried::default()
        };
        let tried = Mutex::new((survivors, &mut file));
        let start = Instant::now();
        trial::spread(jails, todo.len(), |jail, at| {
            let (id, mutant) = todo[at];
            let end = self.one(jail, id, mutant)?;
            let mut tried = tried.lock().expect("no holder panics");
            let (tried, file) = &mut *tried;
            tried.done += 1;
            past::note(file, &mutant.name, end)?;
            if end == End::Passed {
                println!("mutants: survives: {} (line {})", mutant.name, mutant.line);
                tried.survivors.insert(mutant.name.clone());
            } else {
                tried.timed_out += usize::from(end == End::TimedOut);
                tried.caught.insert(mutant.name.clone());
            }
            if tried.done % 100 == 0 {
                let (done, survive) = (tried.done, tried.survivors.len());
                let a_minute = done as f64 * 60.0 / start.elapsed().as_secs_f64();
                println!(
                    "mutants: {done} of {} tried, {survive} survive; {a_minute:.0} a minute",
                    todo.len()
                );
            }
            Ok(())
        })?;
        Ok(tried.into_inner().expect("no holder panics").0)
    }

    fn one(&self, jail: &Jail, id: usize, mutant: &Mutant) -> Result<End> {
        let function = &self.functions[mutant.function];
        let tests: Vec<&Test> = self
            .tests
            .iter()
            .filter(|test| test.reaches.contains(function))
            .collect();
        let path = file_of(&mutant.name);
        let near =
            |test: &Test| nearness(path, test) + usize::from(self.rows.contains_key(test.short()));
        let lock = || self.noticed.lock().expect("no holder panics");
        let before = lock().get(&mutant.function).cloned().unwrap_or_default();
        let order = trial::order(&tests, &before, &near);
        if is_dangerous(path) {
            jail.renew();
        }
        let (end, by) = trial::noticed(self.executables, jail, &order, id)?;
        lock().entry(mutant.function).or_default().extend(by);
        Ok(end)
    }
}

/// Code that starts, ends and mounts things: what it leaves behind is no matter of the next.
fn is_dangerous(path: &str) -> bool {
    path.starts_with("src/client/")
}

/// How much of a test's place is the file's: tests of its own module are nearest. All of a crate's
/// suite are near: what they tell of does not go by modules.
fn nearness(path: &str, test: &Test) -> usize {
    let Some((own, inner)) = crates::of(path) else {
        return 0;
    };
    let of_suite = crates::is_suite_of(&test.executable, &own);
    if own != test.executable && !of_suite {
        return 0;
    }
    let inner = inner.trim_end_matches(".rs").trim_end_matches("/mod");
    let module: Vec<&str> = inner.split('/').collect();
    let place: Vec<&str> = test.name.split("::").collect();
    let common = module
        .iter()
        .zip(&place)
        .take_while(|(a, b)| a == b)
        .count();
    let is_named = |part: &&&str| {
        place[common..]
            .iter()
            .any(|other| other.starts_with(**part))
    };
    let named = module[common..].iter().filter(is_named).count();
    2 * (common + named + usize::from(of_suite))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_a_files_module_are_nearest() {
        let near = |path: &str, executable: &str, name: &str| {
            let test = Test {
                executable: executable.to_owned(),
                name: name.to_owned(),
                took: std::time::Duration::ZERO,
                reaches: BTreeSet::new(),
            };
            nearness(path, &test)
        };
        let of_rank =
            |executable: &str, name: &str| near("src/scheduler/rank/mod.rs", executable, name);
        assert_eq!(of_rank("drover_scheduler", "rank::it"), 2);
        assert_eq!(
            of_rank("scheduler", "rollout::it"),
            2,
            "it is the crate's suite"
        );
        assert_eq!(of_rank("drover", "reactors::it"), 0);
        let of_sync = |name: &str| near("src/client/sync.rs", "drover", name);
        assert_eq!(of_sync("client::sync::tests::it"), 4);
        assert_eq!(of_sync("client::agent::tests::it"), 2);
        assert_eq!(of_sync("http::tests::it"), 0);
        let of_plan =
            |name: &str| near("projections/src/apply/plan.rs", "drover_projections", name);
        assert_eq!(of_plan("apply::tests::plans::it"), 4, "it is named there");
        assert_eq!(of_plan("apply::tests::jobs::it"), 2);
        let of_status = |name: &str| {
            near(
                "projections/src/apply/job/status.rs",
                "drover_projections",
                name,
            )
        };
        assert_eq!(of_status("apply::tests::jobs::it"), 4, "its folder is");
        assert_eq!(
            near("src/apply/mod.rs", "drover_projections", "apply::it"),
            0
        );
    }
}
