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
