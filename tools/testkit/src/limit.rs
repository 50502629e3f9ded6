//! No test runs for ever: one that does is named, and ends the run.
//!
//! A test is known by its thread, whose name is the test's. It is watched from the first time that
//! it asks this crate for anything until its thread ends. Where `tools/test` runs it, so is every
//! other one, by what libtest says (`tools/suite`).

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How long a test may take; `DROVER_TEST_LIMIT` says otherwise, in seconds.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// The tests that run, and since when.
static RUNNING: Mutex<BTreeMap<u64, (String, Instant)>> = Mutex::new(BTreeMap::new());

thread_local! {
    static WATCHED: Watched = Watched::new();
}

/// A test that is watched until its thread ends.
struct Watched(Option<u64>);

impl Watched {
    fn new() -> Self {
        static NEXT: Mutex<u64> = Mutex::new(0);
        let here = thread::current();
        // Tests that run one after the other on the main thread cannot be distinguished.
        let Some(name) = here.name().filter(|name| *name != "main") else {
            return Self(None);
        };
        watch();
        let (Ok(mut next), Ok(mut running)) = (NEXT.lock(), RUNNING.lock()) else {
            return Self(None);
        };
        *next += 1;
        running.insert(*next, (name.to_owned(), Instant::now()));
        Self(Some(*next))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let (Some(number), Ok(mut running)) = (self.0, RUNNING.lock()) {
            running.remove(&number);
        }
    }
}

/// Watches the test that this is called in; the first call counts.
pub(crate) fn this_test() {
    // A thread that ends asks for nothing more.
    let _ = WATCHED.try_with(|_| ());
}

fn limit() -> Duration {
    let set = std::env::var("DROVER_TEST_LIMIT").ok();
    let seconds = set.and_then(|set| set.parse().ok());
    seconds.map_or(LIMIT, Duration::from_secs)
}

/// Starts the thread that looks, once.
fn watch() {
    static WATCHER: OnceLock<ThreadId> = OnceLock::new();
    WATCHER.get_or_init(|| {
        let limit = limit();
        let look = move || {
            loop {
                thread::sleep(PAUSE);
                let over = RUNNING.lock().ok().and_then(|all| over(&all, limit));
                if let Some(name) = over {
                    // Not by the macro: what a thread of a test prints is kept for its end.
                    let _ = writeln!(
                        std::io::stderr(),
                        "test {name} has run for more than {limit:?}: the run is ended"
                    );
                    std::process::abort();
                }
            }
        };
        thread::spawn(look).thread().id()
    });
}

/// The test that has run for longer than this.
fn over(running: &BTreeMap<u64, (String, Instant)>, limit: Duration) -> Option<String> {
    let late = running.values().find(|(_, since)| since.elapsed() > limit);
    late.map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    #[ignore = "no test of its own: the test below runs it, and it does not end"]
    fn a_test_that_hangs() {
        this_test();
        loop {
            thread::park();
        }
    }

    #[test]
    fn a_test_that_hangs_is_named_and_ends_the_run() {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "limit::tests::a_test_that_hangs", "--ignored"])
            .args(["--test-threads", "2"])
            .env("DROVER_TEST_LIMIT", "1")
            .output()
            .expect("it runs");
        assert!(!output.status.success(), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let wanted = "test limit::tests::a_test_that_hangs has run for more than 1s";
        assert!(stderr.contains(wanted), "{stderr}");
    }

    #[test]
    fn a_test_that_ended_is_no_longer_watched() {
        let named = thread::Builder::new().name("short".to_owned());
        let thread = named.spawn(this_test).expect("a thread");
        thread.join().expect("it ends");
        let running = RUNNING.lock().expect("not poisoned");
        assert!(running.values().all(|(name, _)| name != "short"));
    }
}
