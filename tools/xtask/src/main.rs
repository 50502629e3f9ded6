//! The task runner, called as `cargo xtask`.
//!
//! `verify` is what has to pass before a change lands, and it never writes; `fix` does the writing.
//! Everything works without a network.

mod attacks;
mod behaviours;
mod changelog;
#[cfg(test)]
mod ci_test;
mod citations;
mod deny;
#[cfg(test)]
mod env_test;
mod glossary;
mod graph;
mod habits;
#[cfg(test)]
mod install_test;
mod lexer;
mod mutants;
mod ratchet;
mod repeats;
#[cfg(test)]
mod rocksdb_test;
mod routes;
mod run;
mod settings;
#[cfg(test)]
mod suite_test;
mod test_habits;
#[cfg(test)]
mod testing;
mod tidy;
mod tree;
mod vocabulary;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the drover workspace")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check everything that must hold before a change lands; writes nothing.
    Verify {
        /// Leave out clippy and the documentation, which compile.
        #[arg(long)]
        fast: bool,
    },
    /// Format, and lower the ratchet to what is true now.
    Fix,
    /// Check sizes, words, names, essays, layers, citations and that no folders know each other.
    Tidy,
    /// Print which folders of `src` know which others, and which do within each of them.
    Graph,
    /// Print every route and method between agents: what it requires of its caller, a test that
    /// requests it, and where it is documented.
    Routes {
        /// Check that those without a test are the ones that are known.
        #[arg(long)]
        check: bool,
    },
    /// Check that every listed behaviour has its test, and count them.
    Behaviours {
        /// Print the tests that name behaviours instead.
        #[arg(long)]
        tests: bool,
    },
    /// Check that every listed attack has the tests that try it.
    Attacks,
    /// Check that what users see is written in the changelog.
    Changelog,
    /// Check licences, sources and duplicates of the dependencies.
    Deny,
    /// Change the code in one place at a time and see whether a test notices (as root: changed
    /// code runs in namespaces of its own).
    Mutants {
        /// Change what changed since this commit.
        #[arg(long, conflicts_with = "files")]
        since: Option<String>,
        /// Try only changes whose names begin so.
        #[arg(long)]
        only: Vec<String>,
        /// Leave out what was caught before.
        #[arg(long)]
        again: bool,
        /// Continue where a run with the same options was interrupted.
        #[arg(long = "continue")]
        go_on: bool,
        /// How many changes are tried at once.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Try about every so many-th change only.
        #[arg(long, default_value_t = 1)]
        sample: usize,
        /// Which of them: seeds from 0 on, as many as `--sample` says, take all, each one once.
        #[arg(long, default_value_t = 0)]
        seed: usize,
        /// How many changes are compiled together.
        #[arg(long, default_value_t = 1200)]
        portion: usize,
        /// How many seconds the tests of one change may take.
        #[arg(long, default_value_t = 60)]
        limit: u64,
        /// Only print which portions there are.
        #[arg(long)]
        plan: bool,
        /// Only functions that the rows of behaviours.md rest on.
        #[arg(long)]
        rows: bool,
        /// Files and folders to change; without them all.
        files: Vec<String>,
    },
    /// Register a new kind of event: number, payload struct, variant.
    NewEvent {
        /// Its name, past tense: `NodeRegistered`.
        name: String,
        /// The resource file it belongs to: `node`.
        resource: String,
        /// What happened, as a sentence.
        sentence: String,
    },
    /// Write the frozen bytes of kinds that have none yet for their version.
    FreezeEvent {
        /// One kind, or all of them.
        name: Option<String>,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let root = root()?;
    match Options::parse().task {
        Task::Verify { fast } => run::verify(&root, fast),
        Task::Fix => run::fix(&root),
        Task::Tidy => run::report("tidy", tidy::check(&root)?),
        Task::Graph => {
            graph::print(&tree::read(&root)?);
            Ok(())
        }
        Task::Routes { check: false } => routes::print(&root),
        Task::Routes { check: true } => run::report("routes", routes::check(&root)?),
        Task::Behaviours { tests: true } => behaviours::list(&root),
        Task::Behaviours { tests: false } => run::report("behaviours", behaviours::check(&root)?),
        Task::Attacks => run::report("attacks", attacks::check(&root)?),
        Task::Changelog => run::report("changelog", changelog::check(&root)?),
        Task::Deny => run::report("deny", deny::check(&root)?),
        Task::Mutants {
            since,
            only,
            again,
            go_on,
            jobs,
            sample,
            seed,
            portion,
            limit,
            plan,
            rows,
            files,
        } => {
            let request = mutants::RunOptions {
                files,
                rows,
                since,
                only,
                again,
                go_on,
                jobs,
                sample,
                seed,
                portion,
                limit: Duration::from_secs(limit),
                plan,
            };
            mutants::run(&root, &request)
        }
        Task::NewEvent {
            name,
            resource,
            sentence,
        } => run::event_tool(&root, &["new-event", &name, &resource, &sentence]),
        Task::FreezeEvent { name } => {
            let words: Vec<&str> = ["freeze-event"]
                .into_iter()
                .chain(name.as_deref())
                .collect();
            run::event_tool(&root, &words)
        }
    }
}

/// The workspace's folder: two above this crate's.
fn root() -> Result<PathBuf> {
    let here = std::env::var("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    let root = PathBuf::from(here).join("../..").canonicalize()?;
    Ok(root)
}
