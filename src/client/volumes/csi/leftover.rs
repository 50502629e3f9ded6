//! Volumes that allocations left mounted here, and that no claim of the servers stands for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use drover_csi::mounts::{MountError, Returned};
use futures_util::{FutureExt, StreamExt};

use super::Csi;
use super::registry::Live;

/// How many are taken back at once.
const AT_ONCE: usize = 8;

/// How volumes are taken back.
#[derive(Clone, Copy)]
pub(super) enum UnmountPlan<'a> {
    /// Each when its turn comes.
    Waits,
    /// Those at which no other call works: a former call may be under way still, and another one
    /// would only stand in line behind it. It counts which were begun, so that the next time it
    /// continues with those behind them.
    Passes(&'a AtomicUsize),
}

impl Csi {
    /// Takes the volumes of a plugin from allocations of which servers know no claim any more:
    /// nothing else would request it. Whether some are left, because a call failed or was not made.
    pub(super) async fn take_rest(
        &self,
        live: &Live,
        way: UnmountPlan<'_>,
        is_over: impl Fn(&str) -> bool,
    ) -> bool {
        let marks = self.mounts.marks(&self.root(&live.instance)).await;
        let mut over = Vec::new();
        for mark in marks.all {
            if is_over(&mark.alloc) {
                over.push(Returned {
                    alloc: mark.alloc,
                    namespace: mark.namespace,
                    volume: mark.volume,
                    remote: mark.remote,
                });
            }
        }
        if let (UnmountPlan::Passes(begun), false) = (way, over.is_empty()) {
            let first = begun.load(Ordering::Relaxed) % over.len();
            over.rotate_left(first);
        }
        let mut each = Vec::new();
        for given in &over {
            each.push(self.take(live, way, given).boxed());
        }
        // One that hangs holds up no other.
        let mut taken = futures_util::stream::iter(each).buffer_unordered(AT_ONCE);
        let mut left = false;
        let plugin = &live.instance.plugin;
        let logged = |error: MountError| tracing::warn!(plugin, "volumes are left: {error}");
        while let Some(taken) = taken.next().await {
            left |= !taken.map_err(logged).unwrap_or(false);
        }
        left | marks.failed.map(logged).is_some()
    }

    /// Takes one back; whether it is.
    async fn take(
        &self,
        live: &Live,
        way: UnmountPlan<'_>,
        given: &Returned,
    ) -> Result<bool, MountError> {
        let (alloc, volume) = (&given.alloc, &given.volume);
        let root = self.root(&live.instance);
        let stages = live.found.features.node.unwrap_or_default().stage;
        let (mounts, plugin) = (&self.mounts, &live.plugin);
        let taken = match way {
            UnmountPlan::Waits => {
                let taken = mounts.unmount(plugin, stages, &root, given).await;
                taken.map(|()| true)
            }
            UnmountPlan::Passes(begun) => {
                begun.fetch_add(1, Ordering::Relaxed);
                let by = (plugin, stages);
                let taken = mounts.unmount_within(Duration::ZERO, by, &root, given);
                taken.await
            }
        };
        if let Ok(true) = taken {
            tracing::warn!(alloc, volume, "took back what had no claim any more");
        }
        taken
    }
}
