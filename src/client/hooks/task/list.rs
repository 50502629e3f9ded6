//! The hooks of tasks, in their order. Those of parts of the client, for devices and volumes, come
//! after these, in the order in which the client adds them when it starts (`client/start.rs`).

use std::sync::Arc;

use drover_events::model::{Allocation, Task};

use super::{TaskHook, prepare, stats};
use crate::hooks::list::HookList;

/// The hooks of one task.
pub type TaskHooks = Arc<[Box<dyn TaskHook>]>;

/// Makes a hook for a task; none where the task has no use for it.
pub type MakeTaskHook = Arc<dyn Fn(&Allocation, &Task) -> Option<Box<dyn TaskHook>> + Send + Sync>;

/// Makes the hooks of tasks.
pub type TaskHookList = HookList<MakeTaskHook>;

impl TaskHookList {
    /// The hooks that every task has, in their order, which is the meaning; `volumes`: the one that
    /// mounts volumes.
    pub fn with(volumes: MakeTaskHook) -> Self {
        Self(vec![
            always(|| prepare::Validate),
            always(|| prepare::TaskDir),
            always(|| prepare::DispatchPayload),
            volumes,
            always(stats::StatsHook::default),
        ])
    }

    /// The hooks of a task.
    pub fn of(&self, alloc: &Allocation, task: &Task) -> TaskHooks {
        let made = self.0.iter().filter_map(|make| make(alloc, task));
        made.collect()
    }
}

/// For every task, with nothing of the client's.
fn always<T: TaskHook + 'static>(make: fn() -> T) -> MakeTaskHook {
    Arc::new(move |_, _| Some(Box::new(make())))
}
