//! Which events a subscriber may see: the one place, asked for every event.

use super::selection::Headline;
use crate::identity::Identity;

/// What a caller may see of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permit {
    everything: bool,
}

impl Permit {
    /// What this caller may see. There are no access control lists yet, so that is everything.
    pub(super) const fn of(_caller: &Identity) -> Self {
        Self { everything: true }
    }

    /// Whether no event needs to be asked about.
    pub(super) const fn sees_all(&self) -> bool {
        self.everything
    }

    /// Whether the caller may see this event.
    pub(super) const fn sees(&self, _event: &Headline<'_>) -> bool {
        self.everything
    }
}
