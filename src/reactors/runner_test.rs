use std::sync::atomic::{AtomicU32, Ordering};

use drover_projections::DatabaseOptions;

use super::*;
use crate::reactors::testing::Idle;

/// Fails, panics, and then works.
struct Moody(AtomicU32);

impl Reactor for Moody {
    fn name(&self) -> &'static str {
        "moody"
    }
    fn scope(&self) -> Scope {
        Scope::EveryServer
    }
    fn interests(&self) -> &'static [Interest] {
        &[]
    }
    fn activate<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Err("not today".into()),
                1 => panic!("worse"),
                turn => Ok(Activation {
                    sleep: LONGEST_DELAY,
                    status: serde_json::json!({"Turn": turn, "Failed": 1, "LastError": "a: no"}),
                }),
            }
        })
    }
}

#[tokio::test]
async fn a_reactor_that_fails_or_panics_is_reported_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, _writer) = Projections::open(dir.path(), DatabaseOptions::dev()).unwrap();
    let proposer = Arc::new(Idle);
    let context = Context {
        projections,
        proposer,
        clock: Clock::default(),
    };
    let board = Board::default();
    let running = start(Arc::new(Moody(AtomicU32::new(0))), context, board.clone());
    let thrice = || {
        let status = board.all()["moody"].clone();
        if status.activations >= 3 {
            Ok(status)
        } else {
            Err(format!("{status:?}"))
        }
    };
    let status = drover_testkit::eventually("three turns", LONGEST_DELAY, thrice);
    let status = status.await.unwrap();
    assert_eq!((status.failures, status.panics), (1, 1));
    assert_eq!(status.last_error, "a: no", "of one of many");
    assert_eq!(status.status["Turn"], 2);
    assert!(status.running);
    drop(running);
    assert!(!board.all()["moody"].running);
}

/// Holds its thread until all of its kind do so.
struct Heavy(&'static str, Arc<Together>);

#[derive(Default)]
struct Together {
    here: std::sync::Mutex<usize>,
    arrived: std::sync::Condvar,
}

const HEAVY: [&str; 5] = ["one", "two", "three", "four", "five"];

impl Reactor for Heavy {
    fn name(&self) -> &'static str {
        self.0
    }
    fn scope(&self) -> Scope {
        Scope::EveryServer
    }
    fn interests(&self) -> &'static [Interest] {
        &[]
    }
    fn activate<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            let mut here = self.1.here.lock().unwrap();
            *here += 1;
            self.1.arrived.notify_all();
            let missing = |here: &mut usize| *here < HEAVY.len();
            let (here, _) = self
                .1
                .arrived
                .wait_timeout_while(here, LONGEST_DELAY, missing)
                .unwrap();
            Ok(Activation {
                sleep: LONGEST_DELAY * 10,
                status: (*here).into(),
            })
        })
    }
}

#[tokio::test]
async fn reactors_that_hold_their_threads_hold_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, _writer) = Projections::open(dir.path(), DatabaseOptions::dev()).unwrap();
    let context = Context {
        projections,
        proposer: Arc::new(Idle),
        clock: Clock::default(),
    };
    let (board, together) = (Board::default(), Arc::new(Together::default()));
    let running = HEAVY.map(|name| {
        let reactor = Arc::new(Heavy(name, Arc::clone(&together)));
        start(reactor, context.clone(), board.clone())
    });
    let all = || {
        let board = board.all();
        match board.values().all(|status| status.activations > 0) {
            true => Ok(board),
            false => Err(format!("{board:?}")),
        }
    };
    let board = drover_testkit::eventually("a turn of each", LONGEST_DELAY * 3, all);
    for (name, status) in board.await.unwrap() {
        assert_eq!(status.status, HEAVY.len(), "{name} waited for the others");
    }
    drop(running);
}
