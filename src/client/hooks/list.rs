//! Lists of what makes hooks.

use std::fmt;

/// Makes hooks, in their order; the order is the meaning.
#[derive(Clone)]
pub struct HookList<M>(pub Vec<M>);

impl<M> HookList<M> {
    /// With one more, behind all others.
    #[must_use]
    pub fn and(mut self, make: M) -> Self {
        self.0.push(make);
        self
    }
}

impl<M> fmt::Debug for HookList<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookList").field(&self.0.len()).finish()
    }
}
