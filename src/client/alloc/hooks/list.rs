//! The hooks of allocations, in their order.

use std::fmt;
use std::sync::Arc;

use drover_events::model::Allocation;

use super::services::GroupServices;
use super::{AllocHook, dirs};
use crate::client::alloc::runner::RunnerFactory;

/// The hooks of one allocation.
pub type AllocHooks = Arc<[Box<dyn AllocHook>]>;

/// Makes a hook for an allocation; none where the allocation has no use for it.
pub type MakeAllocHook =
    Arc<dyn Fn(&RunnerFactory, &Allocation) -> Option<Box<dyn AllocHook>> + Send + Sync>;

/// Makes the hooks of allocations, in their order.
#[derive(Clone)]
pub struct AllocHookList(pub Vec<MakeAllocHook>);

impl Default for AllocHookList {
    /// The order is the meaning.
    fn default() -> Self {
        Self(vec![
            always(|| dirs::AllocDirs),
            always(|| dirs::AwaitPrevious),
            always(|| dirs::MigrateDisk),
            Arc::new(|factory, alloc| Some(Box::new(GroupServices::of(factory, alloc)))),
        ])
    }
}

impl AllocHookList {
    /// With one more, behind all others.
    #[must_use]
    pub fn and(mut self, hook: MakeAllocHook) -> Self {
        self.0.push(hook);
        self
    }

    /// The hooks of an allocation.
    pub fn of(&self, factory: &RunnerFactory, alloc: &Allocation) -> AllocHooks {
        self.0
            .iter()
            .filter_map(|make| make(factory, alloc))
            .collect()
    }
}

impl fmt::Debug for AllocHookList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllocHookList").field(&self.0.len()).finish()
    }
}

/// Of every allocation, with nothing of the client's.
fn always<T: AllocHook + 'static>(make: fn() -> T) -> MakeAllocHook {
    Arc::new(move |_, _| Some(Box::new(make())))
}
