//! Sizes, words, essays and layers.

use std::path::Path;

use anyhow::Result;

use crate::behaviours;
use crate::citations;
use crate::glossary;
use crate::graph;
use crate::habits;
use crate::lexer;
use crate::ratchet::{self, Excess};
use crate::repeats;
use crate::settings;
use crate::test_habits;
use crate::tree::{self, File};

/// Most lines of a file, inline tests not counted.
const FILE_LINES: usize = 600;
/// Above this many lines a file is mentioned.
const FILE_LINES_SOFT: usize = 400;
/// Most lines of a function.
const FUNCTION_LINES: usize = 70;
/// Most characters of a line.
const COLUMNS: usize = 100;

/// Files that have a limit of their own.
const SPECIAL_LINES: &[(&str, usize)] = &[
    ("README.md", 150),
    ("src/main.rs", 40),
    ("projections/src/apply/mod.rs", 150),
];

/// What may stand at the top.
const TOP_LEVEL: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "src",
    "events",
    "projections",
    "migrations",
    "tests",
    "tools",
];

/// Words that have no place in the project, in two pieces so that this file does not hold them.
const WORDS: &[(&str, &str, &str)] = &[
    ("/wo", "rk/", "a path of one machine"),
    ("/ro", "ot/", "a path of one machine"),
    ("to", "do!(", "unfinished work does not land"),
    ("unimple", "mented!(", "unfinished work does not land"),
    ("db", "g!(", "left-over debugging"),
    ("crates", ".io", "the name of a registry's host"),
    ("proxy.gol", "ang.org", "the name of a registry's host"),
    ("TO", "DO", "unfinished work is an issue, not a comment"),
    ("FIX", "ME", "unfinished work is an issue, not a comment"),
];

/// What the pure scheduler must not name.
const IMPURE: &[&str] = &[
    "async fn",
    "tokio::",
    "drover_base::clock",
    "SystemTime::now",
    "Instant::now",
    "std::env",
    "thread::spawn",
    " rand::",
    "std::fs",
    "std::net",
    "std::collections::HashMap",
    "std::collections::HashSet",
];

/// What was measured and found.
pub(crate) struct Measured {
    /// Values above a limit, which the ratchet may know.
    pub(crate) excess: Excess,
    /// Problems that no list excuses.
    pub(crate) problems: Vec<String>,
    /// Things worth knowing.
    pub(crate) notes: Vec<String>,
}

impl Measured {
    /// So many places in a file, none of which should be there.
    pub(crate) fn count(&mut self, measure: &str, file: &File, found: usize) {
        if found > 0 {
            let place = (measure.to_owned(), file.path.clone());
            self.excess.insert(place, found);
        }
    }
}

/// Checks the tree: problems, then notes.
pub(crate) fn check(root: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let measured = measure(root)?;
    let mut problems = measured.problems;
    problems.extend(ratchet::check(root, &measured.excess)?);
    Ok((problems, measured.notes))
}

/// Measures the tree.
pub(crate) fn measure(root: &Path) -> Result<Measured> {
    let mut measured = Measured {
        excess: Excess::new(),
        problems: top_level(root)?,
        notes: Vec::new(),
    };
    let files = tree::read(root)?;
    let mut lengths = Vec::new();
    for file in &files {
        words(file, &mut measured.problems);
        special(file, &mut measured.problems);
        if file.is_rust() {
            lengths.push(rust(file, &mut measured));
        }
    }
    settings::check(&files, &mut measured.excess, &mut measured.problems);
    measured.problems.extend(glossary::check(&files));
    measured.problems.extend(citations::check(&files));
    for src in graph::CRATES {
        let graph = graph::read(&files, src);
        measured.problems.extend(graph::circles(&graph));
    }
    inner_circles(&files, &mut measured);
    let remaining = behaviours::remaining(&files)?;
    if remaining > 0 {
        let place = (
            "remaining-behaviours".to_owned(),
            behaviours::REMAINING.to_owned(),
        );
        measured.excess.insert(place, remaining);
    }
    lengths.sort_unstable();
    if !lengths.is_empty() {
        let at = |share: usize| lengths[(lengths.len() - 1) * share / 100];
        let soft = lengths
            .iter()
            .filter(|length| **length > FILE_LINES_SOFT)
            .count();
        measured.notes.push(format!(
            "{} Rust files, {} lines; median {}, p90 {}, longest {}; {soft} above {}",
            lengths.len(),
            lengths.iter().sum::<usize>(),
            at(50),
            at(90),
            at(100),
            FILE_LINES_SOFT,
        ));
    }
    Ok(measured)
}

/// Circles of modules within folders.
fn inner_circles(files: &[File], measured: &mut Measured) {
    for src in graph::INNER {
        for place in graph::inner::places(files, src) {
            let inner = graph::inner::read(files, src, &place);
            measured.problems.extend(graph::inner::circles(&inner));
            let circling = graph::inner::circling(&inner.modules).len();
            if circling > 0 {
                let place = ("circling-modules".to_owned(), place);
                measured.excess.insert(place, circling);
            }
        }
    }
}

fn top_level(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && name != "target" && !TOP_LEVEL.contains(&name.as_str()) {
            problems.push(format!("{name}: does not belong at the top level"));
        }
    }
    Ok(problems)
}

fn words(file: &File, problems: &mut Vec<String>) {
    let data = ["Cargo.lock", ".json", ".ndjson", ".sum", "LICENSE"];
    if data.iter().any(|suffix| file.path.ends_with(suffix)) {
        return;
    }
    for (first, second, reason) in WORDS {
        let word = format!("{first}{second}");
        for (number, line) in file.text.lines().enumerate() {
            if contains_word(line, &word) {
                problems.push(format!("{}:{}: {word:?}: {reason}", file.path, number + 1));
            }
        }
    }
    for part in file.path.split('/') {
        if matches!(
            part.trim_end_matches(".rs"),
            "utils" | "util" | "common" | "helpers" | "misc"
        ) {
            problems.push(format!("{}: a name that says nothing", file.path));
        }
    }
}

/// A word that begins with a letter must not follow one.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        // `../x` and `$HOME/x` are not places on one machine.
        let relative =
            word.starts_with('/') && before.is_some_and(|c| matches!(c, '.' | '}' | '>' | '$'));
        let longer = letter(before) || (word.ends_with(char::is_alphabetic) && letter(after));
        !relative && !longer
    })
}

fn special(file: &File, problems: &mut Vec<String>) {
    for (path, limit) in SPECIAL_LINES {
        let lines = file.text.lines().count();
        if file.path == *path && lines > *limit {
            problems.push(format!("{path}: {lines} lines, at most {limit}"));
        }
    }
}

/// Checks one Rust file; its length without inline tests.
fn rust(file: &File, measured: &mut Measured) -> usize {
    let blanked = lexer::blank(&file.text);
    let lines: Vec<&str> = blanked.lines().collect();
    let test = lexer::test_lines(&lines);
    let length = test.iter().filter(|test| !**test).count();
    if length > FILE_LINES {
        measured
            .excess
            .insert(("file-lines".to_owned(), file.path.clone()), length);
    }
    let long = file
        .text
        .lines()
        .filter(|line| line.chars().count() > COLUMNS)
        .count();
    if long > 0 {
        measured
            .excess
            .insert(("long-lines".to_owned(), file.path.clone()), long);
    }
    for function in lexer::functions(&lines) {
        let lines = function.end - function.start + 1;
        if lines > FUNCTION_LINES {
            let place = format!("{}::{}", file.path, function.name);
            let known = measured
                .excess
                .entry(("function-lines".to_owned(), place))
                .or_default();
            *known = (*known).max(lines);
        }
    }
    habits::check(file, &lines, &test, measured);
    test_habits::check(file, &lines, &test, measured);
    repeats::check(file, &mut measured.problems);
    essay(file, &mut measured.problems);
    layers(file, &lines, &test, measured);
    length
}

fn essay(file: &File, problems: &mut Vec<String>) {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    if matches!(name, "mod.rs" | "lib.rs") && !file.text.starts_with("//!") {
        problems.push(format!(
            "{}: does not open with what it is (`//!`)",
            file.path
        ));
    }
}

fn layers(file: &File, lines: &[&str], test: &[bool], measured: &mut Measured) {
    for (number, line) in lines.iter().enumerate() {
        let place = || format!("{}:{}", file.path, number + 1);
        if file.path.starts_with("src/scheduler/") && !test[number] && !file.is_test() {
            for word in IMPURE.iter().filter(|word| line.contains(*word)) {
                let place = place();
                measured
                    .problems
                    .push(format!("{place}: {word}: the scheduler is pure"));
            }
        }
        let product = ["src/", "events/", "projections/", "migrations/"];
        let product = product.iter().any(|dir| file.path.starts_with(dir));
        let printing = line.contains("println!(") || line.contains("eprintln!(");
        let cli = file.path.starts_with("src/cli/")
            || ["src/main.rs", "src/agent/mod.rs"].contains(&file.path.as_str());
        if product && !cli && printing && !test[number] && !file.is_test() {
            measured
                .problems
                .push(format!("{}: only the CLI prints", place()));
        }
    }
}
