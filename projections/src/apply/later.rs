//! The one list of kinds whose apply comes later. They are refused by `decide`, and here as a
//! whole, never half-applied. The list may only shrink.

use drover_events::EventKind;

use super::Answer;
use crate::engine::outcome::Refused;

/// The kinds that are registered and not applied yet.
pub const LATER: &[EventKind] = &[
    EventKind::AclAuthMethodsUpserted,
    EventKind::AclAuthMethodsDeleted,
    EventKind::AclBindingRulesUpserted,
    EventKind::AclBindingRulesDeleted,
];

/// Refuses an event of such a kind.
pub(super) fn refuse(kind: EventKind) -> Answer {
    Err(Refused::because(format!(
        "{kind} is not applied by this version"
    )))
}
