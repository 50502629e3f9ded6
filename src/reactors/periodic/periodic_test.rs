//! Launches over real projections, at times that the test names.

use drover_events::eval::EvalsUpserted;
use drover_events::job::JobDeregistered;
use drover_events::model::{
    Evaluation, JobChildrenSummary, ParameterizedJobConfig, PeriodicConfig,
};
use drover_projections::{Outcome, query};

use super::*;
use crate::base::clock::Clock;
use crate::commands::job::{DispatchJob, ForceLaunch, RegisterJob};
use crate::reactors::core_gc::{CoreGc, GcSettings};
use crate::reactors::each::Each;
use crate::reactors::testing::{Direct, Idle};
use drover_testkit::fixtures::{SECOND, job};

const MINUTE: i64 = 60 * SECOND;
const KEY: (&str, &str) = ("default", "tick");

fn periodic(spec: &str) -> PeriodicConfig {
    PeriodicConfig {
        enabled: true,
        spec: spec.to_owned(),
        spec_type: "cron".to_owned(),
        ..PeriodicConfig::default()
    }
}

struct Stage {
    direct: Arc<Direct>,
    reactor: PeriodicDispatcher,
    /// The time on the wall: a whole minute at first, after everything was registered.
    now: i64,
}

impl Stage {
    fn new(config: PeriodicConfig) -> Self {
        let stage = Self {
            direct: Direct::new(),
            reactor: PeriodicDispatcher::default(),
            now: 0,
        };
        stage.register(config);
        let submitted = stage.parent().submit_time;
        Self {
            now: (submitted / MINUTE + 10) * MINUTE,
            ..stage
        }
    }

    fn register(&self, config: PeriodicConfig) {
        self.register_as("tick", config);
    }

    fn register_as(&self, id: &str, config: PeriodicConfig) {
        let mut spec = job("batch", 1);
        spec.id = id.into();
        spec.name = id.into();
        spec.periodic = Some(config);
        let register = RegisterJob {
            job: spec,
            eval_id: uuid::Uuid::new_v4().to_string(),
            ..RegisterJob::default()
        };
        self.direct.command(&register).unwrap();
    }

    fn parent(&self) -> Job {
        let view = self.direct.projections.view();
        view.get::<Jobs>(KEY).unwrap().unwrap()
    }

    fn children(&self) -> Vec<Job> {
        let view = self.direct.projections.view();
        let children = query::children_of_job(&view, KEY).unwrap();
        children.into_iter().map(|job| Job::clone(&job)).collect()
    }

    fn launches(&self) -> Vec<i64> {
        let second = |job: &Job| {
            job.id
                .strip_prefix("tick/periodic-")
                .unwrap()
                .parse::<i64>()
        };
        self.children()
            .iter()
            .map(|job| second(job).unwrap() * SECOND)
            .collect()
    }

    fn context(&self) -> Context {
        Context {
            projections: Arc::clone(&self.direct.projections),
            proposer: self.direct.clone(),
            clock: Clock::stopped(self.now),
        }
    }

    async fn activate(&self) -> Activation {
        self.reactor.activate(&self.context()).await.unwrap()
    }

    /// All evaluations of the job's children are done, and so are the children.
    fn end_children(&self) {
        for child in self.children() {
            let eval = Evaluation {
                id: uuid::Uuid::new_v4().to_string(),
                status: "complete".into(),
                ..Evaluation::for_job("", &child, "periodic-job")
            };
            let view = self.direct.projections.view();
            let open = view.by_index::<drover_projections::tables::evals::EvalsByJob>((
                "default",
                child.id.as_str(),
            ));
            let mut evals = vec![eval];
            evals.extend(open.map(|eval| Evaluation {
                status: "complete".into(),
                ..eval.unwrap()
            }));
            let (_, outcome) = self.direct.apply(EvalsUpserted {
                evals,
                decision: None,
            });
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        }
        assert!(self.children().iter().all(Job::is_dead));
    }
}

#[tokio::test]
async fn a_slot_is_launched_once_as_a_child_of_the_job() {
    let mut stage = Stage::new(periodic("* * * * *"));
    stage.now = stage.parent().submit_time;
    let early = stage.activate().await;
    assert!(early.sleep <= MAX_SLEEP && early.status["Tracked"] == 1);
    assert!(
        stage.children().is_empty(),
        "nothing was due since it was registered"
    );
    stage.now = (stage.now / MINUTE + 1) * MINUTE;
    stage.activate().await;
    assert_eq!(stage.launches(), [stage.now]);
    let child = stage.children().remove(0);
    assert_eq!(child.id, format!("tick/periodic-{}", stage.now / SECOND));
    assert_eq!(
        (child.parent_id.as_str(), child.name.as_str()),
        ("tick", child.id.as_str())
    );
    assert!(child.periodic.is_none() && child.status == "pending");
    let view = stage.direct.projections.view();
    let mut evals =
        view.by_index::<drover_projections::tables::evals::EvalsByJob>(("default", &*child.id));
    assert_eq!(evals.next().unwrap().unwrap().triggered_by, "periodic-job");
    assert!(evals.next().is_none());
    for _ in 0..3 {
        stage.activate().await;
        // Another leader has no memory, and the same rows.
        PeriodicDispatcher::default()
            .activate(&stage.context())
            .await
            .unwrap();
    }
    assert_eq!(stage.launches().len(), 1);
    let summary = view_summary(&stage);
    assert_eq!((summary.pending, summary.running, summary.dead), (1, 0, 0));
}

fn view_summary(stage: &Stage) -> drover_events::model::JobChildrenSummary {
    let view = stage.direct.projections.view();
    let row = view.get::<drover_projections::tables::job_summaries::JobSummaries>(KEY);
    row.unwrap().unwrap().children.unwrap()
}

#[tokio::test]
async fn of_many_missed_slots_one_is_caught_up_with() {
    let mut stage = Stage::new(periodic("*/5 * * * *"));
    stage.now += 24 * 60 * MINUTE + 17 * SECOND;
    stage.activate().await;
    let launch_time = stage.now / (5 * MINUTE) * (5 * MINUTE);
    assert_eq!(stage.launches(), [launch_time], "the last of them");
    stage.activate().await;
    stage.now = launch_time + 5 * MINUTE;
    stage.activate().await;
    assert_eq!(stage.launches(), [launch_time, launch_time + 5 * MINUTE]);
}

#[tokio::test]
async fn a_launch_that_is_refused_is_tried_again_and_holds_up_nobody() {
    let mut stage = Stage::new(periodic("* * * * *"));
    let refusing = Context {
        proposer: Arc::new(Idle),
        ..stage.context()
    };
    let failed = stage.reactor.activate(&refusing).await.unwrap();
    let sleep = Duration::from_nanos(AGAIN.unsigned_abs());
    assert_eq!((failed.sleep, &failed.status["Failed"]), (sleep, &1.into()));
    assert!(stage.children().is_empty());
    stage.now += AGAIN;
    stage.activate().await;
    assert_eq!(stage.launches().len(), 1);
}

#[tokio::test]
async fn two_who_launch_the_same_slot_launch_it_once() {
    let stage = Stage::new(periodic("* * * * *"));
    let parent = stage.parent();
    let launch = LaunchPeriodic {
        namespace: "default".into(),
        job_id: "tick".into(),
        job_modify_index: parent.job_modify_index,
        launch_time: stage.now,
    };
    // Both decide before either is applied: the guards let one of them win.
    let view = stage.direct.projections.view();
    let stamp = |n| crate::commands::Stamp {
        id: drover_events::EventId([n; 16]),
        now: stage.now,
    };
    let decide = |n| crate::commands::Command::decide(&launch, &view, &stamp(n)).unwrap();
    let outcomes: Vec<_> = [decide(1), decide(2)]
        .into_iter()
        .map(|decision| match decision {
            crate::commands::Decision::Event { event, guards } => {
                stage.direct.apply_guarded(event, guards).1
            }
            other => panic!("an event: {other:?}"),
        })
        .collect();
    assert!(matches!(outcomes[0], Outcome::Applied(_)), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Rejected(_)), "{outcomes:?}");
    assert_eq!(stage.launches().len(), 1);
    let (_, again) = stage.direct.command(&launch).unwrap();
    assert!(matches!(again, Outcome::Applied(_)));
    assert_eq!(stage.launches().len(), 1, "a retry finds it taken");
}

#[tokio::test]
async fn a_slot_passes_while_a_child_runs_where_the_job_prohibits_overlap() {
    let mut stage = Stage::new(PeriodicConfig {
        prohibit_overlap: true,
        ..periodic("* * * * *")
    });
    let first = stage.now;
    stage.activate().await;
    for _ in 0..3 {
        stage.now += MINUTE;
        stage.activate().await;
    }
    assert_eq!(stage.launches(), [first], "it still runs");
    stage.end_children();
    stage.now += 30 * SECOND;
    stage.activate().await;
    assert_eq!(
        stage.launches(),
        [first],
        "what passed meanwhile is not made up for"
    );
    PeriodicDispatcher::default()
        .activate(&stage.context())
        .await
        .unwrap();
    assert_eq!(stage.launches(), [first], "nor by another leader");
    stage.now = first + 4 * MINUTE;
    stage.activate().await;
    assert_eq!(stage.launches(), [first, first + 4 * MINUTE]);
}

#[tokio::test]
async fn a_child_that_comes_between_decision_and_commit_prohibits_the_launch() {
    let stage = Stage::new(PeriodicConfig {
        prohibit_overlap: true,
        ..periodic("* * * * *")
    });
    let launch = LaunchPeriodic {
        namespace: "default".into(),
        job_id: "tick".into(),
        job_modify_index: stage.parent().job_modify_index,
        launch_time: stage.now,
    };
    let stamp = crate::commands::Stamp {
        id: drover_events::EventId([1; 16]),
        now: stage.now,
    };
    let view = stage.direct.projections.view();
    let decided = crate::commands::Command::decide(&launch, &view, &stamp).unwrap();
    let crate::commands::Decision::Event { event, mut guards } = decided else {
        panic!("an event: {decided:?}");
    };
    let force = ForceLaunch {
        namespace: "default".into(),
        job_id: "tick".into(),
        eval_id: uuid::Uuid::new_v4().to_string(),
    };
    stage.direct.command(&force).unwrap();
    // Of the guards the one about the children is enough.
    let row = view
        .guard::<drover_projections::tables::job_summaries::JobSummaries>(KEY)
        .unwrap();
    guards.retain(|guard| *guard == row);
    assert_eq!(guards.len(), 1);
    let (_, outcome) = stage.direct.apply_guarded(event, guards);
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    assert_eq!(stage.launches().len(), 1);
}

#[tokio::test]
async fn children_that_a_purged_job_left_behind_count_as_overlap() {
    let config = PeriodicConfig {
        prohibit_overlap: true,
        ..periodic("* * * * *")
    };
    let mut stage = Stage::new(config.clone());
    stage.activate().await;
    assert_eq!(stage.launches().len(), 1);
    stage.direct.apply(JobDeregistered {
        namespace: "default".into(),
        job_id: "tick".into(),
        purge: true,
        ..JobDeregistered::default()
    });
    stage.register(config);
    stage.now += MINUTE;
    stage.activate().await;
    assert_eq!(stage.launches().len(), 1, "the former child still runs");
    stage.end_children();
    stage.now += MINUTE;
    stage.activate().await;
    assert_eq!(stage.launches().len(), 2);
}

#[tokio::test]
async fn a_job_that_is_stopped_disabled_or_gone_launches_nothing() {
    let stop = |purge| JobDeregistered {
        namespace: "default".into(),
        job_id: "tick".into(),
        purge,
        ..JobDeregistered::default()
    };
    for what in ["stopped", "purged", "disabled"] {
        let mut stage = Stage::new(periodic("* * * * *"));
        stage.activate().await;
        assert_eq!(stage.launches().len(), 1);
        match what {
            "stopped" => drop(stage.direct.apply(stop(false))),
            "purged" => drop(stage.direct.apply(stop(true))),
            _ => stage.register(PeriodicConfig {
                enabled: false,
                ..periodic("* * * * *")
            }),
        }
        stage.now += 10 * MINUTE;
        stage.activate().await;
        stage.now += MINUTE;
        stage.activate().await;
        assert_eq!(stage.launches().len(), 1, "{what}");
        let children = stage.children();
        assert!(!children[0].stop, "a child outlives its parent: {what}");
    }
}

#[tokio::test]
async fn children_that_are_over_are_collected_and_their_parent_stays() {
    let mut stage = Stage::new(periodic("* * * * *"));
    stage.activate().await;
    stage.end_children();
    let settings = GcSettings::default().forced();
    let context = Context {
        clock: Clock::stopped(stage.now + 24 * 60 * MINUTE),
        ..stage.context()
    };
    CoreGc::new(settings)
        .collect(&context, &mut Each::default())
        .await
        .unwrap();
    assert!(stage.children().is_empty());
    assert_eq!(stage.parent().status, "running");
    assert_eq!(view_summary(&stage).dead, 1, "it is counted still");
    stage.activate().await;
    assert!(stage.children().is_empty(), "its launch time stays taken");
    stage.now += MINUTE;
    stage.activate().await;
    assert_eq!(stage.launches(), [stage.now]);
}

#[test]
fn a_new_specification_has_missed_nothing() {
    let mut spec = job("batch", 1);
    spec.periodic = Some(periodic("0 * * * *"));
    spec.submit_time = 10 * 60 * MINUTE + 30 * MINUTE;
    let launched = 2 * 60 * MINUTE;
    let eleven = 11 * 60 * MINUTE;
    assert_eq!(launch_times::next(&spec, launched), Ok(Some(eleven)));
    let before = eleven - SECOND;
    assert_eq!(
        launch_times::due(&spec, launched, before),
        Ok((None, Some(eleven)))
    );
    assert_eq!(
        launch_times::due(&spec, launched, eleven),
        Ok((Some(eleven), Some(eleven + 60 * MINUTE)))
    );
    assert_eq!(
        launch_times::due(&spec, eleven, eleven),
        Ok((None, Some(eleven + 60 * MINUTE)))
    );
    spec.stop = true;
    assert_eq!(launch_times::due(&spec, launched, eleven), Ok((None, None)));
}

#[test]
fn the_last_of_irregular_slots_is_found() {
    // Every second of one minute a day.
    let mut spec = job("batch", 1);
    spec.periodic = Some(periodic("* 30 4 * * * *"));
    let day = 24 * 60 * MINUTE;
    let burst = 4 * 60 * MINUTE + 30 * MINUTE;
    for (now, launch_time) in [
        (burst, burst),
        (burst + 20 * SECOND + 1, burst + 20 * SECOND),
        (burst + 59 * SECOND, burst + 59 * SECOND),
        (burst + MINUTE, burst + 59 * SECOND),
        (100 * day, 99 * day + burst + 59 * SECOND),
        (
            100 * day + burst + 7 * SECOND,
            100 * day + burst + 7 * SECOND,
        ),
    ] {
        let (found, next) = launch_times::due(&spec, 1, now).unwrap();
        assert_eq!(found, Some(launch_time), "at {now}");
        assert!(next.unwrap() > now);
    }
}

#[tokio::test]
async fn only_jobs_that_changed_or_are_due_are_read() {
    let mut stage = Stage::new(periodic("* * * * *"));
    let others = |name: &str, periodic: Option<PeriodicConfig>| {
        let mut spec = job("batch", 1);
        spec.id = name.into();
        spec.name = name.into();
        spec.periodic = periodic;
        let register = RegisterJob {
            job: spec,
            eval_id: uuid::Uuid::new_v4().to_string(),
            ..RegisterJob::default()
        };
        stage.direct.command(&register).unwrap();
    };
    for number in 0..20 {
        // Due once a year, some time or other.
        let config = periodic(&format!("0 0 {} 1 *", number + 1));
        others(&format!("rare-{number}"), Some(config));
    }
    let read = |stage: &Stage| std::mem::take(&mut stage.reactor.known.lock().read);
    stage.activate().await;
    assert!(read(&stage) >= 21, "all, at first");
    for number in 0..5 {
        others(&format!("other-{number}"), None);
        others("rare-3", Some(periodic("0 0 4 2 *")));
        let reported = stage.activate().await;
        assert_eq!(reported.status["Tracked"], 21);
        assert!(read(&stage) <= 3, "only what changed, and what is due");
    }
    stage.now += MINUTE;
    let launched = stage.activate().await;
    assert_eq!(launched.status["Launched"], 1);
    assert!(read(&stage) <= 3);
}

/// A job as a log of before the limits may hold it: expressions that never come, more of them than
/// can be looked through.
fn endless() -> PeriodicConfig {
    PeriodicConfig {
        specs: vec!["0 0 30 2 *".to_owned(); 20_000].into(),
        ..periodic("")
    }
}

#[tokio::test]
async fn a_job_that_cannot_be_looked_through_is_told_and_keeps_nobody_waiting() {
    let mut stage = Stage::new(periodic("* * * * *"));
    stage.register_as("aaa", endless());
    stage.now += MINUTE;
    stage.activate().await;
    assert_eq!(stage.launches().last(), Some(&stage.now));
    // One that is registered later is found, too, and what did not change is kept.
    stage.register_as("bbb", periodic("@hourly"));
    stage.now += MINUTE;
    let done = stage.activate().await;
    assert_eq!(stage.launches().last(), Some(&stage.now));
    let known = stage.reactor.known.lock().clone();
    let later = known.jobs[&("default".to_owned(), "bbb".to_owned())];
    assert!(later > 0, "{later}");
    assert!(done.sleep >= Duration::from_nanos(AGAIN.unsigned_abs()));
}

#[tokio::test]
async fn what_is_wrong_with_a_schedule_is_in_the_status() {
    let stage = Stage::new(periodic("* * * * *"));
    stage.register_as("aaa", endless());
    let done = stage.activate().await;
    assert!(done.status["Failed"].as_u64() >= Some(1), "{}", done.status);
    let why = done.status["LastError"].as_str().unwrap_or_default();
    assert!(
        why.starts_with("aaa: ") && why.contains("at most 64"),
        "{why}"
    );
}

impl Stage {
    /// A job that is dispatched.
    fn register_work(&self) {
        let mut work = job("batch", 1);
        (work.id, work.name) = ("work".into(), "work".into());
        work.parameterized_job = Some(ParameterizedJobConfig::default());
        let register = RegisterJob {
            job: work,
            eval_id: uuid::Uuid::new_v4().to_string(),
            ..RegisterJob::default()
        };
        self.direct.command(&register).unwrap();
    }
}

/// How many children of a job are pending, running and dead, as its own row says.
fn counts(stage: &Stage, id: &str) -> (i64, i64, i64) {
    let view = stage.direct.projections.view();
    let row = view.get::<drover_projections::tables::job_summaries::JobSummaries>(("default", id));
    let children: JobChildrenSummary = row.unwrap().unwrap().children.unwrap_or_default();
    (children.pending, children.running, children.dead)
}

/// Children of both kinds, as the parents' own rows count them.
#[tokio::test]
async fn a_parent_counts_what_it_launched_and_what_was_dispatched_from_it() {
    let mut stage = Stage::new(periodic("* * * * *"));
    stage.register_work();
    let both = |stage: &Stage| (counts(stage, "tick"), counts(stage, "work"));
    assert_eq!(both(&stage), ((0, 0, 0), (0, 0, 0)));
    for number in 0..3 {
        stage.activate().await;
        stage.now += MINUTE;
        let dispatch = DispatchJob {
            namespace: "default".into(),
            job_id: "work".into(),
            child_id: format!("work/dispatch-{number}"),
            eval_id: uuid::Uuid::new_v4().to_string(),
            ..DispatchJob::default()
        };
        stage.direct.command(&dispatch).unwrap();
    }
    assert_eq!(both(&stage), ((3, 0, 0), (3, 0, 0)));
    // One of each is stopped, one of each is purged.
    let launch_times = stage.launches();
    let children = |number: usize| {
        let launched = format!("tick/periodic-{}", launch_times[number] / SECOND);
        [launched, format!("work/dispatch-{number}")]
    };
    for (number, purge) in [(0, false), (1, true)] {
        for job_id in children(number) {
            stage.direct.apply(JobDeregistered {
                namespace: "default".into(),
                job_id,
                purge,
                ..JobDeregistered::default()
            });
        }
    }
    // What was purged counts as dead; what was stopped is pending while an evaluation has to look
    // at it.
    assert_eq!(both(&stage), ((2, 0, 1), (2, 0, 1)));
    let view = stage.direct.projections.view();
    let evals =
        view.scan::<drover_projections::tables::evals::Evals>(drover_projections::Scan::all());
    let of_stopped = evals.map(Result::unwrap);
    let stopped = children(0);
    let of_stopped = of_stopped.filter(|eval| stopped.contains(&eval.job_id));
    let done = of_stopped.map(|eval| Evaluation {
        status: "complete".into(),
        ..eval
    });
    let evals: Vec<Evaluation> = done.collect();
    assert_eq!(evals.len(), 2);
    drop(view);
    stage.direct.apply(EvalsUpserted {
        evals,
        decision: None,
    });
    assert_eq!(both(&stage), ((1, 0, 2), (1, 0, 2)));
    // One of each is gone; the parents do not count as their own children.
    let view = stage.direct.projections.view();
    let summaries = [counts(&stage, "tick"), counts(&stage, "work")];
    for ((_, id), (pending, running, dead)) in [KEY, ("default", "work")].iter().zip(summaries) {
        let children = query::children_of_job(&view, ("default", id)).unwrap();
        assert_eq!(children.len() as i64 + 1, pending + running + dead, "{id}");
    }
}
