//! The rules a job must keep, all checked at once, with Nomad's texts.
//!
//! A job that comes here is canonical. What needs the cluster's state (whether a namespace, a node
//! pool or an earlier version of the job exists) is not checked here.

mod artifact;
mod group;
mod job;
mod network;
mod placement;
mod policy;
mod secret;
mod service;
mod service_check;
mod task;
mod template;
mod unbuilt;
mod volume;
mod warnings;

pub use unbuilt::unbuilt;

use super::pattern::Patterns;
use drover_events::model::Job;
use drover_events::model::names::too_long;

/// What a server allows.
#[derive(Clone, Copy, Debug)]
pub struct JobLimits {
    /// The highest priority.
    pub max_priority: i64,
    /// The largest sum of group counts.
    pub max_count: i64,
    /// Whether `memory_max` counts; only warned about.
    pub memory_oversubscription: bool,
}

impl Default for JobLimits {
    fn default() -> Self {
        JobLimits {
            max_priority: 100,
            max_count: 50_000,
            memory_oversubscription: false,
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// What is wrong.
    pub errors: Vec<String>,
    /// What may be meant otherwise.
    pub warnings: Vec<String>,
}

impl Validation {
    /// The errors as one text, or none.
    pub fn error(&self) -> Option<String> {
        (!self.errors.is_empty()).then(|| many(&self.errors))
    }

    /// The warnings as one text; empty if there are none.
    pub fn warning(&self) -> String {
        let list: Vec<String> = self.warnings.iter().map(|w| format!("* {w}")).collect();
        match list.len() {
            0 => String::new(),
            1 => format!("1 warning:\n\n{}", list[0]),
            n => format!("{n} warnings:\n\n{}", list.join("\n")),
        }
    }
}

/// Checks a canonical job.
pub fn validate(job: &Job, limits: &JobLimits) -> Validation {
    let mut errors = Vec::new();
    match Patterns::of(job) {
        Ok(patterns) => job::check(job, limits, &patterns, &mut errors),
        // Nothing of such a job is looked at further.
        Err(text) => errors.push(text),
    }
    Validation {
        errors,
        warnings: warnings::of(job, limits),
    }
}

/// Several errors as one text.
pub(super) fn many(errors: &[String]) -> String {
    let points: Vec<String> = errors.iter().map(|e| format!("* {e}")).collect();
    let noun = if errors.len() == 1 {
        "1 error".to_owned()
    } else {
        format!("{} errors", errors.len())
    };
    format!("{noun} occurred:\n\t{}\n\n", points.join("\n\t"))
}

/// Adds what `check` finds, wrapped in one error that begins with `prefix`.
fn wrapped(
    into: &mut Vec<String>,
    prefix: impl FnOnce() -> String,
    check: impl FnOnce(&mut Vec<String>),
) {
    let mut inner = Vec::new();
    check(&mut inner);
    if !inner.is_empty() {
        into.push(format!("{}: {}", prefix(), many(&inner)));
    }
}

/// The names of those that are there.
fn there<const N: usize>(list: [(&'static str, bool); N]) -> impl Iterator<Item = &'static str> {
    let all = list.into_iter();
    all.filter_map(|(what, there)| there.then_some(what))
}

/// Adds a text if a condition holds.
fn when(into: &mut Vec<String>, wrong: bool, text: impl FnOnce() -> String) {
    if wrong {
        into.push(text());
    }
}

/// Adds a text for each name that is too long.
fn short<'n>(into: &mut Vec<String>, names: impl IntoIterator<Item = (&'static str, &'n String)>) {
    let texts = names.into_iter();
    into.extend(texts.filter_map(|(what, name)| too_long(what, name)));
}

/// A list of texts as Go prints it with `%q`.
fn quoted<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|i| format!("{:?}", i.as_ref())).collect();
    format!("[{}]", items.join(" "))
}

/// Whether a path leaves the allocation's directory, in which its own directory lies `depth` deep.
fn escapes(path: &str, mut depth: i32) -> bool {
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod edges_test;
#[cfg(test)]
mod effects_test;
#[cfg(test)]
mod tests;
