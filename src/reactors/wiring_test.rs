//! When the reactors of a leader run, and where.

use std::path::Path;
use std::sync::{Barrier, mpsc};

use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_projections::Interest;
use drover_projections::serving::{relieved, throughout};
use drover_projections::tables::evals::Evals;
use drover_testkit::fixtures::{job, node};
use drover_testkit::{LONG, eventually};
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};

use super::super::kafka::PublisherPosition;
use super::super::retention::tests::kept;
use super::super::runner::{Activation, Failure};
use super::super::starvation_rest_test::{REACTORS, Shown};
use super::super::testing::Direct;
use super::*;
use crate::commands::job::RegisterJob;
use crate::commands::node::RegisterNode;
use crate::volumes::harness::{World, node_id};
use crate::volumes::testing::turns;

/// The volume of an allocation that has ended: a worker has to give it back.
async fn left(world: &World, number: usize) -> String {
    let volume = format!("data-{number}");
    world.volume(&volume, ONE);
    let alloc = world.alloc(number, 0, &volume, ONE);
    world.claim(&volume, &alloc).await.unwrap();
    world.strict.mount(&volume, &node_id(0), &alloc, true);
    world.alloc_is(&alloc, "complete");
    volume
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let ask = || holds().then_some(()).ok_or("not yet");
    eventually(what, LONG, ask).await.unwrap();
}

/// What reactors work on beside the projections, in this directory.
async fn sources(dir: &Path, volumes: Option<Arc<Volumes>>) -> Sources {
    let (keeping, signing, _projections) = kept(dir).await;
    Sources {
        server: "s1".to_owned(),
        volumes,
        signing,
        kafka: None,
        keeping,
    }
}

#[tokio::test]
async fn of_every_reactor_it_is_shown_that_one_bad_thing_starves_no_other() {
    let (world, dir) = (World::new(1), tempfile::tempdir().unwrap());
    let mut sources = sources(dir.path(), Some(Arc::clone(&world.volumes))).await;
    // Those that not every server has are there as well.
    sources.kafka = Some(KafkaSource {
        config: Arc::default(),
        log: Arc::clone(sources.keeping.raft.log()),
        keyring: Arc::clone(&sources.signing.1),
        held: Arc::new(PublisherPosition::new(Duration::ZERO)),
        agent: String::new(),
    });
    let heartbeats = Heartbeats::new(Default::default());
    let all = All::new(&heartbeats, &ReactorSettings::default(), &sources).into_list();
    let mut names: Vec<_> = all.iter().map(|reactor| reactor.name()).collect();
    // It has workers of its own.
    names.push("scheduling");
    names.sort_unstable();
    let shown: Vec<_> = REACTORS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, shown, "a list of those with their tests, by name");
    for (name, shown) in &REACTORS {
        match shown {
            Shown::By(file, test) => assert!(file.contains(&format!("fn {test}(")), "{name}"),
            Shown::Needless(reason) => assert!(!reason.is_empty(), "{name}"),
        }
    }
}

#[tokio::test]
async fn vw_02_the_volume_watcher_works_in_each_term_in_which_this_server_leads_and_never_between()
{
    let (world, dir) = (World::new(1), tempfile::tempdir().unwrap());
    let sources = sources(dir.path(), Some(Arc::clone(&world.volumes))).await;
    let (term, ready) = watch::channel(None);
    let projections = Arc::clone(&world.direct.projections);
    let proposer = world.direct.clone();
    let reactors = Reactors::start(projections, proposer, ready, Default::default(), sources);
    let runs = || {
        let all = reactors.activity().reactors();
        all.get("volume_watcher").is_some_and(|one| one.running)
    };
    for number in 1..=3 {
        // What is reported between two terms reaches no reactor, and is found in the next term.
        let volume = left(&world, number).await;
        let calls = world.strict.calls().len();
        turns(1_000).await;
        assert!(!runs() && world.row(&volume).in_use(), "{number}");
        assert_eq!(world.strict.calls().len(), calls, "{number}");
        term.send_replace(Some(number as u64));
        until("it is free", || !world.row(&volume).in_use()).await;
        term.send_replace(None);
        until("it ends", || !runs()).await;
    }
    assert!(world.strict.is_idle() && world.strict.wrong().is_empty());
    reactors.stop().await;
}

/// A server of one with a node and a key, and what its reactors work on. What they are started with
/// has a runtime of its own, which runs beside the one that serves.
struct Stage {
    direct: Arc<Direct>,
    sources: Sources,
    _beside: Runtime,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let (direct, dir) = (Direct::new(), tempfile::tempdir().unwrap());
        direct.first_key();
        let command = RegisterNode {
            node: node(1),
            create_node_pool: true,
        };
        direct.command(&command).unwrap();
        let beside = Runtime::new().unwrap();
        Self {
            direct,
            sources: beside.block_on(sources(dir.path(), None)),
            _beside: beside,
            _dir: dir,
        }
    }

    /// Starts the reactors of a server that leads until the sender says otherwise.
    fn start(&self) -> (watch::Sender<Option<u64>>, Reactors) {
        let (term, ready) = watch::channel(Some(1));
        let (projections, proposer) = (Arc::clone(&self.direct.projections), self.direct.clone());
        let (settings, sources) = (ReactorSettings::default(), self.sources.clone());
        let reactors = Reactors::start(projections, proposer, ready, settings, sources);
        (term, reactors)
    }

    /// Registers a job; answers its evaluation.
    fn register(&self, id: &str) -> String {
        let mut spec = job("batch", 3);
        spec.id = id.to_owned();
        spec.name = id.to_owned();
        let eval_id = uuid::Uuid::new_v4().to_string();
        let command = RegisterJob {
            job: spec,
            eval_id: eval_id.clone(),
            ..RegisterJob::default()
        };
        self.direct.command(&command).unwrap();
        eval_id
    }

    fn is_complete(&self, eval: &str) -> bool {
        let found = self.direct.projections.view().get::<Evals>(eval).unwrap();
        found.unwrap().status == "complete"
    }
}

/// Neither at the beginning of a term nor for a plan nor at the end.
#[test]
fn scheduling_reads_nothing_on_a_thread_that_serves() {
    let stage = Stage::new();
    let before = stage.register("before");
    let serving = Builder::new_current_thread().enable_all().build().unwrap();
    let in_one_term = async {
        let (term, reactors) = stage.start();
        let after = relieved(|| stage.register("after"));
        for eval in [&before, &after] {
            let placed = || relieved(|| stage.is_complete(eval));
            until("it is placed", placed).await;
        }
        term.send_replace(None);
        let ends = || reactors.activity().scheduling().is_none();
        until("the term ends", ends).await;
        reactors.stop().await;
    };
    throughout(|| serving.block_on(in_one_term));
}

#[test]
fn nobody_who_asks_waits_until_scheduling_has_read_what_it_begins_with() {
    let stage = Stage::new();
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(1);
    let serving = builder.build().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    serving.block_on(async {
        // There is no thread that could read it.
        let taken = tokio::task::spawn_blocking(move || wait.recv().is_err());
        let (_term, reactors) = stage.start();
        let activity = reactors.activity();
        let others_run = || {
            let all = activity.reactors();
            all.get("drainer").is_some_and(|one| one.running)
        };
        until("the others run", others_run).await;
        assert!(!activity.is_placing());
        let status = activity.status();
        assert!(status.scheduling.is_none() && !status.reactors.is_empty());
        drop(go);
        until("it runs", || activity.scheduling().is_some()).await;
        assert!(taken.await.unwrap());
        reactors.stop().await;
    });
}

#[test]
fn scheduling_that_is_started_too_late_does_not_outlive_its_reactors() {
    let stage = Stage::new();
    let serving = Builder::new_current_thread().enable_all().build().unwrap();
    serving.block_on(async {
        let (_term, reactors) = stage.start();
        let stopped = reactors.stopped.clone();
        let lead = Lead {
            heartbeats: Arc::clone(&reactors.heartbeats),
            activity: Activity {
                scheduling: Arc::default(),
                board: Board::default(),
            },
            context: Context {
                projections: Arc::clone(&stage.direct.projections),
                proposer: stage.direct.clone(),
                clock: Clock::default(),
            },
            settings: ReactorSettings::default(),
            sources: stage.sources.clone(),
            stopped: stopped.clone(),
        };
        assert!(lead.start_scheduling().await);
        assert!(lead.activity.scheduling().is_some());
        lead.stop_scheduling().await;
        drop(reactors);
        assert!(stopped.is_cancelled());
        assert!(lead.start_scheduling().await, "nobody needs it any more");
        assert!(lead.activity.scheduling().is_none());
    });
}

/// Holds its thread until it is let go.
struct ThreadHolder(Arc<Barrier>);

impl Reactor for ThreadHolder {
    fn name(&self) -> &'static str {
        "thread_holder"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        &[]
    }

    fn activate<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            self.0.wait();
            self.0.wait();
            Err("it is over".into())
        })
    }
}

#[tokio::test]
async fn reactors_are_stopped_once_none_of_them_is_at_work() {
    let direct = Direct::new();
    let context = Context {
        projections: Arc::clone(&direct.projections),
        proposer: direct.clone(),
        clock: Clock::default(),
    };
    let gate = Arc::new(Barrier::new(2));
    let held = Arc::new(ThreadHolder(Arc::clone(&gate)));
    let running = start(held, context, Board::default());
    gate.wait();
    let mut stops = std::pin::pin!(stop_all(vec![running]));
    assert!(futures_util::poll!(&mut stops).is_pending());
    gate.wait();
    stops.await;
}

#[test]
fn how_long_it_takes_to_lead_and_to_lead_no_more_is_measured() {
    let (telemetry, recorder) =
        crate::telemetry::build(&crate::telemetry::TelemetryOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let terms = async {
        let (direct, dir) = (Direct::new(), tempfile::tempdir().unwrap());
        let (keeping, signing, _projections) = kept(dir.path()).await;
        let sources = Sources {
            server: "s1".to_owned(),
            volumes: None,
            signing,
            kafka: None,
            keeping,
        };
        let (term, ready) = watch::channel(None);
        let projections = Arc::clone(&direct.projections);
        let reactors = Reactors::start(projections, direct, ready, Default::default(), sources);
        let counted = |what: &str, wanted: u64| {
            let line = format!("nomad_nomad_leader_{what}_leadership_count {wanted}");
            telemetry.prometheus().lines().any(|other| other == line)
        };
        for number in 1..=2 {
            term.send_replace(Some(number));
            until("it leads", || counted("establish", number)).await;
            term.send_replace(None);
            until("it leads no more", || counted("revoke", number)).await;
        }
        reactors.stop().await;
    };
    metrics::with_local_recorder(&recorder, || runtime.unwrap().block_on(terms));
}
