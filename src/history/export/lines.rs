//! Export: events of a log as lines of JSON, one event a line, in the order of the log.
//!
//! Memory is bounded by what one read of the log takes, however long it is. A line may carry the
//! exact body beside the document, and which log it is from: what is imported from such lines has
//! the same tree, and gives the same state.
//!
//! Events begin at index 1, here as in every stream. Index 0 is the membership a log is made with:
//! it is there only where bodies are, which are nothing without it.

use std::io::Write;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_events::Recorded;
use serde::{Serialize, Serializer};

use super::ArchiveError;
use super::outcomes::Outcomes;
use crate::history::record::numbers::Numbers;
use crate::history::record::{CloudEvent, Document, Redactor};
use crate::log::{Entry, Epoch, ReadOnlyLog, leaf_hash, time_of};

/// Entries between two reports of progress.
const REPORT: u64 = 4096;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The document.
    #[default]
    Ndjson,
    /// The document in a CloudEvent 1.0.
    CloudEvents,
}

/// Where schemas are taken to be served, where nothing else is set.
pub const AGENT: &str = "http://127.0.0.1:4646";

/// What is exported.
#[derive(Clone, Debug, Default)]
pub struct Export {
    /// The first index.
    pub from: u64,
    /// The last index; the end of the log without one.
    pub to: Option<u64>,
    /// Not before this time, Unix nanoseconds.
    pub since: Option<i64>,
    /// Not after this time, Unix nanoseconds.
    pub until: Option<i64>,
    /// The numbers of the kinds wanted; all if there are none.
    pub kinds: Vec<u16>,
    /// The form of a line.
    pub format: Format,
    /// Whether a line carries the exact body (of [`Format::Ndjson`] only).
    pub bodies: bool,
    /// What hides confidential values; lines with bodies hide nothing.
    pub redactor: Option<Arc<Redactor>>,
    /// What became of the events; lines state none for those it does not know.
    pub outcomes: Arc<Outcomes>,
    /// How integers beyond ±2^53 are written.
    pub numbers: Numbers,
    /// The address of an agent, where CloudEvents say that schemas are; empty for [`AGENT`].
    pub agent: String,
}

/// What was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Events written.
    pub events: u64,
    /// Bytes written.
    pub bytes: u64,
    /// The last index that was looked at; what is behind it is not in the export.
    pub last: Option<u64>,
}

/// A document with what it takes to make the log again.
#[derive(Serialize)]
struct WithBody<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    #[serde(rename = "Body", serialize_with = "base64")]
    body: &'a [u8],
    /// The body's hash in the log's tree.
    #[serde(rename = "LeafHash", serialize_with = "base64")]
    leaf: &'a [u8],
    #[serde(rename = "Epoch")]
    epoch: &'a str,
    #[serde(rename = "EpochFirst")]
    first: u64,
}

fn base64<S: Serializer>(bytes: &&[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(bytes))
}

impl Export {
    /// The first index that is written.
    fn begin(&self, log: &ReadOnlyLog) -> u64 {
        let least = u64::from(!self.bodies);
        self.from.max(log.epoch().first_index).max(least)
    }

    /// Whether an entry of this kind and time is wanted.
    fn wants(&self, kind: u16, time: i64) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.since.is_none_or(|since| time >= since)
            && self.until.is_none_or(|until| time <= until)
    }

    /// Writes the events of a log. `progress` is called with the index reached, and the last one.
    ///
    /// # Errors
    /// A log that cannot be read, does not reach back to `from` or is damaged above it; an event
    /// that cannot be decoded;
    /// a failed write. What was written before is whole lines but for the last.
    pub fn run(
        &self,
        log: &ReadOnlyLog,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Exported, ArchiveError> {
        let epoch = log.epoch();
        let name = hex::encode(epoch.id);
        let mut line = Vec::with_capacity(4096);
        let mut bytes = 0;
        let mut done = self.walk(log, progress, &mut |entry, _| {
            line.clear();
            self.line(&mut line, &entry.body, entry.index, (epoch, &name))?;
            out.write_all(&line).map_err(ArchiveError::Write)?;
            bytes += line.len() as u64;
            Ok(())
        })?;
        out.flush().map_err(ArchiveError::Write)?;
        done.bytes = bytes;
        Ok(done)
    }

    /// The line of the event at an index, with its end; none where the log has no such event, or it
    /// is not wanted.
    ///
    /// # Errors
    /// A log that cannot be read; an event that cannot be decoded.
    pub fn line_of(&self, log: &ReadOnlyLog, index: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        let Some(entry) = log.read(index)? else {
            return Ok(None);
        };
        if index < self.begin(log) || !self.wants(entry.kind, time_beside(log, index)?) {
            return Ok(None);
        }
        let (mut line, epoch) = (Vec::new(), log.epoch());
        let name = hex::encode(epoch.id);
        self.line(&mut line, &entry.body, index, (epoch, &name))?;
        Ok(Some(line))
    }

    /// Hands over the events of a log that are wanted, decoded, with their times; Raft's own
    /// entries have that of the event before them, the first ones that of the first event.
    ///
    /// # Errors
    /// As [`Export::run`]; the first of `take` ends it.
    #[cfg_attr(
        not(feature = "parquet"),
        expect(dead_code, reason = "only Parquet reads them so")
    )]
    pub(super) fn each(
        &self,
        log: &ReadOnlyLog,
        progress: &mut dyn FnMut(u64, u64),
        take: &mut dyn FnMut(&Recorded, i64) -> Result<(), ArchiveError>,
    ) -> Result<Exported, ArchiveError> {
        self.walk(log, progress, &mut |entry, time| {
            let decoded = drover_migrations::decode(&entry.body);
            let index = entry.index;
            take(
                &decoded.map_err(|source| ArchiveError::Decode { index, source })?,
                time,
            )
        })
    }

    /// Whether nothing is wanted of index `next` and above, the last event having been at `time`.
    fn ends(&self, next: u64, time: Option<i64>) -> bool {
        let by_index = self.to.is_some_and(|to| next > to);
        let by_time = self
            .until
            .zip(time)
            .is_some_and(|(until, time)| time > until);
        by_index || by_time
    }

    /// Hands over the entries that are wanted.
    fn walk(
        &self,
        log: &ReadOnlyLog,
        progress: &mut dyn FnMut(u64, u64),
        take: &mut dyn FnMut(&Entry, i64) -> Result<(), ArchiveError>,
    ) -> Result<Exported, ArchiveError> {
        let (first, next) = log.bounds();
        let begin = self.begin(log);
        let end = self.to.map_or(next, |to| next.min(to.saturating_add(1)));
        let (mut done, mut time) = (Exported::default(), None);
        if begin < first && begin < end {
            return Err(ArchiveError::Refused(format!(
                "the events at index {begin} are gone: the first ones here are at {first}; \
                 export from there with -from {first}"
            )));
        }
        for entry in log.scan(begin) {
            let entry = entry?;
            if entry.index >= end {
                break;
            }
            done.last = Some(entry.index);
            let at = match (entry.time, time) {
                (0, Some(before)) => before,
                (0, None) => time_beside(log, entry.index)?,
                (own, _) => own,
            };
            time = Some(at);
            if self.until.is_some_and(|until| at > until) {
                break;
            }
            if self.wants(entry.kind, at) {
                take(&entry, at)?;
                done.events += 1;
            }
            if entry.index.is_multiple_of(REPORT) {
                progress(entry.index - begin, end - begin);
            }
        }
        let reached = done.last.map_or(begin, |last| last + 1);
        if let Some(damage) = log.damage_from(begin)
            && !self.ends(reached, time)
        {
            return Err(damage.clone().into());
        }
        progress(end.saturating_sub(begin), end.saturating_sub(begin));
        Ok(done)
    }

    fn line(
        &self,
        line: &mut Vec<u8>,
        body: &[u8],
        index: u64,
        (epoch, name): (Epoch, &str),
    ) -> Result<(), ArchiveError> {
        let decoded = drover_migrations::decode(body);
        let event = decoded.map_err(|source| ArchiveError::Decode { index, source })?;
        let document = Document::of(&event).became(self.outcomes.get(index));
        let hidden = self.redactor.as_deref();
        let agent = match self.agent.as_str() {
            "" => AGENT,
            named => named,
        };
        let start = line.len();
        let written = match (self.format, self.bodies) {
            (Format::CloudEvents, _) => Redactor::write(
                hidden,
                &mut *line,
                &CloudEvent::of(document, epoch.id, agent),
            ),
            (Format::Ndjson, false) => Redactor::write(hidden, &mut *line, &document),
            (Format::Ndjson, true) => serde_json::to_writer(
                &mut *line,
                &WithBody {
                    document,
                    body,
                    leaf: &leaf_hash(body),
                    epoch: name,
                    first: epoch.first_index,
                },
            ),
        };
        written.map_err(|error| ArchiveError::Write(error.into()))?;
        self.numbers.rewrite(line, start);
        line.push(b'\n');
        Ok(())
    }
}

/// The time of an entry. Raft's own have none: theirs is that of the event before them, or, where
/// there is none, of the first event.
fn time_beside(log: &ReadOnlyLog, index: u64) -> Result<i64, ArchiveError> {
    if let Some(time) = time_of(log, index)? {
        return Ok(time);
    }
    for entry in log.scan(index) {
        let entry = entry?;
        if entry.time != 0 {
            return Ok(entry.time);
        }
    }
    Ok(0)
}
