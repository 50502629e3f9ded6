//! A watcher that is at rest: what wakes it, what it says, how often it begins and ends, and what
//! is left of volumes that are no more.

use std::io::Write;

use drover_events::alloc::AllocsUpdatedByClient;
use drover_projections::Outcome;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::commands::csi::RegisterVolumes;
use crate::volumes::LastError;
use crate::volumes::harness::{reported, volume};

/// A watcher that followed everything that happened, whatever it noticed.
fn resting(world: &World) -> Watched {
    let watcher = Arc::new(VolumeWatcher::new(Arc::clone(&world.volumes), "s1"));
    *watcher.followed.lock() = Some(world.index());
    let context = context(world);
    let reactor: Arc<dyn Reactor> = watcher.clone();
    Watched {
        _running: start(reactor, context.clone(), Board::default()),
        watcher,
        context,
    }
}

#[tokio::test]
async fn vw_12_vw_18_a_sign_wakes_a_watcher_that_has_settled() {
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    // Its end was not noticed.
    world.ends(&alloc);
    let watched = resting(&world);
    watched.rested().await;
    assert!(world.row(&volume).in_use(), "what is tested is the sign");
    let gc = CoreGc::new(GcSettings::default().forced());
    let mut each = Each::default();
    gc.collect(&watched.context, &mut each).await.unwrap();
    until("it is free", || !world.row(&volume).in_use()).await;
    watched.rested().await;
    assert!(world.strict.is_idle() && world.strict.wrong().is_empty());
}

#[tokio::test]
async fn a_look_at_a_volume_that_panics_leaves_it_another_turn() {
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    world.ends(&alloc);
    let watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let context = context(&world);
    watcher
        .breaks
        .store(true, std::sync::atomic::Ordering::Release);
    let reported = watcher.activate(&context).await.unwrap();
    assert_eq!(
        (&reported.status["Failed"], watcher.workers()),
        (&json!(1), 0)
    );
    assert_eq!(reported.sleep, BUSY, "it is not left for long");
    watcher.activate(&context).await.unwrap();
    until("it is free", || !world.row(&volume).in_use()).await;
}

/// How often a watcher begins and ends.
const REPEATS: usize = 1_000;

#[tokio::test]
async fn vw_18_a_watcher_begins_and_ends_a_thousand_times_and_loses_and_leaks_nothing() {
    let world = World::new(1);
    let others = Arc::strong_count(&world.volumes);
    let mut last = String::new();
    for number in 0..REPEATS {
        if number % 10 == 0 {
            let (volume, alloc) = mounted(&world, number, 0).await;
            world.ends(&alloc);
            last = volume;
        }
        let watched = watched(&world);
        match number % 10 {
            // It ends at once, and as soon as it works.
            0..=4 => {}
            5 => {
                until("it works", || {
                    watched.watcher.workers() > 0 || !world.row(&last).in_use()
                })
                .await
            }
            _ => watched.rested().await,
        }
        drop(watched);
    }
    let watched = watched(&world);
    watched.rested().await;
    drop(watched);
    assert!(world.strict.is_idle() && world.strict.wrong().is_empty());
    until("nothing is left of them", || {
        Arc::strong_count(&world.volumes) == others
    })
    .await;
}

#[tokio::test]
async fn vw_19_a_volume_that_is_not_there_has_no_worker_and_nothing_is_asked_of_it() {
    let world = World::new(1);
    let watched = watched(&world);
    let none = || ("default".to_owned(), "none".to_owned());
    watched.watcher.see_to(none(), None).unwrap();
    assert_eq!(watched.watcher.workers(), 0);
    // One that goes while it is seen to takes its worker with it.
    let (volume, alloc) = mounted(&world, 1, 0).await;
    world.strict.fault("NodeDetachVolume", &[Fault::Held]);
    world.ends(&alloc);
    until("it is asked", || world.strict.is_busy()).await;
    let command = DeregisterVolumes {
        namespace: "default".into(),
        ids: vec![volume],
        force: true,
        deleted: false,
    };
    world.direct.command(&command).unwrap();
    let (calls, index) = (world.strict.calls().len(), world.index());
    world.strict.let_go();
    watched.rested().await;
    assert!(!world.strict.is_busy(), "it was waited for");
    assert_eq!((world.strict.calls().len(), world.index()), (calls, index));
    assert!(world.volumes.all_last_errors(1).is_empty());
}

#[tokio::test]
async fn csi_34_what_a_late_attach_attached_is_detached_and_nobody_works_any_more() {
    let world = World::new(1);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    world
        .strict
        .fault("ControllerAttachVolume", &[Fault::Later]);
    world.claim("data", &alloc).await.unwrap_err();
    let watched = watched(&world);
    world.ends(&alloc);
    until("all is undone", || {
        world.row("data").is_at_rest() && world.strict.is_idle()
    })
    .await;
    watched.rested().await;
    assert!(world.strict.count("ControllerDetachVolume") > 1);
}

#[tokio::test]
async fn a_volume_whose_delete_nobody_answered_is_given_back_by_the_next_leader() {
    use crate::rpc::csi::Secrets;
    let mut world = World::new(1);
    world.volume("data", ONE);
    let key = ("default".to_owned(), "data".to_owned());
    world
        .strict
        .fault("ControllerDeleteVolume", &[Fault::Before]);
    let (secrets, origin) = (Secrets::default(), Origin::default());
    let deleted = world.volumes.delete(&key, secrets, &origin).await;
    deleted.unwrap_err();
    assert!(world.row("data").deleting > 0);
    world.elect();
    let watched = watched(&world);
    until("it is given back", || world.row("data").is_at_rest()).await;
    watched.rested().await;
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Log {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

/// The listener, as long as this is there.
type Listening = (tracing::subscriber::DefaultGuard, tracing::Dispatch);

/// Every line about volumes that this thread logs.
fn listened() -> (Log, Listening) {
    use tracing_subscriber::EnvFilter;
    let log = Log::default();
    let of = EnvFilter::new("off,drover::volumes=trace,drover::reactors::volume_watcher=trace");
    let shown = tracing_subscriber::fmt()
        .with_env_filter(of)
        .with_writer(log.clone())
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .finish();
    // Of one listener alone a thread that has none decides what lines are worth.
    let second = tracing::Dispatch::new(tracing_subscriber::registry());
    (log, (tracing::subscriber::set_default(shown), second))
}

#[tokio::test]
async fn vw_17_every_line_says_once_of_which_volume_it_is_and_each_step_has_its_line() {
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    world
        .strict
        .fault("NodeDetachVolume", &[Fault::Says(Code::Unavailable)]);
    let (log, _listening) = listened();
    // It works here, where the log is listened to.
    let watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let context = context(&world);
    world.ends(&alloc);
    watcher.activate(&context).await.unwrap();
    until("it is tried", || {
        !world.volumes.last_errors(("default", &volume)).is_empty()
    })
    .await;
    world.node_is(0, "down");
    world.node_is(0, "ready");
    watcher.activate(&context).await.unwrap();
    until("it is free", || !world.row(&volume).in_use()).await;
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    let of = format!("namespace=\"default\" volume=\"{volume}\"");
    let release = format!("TRACE release{{{of} alloc=\"{alloc}\"}}: ");
    let mut reported = Vec::new();
    for line in text.lines().map(str::trim_start) {
        assert_eq!(line.matches("namespace=").count(), 1, "{line}");
        assert_eq!(line.matches(&of).count(), 1, "{line}");
        match line.strip_prefix(&release) {
            Some(step) => reported.push(step),
            None => {
                let own = format!("DEBUG volume{{{of}}}: it is not free yet alloc=\"{alloc}\" ");
                assert!(line.starts_with(&own), "{line}");
                reported.push("it is not free yet");
            }
        }
    }
    let steps = [
        "a claim is given back",
        "it is not free yet",
        "its node has detached the volume",
        "its controller has detached the volume",
        "a claim is free",
    ];
    assert_eq!(reported, steps, "{text}");
}

/// How many volumes come and go, and how many of them at once.
const DELETED: usize = 10_000;
const TOGETHER: usize = 100;

#[tokio::test]
async fn vw_10_a_volume_that_is_deleted_leaves_no_worker() {
    let world = World::new(1);
    let watched = watched(&world);
    // More than there are tries: the detachment fails on every node.
    let stays = vec![Fault::Says(Code::Unavailable); 2 * DELETED];
    world.strict.fault("NodeDetachVolume", &stays);
    for first in (1..=DELETED).step_by(TOGETHER) {
        let numbers = first..first + TOGETHER;
        let ids: Vec<String> = numbers.clone().map(|n| format!("data-{n}")).collect();
        let volumes = ids.iter().map(|id| volume(id, ONE)).collect();
        world.direct.command(&RegisterVolumes { volumes }).unwrap();
        let mut over = AllocsUpdatedByClient::default();
        for (number, id) in numbers.zip(&ids) {
            let alloc = world.alloc(number, 0, id, ONE);
            // Of one half it is unknown whether it is attached.
            if number % 2 == 0 {
                world
                    .strict
                    .fault("ControllerAttachVolume", &[Fault::Before]);
                world.claim(id, &alloc).await.unwrap_err();
            } else {
                world.claim(id, &alloc).await.unwrap();
            }
            over.updates.extend(reported(&alloc, "complete").updates);
        }
        world.direct.apply(over);
        let tried = |trouble: &LastError| trouble.error.contains("detach");
        until("all are tried", || {
            let troubles = |id: &String| world.volumes.last_errors(("default", id));
            ids.iter().all(|id| troubles(id).values().any(tried))
        })
        .await;
        let command = DeregisterVolumes {
            namespace: "default".into(),
            ids,
            force: true,
            deleted: false,
        };
        let (_, outcome) = world.direct.command(&command).unwrap();
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }
    watched.rested().await;
    assert_eq!(world.volumes.remembers(), 0);
}
