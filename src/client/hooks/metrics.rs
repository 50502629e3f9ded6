//! How long the hooks of allocations and tasks take, and how they end.

use std::time::Instant;

use drover_telemetry::milliseconds;

/// Whose hooks they are, and when they run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hooks {
    /// An allocation's, before its tasks.
    AllocPrerun,
    /// A task's, before it starts.
    TaskPrestart,
}

impl Hooks {
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::AllocPrerun => [
                "nomad.client.alloc_hook.prerun.elapsed",
                "nomad.client.alloc_hook.prerun.success",
                "nomad.client.alloc_hook.prerun.failed",
            ],
            Self::TaskPrestart => [
                "nomad.client.task_hook.prestart.elapsed",
                "nomad.client.task_hook.prestart.success",
                "nomad.client.task_hook.prestart.failed",
            ],
        }
    }

    /// Notes that a hook ended that began then.
    pub(super) fn ended(self, hook: &'static str, began: Instant, well: bool) {
        let [elapsed, success, failed] = self.names();
        let took = milliseconds(began.elapsed());
        metrics::histogram!(elapsed, "hook_name" => hook).record(took);
        let how = if well { success } else { failed };
        metrics::counter!(how, "hook_name" => hook).increment(1);
    }
}
