//! `history`: which rows were alive at some indexes, the *marks*: every 65,536th.
//!
//! `2 ‖ table (u16 BE) ‖ mark (u64 BE) ‖ piece (u32 BE)` → length (varint) ‖ key, for keys in their
//! order. Piece 0 is the head: rows alive, rows that had died by then. It is written last, so a set
//! that was not finished is none.
//!
//! What is alive at an index was alive at the mark below it or was born since, and `changes` name
//! every birth. Looking those up costs what was alive, where a walk over rows and versions passes
//! over all that ever lived. Sets are made in the background, answer no question by themselves, and
//! are not missed where there are none: then it is the walk.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::db::{Database, Family, Frozen};
use crate::engine::error::StorageError;
use crate::engine::position::{self, Position};
use crate::engine::registry::Registry;
use crate::engine::row::{take_varint, varint};
use crate::engine::scan::{Range, Scan, ScanSource, Steps};
use crate::engine::staged::{Put, TableBatch};
use crate::engine::table::History;
use crate::past::changes::{self, Operation};
use crate::past::walks::{Lookup, PastRows};

/// What the keys begin with, beside those of versions (0) and of dead entries (1).
pub(crate) const ALIVE: u8 = 2;
/// Bytes of a piece.
const PIECE: usize = 64 << 10;
/// The cost of looking up a row as of an index, where passing over a dead entry of an index is 1.
const LOOKUP: u64 = 16;
/// The cost of an event's changes.
const EVENT: u64 = 3;
/// The cost of passing over a dead row.
const DEAD_ROW: u64 = 8;

/// What is known of a set without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetHead {
    alive: u64,
    /// Rows that were there once and no longer at the mark.
    dead: u64,
}

fn piece_key(table: u16, mark: u64, piece: u32) -> Vec<u8> {
    let mut key = vec![ALIVE];
    key.extend_from_slice(&table.to_be_bytes());
    key.extend_from_slice(&mark.to_be_bytes());
    key.extend_from_slice(&piece.to_be_bytes());
    key
}

/// Where the sets of a table lie whose marks are below one.
pub(crate) fn sets_below(table: u16, mark: u64) -> (Vec<u8>, Vec<u8>) {
    (piece_key(table, 0, 0), piece_key(table, mark, 0))
}

fn head(frozen: &Frozen, table: u16, mark: u64) -> Result<Option<SetHead>, StorageError> {
    let key = piece_key(table, mark, 0);
    let Some(value) = frozen.get(Family::History, &key)? else {
        return Ok(None);
    };
    let mut bytes: &[u8] = &value;
    let (alive, dead) = (take_varint(&mut bytes), take_varint(&mut bytes));
    match alive.zip(dead) {
        Some((alive, dead)) => Ok(Some(SetHead { alive, dead })),
        None => Err(StorageError::damaged("set of rows alive", &key)),
    }
}

/// The newest set of a table at a mark up to `most`.
fn newest(frozen: &Frozen, table: u16, most: u64) -> Result<Option<(u64, SetHead)>, StorageError> {
    let range = Range {
        lower: piece_key(table, 0, 0),
        upper: Some(piece_key(table, most.saturating_add(1), 0)),
        reverse: true,
    };
    let mut walk = ScanSource::Frozen(frozen).walk(Family::History, range);
    while walk.advance()? {
        let mark = walk.key().get(3..).and_then(<[u8]>::first_chunk::<8>);
        let mark = mark.copied().map(u64::from_be_bytes);
        let mark = mark.ok_or_else(|| StorageError::damaged("set of rows alive", walk.key()))?;
        if let Some(head) = head(frozen, table, mark)? {
            return Ok(Some((mark, head)));
        }
    }
    Ok(None)
}

/// Calls `each` with the keys of a set, in order.
fn keys(
    frozen: &Frozen,
    (table, mark): (u16, u64),
    each: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let range = Range {
        lower: piece_key(table, mark, 1),
        upper: Some(piece_key(table, mark, u32::MAX)),
        reverse: false,
    };
    let mut walk = ScanSource::Frozen(frozen).walk(Family::History, range);
    while walk.advance()? {
        let damaged = || StorageError::damaged("set of rows alive", walk.key());
        let mut rest = walk.value();
        while !rest.is_empty() {
            let length = take_varint(&mut rest).ok_or_else(damaged)?;
            let length = usize::try_from(length).map_err(|_| damaged())?;
            let (key, tail) = rest.split_at_checked(length).ok_or_else(damaged)?;
            each(key)?;
            rest = tail;
        }
    }
    Ok(())
}

/// What events after `mark` and up to `last` did to rows of a table.
#[derive(Default)]
struct Touched {
    /// Whether the last event that named a row deleted it, by key.
    deleted: BTreeMap<Vec<u8>, bool>,
    /// Whether rows were deleted by rule, which names none.
    by_rule: bool,
}

impl Touched {
    fn read(frozen: &Frozen, table: u16, (mark, last): (u64, u64)) -> Result<Self, StorageError> {
        let range = Range {
            lower: (mark + 1).to_be_bytes().to_vec(),
            upper: last.checked_add(1).map(|end| end.to_be_bytes().to_vec()),
            reverse: false,
        };
        let mut walk = ScanSource::Frozen(frozen).walk(Family::Changes, range);
        let mut found = Self::default();
        while walk.advance()? {
            let each = &mut |operation, key: &[u8]| match operation {
                Operation::Rule => found.by_rule = true,
                _ => {
                    let deleted = operation == Operation::Delete;
                    found.deleted.insert(key.to_vec(), deleted);
                }
            };
            changes::of_table(walk.value(), table, each)
                .ok_or_else(|| StorageError::damaged("change", walk.key()))?;
        }
        Ok(found)
    }
}

/// Which of the dead a walk would pass over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Rows that ever died.
    Rows,
    /// Entries of an index that died after the index of the question.
    Entries,
}

/// The keys of all rows of a table that may have been alive at an index, in order: none where a
/// walk is cheaper. `share` answers which part of the dead the walk would meet.
pub(crate) fn candidates(
    frozen: &Frozen,
    table: u16,
    index: u64,
    passing: Passing,
    share: impl FnOnce(&Database) -> f64,
) -> Result<Option<Vec<Vec<u8>>>, StorageError> {
    let every = frozen.database().alive_every();
    let mark = index / every * every;
    // What was born since would be known in part only; and the set may be one that was being made
    // when those below the floor went.
    if mark < position::floor_of(frozen)? {
        return Ok(None);
    }
    let Some(then) = head(frozen, table, mark)? else {
        return Ok(None);
    };
    let Some((_, last)) = newest(frozen, table, u64::MAX)? else {
        return Ok(None);
    };
    let walk = match passing {
        Passing::Rows => last.dead * DEAD_ROW,
        Passing::Entries => last.dead - then.dead.min(last.dead),
    };
    let lookups = then.alive * LOOKUP + (index - mark) * EVENT;
    if walk <= lookups {
        return Ok(None);
    }
    #[allow(clippy::cast_precision_loss)]
    let met = walk as f64 * share(frozen.database());
    #[allow(clippy::cast_precision_loss)]
    if met <= lookups as f64 {
        return Ok(None);
    }
    let mut all = Touched::read(frozen, table, (mark, index))?.deleted;
    keys(frozen, (table, mark), &mut |key| {
        if !all.contains_key(key) {
            all.insert(key.to_vec(), false);
        }
        Ok(())
    })?;
    all.retain(|_, deleted| !*deleted);
    Ok(Some(all.into_keys().collect()))
}

/// A set that is being written.
struct SetDraft<'a> {
    db: &'a Arc<Database>,
    table: u16,
    mark: u64,
    piece: Vec<u8>,
    pieces: u32,
    alive: u64,
}

impl<'a> SetDraft<'a> {
    fn new(db: &'a Arc<Database>, table: u16, mark: u64) -> Self {
        Self {
            db,
            table,
            mark,
            piece: Vec::new(),
            pieces: 0,
            alive: 0,
        }
    }

    fn add(&mut self, key: &[u8]) -> Result<(), StorageError> {
        varint(&mut self.piece, key.len() as u64);
        self.piece.extend_from_slice(key);
        self.alive += 1;
        match self.piece.len() < PIECE {
            true => Ok(()),
            false => self.put_piece(),
        }
    }

    fn put(&self, piece: u32, value: &[u8]) -> Result<(), StorageError> {
        let mut batch = TableBatch::new(self.db);
        let key = piece_key(self.table, self.mark, piece);
        batch.put(Family::History, &key, value);
        batch.write()
    }

    fn put_piece(&mut self) -> Result<(), StorageError> {
        self.pieces += 1;
        self.put(self.pieces, &self.piece)?;
        self.piece.clear();
        Ok(())
    }

    fn finish(mut self, dead: u64) -> Result<(), StorageError> {
        if !self.piece.is_empty() {
            self.put_piece()?;
        }
        let mut head = Vec::new();
        for number in [self.alive, dead] {
            varint(&mut head, number);
        }
        self.put(0, &head)
    }
}

/// Makes the sets of rows alive that are due: of every table whose past is kept, at its next mark.
/// Answers the newest mark made; none if nothing was due. The writer may go on meanwhile.
///
/// # Errors
/// A failed read or write; calling it again begins that set anew.
pub(crate) fn note(
    db: &Arc<Database>,
    registry: &Registry,
    position: &Position,
) -> Result<Option<u64>, StorageError> {
    let every = db.alive_every();
    let mut made = None;
    for table in registry.tables() {
        if table.history() != History::Full {
            continue;
        }
        let frozen = Frozen::new(Arc::clone(db));
        let known = newest(&frozen, table.id(), u64::MAX)?;
        drop(frozen);
        let known = known.filter(|(mark, _)| *mark >= position.floor);
        let mark = match known {
            Some((mark, _)) => mark + every,
            None => position.floor.next_multiple_of(every),
        };
        if mark > position.index {
            continue;
        }
        match known {
            Some(known) => go_on(db, table.id(), known, mark)?,
            None => begin(db, table.id(), mark)?,
        }
        made = made.max(Some(mark));
    }
    Ok(made)
}

/// The first set of a table, by a walk. What had died before it is not counted.
fn begin(db: &Arc<Database>, table: u16, mark: u64) -> Result<(), StorageError> {
    let frozen = Frozen::new(Arc::clone(db));
    let mut draft = SetDraft::new(db, table, mark);
    let range = Scan::all().absolute(&table.to_be_bytes());
    let mut rows = PastRows::walked(&frozen, range, mark);
    while rows.advance()? {
        draft.add(&rows.key()[2..])?;
    }
    draft.finish(0)
}

/// The next set of a table: those of the one before it that still live, and those born since.
fn go_on(
    db: &Arc<Database>,
    table: u16,
    (before, known): (u64, SetHead),
    mark: u64,
) -> Result<(), StorageError> {
    let frozen = Frozen::new(Arc::clone(db));
    let Touched { deleted, by_rule } = Touched::read(&frozen, table, (before, mark))?;
    let mut draft = SetDraft::new(db, table, mark);
    let mut lookup = Lookup::new(&frozen, mark);
    let mut add = |key: &[u8], alive: bool| {
        // A deletion by rule names no rows, so whether one met this row is looked up.
        if !alive || (by_rule && !lookup.find(&[&table.to_be_bytes()[..], key].concat())?) {
            return Ok(());
        }
        draft.add(key)
    };
    let (mut touched, mut births) = (deleted.into_iter().peekable(), 0);
    keys(&frozen, (table, before), &mut |key| {
        while let Some((new, deleted)) = touched.next_if(|(new, _)| new.as_slice() < key) {
            births += 1;
            add(&new, !deleted)?;
        }
        let own = touched.next_if(|(own, _)| own.as_slice() == key);
        add(key, own.is_none_or(|(_, deleted)| !deleted))
    })?;
    for (new, deleted) in touched {
        births += 1;
        add(&new, !deleted)?;
    }
    let dead = known.dead + known.alive + births - draft.alive;
    draft.finish(dead)
}
