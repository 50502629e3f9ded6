//! The hooks of allocations, in their order. Those of parts of the client, for volumes, come after
//! these, in the order in which the client adds them when it starts (`client/start.rs`).

use std::sync::Arc;

use drover_events::model::Allocation;

use super::services::GroupServices;
use super::{AllocHook, dirs};
use crate::hooks::list::HookList;
use crate::service::book::Book;

/// The hooks of one allocation.
pub type AllocHooks = Arc<[Box<dyn AllocHook>]>;

/// Makes a hook for an allocation; none where the allocation has no use for it. It may offer
/// services in the client's book.
pub type MakeAllocHook =
    Arc<dyn Fn(&Arc<Book>, &Allocation) -> Option<Box<dyn AllocHook>> + Send + Sync>;

/// Makes the hooks of allocations.
pub type AllocHookList = HookList<MakeAllocHook>;

impl Default for AllocHookList {
    /// The order is the meaning.
    fn default() -> Self {
        Self(vec![
            always(|| dirs::AllocDirs),
            always(|| dirs::AwaitPrevious),
            always(|| dirs::MigrateDisk),
            Arc::new(|book, alloc| Some(Box::new(GroupServices::of(book, alloc)))),
        ])
    }
}

impl AllocHookList {
    /// The hooks of an allocation.
    pub fn of(&self, book: &Arc<Book>, alloc: &Allocation) -> AllocHooks {
        let made = self.0.iter().filter_map(|make| make(book, alloc));
        made.collect()
    }
}

/// For every allocation, with nothing of the client's.
fn always<T: AllocHook + 'static>(make: fn() -> T) -> MakeAllocHook {
    Arc::new(move |_, _| Some(Box::new(make())))
}
