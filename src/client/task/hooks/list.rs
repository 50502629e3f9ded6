//! The hooks of tasks, in their order.

use std::fmt;
use std::sync::Arc;

use drover_events::model::{Allocation, Task};

use super::{TaskHook, prepare, stats, volumes};
use crate::client::alloc::runner::RunnerFactory;

/// The hooks of one task.
pub type TaskHooks = Arc<[Box<dyn TaskHook>]>;

/// Makes a hook for a task; none where the task has no use for it.
pub type MakeTaskHook =
    Arc<dyn Fn(&RunnerFactory, &Allocation, &Task) -> Option<Box<dyn TaskHook>> + Send + Sync>;

/// Makes the hooks of tasks, in their order.
#[derive(Clone)]
pub struct TaskHookList(pub Vec<MakeTaskHook>);

impl Default for TaskHookList {
    /// The order is the meaning.
    fn default() -> Self {
        Self(vec![
            always(|| prepare::Validate),
            always(|| prepare::TaskDir),
            always(|| prepare::DispatchPayload),
            always(|| volumes::Volumes),
            always(stats::Stats::default),
        ])
    }
}

impl TaskHookList {
    /// With one more, behind all others.
    #[must_use]
    pub fn and(mut self, hook: MakeTaskHook) -> Self {
        self.0.push(hook);
        self
    }

    /// The hooks of a task.
    pub fn of(&self, factory: &RunnerFactory, alloc: &Allocation, task: &Task) -> TaskHooks {
        self.0
            .iter()
            .filter_map(|make| make(factory, alloc, task))
            .collect()
    }
}

impl fmt::Debug for TaskHookList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskHookList").field(&self.0.len()).finish()
    }
}

/// Of every task, with nothing of the client's.
fn always<T: TaskHook + 'static>(make: fn() -> T) -> MakeTaskHook {
    Arc::new(move |_, _, _| Some(Box::new(make())))
}
