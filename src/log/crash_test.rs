//! Power cuts, torn writes, flipped bits and a full disk, over the fake disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_testkit::{LONG, so, wait_for};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::fake::FakeDisk;
use super::*;

const DIR: &str = "/log";

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        zero_ahead: 2048,
        tail_bytes: 4096,
        mark_after: Duration::from_millis(1),
        ..LogOptions::default()
    }
}

fn body(index: u64, salt: u64, len: usize) -> Bytes {
    let mut out = vec![salt as u8; len.max(16)];
    out[..8].copy_from_slice(&index.to_le_bytes());
    out[8..16].copy_from_slice(&salt.to_le_bytes());
    out.into()
}

fn open(disk: &FakeDisk, options: LogOptions) -> Result<(LogEngine, OpenReport), LogError> {
    LogEngine::open_with(Arc::new(disk.clone()), Path::new(DIR), options)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, LONG, || so(holds())).unwrap();
}

/// What was acknowledged, by index; shared with the callbacks.
#[derive(Default)]
struct Acked {
    entries: BTreeMap<u64, Bytes>,
    vote: Option<Bytes>,
}

struct Story {
    disk: FakeDisk,
    log: LogEngine,
    acked: Arc<Mutex<Acked>>,
    /// Everything appended and not truncated.
    written: BTreeMap<u64, Bytes>,
    committed: Option<u64>,
    /// What was purged up to here for certain, and what may have been.
    purged: (u64, u64),
    salt: u64,
}

impl Story {
    fn step(&mut self, rng: &mut StdRng) {
        match rng.random_range(0..21) {
            20 => self.purge(rng),
            0..13 => self.append(rng),
            13..15 => self.vote(),
            15..18 => self.commit(rng),
            18 => self.truncate(rng),
            _ => self.log.sync().unwrap(),
        }
    }

    fn append(&mut self, rng: &mut StdRng) {
        let (_, next) = self.log.bounds();
        let mut entries = Vec::new();
        for i in 0..rng.random_range(1..6) {
            self.salt += 1;
            let len = if rng.random_bool(0.05) {
                9000
            } else {
                rng.random_range(16..700)
            };
            let body = body(next + i, self.salt, len);
            self.written.insert(next + i, body.clone());
            entries.push(Entry {
                index: next + i,
                kind: 7,
                time: 5,
                body,
            });
        }
        let (acked, mine) = (Arc::clone(&self.acked), entries.clone());
        let done = move |r: Result<(), LogError>| {
            r.unwrap();
            let mut acked = acked.lock();
            acked
                .entries
                .extend(mine.into_iter().map(|e| (e.index, e.body)));
        };
        self.log.append(entries, Box::new(done)).unwrap();
    }

    fn vote(&mut self) {
        self.salt += 1;
        let vote = body(0, self.salt, 20);
        let (acked, mine) = (Arc::clone(&self.acked), vote.clone());
        let done = move |_| acked.lock().vote = Some(mine);
        self.log.save_vote(vote, Box::new(done)).unwrap();
    }

    fn commit(&mut self, rng: &mut StdRng) {
        self.log.sync().unwrap();
        let (_, next) = self.log.bounds();
        let low = self.committed.unwrap_or(0);
        if next > low + 1 {
            let to = rng.random_range(low..next);
            self.committed = Some(to);
            self.log.commit(to, Bytes::from_static(b"position"));
        }
    }

    fn truncate(&mut self, rng: &mut StdRng) {
        self.log.sync().unwrap();
        let (_, next) = self.log.bounds();
        let low = self.committed.map_or(0, |c| c + 1);
        if next > low {
            let from = rng.random_range(low..=next);
            self.written.split_off(&from);
            self.acked.lock().entries.split_off(&from);
            self.log
                .truncate_after(from.checked_sub(1), Box::new(|_| ()))
                .unwrap();
            self.log.sync().unwrap();
        }
    }

    /// Drops what is committed, with or without waiting until it is gone.
    fn purge(&mut self, rng: &mut StdRng) {
        let low = self.log.bounds().0;
        let Some(committed) = self.committed.filter(|c| *c >= low) else {
            return;
        };
        let to = rng.random_range(low..=committed);
        let position = Bytes::from_static(b"purged");
        self.log
            .purge(to, position, Box::new(|r| r.unwrap()))
            .unwrap();
        self.purged.1 = to + 1;
        if rng.random_bool(0.5) {
            self.log.sync().unwrap();
            self.purged.0 = to + 1;
        }
    }

    /// The power goes; everything acknowledged must be there, nothing may be there that was
    /// never written.
    fn power_cut(&mut self, seed: u64) {
        let (must, vote) = {
            let acked = self.acked.lock();
            (acked.entries.clone(), acked.vote.clone())
        };
        let disk = self.disk.power_cut(seed);
        let (log, report) = open(&disk, options()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let first = log.bounds().0;
        let (certain, possible) = self.purged;
        assert!(
            (certain..=possible).contains(&first),
            "seed {seed}: begins at {first}"
        );
        let mut found = BTreeMap::new();
        for e in log.scan(first) {
            let e = e.unwrap();
            assert!(
                Some(&e.body) == self.written.get(&e.index),
                "seed {seed} {report:?}"
            );
            found.insert(e.index, e.body);
        }
        for (index, body) in must.range(first..) {
            assert!(
                found.get(index) == Some(body),
                "seed {seed} lost {index} of {}: {report:?} {:?} then {:?}",
                must.len(),
                log.segments(),
                self.log.segments(),
            );
        }
        let number = |v: &Option<Bytes>| v.as_ref().map(|v| super::format::u64_at(v, 8));
        assert!(
            number(&log.vote()) >= number(&vote),
            "seed {seed}: an acknowledged vote is lost"
        );
        let (_, next) = log.bounds();
        assert_eq!(found.len() as u64, next - first);
        if let Some(range) = log.compact_range() {
            let mut expected = CompactRange::default();
            for body in self.written.values().take(range.size() as usize) {
                expected.push(leaf_hash(body));
            }
            assert_eq!(range, expected, "seed {seed}");
        }
        // Entries that were never acknowledged and are not there are forgotten.
        self.written.split_off(&next);
        // The old log's callbacks still hold the old record.
        self.acked = Arc::new(Mutex::new(Acked {
            entries: self.written.clone(),
            vote: log.vote(),
        }));
        self.committed = log.committed().map(|(i, _)| i);
        assert!(self.committed.is_none_or(|c| c < next), "seed {seed}");
        self.purged = (first, first);
        self.disk = disk;
        self.log = log;
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_goes() {
    let seeds = std::env::var("SEEDS").map_or(60, |s| s.parse().unwrap());
    for seed in 0..seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = FakeDisk::default();
        let (log, _) = open(&disk, options()).unwrap();
        let acked = Arc::default();
        let (written, committed, salt) = (BTreeMap::new(), None, 0);
        let purged = (0, 0);
        let mut story = Story {
            disk,
            log,
            acked,
            written,
            committed,
            purged,
            salt,
        };
        for cut in 0..6 {
            for _ in 0..rng.random_range(1..60) {
                story.step(&mut rng);
            }
            story.power_cut(seed * 1000 + cut);
        }
    }
}

fn filled(options: LogOptions, entries: u64) -> FakeDisk {
    let disk = FakeDisk::default();
    let (log, _) = open(&disk, options).unwrap();
    for i in 0..entries {
        log.append_one(3, 9, body(i, i, 300)).unwrap();
    }
    if let Some(last) = entries.checked_sub(1) {
        log.commit(last, Bytes::new());
    }
    log.close();
    disk
}

#[test]
fn every_flipped_bit_is_found_by_place_and_never_served() {
    for seal in [false, true] {
        let options = LogOptions {
            seal,
            prepare: false,
            ..options()
        };
        let disk = filled(options.clone(), 150);
        if seal {
            let (log, _) = open(&disk, options.clone()).unwrap();
            until("sealing", || {
                log.segments().iter().filter(|s| s.sealed).count() == 2
            });
        }
        let mut rng = StdRng::seed_from_u64(1);
        for path in disk.paths() {
            let used = {
                let log = ReadOnlyLog::open_with(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                log.segments()
                    .into_iter()
                    .find(|s| s.name == name)
                    .map(|s| s.bytes)
            };
            for _ in 0..150 {
                let bad = disk.power_cut(0);
                let used = used.expect("every file is a segment");
                let bit = rng.random_range(0..used as usize * 8);
                bad.flip(&path, bit);
                check_flipped(&bad, &options, &path, bit);
            }
        }
    }
}

/// Either the flip hit padding and all is readable, or it is named, and what is served is right.
fn check_flipped(bad: &FakeDisk, options: &LogOptions, path: &Path, bit: usize) {
    let place = format!("bit {bit} of {}", path.display());
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut found = None;
    match open(bad, options.clone()) {
        Err(e) => found = Some(e),
        Ok((log, report)) => {
            let mut served = 0;
            for (i, e) in log.scan(0).enumerate() {
                match e {
                    Ok(e) => {
                        assert_eq!(e.body, body(i as u64, i as u64, 300), "{place}");
                        served += 1;
                    }
                    Err(e) => found = Some(e),
                }
            }
            // The last mark covers all entries; only the mark itself may be cut.
            assert!(
                served == 150 || found.is_some(),
                "{place}: {served} served, {report:?}"
            );
        }
    }
    if let Some(e) = found {
        let LogError::Corrupt {
            segment, offset, ..
        } = &e
        else {
            panic!("{place}: {e}")
        };
        assert_eq!(segment, &name, "{place}");
        assert!(*offset <= bit as u64 / 8 + 1, "{place}: {e}");
    }
}

#[test]
fn a_full_disk_fails_the_append_and_the_log_goes_on() {
    let options = LogOptions {
        on_full: OnFull::Fail,
        auto_commit: true,
        prepare: false,
        seal: false,
        ..options()
    };
    let disk = FakeDisk::default();
    let (log, _) = open(&disk, options.clone()).unwrap();
    disk.set_capacity(Some(disk.used()));
    let mut written = 0;
    let error = loop {
        match log.append_one(1, 0, body(written, 1, 300)) {
            Ok(index) => assert_eq!(index, written),
            Err(e) => break e,
        }
        written += 1;
        assert!(written < 1_000_000, "the disk never fills");
    };
    assert!(error.is_full(), "{error}");
    assert!(written > 50);
    assert_eq!(log.space(), DiskSpace::Full);
    assert_eq!(log.bounds(), (0, written));
    assert_eq!(log.scan(0).map(Result::unwrap).count() as u64, written);
    assert!(log.append_one(1, 0, body(0, 0, 300)).unwrap_err().is_full());
    disk.set_capacity(None);
    assert_eq!(
        log.append_one(1, 0, body(written, 1, 300)).unwrap(),
        written
    );
    assert_eq!(log.space(), DiskSpace::Enough);
    log.close();
    let (log, report) = open(&disk, options).unwrap();
    assert_eq!(report.cut, None);
    let all: Vec<_> = log.scan(0).map(Result::unwrap).collect();
    assert_eq!(all.len() as u64, written + 1);
    assert!(all.iter().all(|e| e.body == body(e.index, 1, 300)));
}

#[test]
fn a_waiting_log_keeps_what_is_queued_until_there_is_space() {
    let options = LogOptions {
        on_full: OnFull::Wait,
        seal: false,
        ..options()
    };
    let disk = FakeDisk::default();
    let (log, _) = open(&disk, options).unwrap();
    disk.set_capacity(Some(disk.used()));
    let acked = Arc::new(Mutex::new(0));
    for i in 0..300 {
        let acked = Arc::clone(&acked);
        let entry = Entry {
            index: i,
            kind: 1,
            time: 0,
            body: body(i, 1, 300),
        };
        let done = move |r: Result<(), LogError>| {
            r.unwrap();
            *acked.lock() += 1;
        };
        log.append(vec![entry], Box::new(done)).unwrap();
    }
    until("the full disk", || log.space() == DiskSpace::Full);
    let before = *acked.lock();
    assert!(before < 300);
    assert_eq!(log.scan(0).map(Result::unwrap).count(), 300, "reads go on");
    disk.set_capacity(None);
    until("the rest", || *acked.lock() == 300);
    assert_eq!(log.space(), DiskSpace::Enough);
}

#[test]
fn low_space_is_told_before_the_segment_is_full() {
    let disk = FakeDisk::default();
    let (log, _) = open(
        &disk,
        LogOptions {
            seal: false,
            ..options()
        },
    )
    .unwrap();
    disk.set_capacity(Some(disk.used()));
    for i in 0..60 {
        log.append_one(1, 0, body(i, 1, 300)).unwrap();
    }
    until("the warning", || log.space() == DiskSpace::Low);
    disk.set_capacity(None);
    until("the all-clear", || log.space() == DiskSpace::Enough);
}

#[test]
fn what_waits_together_is_synced_together() {
    let disk = FakeDisk::default();
    let (log, _) = open(
        &disk,
        LogOptions {
            mark_after: Duration::from_secs(60),
            ..options()
        },
    )
    .unwrap();
    let before = disk.syncs();
    let entry = |index| Entry {
        index,
        kind: 1,
        time: 0,
        body: body(index, 1, 20),
    };
    log.append((0..100).map(entry).collect(), Box::new(|_| ()))
        .unwrap();
    log.sync().unwrap();
    assert!(
        disk.syncs() - before <= 2,
        "{} syncs",
        disk.syncs() - before
    );
}
