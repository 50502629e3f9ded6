//! The dispatcher: one arm per kind, no logic.

use drover_events::Event;

use crate::outcome::{Refused, Reply};
use crate::txn::{Ctx, Txn};

/// Applies an event. A kind without an arm here is refused as a whole, never half-applied.
pub fn dispatch(_txn: &mut Txn<'_>, _ctx: &Ctx, event: &Event) -> Result<Reply, Refused> {
    Err(Refused::because(format!(
        "{} is not applied yet",
        event.kind()
    )))
}
