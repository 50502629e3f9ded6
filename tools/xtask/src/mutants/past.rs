//! What is known of former runs: what came of each change, what tests reached, and which
//! survivors are listed.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::jail::End;
use super::{KNOWN, Tried, Wish};
use crate::tree;

/// Stands where a run began.
const BEGUN: &str = "begun";

/// What came of changes before.
pub(super) struct Past {
    pub(super) file: File,
    /// What is not asked again.
    pub(super) caught: BTreeSet<String>,
    /// What the interrupted run was done with.
    done: BTreeSet<String>,
    /// What survived in the interrupted run.
    pub(super) survivors: BTreeSet<String>,
}

impl Past {
    pub(super) fn open(path: &Path, wish: &Wish) -> Result<Self> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if !wish.resume {
            writeln!(file, "{BEGUN}")?;
        }
        let (caught, done, survivors) = read(&text, wish);
        Ok(Self {
            file,
            caught,
            done,
            survivors,
        })
    }

    pub(super) fn is_done(&self, name: &str) -> bool {
        self.done.contains(name)
    }
}

/// What was caught before, what the last run was done with, and what survived in it; each as far
/// as it is wished to be left out.
fn read(text: &str, wish: &Wish) -> (BTreeSet<String>, BTreeSet<String>, BTreeSet<String>) {
    let mut former: BTreeSet<String> = BTreeSet::new();
    let mut last: BTreeMap<String, bool> = BTreeMap::new();
    for line in text.lines() {
        if line == BEGUN {
            former.extend(last.iter().filter(|(_, caught)| **caught).map(name_of));
            last.clear();
        } else if let Some((end, name)) = line.split_once(' ') {
            let caught = end != "survives";
            former.remove(name);
            last.insert(name.to_owned(), caught);
        }
    }
    let mut done = BTreeSet::new();
    let mut survivors = BTreeSet::new();
    if wish.resume {
        done.extend(last.keys().cloned());
        survivors.extend(last.iter().filter(|(_, caught)| !**caught).map(name_of));
    } else {
        former.extend(last.iter().filter(|(_, caught)| **caught).map(name_of));
    }
    if !wish.again {
        former.clear();
    }
    (former, done, survivors)
}

fn name_of((name, _): (&String, &bool)) -> String {
    name.clone()
}

/// Writes down what came of a change.
pub(super) fn note(file: &mut File, name: &str, end: End) -> Result<()> {
    let word = match end {
        End::Passed => "survives",
        End::Failed => "caught",
        End::TimedOut => "late",
    };
    writeln!(file, "{word} {name}")?;
    Ok(())
}

/// Takes out of what tests reached what may be another now: tests that reach a file that changed,
/// and those that stand in it.
pub(super) fn forget_changed(files: &[tree::File], traced: &Path, reached: &Path) -> Result<()> {
    let old: BTreeMap<String, String> = fs::read_to_string(traced)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(hash, path)| (path.to_owned(), hash.to_owned()))
        .collect();
    let new: BTreeMap<&str, String> = files
        .iter()
        .filter(|file| file.is_rust())
        .map(|file| (file.path.as_str(), hash(&file.text)))
        .collect();
    let changed: BTreeSet<&str> = new
        .iter()
        .filter(|(path, hash)| old.get(**path) != Some(*hash))
        .map(|(path, _)| *path)
        .collect();
    let text = fs::read_to_string(reached).unwrap_or_default();
    let kept: String = text
        .lines()
        .filter(|line| !old.is_empty() && !is_stale(line, &changed))
        .flat_map(|line| [line, "\n"])
        .collect();
    fs::write(reached, kept)?;
    let lines: String = new
        .iter()
        .map(|(path, hash)| format!("{hash} {path}\n"))
        .collect();
    fs::write(traced, lines)?;
    Ok(())
}

fn hash(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn is_stale(line: &str, changed: &BTreeSet<&str>) -> bool {
    let Ok(test) = serde_json::from_str::<Value>(line) else {
        return true;
    };
    let mut reaches = test["reaches"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let name = test["test"].as_str().unwrap_or_default();
    reaches.any(|function| changed.contains(super::file_of(function)))
        || changed.iter().any(|path| name.starts_with(&place_of(path)))
}

/// How the names of the tests begin that a file may hold or serve: what serves tests serves those
/// of its folder.
fn place_of(path: &str) -> String {
    if let Some(inner) = super::crates::in_suite(path) {
        let stem = inner.trim_end_matches(".rs");
        // What serves a suite may serve any test of it, and so all are asked again.
        return match stem {
            "main" | "world" => String::new(),
            stem => stem.replace('/', "::"),
        };
    }
    let inner = super::crates::of(path).map_or(path, |(_, inner)| inner);
    let stem = inner.trim_end_matches(".rs");
    let folder = || stem.rsplit_once('/').map_or("", |(folder, _)| folder);
    let stem = match stem.rsplit('/').next().unwrap_or(stem) {
        "mod" | "lib" | "main" | "tests" | "testing" | "harness" | "world" => folder(),
        _ => stem.strip_suffix("_test").unwrap_or(stem),
    };
    // The root of a crate serves everything; its own tests are few.
    if stem.is_empty() {
        "tests::".to_owned()
    } else {
        stem.replace('/', "::")
    }
}

/// Compares survivors with those that are listed; `is_gone` says of a listed one that the code
/// has no such place any more.
pub(super) fn compare(root: &Path, tried: &Tried, is_gone: impl Fn(&str) -> bool) -> Result<()> {
    let text = fs::read_to_string(root.join(KNOWN)).unwrap_or_default();
    let known: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_owned)
        .collect();
    for new in tried.survivors.difference(&known) {
        println!("mutants: no test notices: {new}");
    }
    for gone in known.intersection(&tried.caught) {
        println!("mutants: {KNOWN}: is caught now, take it out: {gone}");
    }
    let unknown: Vec<&String> = known.iter().filter(|name| is_gone(name)).collect();
    for gone in &unknown {
        println!("mutants: {KNOWN}: there is no such change any more, take it out: {gone}");
    }
    let listed = tried.survivors.is_subset(&known) && known.is_disjoint(&tried.caught);
    ensure!(
        listed && unknown.is_empty(),
        "survivors are not those of {KNOWN}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(again: bool, resume: bool) -> Wish {
        Wish {
            files: Vec::new(),
            rows: false,
            since: None,
            only: Vec::new(),
            again,
            resume,
            jobs: 1,
            every: 1,
        }
    }

    #[test]
    fn an_interrupted_run_goes_on_and_what_was_caught_is_left_out() {
        let text = "begun\ncaught a\nsurvives b\ncaught d\nbegun\nlate b\nsurvives c\nsurvives d\n";
        let of = |again, resume| {
            let (caught, done, survivors) = read(text, &wish(again, resume));
            let words = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" ");
            (words(caught), words(done), words(survivors))
        };
        let three = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(of(false, false), three("", "", ""), "everything anew");
        assert_eq!(of(true, false), three("a b", "", ""));
        assert_eq!(of(false, true), three("", "b c d", "c d"));
        assert_eq!(of(true, true), three("a", "b c d", "c d"));
    }

    #[test]
    fn tests_are_named_after_the_files_they_are_in() {
        for (path, place) in [
            ("src/http/jobs/plan.rs", "http::jobs::plan"),
            ("src/http/reads_test.rs", "http::reads"),
            ("src/scheduler/rank/mod.rs", "rank"),
            ("tests/scheduler/rollout.rs", "rollout"),
            ("tests/scheduler/world.rs", ""),
        ] {
            assert_eq!(place_of(path), place, "{path}");
        }
    }

    #[test]
    fn what_a_changed_file_may_have_changed_is_forgotten() {
        let dir = tempfile::tempdir().expect("dir");
        let (traced, reached) = (dir.path().join("traced"), dir.path().join("reached"));
        let file = |path: &str, text: &str| tree::File {
            path: path.into(),
            text: text.into(),
        };
        let line = |test: &str, reaches: &str| {
            format!("{{\"test\": \"{test}\", \"reaches\": [\"{reaches}\"]}}\n")
        };
        let lines = [
            line("a::it", "src/b.rs: f"),
            line("c::it", "src/c.rs: g"),
            line("d::it", "src/c.rs: g"),
        ];
        let kept = || fs::read_to_string(&reached).expect("written");
        fs::write(&reached, lines.concat()).expect("written");
        let mut files = vec![
            file("src/b.rs", "1"),
            file("src/c.rs", "1"),
            file("src/d_test.rs", "1"),
        ];
        forget_changed(&files, &traced, &reached).expect("first");
        assert_eq!(kept(), "", "nobody knows what it was traced with");
        fs::write(&reached, lines.concat()).expect("written");
        forget_changed(&files, &traced, &reached).expect("the same");
        assert_eq!(kept(), lines.concat());
        files[0].text = "2".into();
        files[2].text = "2".into();
        forget_changed(&files, &traced, &reached).expect("changed");
        assert_eq!(kept(), lines[1]);
    }

    #[test]
    fn survivors_must_be_those_that_are_known() {
        let dir = tempfile::tempdir().expect("dir");
        fs::create_dir_all(dir.path().join("tools/xtask")).expect("made");
        let known = "# why\nsrc/a.rs: f: -> ()\nsrc/b.rs: g: -> ()\n";
        fs::write(dir.path().join(KNOWN), known).expect("written");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let with = |survivors: &[&str], caught: &[&str], gone: &str| {
            let (survivors, caught) = (names(survivors), names(caught));
            let tried = Tried {
                survivors,
                caught,
                ..Tried::default()
            };
            compare(dir.path(), &tried, |name| name == gone)
        };
        with(&["src/a.rs: f: -> ()"], &["src/c.rs: h: -> ()"], "").expect("known");
        let wrong = [
            (with(&[], &["src/a.rs: f: -> ()"], ""), "it is caught now"),
            (with(&["src/a.rs: f: -> true"], &[], ""), "nobody knows it"),
            (with(&[], &[], "src/b.rs: g: -> ()"), "it is gone"),
        ];
        for (answer, why) in wrong {
            assert!(answer.is_err(), "{why}");
        }
    }
}
