//! Runs the hooks of an allocation one after the other, each once the journal has what those before
//! it answered.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;

use super::list::AllocHooks;
use super::{AllocAnswer, AllocGiven, AllocHook, AllocHookReport, AllocNote};
use crate::hooks::metrics::Hooks;
use crate::hooks::notes::{Keep, Unreported, answer_of};

/// What a hook keeps.
pub(crate) fn kept_of<'a>(notes: &'a [AllocNote], hook: &str) -> &'a Value {
    answer_of(notes, hook).map_or(&Value::Null, |answer| &answer.kept)
}

fn failed(kind: &str, hook: &dyn AllocHook, error: &str) -> String {
    format!("{kind} hook {:?} failed: {error}", hook.name())
}

/// Before the tasks: those that are done are restored, the others run.
///
/// # Errors
/// The first that failed, by name; those after it are not run.
pub(crate) async fn prerun(
    hooks: &AllocHooks,
    given: &AllocGiven,
    before: &[AllocNote],
    keep: &dyn Keep<AllocHookReport>,
) -> Result<(), String> {
    let mut unreported = Unreported::new(keep, AllocHookReport::Answered);
    for hook in hooks.iter() {
        let old = answer_of(before, hook.name());
        let value = old.map_or(&Value::Null, |answer| &answer.kept);
        if old.is_some_and(|answer| answer.done) {
            let restored = hook.restore(given, value).await;
            restored.map_err(|e| failed("pre-run", &**hook, &e))?;
            continue;
        }
        let began = Instant::now();
        let answer = hook.prerun(given, value).await;
        if given.settings.hook_metrics {
            Hooks::AllocPrerun.ended(hook.name(), began, answer.is_ok());
        }
        let answer = answer.map_err(|e| failed("pre-run", &**hook, &e))?;
        if answer == AllocAnswer::nothing() {
            continue;
        }
        let heard = unreported.hear((hook.name(), answer), hook.repeatable());
        heard.await?;
    }
    Ok(())
}

/// After a restart of the agent, when the tasks have had their beginning.
///
/// # Errors
/// The first that failed, by name.
pub(crate) async fn restore(
    hooks: &AllocHooks,
    given: &AllocGiven,
    before: &[AllocNote],
) -> Result<(), String> {
    for hook in hooks.iter() {
        if let Some(answer) = answer_of(before, hook.name()) {
            let restored = hook.restore(given, &answer.kept).await;
            restored.map_err(|e| failed("restore", &**hook, &e))?;
        }
    }
    Ok(())
}

/// After the tasks: all but those that are done. A failure is reported and does not keep the others
/// from their work.
pub(crate) async fn postrun(
    hooks: &AllocHooks,
    given: &AllocGiven,
    (before, ended): (&[AllocNote], &BTreeSet<String>),
    keep: &dyn Keep<AllocHookReport>,
) {
    for hook in hooks.iter().filter(|hook| !ended.contains(hook.name())) {
        let value = kept_of(before, hook.name());
        let noted = match hook.postrun(given, value).await {
            Ok(answer) if answer.done => {
                let ended = AllocHookReport::Ended(hook.name().to_owned());
                keep.write(ended).await
            }
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        };
        report(given, "post-run", &**hook, noted);
    }
}

/// Runs one call of every hook; a failure is reported.
pub(crate) async fn each<'a>(
    kind: &str,
    hooks: &'a AllocHooks,
    given: &'a AllocGiven,
    mut call: impl FnMut(&'a dyn AllocHook) -> super::Hooked<'a, ()>,
) {
    for hook in hooks.iter() {
        let done = call(&**hook).await;
        report(given, kind, &**hook, done);
    }
}

fn report(given: &AllocGiven, kind: &str, hook: &dyn AllocHook, done: Result<(), String>) {
    if let Err(e) = done {
        tracing::error!(alloc = %given.alloc.id, "{}", failed(kind, hook, &e));
    }
}
