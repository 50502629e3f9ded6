//! An event tried out: whether everything can be read that apply would read of it.
//!
//! An applier that cannot read a row stops, with all that is behind the event. A caller that can
//! wait, or can leave one of many events out, tries the event out first. It is apply itself that is
//! run, over layers of its own that are never written, so a trial reads the same rows as apply.

use drover_events::{Event, EventId, Guard};

use crate::apply::{self, guards};
use crate::engine::error::StorageError;
use crate::engine::generations::CacheBudget;
use crate::engine::outcome::Refused;
use crate::engine::staged::StagedOverlay;
use crate::engine::txn::{Ctx, Txn};
use crate::read::view::View;

impl View {
    /// Does what apply would do with an event as the next one, and keeps nothing of it.
    ///
    /// # Errors
    /// What the applier would stop at. That the event would be refused is no error.
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
            below: StagedOverlay {
                source: self.source(),
                staged: None,
            },
            layers: &mut layers,
            touched: &mut touched,
            index: ctx.index,
        };
        // What a guard requires may be on its way: whether it holds now says nothing of later.
        for tried in [
            guards::check(&txn, guards),
            apply::dispatch(&mut txn, &ctx, event).map(drop),
        ] {
            if let Err(Refused::Storage(error)) = tried {
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "trial_test.rs"]
mod tests;
