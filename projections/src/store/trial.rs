//! An event tried out: whether everything can be read that apply would read of it.
//!
//! An applier that cannot read a row stops, with all that is behind the event. Whoever can wait, or
//! leave one of many out, tries the event out first. It is apply itself that is run, over layers of
//! its own that nobody writes out: so the two cannot come to read different rows.

use drover_events::{Event, EventId, Guard};

use crate::apply::{self, guards};
use crate::engine::error::StorageError;
use crate::engine::generations::CacheBudget;
use crate::engine::outcome::Refused;
use crate::engine::staged::Below;
use crate::engine::txn::{Ctx, Txn};
use crate::read::view::View;

impl View {
    /// Does what apply would do with an event as the next one, and keeps nothing of it.
    ///
    /// # Errors
    /// What the applier would stop at. That the event would be refused is none.
    pub fn try_out(&self, event: &Event, guards: &[Guard]) -> Result<(), StorageError> {
        let position = self.position();
        let ctx = Ctx {
            index: position.index.saturating_add(1),
            term: position.term,
            time: position.time,
            id: EventId::ZERO,
            kind: event.kind(),
        };
        // Nothing is let go within one event, whatever the bound is.
        let mut layers = self.visible.registry.layers(&CacheBudget::new(0));
        let mut touched = Vec::new();
        let mut txn = Txn {
            below: Below {
                source: self.source(),
                held: None,
            },
            layers: &mut layers,
            touched: &mut touched,
            index: ctx.index,
        };
        let tried = guards::check(&txn, guards);
        match tried.and_then(|()| apply::dispatch(&mut txn, &ctx, event)) {
            Err(Refused::Storage(error)) => Err(error),
            Ok(_) | Err(Refused::Rejected(_)) => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "trial_test.rs"]
mod tests;
