//! Three servers in one process, each with a log, tables, a proposer and a watcher of its own, and
//! one strict plugin that all of them reach: the leader falls between attach and mount, and in the
//! middle of a release.

use std::sync::atomic::Ordering;

use drover_events::Event;
use drover_events::actor::Actor;
use drover_events::cluster::{LeaderElected, VersionBarrierRaised};
use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::jobs::Jobs;
use drover_testkit::{LONG, eventually, eventually_async};

use super::harness::{self, node_id};
use super::testing::{Fault, Strict, Way};
use super::*;
use crate::base::clock::Clock;
use crate::commands::csi::RegisterVolumes;
use crate::commands::{Decision, Stamp};
use crate::log::{LogEngine, LogOptions};
use crate::proposer::decided::RaftPropose;
use crate::proposer::{FirstEvents, Proposer};
use crate::raft::cluster_test::{Wire, Wires, members};
use crate::raft::{Projector, RaftNode, RaftSettings, RaftStart};
use crate::reactors::runner::{Board, Context, Reactor, RunningReactor, start};
use crate::reactors::volume_watcher::VolumeWatcher;
use crate::server::leader::Leader;

const SERVERS: u64 = 3;
const DETACH: &str = "ControllerDetachVolume";

/// An event as a command.
#[derive(Debug)]
struct Raw(Event);

impl Command for Raw {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, Refusal> {
        Ok(Decision::unguarded(self.0.clone()))
    }
}

struct Server {
    name: String,
    projections: Arc<Projections>,
    proposer: Proposer,
    volumes: Arc<Volumes>,
    /// Its own way to the plugin, which counts.
    way: Arc<Way>,
    watcher: Arc<VolumeWatcher>,
    context: Context,
}

impl Server {
    async fn start(
        dir: &std::path::Path,
        number: u64,
        wires: &Wires,
        plugin: &Arc<Strict>,
    ) -> Self {
        let name = number.to_string();
        let dir = dir.join(&name);
        std::fs::create_dir_all(&dir).unwrap();
        let (log, _) = LogEngine::open(&dir.join("log"), LogOptions::default()).unwrap();
        let (projections, writer) = Projections::open(dir.join("db"), Default::default()).unwrap();
        let raft = RaftNode::start(RaftStart {
            number,
            log: Arc::new(log),
            fold: Box::new(Projector::new(writer)),
            snapshots: dir.join("snapshots"),
            transport: Arc::new(Wire {
                wires: wires.clone(),
                this: name.clone(),
            }),
            settings: RaftSettings::default(),
            bootstrap: (number == 1).then(|| members(SERVERS)),
        });
        let raft = raft.await.unwrap();
        wires.nodes.lock().insert(name.clone(), Arc::clone(&raft));
        let first: FirstEvents = Arc::new(|_: &View| {
            let level = VersionBarrierRaised {
                level: drover_migrations::FEATURE_LEVEL,
                ..VersionBarrierRaised::default()
            };
            Ok(vec![LeaderElected::default().into(), level.into()])
        });
        let actor = Actor::server(&name, "test");
        let shared = Arc::clone(&projections);
        let proposer = Proposer::start(Arc::clone(&raft), shared, actor, first);
        let keyring = Arc::new(Keyring::open(&dir).unwrap().0);
        let way = Arc::new(Way::to(plugin));
        let record = Leader::new(proposer.clone(), raft);
        let reach: Arc<dyn Reach> = Arc::clone(&way) as Arc<dyn Reach>;
        let volumes = Volumes::new(Arc::clone(&projections), record, reach, keyring);
        Self {
            watcher: Arc::new(VolumeWatcher::new(Arc::clone(&volumes), &name)),
            context: Context {
                projections: Arc::clone(&projections),
                proposer: Arc::new(RaftPropose::new(proposer.clone(), &name)),
                clock: Clock::default(),
            },
            name,
            projections,
            proposer,
            volumes,
            way,
        }
    }

    fn leads(&self) -> bool {
        self.proposer.ready().borrow().is_some()
    }

    /// What a leader does: it follows volumes.
    fn watches(&self) -> RunningReactor {
        let reactor: Arc<dyn Reactor> = self.watcher.clone();
        start(reactor, self.context.clone(), Board::default())
    }

    fn calls(&self) -> usize {
        self.way.calls.load(Ordering::SeqCst)
    }

    fn in_use(&self) -> Option<bool> {
        let view = self.projections.view();
        let row = view.get::<CsiVolumes>(("default", "data")).unwrap();
        row.map(|row| row.in_use())
    }
}

struct Three {
    servers: Vec<Server>,
    wires: Wires,
    strict: Arc<Strict>,
    _dir: tempfile::TempDir,
}

impl Three {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (wires, strict) = (Wires::default(), Strict::new());
        let mut servers = Vec::new();
        for number in 1..=SERVERS {
            servers.push(Server::start(dir.path(), number, &wires, &strict).await);
        }
        let three = Self {
            servers,
            wires,
            strict,
            _dir: dir,
        };
        for node in 0..2 {
            let node = harness::registered(node, &node_id(node), (true, false));
            three.submit(Arc::new(Raw(node.into()))).await;
        }
        let volumes = vec![harness::volume("data", ONE)];
        three.submit(Arc::new(RegisterVolumes { volumes })).await;
        let job = harness::submitted("job", "data", (ONE, false));
        three.submit(Arc::new(Raw(job.into()))).await;
        for (number, node) in [(1, 0), (2, 1)] {
            let index = three.leader(&[]).await.projections.view();
            let index = index.get::<Jobs>(("default", "job")).unwrap();
            let index = index.expect("it is registered").job_modify_index;
            let placed = harness::placed((number, node), ("job", index));
            three.submit(Arc::new(Raw(placed.into()))).await;
        }
        three
    }

    /// The server that leads and is not among these.
    async fn leader(&self, but: &[&str]) -> &Server {
        let found = eventually("a leader", LONG, || {
            let mut servers = self.servers.iter();
            let leads = |server: &&Server| server.leads() && !but.contains(&&*server.name);
            servers.find(leads).ok_or("no server leads")
        });
        found.await.unwrap()
    }

    /// Has the leader take a command, and waits until all have applied it.
    async fn submit(&self, command: Arc<dyn Command>) {
        let once = async || {
            let leader = self.leader(&[]).await;
            let done = leader
                .proposer
                .submit(Arc::clone(&command), Origin::default());
            done.await.map_err(|error| error.message)
        };
        let done = eventually_async("a command", LONG, once).await.unwrap();
        for server in &self.servers {
            let applied = eventually("it is applied", LONG, || {
                let index = server.projections.applied_index();
                (index >= done.index).then_some(()).ok_or(index)
            });
            applied.await.unwrap();
        }
    }

    fn cut(&self, server: &Server) {
        self.wires.cut.lock().insert(server.name.clone());
    }

    fn heal(&self) {
        self.wires.cut.lock().clear();
    }
}

fn claim(alloc: &str) -> CsiVolumeClaimed {
    harness::claim_request("data", alloc, ("", drover_events::csi::claim_mode::WRITE))
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// Requests a claim of a server until it is given.
async fn claimed(server: &Server, alloc: &str) {
    let once = async || {
        let taken = server.volumes.claim(claim(alloc), Origin::default()).await;
        taken.map_err(|error| error.to_string())
    };
    eventually_async("a claim", LONG, once).await.unwrap();
}

/// A server that is cut off may still think that it leads, and gives nothing back.
async fn gives_nothing_back(server: &Server, alloc: &str) {
    let origin = Origin::default();
    let place = ("default", "data");
    let late = server.volumes.unpublish(place, alloc, &origin);
    let late = tokio::time::timeout(std::time::Duration::from_secs(5), late).await;
    assert!(!matches!(late, Ok(Ok(_))), "{late:?}");
}

/// A server's watcher has nothing left to do, and knows it.
async fn rests(server: &Server) {
    let rests = eventually("it rests", LONG, || match server.watcher.workers() {
        0 => Ok(()),
        workers => Err(workers),
    });
    rests.await.unwrap();
}

#[test]
fn vw_02_vw_04_a_leader_that_is_cut_off_calls_nothing_more_and_the_next_one_goes_on() {
    run(async {
        let three = Three::start().await;
        let (one, two) = (harness::alloc_id(1), harness::alloc_id(2));
        let first = three.leader(&[]).await;
        // It falls between attach and mount: the client calls the next one, and mounts.
        claimed(first, &one).await;
        three.cut(first);
        let calls = first.calls();
        let begun = std::time::Instant::now();
        let second = three.leader(&[&first.name]).await;
        claimed(second, &one).await;
        three.strict.mount("data", &node_id(0), &one, true);
        assert_eq!(
            three.strict.count("ControllerAttachVolume"),
            1,
            "it is attached"
        );

        gives_nothing_back(first, &one).await;
        assert_eq!(first.calls(), calls, "VW-02: it calls no plugin");

        // The next one falls in the middle of the release, at its controller.
        three.strict.fault(DETACH, &[Fault::Hangs]);
        let watching = second.watches();
        let end = Arc::new(Raw(harness::reported(&one, "complete").into()));
        second
            .proposer
            .submit(end, Origin::default())
            .await
            .unwrap();
        let waited = eventually("it is called", LONG, || {
            (three.strict.count(DETACH) == 1)
                .then_some(())
                .ok_or("not yet")
        });
        waited.await.unwrap();
        three.heal();
        three.cut(second);
        drop(watching);
        let third = three.leader(&[&first.name, &second.name]).await;
        // No event reports it: it looks at every volume once (VW-04).
        let _watching = third.watches();
        claimed(third, &two).await;
        three.strict.mount("data", &node_id(1), &two, true);
        let took = begun.elapsed();
        assert!(
            three.strict.wrong().is_empty(),
            "{:?}",
            three.strict.wrong()
        );
        assert_eq!(
            three.strict.count("NodeDetachVolume"),
            1,
            "it was done and noted"
        );
        assert_eq!(third.in_use(), Some(true));
        assert!(took < LONG, "{took:?}");
        let view = third.projections.view();
        let held = view
            .get::<CsiVolumes>(("default", "data"))
            .unwrap()
            .unwrap();
        assert_eq!(held.holders().collect::<Vec<_>>(), [two.as_str()]);
        assert!(view.get::<Allocs>(one.as_str()).unwrap().is_some());
        rests(third).await;
    });
}

#[test]
fn vw_02_a_leader_that_was_cut_off_after_its_last_step_detaches_nothing() {
    run(async {
        let three = Three::start().await;
        let one = harness::alloc_id(1);
        let first = three.leader(&[]).await;
        claimed(first, &one).await;
        // Its node is done, its controller failed: nothing more is noted before the next call.
        let place = ("default", "data");
        three
            .strict
            .fault(DETACH, &[Fault::Says(Code::Unavailable); 2]);
        let origin = Origin::default();
        let failed = first.volumes.unpublish(place, &one, &origin).await;
        failed.unwrap_err();
        let calls = first.calls();
        three.cut(first);
        let second = three.leader(&[&first.name]).await;
        second
            .volumes
            .unpublish(place, &one, &origin)
            .await
            .unwrap();
        claimed(second, &harness::alloc_id(2)).await;
        gives_nothing_back(first, &one).await;
        assert_eq!(first.calls(), calls);
        assert!(
            three.strict.wrong().is_empty(),
            "{:?}",
            three.strict.wrong()
        );
    });
}

#[test]
fn csi_24_two_servers_that_claim_at_once_give_a_volume_of_one_writer_to_one() {
    run(async {
        let three = Three::start().await;
        let (one, two) = (harness::alloc_id(1), harness::alloc_id(2));
        let first = three.leader(&[]).await;
        let calls = first.calls();
        three.cut(first);
        assert!(first.leads(), "it does not know yet");
        let late = first.volumes.claim(claim(&one), Origin::default());
        let late = tokio::time::timeout(std::time::Duration::from_secs(5), late);
        let next = async {
            let second = three.leader(&[&first.name]).await;
            claimed(second, &two).await;
            three.strict.mount("data", &node_id(1), &two, true);
            three.heal();
        };
        let (late, ()) = tokio::join!(late, next);
        assert!(!matches!(late, Ok(Ok(_))), "{late:?}");
        assert_eq!(first.calls(), calls, "it calls no plugin");

        // A repeated request is refused by the server that leads now.
        let refused = eventually_async("a refusal", LONG, async || {
            let leader = three.leader(&[]).await;
            let taken = leader.volumes.claim(claim(&one), Origin::default()).await;
            match taken.map_err(|error| error.to_string()) {
                Ok(taken) => panic!("two have it: {taken:?}"),
                Err(why) if why.contains("max claims reached") => Ok(()),
                Err(other) => Err(other),
            }
        });
        refused.await.unwrap();
        for server in &three.servers {
            let known = eventually("one has it", LONG, || {
                let view = server.projections.view();
                let row = view.get::<CsiVolumes>(("default", "data")).unwrap();
                let row = row.expect("it is registered");
                let holders: Vec<_> = row.holders().collect();
                let reported = format!("{holders:?}");
                (holders == [two.as_str()]).then_some(()).ok_or(reported)
            });
            known.await.unwrap();
        }
        assert_eq!(three.strict.count("ControllerAttachVolume"), 1);
        let wrong = three.strict.wrong();
        assert!(wrong.is_empty(), "{wrong:?}");
    });
}
