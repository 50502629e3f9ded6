//! A row that cannot be read starves no other: whatever walks over all rows leaves it out, counts
//! it, and deals with the rest.

use std::sync::Arc;
use std::time::Duration;

use drover_events::acl::{OneTimeTokensUpserted, SealedSecret};
use drover_events::eval::EvalsUpserted;
use drover_events::gojson::Time;
use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_events::model::{Evaluation, OneTimeToken};
use drover_projections::tables::acl_tokens::AclTokens;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::node_use::NodeUses;
use drover_projections::tables::nodes::Nodes;
use drover_projections::tables::one_time_tokens::OneTimeTokens;
use drover_projections::{Id, Outcome, Table};
use drover_testkit::fixtures::SECOND;
use drover_testkit::{LONG, eventually, so};
use serde_json::{Value, json};

use super::core_gc::{CoreGc, GcSettings};
use super::deployment_watcher::DeploymentWatcher;
use super::drainer::Drainer;
use super::each::Each;
use super::heartbeat_expiry::{HeartbeatExpiry, HeartbeatSettings, Heartbeats};
use super::live_key_sets::LiveKeySets;
use super::periodic::PeriodicDispatcher;
use super::runner::Reactor;
use super::scheduling::Scheduling;
use super::scheduling::broker::BrokerSettings;
use super::scheduling::core::Core;
use super::starvation_rest_test::{accessor, add_tokens};
use super::starvation_test::{
    LATER, add_deployment, add_eval, add_job, add_node, context, drain, has_child, periodic,
    scheduling, uuid, wait,
};
use super::testing::{Direct, Fault, Faulty, alter, spoil};
use super::token_expiry::TokenExpiry;
use super::volume_watcher::VolumeWatcher;
use crate::base::clock::unix_nanos;
use crate::commands::csi::RegisterVolumes;
use crate::commands::eval::UpsertEvals;
use crate::commands::node::MissHeartbeat;
use crate::error::Code;
use crate::scheduling_view::cache::Cache;
use crate::volumes::harness::{self, World};

/// The same after a restart, with one row damaged.
fn damaged<T: Table>(direct: Arc<Direct>, key: &T::Key) -> Arc<Direct> {
    direct.reopened(|database| spoil::<T>(database, key))
}

/// One activation at this time; what it says.
fn look(reactor: &dyn Reactor, direct: &Arc<Direct>, now: i64) -> Value {
    let context = context(direct, direct.clone(), now);
    wait(reactor.activate(&context)).unwrap().status
}

#[test]
fn nodes_are_given_up_though_the_state_of_one_cannot_be_read() {
    let direct = Direct::new();
    let ids: Vec<String> = (0..3).map(|number| add_node(&direct, number)).collect();
    let direct = damaged::<NodeStates>(direct, &Id::new(ids[1].as_str()));
    let heartbeats = Heartbeats::new(HeartbeatSettings {
        failover_ttl: Duration::ZERO,
        ..HeartbeatSettings::default()
    });
    let expiry = HeartbeatExpiry::new(Arc::clone(&heartbeats));
    let status = look(&expiry, &direct, LATER);
    assert_eq!(status["Failed"], 1, "{status}");
    let view = direct.projections.view();
    for (n, id) in ids.iter().enumerate() {
        let state = view.get::<NodeStates>(id.as_str());
        match n {
            1 => assert!(state.unwrap_err().is_single_entry()),
            _ => assert_eq!(state.unwrap().unwrap().status, "down", "{id}"),
        }
    }
    let status = look(&expiry, &direct, LATER + SECOND);
    assert_eq!(status["Failed"], 0, "they are read once: {status}");
    assert!(heartbeats.is_empty());
}

#[test]
fn deployments_fail_though_one_cannot_be_read() {
    let direct = Direct::new();
    let of_a_job = |n: usize| {
        let job = format!("j-{n}");
        add_job(&direct, &job, 2, n);
        add_deployment(&direct, 10 + n, &job, "running")
    };
    let ids: Vec<String> = (0..4).map(of_a_job).collect();
    let direct = damaged::<Deployments>(direct, &Id::new(ids[2].as_str()));
    let status = look(&DeploymentWatcher::default(), &direct, LATER);
    assert_eq!(
        (&status["Failed"], &status["Steps"]),
        (&json!(1), &json!(3)),
        "{status}"
    );
    let view = direct.projections.view();
    for id in [&ids[0], &ids[1], &ids[3]] {
        let row = view.get::<Deployments>(id.as_str()).unwrap().unwrap();
        assert_eq!(row.status, "failed", "{id}");
    }
}

#[test]
fn drains_end_though_a_node_cannot_be_read() {
    let direct = Direct::new();
    let ids: Vec<String> = (0..3).map(|number| add_node(&direct, number)).collect();
    ids.iter().for_each(|id| drain(&direct, id));
    let direct = damaged::<Nodes>(direct, &Id::new(ids[0].as_str()));
    let status = look(&Drainer::default(), &direct, unix_nanos());
    assert_eq!(
        (&status["Failed"], &status["Completed"]),
        (&json!(1), &json!(2)),
        "{status}"
    );
    let view = direct.projections.view();
    for id in &ids[1..] {
        let node = view.get::<Nodes>(id.as_str()).unwrap().unwrap();
        assert!(node.drain_strategy.is_none(), "{id}");
    }
}

#[test]
fn jobs_are_launched_though_one_cannot_be_read() {
    let direct = Direct::new();
    let ids: Vec<String> = (0..3).map(|n| format!("tick-{n}")).collect();
    ids.iter().for_each(|id| periodic(&direct, id));
    let direct = damaged::<Jobs>(direct, &("default".to_owned(), ids[0].clone()));
    let now = unix_nanos() + 3600 * SECOND;
    let status = look(&PeriodicDispatcher::default(), &direct, now);
    assert_eq!(
        (&status["Failed"], &status["Launched"]),
        (&json!(1), &json!(2)),
        "{status}"
    );
    let launched: Vec<bool> = ids.iter().map(|id| has_child(&direct, id)).collect();
    assert_eq!(launched, [false, true, true]);
}

/// What is over: a node, an evaluation, a deployment, a job and an evaluation of the job.
fn add_what_is_over(direct: &Direct, n: usize) -> [String; 5] {
    let node_id = add_node(direct, n);
    let missed = MissHeartbeat {
        node_id: node_id.clone(),
    };
    direct.command(&missed).unwrap();
    let eval = add_eval(direct, 10 + n, &format!("gone-{n}"), "complete");
    let deployment = add_deployment(direct, 20 + n, &format!("gone-{n}"), "failed");
    let job = format!("job-{n}");
    let of_job = add_job(direct, &job, 0, 30 + n);
    let view = direct.projections.view();
    let mut done = view.get::<Evals>(of_job.as_str()).unwrap().unwrap();
    drop(view);
    done.status = "complete".into();
    direct.apply(EvalsUpserted {
        evals: vec![done],
        decision: None,
    });
    [node_id, eval, deployment, job, of_job]
}

/// Which of the rows exist.
fn there(direct: &Direct, ids: &[String; 5]) -> [bool; 5] {
    let view = direct.projections.view();
    let [node, eval, deployment, job, of_job] = ids.each_ref().map(String::as_str);
    [
        view.modify_index::<Nodes>(node),
        view.modify_index::<Evals>(eval),
        view.modify_index::<Deployments>(deployment),
        view.modify_index::<Jobs>(("default", job)),
        view.modify_index::<Evals>(of_job),
    ]
    .map(|row| row.unwrap().is_some())
}

#[test]
fn what_is_over_goes_though_a_row_of_it_cannot_be_read() {
    for bad in 0..5 {
        let direct = Direct::new();
        let all = [0, 1, 2].map(|n| add_what_is_over(&direct, n));
        let key = Id::new(all[1][bad].as_str());
        let direct = match bad {
            0 => damaged::<Nodes>(direct, &key),
            2 => damaged::<Deployments>(direct, &key),
            3 => damaged::<Jobs>(direct, &("default".to_owned(), all[1][3].clone())),
            _ => damaged::<Evals>(direct, &key),
        };
        let gc = CoreGc::new(GcSettings::default());
        let context = context(&direct, direct.clone(), LATER);
        let mut each = Each::default();
        for _ in 0..2 {
            wait(gc.collect(&context, &mut each)).unwrap();
        }
        assert!(each.failed() > 0, "{bad}");
        // A job and its evaluations go together.
        let mut left = [false; 5];
        left[bad] = true;
        (left[3], left[4]) = (bad >= 3, bad >= 3);
        assert_eq!(there(&direct, &all[1]), left, "{bad}");
        for others in [&all[0], &all[2]] {
            assert_eq!(there(&direct, others), [false; 5], "{bad}");
        }
    }
}

/// Three things that are over, in a database of which `damage` then spoils part of the second: they
/// are removed but for what apply cannot read in full, and applying continues.
fn collect_but(
    damage: impl FnOnce(Arc<Direct>, &[String; 5]) -> Arc<Direct>,
    left: [bool; 5],
    more: impl Fn(&Direct, usize),
) {
    let direct = Direct::new();
    let all = [0, 1, 2].map(|n| {
        let ids = add_what_is_over(&direct, n);
        more(&direct, n);
        ids
    });
    let direct = damage(direct, &all[1]);
    let gc = CoreGc::new(GcSettings::default());
    let context = context(&direct, direct.clone(), LATER);
    let mut each = Each::default();
    for _ in 0..2 {
        wait(gc.collect(&context, &mut each)).unwrap();
    }
    assert!(each.failed() > 0);
    assert_eq!(there(&direct, &all[1]), left);
    for others in [&all[0], &all[2]] {
        assert_eq!(there(&direct, others), [false; 5]);
    }
    add_node(&direct, 90);
}

/// Applying the deletion of an evaluation looks at the deployments of its job.
#[test]
fn what_is_over_goes_though_a_deployment_of_one_job_cannot_be_read() {
    let damage = |direct, _: &[String; 5]| damaged::<Deployments>(direct, &Id::new(uuid(41)));
    let more = |direct: &Direct, n: usize| {
        add_deployment(direct, 40 + n, &format!("job-{n}"), "failed");
    };
    collect_but(damage, [false, false, false, true, true], more);
}

#[test]
fn what_is_over_goes_though_what_goes_with_one_of_it_cannot_be_read() {
    let key = |ids: &[String; 5]| ("default".to_owned(), ids[3].clone());
    let nothing = |_: &Direct, _: usize| {};
    // Its evaluation changes the job's summary, or goes before the job does.
    let left = |of_job| [false, false, false, true, of_job];
    let damage = |direct, ids: &[String; 5]| {
        let (namespace, id) = key(ids);
        damaged::<JobVersions>(direct, &(namespace, id, 0))
    };
    collect_but(damage, left(false), nothing);
    let damage = |direct, ids: &[String; 5]| damaged::<JobSummaries>(direct, &key(ids));
    collect_but(damage, left(false), nothing);
    let damage = |direct, ids: &[String; 5]| damaged::<NodeUses>(direct, &Id::new(ids[0].as_str()));
    collect_but(damage, [true, false, false, false, false], nothing);
}

#[test]
fn what_an_operator_asks_for_is_done_though_what_another_asked_for_cannot_be_read() {
    let direct = Direct::new();
    let request = |number: usize| Evaluation {
        id: uuid(number),
        namespace: "-".into(),
        r#type: "_core".into(),
        job_id: format!("force-gc:{number}"),
        status: "pending".into(),
        ..Evaluation::default()
    };
    direct.apply(EvalsUpserted {
        evals: vec![request(1), request(2)],
        decision: None,
    });
    let direct = damaged::<Evals>(direct, &Id::new(uuid(1)));
    let status = look(&CoreGc::new(GcSettings::default()), &direct, unix_nanos());
    assert!(status["Failed"].as_u64() >= Some(1), "{status}");
    let view = direct.projections.view();
    let done = view.get::<Evals>(uuid(2).as_str()).unwrap().unwrap();
    assert_eq!(done.status, "complete");
}

/// Four tokens that have expired, and two that never do, with one-time tokens that have run out.
fn with_tokens(now: i64) -> Arc<Direct> {
    let direct = Direct::new();
    add_tokens(&direct, 0..4, Some(now - 1));
    add_tokens(&direct, 4..6, None);
    for number in 4..6 {
        add_one_time_token(&direct, number, now - 1);
    }
    direct
}

fn add_one_time_token(direct: &Direct, number: usize, expires: i64) {
    direct.apply(OneTimeTokensUpserted {
        token: OneTimeToken {
            accessor_id: accessor(number),
            expires_at: Time(expires),
            ..OneTimeToken::default()
        },
        secret: SealedSecret::default(),
    });
}

/// How many tokens and one-time tokens two activations removed, and what failed.
fn removed(direct: &Arc<Direct>, now: i64) -> [[u64; 3]; 2] {
    let reactor = TokenExpiry::new(Duration::ZERO);
    [(); 2].map(|()| {
        let status = look(&reactor, direct, now);
        let number = |what: &str| status[what].as_u64().unwrap();
        ["Removed", "OneTimeRemoved", "Failed"].map(number)
    })
}

#[test]
fn tokens_go_though_one_cannot_be_read() {
    let now = unix_nanos();
    let direct = damaged::<AclTokens>(with_tokens(now), &Id::new(accessor(2)));
    assert_eq!(removed(&direct, now), [[3, 2, 1], [0, 0, 1]]);
}

/// One-time tokens are removed by a rule, and applying that would stop at the unreadable one:
/// beside it, the others are removed by their names.
#[test]
fn a_one_time_token_that_cannot_be_read_keeps_no_other_and_is_not_come_to() {
    let now = unix_nanos();
    let direct = damaged::<OneTimeTokens>(with_tokens(now), &Id::new(accessor(5)));
    assert_eq!(removed(&direct, now), [[4, 1, 1], [0, 0, 1]]);
    let left = direct.projections.view();
    assert!(
        left.get::<OneTimeTokens>(accessor(4).as_str())
            .unwrap()
            .is_none()
    );
    drop(left);
    add_node(&direct, 1);
}

/// Beside an unreadable one they are removed by their names: one that cannot be keeps no other.
#[test]
fn one_time_tokens_go_whichever_of_them_cannot_beside_one_that_cannot_be_read() {
    let now = unix_nanos();
    for bad in [0, 5, 8] {
        let direct = Direct::new();
        add_tokens(&direct, 0..9, None);
        (0..9).for_each(|number| add_one_time_token(&direct, number, now - 1));
        let direct = damaged::<OneTimeTokens>(direct, &Id::new(accessor(3)));
        let faulty = Faulty::new(&direct, &accessor(bad), Fault::Error(Code::Internal));
        let context = context(&direct, faulty.clone(), now);
        let reactor = TokenExpiry::new(Duration::ZERO);
        let removed = || {
            let status = wait(reactor.activate(&context)).unwrap().status;
            let number = |what: &str| status[what].as_u64().unwrap();
            ["OneTimeRemoved", "Failed"].map(number)
        };
        assert_eq!(removed(), [7, 2], "{bad}");
        faulty.heal();
        assert_eq!([removed(), removed()], [[0, 1], [1, 1]], "it has its turn");
    }
}

/// A row of which nothing is left: since when it is there nobody can say.
#[test]
fn sets_of_live_keys_are_made_though_a_row_of_one_table_cannot_be_read() {
    let direct = Direct::new();
    let id = Id::new(add_node(&direct, 1));
    let direct = direct.reopened(|database| alter::<Nodes>(database, &id, Vec::clear));
    let status = look(&LiveKeySets::default(), &direct, LATER);
    assert_eq!(
        (&status["Failed"], &status["Newest"]),
        (&json!(1), &json!(0)),
        "{status}"
    );
}

#[test]
fn evaluations_are_taken_though_one_cannot_be_read() {
    let direct = Direct::new();
    add_eval(&direct, 1, "a", "pending");
    let load = |direct: &Direct| {
        let view = direct.projections.view();
        Core::load(&view, BrokerSettings::default(), LATER).unwrap()
    };
    let mut core = load(&direct);
    // It follows what comes, and the next leader reads all there is.
    let bad = add_eval(&direct, 2, "b", "pending");
    add_eval(&direct, 3, "c", "pending");
    let direct = damaged::<Evals>(direct, &Id::new(bad));
    core.catch_up(&direct.projections.view(), LATER).unwrap();
    assert_eq!(core.followed(), direct.projections.applied_index());
    for core in [core, load(&direct)] {
        assert_eq!((core.broker.stats().ready, core.unread().0), (2, 1));
    }
}

/// What runs on the node stays there, and nothing comes to it.
#[tokio::test(flavor = "multi_thread")]
async fn scheduling_begins_though_a_node_cannot_be_read_and_says_so() {
    let direct = Direct::new();
    let ids: Vec<String> = (0..3).map(|number| add_node(&direct, number)).collect();
    add_eval(&direct, 1, "a", "pending");
    let direct = damaged::<Nodes>(direct, &Id::new(ids[1].as_str()));
    let view = direct.projections.view();
    let core = Core::load(&view, BrokerSettings::default(), LATER).unwrap();
    drop(view);
    assert_eq!((core.broker.stats().ready, core.unread().0), (1, 1));
    let state = |id: &String| {
        let node = core.cache.cluster().node(id).unwrap();
        (node.ready, node.node.status == "down")
    };
    let states: Vec<_> = ids.iter().map(state).collect();
    assert_eq!(states, [(true, false), (false, false), (true, false)]);
    let (projections, settings) = (Arc::clone(&direct.projections), Default::default());
    let scheduling = Scheduling::start(projections, direct, settings).unwrap();
    let status = serde_json::to_value(scheduling.status()).unwrap();
    assert_eq!(status["Failed"], 1, "{status}");
    let why = status["LastError"].as_str().unwrap();
    assert!(why.starts_with("left out: "), "{why}");
    assert_eq!(status.get("BlockedJobs"), None);
    tokio::task::block_in_place(|| drop(scheduling));
}

/// The tables were made again: it gets what it can take once more.
#[test]
fn a_node_that_can_be_read_again_is_open_again() {
    let direct = Direct::new();
    let ids: Vec<String> = (0..2).map(|number| add_node(&direct, number)).collect();
    let sound = Direct::new();
    let same: Vec<String> = (0..2).map(|number| add_node(&sound, number)).collect();
    assert_eq!(ids, same);
    let direct = damaged::<Nodes>(direct, &Id::new(ids[1].as_str()));
    let view = direct.projections.view();
    let mut cache = Cache::load(&view).unwrap();
    let ready = |cache: &Cache| {
        let each = ids.iter().map(|id| cache.cluster().node(id).unwrap().ready);
        each.collect::<Vec<_>>()
    };
    assert!(cache.has_closed() && ready(&cache) == [true, false]);
    assert_eq!(cache.reopen(&view), []);
    assert!(
        cache.has_closed() && ready(&cache) == [true, false],
        "it is as it was"
    );
    let freed = cache.reopen(&sound.projections.view());
    assert!(!cache.has_closed() && ready(&cache) == [true, true]);
    assert_eq!(
        freed.iter().map(|one| &one.node_id).collect::<Vec<_>>(),
        [&ids[1]]
    );
}

/// Applying the end of an evaluation looks at the open ones of its job.
#[test]
fn nothing_is_scheduled_of_a_job_with_an_evaluation_that_cannot_be_read() {
    let direct = Direct::new();
    add_eval(&direct, 1, "a", "pending");
    let mut core =
        Core::load(&direct.projections.view(), BrokerSettings::default(), LATER).unwrap();
    add_eval(&direct, 2, "b", "blocked");
    let bad = add_eval(&direct, 3, "b", "blocked");
    let next = add_eval(&direct, 4, "b", "pending");
    let direct = damaged::<Evals>(direct, &Id::new(bad));
    let view = direct.projections.view();
    core.catch_up(&view, LATER).unwrap();
    let loaded = Core::load(&view, BrokerSettings::default(), LATER).unwrap();
    for core in [core, loaded] {
        let (broker, blocked) = (core.broker.stats(), core.blocked.stats());
        assert_eq!((broker.ready, broker.pending, blocked.total), (1, 0, 0));
    }
    // One that was worked on already.
    let mut done = view.get::<Evals>(next.as_str()).unwrap().unwrap();
    drop(view);
    done.status = "complete".into();
    let end = UpsertEvals {
        evals: vec![done],
        decision: None,
    };
    let refused = direct.command(&end).unwrap_err();
    assert_eq!(refused.code, Code::Internal, "{refused}");
    add_node(&direct, 1);
}

/// Nothing says of an error whether it is of such a row: once one was met, what fails for another
/// reason is tried again after a while, and not with other tables alone.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_fails_for_another_reason_is_written_after_a_while() {
    let elsewhere = Direct::new();
    let unread = add_eval(&elsewhere, 9, "other", "pending");
    let elsewhere = damaged::<Evals>(elsewhere, &Id::new(unread.as_str()));
    let read = elsewhere.projections.view().get::<Evals>(unread.as_str());
    assert!(read.unwrap_err().is_single_entry());

    let direct = Direct::new();
    direct.first_key();
    add_node(&direct, 1);
    let bad = add_job(&direct, "bad", 1, 1);
    let faulty = Faulty::new(&direct, "\"bad\"", Fault::Error(Code::Internal));
    let scheduling = scheduling(&direct, faulty.clone());
    let given_up = || match scheduling.status() {
        status if status.ready + status.unacked + status.waiting == 0 => Ok(()),
        status => Err(format!("{status:?}")),
    };
    eventually("it was given up", LONG, given_up).await.unwrap();
    faulty.heal();
    let written = || {
        let row = direct.projections.view().get::<Evals>(bad.as_str());
        so(row.unwrap().unwrap().status == "failed")
    };
    eventually("its end is written", LONG, written)
        .await
        .unwrap();
    tokio::task::block_in_place(|| drop(scheduling));
}

/// Time passes between the look and the removal, which goes no further than was looked.
#[test]
fn a_one_time_token_that_was_not_looked_at_is_not_come_to() {
    let now = unix_nanos() - 60 * SECOND;
    let direct = Direct::new();
    add_tokens(&direct, 3..6, None);
    for (number, expires) in [(3, now - 1), (4, now + 1), (5, now + 2)] {
        add_one_time_token(&direct, number, expires);
    }
    let direct = damaged::<OneTimeTokens>(direct, &Id::new(accessor(5)));
    assert_eq!(removed(&direct, now), [[0, 1, 0], [0, 0, 0]]);
    add_node(&direct, 1);
}

/// A volume that an allocation had when it ended.
fn add_volume(direct: &Direct, number: usize) -> String {
    let id = format!("data-{number}");
    let command = RegisterVolumes {
        volumes: vec![harness::volume(&id, ONE)],
    };
    direct.command(&command).unwrap();
    let job = format!("job-{number}");
    let (index, _) = direct.apply(harness::submitted(&job, &id, (ONE, false)));
    direct.apply(harness::placed((number, 0), (&job, index)));
    let alloc = harness::alloc_id(number);
    let (_, outcome) = direct.apply(harness::published(&id, &alloc, ONE));
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    direct.apply(harness::reported(&alloc, "complete"));
    id
}

#[tokio::test]
async fn volumes_are_freed_though_one_cannot_be_read() {
    let direct = Direct::new();
    direct.apply(harness::barrier());
    direct.apply(harness::registered(0, &harness::node_id(0), (true, false)));
    let ids = [0, 1, 2].map(|number| add_volume(&direct, number));
    let bad = ("default".to_owned(), ids[1].clone());
    let world = World::on(damaged::<CsiVolumes>(direct, &bad));
    let watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let context = context(&world.direct, world.direct.clone(), unix_nanos());
    let status = watcher.activate(&context).await.unwrap().status;
    assert_eq!(
        (&status["Failed"], &status["Workers"]),
        (&json!(1), &json!(2)),
        "{status}"
    );
    for id in [&ids[0], &ids[2]] {
        let free = || so(!world.row(id).in_use());
        eventually("it is free", LONG, free).await.unwrap();
    }
    // What happens then is followed, and nothing is looked at again that did not change.
    let status = watcher.activate(&context).await.unwrap().status;
    assert_eq!(status["Failed"], 0, "{status}");
}
