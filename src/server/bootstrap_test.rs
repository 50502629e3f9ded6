use std::sync::Arc;

use super::*;
use crate::commands::job::RegisterJob;
use crate::config::Config;
use crate::raft::Origin;
use crate::server::Server;
use drover_events::EventKind;

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(Event::kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_leader_of_a_restored_epoch_evaluates_every_job() {
    let dir = tempfile::tempdir().unwrap();
    let telemetry = crate::telemetry::install(std::time::Duration::from_secs(10));
    let config = Arc::new(Config::dev());
    let server = Server::start(config, dir.path(), telemetry).await.unwrap();
    server.wait_ready().await;
    let job = |id: &str| drover_events::model::Job {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        region: "global".into(),
        node_pool: "default".into(),
        priority: 50,
        r#type: "service".into(),
        datacenters: vec!["*".to_owned()].into(),
        task_groups: vec![drover_events::model::TaskGroup {
            name: "g".into(),
            count: 1,
            ..Default::default()
        }]
        .into(),
        ..Default::default()
    };
    for id in ["one", "two"] {
        let command = RegisterJob {
            job: job(id),
            eval_id: uuid::Uuid::new_v4().to_string(),
            ..RegisterJob::default()
        };
        server.submit(command, Origin::default()).await.unwrap();
    }
    let first = |view: &View, epoch_first| {
        first_events(
            view,
            &server.me,
            &SchedulerConfiguration::default(),
            true,
            epoch_first,
        )
    };
    let view = server.projections.view();
    assert_eq!(kinds(&first(&view, 0)), [EventKind::LeaderElected]);
    let written = view.table_index_of(Evals::ID);
    let restored = first(&view, written);
    assert_eq!(
        kinds(&restored),
        [EventKind::LeaderElected, EventKind::EvalsUpserted]
    );
    let Some(Event::EvalsUpserted(ev)) = restored.last() else {
        panic!("{restored:?}")
    };
    let jobs: Vec<_> = ev.evals.iter().map(|eval| eval.job_id.as_str()).collect();
    assert_eq!(jobs, ["one", "two"]);
    assert!(ev.evals.iter().all(|eval| eval.status == "pending"));
    // Once evaluations were written in the epoch, no later leader does it again.
    assert_eq!(
        kinds(&first(&view, written - 1)),
        [EventKind::LeaderElected]
    );
    server.shutdown().await;
}

/// A leader that ends between the several events of a restore leaves the rest to the next one.
#[test]
fn what_a_leader_left_of_a_restore_the_next_one_does() {
    use crate::reactors::testing::Direct;
    use crate::scheduler::testing::job;

    let direct = Direct::new();
    for n in 0..2_500 {
        let mut spec = job("service", 1);
        spec.id = format!("job-{n:04}");
        spec.name = spec.id.clone();
        direct.apply(drover_events::job::JobRegistered {
            job: Arc::new(spec),
            ..Default::default()
        });
    }
    let epoch_first = direct.projections.applied_index();
    let left = || evals_of_restored(&direct.projections.view(), epoch_first);
    let counts = |events: &[Event]| -> Vec<usize> {
        let evals = events.iter().map(|event| match event {
            Event::EvalsUpserted(ev) => ev.evals.len(),
            other => panic!("{other:?}"),
        });
        evals.collect()
    };
    let whole = left();
    assert_eq!(counts(&whole), [1_000, 1_000, 500]);
    direct.apply(whole[0].clone());
    let rest = left();
    assert_eq!(
        counts(&rest),
        [1_000, 500],
        "what is there is not made again"
    );
    for event in rest {
        direct.apply(event);
    }
    let view = direct.projections.view();
    let jobs: BTreeSet<String> = view
        .scan::<Evals>(Scan::all())
        .map(|eval| eval.unwrap().job_id)
        .collect();
    assert_eq!(jobs.len(), 2_500, "each once");
    assert!(left().is_empty());
    // Once one was worked on, nothing is made again, whatever is collected later.
    let mut done = view.scan::<Evals>(Scan::all()).next().unwrap().unwrap();
    done.status = "complete".into();
    direct.apply(EvalsUpserted {
        evals: vec![done],
        decision: None,
    });
    direct.apply(drover_events::job::JobRegistered {
        job: Arc::new(job("service", 1)),
        ..Default::default()
    });
    assert!(left().is_empty());
}
