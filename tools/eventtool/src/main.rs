//! New kinds of events and their frozen bytes, for `cargo xtask new-event` and `freeze-event`.
//!
//! A program of its own, so that the task runner needs neither the events nor a database to build.

mod event;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let root = PathBuf::from(words.next().unwrap_or_default());
    let words: Vec<String> = words.collect();
    match run(&root, &words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &std::path::Path, words: &[String]) -> Result<()> {
    match words {
        [task, name, resource, sentence] if task == "new-event" => {
            event::new_event(root, name, resource, sentence)
        }
        [task] if task == "freeze-event" => event::freeze(root, None),
        [task, name] if task == "freeze-event" => event::freeze(root, Some(name)),
        _ => bail!("use `cargo xtask new-event` or `cargo xtask freeze-event`"),
    }
}
