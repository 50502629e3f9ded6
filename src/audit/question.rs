//! What is asked of the audit trail.

use drover_events::{Actor, EventKind, Recorded};

use super::{Detail, Object};

/// Which outcomes are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Facts and refused intents, the latter marked.
    #[default]
    All,
    /// What changed the state.
    Applied,
    /// What was refused when its turn came.
    Refused,
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
    /// Which outcomes.
    pub wanted: Wanted,
    /// The first index.
    pub from: u64,
    /// The last index.
    pub to: u64,
    /// Newest first.
    pub newest_first: bool,
    /// Entries on a page at most.
    pub limit: usize,
    /// How much of each event is told.
    pub detail: Detail,
}

/// Where a page ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Entries on it.
    pub entries: usize,
    /// The index at which the next one begins; none after the last.
    pub next: Option<u64>,
}

/// The fewest characters of an id that name an actor.
const SHORTEST: usize = 4;

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
            && self.actor.as_ref().is_none_or(|a| is(a, &envelope.actor))
    }
}

/// Whether an actor is meant by a text.
fn is(text: &str, actor: &Actor) -> bool {
    text == actor.kind.name()
        || text == actor.name
        || text == actor.addr
        || text == actor.id
        || (text.len() >= SHORTEST && actor.id.starts_with(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_events::ActorKind;

    #[test]
    fn an_actor_is_named_by_what_is_known_of_it() {
        let actor = Actor {
            kind: ActorKind::Token,
            id: "0b156e3e-bb39".to_owned(),
            name: "deploy".to_owned(),
            addr: "10.0.0.7".to_owned(),
            ..Actor::default()
        };
        for text in ["token", "deploy", "10.0.0.7", "0b15", "0b156e3e-bb39"] {
            assert!(is(text, &actor), "{text}");
        }
        for text in ["node", "dep", "10.0.0", "0b1", "", "0b156e3e-bb39-1"] {
            assert!(!is(text, &actor), "{text}");
        }
    }
}
