//! The hooks before an allocation's tasks, in their order.

use std::sync::Arc;
use std::time::Instant;

use drover_events::model::Allocation;

use super::dir::AllocDir;
use super::factory::AllocRunner;
use crate::client::hook_metrics::Hooks;

/// What the hooks work on.
pub struct HookInput {
    /// The allocation.
    pub alloc: Arc<Allocation>,
    /// Its directories.
    pub dir: AllocDir,
    /// Runners of allocations that it replaces, on this node.
    pub previous: Vec<Arc<dyn AllocRunner>>,
    /// Whether it is measured how long they take.
    pub measured: bool,
}

/// Runs them: directories, then the end of predecessors, then what they left.
///
/// # Errors
/// The first that failed, by name.
pub async fn prerun(input: HookInput) -> Result<(), String> {
    let (dir, measured) = (input.dir.clone(), input.measured);
    let built = aside("alloc_dir", move || dir.build());
    timed("alloc_dir", measured, built).await?;
    let waited = async {
        await_previous_allocations(&input).await;
        Ok(())
    };
    timed("await_previous_allocations", measured, waited).await?;
    let Some((from, tasks)) = predecessor(&input) else {
        return Ok(());
    };
    let taken = aside("migrate_disk", move || input.dir.take_over(&from, &tasks));
    timed("migrate_disk", measured, taken).await
}

/// Runs a hook, and notes how long it took.
async fn timed(
    hook: &'static str,
    measured: bool,
    work: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    let began = Instant::now();
    let done = work.await;
    if measured {
        Hooks::AllocPrerun.ended(hook, began, done.is_ok());
    }
    done
}

/// Runs a hook where it may wait for the disk.
async fn aside(
    hook: &str,
    work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(std::io::Error::other(e)))
        .map_err(|e| format!("pre-run hook {hook:?} failed: {e}"))
}

async fn await_previous_allocations(input: &HookInput) {
    for runner in &input.previous {
        // An error means that the runner is gone, which is as good as done.
        let _ = runner.done().wait_for(|done| *done).await;
    }
}

/// Whose data is taken over, and of which tasks.
fn predecessor(input: &HookInput) -> Option<(AllocDir, Vec<String>)> {
    let group = input.alloc.group()?;
    let disk = group.ephemeral_disk.as_ref()?;
    if !disk.sticky && !disk.migrate {
        return None;
    }
    let tasks = group.tasks.iter().map(|t| t.name.clone()).collect();
    let mut previous = input.previous.iter();
    let runner = previous.find(|runner| runner.alloc().id == input.alloc.previous_allocation)?;
    Some((runner.control()?.dir().clone(), tasks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry;

    #[test]
    fn hooks_are_timed_and_counted_by_how_they_end_unless_that_is_switched_off() {
        let (telemetry, recorder) = telemetry::build(&telemetry::Options::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(
            tmp.path().join("taken"),
            "a file where a directory should be",
        )
        .unwrap();
        let run = |id: &str, measured: bool| {
            let input = HookInput {
                alloc: Arc::new(Allocation::default()),
                dir: AllocDir::new(tmp.path(), id),
                previous: Vec::new(),
                measured,
            };
            metrics::with_local_recorder(&recorder, || runtime.block_on(prerun(input)))
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
        let told = telemetry.prometheus();
        let value = |what: &str, hook: &str| {
            let line = format!("nomad_client_alloc_hook_prerun_{what}{{hook_name=\"{hook}\"}} ");
            let line = told.lines().find_map(|text| text.strip_prefix(&line));
            line.map(str::to_owned)
        };
        let dirs = ["success", "failed", "elapsed_count"].map(|what| value(what, "alloc_dir"));
        assert_eq!(
            dirs,
            ["2", "1", "3"].map(|text| Some(text.to_owned())),
            "{told}"
        );
        // What comes after a hook that failed is not run.
        let waits = ["success", "failed", "elapsed_count"];
        let waits = waits.map(|what| value(what, "await_previous_allocations"));
        assert_eq!(
            waits,
            [Some("2".to_owned()), None, Some("2".to_owned())],
            "{told}"
        );
    }
}
