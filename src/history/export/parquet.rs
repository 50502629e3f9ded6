//! Export for analysts: Parquet files, parted by day and kind as Hive does it
//! (`day=2026-11-21/kind=JobRegistered/events-00000000000000000042.parquet`).
//!
//! A file is written under a name that no reader takes for one, and gets its own when it is whole
//! and on the disk; `export.json` comes last and says that all of it is there, and with which flags
//! it was made. Until then there is `unfinished.json`, which knows the last event of the last day
//! that is whole: an export that continues removes what lies behind that event and begins there;
//! one that begins anew removes all. So two are never mixed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_events::EventKind;
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::backup::save::shown;
use super::lines::{Export, Exported};
use super::parquet_dir::{
    Done, MANIFEST, PROGRESS, UNFINISHED, clear_behind, gone_on, prepare, put,
};
use super::{ArchiveError, sync_dir};
use crate::history::record::numbers::Numbers;
use crate::history::record::{About, Document, RecordedOutcome, Redactor, deep};
use crate::log::ReadOnlyLog;

/// The columns.
const SCHEMA: &str = "message event {
    REQUIRED INT64 index (INTEGER(64,false));
    REQUIRED INT64 term (INTEGER(64,false));
    REQUIRED INT64 time (TIMESTAMP(MICROS,true));
    REQUIRED INT64 time_ns (INTEGER(64,true));
    REQUIRED BYTE_ARRAY kind (STRING);
    REQUIRED INT32 version (INTEGER(32,true));
    OPTIONAL BYTE_ARRAY id (STRING);
    OPTIONAL BYTE_ARRAY actor_kind (STRING);
    OPTIONAL BYTE_ARRAY actor_id (STRING);
    OPTIONAL BYTE_ARRAY actor_name (STRING);
    OPTIONAL BYTE_ARRAY actor_addr (STRING);
    OPTIONAL BYTE_ARRAY request_id (STRING);
    OPTIONAL BYTE_ARRAY outcome (STRING);
    OPTIONAL BYTE_ARRAY reason (STRING);
    OPTIONAL BYTE_ARRAY namespace (STRING);
    OPTIONAL BYTE_ARRAY job_id (STRING);
    OPTIONAL BYTE_ARRAY alloc_id (STRING);
    OPTIONAL BYTE_ARRAY node_id (STRING);
    OPTIONAL INT64 cause (INTEGER(64,false));
    REQUIRED GROUP objects (LIST) {
        REPEATED GROUP list { REQUIRED BYTE_ARRAY element (STRING); }
    }
    OPTIONAL BYTE_ARRAY payload (STRING);
}";

/// Columns of texts between `version` and `cause`.
const TEXTS: usize = 12;
/// Rows after which a group of rows is written.
const GROUP_ROWS: usize = 20_000;
/// Bytes of all rows held, after which the largest group is written.
const HELD: usize = 64 << 20;
/// Rows after which a file ends.
const FILE_ROWS: usize = 1_000_000;
/// Object ids kept of an event.
const OBJECTS: usize = 64;
const DAY_SECONDS: i64 = 86_400;
const DAY: i64 = DAY_SECONDS * 1_000_000_000;

/// One event as a row.
struct EventRow {
    index: i64,
    term: i64,
    time: i64,
    kind: &'static str,
    version: i32,
    /// From `id` to `node_id`, in the order of the columns.
    texts: [Option<String>; TEXTS],
    cause: Option<i64>,
    objects: Vec<String>,
    payload: Option<String>,
}

impl EventRow {
    fn bytes(&self) -> usize {
        let texts = self.texts.iter().flatten().chain(&self.objects);
        let texts: usize = texts.map(String::len).sum();
        256 + texts + self.payload.as_ref().map_or(0, String::len)
    }
}

/// The part of a document that is read again, behind what hides confidential values.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ShownDocument<'a> {
    #[serde(default, borrow)]
    actor: Option<ShownActor<'a>>,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ShownActor<'a> {
    kind: &'a str,
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    addr: String,
}

/// A file that is being written.
struct ParquetPart {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    rows: Vec<EventRow>,
    bytes: usize,
    written: usize,
}

/// The files of one day.
struct Days<'a> {
    dir: &'a Path,
    schema: TypePtr,
    properties: Arc<WriterProperties>,
    /// The day whose files are open, since 1970.
    day: Option<i64>,
    parts: BTreeMap<&'static str, ParquetPart>,
    held: usize,
    done: Done,
    /// The last row taken, which may not be on the disk yet, and how many there were.
    taken: (Option<u64>, u64),
    manifest: Value,
}

fn failed(path: &Path) -> impl FnOnce(ParquetError) -> ArchiveError + use<> {
    let failed = ArchiveError::file("write", path);
    move |error| match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => failed(*error),
            Err(inner) => failed(std::io::Error::other(inner)),
        },
        other => failed(std::io::Error::other(other)),
    }
}

/// Writes the events of a log into `dir`, as [`Export::run`] writes lines. To `resume` is to
/// continue behind the last whole day of an export with the same flags, finished or not.
///
/// # Errors
/// As [`Export::run`]; a directory that is not empty, unless an export was broken off in it or is
/// to be gone on with. What is there under its own name is whole.
pub fn write(
    export: &Export,
    log: &ReadOnlyLog,
    dir: &Path,
    resume: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Exported, ArchiveError> {
    let mut manifest = serde_json::json!({
        "Epoch": hex::encode(log.epoch().id), "Flags": flags(export),
    });
    let before = match resume {
        true => gone_on(dir, &manifest)?,
        false => {
            prepare(dir)?;
            Done::default()
        }
    };
    before.report(&mut manifest);
    put(dir, PROGRESS, &manifest)?;
    if resume {
        clear_behind(dir, before.last)?;
    }
    let schema = parse_message_type(SCHEMA).map_err(failed(dir))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let mut days = Days {
        dir,
        schema: Arc::new(schema),
        properties: Arc::new(properties.build()),
        day: None,
        parts: BTreeMap::new(),
        held: 0,
        done: before,
        taken: (before.last, before.events),
        manifest,
    };
    let rest = Export {
        from: before
            .last
            .map_or(export.from, |last| export.from.max(last + 1)),
        ..export.clone()
    };
    let form = (export.redactor.as_deref(), export.numbers);
    let mut done = rest.each(log, progress, &mut |event, time| {
        let outcome = export.outcomes.get(event.index);
        days.take(row((event, time), outcome, form)?)
    })?;
    days.end()?;
    let mut manifest = days.manifest;
    (done.events, done.bytes) = (days.done.events, days.done.bytes);
    done.last = done.last.or(before.last);
    days.done.report(&mut manifest);
    manifest["From"] = export.from.into();
    manifest["To"] = done.last.into();
    put(dir, MANIFEST, &manifest)?;
    let progress = dir.join(PROGRESS);
    fs::remove_file(&progress).map_err(ArchiveError::file("remove", &progress))?;
    Ok(done)
}

/// What was requested, as the flags of `drover log export` name it.
fn flags(export: &Export) -> Value {
    let kinds = export.kinds.iter();
    let kinds: Vec<_> = kinds
        .filter_map(|kind| Some(EventKind::from_number(*kind)?.name()))
        .collect();
    serde_json::json!({
        "From": export.from, "To": export.to,
        "Since": export.since.map(shown), "Until": export.until.map(shown),
        "Kinds": kinds, "Clear": export.redactor.is_none(),
    })
}

/// An event as a row; `time` is that of the event beside it for Raft's own entries.
fn row(
    (event, time): (&drover_events::Recorded, i64),
    outcome: Option<RecordedOutcome<'_>>,
    (hidden, numbers): (Option<&Redactor>, Numbers),
) -> Result<EventRow, ArchiveError> {
    let document = Document::of(event);
    let mut bytes = Vec::with_capacity(1024);
    let unwritten = |error: serde_json::Error| ArchiveError::Write(error.into());
    Redactor::write(hidden, &mut bytes, &document).map_err(unwritten)?;
    numbers.rewrite(&mut bytes, 0);
    let shown: ShownDocument<'_> = serde_json::from_slice(&bytes).map_err(unwritten)?;
    let filled = |text: String| Some(text).filter(|text| !text.is_empty());
    let actor = shown.actor.map(|actor| {
        let kind = Some(actor.kind.to_owned());
        [
            kind,
            filled(actor.id),
            filled(actor.name),
            filled(actor.addr),
        ]
    });
    let [kind, id, name, addr] = actor.unwrap_or_default();
    let about = event.envelope.as_ref();
    let about = about
        .map(|envelope| About::of(&envelope.event))
        .unwrap_or_default();
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let mut row = EventRow {
        index: event.index.cast_signed(),
        term: event.term.cast_signed(),
        time,
        kind: document.kind,
        version: document.version.into(),
        texts: [
            document.id.map(|id| id.to_string()),
            kind,
            id,
            name,
            addr,
            document.request_id.map(str::to_owned).and_then(filled),
            owned(outcome.map(RecordedOutcome::name)),
            owned(outcome.and_then(RecordedOutcome::reason)),
            owned(about.namespace()),
            owned(about.job_id()),
            owned(about.alloc_id()),
            owned(about.node_id()),
        ],
        cause: document.cause.map(u64::cast_signed),
        objects: Vec::new(),
        payload: shown.payload.map(|payload| payload.get().to_owned()),
    };
    if let Some(payload) = shown.payload {
        let payload = deep::value(payload.get().as_bytes()).map_err(unwritten)?;
        objects_of(&payload, 0, &mut row);
    }
    Ok(row)
}

/// The ids that a payload names, from its head down: what lies deeper than the objects of a list
/// belongs to those.
fn objects_of(value: &Value, depth: u32, row: &mut EventRow) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let Value::String(text) = field else { continue };
                let is_id = name.ends_with("ID") || name == "Path";
                let space = row.objects.len() < OBJECTS;
                if is_id && space && !text.is_empty() && !row.objects.contains(text) {
                    row.objects.push(text.clone());
                }
            }
            if depth < 3 {
                fields
                    .values()
                    .for_each(|field| objects_of(field, depth + 1, row));
            }
        }
        Value::Array(items) if depth < 3 => {
            items
                .iter()
                .for_each(|item| objects_of(item, depth + 1, row));
        }
        _ => {}
    }
}

impl Days<'_> {
    fn take(&mut self, row: EventRow) -> Result<(), ArchiveError> {
        // Time order is index order, so a day that ended does not come again.
        let today = Some(row.time.div_euclid(DAY));
        if self.day != today {
            self.end()?;
            self.day = today;
        }
        let kind = row.kind;
        self.taken = (Some(row.index.cast_unsigned()), self.taken.1 + 1);
        if !self.parts.contains_key(kind) {
            let part = self.begin(&row)?;
            self.parts.insert(kind, part);
        }
        let Some(part) = self.parts.get_mut(kind) else {
            return Ok(());
        };
        let bytes = row.bytes();
        part.bytes += bytes;
        self.held += bytes;
        part.rows.push(row);
        if part.rows.len() >= GROUP_ROWS {
            self.held -= part.write_group()?;
        } else if self.held >= HELD
            && let Some(largest) = self.parts.values_mut().max_by_key(|part| part.bytes)
        {
            self.held -= largest.write_group()?;
        }
        if self
            .parts
            .get(kind)
            .is_some_and(|part| part.written >= FILE_ROWS)
            && let Some(part) = self.parts.remove(kind)
        {
            self.finish(part)?;
        }
        Ok(())
    }

    fn begin(&self, row: &EventRow) -> Result<ParquetPart, ArchiveError> {
        let day = self.dir.join(day(row.time.div_euclid(DAY)));
        let dir = day.join(format!("kind={}", row.kind));
        fs::create_dir_all(&dir).map_err(ArchiveError::file("create", &dir))?;
        let path = dir.join(format!("events-{:020}.{UNFINISHED}", row.index));
        let file = File::create(&path).map_err(ArchiveError::file("create", &path))?;
        let (schema, properties) = (Arc::clone(&self.schema), Arc::clone(&self.properties));
        let writer = SerializedFileWriter::new(file, schema, properties).map_err(failed(&path))?;
        Ok(ParquetPart {
            path,
            writer,
            rows: Vec::new(),
            bytes: 0,
            written: 0,
        })
    }

    fn finish(&mut self, mut part: ParquetPart) -> Result<(), ArchiveError> {
        self.held -= part.write_group()?;
        let path = part.path;
        part.writer.finish().map_err(failed(&path))?;
        let file = part.writer.inner();
        self.done.bytes += file
            .sync_all()
            .and_then(|()| fs::rename(&path, path.with_extension("")))
            .and_then(|()| file.metadata())
            .map_err(ArchiveError::file("finish", &path))?
            .len();
        self.done.files += 1;
        path.parent().map_or(Ok(()), sync_dir)
    }

    /// Ends the files of the day, and says that it is whole.
    fn end(&mut self) -> Result<(), ArchiveError> {
        while let Some((_, part)) = self.parts.pop_first() {
            self.finish(part)?;
        }
        let Some(today) = self.day else {
            return Ok(());
        };
        sync_dir(&self.dir.join(day(today)))?;
        (self.done.last, self.done.events) = self.taken;
        self.done.report(&mut self.manifest);
        put(self.dir, PROGRESS, &self.manifest)
    }
}

/// The directory of a day, which is counted from 1970, in UTC.
fn day(day: i64) -> String {
    let time = jiff::Timestamp::from_second(day * DAY_SECONDS).unwrap_or_default();
    time.strftime("day=%Y-%m-%d").to_string()
}

impl ParquetPart {
    /// Writes what is held as a group of rows; answers how many bytes that were.
    fn write_group(&mut self) -> Result<usize, ArchiveError> {
        if self.rows.is_empty() {
            return Ok(0);
        }
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.writer.next_row_group().map_err(failed(&self.path))?;
        columns(&mut group, &rows).map_err(failed(&self.path))?;
        group.close().map_err(failed(&self.path))?;
        self.written += rows.len();
        Ok(std::mem::take(&mut self.bytes))
    }
}

type Group<'a> = SerializedRowGroupWriter<'a, File>;

/// The next column.
fn column<T: DataType>(
    group: &mut Group<'_>,
    write: impl FnOnce(&mut ColumnWriterImpl<'_, T>) -> Result<usize, ParquetError>,
) -> Result<(), ParquetError> {
    let next = group.next_column()?;
    let mut next = next.ok_or_else(|| ParquetError::General("a column too many".to_owned()))?;
    write(next.typed::<T>())?;
    next.close()
}

fn numbers(
    group: &mut Group<'_>,
    rows: &[EventRow],
    of: impl Fn(&EventRow) -> i64,
) -> Result<(), ParquetError> {
    let values: Vec<i64> = rows.iter().map(of).collect();
    column::<Int64Type>(group, |column| column.write_batch(&values, None, None))
}

fn texts(
    group: &mut Group<'_>,
    rows: &[EventRow],
    of: impl Fn(&EventRow) -> Option<&String>,
) -> Result<(), ParquetError> {
    let values: Vec<ByteArray> = rows
        .iter()
        .filter_map(&of)
        .map(|text| text.as_str().into())
        .collect();
    let levels: Vec<i16> = rows
        .iter()
        .map(|row| i16::from(of(row).is_some()))
        .collect();
    column::<ByteArrayType>(group, |column| {
        column.write_batch(&values, Some(&levels), None)
    })
}

/// All columns, in the order of the schema.
fn columns(group: &mut Group<'_>, rows: &[EventRow]) -> Result<(), ParquetError> {
    numbers(group, rows, |row| row.index)?;
    numbers(group, rows, |row| row.term)?;
    numbers(group, rows, |row| row.time.div_euclid(1_000))?;
    numbers(group, rows, |row| row.time)?;
    let kinds: Vec<ByteArray> = rows.iter().map(|row| row.kind.into()).collect();
    column::<ByteArrayType>(group, |column| column.write_batch(&kinds, None, None))?;
    let versions: Vec<i32> = rows.iter().map(|row| row.version).collect();
    column::<Int32Type>(group, |column| column.write_batch(&versions, None, None))?;
    for at in 0..TEXTS {
        texts(group, rows, |row| row.texts[at].as_ref())?;
    }
    let causes: Vec<i64> = rows.iter().filter_map(|row| row.cause).collect();
    let levels: Vec<i16> = rows
        .iter()
        .map(|row| i16::from(row.cause.is_some()))
        .collect();
    column::<Int64Type>(group, |column| {
        column.write_batch(&causes, Some(&levels), None)
    })?;
    objects(group, rows)?;
    texts(group, rows, |row| row.payload.as_ref())
}

/// The lists of ids: a row begins at repetition 0, an empty list is defined to 0.
fn objects(group: &mut Group<'_>, rows: &[EventRow]) -> Result<(), ParquetError> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if row.objects.is_empty() {
            defined.push(0);
            repeated.push(0);
        }
        for (at, id) in row.objects.iter().enumerate() {
            values.push(ByteArray::from(id.as_str()));
            defined.push(1);
            repeated.push(i16::from(at > 0));
        }
    }
    column::<ByteArrayType>(group, |column| {
        column.write_batch(&values, Some(&defined), Some(&repeated))
    })
}
