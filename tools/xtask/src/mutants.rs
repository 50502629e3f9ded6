//! Would a test notice? Changes functions one at a time and runs the tests of their crate.
//!
//! `cargo mutants` does the work (`cargo install cargo-mutants`); here is which files, and what of
//! its survivors is known. Without names those files are taken whose code changed since a commit.
//! The list of known survivors may only shrink: each is a place that no test holds.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

const KNOWN: &str = "tools/xtask/survivors.txt";

/// Mutates `files`, or what changed since `base`, and compares the survivors with those known.
pub(crate) fn run(root: &Path, base: &str, files: &[String]) -> Result<()> {
    let found = Command::new("cargo")
        .args(["mutants", "--version"])
        .output();
    ensure!(
        found.is_ok_and(|output| output.status.success()),
        "no cargo-mutants: cargo install --locked cargo-mutants"
    );
    let files = if files.is_empty() {
        changed(root, base)?
    } else {
        files.to_vec()
    };
    if files.is_empty() {
        println!("mutants: nothing changed since {base}");
        return Ok(());
    }
    let work = std::env::temp_dir().join(format!("drover-mutants-{}", std::process::id()));
    let mut survivors = BTreeSet::new();
    let mut caught = 0;
    for file in &files {
        let (missed, others) = mutate(root, &work, file)?;
        survivors.extend(missed);
        caught += others;
    }
    fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
    compare(root, &files, &survivors)?;
    println!(
        "mutants: {caught} caught, {} known survivors in {} files",
        survivors.len(),
        files.len()
    );
    Ok(())
}

/// Files of code, not of tests, that differ from a commit.
fn changed(root: &Path, base: &str) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["diff", "--name-only", "--diff-filter=d", base, "--", "*.rs"])
        .current_dir(root)
        .output()
        .context("git diff")?;
    ensure!(output.status.success(), "git knows no commit {base:?}");
    let names = String::from_utf8(output.stdout)?;
    let is_code = |name: &&str| {
        !name.starts_with("tests/")
            && !name.starts_with("tools/")
            && !name.ends_with("_test.rs")
            && !name.contains("/tests")
    };
    Ok(names.lines().filter(is_code).map(str::to_owned).collect())
}

/// The survivors of one file as `file: what became of it`, and how many were caught.
fn mutate(root: &Path, work: &Path, file: &str) -> Result<(BTreeSet<String>, usize)> {
    fs::create_dir_all(work)?;
    let status = Command::new("cargo")
        .args(["mutants", "--in-place", "--no-shuffle", "--colors", "never"])
        .args(["--baseline", "skip", "--timeout", "300", "--file", file])
        .arg("--output")
        .arg(work)
        .args(["--", "--lib"])
        .current_dir(root)
        .status()
        .context("cargo mutants")?;
    // 2: some were missed, 3: some ran into the time limit.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo mutants: {status} on {file}");
    }
    let list = |name: &str| {
        let text = fs::read_to_string(work.join("mutants.out").join(name)).unwrap_or_default();
        text.lines().map(plain).collect::<Vec<_>>()
    };
    let caught = list("caught.txt").len() + list("timeout.txt").len();
    Ok((list("missed.txt").into_iter().collect(), caught))
}

/// A survivor without its line and column, which move.
fn plain(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(what)) => format!("{file}:{what}"),
        _ => line.to_owned(),
    }
}

fn compare(root: &Path, files: &[String], survivors: &BTreeSet<String>) -> Result<()> {
    let text = fs::read_to_string(root.join(KNOWN)).unwrap_or_default();
    let of_these = |line: &&str| {
        let file = line.split(':').next().unwrap_or_default();
        files.iter().any(|other| other == file)
    };
    let known: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter(of_these)
        .map(str::to_owned)
        .collect();
    for new in survivors.difference(&known) {
        println!("mutants: survives: {new}");
    }
    for gone in known.difference(survivors) {
        println!("mutants: {KNOWN}: is caught now, take it out: {gone}");
    }
    ensure!(*survivors == known, "survivors are not those of {KNOWN}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_is_known_wherever_its_line_went() {
        let line = "src/a.rs:12:5: replace f -> bool with true";
        assert_eq!(plain(line), "src/a.rs: replace f -> bool with true");
        assert_eq!(plain("odd"), "odd");
    }

    #[test]
    fn survivors_must_be_those_that_are_known() {
        let dir = tempfile::tempdir().expect("dir");
        fs::create_dir_all(dir.path().join("tools/xtask")).expect("made");
        fs::write(
            dir.path().join(KNOWN),
            "# known\nsrc/a.rs: x\nsrc/b.rs: y\n",
        )
        .expect("written");
        let files = ["src/a.rs".to_owned()];
        let of = |lines: &[&str]| {
            lines
                .iter()
                .map(|l| (*l).to_owned())
                .collect::<BTreeSet<_>>()
        };
        compare(dir.path(), &files, &of(&["src/a.rs: x"])).expect("known");
        assert!(
            compare(dir.path(), &files, &of(&[])).is_err(),
            "it is caught now"
        );
        assert!(compare(dir.path(), &files, &of(&["src/a.rs: x", "src/a.rs: z"])).is_err());
    }
}
