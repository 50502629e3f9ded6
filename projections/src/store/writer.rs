//! The single writer: entries in, one write batch out, then notices and outcomes.
//!
//! A batch ends at every 1,024th index, where digests are kept, and after a bounded amount of work,
//! so that none takes long. How entries are cut into batches changes nothing in the state, nor does
//! it where a fold ([`Fold`]) writes whole generations instead.

use std::sync::Arc;
use std::time::Instant;

use drover_events::{EventId, EventKind, Guard, Recorded};

use crate::apply::{self, guards};
use crate::engine::canonical::Canonical;
use crate::engine::db::{Database, Family};
use crate::engine::digest::Sums;
use crate::engine::error::StorageError;
use crate::engine::generations::CacheBudget;
use crate::engine::layer::{BatchSink, EventSink, RowKey};
use crate::engine::outcome::{Applied, Outcome, Refused, Rejection, Reply, outcome_key};
use crate::engine::position::{Position, flushed, put_position};
use crate::engine::scan::ScanSource;
use crate::engine::staged::{PutEntries, StagedOverlay, TableBatch, WriteEntries};
use crate::engine::table::Table;
use crate::engine::txn::{Ctx, Layers, Txn};
use crate::engine::watch::Written;
use crate::past::recorder::RecorderMemory;
use crate::read::view::Visible;
use crate::store::load::load;
use crate::store::projections::Projections;
use crate::tables::table_indexes::{TableIndex, TableIndexes};

mod flusher;
mod fold;

pub(crate) use flusher::Flusher;
pub use fold::Fold;

/// Digests are kept at multiples of this; no batch reaches across one.
pub const DIGEST_EVERY: u64 = 1_024;
/// Rows after which a batch ends: some tens of microseconds each, so a plan of 256 allocations on
/// as many nodes is a batch, well below 20 ms (EV-13).
const BATCH_ROWS: usize = 512;
/// Bytes of history and changes after which a batch ends.
const BATCH_BYTES: usize = 2 << 20;

/// The token for writing projections: there is one per database, and it is not `Clone`.
pub struct Writer {
    projections: Arc<Projections>,
    layers: Layers,
    /// What the layers keep of rows.
    kept: Arc<CacheBudget>,
    pub(crate) position: Position,
    pub(crate) digests: Sums,
    pub(crate) tables: Vec<u64>,
    flush_at: u64,
    flushed: u64,
    /// Rows and bytes written since the last flush was requested.
    unflushed: (usize, usize),
    flusher: Flusher,
    /// How often one was requested.
    flushes: u64,
    canonical: Canonical,
    record: RecorderMemory,
    touched: Vec<(u16, RowKey)>,
    /// Whether a batch took the state back to an earlier one.
    restored: bool,
    scratch: Vec<u8>,
}

/// What the writer applies: an entry with its guards. Tests have their own.
pub(crate) trait GuardedEntry {
    /// Index, term, time, id and kind; a time of 0 stands for the time of the event before.
    fn ctx(&self) -> Ctx;
    /// The guards to check first.
    fn guards(&self) -> &[Guard];
    /// Applies the event.
    fn run(&self, txn: &mut Txn<'_>, ctx: &Ctx) -> Result<Reply, Refused>;
}

impl GuardedEntry for Recorded {
    fn ctx(&self) -> Ctx {
        Ctx {
            index: self.index,
            term: self.term,
            time: self.time,
            id: self
                .envelope
                .as_ref()
                .map_or(EventId::ZERO, |envelope| envelope.id),
            kind: self.kind,
        }
    }

    fn guards(&self) -> &[Guard] {
        self.envelope
            .as_ref()
            .map_or(&[], |envelope| &envelope.guards)
    }

    fn run(&self, txn: &mut Txn<'_>, ctx: &Ctx) -> Result<Reply, Refused> {
        match &self.envelope {
            Some(envelope) => apply::dispatch(txn, ctx, &envelope.event),
            None => Ok(Reply::None),
        }
    }
}

impl Writer {
    pub(crate) fn new(projections: Arc<Projections>, visible: &Visible) -> Self {
        let kept = CacheBudget::new(projections.options().kept_bytes);
        let layers = projections.registry().layers(&kept);
        Self {
            projections,
            layers,
            kept,
            position: visible.position,
            digests: visible.digests.clone(),
            tables: visible.tables.clone(),
            flush_at: visible.position.index,
            flushed: visible.position.index,
            unflushed: (0, 0),
            flusher: Flusher::default(),
            flushes: 0,
            canonical: Canonical::default(),
            record: RecorderMemory::default(),
            touched: Vec::new(),
            restored: false,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn position_mut(&mut self) -> &mut Position {
        &mut self.position
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> &CacheBudget {
        &self.kept
    }

    #[cfg(test)]
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes
    }

    #[cfg(test)]
    pub(crate) fn wait_for_last_flush(&mut self) {
        self.flusher.wait_to_end();
    }

    /// Whether no thread can be started for a flush from now on.
    #[cfg(test)]
    pub(crate) fn put_threads_out(&mut self, out: bool) {
        self.flusher.threads_are_out = out;
    }

    /// While this is held, no requested flush gets to the disk.
    #[cfg(test)]
    pub(crate) fn flush_gate(&self) -> Arc<parking_lot::Mutex<()>> {
        Arc::clone(&self.flusher.gate)
    }

    /// The projections this token writes.
    pub fn projections(&self) -> &Arc<Projections> {
        &self.projections
    }

    /// Applies entries in the order of the log; every outcome is written when this returns.
    ///
    /// After an error the projections are as before the batch that failed, and the applier stops.
    pub fn apply(&mut self, entries: &[Recorded]) -> Result<Vec<Applied>, StorageError> {
        let mut all = Vec::with_capacity(entries.len());
        self.apply_each(entries, |applied| all.extend(applied))?;
        Ok(all)
    }

    /// As [`Writer::apply`]; outcomes are handed over batch by batch, once visible.
    pub fn apply_each(
        &mut self,
        entries: &[Recorded],
        mut done: impl FnMut(Vec<Applied>),
    ) -> Result<(), StorageError> {
        let mut rest = entries;
        while !rest.is_empty() {
            let applied = self.apply_batch(rest)?;
            rest = &rest[applied.len()..];
            done(applied);
        }
        Ok(())
    }

    /// Applies as many of the entries as one batch takes.
    pub(crate) fn apply_batch<E: GuardedEntry>(
        &mut self,
        entries: &[E],
    ) -> Result<Vec<Applied>, StorageError> {
        self.flush_when_due().inspect_err(|e| self.note(e))?;
        let result = self.try_batch(entries);
        if let Err(error) = &result {
            self.note(error);
            for layer in self.layers.iter_mut().flatten() {
                layer.forget();
            }
            self.touched.clear();
            self.restored = false;
            let visible = self.projections.visible();
            self.position = visible.position;
            self.digests = visible.digests.clone();
            self.tables.clone_from(&visible.tables);
        }
        result
    }

    fn note(&self, error: &StorageError) {
        if error.is_out_of_space() {
            self.projections.set_full(true);
        }
        // The applier stops; the next start then finds the mark and folds the log again.
        if error.is_damage() {
            self.projections.database().mark_damage(&error.to_string());
        }
    }

    fn try_batch<E: GuardedEntry>(&mut self, entries: &[E]) -> Result<Vec<Applied>, StorageError> {
        let db = self.projections.database();
        let mut batch = TableBatch::new(&db);
        let below = StagedOverlay {
            source: ScanSource::Live(&db),
            staged: None,
        };
        let mut applied = Vec::new();
        let mut changed = Vec::new();
        let mut rows = 0;
        for entry in entries {
            let ctx = self.advance(entry)?;
            let outcome = self.apply_entry(entry, &ctx, (below, &mut batch), &mut changed)?;
            rows += self.touched.len();
            self.touched.clear();
            applied.push(Applied {
                index: ctx.index,
                outcome,
            });
            let full = rows >= BATCH_ROWS || batch.size() >= BATCH_BYTES;
            if full || ctx.index.is_multiple_of(DIGEST_EVERY) {
                break;
            }
        }
        self.write_table_indexes(below, &mut changed)?;
        let written = self.write_staged(&mut batch, &changed)?;
        put_position(&mut batch, &self.position, &self.digests);
        let bytes = batch.size();
        batch.write()?;
        self.publish(&db, &changed, &written);
        // The tables' own indexes are written with every batch, and are always the same few rows.
        let own = |(table, _): &&(u16, RowKey)| *table != TableIndexes::ID;
        self.unflushed.0 += written.rows.iter().filter(own).count();
        self.unflushed.1 += bytes;
        self.projections.set_full(false);
        Ok(applied)
    }

    /// Moves the position to an entry.
    fn advance<E: GuardedEntry>(&mut self, entry: &E) -> Result<Ctx, StorageError> {
        let mut ctx = entry.ctx();
        let applied = self.position.index;
        if self.position.begun && ctx.index != applied + 1 {
            return Err(StorageError::OutOfOrder {
                applied,
                got: ctx.index,
            });
        }
        if ctx.time == 0 {
            ctx.time = self.position.time;
        }
        self.position = Position {
            index: ctx.index,
            term: ctx.term,
            time: ctx.time,
            membership: match ctx.kind {
                EventKind::RaftMembership => ctx.index,
                _ => self.position.membership,
            },
            begun: true,
            floor: self.position.floor,
        };
        Ok(ctx)
    }

    /// Applies one event, or takes it back; `touched` then names its rows.
    fn apply_entry<E: GuardedEntry>(
        &mut self,
        entry: &E,
        ctx: &Ctx,
        (below, out): (StagedOverlay<'_>, &mut dyn PutEntries),
        changed: &mut Vec<u16>,
    ) -> Result<Outcome, StorageError> {
        let mut txn = Txn {
            below,
            layers: &mut self.layers,
            touched: &mut self.touched,
            index: ctx.index,
        };
        let result = guards::check(&txn, entry.guards()).and_then(|()| entry.run(&mut txn, ctx));
        match result {
            Ok(reply) => {
                self.finish_event(ctx, out, changed)?;
                if ctx.kind == EventKind::ClusterRestored {
                    self.raise_all(ctx.index, changed);
                    self.restored = true;
                }
                Ok(Outcome::Applied(reply))
            }
            Err(Refused::Storage(error)) => Err(error),
            Err(Refused::Rejected(rejection)) => {
                self.undo_event();
                keep_outcome(out, ctx.index, &rejection);
                Ok(Outcome::Rejected(rejection))
            }
        }
    }

    /// Every table counts as changed by an event: what was there in a former epoch, under indexes
    /// up to this one, may be gone.
    fn raise_all(&mut self, index: u64, changed: &mut Vec<u16>) {
        for table in self.projections.registry().tables() {
            let at = usize::from(table.id());
            if self.tables.len() <= at {
                self.tables.resize(at + 1, 0);
            }
            if table.id() != TableIndexes::ID && self.tables[at] != index {
                self.tables[at] = index;
                changed.push(table.id());
            }
        }
    }

    /// What the rows that an event touched take in memory until their batch is written, roughly.
    fn weigh_touched(&mut self) -> Result<usize, StorageError> {
        let mut bytes = 0;
        for (table, key) in &self.touched {
            if let Some(layer) = layer(&mut self.layers, *table) {
                bytes += layer.weight(key, &mut self.canonical)?;
            }
        }
        Ok(bytes)
    }

    fn undo_event(&mut self) {
        for (table, _) in std::mem::take(&mut self.touched) {
            if let Some(layer) = layer(&mut self.layers, table) {
                layer.undo_event();
            }
        }
    }

    /// Writes history, changes and postings of an event; notes the tables it changed.
    fn finish_event(
        &mut self,
        ctx: &Ctx,
        out: &mut dyn PutEntries,
        changed: &mut Vec<u16>,
    ) -> Result<(), StorageError> {
        let mut history_writer = self.record.of(ctx.index, out);
        let mut sink = EventSink {
            canonical: &mut self.canonical,
            history_writer: &mut history_writer,
        };
        for (table, key) in &self.touched {
            if let Some(layer) = layer(&mut self.layers, *table)
                && layer.finish_row(key, &mut sink)?
            {
                let at = usize::from(*table);
                if self.tables.len() <= at {
                    self.tables.resize(at + 1, 0);
                }
                if self.tables[at] != ctx.index {
                    self.tables[at] = ctx.index;
                    changed.push(*table);
                }
            }
        }
        for (table, _) in &self.touched {
            if let Some(layer) = layer(&mut self.layers, *table) {
                layer.end_event();
            }
        }
        history_writer.finish(ctx.kind);
        Ok(())
    }

    /// Writes rows, indexes and kept digests; returns what was written.
    fn write_staged(
        &mut self,
        out: &mut dyn WriteEntries,
        changed: &[u16],
    ) -> Result<Written, StorageError> {
        let mut written = Written::default();
        let mut sink = BatchSink {
            out: &mut *out,
            canonical: &mut self.canonical,
            digests: &mut self.digests,
            scratch: &mut self.scratch,
            written: &mut written,
        };
        for table in changed.iter().chain(&[TableIndexes::ID]) {
            if let Some(layer) = layer(&mut self.layers, *table) {
                layer.finish_batch(&mut sink)?;
            }
        }
        let turn = self.kept.is_full();
        for layer in self.layers.iter_mut().flatten() {
            layer.end_batch(turn);
        }
        if self.position.index.is_multiple_of(DIGEST_EVERY) {
            let mut digests = Vec::new();
            self.digests.encode(&mut digests);
            let key = self.position.index.to_be_bytes();
            out.put(Family::Digests, &key, &digests);
        }
        Ok(written)
    }

    /// Keeps the changed tables' indexes, in order, as rows: snapshots and digests hold them.
    fn write_table_indexes(
        &mut self,
        below: StagedOverlay<'_>,
        changed: &mut Vec<u16>,
    ) -> Result<(), StorageError> {
        changed.sort_unstable();
        changed.dedup();
        for table in &*changed {
            let index = self.tables[usize::from(*table)];
            let mut txn = Txn {
                below,
                layers: &mut self.layers,
                touched: &mut self.touched,
                index,
            };
            txn.put::<TableIndexes>(TableIndex {
                table: *table,
                value: index,
            })?;
        }
        self.touched.clear();
        if let Some(layer) = layer(&mut self.layers, TableIndexes::ID) {
            layer.end_event();
        }
        Ok(())
    }

    fn publish(&mut self, db: &Arc<Database>, changed: &[u16], written: &Written) {
        let visible = Visible::new(
            db,
            self.position,
            self.digests.clone(),
            self.tables.clone(),
            self.projections.registry(),
        );
        let (index, rows) = (self.position.index, &written.rows);
        self.projections.lists().note(index, rows);
        self.projections.followers().note(index, rows);
        self.projections.show(visible);
        match std::mem::take(&mut self.restored) {
            true => self.projections.watch().renew(index),
            false => self.projections.watch().notify(index, changed, written),
        }
    }

    /// Continues as the writer of another database, whose own writer is given up for it, with that
    /// database's flush that may be on its way. The flush of the database before is handed out: the
    /// thread that closes that database waits for it, and not the writer.
    pub(crate) fn take_over(&mut self, new: Writer) -> Flusher {
        self.layers = new.layers;
        self.kept = new.kept;
        self.position = new.position;
        self.digests = new.digests;
        self.tables = new.tables;
        self.flush_at = new.flush_at;
        self.flushed = new.flushed;
        self.unflushed = new.unflushed;
        self.touched.clear();
        std::mem::replace(&mut self.flusher, new.flusher)
    }

    /// Forgets everything held in memory and shows what the database has now.
    pub(crate) fn restart(&mut self) -> Result<(), StorageError> {
        let db = self.projections.database();
        let visible = load(&db, self.projections.registry())?;
        for layer in self.layers.iter_mut().flatten() {
            layer.forget();
        }
        self.position = visible.position;
        self.digests = visible.digests.clone();
        self.tables.clone_from(&visible.tables);
        self.flush_at = self.position.index;
        self.flushed = 0;
        self.unflushed = (0, 0);
        self.projections.lists().forget();
        self.projections.show(visible);
        self.projections.followers().forget();
        self.projections.watch().renew(self.position.index);
        Ok(())
    }

    fn flush_when_due(&mut self) -> Result<(), StorageError> {
        let options = self.projections.options();
        let (every, most) = (options.flush_every, options.max_unflushed);
        let db = self.projections.database();
        self.flusher.failed()?;
        let entries = self.position.index - self.flush_at;
        let (rows, bytes) = self.unflushed;
        let due = entries >= every || rows >= options.flush_rows || bytes >= options.flush_bytes;
        if due && !self.start_flush(&db, false) {
            // There is none to wait for either. The next batch tries again.
            return Ok(());
        }
        // No batch is longer than this, so the limit holds after the next one too.
        let most = most.saturating_sub(DIGEST_EVERY);
        if self.position.index - self.flushed > most {
            self.flushed = flushed(&db)?.index;
            if self.position.index - self.flushed > most {
                self.wait_for_flush(&db, most)?;
            }
        }
        Ok(())
    }

    /// Requests a flush, unless one is on its way; returns whether one is then.
    fn start_flush(&mut self, db: &Arc<Database>, whole: bool) -> bool {
        if self.flusher.start(db, whole) {
            self.flush_at = self.position.index;
            self.unflushed = (0, 0);
            self.flushes += 1;
        } else if self.flusher.is_idle() {
            // There is no thread for one.
            self.projections.note_threadless();
            return false;
        }
        true
    }

    /// Waits until no more than `most` entries are not on the disk, or for as long as a batch may.
    #[allow(
        clippy::disallowed_methods,
        reason = "how long it waits changes nothing it writes"
    )]
    fn wait_for_flush(&mut self, db: &Arc<Database>, most: u64) -> Result<(), StorageError> {
        let (began, wait) = (Instant::now(), self.projections.options().flush_wait);
        // One that is on its way may be over before all of it is on the disk; the next is not.
        while self.position.index - self.flushed > most {
            if !self.start_flush(db, true) {
                // The next batch tries again.
                break;
            }
            if !self.flusher.wait(wait.saturating_sub(began.elapsed()))? {
                break;
            }
            self.flushed = flushed(db)?.index;
        }
        self.projections.note_wait(began.elapsed());
        Ok(())
    }

    /// Writes everything applied to disk and waits for it; returns the flushed index.
    pub fn flush(&mut self) -> Result<u64, StorageError> {
        self.flush_at = self.position.index;
        self.unflushed = (0, 0);
        self.flushed = self.projections.flush()?;
        Ok(self.flushed)
    }
}

fn layer(layers: &mut Layers, table: u16) -> Option<&mut Box<dyn crate::engine::layer::AnyLayer>> {
    layers.get_mut(usize::from(table)).and_then(Option::as_mut)
}

fn keep_outcome(out: &mut dyn PutEntries, index: u64, rejection: &Rejection) {
    let value = rmp_serde::to_vec_named(rejection)
        .expect("a rejection holds only numbers and text, which always encode");
    out.put(Family::Meta, &outcome_key(index), &value);
}
