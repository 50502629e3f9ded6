//! Runs the hooks of an allocation one after the other, each once the journal has what those before
//! it answered.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::list::AllocHooks;
use super::{AllocAnswer, AllocGiven, AllocHook, AllocNote};
use crate::client::alloc::machine::Input;
use crate::client::alloc::runner::Msg;
use crate::client::hook_metrics::Hooks;

/// Takes what hooks answer to the machine and its journal.
#[derive(Clone)]
pub(in crate::client::alloc) struct Notes(pub mpsc::UnboundedSender<Msg>);

impl Notes {
    /// Waits until the machine took it and the journal has it.
    pub(in crate::client::alloc) async fn put(&self, input: Input) -> Result<(), String> {
        let (written, rx) = oneshot::channel();
        // A runner that is gone writes nothing more, and neither does who is asked by it.
        let _ = self.0.send(Msg::Noted(input, written));
        let gone = |_| Err("the allocation's runner has ended".to_owned());
        rx.await.unwrap_or_else(gone)
    }
}

/// What a hook keeps.
pub(in crate::client::alloc) fn kept_of<'a>(notes: &'a [AllocNote], hook: &str) -> &'a Value {
    kept(notes, hook).map_or(&Value::Null, |answer| &answer.kept)
}

/// What a hook answered last.
fn kept<'a>(notes: &'a [AllocNote], hook: &str) -> Option<&'a AllocAnswer> {
    let note = notes.iter().find(|note| note.hook == hook);
    note.map(|note| &note.answer)
}

fn failed(kind: &str, hook: &dyn AllocHook, error: &str) -> String {
    format!("{kind} hook {:?} failed: {error}", hook.name())
}

/// Before the tasks: those that are done are restored, the others run.
///
/// # Errors
/// The first that failed, by name; those after it are not run.
pub(in crate::client::alloc) async fn prerun(
    hooks: &AllocHooks,
    given: &AllocGiven,
    before: &[AllocNote],
    notes: &Notes,
) -> Result<(), String> {
    let mut unwritten = Vec::new();
    for hook in hooks.iter() {
        let old = kept(before, hook.name());
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
        unwritten.push(AllocNote {
            hook: hook.name().to_owned(),
            answer,
        });
        if !hook.repeatable() {
            let answered = Input::HooksAnswered(std::mem::take(&mut unwritten));
            notes.put(answered).await?;
        }
    }
    Ok(())
}

/// After a restart of the agent, when the tasks have had their beginning.
///
/// # Errors
/// The first that failed, by name.
pub(in crate::client::alloc) async fn restore(
    hooks: &AllocHooks,
    given: &AllocGiven,
    before: &[AllocNote],
) -> Result<(), String> {
    for hook in hooks.iter() {
        if let Some(answer) = kept(before, hook.name()) {
            let restored = hook.restore(given, &answer.kept).await;
            restored.map_err(|e| failed("restore", &**hook, &e))?;
        }
    }
    Ok(())
}

/// After the tasks: all but those that are done. What fails is told and does not keep the others
/// from their work.
pub(in crate::client::alloc) async fn postrun(
    hooks: &AllocHooks,
    given: &AllocGiven,
    (before, ended): (&[AllocNote], &BTreeSet<String>),
    notes: &Notes,
) {
    for hook in hooks.iter().filter(|hook| !ended.contains(hook.name())) {
        let value = kept_of(before, hook.name());
        let noted = match hook.postrun(given, value).await {
            Ok(answer) if answer.done => notes.put(Input::HookEnded(hook.name().to_owned())).await,
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        };
        tell(given, "post-run", &**hook, noted);
    }
}

/// Runs one call of every hook; what fails is told.
pub(in crate::client::alloc) async fn each<'a>(
    kind: &str,
    hooks: &'a AllocHooks,
    given: &'a AllocGiven,
    mut call: impl FnMut(&'a dyn AllocHook) -> super::Hooked<'a, ()>,
) {
    for hook in hooks.iter() {
        let done = call(&**hook).await;
        tell(given, kind, &**hook, done);
    }
}

fn tell(given: &AllocGiven, kind: &str, hook: &dyn AllocHook, done: Result<(), String>) {
    if let Err(e) = done {
        tracing::error!(alloc = %given.alloc.id, "{}", failed(kind, hook, &e));
    }
}
