//! Regular expressions that callers write, bounded before they are compiled.
//!
//! The limit of the engine counts what is compiled. Before that it builds the expression, and two
//! letters (`\w`) may stand for six kilobytes of it: so the length of the text is bounded first.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::Job;
use drover_filter::compile_pattern;
use regex::{Regex, RegexBuilder};

/// The longest expression, bytes.
const LONGEST: usize = 4 << 10;
/// The most memory of a compiled one.
const SMALL: usize = 256 << 10;
/// Distinct expressions of a job's constraints and affinities, and bytes of all of them.
const MOST: usize = 64;
const MOST_BYTES: usize = 32 << 10;

/// The expressions of a job's constraints and affinities. Each is compiled once, and none where
/// there are too many.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    faults: BTreeMap<String, String>,
}

impl Patterns {
    /// Those of a canonical job.
    ///
    /// # Errors
    /// They are too many, or too long.
    pub(super) fn of(job: &Job) -> Result<Self, String> {
        let texts: BTreeSet<&str> = texts(job).collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        if texts.len() > MOST || bytes > MOST_BYTES {
            return Err(format!(
                "constraints and affinities have {} regular expressions of {bytes} bytes; at most \
                 {MOST} of {MOST_BYTES} bytes are allowed",
                texts.len()
            ));
        }
        let fault = |text: &str| Some((text.to_owned(), compile(text).err()?));
        Ok(Self {
            faults: texts.into_iter().filter_map(fault).collect(),
        })
    }

    /// Why one of them is invalid.
    pub(super) fn fault(&self, text: &str) -> Option<&str> {
        self.faults.get(text).map(String::as_str)
    }
}

/// Every expression of a job, as often as it stands there.
fn texts(job: &Job) -> impl Iterator<Item = &str> {
    let groups = || job.task_groups.iter();
    let tasks = || groups().flat_map(|group| group.tasks.iter());
    let devices = || {
        let wanted = tasks().filter_map(|task| task.resources.as_ref());
        wanted.flat_map(|wanted| wanted.devices.iter())
    };
    let constraints = (job.constraints.iter())
        .chain(groups().flat_map(|group| group.constraints.iter()))
        .chain(tasks().flat_map(|task| task.constraints.iter()))
        .chain(devices().flat_map(|device| device.constraints.iter()))
        .map(|constraint| (&constraint.operand, constraint.r_target.as_str()));
    let affinities = (job.affinities.iter())
        .chain(groups().flat_map(|group| group.affinities.iter()))
        .chain(tasks().flat_map(|task| task.affinities.iter()))
        .chain(devices().flat_map(|device| device.affinities.iter()))
        .map(|affinity| (&affinity.operand, affinity.r_target.as_str()));
    let all = constraints.chain(affinities);
    all.filter_map(|(operand, text)| (operand == "regexp").then_some(text))
}

/// Compiles an expression that is held against what nodes have, as the scheduler does.
fn compile(text: &str) -> Result<(), String> {
    check(text)?;
    compile_pattern(text).map(drop)
}

/// Compiles an expression that is looked for in long texts.
///
/// # Errors
/// Why it is invalid, or that it is too long.
pub(super) fn compile_small(text: &str) -> Result<Regex, String> {
    check(text)?;
    let built = RegexBuilder::new(text).size_limit(SMALL).build();
    built.map_err(|error| error.to_string())
}

fn check(text: &str) -> Result<(), String> {
    if text.len() > LONGEST {
        return Err(format!(
            "a regular expression of {} bytes is too long, at most {LONGEST} are allowed",
            text.len()
        ));
    }
    Ok(())
}
