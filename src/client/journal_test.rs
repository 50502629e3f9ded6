use super::*;
use drover_fake_disk::FakeDisk;

fn loaded(dir: &Path) -> BTreeMap<String, Bytes> {
    LogJournal::open(dir).unwrap().0.load()
}

fn text(map: &BTreeMap<String, Bytes>) -> Vec<(String, String)> {
    map.iter()
        .map(|(k, v)| (k.clone(), String::from_utf8(v.to_vec()).unwrap()))
        .collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[tokio::test]
async fn mod_16_values_are_there_after_a_restart() {
    let tmp = tempfile::tempdir().unwrap();
    {
        let (journal, _) = LogJournal::open(tmp.path()).unwrap();
        journal.put("alloc/1/state", b"a".to_vec()).await.unwrap();
        journal.put("alloc/1/spec", b"s".to_vec()).await.unwrap();
        journal.put("alloc/2/state", b"b".to_vec()).await.unwrap();
        journal.put("alloc/2/state", b"c".to_vec()).await.unwrap();
        journal.delete("alloc/1/").await.unwrap();
        assert_eq!(text(&journal.load()), [pair("alloc/2/state", "c")]);
    }
    assert_eq!(text(&loaded(tmp.path())), [pair("alloc/2/state", "c")]);
}

#[tokio::test]
async fn mod_16_only_changed_values_are_written() {
    let tmp = tempfile::tempdir().unwrap();
    let (journal, _) = LogJournal::open(tmp.path()).unwrap();
    for _ in 0..10 {
        journal.put("k", b"same".to_vec()).await.unwrap();
        journal.delete("nothing").await.unwrap();
    }
    let (first, next) = journal.shared.log.bounds();
    assert_eq!(next - first, 1);
}

#[tokio::test]
async fn cl_13_a_torn_tail_is_cut_and_never_fatal() {
    let tmp = tempfile::tempdir().unwrap();
    {
        let (journal, _) = LogJournal::open(tmp.path()).unwrap();
        journal.put("kept", vec![b'x'; 1000]).await.unwrap();
    }
    // Bytes of a write that was never synced lie behind the last good frame.
    let segment = std::fs::read_dir(tmp.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_file() && p.metadata().unwrap().len() > 1000)
        .max()
        .unwrap();
    let bytes = std::fs::read(&segment).unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap();
    let torn = [0x5a_u8; 40];
    std::os::unix::fs::FileExt::write_all_at(&file, &torn, end as u64 + 3).unwrap();
    let map = loaded(tmp.path());
    assert_eq!(map["kept"].len(), 1000);
}

#[tokio::test]
async fn mod_16_what_is_outdated_is_dropped() {
    let tmp = tempfile::tempdir().unwrap();
    let (journal, _) = LogJournal::open(tmp.path()).unwrap();
    journal.put("stays", b"here".to_vec()).await.unwrap();
    for i in 0..120_u32 {
        let mut value = vec![0_u8; 100_000];
        value[..4].copy_from_slice(&i.to_le_bytes());
        journal.put("big", value).await.unwrap();
    }
    let (first, next) = journal.shared.log.bounds();
    assert!(first > 40 && next - first < 80, "{first}..{next}");
    drop(journal);
    let map = loaded(tmp.path());
    assert_eq!(map["stays"], b"here"[..]);
    assert_eq!(map["big"][..4], 119_u32.to_le_bytes());
}

/// Sets fifty keys to a value of this round; answers whether all were written.
async fn put_all(journal: &LogJournal, round: u8, acked: &mut BTreeMap<String, Bytes>) -> bool {
    for key in 0..50 {
        let (key, value) = (format!("k/{key}"), vec![round; 100_000]);
        match journal.put(&key, value.clone()).await {
            Ok(()) => drop(acked.insert(key, value.into())),
            Err(_) => return false,
        }
    }
    true
}

#[tokio::test]
async fn mod_16_a_disk_that_is_full_when_it_is_compacted_loses_nothing() {
    let disk = FakeDisk::default();
    let open = |disk: &FakeDisk| {
        let files = Arc::new(disk.clone());
        LogJournal::open_with(files, Path::new("/journal"))
            .unwrap()
            .0
    };
    let journal = open(&disk);
    // No second segment fits: the live values cannot be written once more.
    disk.set_capacity(Some(disk.used()));
    let (mut acked, mut round) = (BTreeMap::new(), 0);
    while put_all(&journal, round, &mut acked).await {
        assert!(round < u8::MAX, "the disk never fills");
        round += 1;
    }
    assert!(round > 1, "it was full before anything was outdated");
    assert_eq!(journal.shared.log.bounds().0, 0);
    for seed in 0..3 {
        assert!(open(&disk.power_cut(seed)).load() == acked, "seed {seed}");
    }
    disk.set_capacity(None);
    for more in 1..5 {
        assert!(put_all(&journal, round + more, &mut acked).await);
    }
    let written = journal.shared.log.bounds();
    assert!(written.0 > 100, "{written:?}");
    drop(journal);
    assert!(open(&disk).load() == acked);
}

#[tokio::test]
async fn mod_16_what_could_not_be_written_is_written_again() {
    let disk = FakeDisk::default();
    let open = |disk: &FakeDisk| {
        let files = Arc::new(disk.clone());
        LogJournal::open_with(files, Path::new("/journal"))
            .unwrap()
            .0
    };
    let journal = open(&disk);
    journal.put("gone/a", b"1".to_vec()).await.unwrap();
    journal.put("k", b"old".to_vec()).await.unwrap();
    // Until nothing fits any more.
    disk.set_capacity(Some(disk.used()));
    let mut filled = 0;
    while journal
        .put(&format!("fill/{filled}"), vec![7; 100_000])
        .await
        .is_ok()
    {
        filled += 1;
        assert!(filled < 10_000, "the disk never fills");
    }
    let new = || vec![8; 300_000];
    assert!(journal.put("k", new()).await.is_err());
    assert!(
        journal.put("k", new()).await.is_err(),
        "the same value counted as written"
    );
    let deleted = journal.delete("gone/").await;
    disk.set_capacity(None);
    journal.put("k", new()).await.unwrap();
    journal.delete("gone/").await.unwrap();
    let after = open(&disk.power_cut(1)).load();
    assert!(after.get("k").is_some_and(|value| **value == new()));
    assert!(!after.contains_key("gone/a"), "{deleted:?}");
    // What is durable is not written again.
    let next = journal.shared.log.bounds().1;
    journal.put("k", new()).await.unwrap();
    journal.delete("gone/").await.unwrap();
    assert_eq!(journal.shared.log.bounds().1, next);
}

#[tokio::test]
async fn mod_16_a_value_that_is_on_its_way_is_not_durable() {
    let tmp = tempfile::tempdir().unwrap();
    let (journal, _) = LogJournal::open(tmp.path()).unwrap();
    let first = journal.put("k", b"v".to_vec());
    let second = journal.put("k", b"v".to_vec());
    drop(first);
    second.await.unwrap();
    assert_eq!(loaded_beside(&journal), b"v");
}

/// The value of `k` that a reader of the files finds.
fn loaded_beside(journal: &LogJournal) -> Vec<u8> {
    let (first, next) = journal.shared.log.bounds();
    let mut state = JournalState::default();
    for entry in journal.shared.log.scan(first).take((next - first) as usize) {
        fold(&mut state, &entry.unwrap()).unwrap();
    }
    state.live["k"].to_vec()
}

#[test]
fn damage_is_told_with_what_a_client_can_do() {
    let error = JournalError::from(LogError::Corrupt {
        segment: "00000001.log".to_owned(),
        offset: 64,
        index: 3,
        what: "a checksum is wrong".to_owned(),
    });
    let text = error.to_string();
    assert!(
        text.contains("00000001.log at offset 64, entry 3"),
        "{text}"
    );
    assert!(text.contains("move the directory `journal`"), "{text}");
    assert!(!text.contains("peer"), "{text}");
}

/// Entries of the first form, byte by byte; an entry of a later one is refused with its number,
/// so that an older release never takes half of what a newer one wrote for all of it.
#[test]
fn mod_16_entries_of_the_first_form_are_read_and_later_ones_refused() {
    let entry = |kind: u16, body: &[u8]| Entry {
        index: 7,
        kind,
        time: 0,
        body: Bytes::copy_from_slice(body),
    };
    let put = b"\x01\x92\xadalloc/1/state\xc4\x02ok";
    let delete = b"\x01\x92\xa8alloc/1/\xc4\x00";
    assert_eq!(encode("alloc/1/state", b"ok")[..], put[..]);
    assert_eq!(encode("alloc/1/", b"")[..], delete[..]);
    let mut state = JournalState::default();
    fold(&mut state, &entry(PUT, put)).unwrap();
    assert_eq!(text(&state.live), [pair("alloc/1/state", "ok")]);
    fold(&mut state, &entry(DELETE, delete)).unwrap();
    assert!(state.live.is_empty());
    let mut later = put.to_vec();
    later[0] = 2;
    for (kind, body, why) in [
        (PUT, &later[..], "journal entry 7: unknown form 2"),
        (9, &put[..], "journal entry 7: unknown kind 9"),
        (PUT, &b""[..], "journal entry 7: empty"),
    ] {
        let error = fold(&mut state, &entry(kind, body)).unwrap_err();
        assert_eq!(error.to_string(), why);
    }
}
