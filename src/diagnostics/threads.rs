//! The threads of this process: what each is called, what it does now, how long it ran.

use std::time::Duration;

use super::proto::{Function, Measured, Sample};
use crate::base::clock::unix_nanos;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    id: i32,
    name: String,
    state: char,
    user: Duration,
    system: Duration,
}

/// All threads that are there now.
fn all() -> Vec<Thread> {
    let tasks = procfs::process::Process::myself().and_then(|own| own.tasks());
    let ticks = procfs::ticks_per_second();
    let time = |count: u64| Duration::from_secs_f64(count as f64 / ticks as f64);
    let tasks = tasks.into_iter().flatten().flatten();
    tasks
        // One that ended meanwhile is not there.
        .filter_map(|task| {
            let stat = task.stat().ok()?;
            Some(Thread {
                id: task.tid,
                name: stat.comm,
                state: stat.state,
                user: time(stat.utime),
                system: time(stat.stime),
            })
        })
        .collect()
}

/// What a letter of the kernel's means.
const fn state(letter: char) -> &'static str {
    match letter {
        'R' => "running",
        'S' => "sleeping",
        'D' => "waiting for a disk",
        'T' | 't' => "stopped",
        'Z' => "ended",
        'I' => "idle",
        _ => "unknown",
    }
}

/// A table of all threads, for people.
pub(super) fn table(profile: &str) -> String {
    let threads = all();
    let mut out = format!(
        "{profile} profile: total {}\n\
         These are the threads of the process as the kernel knows them: there are no goroutines, \
         and no stacks.\n\n{:>8}  {:<16} {:<18} {:>12} {:>12}\n",
        threads.len(),
        "id",
        "name",
        "state",
        "user s",
        "system s"
    );
    for thread in &threads {
        let (user, system) = (thread.user.as_secs_f64(), thread.system.as_secs_f64());
        let line = format!(
            "{:>8}  {:<16} {:<18} {user:>12.2} {system:>12.2}\n",
            thread.id,
            thread.name,
            state(thread.state),
        );
        out.push_str(&line);
    }
    out
}

/// The same as samples: one stack for each thread, of its name and its state.
pub(super) fn samples() -> Measured {
    let place = |name: String| {
        let function = Function {
            name,
            ..Function::default()
        };
        vec![(function, 0)]
    };
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let samples = all().into_iter().map(|thread| Sample {
        stack: vec![
            place(state(thread.state).to_owned()),
            place(thread.name.clone()),
        ],
        values: vec![1, nanos(thread.user + thread.system)],
        thread: thread.name,
    });
    Measured {
        kinds: vec![("threads", "count"), ("cpu", "nanoseconds")],
        period: 1,
        began: unix_nanos(),
        took: Duration::ZERO,
        samples: samples.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_23_threads_are_told_by_name() {
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let other = std::thread::Builder::new()
            .name("told-by-name".to_owned())
            .spawn(move || rx.recv())
            .expect("starts");
        let seen = drover_testkit::wait_for("the thread", drover_testkit::LONG, || {
            let all = all();
            let found = all.iter().find(|thread| thread.name == "told-by-name");
            found.cloned().ok_or("not yet")
        });
        let seen = seen.expect("it is there");
        assert_ne!(state(seen.state), "unknown", "{seen:?}");
        let table = table("goroutine");
        assert!(table.starts_with("goroutine profile: total "), "{table}");
        assert!(table.contains("told-by-name"), "{table}");
        let samples = samples();
        let one = samples.samples.iter().find(|s| s.thread == "told-by-name");
        assert_eq!(one.expect("a sample").stack.len(), 2);
        drop(tx);
        let _ = other.join();
    }
}
