//! The queries of the audit trail.

use drover_events::{EventKind, Recorded};

use super::{Detail, Object};

/// Which outcomes are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutcomeFilter {
    /// Both, the rejected ones marked.
    #[default]
    All,
    /// What changed the state.
    Applied,
    /// What changed nothing: written `refused` outside.
    Rejected,
}

/// A question to the audit trail.
#[derive(Clone, Debug)]
pub struct Question {
    /// The thing it is about; all things without.
    pub object: Option<Object>,
    /// An actor's kind, name, address, or the beginning of its id.
    pub actor: Option<String>,
    /// The kinds of events; all when empty.
    pub kinds: Vec<EventKind>,
    /// Only events that changed rows of this namespace.
    pub namespace: Option<String>,
    /// Only events of this request.
    pub request_id: Option<String>,
    /// Only events of which a sensitive field held exactly this value, or the value with this
    /// hash.
    pub value: Option<String>,
    /// Which outcomes.
    pub wanted: OutcomeFilter,
    /// The first index.
    pub from: u64,
    /// The last index.
    pub to: u64,
    pub newest_first: bool,
    /// Entries on a page at most.
    pub limit: usize,
    /// How much of each event is shown.
    pub detail: Detail,
}

/// Where a page ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// Entries on it.
    pub entries: usize,
    /// The index at which the next one begins; none after the last.
    pub next: Option<u64>,
}

impl Question {
    /// Whether an event's kind is wanted.
    pub(super) fn takes_kind(&self, kind: u16) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted.number() == kind)
    }

    /// Whether an event's envelope is wanted.
    pub(super) fn takes(&self, event: &Recorded) -> bool {
        if self.actor.is_none() && self.request_id.is_none() {
            return true;
        }
        let Some(envelope) = &event.envelope else {
            return false;
        };
        let request = self.request_id.as_ref();
        request.is_none_or(|id| *id == envelope.request_id)
            && self
                .actor
                .as_ref()
                .is_none_or(|a| envelope.actor.is_called(a))
    }
}
