//! What is counted of allocations that run here, with values.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{Allocation, Job};
use drover_testkit::{LONG, eventually, so};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::alloc::runner_test::{self, factory, run};
use crate::drivers::exec::{ExecCommand, Wires};
use crate::drivers::mock::NAME;
use crate::drivers::testing::staged;
use crate::drivers::{ExitResult, Handle, RunningTask, Samples, TaskConfig, TaskError};
use drover_telemetry as telemetry;

/// What is counted while this runs, in Prometheus' text form.
fn counted(work: impl Future<Output = ()>) -> String {
    let (telemetry, recorder) = telemetry::build(&telemetry::TelemetryOptions::default());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work));
    telemetry.prometheus()
}

/// What was counted under these names: the labels, and how often.
fn found<const N: usize>(reported: &str, names: [&str; N]) -> [Option<String>; N] {
    names.map(|name| {
        let begin = format!("nomad_client_allocs_{name}{{");
        let line = reported.lines().find_map(|line| line.strip_prefix(&begin));
        line.map(str::to_owned)
    })
}

fn wanted<const N: usize>(labels: &str, counts: [u64; N]) -> [Option<String>; N] {
    counts.map(|count| (count > 0).then(|| format!("{labels}}} {count}")))
}

fn alloc(kind: &str, config: Value) -> Allocation {
    Allocation {
        namespace: "default".into(),
        ..runner_test::alloc(kind, NAME, config)
    }
}

const OF_ALLOC: &str = "job=\"j\",task_group=\"g\",namespace=\"default\"";
const OF_TASK: &str = "job=\"j\",task_group=\"g\",namespace=\"default\",task=\"web\"";

#[test]
fn allocations_are_counted_by_what_became_of_them() {
    let tmp = tempfile::tempdir().unwrap();
    let reported = counted(async {
        let factory = factory(tmp.path());
        for (number, exit_code) in [(1, 0), (2, 0), (3, 1)] {
            let config = json!({"run_for": "1ms", "exit_code": exit_code});
            let given = Allocation {
                id: format!("11111111-2222-3333-4444-00000000000{number}"),
                ..alloc("batch", config)
            };
            let runner = run(&factory, &given, &Arc::new(Mutex::new(None)));
            runner.done().wait_for(|done| *done).await.unwrap();
            if number == 1 {
                runner.destroy().await;
            }
        }
    });
    let names = ["start", "running", "complete", "failed", "destroy"];
    let counts = wanted(OF_ALLOC, [3, 3, 2, 1, 1]);
    assert_eq!(found(&reported, names), counts, "{reported}");
    let of_tasks = found(&reported, ["restart", "oom_killed"]);
    assert_eq!(of_tasks, [None, None], "{reported}");
}

#[test]
fn a_task_that_is_started_again_is_counted_once_for_each_time() {
    let tmp = tempfile::tempdir().unwrap();
    let counted = counted(async {
        let factory = factory(tmp.path());
        let given = alloc("service", json!({"run_for": "1h"}));
        let reported = Arc::new(Mutex::new(None));
        let runs_after = |restarts: u64| {
            let reported: &Mutex<Option<Allocation>> = &reported;
            so(reported.lock().as_ref().is_some_and(|alloc| {
                let is_running = alloc.client_status == "running";
                is_running && alloc.task_states["web"].restarts == restarts
            }))
        };
        let runner = run(&factory, &given, &reported);
        let runs = eventually("it runs", LONG, || runs_after(0)).await;
        runs.unwrap();
        let restart = runner.control().unwrap().restart(None, false);
        restart.await.unwrap();
        let again = eventually("it runs again", LONG, || runs_after(1)).await;
        again.unwrap();
        // Another agent finds it again: what was counted is not counted anew.
        runner.detach().await;
        reported.lock().take();
        let runner = run(&factory, &given, &reported);
        let there = eventually("it is found again", LONG, || runs_after(1)).await;
        there.unwrap();
        runner.update(Arc::new(Allocation {
            desired_status: "stop".into(),
            ..given
        }));
        runner.done().wait_for(|done| *done).await.unwrap();
    });
    let names = ["start", "running", "complete", "failed"];
    let counts = wanted(OF_ALLOC, [2, 2, 1, 0]);
    assert_eq!(found(&counted, names), counts, "{counted}");
    let restarts = wanted(OF_TASK, [1]);
    assert_eq!(found(&counted, ["restart"]), restarts, "{counted}");
}

/// A run that the kernel ends for its memory.
struct Killed(u64);

impl RunningTask for Killed {
    fn handle(&self) -> Handle {
        Handle {
            run: self.0,
            ..Handle::default()
        }
    }

    fn wait(&self) -> BoxFuture<'static, ExitResult> {
        std::future::ready(ExitResult {
            exit_code: 137,
            oom_killed: true,
            error: "OOM Killed".into(),
            ..ExitResult::default()
        })
        .boxed()
    }

    fn stop(&self, _: &str, _: Duration) -> Result<(), TaskError> {
        Ok(())
    }

    fn signal(&self, _: &str) -> Result<(), TaskError> {
        Ok(())
    }

    fn exec(&self, _: ExecCommand, _: Wires) -> BoxFuture<'static, Result<(), TaskError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn stats(&self, _: Duration) -> Samples {
        stream::empty().boxed()
    }
}

#[test]
fn a_task_that_is_killed_for_its_memory_is_counted() {
    let tmp = tempfile::tempdir().unwrap();
    let reported = counted(async {
        let mut factory = factory(tmp.path());
        factory.drivers = staged(|config: TaskConfig| {
            let task: Arc<dyn RunningTask> = Arc::new(Killed(config.run));
            std::future::ready(Ok(task)).boxed()
        });
        let given = alloc("batch", json!({}));
        let runner = run(&factory, &given, &Arc::new(Mutex::new(None)));
        runner.done().wait_for(|done| *done).await.unwrap();
    });
    let killed = found(&reported, ["oom_killed"]);
    assert_eq!(killed, wanted(OF_TASK, [1]), "{reported}");
    assert_eq!(
        found(&reported, ["failed"]),
        wanted(OF_ALLOC, [1]),
        "{reported}"
    );
}

#[test]
fn a_child_is_counted_under_its_parent() {
    let plain = alloc("batch", json!({}));
    assert_eq!(super::measured_as(&plain), "j");
    let mut child = plain.clone();
    let mut job = Job::clone(plain.job.as_ref().unwrap());
    job.parent_id = "cron".into();
    child.job = Some(Arc::new(job));
    assert_eq!(super::measured_as(&child), "cron");
}
