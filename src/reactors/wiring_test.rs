//! When the reactors of a leader run.

use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_testkit::{LONG, eventually};

use super::super::retention::tests::kept;
use super::*;
use crate::reactors::testing::Direct;
use crate::volumes::harness::{World, node_id};
use crate::volumes::testing::turns;

/// The volume of an allocation that has ended: somebody has to give it back.
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

#[tokio::test]
async fn vw_02_the_volume_watcher_works_in_each_term_in_which_this_server_leads_and_never_between()
{
    let (world, dir) = (World::new(1), tempfile::tempdir().unwrap());
    let (keeping, signing, _projections) = kept(dir.path()).await;
    let sources = Sources {
        server: "s1".to_owned(),
        volumes: Some(Arc::clone(&world.volumes)),
        signing,
        kafka: None,
        keeping,
    };
    let (term, ready) = watch::channel(None);
    let projections = Arc::clone(&world.direct.projections);
    let proposer = world.direct.clone();
    let reactors = Reactors::start(projections, proposer, ready, Default::default(), sources);
    let runs = || {
        let all = reactors.status().reactors;
        all.get("volume_watcher").is_some_and(|one| one.running)
    };
    for number in 1..=3 {
        // What is said between two terms is heard by nobody, and found in the next one.
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

#[test]
fn how_long_it_takes_to_lead_and_to_lead_no_more_is_measured() {
    let (telemetry, recorder) = crate::telemetry::build(&crate::telemetry::Options::default());
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
            telemetry.prometheus().lines().any(|told| told == line)
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
