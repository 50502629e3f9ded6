//! What hooks of one allocation leave for those after them, by type.
//!
//! An allocation's hooks put here what its later hooks and its tasks' hooks need: where volumes are
//! mounted, say. Every access holds the lock, and what is there is changed where it lies: no hook
//! takes a copy of a whole set, changes it and puts it back over what others did meanwhile (CL-19).
//!
//! Nothing of it outlives the agent. What must do so is part of a hook's answer, and its
//! [`restore`](super::alloc::AllocHook::restore) puts it here again.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;

/// Values by their types; one of each.
#[derive(Default)]
pub struct Resources {
    values: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
}

impl Resources {
    /// Changes the value of a type where it lies; an empty one is there before the first change.
    pub fn change<T, R>(&self, change: impl FnOnce(&mut T) -> R) -> R
    where
        T: Default + Send + 'static,
    {
        let mut values = self.values.lock();
        let value = values
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Box::new(T::default()));
        let value = value
            .downcast_mut()
            .expect("a value is filed under its own type");
        change(value)
    }

    /// Looks at the value of a type; it does not change meanwhile.
    pub fn with<T: 'static, R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        let values = self.values.lock();
        let value = values.get(&TypeId::of::<T>())?;
        Some(look(value.downcast_ref()?))
    }

    /// A copy of the value of a type.
    pub fn get<T: Clone + 'static>(&self) -> Option<T> {
        self.with(T::clone)
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.values.lock().len();
        f.debug_struct("Resources").field("values", &count).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Mounted(BTreeMap<String, usize>);

    #[test]
    fn cl_19_who_writes_at_once_loses_nothing() {
        let board = Resources::default();
        assert_eq!(board.get::<Mounted>(), None);
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let board = &board;
                scope.spawn(move || {
                    for n in 0..200 {
                        let name = format!("{writer}-{n}");
                        board.change(|mounted: &mut Mounted| mounted.0.insert(name, n));
                        board.change(|all: &mut usize| *all += 1);
                    }
                });
            }
        });
        assert_eq!(board.with(|mounted: &Mounted| mounted.0.len()), Some(1600));
        assert_eq!(board.get::<usize>(), Some(1600));
    }
}
