//! What is known of former runs: what came of each change, what tests reached, and which
//! survivors are listed.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{KNOWN, RunOptions};
use crate::tree;

/// Stands where a run began.
const BEGUN: &str = "begun";

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A test failed.
    Caught,
    /// Tests did not end in time.
    Late,
    Survives,
    /// No test runs there.
    Unreached,
}

impl Answer {
    const ALL: [Self; 4] = [Self::Caught, Self::Late, Self::Survives, Self::Unreached];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Late => "late",
            Self::Survives => "survives",
            Self::Unreached => "unreached",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.word() == word)
    }

    /// Whether a test noticed.
    pub(super) fn is_caught(self) -> bool {
        matches!(self, Self::Caught | Self::Late)
    }
}

/// What came of changes, in this run and before.
pub(super) struct Past {
    file: File,
    /// What was caught in former runs and is not tried again.
    pub(super) caught: BTreeSet<String>,
    /// What came of those of this run, and of the one that it continues.
    pub(super) answers: BTreeMap<String, Answer>,
}

impl Past {
    pub(super) fn open(path: &Path, request: &RunOptions) -> Result<Self> {
        let mut text = fs::read_to_string(path).unwrap_or_default();
        // A last line that was cut short may be the name of another change.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        let (caught, answers) = read(&text, request);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        file.set_len(text.len() as u64)?;
        file.seek(SeekFrom::End(0))?;
        if !request.go_on {
            writeln!(file, "{BEGUN}")?;
        }
        Ok(Self {
            file,
            caught,
            answers,
        })
    }

    /// Writes down what came of a change.
    pub(super) fn note(&mut self, name: &str, answer: Answer) -> Result<()> {
        writeln!(self.file, "{} {name}", answer.word())?;
        self.answers.insert(name.to_owned(), answer);
        Ok(())
    }
}

/// What was caught before, and what came of those that the last run was done with; each as far as
/// it is wished to be left out.
fn read(text: &str, request: &RunOptions) -> (BTreeSet<String>, BTreeMap<String, Answer>) {
    let mut former: BTreeSet<String> = BTreeSet::new();
    let mut last: BTreeMap<String, Answer> = BTreeMap::new();
    for line in text.lines() {
        if line == BEGUN {
            former.extend(caught(&last));
            last.clear();
        } else if let Some((word, name)) = line.split_once(' ')
            && let Some(answer) = Answer::of(word)
        {
            former.remove(name);
            last.insert(name.to_owned(), answer);
        }
    }
    if !request.go_on {
        former.extend(caught(&last));
        last.clear();
    }
    if !request.again {
        former.clear();
    }
    (former, last)
}

fn caught(answers: &BTreeMap<String, Answer>) -> BTreeSet<String> {
    let caught = answers.iter().filter(|(_, answer)| answer.is_caught());
    caught.map(|(name, _)| name.clone()).collect()
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
    format!("{:016x}", number(text))
}

/// A number that follows from a text, and is any.
pub(super) fn number(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
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
        // What serves a suite may serve any test of it, and so all are run again.
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
pub(super) fn compare(
    root: &Path,
    answers: &BTreeMap<String, Answer>,
    is_gone: impl Fn(&str) -> bool,
) -> Result<()> {
    let text = fs::read_to_string(root.join(KNOWN)).unwrap_or_default();
    let known: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_owned)
        .collect();
    let mut listed = true;
    for (name, answer) in answers {
        if answer.is_caught() && known.contains(name) {
            println!("mutants: {KNOWN}: is caught now, take it out: {name}");
            listed = false;
        } else if !answer.is_caught() && !known.contains(name) {
            println!("mutants: no test notices: {name}");
            listed = false;
        }
    }
    for gone in known.iter().filter(|name| is_gone(name)) {
        println!("mutants: {KNOWN}: there is no such change any more, take it out: {gone}");
        listed = false;
    }
    ensure!(listed, "survivors are not those of {KNOWN}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(again: bool, go_on: bool) -> RunOptions {
        RunOptions {
            again,
            go_on,
            ..RunOptions::default()
        }
    }

    #[test]
    fn an_interrupted_run_goes_on_and_what_was_caught_is_left_out() {
        let text = "begun\ncaught a\nsurvives b\ncaught d\nbegun\nlate b\nsurvives c\n\
                    unreached d\nnonsense e\n";
        let of = |again, go_on| {
            let (caught, answers) = read(text, &request(again, go_on));
            let caught: Vec<String> = caught.into_iter().collect();
            let reported = |(name, answer): (&String, &Answer)| format!("{} {name}", answer.word());
            let answers: Vec<String> = answers.iter().map(reported).collect();
            (caught.join(", "), answers.join(", "))
        };
        let two = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of(false, false), two("", ""), "everything anew");
        assert_eq!(of(true, false), two("a, b", ""));
        let last = "late b, survives c, unreached d";
        assert_eq!(of(false, true), two("", last));
        assert_eq!(of(true, true), two("a", last));
    }

    #[test]
    fn what_came_of_a_change_is_there_when_the_run_goes_on() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("tried");
        let mut first = Past::open(&path, &request(false, false)).expect("opened");
        first.note("a: f: 1", Answer::Caught).expect("written");
        first.note("a: f: 2", Answer::Unreached).expect("written");
        // The run ends in the middle of a line.
        first.file.write_all(b"caught a: f").expect("written");
        let mut again = Past::open(&path, &request(false, true)).expect("opened");
        assert_eq!(again.answers, first.answers);
        again.note("a: f: 3", Answer::Late).expect("written");
        let text = fs::read_to_string(&path).expect("written");
        assert_eq!(
            text,
            "begun\ncaught a: f: 1\nunreached a: f: 2\nlate a: f: 3\n"
        );
        let anew = Past::open(&path, &request(true, false)).expect("opened");
        assert!(anew.answers.is_empty(), "this run has none yet");
        assert_eq!(
            anew.caught,
            ["a: f: 1", "a: f: 3"].map(str::to_owned).into()
        );
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
        let with = |survivors: &[&str], caught: &[&str], gone: &str| {
            let survive = survivors.iter().map(|name| (*name, Answer::Survives));
            let caught = caught.iter().map(|name| (*name, Answer::Caught));
            let answers = survive.chain(caught);
            let answers = answers.map(|(name, answer)| (name.to_owned(), answer));
            compare(dir.path(), &answers.collect(), |name| name == gone)
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
