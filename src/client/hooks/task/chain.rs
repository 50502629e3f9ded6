//! Runs the hooks of a task one after the other, each once the journal has what those before it
//! answered.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;

use super::list::TaskHooks;
use super::{
    Ending, HookError, Hooked, PreparedTask, TaskAnswer, TaskGiven, TaskHook, TaskHookReport,
    TaskNote,
};
use crate::hooks::metrics::Hooks;
use crate::hooks::notes::{Keep, Unreported, answer_of};

/// What a hook keeps.
fn kept_of<'a>(notes: &'a [TaskNote], hook: &str) -> &'a Value {
    answer_of(notes, hook).map_or(&Value::Null, |answer| &answer.kept)
}

/// Before a start: all that are not done. The answers left in it are those not written yet.
///
/// # Errors
/// The first that failed; those after it are not run.
pub async fn prestart(
    hooks: &TaskHooks,
    mut given: TaskGiven,
    (before, done): (&[TaskNote], &BTreeSet<String>),
    keep: &dyn Keep<TaskHookReport>,
) -> Result<PreparedTask, HookError> {
    let mut unreported = Unreported::new(keep, TaskHookReport::Answered);
    for hook in hooks.iter().filter(|hook| !done.contains(hook.name())) {
        let failed = |message, recoverable| HookError {
            hook: hook.name().to_owned(),
            message,
            recoverable,
        };
        let began = Instant::now();
        let answer = hook.prestart(&given, kept_of(before, hook.name())).await;
        if given.settings.hook_metrics {
            Hooks::TaskPrestart.ended(hook.name(), began, answer.is_ok());
        }
        let answer = answer.map_err(|e| failed(e.message, e.recoverable))?;
        let old = before.iter().any(|note| note.hook == hook.name());
        if answer == TaskAnswer::nothing() && !old {
            continue;
        }
        given.hook_env.extend(answer.env.clone());
        let heard = unreported.hear((hook.name(), answer), hook.repeatable());
        heard.await.map_err(|e| failed(e, true))?;
    }
    let notes = unreported.take();
    Ok(PreparedTask { notes })
}

/// Runs one call of every hook; a failure is reported.
pub async fn each<'a>(
    call_name: &str,
    hooks: &'a TaskHooks,
    given: &'a TaskGiven,
    notes: &'a [TaskNote],
    mut call: impl FnMut(&'a dyn TaskHook, &'a Value) -> Hooked<'a>,
) {
    for hook in hooks.iter() {
        let done = call(&**hook, kept_of(notes, hook.name())).await;
        report(call_name, given, &**hook, done);
    }
}

/// Runs the call at an end of every hook that did not do its work there yet; that it did is in the
/// journal before the next begins. A failure is reported.
pub async fn ending<'a>(
    ending: Ending,
    hooks: &'a TaskHooks,
    given: &'a TaskGiven,
    (notes, through): (&'a [TaskNote], &BTreeSet<String>),
    keep: &dyn Keep<TaskHookReport>,
    mut call: impl FnMut(&'a dyn TaskHook, &'a Value) -> Hooked<'a>,
) {
    for hook in hooks.iter().filter(|hook| !through.contains(hook.name())) {
        let mut done = call(&**hook, kept_of(notes, hook.name())).await;
        if done.is_ok() && !hook.repeatable() {
            let through = TaskHookReport::Through(ending, hook.name().to_owned());
            done = keep.write(through).await;
        }
        report(ending.name(), given, &**hook, done);
    }
}

fn report(call_name: &str, given: &TaskGiven, hook: &dyn TaskHook, done: Result<(), String>) {
    if let Err(e) = done {
        let (alloc, task) = (&given.alloc.id, &given.name);
        tracing::error!(%alloc, task, "{call_name} hook {:?} failed: {e}", hook.name());
    }
}
