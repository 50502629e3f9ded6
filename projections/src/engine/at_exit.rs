//! The end of a process in which threads still use RocksDB.
//!
//! Whoever ends a process waits for such threads, but not for ever: an agent that stops has its few
//! seconds, and a command that is interrupted has none. The destructors of RocksDB's own statics
//! would then run under them, and the next lock one of them takes aborts the process ("pthread
//! lock: Invalid argument"): it would end with a signal although all is well. So none of them run.
//!
//! It is an effect on the whole process, and the only one that this crate has.

use std::ffi::{c_int, c_void};
use std::sync::Once;

/// Has the process end without destructors of statics, with the status that it ends with. To be
/// called once there are options, and so RocksDB's statics: what is registered last comes first.
pub(crate) fn skip_destructors() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register);
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "no library offers these calls in safe form")]
fn register() {
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        fn _exit(status: c_int) -> !;
    }
    /// What was written to the standard streams has left the process: Rust's are flushed before
    /// such functions run.
    extern "C" fn end(status: c_int, _: *mut c_void) {
        // SAFETY: it takes a number and touches no memory.
        unsafe { _exit(status) }
    }
    // SAFETY: the function lives as long as the process and does not look at its argument. Where
    // it is not taken for want of memory, the process ends as it did.
    unsafe { on_exit(end, std::ptr::null_mut()) };
}

/// Other C libraries do not tell with which status a process ends.
#[cfg(not(target_env = "gnu"))]
fn register() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::process::Command;

    use crate::engine::db::{Database, DatabaseOptions, Family};

    /// Has this test be the process that ends under its threads: in this directory.
    const ENDS: &str = "DROVER_TEST_ENDS";

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "what a process is to do is in its environment, and nothing is applied"
    )]
    fn a_process_ends_with_its_status_whatever_its_threads_do() {
        if let Some(dir) = std::env::var_os(ENDS) {
            let mut all = Vec::new();
            for thread in 0..8 {
                let path = std::path::Path::new(&dir).join(thread.to_string());
                let (working, works) = std::sync::mpsc::channel();
                all.push(works);
                std::thread::spawn(move || {
                    loop {
                        let options = DatabaseOptions::default();
                        let db = Database::open(&path, &options).expect("it opens");
                        let family = db.family(Family::ALL[0]);
                        db.raw()
                            .put_cf(family, b"key", b"value")
                            .expect("it is written");
                        db.flush(true).expect("it is flushed");
                        working.send(()).expect("the test goes on");
                    }
                });
            }
            for works in &all {
                works.recv().expect("it works");
            }
            std::process::exit(7);
        }
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let ended = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture", "--test-threads=1"])
                .arg(concat!(
                    "engine::at_exit::tests::",
                    "a_process_ends_with_its_status_whatever_its_threads_do"
                ))
                .env(ENDS, dir.path())
                .output()
                .unwrap();
            let stderr = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(7), "{}: {stderr}", ended.status);
        }
    }
}
