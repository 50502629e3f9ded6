//! The hooks of an allocation's directories: they are made, and what a predecessor left is taken
//! over when it is through.

use futures_util::FutureExt;
use serde_json::Value;

use super::{AllocAnswer, AllocGiven, AllocHook, Hooked};
use crate::alloc_dir::AllocDir;
use crate::alloc_runner::Waits;
use crate::hooks::resources::Resources;

/// Makes the directories that the tasks share.
pub(super) struct AllocDirs;

impl AllocHook for AllocDirs {
    fn name(&self) -> &'static str {
        "alloc_dir"
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn prerun<'a>(&'a self, given: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        let dir = given.dir.clone();
        async move {
            offload(move || dir.build()).await?;
            Ok(AllocAnswer::nothing())
        }
        .boxed()
    }
}

/// Says what an allocation waits for, until this is dropped.
struct Waiting<'a>(&'a Resources);

impl<'a> Waiting<'a> {
    fn begin(resources: &'a Resources, what: Waits) -> Self {
        resources.change(|waits: &mut Waits| *waits = what);
        Self(resources)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.change(|waits: &mut Waits| *waits = Waits::ForNobody);
    }
}

/// Waits until what it replaces is through.
pub(super) struct AwaitPrevious;

impl AllocHook for AwaitPrevious {
    fn name(&self) -> &'static str {
        "await_previous_allocations"
    }

    fn prerun<'a>(&'a self, given: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            let waits = !given.previous.is_empty();
            let _waiting = waits.then(|| Waiting::begin(&given.resources, Waits::ForOthers));
            for runner in &given.previous {
                // An error means that the runner is gone, which is as good as done.
                let _ = runner.done().wait_for(|done| *done).await;
            }
            Ok(AllocAnswer::nothing())
        }
        .boxed()
    }
}

/// Takes over what its predecessor left.
pub(super) struct MigrateDisk;

impl AllocHook for MigrateDisk {
    fn name(&self) -> &'static str {
        "migrate_disk"
    }

    fn prerun<'a>(&'a self, given: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            let Some(tasks) = wanting(given) else {
                return Ok(AllocAnswer::nothing());
            };
            let Some(from) = predecessor(given) else {
                let id = &given.alloc.previous_allocation;
                let text =
                    format!("allocation {id} is not on this node: its data was not taken over");
                (given.report)(self.name(), &text);
                return Ok(AllocAnswer::done());
            };
            let _waiting = Waiting::begin(&given.resources, Waits::ForData);
            let dir = given.dir.clone();
            offload(move || dir.take_over(&from, &tasks)).await?;
            Ok(AllocAnswer::done())
        }
        .boxed()
    }
}

/// Runs what may wait for the disk.
async fn offload(
    work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(std::io::Error::other(e)))
        .map_err(|e| e.to_string())
}

/// The tasks that want what those of another allocation left.
fn wanting(given: &AllocGiven) -> Option<Vec<String>> {
    let group = given.alloc.group()?;
    let disk = group.ephemeral_disk.as_ref()?;
    let wants = (disk.sticky || disk.migrate) && !given.alloc.previous_allocation.is_empty();
    wants.then(|| group.tasks.iter().map(|t| t.name.clone()).collect())
}

/// The directory of the allocation that this one takes data over from, where it is here.
fn predecessor(given: &AllocGiven) -> Option<AllocDir> {
    let mut previous = given.previous.iter();
    let runner = previous.find(|runner| runner.alloc().id == given.alloc.previous_allocation)?;
    Some(runner.control()?.dir().clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_events::model::{Allocation, EphemeralDisk, Node};
    use futures_util::future::BoxFuture;
    use parking_lot::Mutex;

    use super::*;
    use crate::alloc::runner_test::{alloc, factory, run};
    use crate::alloc_runner::{AllocRunnerFactory, Report};
    use crate::config::ClientSettings;
    use crate::hooks::alloc::list::AllocHooks;
    use crate::hooks::alloc::{AllocHookReport, chain};
    use crate::hooks::notes::Keep;
    use drover_telemetry as telemetry;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_predecessor_left_is_taken_over_where_the_group_asks_for_it() {
        let disk = |sticky, migrate| {
            Some(EphemeralDisk {
                sticky,
                migrate,
                ..EphemeralDisk::default()
            })
        };
        for (requested, replaces, taken) in [
            (None, true, false),
            (disk(false, false), true, false),
            (disk(true, false), true, true),
            (disk(false, true), true, true),
            // One that it waits for and does not replace keeps what it has.
            (disk(true, true), false, false),
        ] {
            let tmp = tempfile::tempdir().unwrap();
            let factory = factory(tmp.path());
            let config = serde_json::json!({"run_for": "1ms"});
            let first = alloc("batch", "mock_driver", config);
            let runner = run(&factory, &first, &Arc::new(Mutex::new(None)));
            runner.done().wait_for(|done| *done).await.unwrap();
            let kept = |dir: &AllocDir| dir.shared().join("data/kept");
            let old = runner.control().unwrap().dir().clone();
            std::fs::write(kept(&old), "rows").unwrap();

            let mut next = first.clone();
            next.id = "11111111-2222-3333-4444-666666666666".into();
            if replaces {
                next.previous_allocation.clone_from(&first.id);
            }
            let job = Arc::make_mut(next.job.as_mut().unwrap());
            job.task_groups[0].ephemeral_disk.clone_from(&requested);
            let report: Report = Arc::new(|_| {});
            let successor = factory.start(Arc::new(next), None, vec![runner], report);
            let successor = successor.unwrap();
            successor.done().wait_for(|done| *done).await.unwrap();
            let new = successor.control().unwrap().dir();
            let found = (kept(&old).exists(), kept(new).exists());
            assert_eq!(
                found,
                (!taken, taken),
                "{requested:?}, replaces: {replaces}"
            );
        }
    }

    #[test]
    fn that_data_is_taken_over_is_known_while_it_is() {
        let tmp = tempfile::tempdir().unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let (first, runner) = runtime.block_on(async {
            let factory = factory(tmp.path());
            let config = serde_json::json!({"run_for": "1ms"});
            let first = alloc("batch", "mock_driver", config);
            let runner = run(&factory, &first, &Arc::new(Mutex::new(None)));
            runner.done().wait_for(|done| *done).await.unwrap();
            (first, runner)
        });
        let mut next = first.clone();
        next.id = "11111111-2222-3333-4444-666666666666".into();
        next.previous_allocation.clone_from(&first.id);
        let job = Arc::make_mut(next.job.as_mut().unwrap());
        job.task_groups[0].ephemeral_disk = Some(EphemeralDisk {
            sticky: true,
            ..EphemeralDisk::default()
        });
        let given = AllocGiven {
            dir: AllocDir::new(&tmp.path().join("alloc"), &next.id),
            alloc: Arc::new(next),
            node: Arc::new(Node::default()),
            settings: Arc::new(ClientSettings::default()),
            resources: Arc::default(),
            report: Arc::new(|_: &str, _: &str| {}),
            previous: vec![runner],
        };
        given.dir.build().unwrap();
        let waits = || given.resources.get::<Waits>().unwrap_or_default();
        // Here one thing is done at a time: until that is through, no data is moved.
        let mut narrow = tokio::runtime::Builder::new_current_thread();
        let narrow = narrow.max_blocking_threads(1).build().unwrap();
        narrow.block_on(async {
            let (free, held) = std::sync::mpsc::channel::<()>();
            let before = tokio::task::spawn_blocking(move || held.recv());
            let (hook, kept) = (MigrateDisk, Value::Null);
            let mut taking = hook.prerun(&given, &kept);
            assert!((&mut taking).now_or_never().is_none(), "it waits");
            assert_eq!(waits(), Waits::ForData);
            drop(free);
            before.await.unwrap().unwrap_err();
            taking.await.unwrap();
            assert_eq!(waits(), Waits::ForNobody);
        });
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn data_that_is_on_another_node_is_said_to_be_missing() {
        for requested in [true, false] {
            let tmp = tempfile::tempdir().unwrap();
            let config = serde_json::json!({"run_for": "1ms"});
            let mut given = alloc("batch", "mock_driver", config);
            given.previous_allocation = "22222222-2222-3333-4444-555555555555".into();
            let job = Arc::make_mut(given.job.as_mut().unwrap());
            job.task_groups[0].ephemeral_disk = Some(EphemeralDisk {
                migrate: requested,
                ..EphemeralDisk::default()
            });
            let reported = Arc::new(Mutex::new(None));
            let runner = run(&factory(tmp.path()), &given, &reported);
            runner.done().wait_for(|done| *done).await.unwrap();
            let last: Allocation = reported.lock().clone().unwrap();
            assert_eq!(last.client_status, "complete");
            let mut events = last.task_states["web"].events.iter();
            let message = events.find(|event| event.r#type == "Task hook message");
            let message = message.map(|event| event.message.as_str());
            let text = "migrate_disk: allocation 22222222-2222-3333-4444-555555555555 is not on \
                        this node: its data was not taken over";
            assert_eq!(message, requested.then_some(text));
        }
    }

    /// A receiver of none of these hooks' answers: they have none.
    struct Nowhere;

    impl Keep<AllocHookReport> for Nowhere {
        fn write(&self, _: AllocHookReport) -> BoxFuture<'static, Result<(), String>> {
            panic!("none of them answers")
        }

        fn report(&self, _: AllocHookReport) {
            panic!("none of them answers")
        }
    }

    #[test]
    fn hooks_are_timed_and_counted_by_how_they_end_unless_that_is_switched_off() {
        let (telemetry, recorder) = telemetry::build(&telemetry::TelemetryOptions::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(
            tmp.path().join("taken"),
            "a file where a directory should be",
        )
        .unwrap();
        let run = |id: &str, measured: bool| {
            let settings = ClientSettings {
                hook_metrics: measured,
                ..ClientSettings::default()
            };
            let given = AllocGiven {
                alloc: Arc::new(Allocation::default()),
                dir: AllocDir::new(tmp.path(), id),
                node: Arc::new(Node::default()),
                settings: Arc::new(settings),
                resources: Arc::default(),
                previous: Vec::new(),
                report: Arc::new(|_: &str, _: &str| {}),
            };
            let hooks: AllocHooks = [
                Box::new(AllocDirs) as Box<dyn AllocHook>,
                Box::new(AwaitPrevious),
            ]
            .into_iter()
            .collect();
            let ran = chain::prerun(&hooks, &given, &[], &Nowhere);
            metrics::with_local_recorder(&recorder, || runtime.block_on(ran))
        };
        run("a", true).unwrap();
        run("b", true).unwrap();
        run("c", false).unwrap();
        let error = run("taken", true).unwrap_err();
        assert!(
            error.starts_with("pre-run hook \"alloc_dir\" failed"),
            "{error}"
        );
        run("taken", false).unwrap_err();
        let reported = telemetry.prometheus();
        let value = |what: &str, hook: &str| {
            let line = format!("nomad_client_alloc_hook_prerun_{what}{{hook_name=\"{hook}\"}} ");
            let line = reported.lines().find_map(|text| text.strip_prefix(&line));
            line.map(str::to_owned)
        };
        let dirs = ["success", "failed", "elapsed_count"].map(|what| value(what, "alloc_dir"));
        assert_eq!(
            dirs,
            ["2", "1", "3"].map(|text| Some(text.to_owned())),
            "{reported}"
        );
        // What comes after a hook that failed is not run.
        let waits = ["success", "failed", "elapsed_count"];
        let waits = waits.map(|what| value(what, "await_previous_allocations"));
        assert_eq!(
            waits,
            [Some("2".to_owned()), None, Some("2".to_owned())],
            "{reported}"
        );
    }
}
