//! Many things, each dealt with by itself: what is wrong with one never keeps the others from
//! their turn.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use drover_projections::{StorageError, unreadable};
use futures_util::FutureExt;
use parking_lot::Mutex;

use super::runner::{Failure, panic_text};
use crate::error::chain;

static REPORTED: Mutex<ReportedRows> = Mutex::new(ReportedRows {
    made: 0,
    rows: BTreeSet::new(),
});
/// For how many rows this is noted: beyond that, another line would say nothing new.
const LINES: usize = 1_000;

/// What is wrong with rows, as far as it was reported. It does not pass before the tables are made
/// again, and what looks at every row would report it with each look.
struct ReportedRows {
    /// How often the tables had been made again then.
    made: u64,
    rows: BTreeSet<String>,
}

impl ReportedRows {
    /// Whether it is reported now, and not before, of tables that were made again so often.
    fn is_news(&mut self, made: u64, why: &str) -> bool {
        if self.made != made {
            self.made = made;
            self.rows.clear();
        }
        self.rows.len() < LINES && self.rows.insert(why.to_owned())
    }
}

/// The results for the things of one activation. None of these makes the activation fail: a reactor
/// that failed waits longer and longer, and the others would wait with it.
#[derive(Debug, Default)]
pub struct Each {
    failed: usize,
    panicked: bool,
    first: Option<String>,
}

impl Each {
    /// One could not be dealt with.
    pub fn fail(&mut self, what: &str, error: &dyn std::error::Error) {
        let why = chain(error);
        tracing::warn!(what, error = why, "one of many failed; the others continue");
        self.count(what, &why);
    }

    fn count(&mut self, what: &str, why: &str) {
        self.failed += 1;
        self.first.get_or_insert_with(|| format!("{what}: {why}"));
    }

    /// A row that a walk came to. One that cannot be read is left out: it counts as failed with
    /// each look, and is logged once. What is behind it is still to be walked over.
    ///
    /// # Errors
    /// It is not the row: the database cannot be read.
    pub fn row<T>(&mut self, row: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
        match row {
            Ok(row) => Ok(Some(row)),
            Err(error) if error.is_single_entry() => {
                self.leave_out(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The same of what another part left out because of this row.
    pub fn leave_out(&mut self, error: &StorageError) {
        let why = chain(error);
        if REPORTED.lock().is_news(unreadable::made(), &why) {
            tracing::error!(
                error = why,
                "a row cannot be read and is left out, until `drover projection rebuild` makes \
                 the tables again"
            );
        }
        self.count("left out", &why);
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

    /// The same where the work waits.
    pub async fn attend<T, E: Into<Failure>>(
        &mut self,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(done) => self.take(what, done),
            Err(panic) => self.take(what, Err(panic_text(&*panic))),
        }
    }

    /// The same where one item of a walk is looked at that depends on rows besides its own: an
    /// unreadable one among these is noted as [`Each::row`] does.
    ///
    /// # Errors
    /// As [`Each::row`].
    pub fn judge<T>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<Option<T>, StorageError> {
        match std::panic::catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => self.row(done),
            Err(panic) => {
                self.panicked = true;
                Ok(self.take(what, Err(panic_text(&*panic))))
            }
        }
    }

    /// Takes what came of one; where it failed there is no answer.
    pub fn take<T, E: Into<Failure>>(&mut self, what: &str, done: Result<T, E>) -> Option<T> {
        done.map_err(|error| self.fail(what, &*error.into())).ok()
    }

    /// Whether one of a walk ended in a panic: unlike a row that cannot be read, it may do better
    /// the next time.
    pub fn panicked(&self) -> bool {
        self.panicked
    }

    /// How many failed.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// What failed first, and why.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Adds to a reactor's status how many failed, and why the first one did.
    pub fn report(&self, status: &mut serde_json::Value) {
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
        let worst = each.judge("d", || -> Result<u8, StorageError> { panic!("worst") });
        assert_eq!((worst.unwrap(), each.failed()), (None, 3));
        assert!(each.panicked());
        assert_eq!(each.judge("e", || Ok(4)).unwrap(), Some(4));
        let mut status = serde_json::json!({ "Active": 3 });
        each.report(&mut status);
        let reported = serde_json::json!({ "Active": 3, "Failed": 3, "LastError": "a: broken" });
        assert_eq!(status, reported);
    }

    #[tokio::test]
    async fn one_that_panics_while_it_waits_is_its_own_too() {
        let mut each = Each::default();
        let breaks = async || -> Result<u8, &'static str> {
            tokio::spawn(async {}).await.unwrap();
            panic!("it breaks")
        };
        assert_eq!(each.attend("a", breaks()).await, None);
        assert_eq!(
            each.attend("b", async { Err::<u8, _>("broken") }).await,
            None
        );
        assert_eq!(each.attend("c", async { Ok::<u8, &str>(3) }).await, Some(3));
        let mut status = serde_json::json!({});
        each.report(&mut status);
        let reported = serde_json::json!({ "Failed": 2, "LastError": "a: it breaks" });
        assert_eq!(status, reported);
    }

    #[test]
    fn what_was_said_of_a_row_is_said_again_of_tables_that_were_made_again() {
        let mut reported = ReportedRows {
            made: 0,
            rows: BTreeSet::new(),
        };
        assert!(reported.is_news(0, "one"));
        assert!(!reported.is_news(0, "one"), "it was said");
        assert!(reported.is_news(0, "another"));
        assert!(reported.is_news(1, "one"));
        for number in 0..LINES {
            reported.is_news(1, &number.to_string());
        }
        assert!(!reported.is_news(1, "one more"), "they are many");
        assert!(reported.is_news(2, "one more"));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_left_out_and_a_database_is_an_error() {
        let damaged = |key: &str| StorageError::Damaged {
            what: "row",
            key: key.to_owned(),
        };
        let mut each = Each::default();
        assert_eq!(each.row(Ok(1)).unwrap(), Some(1));
        for _ in 0..2 {
            assert_eq!(each.row::<u8>(Err(damaged("5ee0"))).unwrap(), None);
        }
        let mut status = serde_json::json!({});
        each.report(&mut status);
        let why = "left out: a stored row is damaged (key 5ee0)";
        let reported = serde_json::json!({ "Failed": 2, "LastError": why });
        assert_eq!(status, reported, "it counts whenever it is come to");
        let gone = StorageError::Snapshot("it is gone".to_owned());
        each.row::<u8>(Err(gone)).unwrap_err();
        assert_eq!(each.failed(), 2);
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
        each.report(&mut status);
        assert_eq!(
            status["LastError"],
            "a: a row cannot be read: the disk is gone"
        );
    }
}
