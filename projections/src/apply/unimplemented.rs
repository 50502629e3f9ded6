//! The one list of kinds whose apply is not implemented yet. They are refused by `decide`, and here
//! as a whole, never half-applied. The list may only shrink.

use drover_events::EventKind;

use super::ApplyResult;
use crate::engine::outcome::Refused;

/// The kinds that are registered and whose apply is not implemented.
pub const UNIMPLEMENTED: &[EventKind] = &[
    EventKind::AclAuthMethodsUpserted,
    EventKind::AclAuthMethodsDeleted,
    EventKind::AclBindingRulesUpserted,
    EventKind::AclBindingRulesDeleted,
];

/// Refuses an event of such a kind.
pub(super) fn refuse(kind: EventKind) -> ApplyResult {
    Err(Refused::because(format!(
        "{kind} is not applied by this version"
    )))
}
