//! How a list is rendered: whole, or what changed of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Chunk, List, ListSnapshot, Orders};
use crate::engine::error::StorageError;
use crate::engine::layer::RowKey;
use crate::engine::scan::Scan;
use crate::engine::table::Table;
use crate::read::view::View;

/// Rows per chunk, roughly: a changed row renders its chunk's bytes anew.
const CHUNK_ROWS: usize = 64;

fn table_index<L: List>(view: &View) -> u64 {
    let tables = std::iter::once(L::Table::ID).chain(L::BESIDE.iter().copied());
    tables
        .map(|table| view.last_changed_at(table))
        .max()
        .unwrap_or(0)
}

/// Renders every row; none if they are more than `limit` bytes.
pub(super) fn build<L: List>(
    view: &View,
    orders: &mut Orders,
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
pub(super) fn refresh<L: List>(
    view: &View,
    old: &ListSnapshot,
    orders: &mut Orders,
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
