//! What the proposer does where something is wrong: full disks, a device that fails, events from
//! the future, commands that panic.

use std::path::Path;
use std::sync::Arc;

use drover_projections::tables::namespaces::Namespaces;
use drover_testkit::{LONG, eventually, so};

use super::decided::{Propose as _, RaftPropose};
use super::proposer_test::{Put, event_of_today, on_disk, run, start};
use super::*;
use crate::error::Code;
use crate::log::{DiskSpace, LogEngine, LogOptions, OnFull};
use crate::raft::cluster_test::opaque;
use crate::raft::*;
use drover_fake_disk::{FakeDisk, Op};

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_resumes() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = FakeDisk::default();
        let options = LogOptions {
            segment_bytes: 64 << 10,
            on_full: OnFull::Wait,
            ..LogOptions::default()
        };
        let (log, _) =
            LogEngine::open_with(Arc::new(disk.clone()), Path::new("/log"), options).unwrap();
        let server = start(dir.path(), log).await;
        disk.set_capacity(Some(disk.used()));
        let mut written = Vec::new();
        let error = loop {
            assert!(written.len() < 100_000, "the disk never fills");
            let name = format!("n{}", written.len());
            let put = server
                .proposer
                .submit(Arc::new(Put(name.clone())), Origin::default());
            match tokio::time::timeout(LONG, put).await.unwrap() {
                Ok(_) => written.push(name),
                Err(e) => break e,
            }
        };
        assert_eq!(error.code, Code::Unavailable);
        assert!(
            error.message.contains("no space left on the disk"),
            "{error}"
        );
        assert!(written.len() > 20);
        for name in &written {
            let view = server.projections.view();
            assert!(
                view.get::<Namespaces>(name.as_str()).unwrap().is_some(),
                "reads go on"
            );
        }
        disk.set_capacity(None);
        let enough = || so(server.node.log().space() == DiskSpace::Enough);
        eventually("the log to notice the space", LONG, enough)
            .await
            .unwrap();
        server
            .proposer
            .submit(Arc::new(Put("after".to_owned())), Origin::default())
            .await
            .unwrap();
        server.node.shutdown().await;
    });
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_the_reason_is_said() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = FakeDisk::default();
        let files = Arc::new(disk.clone());
        let open = |files| LogEngine::open_with(files, Path::new("/log"), LogOptions::default());
        let server = start(dir.path(), open(files).unwrap().0).await;
        let submit = |name: &str| {
            let put = Arc::new(Put(name.to_owned()));
            server.proposer.submit(put, Origin::default())
        };
        submit("before").await.unwrap();
        disk.fail(Op::Sync, 0, 1);
        let refused = submit("lost").await.unwrap_err();
        assert_eq!(disk.failed(), 1);
        let mut reported = vec![refused];
        let syncs = disk.syncs();
        for name in ["later", "last"] {
            reported.push(submit(name).await.unwrap_err());
        }
        for error in reported {
            assert_eq!(error.code, Code::Unavailable, "{error}");
            assert!(error.message.contains("the log stopped"), "{error}");
            assert!(error.message.contains("the device fails"), "{error}");
        }
        assert_eq!(disk.syncs(), syncs, "nothing is written after it");
        assert!(server.node.fault().is_some());
        // What is there can be read, by readers that do not require the leader's state.
        let view = server.projections.view();
        assert!(view.get::<Namespaces>("before").unwrap().is_some());
        assert!(view.get::<Namespaces>("lost").unwrap().is_none());
        let mut leadership = server.node.leadership();
        let gone = leadership.wait_for(|now| *now == Leadership::Unknown);
        gone.await.unwrap();
        let read = server.node.read_barrier(Consistency::Default).await;
        assert!(read.unwrap_err().message.contains("the log stopped"));
        server.node.read_barrier(Consistency::Stale).await.unwrap();
        server.node.shutdown().await;
        let (log, _) = open(Arc::new(disk.power_cut(1))).unwrap();
        let kept = log.scan(0).map(Result::unwrap);
        let kept = kept.filter(|e| e.body.windows(6).any(|bytes| bytes == b"before"));
        assert_eq!(kept.count(), 1, "what was acknowledged is there");
    });
}

#[test]
fn an_event_from_the_future_parks_the_applier_and_the_log_goes_on() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let before = server.projections.applied_index();
        let node = Arc::clone(&server.node);
        let future = tokio::spawn(async move { node.commit(opaque(100)).await });
        let parked = || server.node.parked().ok_or("it goes on");
        let parked = eventually("the applier to park", LONG, parked)
            .await
            .unwrap();
        assert_eq!(parked.index, before + 1);
        let node = Arc::clone(&server.node);
        let after = tokio::spawn(async move { node.commit(event_of_today()).await });
        let goes_on = || so(server.node.log().bounds().1 > parked.index + 1);
        eventually("the log to go on", LONG, goes_on).await.unwrap();
        assert_eq!(
            server.projections.applied_index(),
            before,
            "nothing is skipped"
        );
        assert!(server.node.read_barrier(Consistency::Stale).await.is_ok());
        let refused = server.node.read_barrier(Consistency::Default).await;
        let message = refused.expect_err("only stale reads are served").message;
        assert!(message.contains("a newer drover is needed"), "{message}");
        assert!(
            message.contains(&format!("index {}", parked.index)),
            "{message}"
        );
        future.abort();
        after.abort();
        server.node.shutdown().await;
    });
}

/// Its decision panics.
struct Broken {
    long: bool,
}

impl Command for Broken {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, Refusal> {
        panic!("a broken rule")
    }

    fn is_long(&self) -> bool {
        self.long
    }
}

/// More often than there are turns to decide in: each is given back.
const PANICS: usize = 100;

#[test]
fn a_command_that_panics_is_refused_and_holds_up_no_other() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let reactors = RaftPropose::new(server.proposer.clone(), "1");
        for turn in 0..PANICS {
            let broken = Arc::new(Broken { long: turn > 0 });
            let refused = match turn % 2 {
                0 => server.proposer.submit(broken, Origin::default()).await,
                _ => reactors.submit(broken, "test").await,
            };
            let refused = refused.unwrap_err();
            assert_eq!(refused.code, Code::Internal, "{refused}");
            assert_eq!(refused.message, "internal error", "the log says why");
        }
        for name in ["n1", "n2"] {
            let put = Arc::new(Put(name.to_owned()));
            let done = match name {
                "n1" => server.proposer.submit(put, Origin::default()).await,
                _ => reactors.submit(put, "test").await,
            };
            done.unwrap();
        }
        server.node.shutdown().await;
    });
}
