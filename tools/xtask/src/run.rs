//! `verify` and `fix`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{attacks, behaviours, changelog, deny, ratchet, routes, tidy};

/// Prints what a check found; fails when there are problems.
pub(crate) fn report(name: &str, (problems, notes): (Vec<String>, Vec<String>)) -> Result<()> {
    for problem in &problems {
        println!("{name}: {problem}");
    }
    for note in &notes {
        println!("{name}: {note}");
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{name}: {} problems", problems.len())
}

/// Checks everything and writes nothing.
pub(crate) fn verify(root: &Path, fast: bool) -> Result<()> {
    let mut failed = Vec::new();
    let mut begun = Instant::now();
    let mut check = |name: &str, outcome: Result<()>| {
        let seconds = begun.elapsed().as_secs();
        begun = Instant::now();
        if let Err(error) = outcome {
            println!("{name}: failed after {seconds} s: {error:#}");
            failed.push(name.to_owned());
        } else {
            println!("{name}: ok, {seconds} s");
        }
    };
    check("fmt", cargo(root, &["fmt", "--all", "--check"]));
    if !fast {
        let rest = ["--all-targets", "--locked", "--", "-D", "warnings"];
        let clippy = [&["clippy", "--workspace"][..], &rest].concat();
        check("clippy", cargo(root, &clippy));
        // Without Kafka, S3 and Parquet: no other package differs by them.
        let packages = ["-p", "drover", "-p", "drover-config"];
        let few = [&["clippy", "--no-default-features"][..], &packages, &rest].concat();
        check("features", cargo(root, &few));
        let doc = ["doc", "--workspace", "--no-deps", "--locked", "--quiet"];
        check("doc", cargo(root, &doc));
    }
    check(
        "tidy",
        tidy::check(root).and_then(|found| report("tidy", found)),
    );
    check(
        "behaviours",
        behaviours::check(root).and_then(|found| report("behaviours", found)),
    );
    check(
        "attacks",
        attacks::check(root).and_then(|found| report("attacks", found)),
    );
    check(
        "routes",
        routes::check(root).and_then(|found| report("routes", found)),
    );
    check(
        "changelog",
        changelog::check(root).and_then(|found| report("changelog", found)),
    );
    check(
        "deny",
        deny::check(root).and_then(|found| report("deny", found)),
    );
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}", failed.join(", "))
}

/// Formats, and lowers the ratchet.
pub(crate) fn fix(root: &Path) -> Result<()> {
    cargo(root, &["fmt", "--all"])?;
    ratchet::lower(root, &tidy::measure(root)?.excess)?;
    println!("formatted; ratchet lowered");
    Ok(())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    let status = cargo_at(root).args(arguments).status().context("cargo")?;
    if !status.success() {
        bail!("cargo {}", arguments[0]);
    }
    Ok(())
}

/// Cargo, to be run in a folder.
pub(crate) fn cargo_at(folder: &Path) -> Command {
    let mut command = Command::new("cargo");
    // Set by the cargo that runs this program, they would name this crate to the next one.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    command.current_dir(folder);
    command
}

/// Builds the event tool, with the features everything else is built with, and runs it.
pub(crate) fn event_tool(root: &Path, words: &[&str]) -> Result<()> {
    let build = [
        "build",
        "--quiet",
        "--workspace",
        "--bin",
        "drover-eventtool",
    ];
    cargo(root, &build)?;
    // This program lies where that one was just built.
    let here = std::env::current_exe().context("where this program lies")?;
    let status = Command::new(here.with_file_name("drover-eventtool"))
        .arg(root)
        .args(words)
        .status()
        .context("drover-eventtool")?;
    if !status.success() {
        bail!("{}", words[0]);
    }
    Ok(())
}
