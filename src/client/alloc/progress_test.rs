//! How far the coordinator takes a task to be.

use super::progress;
use crate::alloc::coordinator::TaskProgress;
use crate::drivers::Handle;
use crate::task::machine::{Phase, TaskMachine};

#[test]
fn cl_04_what_can_never_run_again_failed_only_if_it_did_and_what_may_run_did_not_yet() {
    let runs = Phase::Running(Handle::default());
    for (phase, state, failed, expected) in [
        (Phase::Waiting, "pending", false, TaskProgress::Pending),
        (runs.clone(), "running", false, TaskProgress::Running),
        (Phase::Dead, "dead", false, TaskProgress::Succeeded),
        (Phase::Dead, "dead", true, TaskProgress::Failed),
        (Phase::Ended, "dead", false, TaskProgress::Terminal),
        (Phase::Ended, "dead", true, TaskProgress::Failed),
        // What failed and may run all the same is as far as it is now.
        (Phase::Backoff(7), "pending", true, TaskProgress::Pending),
        (runs, "running", true, TaskProgress::Running),
    ] {
        let mut task = TaskMachine::new(1, 0);
        task.phase = phase;
        task.state.state = state.to_owned();
        task.state.failed = failed;
        let what = format!("{:?}, {state}, failed: {failed}", task.phase);
        assert_eq!(progress(&task), expected, "{what}");
    }
}
