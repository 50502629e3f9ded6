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
    /// The events of an index, with their line; the events' own bytes become parts of it.
    pub(super) fn new(index: u64, mut events: Vec<Event>) -> Self {
        let size: usize = events.iter().map(|event| event.json.len() + 1).sum();
        let mut line = Vec::with_capacity(size + MARGIN);
        write_line(index, &events, &mut line);
        let line = Bytes::from(line);
        let mut at = prefix(index).len();
        for event in &mut events {
            let end = at + event.json.len();
            event.json = line.slice(at..end);
            at = end + 1;
        }
        Self {
            index,
            events,
            line,
        }
    }

    /// Bytes it takes in memory, roughly.
    pub(super) fn weight(&self) -> usize {
        self.line.len() + 256 * self.events.len()
    }

    /// The line for a subscriber; nothing when no event is his.
    pub(super) fn line_for(&self, subscription: &super::Subscription, out: &mut Vec<u8>) {
        if subscription.takes_all() {
            out.extend_from_slice(&self.line);
            return;
        }
        let mine = || self.events.iter().filter(|e| subscription.takes(e));
        if mine().next().is_some() {
            write_line(self.index, mine(), out);
        }
    }
}

/// Bytes of a line beside its events, at most.
const MARGIN: usize = 48;

fn prefix(index: u64) -> String {
    format!("{{\"Index\":{index},\"Events\":[")
}

fn write_line<'a>(index: u64, events: impl IntoIterator<Item = &'a Event>, out: &mut Vec<u8>) {
    out.extend_from_slice(prefix(index).as_bytes());
    for (n, event) in events.into_iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&event.json);
    }
    out.extend_from_slice(b"]}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parts_of_their_line() {
        let event = |json: &str| Event {
            topic: Topic::Job,
            namespace: String::new(),
            key: String::new(),
            filter_keys: Vec::new(),
            json: Bytes::copy_from_slice(json.as_bytes()),
        };
        let batch = Batch::new(12, vec![event(r#"{"a":1}"#), event("{}")]);
        assert_eq!(batch.line, "{\"Index\":12,\"Events\":[{\"a\":1},{}]}\n");
        let parts: Vec<_> = batch
            .events
            .iter()
            .map(|event| event.json.clone())
            .collect();
        assert_eq!(parts, ["{\"a\":1}", "{}"]);
        assert!(batch.line.len() < batch.weight());
    }
}
