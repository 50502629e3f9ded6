//! Removes finished allocations when their space is needed, or on request (MOD-27).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::sleep;

use super::agent::Core;
use super::fingerprint::storage;

/// How long the removal of one allocation is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What decides whether something has to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pressure {
    /// Percent of the disk in use.
    pub disk: f64,
    /// Percent of the inodes in use.
    pub inodes: f64,
    /// Allocations there are.
    pub allocs: usize,
}

/// The limits of the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GcLimits {
    /// Percent.
    pub disk: f64,
    /// Percent.
    pub inodes: f64,
    /// How many.
    pub allocs: usize,
}

/// Why something has to go; `None` when nothing has.
pub(super) fn reason(now: Pressure, limits: GcLimits) -> Option<String> {
    let over = |what: &str, now: f64, limit: f64| {
        (now > limit)
            .then(|| format!("{what} usage of {now:.0} is over gc threshold of {limit:.0}"))
    };
    over("disk", now.disk, limits.disk)
        .or_else(|| over("inode", now.inodes, limits.inodes))
        .or_else(|| {
            let (n, limit) = (now.allocs, limits.allocs);
            (n > limit).then(|| format!("number of allocations ({n}) is over the limit ({limit})"))
        })
}

/// Looks at every interval until the task is aborted.
pub(super) async fn keep(core: Arc<Core>) {
    loop {
        sleep(core.settings.get().client.gc_interval).await;
        relieve(&core, || pressure(&core)).await;
    }
}

/// Removes finished allocations, those that ended longest ago first, until nothing presses any
/// more. One that cannot be removed keeps none of the others.
async fn relieve<Look: Future<Output = Pressure>>(core: &Core, look: impl Fn() -> Look) {
    let settings = core.settings.get();
    let limits = GcLimits {
        disk: settings.client.gc_disk_usage_threshold,
        inodes: settings.client.gc_inode_usage_threshold,
        allocs: settings.client.gc_max_allocs as usize,
    };
    let mut tried = BTreeSet::new();
    while let Some(reason) = reason(look().await, limits) {
        let next = finished(core).into_iter().find(|id| !tried.contains(id));
        let Some(oldest) = next else {
            break;
        };
        tracing::info!(alloc = oldest, "garbage collecting an allocation: {reason}");
        if tokio::time::timeout(PATIENCE, destroy(core, &oldest))
            .await
            .is_err()
        {
            tracing::warn!(alloc = oldest, "its removal hangs");
        }
        tried.insert(oldest);
    }
}

async fn pressure(core: &Core) -> Pressure {
    let alloc_dir = core.settings.get().alloc_dir.clone();
    let disk = tokio::task::spawn_blocking(move || storage::disk(&alloc_dir)).await;
    let disk = disk.unwrap_or_default();
    let used = disk.used + disk.available;
    let percent = if used == 0 {
        0.0
    } else {
        disk.used as f64 / used as f64 * 100.0
    };
    Pressure {
        disk: percent,
        inodes: disk.inodes_used_percent,
        allocs: core.allocs.lock().len(),
    }
}

/// Finished allocations, those that ended longest ago first.
fn finished(core: &Core) -> Vec<String> {
    let allocs = core.allocs.lock();
    let mut done: Vec<(i64, u64, String)> = allocs
        .iter()
        .filter(|(_, runner)| *runner.done().borrow())
        .map(|(id, runner)| (runner.ended_at(), runner.alloc().modify_index, id.clone()))
        .collect();
    done.sort();
    done.into_iter().map(|(_, _, id)| id).collect()
}

/// Its files and its state go; it is terminal for the servers, so it is not run again (CL-26).
async fn destroy(core: &Core, id: &str) {
    let runner = core.allocs.lock().get(id).cloned();
    if let Some(runner) = runner {
        runner.destroy().await;
        core.allocs.lock().remove(id);
    }
}

pub(super) async fn collect(core: &Core, id: &str) -> Result<(), String> {
    let runner = core.allocs.lock().get(id).cloned();
    match runner {
        None => Err(format!("state for allocation {id} not found on client")),
        Some(runner) if !*runner.done().borrow() => Err(format!(
            "allocation {id} is not terminal and cannot be garbage collected"
        )),
        Some(_) => {
            destroy(core, id).await;
            Ok(())
        }
    }
}

pub(super) async fn collect_all(core: &Core) {
    let parallel = core.settings.get().client.gc_parallel_destroys.max(1) as usize;
    stream::iter(finished(core))
        .for_each_concurrent(parallel, |id| async move { destroy(core, &id).await })
        .await;
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use drover_events::model::Allocation;
    use drover_testkit::{LONG, until};
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use serde_json::json;
    use tokio::sync::{Barrier, watch};

    use super::*;
    use crate::agent::Client;
    use crate::alloc::runner_test::alloc;
    use crate::alloc_runner::AllocRunner;
    use crate::testing::Pretended;

    /// Removals, each of which waits for others.
    struct Removals {
        together: Barrier,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    /// An allocation that is over.
    struct Over(watch::Sender<bool>, Arc<Removals>);

    impl AllocRunner for Over {
        fn update(&self, _: Arc<Allocation>) {}

        fn alloc(&self) -> Arc<Allocation> {
            Arc::default()
        }

        fn done(&self) -> watch::Receiver<bool> {
            self.0.subscribe()
        }

        fn destroy(&self) -> BoxFuture<'static, ()> {
            let removals = Arc::clone(&self.1);
            async move {
                let now = removals.now.fetch_add(1, Ordering::Relaxed) + 1;
                removals.most.fetch_max(now, Ordering::Relaxed);
                removals.together.wait().await;
                // The next ones, if they may, begin before the first is over.
                removals.together.wait().await;
                removals.now.fetch_sub(1, Ordering::Relaxed);
            }
            .boxed()
        }
    }

    /// A client that runs these: id, type and time of each.
    async fn runs(servers: &Arc<Pretended>, dir: &Path, all: &[(&str, &str, &str)]) -> Arc<Client> {
        let client = servers.client(dir);
        for (id, kind, time) in all {
            let one = Allocation {
                id: (*id).to_owned(),
                ..alloc(kind, "mock_driver", json!({"run_for": time}))
            };
            client.core.add(Arc::new(one), None);
            let status = || Some(client.runner(id)?.reported()?.client_status);
            let is = |wanted: &str| status().as_deref() == Some(wanted);
            let wanted = if *kind == "service" {
                "running"
            } else {
                "complete"
            };
            until("it runs, or is over", || is(wanted)).await;
            let over = || finished(&client.core).iter().any(|one| one == id);
            until("what ends is over", || is("running") || over()).await;
        }
        client
    }

    #[test]
    fn mod_27_thresholds_with_a_fake_disk() {
        let limits = GcLimits {
            disk: 80.0,
            inodes: 70.0,
            allocs: 50,
        };
        let at = |disk, inodes, allocs| {
            reason(
                Pressure {
                    disk,
                    inodes,
                    allocs,
                },
                limits,
            )
        };
        assert_eq!(at(80.0, 70.0, 50), None);
        assert_eq!(
            at(91.2, 0.0, 0).as_deref(),
            Some("disk usage of 91 is over gc threshold of 80")
        );
        assert!(at(0.0, 70.1, 0).is_some_and(|r| r.starts_with("inode")));
        assert!(at(0.0, 0.0, 51).is_some_and(|r| r.contains("(51)")));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mod_27_pressure_is_that_of_the_disk_that_allocations_lie_on() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
        let both = [("first", "service", "1h"), ("second", "service", "1h")];
        let client = runs(&servers, tmp.path(), &both).await;
        let before = storage::disk(&client.core.settings.get().alloc_dir);
        let reported = pressure(&client.core).await;
        assert_eq!(reported.allocs, 2);
        // Others write there meanwhile.
        let share = before.used as f64 / (before.used + before.available) as f64 * 100.0;
        assert!(
            share > 0.0 && (reported.disk - share).abs() < 10.0,
            "{reported:?}, {share}"
        );
        let inodes = before.inodes_used_percent;
        assert!(
            (reported.inodes - inodes).abs() < 10.0,
            "{reported:?}, {inodes}"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mod_27_the_oldest_finished_go_first_and_only_as_many_as_have_to() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
        let all = [
            ("c-first", "batch", "20ms"),
            ("b-second", "batch", "20ms"),
            ("a-third", "batch", "20ms"),
            ("svc", "service", "1h"),
        ];
        let client = runs(&servers, tmp.path(), &all).await;
        assert_eq!(client.alloc_ids().len(), 4);
        assert_eq!(finished(&client.core), ["c-first", "b-second", "a-third"]);
        let here = |id: &str| client.runner(id).is_some();

        // A disk on which every allocation takes a quarter, and two are too many.
        client.core.settings.update(|s| {
            (s.client.gc_disk_usage_threshold, s.client.gc_max_allocs) = (50.0, 50);
            s.client.gc_inode_usage_threshold = 70.0;
        });
        let disk = |left: usize| Pressure {
            disk: 25.0 * left as f64,
            inodes: 0.0,
            allocs: left,
        };
        let dir = client.runner("c-first").unwrap();
        let dir = dir.control().unwrap().dir().root();
        assert!(dir.is_dir());
        let left = || client.core.allocs.lock().len();
        relieve(&client.core, || std::future::ready(disk(left()))).await;
        assert!(!here("c-first") && !here("b-second") && !dir.exists());
        assert!(here("a-third") && here("svc"));

        // What runs stays, however full it is.
        let full = Pressure {
            disk: 99.0,
            inodes: 99.0,
            allocs: 99,
        };
        relieve(&client.core, || std::future::ready(full)).await;
        assert!(!here("a-third") && here("svc"));
        assert!(collect(&client.core, "svc").await.is_err());
        assert!(collect(&client.core, "nothing").await.is_err());
    }
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mod_27_as_many_are_removed_at_once_as_is_configured() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
        let client = servers.client(tmp.path());
        let settings = &client.core.settings;
        settings.update(|settings| settings.client.gc_parallel_destroys = 3);
        let removals = Arc::new(Removals {
            together: Barrier::new(3),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        for id in ["a", "b", "c", "d", "e", "f"] {
            let over = Over(watch::Sender::new(true), Arc::clone(&removals));
            let mut allocs = client.core.allocs.lock();
            allocs.insert(id.to_owned(), Arc::new(over));
        }
        let collected = tokio::time::timeout(LONG, collect_all(&client.core)).await;
        collected.expect("three are removed at once");
        assert_eq!(removals.most.load(Ordering::Relaxed), 3);
        assert!(client.core.allocs.lock().is_empty());
    }
}
