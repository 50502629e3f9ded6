use std::fs;
use std::path::{Path, PathBuf};

use drover_projections::{DatabaseOptions, Projections};
use drover_testkit::{LONG, so, wait_for};
use ed25519_dalek::SigningKey;

use super::archived_and_live::{Join, Joined};
use super::archiver::{Archived, archive};
use super::base::{is_gone, read_back, sign, verify as verify_base};
use super::location::{ArchiveLocation, Store};
use super::testing::write_log;
use crate::history::proof::{Ledger, NoteKey, Verify, origin, verify};
use crate::history::replay;
use crate::log::{LogEngine, ReadOnlyLog, leaf_hash};
use crate::raft::seed::Seed;
use crate::raft::snapshot::{SnapshotDir, SnapshotHead};

/// A server's id.
const ID: &str = "6d9f0c1e-0000-4000-8000-000000000001";

/// The state of a log at an index, as a snapshot beside it.
fn make_base(server: &Path, index: u64) -> SnapshotDir {
    let log = ReadOnlyLog::open(&server.join("log")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let opened = Projections::open(scratch.path().join("db"), DatabaseOptions::dev());
    let (projections, writer) = opened.unwrap();
    replay::unfold(&log, None, index, writer, &mut |_, _| Ok(())).unwrap();
    let name = format!("{:020}-{index:020}", 3);
    let dir = SnapshotDir::new(server.join("snapshots").join(name));
    let view = projections.view();
    view.write_snapshot(&dir.state(), 1 << 20, &|_| Ok(()))
        .unwrap();
    let epoch = log.epoch();
    let head = SnapshotHead {
        last: Some((3, index)),
        epoch: epoch.id,
        epoch_first: epoch.first_index,
        range: log.range_at(index).unwrap().unwrap().to_bytes(),
        time: view.time(),
        ..SnapshotHead::default()
    };
    dir.put_head(&head).unwrap();
    dir
}

/// Sealing is the business of a log that is open.
fn seal(log_dir: &Path) {
    let (log, _) = LogEngine::open(log_dir, Default::default()).unwrap();
    let full = log.segments().len() - 1;
    assert!(full > 3, "{full} full segments");
    let sealed = || so(log.segments().iter().take(full).all(|one| one.sealed));
    wait_for("them to be sealed", LONG, sealed).unwrap();
}

/// A log of 3,000 events with a signed base at 2,000, in a new data directory.
fn based(data: &Path) -> (PathBuf, SnapshotDir) {
    let log_dir = write_log(data, 3000);
    seal(&log_dir);
    let base = make_base(&data.join("server"), 2000);
    sign(&base, &SigningKey::from_bytes(&[5; 32])).unwrap();
    (log_dir, base)
}

/// Retention takes the head first: a base that is half removed is not listed. A base of which only
/// the state is missing is damaged.
#[test]
fn a_base_without_its_head_is_gone_and_one_without_its_state_is_broken() {
    let data = tempfile::tempdir().unwrap();
    let (_, base) = based(data.path());
    let scratch = data.path().join("scratch");
    assert!(!is_gone(&base));
    fs::rename(base.state(), data.path().join("aside")).unwrap();
    read_back(&base, &scratch).unwrap_err();
    assert!(!is_gone(&base));
    fs::rename(data.path().join("aside"), base.state()).unwrap();
    fs::remove_file(base.path().join("head")).unwrap();
    read_back(&base, &scratch).unwrap_err();
    assert!(base.path().exists() && is_gone(&base));
}

fn store(dir: &Path) -> Store {
    let url = format!("file://{}", dir.display());
    Store::open(&ArchiveLocation {
        url,
        ..ArchiveLocation::default()
    })
    .unwrap()
}

async fn join(
    place: &Path,
    server: Option<&Path>,
    to: &Path,
) -> Result<Joined, super::ArchiveError> {
    let url = place.display().to_string();
    let store = Store::find(&ArchiveLocation {
        url,
        ..ArchiveLocation::default()
    })?;
    fs::create_dir_all(to).unwrap();
    let join = Join {
        store: &store,
        server,
        to,
    };
    join.run(&mut |_, _| ()).await
}

fn error_text<T: std::fmt::Debug>(result: Result<T, super::ArchiveError>) -> String {
    crate::error::chain(&result.unwrap_err())
}

#[tokio::test]
async fn an_archive_is_read_by_every_tool_and_refuses_another_log() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (log_dir, base) = based(&data);
    let server = data.join("server");
    let place = dir.path().join("archive");
    let to = store(&place);
    let done = archive((&server, ID), &base, 2001, &to).await.unwrap();
    assert!(
        done.segments > 2 && done.next <= 2001 && done.next > 1000,
        "{done:?}"
    );
    let again = archive((&server, ID), &base, 2001, &to).await.unwrap();
    assert_eq!((again.segments, again.next), (0, done.next));

    let alone = dir.path().join("alone");
    join(&place, None, &alone).await.unwrap();
    let copy = ReadOnlyLog::open(&alone.join("log")).unwrap();
    let own = ReadOnlyLog::open(&log_dir).unwrap();
    assert_eq!(copy.bounds(), (0, done.next));
    for (a, b) in copy.scan(0).zip(own.scan(0)) {
        assert_eq!(leaf_hash(&a.unwrap().body), leaf_hash(&b.unwrap().body));
    }
    let verified = verify(
        &alone.join("log"),
        &alone,
        &Verify::default(),
        &mut |_, _| (),
    );
    assert_eq!(verified.unwrap().findings, []);
    let scratch = dir.path().join("db");
    let folded = replay::replay(&alone.join("log"), &scratch, None, &mut |_, _| ());
    assert_eq!(folded.unwrap().state.index, done.next - 1);

    // What was dropped here is read there, and the rest here.
    for segment in own.segments() {
        if segment.first + segment.entries <= done.next {
            fs::remove_file(log_dir.join(&segment.name)).unwrap();
        }
    }
    let both = dir.path().join("both");
    join(&place, Some(&server), &both).await.unwrap();
    let joined = ReadOnlyLog::open(&both.join("log")).unwrap();
    assert_eq!(joined.bounds(), (0, 3000));
    let verified = verify(&both.join("log"), &both, &Verify::default(), &mut |_, _| ());
    let verified = verified.unwrap();
    assert_eq!((verified.findings, verified.entries), (vec![], 3000));

    let other = dir.path().join("other");
    write_log(&other, 100);
    let refused =
        error_text(join(&place, Some(&other.join("server")), &dir.path().join("x")).await);
    assert!(refused.contains("holds nothing of the log"), "{refused}");
}

/// Checkpoints of the log at these indexes, signed.
fn make_checkpoints(server: &Path, indexes: &[u64]) {
    let (log, _) = LogEngine::open(&server.join("log"), Default::default()).unwrap();
    let ledger = Ledger::open(std::sync::Arc::new(log), server).unwrap();
    for index in indexes {
        let key = SigningKey::from_bytes(&[5; 32]);
        ledger.sign((*index, 1, [7; 32]), &key).unwrap();
    }
}

#[tokio::test]
async fn an_archive_keeps_its_checkpoints_while_the_horizon_moves_within_a_segment() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (log_dir, base) = based(&data);
    let server = data.join("server");
    make_checkpoints(&server, &[300, 700, 1000, 1990, 2500]);
    let place = dir.path().join("archive");
    let done = archive((&server, ID), &base, 2001, &store(&place)).await;
    let next = done.unwrap().next;
    // What was archived is dropped; the base lies within the first segment that is left.
    for segment in ReadOnlyLog::open(&log_dir).unwrap().segments() {
        if segment.first + segment.entries <= next {
            fs::remove_file(log_dir.join(&segment.name)).unwrap();
        }
    }
    let done = archive((&server, ID), &base, 2001, &store(&place)).await;
    assert_eq!(done.unwrap(), Archived { segments: 0, next });
    let alone = dir.path().join("alone");
    join(&place, None, &alone).await.unwrap();
    let how = Verify::default();
    let verified = verify(&alone.join("log"), &alone, &how, &mut |_, _| ()).unwrap();
    let wanted = [300, 700, 1000, 1990].iter().filter(|index| **index < next);
    assert_eq!(verified.findings, []);
    assert_eq!(verified.checkpoints, wanted.count() as u64);
    assert!(verified.signed_to >= Some(1000), "{verified:?}");
}

/// The same log as another server keeps it: other segments, other bytes.
fn another_server(of: &Path, data: &Path, segment_bytes: u64) -> PathBuf {
    let server = data.join("server");
    let own = ReadOnlyLog::open(&of.join("log")).unwrap();
    let options = crate::log::LogOptions {
        segment_bytes,
        epoch: Some(own.epoch()),
        ..Default::default()
    };
    let (log, _) = LogEngine::open(&server.join("log"), options).unwrap();
    let entries = own.scan(0).collect::<Result<Vec<_>, _>>().unwrap();
    let last = entries.len() as u64 - 1;
    log.append(entries, Box::new(|_| ())).unwrap();
    log.sync().unwrap();
    Seed::default().commit(&log, (last, 3));
    log.sync().unwrap();
    drop(log);
    seal(&server.join("log"));
    server
}

fn segments_in(dir: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(dir).unwrap();
    let mut paths: Vec<_> = list.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn servers_that_share_a_place_never_meet_and_the_right_copy_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("a");
    seal(&write_log(&data, 3000));
    let first = data.join("server");
    let servers = [
        (first.clone(), "server-a"),
        (
            another_server(&first, &dir.path().join("b"), 48 << 10),
            "server-b",
        ),
        (
            another_server(&first, &dir.path().join("c"), 80 << 10),
            "server-c",
        ),
    ];
    let place = dir.path().join("archive");
    for (server, id) in &servers {
        fs::write(server.join("node-id"), id).unwrap();
        let base = make_base(server, 2000);
        sign(&base, &SigningKey::from_bytes(&[5; 32])).unwrap();
        let to = store(&place);
        for segments in [true, false] {
            let done = archive((server, id), &base, 2001, &to).await.unwrap();
            assert_eq!(done.segments > 1, segments, "{id}: {done:?}");
        }
    }
    let read = async |name: &str, server: Option<&Path>| {
        let to = dir.path().join(name);
        let joined = join(&place, server, &to).await.unwrap();
        let log = ReadOnlyLog::open(&to.join("log")).unwrap();
        let entries = log.scan(0).filter(Result::is_ok).count() as u64;
        (joined, entries, log.bounds().1)
    };
    let epoch = ReadOnlyLog::open(&first.join("log")).unwrap().epoch();
    let copies = place.join(hex::encode(epoch.id));
    for (server, id) in &servers {
        let (joined, entries, next) = read(&format!("with {id}"), Some(server)).await;
        assert!(
            joined.url.ends_with(id) && joined.wrong.is_empty(),
            "{joined:?}"
        );
        assert_eq!((entries, next), (3000, 3000));
    }

    // One server lost its beginning; of its own copy a bit is wrong, another's lacks a segment.
    let (server, id) = &servers[1];
    let own = ReadOnlyLog::open(&server.join("log")).unwrap();
    for segment in own.segments().iter().take(2) {
        fs::remove_file(server.join("log").join(&segment.name)).unwrap();
    }
    let segments = |id: &str| segments_in(&copies.join(id).join("log"));
    let mut bytes = fs::read(&segments(id)[1]).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&segments(id)[1], bytes).unwrap();
    fs::remove_file(&segments("server-a")[0]).unwrap();
    let (joined, entries, _) = read("mended", Some(server)).await;
    assert!(joined.url.ends_with("server-c"), "{joined:?}");
    assert_eq!(entries, 3000);
    let wrong: Vec<_> = joined.wrong.iter().map(|(url, _)| url.as_str()).collect();
    assert!(wrong[0].ends_with(id), "{wrong:?}");
    let (joined, entries, next) = read("alone", None).await;
    assert!(joined.url.ends_with("server-c"), "{joined:?}");
    assert_eq!(entries, next);
}

#[tokio::test]
async fn what_is_damaged_or_another_object_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (log_dir, base) = based(&data);
    let server = data.join("server");
    let log = ReadOnlyLog::open(&log_dir).unwrap();
    let name = log.segments()[1].name.clone();
    let epoch = hex::encode(log.epoch().id);

    // Something else has that name there.
    let place = dir.path().join("taken");
    let taken = place.join(&epoch).join(ID).join("log");
    fs::create_dir_all(&taken).unwrap();
    fs::write(taken.join(&name), "another").unwrap();
    let refused = error_text(archive((&server, ID), &base, 2001, &store(&place)).await);
    assert!(refused.contains(&name) && refused.contains("name another place"));

    // A damaged segment never gets there.
    let path = log_dir.join(&name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let place = dir.path().join("bad");
    let refused = error_text(archive((&server, ID), &base, 2001, &store(&place)).await);
    assert!(refused.contains(&name), "{refused}");
    assert!(!place.join(&epoch).join(ID).join("log").join(&name).exists());
}

#[test]
fn a_base_that_is_forged_or_damaged_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let log_dir = write_log(&data, 600);
    let server = data.join("server");
    let epoch = ReadOnlyLog::open(&log_dir).unwrap().epoch();
    let key = SigningKey::from_bytes(&[5; 32]);
    let keys = [NoteKey::new(origin(epoch), key.verifying_key())];
    let scratch = dir.path().join("scratch");
    let base = make_base(&server, 500);
    let check = || verify_base(&base, epoch, &keys, &scratch);
    assert!(error_text(check()).contains("not signed"));
    sign(&base, &key).unwrap();
    assert_eq!(check().unwrap().index, 500);

    let note = base.path().join("note");
    let own = fs::read_to_string(&note).unwrap();
    fs::remove_file(&note).unwrap();
    sign(&base, &SigningKey::from_bytes(&[6; 32])).unwrap();
    assert!(error_text(check()).contains("no known key signed the base at index 500"));

    // The state of another index under the note of this one.
    fs::write(&note, &own).unwrap();
    let later = make_base(&server, 550);
    let head = fs::read(base.path().join("head")).unwrap();
    fs::write(
        base.path().join("head"),
        fs::read(later.path().join("head")).unwrap(),
    )
    .unwrap();
    assert!(error_text(check()).contains("its head is not that of its state"));
    fs::write(base.path().join("head"), head).unwrap();
    assert_eq!(check().unwrap().index, 500);
    let kept = dir.path().join("kept");
    fs::rename(base.path(), &kept).unwrap();
    fs::rename(later.path(), base.path()).unwrap();
    fs::copy(kept.join("note"), &note).unwrap();
    assert!(error_text(check()).contains("is not what was signed"));
    fs::remove_dir_all(base.path()).unwrap();
    fs::rename(&kept, base.path()).unwrap();

    // One bit of any file.
    let mut tried = 0;
    for file in fs::read_dir(base.state()).unwrap() {
        let path = file.unwrap().path();
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 7 + 1) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(&path, &bytes).unwrap();
            let same = read_back(&base, &scratch).is_ok();
            // Of the manifest not every letter counts; of rows each does.
            let counts = path.extension().is_some_and(|ending| ending == "sst");
            if counts && same {
                // What neither the rows nor their index need.
                assert!(check().is_ok());
            }
            tried += usize::from(counts && !same);
        }
        fs::write(&path, &whole).unwrap();
    }
    assert!(tried > 4, "{tried} found");
    assert_eq!(check().unwrap().index, 500);
}
