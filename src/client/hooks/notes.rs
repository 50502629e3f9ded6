//! What hooks answered, and how it comes to the journal.

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// What a hook answered; what the journal keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Note<A> {
    pub hook: String,
    pub answer: A,
}

/// Brings what hooks answered to the machine that takes it, and to its journal; `I` is what the
/// machine takes.
pub trait Keep<I>: Send + Sync {
    /// Resolves when the journal has it.
    fn write(&self, report: I) -> BoxFuture<'static, Result<(), String>>;

    /// Written with the next thing that is.
    fn report(&self, report: I);
}

/// What a hook answered last.
pub(super) fn answer_of<'a, A>(notes: &'a [Note<A>], hook: &str) -> Option<&'a A> {
    let note = notes.iter().find(|note| note.hook == hook);
    note.map(|note| &note.answer)
}

/// Answers that were not reported yet; whatever ends the call that holds them, none is lost.
pub(super) struct Unreported<'a, A, I> {
    notes: Vec<Note<A>>,
    keep: &'a dyn Keep<I>,
    make_report: fn(Vec<Note<A>>) -> I,
}

impl<'a, A, I> Unreported<'a, A, I> {
    /// Holds no answers; `make_report` makes of them what the machine takes.
    pub(super) fn new(keep: &'a dyn Keep<I>, make_report: fn(Vec<Note<A>>) -> I) -> Self {
        let notes = Vec::new();
        Self {
            notes,
            keep,
            make_report,
        }
    }

    /// Adds an answer. The journal has it, and those before it, when this is over; a hook that may
    /// be repeated waits for the next thing that is written.
    pub(super) async fn hear(
        &mut self,
        (hook, answer): (&str, A),
        is_repeatable: bool,
    ) -> Result<(), String> {
        let hook = hook.to_owned();
        self.notes.push(Note { hook, answer });
        match is_repeatable {
            true => Ok(()),
            false => {
                let report = (self.make_report)(self.take());
                self.keep.write(report).await
            }
        }
    }

    /// Those that are not written yet.
    pub(super) fn take(&mut self) -> Vec<Note<A>> {
        std::mem::take(&mut self.notes)
    }
}

impl<A, I> Drop for Unreported<'_, A, I> {
    fn drop(&mut self) {
        if !self.notes.is_empty() {
            self.keep
                .report((self.make_report)(std::mem::take(&mut self.notes)));
        }
    }
}
