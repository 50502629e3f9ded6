//! Reads on threads that serve: a read may wait for the disk, and other callers that the same
//! thread serves would wait with it.
//!
//! Tests mark what serves ([`marked`], [`throughout`]). In a debug build each read of the database
//! that may wait for the disk looks whether it is within that; one that is panics where the mark
//! was made, so no handler can swallow it. What is handed to another thread is not marked, what a
//! thread was relieved for says so ([`relieved`]), and what only looks into memory waits for
//! nothing.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// Whether this thread serves now.
    static SERVES: Cell<bool> = const { Cell::new(false) };
    /// The first read while it did, with the way to it.
    static READ: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Work during which this thread serves, or not; it is as it was afterwards.
fn within<T>(serves: bool, work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            SERVES.set(self.0);
        }
    }
    let _before = Before(SERVES.replace(serves));
    work()
}

/// A future that serves whenever it is polled. In a debug build it panics with the way to a read of
/// the database that may wait for the disk.
pub fn marked<F: Future + Send>(serves: F) -> Marked<F> {
    Marked(Box::pin(serves))
}

/// Work on a thread that serves all the while, with whatever a runtime of this one thread does
/// meanwhile. In a debug build it panics at its end as [`marked`] does.
pub fn throughout<T>(work: impl FnOnce() -> T) -> T {
    let done = within(true, work);
    report();
    done
}

/// Work that other callers do not wait for: another thread serves them meanwhile.
pub fn relieved<T>(work: impl FnOnce() -> T) -> T {
    within(false, work)
}

/// A read that may wait for the disk.
pub(crate) fn read() {
    if cfg!(debug_assertions) && SERVES.get() {
        READ.with_borrow_mut(|read| {
            read.get_or_insert_with(|| std::backtrace::Backtrace::force_capture().to_string());
        });
    }
}

/// Panics with the way to the first read that was noticed on this thread.
fn report() {
    let read = READ.take();
    assert!(
        read.is_none(),
        "a thread that serves reads the tables: hand it to table_reads::reading\n{}",
        read.unwrap_or_default()
    );
}

/// What [`marked`] makes of a future.
#[must_use = "futures do nothing unless polled"]
pub struct Marked<F>(Pin<Box<F>>);

impl<F: Future> Future for Marked<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let polled = within(true, || self.0.as_mut().poll(context));
        report();
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Waker;

    use super::*;
    use crate::store::engine_test::{TABLES, Things, apply, many_ops, numbered};
    use crate::{DatabaseOptions, Projections, Scan};

    /// Whether a future that serves ends well at once.
    fn serves(work: impl FnOnce() + Send) -> bool {
        let mut marked = marked(async { work() });
        let mut context = Context::from_waker(Waker::noop());
        let polled = || Pin::new(&mut marked).poll(&mut context).is_ready();
        catch_unwind(AssertUnwindSafe(polled)).unwrap_or(false)
    }

    #[test]
    fn a_read_by_what_serves_is_told_and_one_by_what_does_not_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) =
            Projections::open_with(dir.path(), DatabaseOptions::dev(), &TABLES).unwrap();
        apply(&mut writer, &numbered(many_ops(3)), &[1]);
        let view = projections.view();
        let get = || {
            _ = view
                .get::<Things>("00000001-0000-4000-8000-000000000000")
                .unwrap()
        };
        let scan = || _ = view.scan::<Things>(Scan::all()).count();
        for read in [&get as &(dyn Fn() + Sync), &scan] {
            read();
            assert!(!serves(read), "it waits for the disk");
            assert!(serves(|| relieved(read)));
            let elsewhere = || std::thread::scope(|scope| scope.spawn(read).join().unwrap());
            assert!(serves(elsewhere));
            let all_the_while = catch_unwind(AssertUnwindSafe(|| throughout(read)));
            assert!(all_the_while.is_err());
            let made = throughout(|| {
                relieved(read);
                7
            });
            assert_eq!(made, 7);
            // A panic in it changes nothing for work that comes next.
            assert!(!serves(|| panic!("of its own")));
            read();
        }
        assert!(serves(|| _ = projections.applied_index()));
        assert!(serves(|| _ = projections.view().index()));
    }
}
