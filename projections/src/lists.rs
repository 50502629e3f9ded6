//! Rendered lists: the hottest reads, kept ready to be sent.
//!
//! A [`List`] says how a row of a table is shown in a list and how the list is ordered. The first
//! read renders all rows; after that only those that changed are rendered again, when somebody
//! asks. A [`ListSnapshot`] holds the rendered rows in chunks of [`bytes::Bytes`] that are shared
//! between versions, so a whole list is sent without copying or decoding anything, and a page is
//! two slices.
//!
//! It is a cache of the projections: bounded in bytes, dropped when rows change far more often than
//! the list is read, and built again on demand. It never answers for another index than it says.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::error::StorageError;
use crate::key::KeyBuf;
use crate::layer::RowKey;
use crate::scan::Scan;
use crate::table::Table;
use crate::{Projections, View};

/// Rows per chunk, roughly: a changed row renders its chunk's bytes anew.
const CHUNK_ROWS: usize = 64;
/// Changed rows that wait for a reader; beyond that the list is dropped.
const MAX_PENDING: usize = 20_000;
/// Things computed from parts of one chunk that are kept.
const DERIVED: usize = 4;
/// Changed rows that are rendered in passing: about a tenth of a millisecond each hundred.
const FEW_PENDING: usize = 256;

/// How rows of a table are shown in a list. One type per form of the list; the type is its name.
pub trait List: Send + Sync + 'static {
    /// The table.
    type Table: Table;
    /// Tables whose rows lie under the same keys and are shown with them (a node's state, a job's
    /// summary).
    const BESIDE: &'static [u16] = &[];

    /// Where the row stands in the list, encoded; unique, and as long as the row lives the same.
    fn order(row: &<Self::Table as Table>::Row) -> KeyBuf;

    /// Appends the row as it is shown.
    fn render(
        view: &View,
        row: &<Self::Table as Table>::Row,
        out: &mut Vec<u8>,
    ) -> Result<(), StorageError>;
}

/// The lists of one database.
#[derive(Default)]
pub struct Lists {
    known: Mutex<HashMap<TypeId, Arc<Known>>>,
}

/// One list: what is rendered, and what changed since.
struct Known {
    tables: Vec<u16>,
    pending: Mutex<Pending>,
    state: Mutex<State>,
}

#[derive(Default)]
struct Pending {
    /// Rows that changed, with the index of their batch. None: nothing is rendered.
    rows: Option<Vec<(u64, RowKey)>>,
}

#[derive(Default)]
struct State {
    snapshot: Option<ListSnapshot>,
    orders: HashMap<RowKey, RowKey, foldhash::fast::FixedState>,
}

/// A rendered list at one index.
#[derive(Clone)]
pub struct ListSnapshot {
    index: u64,
    table_index: u64,
    size: usize,
    rows: usize,
    chunks: Arc<Vec<Arc<Chunk>>>,
}

/// Neighbouring rows of a list: their bytes lie one after the other, with a comma between them.
pub struct Chunk {
    orders: Vec<RowKey>,
    ends: Vec<u32>,
    bytes: Bytes,
    derived: Mutex<Vec<Derived>>,
}

/// Something computed from rows of a chunk: the first, the one behind the last, and what it is.
type Derived = (u32, u32, Arc<dyn Any + Send + Sync>);

impl Chunk {
    fn new(rows: &[(RowKey, Bytes)]) -> Arc<Self> {
        let size = rows.iter().map(|(_, bytes)| bytes.len() + 1).sum();
        let mut all = Vec::with_capacity(size);
        let mut ends = Vec::with_capacity(rows.len());
        for (at, (_, bytes)) in rows.iter().enumerate() {
            if at > 0 {
                all.push(b',');
            }
            all.extend_from_slice(bytes);
            ends.push(all.len() as u32);
        }
        Arc::new(Self {
            orders: rows.iter().map(|(order, _)| order.clone()).collect(),
            ends,
            bytes: all.into(),
            derived: Mutex::default(),
        })
    }

    /// How many rows it has; at least one.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// All of its rows, with commas between them.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What was computed from some of the rows, or is now.
    fn derived<D: Any + Send + Sync>(
        &self,
        (begin, end): (u32, u32),
        make: impl FnOnce() -> D,
    ) -> Arc<D> {
        let mut known = self.derived.lock();
        let found = known.iter().find(|d| (d.0, d.1) == (begin, end));
        if let Some(Ok(found)) = found.map(|d| Arc::clone(&d.2).downcast()) {
            return found;
        }
        let made = Arc::new(make());
        if known.len() >= DERIVED {
            known.remove(0);
        }
        known.push((begin, end, made.clone()));
        made
    }

    fn start(&self, at: usize) -> usize {
        match at {
            0 => 0,
            at => self.ends[at - 1] as usize + 1,
        }
    }

    fn row(&self, at: usize) -> Bytes {
        self.bytes.slice(self.start(at)..self.ends[at] as usize)
    }
}

/// Consecutive rows of a list, with commas between them.
#[derive(Clone)]
pub struct Part {
    bytes: Bytes,
    /// The chunk, the first row and the one behind the last; none for a row by itself.
    place: Option<(Arc<Chunk>, u32, u32)>,
}

impl Part {
    fn of(chunk: &Arc<Chunk>, begin: usize, end: usize) -> Self {
        let span = chunk.start(begin)..chunk.ends[end - 1] as usize;
        Self {
            bytes: chunk.bytes.slice(span),
            place: Some((Arc::clone(chunk), begin as u32, end as u32)),
        }
    }

    /// The rendered rows, with commas between them.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Something computed from the bytes, such as their compressed form. It is kept with the rows
    /// for whoever asks for the same part again.
    pub fn derived<D: Any + Send + Sync>(&self, make: impl FnOnce(&Bytes) -> D) -> Arc<D> {
        match &self.place {
            Some((chunk, begin, end)) => chunk.derived((*begin, *end), || make(&self.bytes)),
            None => Arc::new(make(&self.bytes)),
        }
    }
}

/// A page of a list: its parts belong together with a comma between any two.
#[derive(Clone, Default)]
pub struct Page {
    /// The rows.
    pub parts: Vec<Part>,
    /// How many rows the parts have.
    pub rows: usize,
    /// Where the first row behind the page stands; none at the end.
    pub next: Option<Vec<u8>>,
}

impl ListSnapshot {
    /// The applied index it was rendered at.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The index of the last event that changed the list's table.
    pub fn table_index(&self) -> u64 {
        self.table_index
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of all rendered rows.
    pub fn size(&self) -> usize {
        self.size
    }

    /// At most `limit` rows of those whose order begins with `prefix`, from the row at `from` on
    /// (itself or what follows its place).
    pub fn page(&self, prefix: &[u8], from: Option<&[u8]>, limit: usize) -> Page {
        let start = from.map_or(prefix, |from| from.max(prefix));
        let mut page = Page::default();
        let first = self
            .chunks
            .partition_point(|chunk| chunk.orders.last().is_some_and(|last| **last < *start));
        for chunk in &self.chunks[first..] {
            let begin = chunk.orders.partition_point(|order| **order < *start);
            let within = chunk.orders[begin..].partition_point(|order| order.starts_with(prefix));
            let end = begin + within.min(limit - page.rows);
            if end > begin {
                page.rows += end - begin;
                page.parts.push(Part::of(chunk, begin, end));
            }
            if end < begin + within {
                page.next = Some(chunk.orders[end].to_vec());
                return page;
            }
            if end < chunk.rows() {
                return page;
            }
        }
        page
    }

    /// As [`ListSnapshot::page`], backwards: `from` is the greatest place, and each row is a part.
    pub fn page_back(&self, prefix: &[u8], from: Option<&[u8]>, limit: usize) -> Page {
        let mut page = Page::default();
        for (order, bytes) in self.iter().rev() {
            if from.is_some_and(|from| order > from) || !order.starts_with(prefix) {
                continue;
            }
            if page.rows == limit {
                page.next = Some(order.to_vec());
                break;
            }
            page.rows += 1;
            page.parts.push(Part { bytes, place: None });
        }
        page
    }

    /// Every row: its place and its bytes.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Bytes)> {
        self.chunks.iter().flat_map(|chunk| {
            let orders = chunk.orders.iter().enumerate();
            orders.map(|(at, order)| (&**order, chunk.row(at)))
        })
    }
}

impl Lists {
    /// Notes the rows a batch wrote; called before they become visible.
    pub(crate) fn note(&self, index: u64, rows: &[(u16, RowKey)]) {
        for known in self.known.lock().values() {
            let mut pending = known.pending.lock();
            let Some(list) = &mut pending.rows else {
                continue;
            };
            let changed = rows
                .iter()
                .filter(|(table, _)| known.tables.contains(table));
            list.extend(changed.map(|(_, key)| (index, key.clone())));
            if list.len() > MAX_PENDING {
                pending.rows = None;
                if let Some(mut state) = known.state.try_lock() {
                    *state = State::default();
                }
            }
        }
    }

    /// Drops all that is rendered: the database was replaced.
    pub(crate) fn forget(&self) {
        for known in self.known.lock().values() {
            known.pending.lock().rows = None;
        }
    }

    fn known<L: List>(&self) -> Arc<Known> {
        let mut known = self.known.lock();
        let list = known.entry(TypeId::of::<L>()).or_insert_with(|| {
            let tables = std::iter::once(L::Table::ID).chain(L::BESIDE.iter().copied());
            Arc::new(Known {
                tables: tables.collect(),
                pending: Mutex::default(),
                state: Mutex::default(),
            })
        });
        Arc::clone(list)
    }
}

impl Projections {
    /// Whether [`Projections::list`] has little to do just now. If not, it may take a part of a
    /// second, and is nothing for a thread that others wait for.
    pub fn list_is_near<L: List>(&self) -> bool {
        let known = self.lists().known::<L>();
        let rendered = known.state.try_lock().is_some_and(|s| s.snapshot.is_some());
        let pending = known.pending.lock();
        rendered
            && pending
                .rows
                .as_ref()
                .is_some_and(|rows| rows.len() <= FEW_PENDING)
    }

    /// Whether [`Projections::list`] has nothing to read just now.
    pub fn list_is_ready<L: List>(&self) -> bool {
        let known = self.lists().known::<L>();
        let rendered = known.state.try_lock().is_some_and(|s| s.snapshot.is_some());
        let pending = known.pending.lock();
        rendered && pending.rows.as_ref().is_some_and(|rows| rows.is_empty())
    }

    /// The list as of now, or none if it is larger than what is kept ready: then walk the rows.
    pub fn list<L: List>(&self) -> Result<Option<ListSnapshot>, StorageError> {
        let known = self.lists().known::<L>();
        let mut state = known.state.lock();
        // Notes are on before the view is taken, so no batch falls between.
        let noted = known.begin_notes();
        let view = self.view();
        let limit = self.options().list_bytes;
        let changed = known.take_pending(view.index());
        let snapshot = match (noted, state.snapshot.take(), changed) {
            (true, Some(old), Some(changed)) => {
                let orders = &mut state.orders;
                refresh::<L>(&view, &old, orders, changed).map(Some)
            }
            _ => {
                state.orders.clear();
                build::<L>(&view, &mut state.orders, limit)
            }
        };
        let snapshot = snapshot?.filter(|snapshot| snapshot.size <= limit);
        if snapshot.is_none() {
            known.pending.lock().rows = None;
            state.orders = HashMap::default();
        }
        state.snapshot.clone_from(&snapshot);
        Ok(snapshot)
    }
}

impl Known {
    /// Has changed rows noted from now on; says whether they were before.
    fn begin_notes(&self) -> bool {
        let mut pending = self.pending.lock();
        let noted = pending.rows.is_some();
        pending.rows.get_or_insert_default();
        noted
    }

    /// The rows noted up to an index, once each; none if notes were dropped meanwhile, so that
    /// nobody knows what changed.
    fn take_pending(&self, index: u64) -> Option<Vec<RowKey>> {
        let mut pending = self.pending.lock();
        let rows = pending.rows.as_mut()?;
        let due = rows.partition_point(|(at, _)| *at <= index);
        let mut keys: Vec<_> = rows.drain(..due).map(|(_, key)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        Some(keys)
    }
}

fn table_index<L: List>(view: &View) -> u64 {
    let tables = std::iter::once(L::Table::ID).chain(L::BESIDE.iter().copied());
    tables
        .map(|table| view.table_index_of(table))
        .max()
        .unwrap_or(0)
}

/// Renders every row; none if they are more than `limit` bytes.
fn build<L: List>(
    view: &View,
    orders: &mut HashMap<RowKey, RowKey, foldhash::fast::FixedState>,
    limit: usize,
) -> Result<Option<ListSnapshot>, StorageError> {
    let mut cursor = view.cursor::<L::Table>(&Scan::all());
    let mut rows = Vec::new();
    let mut size = 0;
    while let Some(row) = cursor.advance()? {
        let (key, row) = (RowKey::from(row.key), row.decode::<L::Table>()?);
        let mut bytes = Vec::new();
        L::render(view, &row, &mut bytes)?;
        size += bytes.len();
        if size > limit {
            return Ok(None);
        }
        let order = RowKey::from(&*L::order(&row));
        orders.insert(key, order.clone());
        rows.push((order, Bytes::from(bytes)));
    }
    rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let chunks = rows.chunks(CHUNK_ROWS).map(Chunk::new).collect();
    Ok(Some(snapshot::<L>(view, chunks)))
}

fn snapshot<L: List>(view: &View, chunks: Vec<Arc<Chunk>>) -> ListSnapshot {
    ListSnapshot {
        index: view.index(),
        table_index: table_index::<L>(view),
        size: chunks.iter().map(|chunk| chunk.bytes.len()).sum(),
        rows: chunks.iter().map(|chunk| chunk.rows()).sum(),
        chunks: Arc::new(chunks),
    }
}

/// Renders the changed rows and the chunks they lie in; shares all others.
fn refresh<L: List>(
    view: &View,
    old: &ListSnapshot,
    orders: &mut HashMap<RowKey, RowKey, foldhash::fast::FixedState>,
    changed: Vec<RowKey>,
) -> Result<ListSnapshot, StorageError> {
    if changed.is_empty() {
        let mut same = old.clone();
        same.index = view.index();
        return Ok(same);
    }
    let mut moves: BTreeMap<RowKey, Option<Bytes>> = BTreeMap::new();
    for key in changed {
        let row = view.get_encoded::<L::Table>(&key)?;
        if let Some(order) = orders.remove(&key) {
            moves.entry(order).or_insert(None);
        }
        if let Some((row, _)) = row {
            let mut bytes = Vec::new();
            L::render(view, &row, &mut bytes)?;
            let order = RowKey::from(&*L::order(&row));
            orders.insert(key, order.clone());
            moves.insert(order, Some(bytes.into()));
        }
    }
    Ok(snapshot::<L>(view, merge(&old.chunks, moves)))
}

/// Puts changed rows in their places.
fn merge(old: &[Arc<Chunk>], moves: BTreeMap<RowKey, Option<Bytes>>) -> Vec<Arc<Chunk>> {
    let mut chunks = Vec::with_capacity(old.len() + 1);
    let mut moves = moves.into_iter().peekable();
    for (at, chunk) in old.iter().enumerate() {
        let end = old.get(at + 1).and_then(|next| next.orders.first());
        let mut mine = Vec::new();
        while let Some(change) = moves.next_if(|(order, _)| end.is_none_or(|end| order < end)) {
            mine.push(change);
        }
        if mine.is_empty() {
            chunks.push(Arc::clone(chunk));
            continue;
        }
        let kept = chunk.orders.iter().enumerate();
        let mut rows: BTreeMap<RowKey, Bytes> = kept
            .map(|(at, order)| (order.clone(), chunk.row(at)))
            .collect();
        for (order, bytes) in mine {
            match bytes {
                Some(bytes) => rows.insert(order, bytes),
                None => rows.remove(&order),
            };
        }
        push_chunks(&mut chunks, rows.into_iter().collect());
    }
    let rest: Vec<_> = moves
        .filter_map(|(order, bytes)| bytes.map(|bytes| (order, bytes)))
        .collect();
    push_chunks(&mut chunks, rest);
    chunks
}

fn push_chunks(chunks: &mut Vec<Arc<Chunk>>, rows: Vec<(RowKey, Bytes)>) {
    let size = if rows.len() <= 2 * CHUNK_ROWS {
        rows.len().max(1)
    } else {
        CHUNK_ROWS
    };
    chunks.extend(rows.chunks(size).map(Chunk::new));
}
