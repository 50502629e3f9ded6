//! Measures what the machine uses, at an interval of its own (MOD-17): figures are those of the
//! interval, whatever requests them and however often. Tasks are followed by a hook of theirs.

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

#[cfg(test)]
mod tests {
    use crate::alloc::runner_test::until;
    use crate::testing::Pretended;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mod_17_the_machine_is_measured_again_and_again_whoever_asks() {
        let tmp = tempfile::tempdir().unwrap();
        let client = Pretended::silent().client(tmp.path());
        let at = || client.core.meter.latest().timestamp;
        let first = at();
        assert!(first > 0, "it is measured when the client begins");
        until("it is measured again", || at() > first).await;
    }
}
