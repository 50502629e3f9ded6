//! Removes finished allocations when room is needed, or on request (MOD-27).

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::sleep;

use super::agent::Core;
use super::fingerprint::storage;

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
pub(super) struct Limits {
    /// Percent.
    pub disk: f64,
    /// Percent.
    pub inodes: f64,
    /// How many.
    pub allocs: usize,
}

/// Why something has to go; `None` when nothing has.
pub(super) fn reason(now: Pressure, limits: Limits) -> Option<String> {
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
        while let Some(reason) = pressing(&core) {
            let Some(oldest) = finished(&core).into_iter().next() else {
                break;
            };
            tracing::info!(alloc = oldest, "garbage collecting an allocation: {reason}");
            destroy(&core, &oldest).await;
        }
    }
}

fn pressing(core: &Core) -> Option<String> {
    let settings = core.settings.get();
    let disk = storage::disk(&settings.alloc_dir);
    let used = disk.used + disk.available;
    let percent = if used == 0 {
        0.0
    } else {
        disk.used as f64 / used as f64 * 100.0
    };
    let now = Pressure {
        disk: percent,
        inodes: disk.inodes_used_percent,
        allocs: core.allocs.lock().len(),
    };
    let limits = Limits {
        disk: settings.client.gc_disk_usage_threshold,
        inodes: settings.client.gc_inode_usage_threshold,
        allocs: settings.client.gc_max_allocs as usize,
    };
    reason(now, limits)
}

/// Finished allocations, those the servers changed longest ago first.
fn finished(core: &Core) -> Vec<String> {
    let allocs = core.allocs.lock();
    let mut done: Vec<(u64, String)> = allocs
        .iter()
        .filter(|(_, runner)| *runner.done().borrow())
        .map(|(id, runner)| (runner.alloc().modify_index, id.clone()))
        .collect();
    done.sort();
    done.into_iter().map(|(_, id)| id).collect()
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
    use super::*;

    #[test]
    fn mod_27_thresholds_with_a_fake_disk() {
        let limits = Limits {
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
}
