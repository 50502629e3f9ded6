//! Ranges of keys, and the cursor over one range of one family.

use rocksdb::DBPinnableSlice;

use crate::engine::at_hand;
use crate::engine::db::{Database, DbSnapshot, Family, RawCursor};
use crate::engine::error::StorageError;
use crate::engine::key::{AsKey, Key, KeyBuf, prefix_end, push_id, push_open_str, push_str};

/// The leading bytes of keys: whole components, then at most one open one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix(KeyBuf);

impl Prefix {
    /// No components: everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// The components of a key type, e.g. an index's group.
    pub fn of<K: Key>(key: impl AsKey<K>) -> Self {
        let mut bytes = KeyBuf::new();
        key.encode_as(&mut bytes);
        Self(bytes)
    }

    /// Adds a whole string component.
    #[must_use]
    pub fn str(mut self, text: &str) -> Self {
        push_str(&mut self.0, text);
        self
    }

    /// Adds a whole identifier.
    #[must_use]
    pub fn id(mut self, text: &str) -> Self {
        push_id(&mut self.0, text);
        self
    }

    /// Adds a whole number.
    #[must_use]
    pub fn u64(mut self, number: u64) -> Self {
        number.encode(&mut self.0);
        self
    }

    /// Ends with the beginning of a string component.
    #[must_use]
    pub fn str_prefix(mut self, text: &str) -> Self {
        push_open_str(&mut self.0, text);
        self
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Which keys of a table or index are walked, and how.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    lower: KeyBuf,
    upper: Option<Vec<u8>>,
    start: ScanStart,
    reverse: bool,
}

#[derive(Clone, Debug, Default)]
enum ScanStart {
    #[default]
    Edge,
    At(KeyBuf),
    Beyond(KeyBuf),
}

impl Scan {
    /// Everything, in the order of keys.
    pub fn all() -> Self {
        Self::default()
    }

    /// The keys with this prefix.
    pub fn prefix(prefix: Prefix) -> Self {
        Self {
            upper: prefix_end(&prefix.0),
            lower: prefix.0,
            ..Self::default()
        }
    }

    /// The keys with these encoded leading bytes.
    pub(crate) fn bytes(prefix: &[u8]) -> Self {
        Self::prefix(Prefix(prefix.into()))
    }

    /// The keys that begin with this key's components, such as those of an index's group.
    pub fn with_key_prefix<K: Key>(key: impl AsKey<K>) -> Self {
        Self::prefix(Prefix::of(key))
    }

    /// The identifiers that begin with this text, after a prefix. UUID texts and others lie in two
    /// ranges; walk both.
    pub fn id_prefix(base: &Prefix, text: &str) -> Vec<Self> {
        let mut scans = Vec::new();
        if let Some((lower, upper)) = crate::engine::key::uuid_range(text) {
            scans.push(Self {
                lower: [base.as_bytes(), &lower].concat().into(),
                upper: Some([base.as_bytes(), &upper].concat()),
                ..Self::default()
            });
        }
        let mut other = base.0.clone();
        crate::engine::key::push_open_text_id(&mut other, text);
        scans.push(Self::prefix(Prefix(other)));
        scans
    }

    /// Starts at this encoded key (a key of the table; group ‖ order ‖ key of an index).
    #[must_use]
    pub fn from(mut self, key: &[u8]) -> Self {
        self.start = ScanStart::At(key.into());
        self
    }

    /// Starts behind this encoded key.
    #[must_use]
    pub fn after(mut self, key: &[u8]) -> Self {
        self.start = ScanStart::Beyond(key.into());
        self
    }

    /// Walks backwards; `from` and `after` then mean the greatest key to begin with.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.reverse = !self.reverse;
        self
    }

    /// The leading bytes that all keys of the range share, wherever the walk starts.
    pub(crate) fn leading(&self) -> &[u8] {
        &self.lower
    }

    /// The range under an absolute prefix.
    pub(crate) fn absolute(&self, prefix: &[u8]) -> Range {
        let join = |tail: &[u8]| [prefix, tail].concat();
        let mut range = Range {
            lower: join(&self.lower),
            upper: match &self.upper {
                Some(upper) => Some(join(upper)),
                None => prefix_end(&join(&self.lower)),
            },
            reverse: self.reverse,
        };
        let (start, beyond) = match &self.start {
            ScanStart::Edge => return range,
            ScanStart::At(key) => (join(key), false),
            ScanStart::Beyond(key) => (join(key), true),
        };
        // The least key above a key is the key followed by a zero byte.
        let above = |mut key: Vec<u8>| {
            key.push(0);
            key
        };
        if self.reverse {
            let end = if beyond { start } else { above(start) };
            range.upper = Some(match range.upper {
                Some(upper) => upper.min(end),
                None => end,
            });
        } else {
            let begin = if beyond { above(start) } else { start };
            range.lower = range.lower.max(begin);
        }
        range
    }
}

/// A half-open range of absolute keys.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) lower: Vec<u8>,
    pub(crate) upper: Option<Vec<u8>>,
    pub(crate) reverse: bool,
}

impl Range {
    pub(crate) fn is_empty(&self) -> bool {
        self.upper
            .as_ref()
            .is_some_and(|upper| *upper <= self.lower)
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_slice() <= key
            && self
                .upper
                .as_ref()
                .is_none_or(|upper| key < upper.as_slice())
    }
}

/// Where a cursor reads from.
#[derive(Clone, Copy)]
pub(crate) enum ScanSource<'a> {
    Snapshot(&'a DbSnapshot),
    Live(&'a Database),
}

impl<'a> ScanSource<'a> {
    pub(crate) fn get(
        self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'a>>, StorageError> {
        match self {
            Self::Snapshot(db_snapshot) => db_snapshot.get(family, key),
            Self::Live(db) => db.get(family, key),
        }
    }

    pub(crate) fn walk(self, family: Family, range: Range) -> EntryCursor<'a> {
        let upper = range.upper.as_deref();
        let cursor = match self {
            Self::Snapshot(db_snapshot) => db_snapshot.cursor(family, upper),
            Self::Live(db) => db.cursor(family, upper),
        };
        let db = match self {
            Self::Snapshot(db_snapshot) => db_snapshot.database(),
            Self::Live(db) => db,
        };
        EntryCursor::Present(Present {
            db,
            cursor,
            range,
            begun: false,
        })
    }
}

/// A cursor over a range; stops at its end or at the first error.
pub(crate) enum EntryCursor<'a> {
    /// Over what is there.
    Present(Present<'a>),
    /// Over entries that another module merges: what a fold has staged with what is under it, or
    /// what once was.
    Boxed(Box<dyn DynCursor + Send + Sync + 'a>),
}

/// A cursor of another module, inside [`EntryCursor::Boxed`].
pub(crate) trait DynCursor {
    /// Moves to the next entry; false at the end. It stands at a single entry that cannot be read
    /// too ([`StorageError::is_single_entry`]), and goes on behind it.
    fn advance(&mut self) -> Result<bool, StorageError>;
    /// The key of the entry it stands on.
    fn key(&self) -> &[u8];
    fn value(&self) -> &[u8];
}

impl EntryCursor<'_> {
    /// Moves to the next entry; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, StorageError> {
        match self {
            Self::Present(walk) => walk.advance(),
            Self::Boxed(walk) => walk.advance(),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Present(walk) => walk.cursor.key().unwrap_or_default(),
            Self::Boxed(walk) => walk.key(),
        }
    }

    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Self::Present(walk) => walk.cursor.value().unwrap_or_default(),
            Self::Boxed(walk) => walk.value(),
        }
    }
}

/// A cursor over the entries of a family as they are.
pub(crate) struct Present<'a> {
    db: &'a Database,
    cursor: RawCursor<'a>,
    range: Range,
    begun: bool,
}

impl Present<'_> {
    /// Moves to the next entry; false at the end.
    fn advance(&mut self) -> Result<bool, StorageError> {
        at_hand::read()?;
        match (self.begun, self.range.reverse) {
            _ if self.range.is_empty() => return Ok(false),
            (false, false) => self.cursor.seek(&self.range.lower),
            (false, true) => self.seek_last(),
            (true, false) => self.cursor.next(),
            (true, true) => self.cursor.prev(),
        }
        self.begun = true;
        if !self.cursor.valid() {
            self.cursor.status().map_err(self.db.failed("walk"))?;
            return Ok(false);
        }
        at_hand::weigh(self.cursor.value().map_or(0, <[u8]>::len))?;
        let key = self.cursor.key().unwrap_or_default();
        Ok(!self.range.reverse || key >= self.range.lower.as_slice())
    }

    fn seek_last(&mut self) {
        match &self.range.upper {
            Some(upper) => {
                self.cursor.seek_for_prev(upper);
                if self.cursor.key() == Some(upper) {
                    self.cursor.prev();
                }
            }
            None => self.cursor.seek_to_last(),
        }
    }
}
