//! What a table is: a numbered prefix, a typed key, a typed row, and its secondary indexes.
//!
//! A table is a unit struct in `tables/`. It knows its rows, never an event. Numbers are for ever:
//! a retired table keeps its line in [`crate::tables`]. Rows are read with `#[serde(default)]` and
//! their default is Nomad's zero value, since zero fields are left out of storage.

use drover_events::Topic;
use serde::{Serialize, de::DeserializeOwned};
use smallvec::SmallVec;

use crate::engine::key::{AsKey, Key, KeyBuf, KeyError};

/// Whether a table's past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Every version stays readable (`as_of`, the stream's payloads).
    Full,
    /// The rows follow from other tables; only their present is kept.
    Derived,
    /// The rows are short-lived; only their present is kept.
    None,
}

/// How a row appears on the event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct StreamKey<'a> {
    pub topic: Topic,
    /// The namespace, empty where the resource has none.
    pub namespace: &'a str,
    /// The event's key.
    pub key: &'a str,
    /// Other keys a subscriber may filter by, empty ones included.
    pub filter_keys: SmallVec<[&'a str; 3]>,
}

impl<'a> StreamKey<'a> {
    /// A row's appearance on the stream.
    pub fn new(topic: Topic, namespace: &'a str, key: &'a str, filter_keys: &[&'a str]) -> Self {
        Self {
            topic,
            namespace,
            key,
            filter_keys: filter_keys.into(),
        }
    }
}

/// A table: rows under one numbered prefix.
pub trait Table: Sized + Send + Sync + 'static {
    /// The prefix of its keys; never reused.
    const ID: u16;
    /// The name, as in `table_index` and in the digests.
    const NAME: &'static str;
    /// The key's type.
    type Key: Key;
    /// The row's type: a model type, or one of the table's own.
    type Row: Serialize
        + DeserializeOwned
        + Clone
        + Default
        + std::fmt::Debug
        + Send
        + Sync
        + 'static;
    /// The secondary indexes; `put` and `delete` maintain them.
    const INDEXES: &'static [IndexDef<Self>] = &[];
    /// Whether the past is kept.
    const HISTORY: History = History::Full;
    /// Whether deletions are published on the stream (evaluations and allocations are not).
    const PUBLISHES_DELETES: bool = true;
    /// Which filter keys (by position) get postings: those that no index of the table answers.
    /// The stream key itself is answered by the row's history.
    const POSTED: &'static [usize] = &[];
    /// Whether its rows continue another table's objects, under the same stream key (a node's state
    /// the node): if one event changes both, only the other table's row is published.
    const CONTINUES_ANOTHER: bool = false;

    /// The row's key.
    fn key(row: &Self::Row) -> Self::Key;

    /// How a change of the row appears on the stream; none for tables without a topic.
    fn stream(_row: &Self::Row) -> Option<StreamKey<'_>> {
        None
    }

    /// The namespace of the row, for `changes`.
    fn namespace(row: &Self::Row) -> &str {
        Self::stream(row).map_or("", |stream| stream.namespace)
    }
}

/// A secondary index: looks rows up by a *group* and orders them inside it.
///
/// An entry is group ‖ order ‖ primary key. The group is what a reader reads as a whole
/// ("allocations of this node"); a dead entry keeps its death between group and order, so that a
/// list of a group as of an index is two seeks.
pub trait Index: 'static {
    /// The table whose rows it holds.
    type Table: Table;
    /// Its number inside the table; never reused.
    const NO: u8;
    #[allow(missing_docs, reason = "the name says it")]
    const NAME: &'static str;
    /// What a reader looks up.
    type Group: Key;
    /// What rows of a group are ordered by, before their primary key.
    type Order: Key;
    /// Whether one can wait for a change of any row of a group
    /// ([`Interest::group`](crate::Interest::group)).
    const WATCHED: bool = false;

    /// Adds the row's entries: none, one or several.
    fn entries(row: &<Self::Table as Table>::Row, out: &mut Entries);
}

/// An index as its table declares it.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct IndexDef<T: Table> {
    /// Its number inside the table.
    pub no: u8,
    pub name: &'static str,
    /// Adds a row's entries.
    pub(crate) entries: fn(&T::Row, &mut Entries),
    /// Whether one can wait for a group.
    pub(crate) watched: bool,
    /// Passes over a group.
    pub(crate) skip_group: SkipKey,
}

/// Takes a key of some type off the front of the bytes.
pub(crate) type SkipKey = fn(&mut &[u8]) -> Result<(), KeyError>;

impl<T: Table> IndexDef<T> {
    /// The declaration of an index type.
    pub const fn of<I: Index<Table = T>>() -> Self {
        Self {
            no: I::NO,
            name: I::NAME,
            entries: I::entries,
            watched: I::WATCHED,
            skip_group: I::Group::skip,
        }
    }
}

/// One entry of one row: index number ‖ group ‖ order ‖ primary key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexEntry {
    pub(crate) bytes: KeyBuf,
    pub(crate) group_end: u16,
}

/// The entries of a row, collected in the order of their bytes.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    pub(crate) list: SmallVec<[IndexEntry; 4]>,
}

impl Entries {
    /// Adds an entry of this group, ordered in it by `order` and then by the primary key.
    pub fn add<I: Index>(&mut self, group: impl AsKey<I::Group>, order: impl AsKey<I::Order>) {
        let mut bytes = KeyBuf::new();
        bytes.push(I::NO);
        group.encode_as(&mut bytes);
        let group_end = bytes.len() as u16;
        order.encode_as(&mut bytes);
        self.list.push(IndexEntry { bytes, group_end });
    }

    /// All entries of a row with this encoded primary key.
    pub(crate) fn of<T: Table>(row: &T::Row, key: &[u8]) -> Self {
        let mut entries = Self::default();
        for index in T::INDEXES {
            (index.entries)(row, &mut entries);
        }
        for entry in &mut entries.list {
            entry.bytes.extend_from_slice(key);
        }
        entries.list.sort_unstable();
        entries.list.dedup();
        entries
    }
}
