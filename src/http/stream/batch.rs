//! What one log entry says on the stream: rendered once, sent to many.

use bytes::Bytes;
use drover_events::Topic;

/// One event, rendered.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) topic: Topic,
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) filter_keys: Vec<String>,
    /// The event as JSON.
    pub(super) json: Bytes,
}

impl Event {
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.key == key || self.filter_keys.iter().any(|k| k == key)
    }
}

/// The events of one index.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) index: u64,
    pub(super) events: Vec<Event>,
    /// The whole line, for those who take everything.
    pub(super) line: Bytes,
}

impl Batch {
    /// The events of an index, with their line.
    pub(super) fn new(index: u64, events: Vec<Event>) -> Self {
        let line = line(index, events.iter());
        Self {
            index,
            events,
            line: line.into(),
        }
    }

    /// Bytes it takes in memory, roughly.
    pub(super) fn weight(&self) -> usize {
        self.line.len() * 2 + 128 * self.events.len()
    }

    /// The line for a subscriber; nothing when no event is his.
    pub(super) fn line_for(&self, subscription: &super::Subscription, out: &mut Vec<u8>) {
        if subscription.takes_all() {
            out.extend_from_slice(&self.line);
            return;
        }
        let mut mine = self
            .events
            .iter()
            .filter(|e| subscription.takes(e))
            .peekable();
        if mine.peek().is_some() {
            out.extend_from_slice(&line(self.index, mine));
        }
    }
}

fn line<'a>(index: u64, events: impl Iterator<Item = &'a Event>) -> Vec<u8> {
    let mut out = format!("{{\"Index\":{index},\"Events\":[").into_bytes();
    for (n, event) in events.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&event.json);
    }
    out.extend_from_slice(b"]}\n");
    out
}
