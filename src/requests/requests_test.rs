//! The request log by itself.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use drover_events::{Actor, ActorKind};
use drover_testkit::{LONG, eventually, so};

use super::*;
use crate::log::{DiskSpace, ReadOnlyLog};
use drover_fake_disk::FakeDisk;

fn request(class: Class, path: &str, addr: &str) -> Received {
    Received {
        class,
        request_id: "r".to_owned(),
        method: "GET".to_owned(),
        path: path.to_owned(),
        namespace: "default".to_owned(),
        actor: Actor {
            kind: ActorKind::Token,
            addr: addr.to_owned(),
            ..Actor::default()
        },
        trace: String::new(),
        ran: None,
        servers: Vec::new(),
        left_out: LeftOut::new(),
    }
}

fn all() -> RequestQuery {
    RequestQuery {
        limit: 100,
        ..RequestQuery::default()
    }
}

fn listed(requests: &RequestLog, requested: &RequestQuery) -> Listing {
    list(&*requests.records().unwrap(), requested).unwrap()
}

fn indexes(requests: &RequestLog, requested: &RequestQuery) -> Vec<u64> {
    let listing = listed(requests, requested);
    listing.entries.iter().map(|entry| entry.index).collect()
}

/// On a disk in memory.
fn on(disk: &FakeDisk, guarantee: Guarantee) -> Arc<RequestLog> {
    let files = Arc::new(disk.clone());
    let opened = RequestLog::open_with(files, &PathBuf::from("/requests"), guarantee);
    Arc::new(opened.unwrap())
}

/// A request that is answered.
async fn answer(log: &Arc<RequestLog>, request: &Received, status: u16) {
    let ticket = log.receive(request).await.unwrap();
    ticket.complete(status).await.unwrap();
}

async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    eventually(what, LONG, || so(reached())).await.unwrap();
}

/// Uses up what is left of a full disk.
pub(crate) fn fill(requests: &RequestLog) {
    let (log, limit) = (requests.records().unwrap(), Instant::now() + LONG);
    while log.append_one(1, 0, Bytes::from_static(b"x")).is_ok() {
        assert!(Instant::now() < limit, "it is never full");
    }
}

#[tokio::test]
async fn requests_are_found_again_after_a_restart_with_their_ends() {
    let dir = tempfile::tempdir().unwrap();
    let open = |guarantee| Arc::new(RequestLog::open(dir.path(), guarantee).unwrap());
    let log = open(Guarantee::Enforced);
    let secret = request(Class::Secret, "/v1/var/a", "10.0.0.1");
    let login = request(Class::Login, "/v1/acl/login", "10.0.0.2");
    let first = log.receive(&secret).await.unwrap();
    let left = log.receive(&login).await.unwrap();
    first.complete(200).await.unwrap();
    drop(left);
    drop(log);

    let log = open(Guarantee::BestEffort);
    answer(&log, &secret, 403).await;
    let exec = request(Class::Exec, "/v1/x", "10.0.0.1");
    let open = log.receive(&exec).await.unwrap();
    let reported = listed(&log, &all());
    let shown: Vec<_> = reported
        .entries
        .iter()
        .map(|entry| (entry.received.class, entry.complete, entry.status))
        .collect();
    let wanted = [
        (Class::Secret, true, 200),
        (Class::Login, true, 0),
        (Class::Secret, true, 403),
        (Class::Exec, false, 0),
    ];
    assert_eq!(shown, wanted, "answered, given up, denied, open");
    assert_eq!(reported.next, None);
    let times: Vec<i64> = reported.entries.iter().map(|entry| entry.time).collect();
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");

    // The files say the same, also while they are written.
    log.records().unwrap().sync().unwrap();
    let files = ReadOnlyLog::open(dir.path()).unwrap();
    assert!(files.damage().is_none());
    assert_eq!(list(&files, &all()).unwrap().entries, reported.entries);
    assert_eq!(log.lost(), 0);
    drop(open);
}

#[tokio::test]
async fn requests_are_chosen_by_class_actor_path_and_time() {
    let log = on(&FakeDisk::default(), Guarantee::BestEffort);
    for (class, path, addr) in [
        (Class::Secret, "/v1/var/db/a", "10.0.0.1"),
        (Class::Login, "/v1/acl/login", "10.0.0.2"),
        (Class::Secret, "/v1/var/web", "10.0.0.2"),
        (Class::Denied, "/v1/jobs", "10.0.0.1"),
    ] {
        answer(&log, &request(class, path, addr), 200).await;
    }
    let everything = listed(&log, &all()).entries;
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| (everything[at].index, everything[at].time));
    let text = |text: &str| Some(text.to_owned());
    let mut cases = vec![(all(), vec![a.0, b.0, c.0, d.0])];
    let mut case = |change: &dyn Fn(&mut RequestQuery), wanted: &[u64]| {
        let mut requested = all();
        change(&mut requested);
        cases.push((requested, wanted.to_vec()));
    };
    case(
        &|requested| requested.class = Some(Class::Secret),
        &[a.0, c.0],
    );
    case(&|requested| requested.actor = text("10.0.0.2"), &[b.0, c.0]);
    case(&|requested| requested.path = text("/v1/var/"), &[a.0, c.0]);
    let both = |requested: &mut RequestQuery| {
        (requested.path, requested.actor) = (text("/v1/var/db"), text("token"));
    };
    case(&both, &[a.0]);
    let between = |requested: &mut RequestQuery| {
        (requested.since, requested.until) = (Some(b.1), Some(c.1));
    };
    case(&between, &[b.0, c.0]);
    case(&|requested| requested.since = Some(d.1 + 1), &[]);
    let back = |requested: &mut RequestQuery| {
        (requested.from, requested.to, requested.newest_first) = (b.0, Some(d.0), true);
    };
    case(&back, &[d.0, c.0, b.0]);
    for (requested, wanted) in cases {
        assert_eq!(indexes(&log, &requested), wanted, "{requested:?}");
    }
}

#[tokio::test]
async fn pages_follow_one_another_in_both_directions() {
    let log = on(&FakeDisk::default(), Guarantee::BestEffort);
    let secret = request(Class::Secret, "/v1/var/a", "10.0.0.1");
    for _ in 0..700 {
        answer(&log, &secret, 200).await;
    }
    for newest_first in [false, true] {
        let mut requested = RequestQuery {
            newest_first,
            limit: 150,
            ..all()
        };
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            pages += 1;
            assert!(pages < 100, "{requested:?}");
            let page = listed(&log, &requested);
            assert!(page.entries.len() <= 150);
            assert!(page.entries.iter().all(|entry| entry.complete));
            found.extend(page.entries.iter().map(|entry| entry.index));
            match (page.next, newest_first) {
                (None, _) => break,
                (next, true) => requested.to = next,
                (Some(next), false) => requested.from = next,
            }
        }
        assert_eq!(found.len(), 700);
        assert!(
            found.is_sorted_by(|a, b| (a < b) != newest_first),
            "each once, in order"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_written_is_refused_or_counted_and_space_is_used_again() {
    for guarantee in [Guarantee::Enforced, Guarantee::BestEffort] {
        let disk = FakeDisk::default();
        let log = on(&disk, guarantee);
        let long = request(Class::Secret, &"x".repeat(100_000), "10.0.0.1");
        let early = log.receive(&long).await.unwrap();
        // Nor is there space for what sealing makes smaller.
        disk.set_capacity(Some(0));
        let mut refused = None;
        for _ in 0..2_000 {
            match log.receive(&long).await {
                Ok(ticket) => drop(ticket),
                Err(error) => refused = Some(error),
            }
            if refused.is_some() || log.lost() > 3 {
                break;
            }
        }
        // Between two attempts there may be space for a short one.
        let until = Instant::now() + Duration::from_secs(60);
        fill(&log);
        while log.records().unwrap().space() != DiskSpace::Full {
            assert!(Instant::now() < until, "it is not full");
            fill(&log);
        }
        assert_eq!(log.broken(), None, "it goes on as soon as there is space");
        match guarantee {
            Guarantee::Enforced => {
                assert!(refused.is_some_and(|error| error.is_full()));
                assert!(
                    early.complete(200).await.is_err(),
                    "no answer without its end"
                );
            }
            Guarantee::BestEffort => {
                assert!(refused.is_none() && log.lost() > 3, "{}", log.lost());
                early.complete(200).await.unwrap();
            }
        }
        disk.set_capacity(None);
        let again = request(Class::Login, "/v1/acl/login", "10.0.0.1");
        answer(&log, &again, 200).await;
        log.records().unwrap().sync().unwrap();
        let logins = listed(
            &log,
            &RequestQuery {
                class: Some(Class::Login),
                ..all()
            },
        );
        assert_eq!(logins.entries.len(), 1);
        assert!(logins.entries[0].complete);
        let path = &listed(&log, &all()).entries[0].received.path;
        assert!(
            path.len() < 5_000 && path.ends_with("x…"),
            "a long path is cut"
        );
    }
}

/// Requests of a stranger beyond the quota: refused ones are counted, and the others are written.
#[tokio::test]
async fn auth_09_a_stranger_beyond_the_quota_is_written_down_only_where_it_is_not_refused() {
    let from = "198.51.100.1".parse().unwrap();
    let secret = request(Class::Secret, "/v1/var/a", "198.51.100.1");
    let disk = FakeDisk::default();
    let log = on(&disk, Guarantee::Enforced);
    let limit = Instant::now() + LONG;
    while log.has_capacity_for_stranger(from) {
        assert!(Instant::now() < limit, "there is no quota");
    }
    let receive = async || log.receive_of(secret.clone(), Some(from)).await.unwrap();
    receive().await.complete(403).await.unwrap();
    drop(receive().await);
    assert_eq!(listed(&log, &all()).entries.len(), 0);
    receive().await.complete(200).await.unwrap();
    receive().await.complete(504).await.unwrap();
    let reported = listed(&log, &all()).entries;
    let ends: Vec<_> = reported.iter().map(|entry| entry.complete).collect();
    assert_eq!(ends, [true, true]);
    // What was not written is recorded with the next one that is.
    let denied = request(Class::Denied, "/v1/jobs", "198.51.100.1");
    log.denied(denied, 403).await.unwrap();
    let reported = listed(&log, &all()).entries;
    let left_out = reported
        .iter()
        .flat_map(|entry| entry.received.left_out.values());
    assert_eq!(left_out.sum::<u64>(), 2);
    // Where nothing can be written the caller gets the same error as every caller.
    disk.set_failing(true);
    drop(log.receive(&secret).await);
    until("it stops", || log.broken().is_some()).await;
    assert!(receive().await.complete(403).await.is_err());
}

/// No count is lost of denials that could not be written, and whether the quota sufficed shows in
/// no answer.
#[tokio::test]
async fn auth_09_what_was_left_out_is_told_once_it_can_be_and_strangers_are_answered_alike() {
    let from = "198.51.100.1".parse().unwrap();
    let guess = request(Class::Denied, "/v1/jobs", "198.51.100.1");
    for guarantee in [Guarantee::Enforced, Guarantee::BestEffort] {
        let disk = FakeDisk::default();
        let log = on(&disk, guarantee);
        log.leave_out(from).unwrap();
        disk.set_failing(true);
        drop(
            log.receive(&request(Class::Secret, "/v1/var/a", "10.0.0.1"))
                .await,
        );
        until("it stops", || log.broken().is_some()).await;
        let enforced = guarantee == Guarantee::Enforced;
        assert_eq!(log.denied(guess.clone(), 403).await.is_err(), enforced);
        assert_eq!(log.leave_out(from).is_err(), enforced);
        disk.set_failing(false);
        until("it is written again", || log.broken().is_none()).await;
        log.denied(guess.clone(), 403).await.unwrap();
        log.leave_out(from).unwrap();
        let reported = listed(&log, &all()).entries.pop().unwrap().received;
        let wanted = LeftOut::from([("198.51.100.1".to_owned(), 2)]);
        assert_eq!((reported.class, reported.left_out), (Class::Denied, wanted));
    }
    // A disk that is full refuses what comes, and the log continues all the same.
    let disk = FakeDisk::default();
    let log = on(&disk, Guarantee::Enforced);
    disk.set_capacity(Some(0));
    let long = request(Class::Secret, &"x".repeat(100_000), "10.0.0.1");
    let limit = Instant::now() + LONG;
    while log.receive(&long).await.is_ok() {
        assert!(Instant::now() < limit, "it is never full");
    }
    assert!(log.broken().is_none() && log.leave_out(from).is_err());
    disk.set_capacity(None);
    log.denied(guess.clone(), 403).await.unwrap();
    log.leave_out(from).unwrap();
    // Also where no caller waits for it.
    let disk = FakeDisk::default();
    let log = on(&disk, Guarantee::BestEffort);
    disk.set_capacity(Some(0));
    let limit = Instant::now() + LONG;
    while log.lost() == 0 {
        assert!(Instant::now() < limit, "nothing is lost");
        drop(log.receive(&long).await);
        drop(log.records().unwrap().sync());
    }
    log.leave_out(from).unwrap();
    let lost = log.lost();
    let long = request(Class::Denied, &"x".repeat(100_000), "198.51.100.1");
    log.denied(long, 403).await.unwrap();
    until("that is lost", || log.lost() > lost).await;
    until("the count is back", || log.strangers.has_left_out()).await;
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_stops_the_server_or_counts() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("requests");
    std::fs::write(&place, "no directory").unwrap();
    assert!(RequestLog::open(&place, Guarantee::Enforced).is_err());
    let log = Arc::new(RequestLog::open(&place, Guarantee::BestEffort).unwrap());
    assert!(log.is_on() && log.broken().is_some() && log.records().is_none());
    let secret = request(Class::Secret, "/v1/var/a", "10.0.0.1");
    answer(&log, &secret, 200).await;
    assert_eq!(log.lost(), 2, "both records");

    let off = Arc::new(RequestLog::off());
    answer(&off, &secret, 200).await;
    assert_eq!((off.lost(), off.is_on(), off.broken()), (0, false, None));
}

#[tokio::test]
async fn what_is_enforced_survives_the_loss_of_power_and_damage_is_named() {
    let disk = FakeDisk::default();
    let log = on(&disk, Guarantee::Enforced);
    let secret = request(Class::Secret, "/v1/var/a", "10.0.0.1");
    let open = log.receive(&secret).await.unwrap();
    for seed in 0..20 {
        let after = on(&disk.power_cut(seed), Guarantee::Enforced);
        let reported = listed(&after, &all());
        assert_eq!(reported.entries.len(), 1, "seed {seed}");
        assert!(!reported.entries[0].complete, "seed {seed}");
    }
    open.complete(200).await.unwrap();
    for _ in 0..50 {
        answer(&log, &secret, 200).await;
    }
    drop(log);

    let segment = disk.paths().into_iter().next().unwrap();
    disk.flip(&segment, 8 * 400);
    let files = || Arc::new(disk.clone());
    let dir = PathBuf::from("/requests");
    let refused = RequestLog::open_with(files(), &dir, Guarantee::Enforced);
    let Err(error) = refused else {
        panic!("damage is not served");
    };
    assert!(error.to_string().contains("corruption"), "{error}");
    let log = RequestLog::open_with(files(), &dir, Guarantee::BestEffort).unwrap();
    assert!(Arc::new(log).broken().unwrap().contains("corruption"));
}

#[tokio::test]
async fn a_log_that_failed_is_opened_again_and_refuses_or_counts_meanwhile() {
    for guarantee in [Guarantee::Enforced, Guarantee::BestEffort] {
        let disk = FakeDisk::default();
        let log = on(&disk, guarantee);
        let secret = request(Class::Secret, "/v1/var/a", "10.0.0.1");
        answer(&log, &secret, 200).await;
        log.records().unwrap().sync().unwrap();
        disk.set_failing(true);
        match guarantee {
            Guarantee::Enforced => assert!(log.receive(&secret).await.is_err()),
            Guarantee::BestEffort => drop(log.receive(&secret).await.unwrap()),
        }
        until("it stops", || log.broken().is_some()).await;
        // Trying again does not help as long as the disk fails.
        let tried_in_vain = || log.broken().is_some() && log.slot.lock().tries > 1;
        until("it is tried in vain", tried_in_vain).await;
        let lost = log.lost();
        match (guarantee, log.receive(&secret).await) {
            (Guarantee::Enforced, refused) => assert!(refused.is_err()),
            (Guarantee::BestEffort, ticket) => ticket.unwrap().complete(200).await.unwrap(),
        }
        let counted = if guarantee == Guarantee::Enforced {
            0
        } else {
            2
        };
        assert_eq!(log.lost() - lost, counted);

        disk.set_failing(false);
        until("it is written again", || log.broken().is_none()).await;
        let login = request(Class::Login, "/v1/acl/login", "10.0.0.1");
        answer(&log, &login, 200).await;
        log.records().unwrap().sync().unwrap();
        for seed in 0..10 {
            let after = on(&disk.power_cut(seed), guarantee);
            let reported = listed(&after, &all()).entries;
            let ends = [reported.first().unwrap(), reported.last().unwrap()];
            let ends = ends.map(|entry| (entry.received.class, entry.complete, entry.status));
            let wanted = [Class::Secret, Class::Login].map(|class| (class, true, 200));
            assert_eq!(ends, wanted, "{guarantee:?}, seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_log_that_could_not_be_opened_is_once_its_place_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("requests");
    std::fs::write(&place, "no directory").unwrap();
    let log = Arc::new(RequestLog::open(&place, Guarantee::BestEffort).unwrap());
    let secret = request(Class::Secret, "/v1/var/a", "10.0.0.1");
    answer(&log, &secret, 200).await;
    assert_eq!(log.lost(), 2);
    std::fs::remove_file(&place).unwrap();
    until("it is opened", || log.broken().is_none()).await;
    answer(&log, &secret, 200).await;
    assert_eq!((listed(&log, &all()).entries.len(), log.lost()), (1, 2));
}

#[tokio::test]
async fn old_segments_go_and_what_is_newer_stays_and_says_since_when() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Arc::new(RequestLog::open(dir.path(), Guarantee::BestEffort).unwrap());
    let log = open();
    let long = request(Class::Denied, &"x".repeat(4_000), "10.0.0.1");
    for _ in 0..1_500 {
        answer(&log, &long, 403).await;
    }
    let records = log.records().unwrap();
    records.sync().unwrap();
    let sealed = || records.segments().iter().filter(|one| one.sealed).count();
    let all_but_one = || sealed() + 1 == records.segments().len();
    until("segments to be sealed", all_but_one).await;
    let (_, next) = records.bounds();
    let before = records.segments();
    assert!(before.len() > 4, "{before:?}");
    assert_eq!(beginning(&*records).unwrap(), None);
    let (age, hour) = (Duration::from_secs(3600), 3_600_000_000_000);
    let now = unix_nanos();
    let kept = |bytes, age, events| RetentionPolicy { bytes, age, events };
    let (third, last) = (before[2].first, before.last().unwrap().first);
    for (keep, at, first) in [
        (kept(None, None, None), now, 0),
        (kept(None, Some(age), None), now, 0),
        (kept(None, None, Some(next - third)), now, third),
        (kept(Some(1), None, None), now, last),
    ] {
        assert_eq!(log.forget(&keep, at).unwrap(), first, "{keep:?}");
        assert_eq!(records.bounds(), (first, next));
    }
    assert_eq!(records.segments().len(), 1, "their files are gone");
    let (first, since) = beginning(&*records).unwrap().unwrap();
    let oldest = &listed(&log, &all()).entries[0];
    assert!(oldest.index >= first && oldest.time >= since, "{oldest:?}");
    drop((records, log));
    let log = open();
    assert_eq!(log.records().unwrap().bounds(), (first, next));
    answer(&log, &long, 403).await;
    let newest = RequestQuery {
        newest_first: true,
        ..all()
    };
    assert!(listed(&log, &newest).entries[0].complete);
    let files = ReadOnlyLog::open(dir.path()).unwrap();
    assert_eq!(files.bounds().0, first);

    // A segment that is not full ends with a part of the age, and goes when all of it is too old.
    let keep = kept(None, Some(age), None);
    let forget = |at| log.forget(&keep, at).unwrap();
    let segments = || log.records().unwrap().segments().len();
    let now = unix_nanos();
    assert_eq!((forget(now + hour / 8), segments()), (first, 1));
    assert_eq!((forget(now + hour / 2), segments()), (first, 2));
    answer(&log, &long, 403).await;
    log.records().unwrap().sync().unwrap();
    assert_eq!((forget(now + hour / 2), segments()), (first, 3));
    assert_eq!((forget(now + 2 * hour), segments()), (next + 4, 1));
    answer(&log, &long, 403).await;
    assert_eq!(listed(&log, &newest).entries.len(), 1);
}

#[test]
fn classes_have_names() {
    for class in Class::ALL {
        assert_eq!(Class::from_name(class.name()), Some(class));
    }
}

#[tokio::test]
async fn mod_23_of_a_command_its_words_and_what_came_of_it_are_kept() {
    let log = on(&FakeDisk::default(), Guarantee::Enforced);
    let ran = |command: &[&str]| Received {
        ran: Some(Ran {
            task: "web".to_owned(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            tty: true,
        }),
        ..request(Class::Exec, "/v1/client/allocation/a/exec", "10.0.0.1")
    };
    let session = Session {
        bytes_in: 3,
        bytes_out: 5,
        exit_code: Some(0),
    };
    let ticket = log.receive(&ran(&["ls", "-l"])).await.unwrap();
    ticket.complete_with(101, Some(session)).await.unwrap();
    let long = "x".repeat(1 << 20);
    answer(&log, &ran(&[&long, "y", "z"]), 403).await;
    let reported = listed(&log, &all()).entries;
    assert_eq!(reported[0].received, ran(&["ls", "-l"]));
    assert_eq!(
        (reported[0].status, reported[0].session),
        (101, Some(session))
    );
    let json = serde_json::to_value(&reported[0]).unwrap();
    assert_eq!(json["Ran"]["Command"], serde_json::json!(["ls", "-l"]));
    assert_eq!(json["Session"]["ExitCode"], 0);
    let kept = reported[1].received.ran.clone().unwrap().command;
    assert!(
        kept[0].len() < 5_000 && kept[1..] == ["…"],
        "{}",
        kept[0].len()
    );
    assert_eq!(reported[1].session, None);
    // Of others there is nothing of it.
    answer(&log, &request(Class::Files, "/v1/client/fs/ls/a", "a"), 200).await;
    let json = serde_json::to_value(&listed(&log, &all()).entries[2]).unwrap();
    assert!(json.get("Ran").is_none() && json.get("Session").is_none());
    assert!(json.get("Servers").is_none());
}

#[tokio::test]
async fn the_servers_that_a_client_is_given_are_kept_as_far_as_they_fit() {
    let log = on(&FakeDisk::default(), Guarantee::Enforced);
    let named = |servers: &[&str]| Received {
        servers: servers.iter().map(|&server| server.to_owned()).collect(),
        ..request(Class::Control, "/v1/agent/servers", "10.0.0.1")
    };
    let short = named(&["10.0.0.2:4647", "b:4647"]);
    answer(&log, &short, 200).await;
    let long = "x".repeat(1 << 20);
    answer(&log, &named(&[&long, "b:4647"]), 403).await;
    let reported = listed(&log, &all()).entries;
    assert_eq!(reported[0].received, short);
    let json = serde_json::to_value(&reported[0]).unwrap();
    assert_eq!(
        json["Servers"],
        serde_json::json!(["10.0.0.2:4647", "b:4647"])
    );
    let kept = &reported[1].received.servers;
    assert!(kept[0].len() < 5_000 && kept[1..] == ["…"], "{kept:?}");
}
