//! What an auditor finds in logs that were changed behind the server's back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use drover_testkit::{LONG, so, wait_for};
use ed25519_dalek::SigningKey;

use super::*;
use crate::log::{Entry, LogEngine, LogOptions, leaf_hash};

const ENTRIES: u64 = 1500;

/// A log of several segments with a checkpoint every 400 entries, closed.
struct Sample {
    dir: tempfile::TempDir,
    roots: Vec<Checkpoint>,
}

fn body(index: u64) -> Bytes {
    let mut body = index.to_le_bytes().to_vec();
    body.extend(1_u64.to_le_bytes());
    body.extend(format!("event number {index} ").repeat(6).bytes());
    body.into()
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        auto_commit: true,
        seal: false,
        ..LogOptions::default()
    }
}

impl Sample {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = LogEngine::open(&dir.path().join("log"), options()).unwrap();
        let log = Arc::new(log);
        let ledger = Ledger::open(Arc::clone(&log), dir.path()).unwrap();
        let mut roots = Vec::new();
        for index in 0..ENTRIES {
            let entry = Entry {
                index,
                kind: 1,
                time: index as i64 + 1,
                body: body(index),
            };
            log.append(vec![entry], Box::new(|result| result.unwrap()))
                .unwrap();
            if index % 400 == 399 {
                log.sync().unwrap();
                ledger
                    .sign((index, index as i64 + 1, [7; 32]), &key(1))
                    .unwrap();
                let note = ledger.latest().unwrap();
                roots.push(Checkpoint::parse(text(&note).unwrap()).unwrap());
            }
        }
        log.sync().unwrap();
        log.close();
        Self { dir, roots }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn verify(&self, pinned: Vec<NoteKey>) -> Verified {
        let mut last = (0, 0);
        let how = Verify { pinned };
        let done = verify(&self.log(), self.dir.path(), &how, &mut |at, all| {
            last = (at, all)
        });
        let done = done.unwrap();
        assert_eq!(last.0, done.entries, "progress ends where reading ended");
        done
    }

    fn segments(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.log()).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|path| {
            std::fs::read(path)
                .unwrap()
                .windows(12)
                .any(|w| w == b"event number")
        });
        files.sort();
        files
    }

    fn checkpoints(&self) -> PathBuf {
        self.dir.path().join("checkpoints")
    }
}

/// RFC 6962 by its definition.
struct Naive(Vec<crate::log::Hash>);

impl Naive {
    fn root(&self, size: u64) -> crate::log::Hash {
        fn of(leaves: &[crate::log::Hash]) -> crate::log::Hash {
            use sha2::{Digest as _, Sha256};
            match leaves.len() {
                1 => leaves[0],
                n => {
                    let (left, right) = leaves.split_at(n.next_power_of_two() / 2);
                    let mut hash = Sha256::new_with_prefix([1]);
                    hash.update(of(left));
                    hash.update(of(right));
                    hash.finalize().into()
                }
            }
        }
        of(&self.0[..size as usize])
    }
}

fn first_finding(done: &Verified) -> &Finding {
    done.findings.first().expect("something is wrong")
}

/// Overwrites `from` by `to`, of the same length, in a file.
fn replace(path: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .expect("it is there");
    bytes[at..at + to.len()].copy_from_slice(to);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_log_that_is_written_meanwhile_is_verified_as_far_as_it_was_signed() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = LogEngine::open(&dir.path().join("log"), options()).unwrap();
    let log = Arc::new(log);
    let ledger = Ledger::open(Arc::clone(&log), dir.path()).unwrap();
    let write = |index: u64| {
        let time = index as i64 + 1;
        log.append_next(1, time, |_| body(index), Box::new(drop))
            .unwrap();
        log.sync().unwrap();
        ledger.sign((index, time, [7; 32]), &key(1)).unwrap();
    };
    write(0);
    let mut reached = Vec::new();
    std::thread::scope(|scope| {
        let (look, looks) = std::sync::mpsc::channel();
        let (begin, begun) = std::sync::mpsc::channel();
        let write = &write;
        scope.spawn(move || {
            let mut index = 1;
            // Beside the reader, and not so much that reading takes long.
            for look in looks {
                while index < 30 * (look + 1_u64) {
                    write(index);
                    index += 1;
                    let _ = begin.send(index);
                }
            }
        });
        for turn in 0..15 {
            look.send(turn).unwrap();
            let more = reached.last().copied().unwrap_or(1) + 1;
            begun.iter().find(|written| *written >= more).unwrap();
            let how = Verify::default();
            let found = verify(&dir.path().join("log"), dir.path(), &how, &mut |_, _| ());
            // Every event was signed before the next was written: of what was there at the last
            // look all but one is, whatever came since.
            let known = reached.last().copied().unwrap_or(1);
            let right = found.as_ref().is_ok_and(|found| {
                let signed = found.checkpoints + 1 >= known && found.checkpoints <= found.entries;
                found.findings.is_empty() && found.entries >= known && signed
            });
            assert!(right, "{found:?}");
            reached.push(found.unwrap().entries);
        }
    });
    assert!(
        reached.is_sorted() && reached.first() < reached.last(),
        "{reached:?}"
    );
}

#[test]
fn a_log_that_nobody_touched_is_verified() {
    let sample = Sample::new();
    let done = sample.verify(Vec::new());
    assert_eq!(done.findings, []);
    assert_eq!(
        (done.entries, done.first, done.last),
        (ENTRIES, 0, ENTRIES - 1)
    );
    assert_eq!(
        (done.checkpoints, done.signed_to, done.pinned),
        (3, Some(1199), false)
    );
    // The tree is made once more, by nothing that verification uses.
    let leaves: Vec<_> = (0..ENTRIES).map(|index| leaf_hash(&body(index))).collect();
    let naive = Naive(leaves);
    assert_eq!((done.size, done.root), (ENTRIES, naive.root(ENTRIES)));
    for checkpoint in &sample.roots {
        assert_eq!(checkpoint.root, naive.root(checkpoint.size));
    }
    let own = NoteKey::new(sample.roots[0].origin.as_str(), key(1).verifying_key());
    let pinned = sample.verify(vec![own.clone()]);
    assert_eq!((pinned.findings.len(), pinned.pinned), (0, true));
    assert_eq!(pinned.signers, [own.text()]);
}

#[test]
fn a_changed_event_is_named_by_its_place() {
    let sample = Sample::new();
    let segments = sample.segments();
    assert!(segments.len() > 2, "{segments:?}");
    replace(&segments[1], b"event number", b"event numbeR");
    let done = sample.verify(Vec::new());
    let finding = first_finding(&done);
    let name = segments[1].file_name().unwrap().to_str().unwrap();
    assert!(finding.what.contains(name), "{finding:?} names {name}");
    // The first event of that segment: all before it was read, and nothing behind it.
    let first: u64 = name.split('.').next().unwrap().parse().unwrap();
    assert!(first > 0 && first < ENTRIES, "{name}");
    let place = format!("index {first}:");
    assert!(finding.what.contains(&place), "{finding:?} names {place}");
    assert_eq!(done.entries, first, "{done:?}");
    assert_eq!(
        done.checkpoints,
        first / 400,
        "what was signed before it fits"
    );
}

#[test]
fn a_history_written_anew_does_not_fit_what_was_signed() {
    let sample = Sample::new();
    let (kept, other) = (Sample::new(), sample.roots[1].clone());
    // Another log of the same form, under the first one's checkpoints.
    std::fs::copy(sample.checkpoints(), kept.checkpoints()).unwrap();
    let done = kept.verify(Vec::new());
    assert!(
        first_finding(&done).what.contains("of another log"),
        "{done:?}"
    );
    // The same log with a checkpoint whose root is another, signed by its own key.
    let forged = Checkpoint {
        root: [5; 32],
        ..other.clone()
    };
    let note = sign(&forged.to_text(), &forged.origin, &key(1));
    std::fs::write(sample.checkpoints(), note).unwrap();
    let done = sample.verify(Vec::new());
    let finding = first_finding(&done);
    assert_eq!(finding.index, Some(0));
    assert!(
        finding.what.contains("not what was signed at index 799"),
        "{finding:?}"
    );
}

#[test]
fn two_histories_that_were_signed_are_the_finding_that_comes_first() {
    let sample = Sample::new();
    let mut other = sample.roots[1].clone();
    other.root = [5; 32];
    let whole = std::fs::read_to_string(sample.checkpoints()).unwrap();
    let mut tables = sample.roots[1].clone();
    tables.state = [8; 32];
    // Whichever stands first, by any signer, and wherever the log itself is wrong too.
    for (lie, what) in [(&other, "the root"), (&tables, "the tables")] {
        let lie = sign(&lie.to_text(), &lie.origin, &key(1));
        for text in [format!("{whole}{lie}"), format!("{lie}{whole}")] {
            std::fs::write(sample.checkpoints(), text).unwrap();
            let done = sample.verify(Vec::new());
            let first = first_finding(&done);
            assert_eq!(first.index, Some(799), "{done:?}");
            assert!(first.what.contains("TWO HISTORIES WERE SIGNED"), "{done:?}");
            assert!(first.what.contains(what), "{done:?}");
            assert_eq!(
                done.findings.len(),
                1,
                "the log itself is one of them: {done:?}"
            );
            assert_eq!(done.checkpoints, 3, "{done:?}");
        }
    }
    let lie = sign(&other.to_text(), &other.origin, &key(1));
    std::fs::write(sample.checkpoints(), format!("{whole}{lie}")).unwrap();
    replace(&sample.segments()[0], b"event number", b"event numbeR");
    let done = sample.verify(Vec::new());
    assert!(
        first_finding(&done).what.contains("TWO HISTORIES"),
        "{done:?}"
    );
    assert!(done.findings.len() > 1, "{done:?}");
    // The same note twice is no finding.
    let sample = Sample::new();
    let whole = std::fs::read_to_string(sample.checkpoints()).unwrap();
    std::fs::write(sample.checkpoints(), whole.repeat(2)).unwrap();
    assert_eq!(sample.verify(Vec::new()).findings, []);
}

#[test]
fn a_base_that_contradicts_a_checkpoint_is_told_first() {
    let sample = Sample::new();
    let base = sample.dir.path().join("snapshots/00000000000000000001-799");
    std::fs::create_dir_all(&base).unwrap();
    let mut other = sample.roots[1].clone();
    let note = |reported: &Checkpoint| sign(&reported.to_text(), &reported.origin, &key(1));
    std::fs::write(base.join("note"), note(&other)).unwrap();
    assert_eq!(sample.verify(Vec::new()).findings, []);
    other.root = [5; 32];
    std::fs::write(base.join("note"), note(&other)).unwrap();
    let done = sample.verify(Vec::new());
    let first = first_finding(&done);
    assert!(first.what.contains("TWO HISTORIES"), "{done:?}");
    assert!(first.what.contains("in a base"), "{done:?}");
}

#[test]
fn a_forged_checkpoint_and_a_wrong_key_are_named() {
    let sample = Sample::new();
    let stranger = NoteKey::new(sample.roots[0].origin.as_str(), key(2).verifying_key());
    let done = sample.verify(vec![stranger]);
    assert!(
        first_finding(&done).what.contains("no known key signed it"),
        "{done:?}"
    );
    let text = std::fs::read_to_string(sample.checkpoints()).unwrap();
    let altered = text.replacen("index 399", "index 398", 1);
    assert_ne!(altered, text);
    std::fs::write(sample.checkpoints(), altered).unwrap();
    let done = sample.verify(Vec::new());
    assert!(
        first_finding(&done).what.contains("does not fit the text"),
        "{done:?}"
    );
}

#[test]
fn checkpoints_that_are_damaged_or_gone_are_missed() {
    let sample = Sample::new();
    let own = NoteKey::new(sample.roots[0].origin.as_str(), key(1).verifying_key());
    let whole = std::fs::read(sample.checkpoints()).unwrap();
    let dash = "\u{2014} ".as_bytes();
    let found = whole.windows(dash.len()).enumerate();
    let dashes: Vec<usize> = found
        .filter(|(_, w)| *w == dash)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(dashes.len(), 3);
    for (number, at) in dashes.into_iter().enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        std::fs::write(sample.checkpoints(), bytes).unwrap();
        let done = sample.verify(Vec::new());
        let what = &first_finding(&done).what;
        assert!(what.contains("damaged at byte"), "note {number}: {done:?}");
    }
    // Without any the log may be younger than the first; with a key that is known it is not.
    for gone in [true, false] {
        match gone {
            true => std::fs::remove_file(sample.checkpoints()).unwrap(),
            false => std::fs::write(sample.checkpoints(), "").unwrap(),
        }
        let mut done = sample.verify(Vec::new());
        done.want_signature();
        assert_eq!(done.findings, []);
        let mut done = sample.verify(vec![own.clone()]);
        done.want_signature();
        let what = &first_finding(&done).what;
        assert!(what.contains("no checkpoint by a key"), "{done:?}");
    }
}

#[test]
fn a_segment_that_is_missing_or_swapped_is_named() {
    let sample = Sample::new();
    let segments = sample.segments();
    std::fs::remove_file(&segments[1]).unwrap();
    let done = sample.verify(Vec::new());
    assert!(!done.findings.is_empty(), "{done:?}");

    let sample = Sample::new();
    let segments = sample.segments();
    let other = sample.dir.path().join("other");
    std::fs::rename(&segments[0], &other).unwrap();
    std::fs::rename(&segments[1], &segments[0]).unwrap();
    std::fs::rename(&other, &segments[1]).unwrap();
    let what = &first_finding(&sample.verify(Vec::new())).what.clone();
    assert!(what.contains("that of another segment"), "{what}");
}

#[test]
fn sealed_segments_that_were_swapped_are_named() {
    let sample = Sample::new();
    let mut sealing = options();
    sealing.seal = true;
    let (log, _) = LogEngine::open(&sample.log(), sealing).unwrap();
    let sealed = || so(log.segments().iter().filter(|one| one.sealed).count() >= 2);
    wait_for("two to be sealed", LONG, sealed).unwrap();
    log.close();
    assert_eq!(sample.verify(Vec::new()).findings, []);
    let names: Vec<_> = log
        .segments()
        .into_iter()
        .filter(|one| one.sealed)
        .collect();
    let [first, second] = [0, 1].map(|n| sample.log().join(&names[n].name));
    let other = sample.dir.path().join("other");
    std::fs::rename(&first, &other).unwrap();
    std::fs::rename(&second, &first).unwrap();
    std::fs::rename(&other, &second).unwrap();
    let what = &first_finding(&sample.verify(Vec::new())).what.clone();
    assert!(what.contains("that of another segment"), "{what}");
}

#[test]
fn a_log_whose_end_was_cut_off_is_shorter_than_what_was_signed() {
    let sample = Sample::new();
    let segments = sample.segments();
    let mut kept = 0;
    for path in segments.iter().rev() {
        let bytes = std::fs::read(path).unwrap();
        kept = kept.max(bytes.len());
        if bytes
            .windows(17)
            .any(|window| window == b"event number 1199")
        {
            std::fs::remove_file(path).unwrap();
            break;
        }
        std::fs::remove_file(path).unwrap();
    }
    let done = sample.verify(Vec::new());
    let last = done.findings.last().expect("something is wrong");
    assert!(
        last.what.contains("was cut off") || last.what.contains("missing"),
        "{done:?}"
    );
}

#[test]
fn a_ledger_goes_on_after_a_restart_and_refuses_to_sign_another_history() {
    let sample = Sample::new();
    let with = |index: u64, append: bool| {
        let (log, _) = LogEngine::open(&sample.log(), options()).unwrap();
        let log = Arc::new(log);
        let ledger = Ledger::open(Arc::clone(&log), sample.dir.path()).unwrap();
        if append {
            let entry = Entry {
                index,
                kind: 1,
                time: 9,
                body: body(index),
            };
            log.append(vec![entry], Box::new(|result| result.unwrap()))
                .unwrap();
            log.sync().unwrap();
        }
        let signed = ledger.sign((index, 9, [1; 32]), &key(1));
        log.close();
        (signed, ledger.status().index)
    };
    let (signed, index) = with(ENTRIES - 1, false);
    signed.unwrap();
    assert_eq!(index, ENTRIES - 1);
    assert_eq!(sample.verify(Vec::new()).checkpoints, 4);
    // The kept part of the tree is made again when it does not fit.
    let tree = sample.dir.path().join("tree");
    let mut bytes = std::fs::read(&tree).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&tree, bytes).unwrap();
    with(ENTRIES, true).0.unwrap();
    assert_eq!(sample.verify(Vec::new()).findings, []);
    // A last checkpoint that says something else.
    let mut other = sample.roots[2].clone();
    (other.root, other.size, other.index) = ([3; 32], ENTRIES + 1, ENTRIES);
    let note = sign(&other.to_text(), &other.origin, &key(1));
    std::fs::write(sample.checkpoints(), note).unwrap();
    let refused = with(ENTRIES + 1, true).0.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("not what its last checkpoint says"),
        "{refused}"
    );
}
