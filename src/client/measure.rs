//! Measures what the machine uses, at an interval of its own (MOD-17): figures are those of the
//! interval, whoever asks and however often. Tasks are followed by a hook of theirs.

use std::sync::Arc;
use std::time::Duration;

use super::agent::Core;

/// The shortest interval: what is measured costs a little.
const SHORTEST: Duration = Duration::from_secs(1);

/// Measures until the task is aborted.
pub(super) async fn keep(core: Arc<Core>) {
    loop {
        let interval = core.settings.get().collection_interval.max(SHORTEST);
        tokio::time::sleep(interval).await;
        let measured = core.clone();
        // It reads as many files as there are processes.
        let _ = tokio::task::spawn_blocking(move || measure(&measured)).await;
    }
}

/// Measures once.
pub(super) fn measure(core: &Core) {
    core.meter.measure(&core.settings.get().alloc_dir);
}
