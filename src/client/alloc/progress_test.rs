//! How far the coordinator takes a task to be.

use super::progress;
use crate::alloc::coordinator::Progress;
use crate::drivers::Handle;
use crate::task::machine::{Phase, TaskMachine};

#[test]
fn cl_04_what_can_never_run_again_failed_only_if_it_did_and_what_may_run_did_not_yet() {
    let runs = Phase::Running(Handle::default());
    for (phase, state, failed, expected) in [
        (Phase::Waiting, "pending", false, Progress::Pending),
        (runs.clone(), "running", false, Progress::Running),
        (Phase::Dead, "dead", false, Progress::Done),
        (Phase::Dead, "dead", true, Progress::Failed),
        (Phase::Ended, "dead", false, Progress::Ended),
        (Phase::Ended, "dead", true, Progress::Failed),
        // What failed and may run all the same is as far as it is now.
        (Phase::Backoff(7), "pending", true, Progress::Pending),
        (runs, "running", true, Progress::Running),
    ] {
        let mut task = TaskMachine::new(1, 0);
        task.phase = phase;
        task.state.state = state.to_owned();
        task.state.failed = failed;
        let what = format!("{:?}, {state}, failed: {failed}", task.phase);
        assert_eq!(progress(&task), expected, "{what}");
    }
}
