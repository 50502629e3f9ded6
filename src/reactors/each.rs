//! Many things, each dealt with by itself: what is wrong with one never keeps the others from
//! their turn.

use std::panic::AssertUnwindSafe;

use super::driver::{Failure, panic_text};
use crate::error::chain;

/// What came of the things of one activation. None of it makes the activation fail: a reactor that
/// failed waits longer and longer, and the others would wait with it.
#[derive(Debug, Default)]
pub struct Each {
    failed: usize,
    first: Option<String>,
}

impl Each {
    /// One could not be dealt with.
    pub fn fail(&mut self, what: &str, error: &dyn std::error::Error) {
        let why = chain(error);
        tracing::warn!(what, error = why, "one of many failed; the others go on");
        self.failed += 1;
        self.first.get_or_insert_with(|| format!("{what}: {why}"));
    }

    /// Works one out. An error or a panic is its own: it counts as failed, and there is no answer.
    pub fn look<T, E: Into<Failure>>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Option<T> {
        match std::panic::catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => self.take(what, done),
            Err(panic) => self.take(what, Err(panic_text(&*panic))),
        }
    }

    /// Takes what came of one; where it failed there is no answer.
    pub fn take<T, E: Into<Failure>>(&mut self, what: &str, done: Result<T, E>) -> Option<T> {
        done.map_err(|error| self.fail(what, &*error.into())).ok()
    }

    /// How many failed.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// Adds to a reactor's status how many failed, and why the first one did.
    pub fn tell(&self, status: &mut serde_json::Value) {
        status["Failed"] = self.failed.into();
        if let Some(first) = &self.first {
            status["LastError"] = first.as_str().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_or_panics_keeps_nobody_from_its_turn() {
        let mut each = Each::default();
        let bad: Option<u8> = each.look("a", || Err("broken"));
        let worse: Option<u8> = each.look("b", || -> Result<u8, &str> { panic!("worse") });
        assert_eq!((bad, worse, each.failed()), (None, None, 2));
        assert_eq!(each.look("c", || Ok::<u8, &str>(3)), Some(3));
        let mut status = serde_json::json!({ "Active": 3 });
        each.tell(&mut status);
        let told = serde_json::json!({ "Active": 3, "Failed": 2, "LastError": "a: broken" });
        assert_eq!(status, told);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("a row cannot be read")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn why_one_failed_is_told_down_to_the_cause() {
        let mut each = Each::default();
        let cause = std::io::Error::other("the disk is gone");
        assert_eq!(each.take::<(), _>("a", Err(Outer(cause))), None);
        let mut status = serde_json::json!({});
        each.tell(&mut status);
        assert_eq!(
            status["LastError"],
            "a: a row cannot be read: the disk is gone"
        );
    }
}
