//! The hooks before an allocation's tasks, in their order.

use std::sync::Arc;

use drover_events::model::Allocation;

use super::dir::AllocDir;
use super::factory::AllocRunner;

/// What the hooks work on.
pub struct HookInput {
    /// The allocation.
    pub alloc: Arc<Allocation>,
    /// Its directories.
    pub dir: AllocDir,
    /// Runners of allocations that it replaces, on this node.
    pub previous: Vec<Arc<dyn AllocRunner>>,
}

/// Runs them: directories, then the end of predecessors, then what they left.
///
/// # Errors
/// The first that failed, by name.
pub async fn prerun(input: HookInput) -> Result<(), String> {
    alloc_dir(&input).map_err(|e| format!("pre-run hook \"alloc_dir\" failed: {e}"))?;
    await_previous_allocations(&input).await;
    migrate_disk(&input).map_err(|e| format!("pre-run hook \"migrate_disk\" failed: {e}"))
}

fn alloc_dir(input: &HookInput) -> std::io::Result<()> {
    input.dir.build()
}

async fn await_previous_allocations(input: &HookInput) {
    for runner in &input.previous {
        // An error means that the runner is gone, which is as good as done.
        let _ = runner.done().wait_for(|done| *done).await;
    }
}

fn migrate_disk(input: &HookInput) -> std::io::Result<()> {
    let Some(group) = input.alloc.group() else {
        return Ok(());
    };
    if !group
        .ephemeral_disk
        .as_ref()
        .is_some_and(|d| d.sticky || d.migrate)
    {
        return Ok(());
    }
    let tasks: Vec<String> = group.tasks.iter().map(|t| t.name.clone()).collect();
    for runner in &input.previous {
        let same = runner.alloc().id == input.alloc.previous_allocation;
        if let Some(control) = runner.control().filter(|_| same) {
            input.dir.take_over(control.dir(), &tasks)?;
        }
    }
    Ok(())
}
