//! What became of the events of a log that is read from outside: applied, or rejected and why.
//!
//! The log does not say; apply does. What the tables beside the log have kept is read where it
//! reaches as far as is requested; else the log is folded once into tables that are thrown away.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use drover_projections::{DatabaseOptions, Outcome as Became, Projections, rejected_events};

use crate::history::record::{RecordedOutcome, reason};
use crate::history::replay::{self, ReplayError};
use crate::log::ReadOnlyLog;

/// What is known of the outcomes of a log's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Outcomes are known from this index on.
    from: u64,
    /// Of indexes below this.
    until: u64,
    rejected: BTreeMap<u64, String>,
}

/// Which outcomes are wanted, and what there is to find them with.
#[derive(Clone, Copy, Debug)]
pub struct OutcomeQuery<'a> {
    /// Where the log lies; bases are looked for beside it.
    pub log_dir: &'a Path,
    /// The tables of a server on that log, if there are any.
    pub tables: Option<&'a Path>,
    /// The first index.
    pub from: u64,
    /// The last index; the end of the log without one.
    pub to: Option<u64>,
    /// A directory that does not exist; it is there while the log is folded.
    pub scratch: &'a Path,
}

impl Outcomes {
    /// That of an event; none where it is not known.
    pub fn get(&self, index: u64) -> Option<RecordedOutcome<'_>> {
        let known = (self.from..self.until).contains(&index);
        known.then(|| RecordedOutcome::of(self.rejected.get(&index).map(String::as_str)))
    }

    /// Those that tables have on the disk; none where they cannot be read.
    pub fn stored(tables: &Path) -> Self {
        read(tables).unwrap_or_default()
    }

    /// Finds them. `progress` is called with the index reached and the last one, while the log is
    /// folded.
    ///
    /// # Errors
    /// The log is damaged, or the state that it continues from is missing.
    pub fn find(
        wanted: OutcomeQuery<'_>,
        log: &ReadOnlyLog,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, ReplayError> {
        let next = log.bounds().1;
        let end = wanted.to.map_or(next, |to| next.min(to.saturating_add(1)));
        let Some(last) = end.checked_sub(1).filter(|last| *last >= wanted.from) else {
            return Ok(Self::default());
        };
        if let Some(found) = wanted
            .tables
            .and_then(|tables| kept(tables, wanted.from, last))
        {
            return Ok(found);
        }
        let found = folded(wanted, log, last, progress);
        // A directory left behind does no harm.
        let _ = fs::remove_dir_all(wanted.scratch);
        found
    }
}

/// What tables have on the disk, if it is all that is wanted.
fn kept(tables: &Path, from: u64, last: u64) -> Option<Outcomes> {
    read(tables).filter(|found| found.from <= from && last < found.until)
}

/// What tables have on the disk.
fn read(tables: &Path) -> Option<Outcomes> {
    // A server may be at work there: what cannot be read now is found in the log.
    let kept = rejected_events(tables).ok().flatten()?;
    Some(Outcomes {
        from: if kept.floor == 0 { 0 } else { kept.floor + 1 },
        until: kept.upto + 1,
        rejected: kept
            .rejected
            .into_iter()
            .map(|(index, rejection)| (index, reason(&rejection)))
            .collect(),
    })
}

fn folded(
    wanted: OutcomeQuery<'_>,
    log: &ReadOnlyLog,
    last: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcomes, ReplayError> {
    let base = replay::foundation(wanted.log_dir, log)?;
    let (_projections, mut writer) = Projections::open(wanted.scratch, DatabaseOptions::default())?;
    let from = match &base {
        Some(base) => replay::lay(base, &mut writer)? + 1,
        None => log.bounds().0,
    };
    let mut found = Outcomes {
        from,
        until: last + 1,
        rejected: BTreeMap::new(),
    };
    if from > last {
        return Ok(Outcomes::default());
    }
    let rejected = &mut found.rejected;
    replay::feed(log, from, last, &mut |batch| {
        writer.apply_each(batch, |applied| {
            for one in applied {
                if let Became::Rejected(rejection) = &one.outcome {
                    rejected.insert(one.index, reason(rejection));
                }
            }
        })?;
        progress(replay::reached(batch), last);
        Ok(())
    })?;
    Ok(found)
}
