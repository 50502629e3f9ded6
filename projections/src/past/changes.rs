//! `changes` and `postings`: what every event changed, for streams and whole lists as of an index.
//!
//! `changes`:  index (u64 BE) → format (1) ‖ kind (u16 LE) ‖ number of changes (varint) ‖ per change
//!             table (u16 LE) ‖ operation (u8) ‖ topic (u8, 0 none) ‖ key length (varint) ‖ row key ‖
//!             namespace (string) ‖ number of stream keys (u8) ‖ stream keys (identifiers).
//! `postings`: topic (u8) ‖ namespace (string) ‖ stream key (string) ‖ index (u64 BE) → nothing.
//!
//! One entry holds all changes of an event; a change's *seq* is its position. Payloads come from
//! `history`. A change by rule (`EvalsDeleted` with a filter) is one change with an empty row key,
//! posted under the key `*`.

use drover_events::{EventKind, Topic};

use crate::engine::db::Family;
use crate::engine::error::StorageError;
use crate::engine::key::{Id, Key, KeyBuf, push_id, push_str};
use crate::engine::row::{take_varint, varint};
use crate::engine::scan::{Range, ScanSource};
use crate::engine::staged::PutEntries;
use crate::engine::table::StreamKey;

const FORMAT: u8 = 1;

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// It was inserted or changed.
    Put = 1,
    /// It was deleted.
    Delete = 2,
    /// Rows of the table and namespace were deleted by a rule; the row key is empty.
    Rule = 3,
}

impl Operation {
    fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Put),
            2 => Some(Self::Delete),
            3 => Some(Self::Rule),
            _ => None,
        }
    }
}

/// One changed row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The event's index.
    pub index: u64,
    /// Its position among the event's changes.
    pub seq: u32,
    /// The event's kind; the stream's type follows from it alone (EV-01).
    pub kind: EventKind,
    /// Its `Table::ID`.
    pub table: u16,
    /// What happened to the row.
    pub operation: Operation,
    /// The topic it is published under; none for silent changes.
    pub topic: Option<Topic>,
    /// The row's encoded key.
    pub key: Vec<u8>,
    /// The row's namespace, or empty.
    pub namespace: String,
    /// The stream's key, then its filter keys.
    pub stream_keys: Vec<String>,
}

/// The changes of the event that is being applied.
#[derive(Default)]
pub(crate) struct ChangeList {
    records: Vec<ChangeRecord>,
    rules: Vec<(u16, String, Option<Topic>)>,
}

struct ChangeRecord {
    table: u16,
    operation: Operation,
    topic: Option<Topic>,
    continues_another: bool,
    bytes: std::ops::Range<usize>,
    stream_key: std::ops::Range<usize>,
}

/// How a change is to be recorded.
pub(crate) struct Recording<'a, 's> {
    pub(crate) table: u16,
    pub(crate) operation: Operation,
    pub(crate) key: &'a [u8],
    pub(crate) namespace: &'a str,
    pub(crate) stream: Option<&'a StreamKey<'s>>,
    /// The table continues another one's objects (`node_states` those of `nodes`); if one event
    /// changes both, only the other is published.
    pub(crate) continues_another: bool,
}

impl ChangeList {
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.rules.clear();
    }

    /// Adds a change; its bytes go to `out`, which is the event's buffer.
    pub(crate) fn add(&mut self, out: &mut Vec<u8>, what: &Recording<'_, '_>) {
        let start = out.len();
        varint(out, what.key.len() as u64);
        out.extend_from_slice(what.key);
        let mut text = KeyBuf::new();
        push_str(&mut text, what.namespace);
        out.extend_from_slice(&text);
        let keys = what.stream.map_or(0, |stream| 1 + stream.filter_keys.len());
        out.push(keys as u8);
        let stream_start = out.len();
        let mut stream_end = stream_start;
        if let Some(stream) = what.stream {
            for (at, key) in std::iter::once(&stream.key)
                .chain(&stream.filter_keys)
                .enumerate()
            {
                text.clear();
                push_id(&mut text, key);
                out.extend_from_slice(&text);
                if at == 0 {
                    stream_end = out.len();
                }
            }
        }
        self.records.push(ChangeRecord {
            table: what.table,
            operation: what.operation,
            topic: what.stream.map(|stream| stream.topic),
            continues_another: what.continues_another,
            bytes: start..out.len(),
            stream_key: stream_start..stream_end,
        });
    }

    /// Notes that rows of this namespace were deleted by rule: one change for all of them.
    pub(crate) fn add_rule(&mut self, table: u16, namespace: &str, topic: Option<Topic>) {
        let known = self
            .rules
            .iter()
            .any(|(other, space, _)| *other == table && space == namespace);
        if !known {
            self.rules.push((table, namespace.to_owned(), topic));
        }
    }

    /// Writes the event's entry and the postings of its rules.
    pub(crate) fn finish(
        &mut self,
        (index, kind): (u64, EventKind),
        bytes: &mut Vec<u8>,
        to: &mut dyn PutEntries,
    ) {
        for (table, namespace, topic) in std::mem::take(&mut self.rules) {
            let stream = topic.map(|topic| StreamKey::new(topic, &namespace, "*", &[]));
            let what = Recording {
                table,
                operation: Operation::Rule,
                key: &[],
                namespace: &namespace,
                stream: stream.as_ref(),
                continues_another: false,
            };
            self.add(bytes, &what);
            if let Some(topic) = topic {
                post(to, topic, &namespace, "*", index);
            }
        }
        if self.records.is_empty() {
            return;
        }
        let mut out = Vec::with_capacity(bytes.len() + 8 + self.records.len() * 4);
        out.push(FORMAT);
        out.extend_from_slice(&(kind as u16).to_le_bytes());
        varint(&mut out, self.records.len() as u64);
        for record in &self.records {
            out.extend_from_slice(&record.table.to_le_bytes());
            out.push(record.operation as u8);
            let topic = record.topic.filter(|_| !self.is_shadowed(record, bytes));
            out.push(topic.map_or(0, Topic::number));
            out.extend_from_slice(&bytes[record.bytes.clone()]);
        }
        to.put(Family::Changes, &index.to_be_bytes(), &out);
    }

    fn is_shadowed(&self, record: &ChangeRecord, bytes: &[u8]) -> bool {
        record.continues_another
            && self.records.iter().any(|other| {
                !other.continues_another
                    && other.topic == record.topic
                    && bytes[other.stream_key.clone()] == bytes[record.stream_key.clone()]
            })
    }
}

/// Writes one posting.
pub(crate) fn post(to: &mut dyn PutEntries, topic: Topic, namespace: &str, key: &str, index: u64) {
    let mut out = posting_prefix(topic, namespace, key);
    index.encode(&mut out);
    to.put(Family::Postings, &out, &[]);
}

fn posting_prefix(topic: Topic, namespace: &str, key: &str) -> KeyBuf {
    let mut out = KeyBuf::new();
    out.push(topic.number());
    push_str(&mut out, namespace);
    push_str(&mut out, key);
    out
}

/// Takes the changes of one event apart.
pub(crate) fn decode(index: u64, value: &[u8]) -> Result<Vec<Change>, StorageError> {
    parse(index, value).ok_or_else(|| StorageError::damaged("change", &index.to_be_bytes()))
}

fn parse(index: u64, value: &[u8]) -> Option<Vec<Change>> {
    let (&[format, low, high], mut rest) = value.split_first_chunk::<3>()?;
    let kind = EventKind::from_number(u16::from_le_bytes([low, high]))?;
    let count = take_varint(&mut rest)?;
    if format != FORMAT || count > rest.len() as u64 {
        return None;
    }
    let mut changes = Vec::with_capacity(count as usize);
    for seq in 0..count as u32 {
        let (&[low, high, operation, topic], tail) = rest.split_first_chunk::<4>()?;
        rest = tail;
        let length = take_varint(&mut rest)?;
        let (key, tail) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        rest = tail;
        let namespace = String::decode(&mut rest).ok()?;
        let (&keys, tail) = rest.split_first()?;
        rest = tail;
        let stream_keys = (0..keys)
            .map(|_| Id::decode(&mut rest).map(Id::into_string))
            .collect::<Result<_, _>>()
            .ok()?;
        changes.push(Change {
            index,
            seq,
            kind,
            table: u16::from_le_bytes([low, high]),
            operation: Operation::from_number(operation)?,
            topic: match topic {
                0 => None,
                number => Some(Topic::from_number(number)?),
            },
            key: key.to_vec(),
            namespace,
            stream_keys,
        });
    }
    rest.is_empty().then_some(changes)
}

/// Calls `each` with what happened to each row of a table, in order, without building anything;
/// none if damaged.
pub(crate) fn of_table(
    value: &[u8],
    table: u16,
    each: &mut dyn FnMut(Operation, &[u8]),
) -> Option<()> {
    let (&[format, _, _], mut rest) = value.split_first_chunk::<3>()?;
    let count = take_varint(&mut rest)?;
    if format != FORMAT {
        return None;
    }
    for _ in 0..count {
        let change = Raw::take(&mut rest)?;
        if change.table == table {
            each(change.operation, change.key);
        }
    }
    rest.is_empty().then_some(())
}

/// A change as it lies there.
struct Raw<'a> {
    table: u16,
    operation: Operation,
    topic: u8,
    key: &'a [u8],
}

impl<'a> Raw<'a> {
    /// Takes one off the front.
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let (&[low, high, operation, topic], tail) = rest.split_first_chunk::<4>()?;
        *rest = tail;
        let length = take_varint(rest)?;
        let (key, tail) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        *rest = tail;
        String::skip(rest).ok()?;
        let (&keys, tail) = rest.split_first()?;
        *rest = tail;
        for _ in 0..keys {
            Id::skip(rest).ok()?;
        }
        Some(Self {
            table: u16::from_le_bytes([low, high]),
            operation: Operation::from_number(operation)?,
            topic,
            key,
        })
    }
}

/// The kind of an entry and the set of its topics, without building anything; none if damaged.
pub(crate) fn topics(value: &[u8]) -> Option<(EventKind, u64)> {
    let (&[format, low, high], mut rest) = value.split_first_chunk::<3>()?;
    let kind = EventKind::from_number(u16::from_le_bytes([low, high]))?;
    let count = take_varint(&mut rest)?;
    if format != FORMAT {
        return None;
    }
    let mut topics = 0;
    for _ in 0..count {
        let topic = Raw::take(&mut rest)?.topic;
        if topic != 0 {
            topics |= Topic::from_number(topic)?.bit();
        }
    }
    rest.is_empty().then_some((kind, topics))
}

/// The changes of the events from `first` on, one event at a time, in order.
pub(crate) fn walk<'a>(
    source: ScanSource<'a>,
    first: u64,
    last: u64,
) -> impl Iterator<Item = Result<Vec<Change>, StorageError>> + 'a {
    let range = Range {
        lower: first.to_be_bytes().to_vec(),
        upper: last.checked_add(1).map(|end| end.to_be_bytes().to_vec()),
        reverse: false,
    };
    let mut walk = source.walk(Family::Changes, range);
    std::iter::from_fn(move || match walk.advance() {
        Ok(false) => None,
        Ok(true) => {
            let index = walk.key().try_into().map(u64::from_be_bytes);
            Some(match index {
                Ok(index) => decode(index, walk.value()),
                Err(_) => Err(StorageError::damaged("change", walk.key())),
            })
        }
        Err(error) => Some(Err(error)),
    })
}

/// The indexes posted under a stream key from `first` on, in order.
pub(crate) fn postings<'a>(
    source: ScanSource<'a>,
    (topic, namespace, key): (Topic, &str, &str),
    first: u64,
) -> impl Iterator<Item = Result<u64, StorageError>> + 'a {
    let mut prefix = posting_prefix(topic, namespace, key);
    let upper = crate::engine::key::prefix_end(&prefix);
    first.encode(&mut prefix);
    let range = Range {
        lower: prefix.to_vec(),
        upper,
        reverse: false,
    };
    let mut walk = source.walk(Family::Postings, range);
    std::iter::from_fn(move || match walk.advance() {
        Ok(false) => None,
        Ok(true) => Some(
            walk.key()
                .last_chunk::<8>()
                .map(|bytes| u64::from_be_bytes(*bytes))
                .ok_or_else(|| StorageError::damaged("posting", walk.key())),
        ),
        Err(error) => Some(Err(error)),
    })
}
