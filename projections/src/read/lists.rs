//! Rendered lists: the hottest reads, kept ready to be sent.
//!
//! A [`List`] says how a row of a table is shown in a list and how the list is ordered. The first
//! read renders all rows; after that only those that changed are rendered again, at the next read.
//! A [`ListSnapshot`] holds the rendered rows in chunks of [`bytes::Bytes`] that are shared between
//! versions, so a whole list is sent without copying or decoding anything, and a page is two
//! slices.
//!
//! It is a cache of the projections: bounded in bytes, dropped when rows change far more often than
//! the list is read, and built again on demand. It never answers for another index than it says. A
//! list that is larger than its bound is known to be so, and looked at again after a while only.

mod render;

use std::any::{Any, TypeId};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};

use crate::engine::db::DatabaseOptions;
use crate::engine::error::StorageError;
use crate::engine::key::KeyBuf;
use crate::engine::layer::RowKey;
use crate::engine::table::Table;
use crate::engine::watch::{Interest, Waiter, Watch, Written};
use crate::read::view::View;

/// Changed rows that wait for a reader; beyond that the list is dropped.
const MAX_PENDING: usize = 20_000;
/// Things computed from parts of one chunk that are kept.
const DERIVED: usize = 4;

/// How rows of a table are shown in a list. One type per form of the list; the type is its name.
pub trait List: Send + Sync + 'static {
    /// The table that it lists.
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
    known: Mutex<HashMap<TypeId, Arc<ListState>>>,
}

/// One list: what is rendered, and what changed since.
struct ListState {
    tables: Vec<u16>,
    pending: Mutex<Pending>,
    state: Mutex<ListCells>,
    /// Reads that wait for the state to be let go.
    let_go: Watch,
}

#[derive(Default)]
struct Pending {
    /// Rows that changed, with the index of their batch. None: nothing is rendered.
    rows: Option<Vec<(u64, RowKey)>>,
}

#[derive(Default)]
struct ListCells {
    snapshot: Option<ListSnapshot>,
    orders: Orders,
    /// Up to which index it is taken to be larger than what is kept.
    too_large: Option<u64>,
}

/// Where each row stands.
type Orders = HashMap<RowKey, RowKey, foldhash::fast::FixedState>;

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
pub struct ListPart {
    bytes: Bytes,
    /// The chunk, the first row and the one behind the last; none for a row by itself.
    place: Option<(Arc<Chunk>, u32, u32)>,
}

impl ListPart {
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
    /// for callers that need the same part again.
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
    pub parts: Vec<ListPart>,
    /// How many rows the parts have.
    pub rows: usize,
    /// Where the first row behind the page stands; none at the end.
    pub next: Option<Vec<u8>>,
}

impl std::fmt::Debug for ListSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListSnapshot")
            .field("index", &self.index)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
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
                page.parts.push(ListPart::of(chunk, begin, end));
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
            page.parts.push(ListPart { bytes, place: None });
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
                if let Some(mut held) = known.try_hold() {
                    *held.state = ListCells::default();
                }
            }
        }
    }

    /// Drops all that is rendered: the database was replaced.
    pub(crate) fn forget(&self) {
        for known in self.known.lock().values() {
            known.pending.lock().rows = None;
            if let Some(mut held) = known.try_hold() {
                *held.state = ListCells::default();
            }
        }
    }

    /// The list as of now, if nothing is left to be read or rendered for it; `view` takes a view of
    /// now.
    pub(crate) fn ready<L: List>(&self, view: impl FnOnce() -> View) -> Option<ListSnapshot> {
        let known = self.known::<L>();
        let held = known.try_hold()?;
        // What changed up to the view is noted by the time the view is taken.
        let view = view();
        let pending = known.pending.lock();
        let changed = pending.rows.as_ref()?.first();
        if changed.is_some_and(|(at, _)| *at <= view.index()) {
            return None;
        }
        let mut list = held.state.snapshot.clone()?;
        list.index = view.index();
        Some(list)
    }

    /// The list as of now, as `view` takes it. This never waits for others that render it.
    pub(crate) fn list<L: List>(
        &self,
        options: &DatabaseOptions,
        view: impl Fn() -> View,
    ) -> Result<Listed, StorageError> {
        let known = self.known::<L>();
        let mut held = match known.hold() {
            Ok(held) => held,
            Err(waiter) => return Ok(Listed::Busy(waiter)),
        };
        let state = &mut *held.state;
        let until = state.too_large;
        if until.is_some_and(|until| view().index() < until) {
            return Ok(Listed::TooLarge);
        }
        // Notes are on before the view is taken, so no batch falls between.
        let noted = known.begin_notes();
        let view = view();
        let limit = options.list_bytes;
        let changed = known.take_pending(view.index());
        let snapshot = match (noted, state.snapshot.take(), changed) {
            (true, Some(old), Some(changed)) => {
                let orders = &mut state.orders;
                render::refresh::<L>(&view, &old, orders, changed).map(Some)
            }
            _ => {
                state.orders.clear();
                render::build::<L>(&view, &mut state.orders, limit)
            }
        };
        let Some(snapshot) = snapshot?.filter(|snapshot| snapshot.size <= limit) else {
            known.pending.lock().rows = None;
            *state = ListCells {
                too_large: Some(view.index().saturating_add(options.list_again)),
                ..ListCells::default()
            };
            return Ok(Listed::TooLarge);
        };
        (state.snapshot, state.too_large) = (Some(snapshot.clone()), None);
        Ok(Listed::Ready(snapshot))
    }

    fn known<L: List>(&self) -> Arc<ListState> {
        let mut known = self.known.lock();
        let list = known.entry(TypeId::of::<L>()).or_insert_with(|| {
            let tables = std::iter::once(L::Table::ID).chain(L::BESIDE.iter().copied());
            Arc::new(ListState {
                tables: tables.collect(),
                pending: Mutex::default(),
                state: Mutex::default(),
                let_go: Watch::default(),
            })
        });
        Arc::clone(list)
    }
}

/// What there is of a list.
#[derive(Debug)]
pub enum Listed {
    /// All of it.
    Ready(ListSnapshot),
    /// It is larger than what is kept ready: walk the rows.
    TooLarge,
    /// Another read is rendering it. Call again when the waiter is ready, and hold up no thread
    /// until then.
    Busy(Waiter),
}

/// The state of a list, held. It is let go before its waiters are notified.
struct ListGuard<'a> {
    state: MutexGuard<'a, ListCells>,
    _reported: ListNotifier<'a>,
}

/// Wakes the waiters of a list.
struct ListNotifier<'a>(&'a Watch);

impl Drop for ListNotifier<'_> {
    fn drop(&mut self) {
        self.0.notify(0, &[], &Written::default());
    }
}

impl ListState {
    /// Its state, unless another read holds it.
    fn try_hold(&self) -> Option<ListGuard<'_>> {
        Some(ListGuard {
            state: self.state.try_lock()?,
            _reported: ListNotifier(&self.let_go),
        })
    }

    /// Its state, or a waiter that becomes ready once its holder has let it go.
    fn hold(&self) -> Result<ListGuard<'_>, Waiter> {
        self.try_hold().map_or_else(
            || {
                // Registered before the second try, so that no letting go falls between.
                let waiter = self.let_go.register(&[Interest::Progress]);
                self.try_hold().ok_or(waiter)
            },
            Ok,
        )
    }

    /// Has changed rows noted from now on; says whether they were before.
    fn begin_notes(&self) -> bool {
        let mut pending = self.pending.lock();
        let noted = pending.rows.is_some();
        pending.rows.get_or_insert_default();
        noted
    }

    /// The rows noted up to an index, once each; none if notes were dropped meanwhile, so that it
    /// is not known what changed.
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
