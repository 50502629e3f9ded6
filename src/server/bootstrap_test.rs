use std::sync::Arc;

use super::*;
use crate::commands::eval::UpsertEvals;
use crate::commands::job::RegisterJob;
use crate::config::Config;
use crate::proposer::Origin;
use crate::server::Server;
use crate::server::testing::Stopping;
use drover_events::EventKind;
use drover_projections::Table as _;
use drover_projections::tables::evals::Evals;
use drover_testkit::{LONG, eventually, so};

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(Event::kind).collect()
}

async fn started(dir: &std::path::Path) -> Stopping {
    let telemetry = crate::telemetry::install(std::time::Duration::from_secs(10));
    let config = Arc::new(Config::dev());
    let server = Server::start(config, dir, telemetry).await.unwrap();
    server.wait_ready().await;
    Stopping(server)
}

async fn register(server: &Server, id: &str, r#type: &str) -> String {
    let job = Job {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        region: "global".into(),
        node_pool: "default".into(),
        priority: 50,
        r#type: r#type.into(),
        datacenters: vec!["*".to_owned()].into(),
        task_groups: vec![drover_events::model::TaskGroup {
            name: "g".into(),
            count: 1,
            ..Default::default()
        }]
        .into(),
        ..Job::default()
    };
    let eval_id = uuid::Uuid::new_v4().to_string();
    let command = RegisterJob {
        job,
        eval_id: eval_id.clone(),
        ..RegisterJob::default()
    };
    server.submit(command, Origin::default()).await.unwrap();
    eval_id
}

fn first(server: &Server, view: &View, epoch_first: u64) -> Vec<Event> {
    let configured = SchedulerConfiguration::default();
    first_events(view, &server.me, &configured, true, epoch_first).unwrap()
}

/// The jobs that these events evaluate.
fn evaluated(events: &[Event]) -> Vec<&str> {
    let evals = events.iter().flat_map(|event| match event {
        Event::EvalsUpserted(ev) => ev.evals.as_slice(),
        _ => &[],
    });
    evals.map(|eval| eval.job_id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_leader_of_a_restored_epoch_evaluates_every_job() {
    let dir = tempfile::tempdir().unwrap();
    let server = started(dir.path()).await;
    for id in ["one", "two"] {
        register(&server, id, "service").await;
    }
    let view = server.projections.view();
    assert_eq!(kinds(&first(&server, &view, 0)), [EventKind::LeaderElected]);
    let written = view.index();
    let restored = first(&server, &view, written);
    // There is no leader in the epoch before every job was evaluated.
    assert_eq!(
        kinds(&restored),
        [EventKind::EvalsUpserted, EventKind::LeaderElected]
    );
    assert_eq!(evaluated(&restored), ["one", "two"]);
    let Some(Event::EvalsUpserted(ev)) = restored.first() else {
        panic!("{restored:?}")
    };
    assert!(ev.evals.iter().all(|eval| eval.status == "pending"));
    // The epoch had a leader: it was done.
    assert_eq!(kinds(&first(&server, &view, 1)), [EventKind::LeaderElected]);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_killed_among_the_evaluations_goes_on_with_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = started(dir.path()).await;
    for id in ["one", "two", "three"] {
        register(&server, id, "service").await;
    }
    for id in ["one", "two", "three"] {
        quiet(&server, id).await;
    }
    let view = server.projections.view();
    let epoch = view.index();
    let restored = first(&server, &view, epoch);
    let Some(Event::EvalsUpserted(ev)) = restored.first() else {
        panic!("{restored:?}")
    };
    // As much of it as was in the log.
    let evals = vec![ev.evals[1].clone()];
    let part = UpsertEvals {
        evals,
        decision: None,
    };
    server.submit(part, Origin::default()).await.unwrap();
    let view = server.projections.view();
    assert!(view.last_changed_at(Evals::ID) > epoch);
    assert_eq!(evaluated(&first(&server, &view, epoch)), ["one", "two"]);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_over_is_not_run_again_by_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let server = started(dir.path()).await;
    register(&server, "open", "batch").await;
    for (id, kind) in [("paid", "batch"), ("swept", "sysbatch")] {
        register(&server, id, kind).await;
        end(&server, id).await;
    }
    let view = server.projections.view();
    let restored = first(&server, &view, view.index());
    assert_eq!(evaluated(&restored), ["open"]);
    server.shutdown().await;
}

/// Waits until the scheduler has done what it can for the job: there is no node, so that one
/// evaluation waits for a place, and nothing more happens by itself.
async fn quiet(server: &Server, id: &str) {
    let busy = |view: &View| {
        let rows =
            view.rows_by::<EvalsByJob>(Scan::with_key_prefix::<(String, String)>(("default", id)));
        let statuses: Vec<String> = rows.map(|eval| eval.unwrap().status.clone()).collect();
        let waits = statuses
            .iter()
            .any(|status| status == status::eval::BLOCKED);
        !waits
            || statuses
                .iter()
                .any(|status| status == status::eval::PENDING)
    };
    let quiet = || so(!busy(&server.projections.view()));
    eventually("nothing to wait", LONG, quiet).await.unwrap();
}

/// Waits until the job, which has no allocations, is over: as one whose allocations are collected.
async fn end(server: &Server, id: &str) {
    let ended = async {
        loop {
            let view = server.projections.view();
            let job = view.get::<Jobs>(("default", id)).unwrap().unwrap();
            if job.status == status::job::DEAD {
                return;
            }
            let own = Scan::with_key_prefix::<(String, String)>(("default", id));
            let open = view.rows_by::<EvalsByJob>(own);
            let open = open.map(|eval| Evaluation::clone(&eval.unwrap()));
            let evals = open.map(|eval| Evaluation {
                status: status::eval::COMPLETE.to_owned(),
                ..eval
            });
            let command = UpsertEvals {
                evals: evals.collect(),
                decision: None,
            };
            drop(view);
            server.submit(command, Origin::default()).await.unwrap();
        }
    };
    tokio::time::timeout(LONG, ended).await.expect("it is over");
}
