//! Runs the hooks of a task one after the other, each once the journal has what those before it
//! answered.

use std::collections::BTreeSet;
use std::time::Instant;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::list::TaskHooks;
use super::{Hooked, TaskAnswer, TaskGiven, TaskHook, TaskNote};
use crate::client::hook_metrics::Hooks;
use crate::client::task::machine::{HookError, Prepared};

/// Writes down what hooks answered, before the next begins.
pub type Write<'a> =
    &'a (dyn Fn(Vec<TaskNote>) -> BoxFuture<'static, Result<(), String>> + Send + Sync);

/// What a hook answered last.
fn kept<'a>(notes: &'a [TaskNote], hook: &str) -> &'a Value {
    let note = notes.iter().find(|note| note.hook == hook);
    note.map_or(&Value::Null, |note| &note.answer.kept)
}

/// Before a start: all that are not done. What is left is what nobody wrote down yet.
///
/// # Errors
/// The first that failed; those after it are not run.
pub async fn prestart(
    hooks: &TaskHooks,
    mut given: TaskGiven,
    (before, done): (&[TaskNote], &BTreeSet<String>),
    write: Write<'_>,
) -> Result<Prepared, HookError> {
    let mut out = Prepared::default();
    for hook in hooks.iter().filter(|hook| !done.contains(hook.name())) {
        let failed = |message, recoverable| HookError {
            hook: hook.name().to_owned(),
            message,
            recoverable,
        };
        let began = Instant::now();
        let answer = hook.prestart(&given, kept(before, hook.name())).await;
        if given.settings.hook_metrics {
            Hooks::TaskPrestart.ended(hook.name(), began, answer.is_ok());
        }
        let answer = answer.map_err(|e| failed(e.message, e.recoverable))?;
        let old = before.iter().any(|note| note.hook == hook.name());
        if answer == TaskAnswer::nothing() && !old {
            continue;
        }
        given.hook_env.extend(answer.env.clone());
        out.notes.push(TaskNote {
            hook: hook.name().to_owned(),
            answer,
        });
        if !hook.repeatable() {
            let notes = std::mem::take(&mut out.notes);
            write(notes).await.map_err(|e| failed(e, true))?;
        }
    }
    Ok(out)
}

/// Runs one call of every hook; what fails is told.
pub async fn each<'a>(
    call_name: &str,
    hooks: &'a TaskHooks,
    given: &'a TaskGiven,
    notes: &'a [TaskNote],
    mut call: impl FnMut(&'a dyn TaskHook, &'a Value) -> Hooked<'a>,
) {
    for hook in hooks.iter() {
        if let Err(e) = call(&**hook, kept(notes, hook.name())).await {
            let (alloc, task) = (&given.alloc.id, &given.name);
            tracing::error!(%alloc, task, "{call_name} hook {:?} failed: {e}", hook.name());
        }
    }
}
