//! What a collection passes over, and what lies behind it.

use super::*;
use crate::commands::Command;
use crate::error::Refusal;
use crate::proposer::Committed;
use crate::proposer::decided::{PendingOutcome, Propose};

/// A server on which a job is registered again just before the first thing is removed.
struct Registering {
    direct: Arc<Direct>,
    job: Mutex<Option<Job>>,
}

impl Propose for Registering {
    fn queue(&self, decided: Decided) -> BoxFuture<'_, Result<PendingOutcome, Refusal>> {
        self.direct.queue(decided)
    }

    fn submit(
        &self,
        command: Arc<dyn Command>,
        reactor: &'static str,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        if let Some(job) = self.job.lock().take() {
            let again = RegisterJob {
                job,
                eval_id: uuid::Uuid::new_v4().to_string(),
                ..RegisterJob::default()
            };
            self.direct.command(&again).unwrap();
        }
        self.direct.submit(command, reactor)
    }
}

#[tokio::test]
async fn what_is_passed_over_is_not_counted_as_collected() {
    let direct = Direct::new();
    dead_jobs(&direct, 3);
    let mut job = job_of("batch", 1);
    (job.id, job.name) = ("j-1".into(), "j-1".into());
    let registering = Registering {
        direct: Arc::clone(&direct),
        job: Mutex::new(Some(job)),
    };
    let context = Context {
        proposer: Arc::new(registering),
        clock: Clock::stopped(crate::base::clock::unix_nanos() + 100 * 3600 * SECOND),
        ..context(&direct)
    };
    let gc = CoreGc::new(GcSettings::default());
    let collected = gc.collect(&context, &mut Each::default()).await.unwrap();
    let view = direct.projections.view();
    let left = |id| view.get::<Jobs>(("default", id)).unwrap().is_some();
    assert_eq!(["j-0", "j-1", "j-2"].map(left), [false, true, false]);
    assert_eq!((collected.jobs, collected.evals), (2, 3));
}

#[tokio::test]
async fn an_operator_gets_all_that_goes_whatever_lies_before_it() {
    use crate::reactors::testing::{Fault, Faulty};
    let direct = Direct::new();
    dead_jobs_as(&direct, "a-bad", sweep::BATCH + 10);
    dead_jobs_as(&direct, "z-good", 3);
    let request = Evaluation {
        id: uuid::Uuid::new_v4().to_string(),
        namespace: "-".into(),
        r#type: "_core".into(),
        job_id: "force-gc:1".into(),
        status: "pending".into(),
        ..Evaluation::default()
    };
    direct.apply(EvalsUpserted {
        evals: vec![request.clone()],
        decision: None,
    });
    let bad = Fault::Error(crate::error::Code::Internal);
    let context = Context {
        proposer: Faulty::new(&direct, "a-bad", bad),
        clock: Clock::stopped(crate::base::clock::unix_nanos() + 3600 * SECOND),
        ..context(&direct)
    };
    let gc = CoreGc::new(GcSettings::default());
    let view = || direct.projections.view();
    let done = || {
        view()
            .get::<Evals>(request.id.as_str())
            .unwrap()
            .unwrap()
            .status
            == "complete"
    };
    for _ in 0..10 {
        if done() {
            break;
        }
        gc.obey(&context, &mut Each::default()).await.unwrap();
    }
    assert!(done(), "it is said that it is done");
    let view = view();
    let left = view.scan::<Jobs>(drover_projections::Scan::all());
    let left: Vec<String> = left.map(|job| job.unwrap().id).collect();
    assert!(left.iter().all(|id| id.starts_with("a-bad")), "{left:?}");
    assert_eq!(left.len(), sweep::BATCH + 10);
}
