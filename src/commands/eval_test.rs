use drover_events::Event;
use drover_events::model::{ReschedulePolicy, SchedulerConfiguration};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::cluster::SetSchedulerConfig;
use crate::job::RegisterJob;
use crate::testing::{World, alloc, eval, id, job, placed};
use drover_error::Code;

fn pause(world: &mut World, pause_eval_broker: bool) {
    let config = SchedulerConfiguration {
        pause_eval_broker,
        ..Default::default()
    };
    world.done(&SetSchedulerConfig {
        config,
        cas: false,
        initial: false,
    });
}

fn page(filter: &str, token: &str) -> DeleteEvalsPage {
    DeleteEvalsPage {
        filter: filter.into(),
        page_token: token.into(),
    }
}

#[test]
fn eval_01_delete_takes_ids_or_filter() {
    let ids = || vec![id(1)];
    let filter = || "Status == \"complete\"".to_owned();
    assert_eq!(selection(ids(), String::new()), Ok(Selection::Ids(ids())));
    assert_eq!(
        selection(Vec::new(), filter()),
        Ok(Selection::Filter(filter()))
    );
    let both = selection(ids(), filter()).unwrap_err();
    assert_eq!(
        (both.code, both.message.as_str()),
        (
            Code::BadRequest,
            "evals cannot be deleted by both ID and filter"
        )
    );
    let neither = selection(Vec::new(), String::new()).unwrap_err();
    assert_eq!(
        (neither.code, neither.message.as_str()),
        (
            Code::BadRequest,
            "evals must be deleted by either ID or filter"
        )
    );
    assert_eq!(
        selection(Vec::new(), "Status ==".into()).unwrap_err().code,
        Code::BadRequest
    );
}

#[test]
fn eval_08_at_most_7281_ids() {
    let ids = |count: u32| (0..count).map(id).collect();
    assert!(selection(ids(7281), String::new()).is_ok());
    let error = selection(ids(7282), String::new()).unwrap_err();
    assert_eq!(error.code, Code::BadRequest);
    let text = "request includes 7282 evaluation IDs, must be 7281 or fewer";
    assert_eq!(error.message, text);
}

#[test]
fn eval_09_the_broker_must_be_paused() {
    let mut world = World::new();
    world.done(&UpsertEvals {
        evals: vec![eval(1, "complete")],
        decision: None,
    });
    let text = "eval broker is enabled; eval broker must be paused to delete evals";
    let by_ids = DeleteEvals {
        eval_ids: vec![id(1)],
    };
    for refusal in [
        world.refusal(&by_ids),
        world.refusal(&page("ID != \"\"", "")),
    ] {
        assert_eq!(refusal, (Code::Refused, text.to_owned()));
    }
    pause(&mut world, true);
    let Decision::Event { event, guards } = world.decide(&page("ID != \"\"", "")).unwrap() else {
        panic!();
    };
    pause(&mut world, false);
    let outcome = world.append(event, guards);
    assert!(
        matches!(outcome, drover_projections::Outcome::Rejected(_)),
        "checked in apply"
    );
}

#[test]
fn eval_02_a_page_is_a_rule_and_its_reply_leads_to_the_next() {
    let mut world = World::new();
    pause(&mut world, true);
    for from in [0_u32, 500, 1000] {
        let evals = (from..from + 500)
            .map(|n| eval(n + 1, "complete"))
            .collect();
        world.done(&UpsertEvals {
            evals,
            decision: None,
        });
    }
    let filter = "Status == \"complete\"";
    let Event::EvalsDeleted(event) = world.event(&page(filter, "")) else {
        panic!()
    };
    assert!(event.eval_ids.is_empty() && event.per_page == DELETE_PAGE);
    let (mut total, mut token, mut pages) = (0, String::new(), 0);
    loop {
        let Reply::Page { count, next } = world.done(&page(filter, &token)) else {
            panic!()
        };
        total += count;
        pages += 1;
        assert!(pages < 100, "{token}");
        token = next;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((total, pages), (1500, 2));
}

#[test]
fn an_evaluation_that_is_still_needed_is_not_deleted_by_id() {
    let mut world = World::new();
    pause(&mut world, true);
    let mut spec = job("web");
    spec.task_groups[0].reschedule_policy = Some(ReschedulePolicy {
        unlimited: true,
        ..Default::default()
    });
    world.done(&RegisterJob {
        job: spec,
        eval_id: id(1),
        ..Default::default()
    });
    let mut running = alloc(40, "web", 10);
    running.client_status = "running".into();
    world.given(placed(running, 2));
    let delete = DeleteEvals {
        eval_ids: vec![id(1)],
    };
    assert_eq!(
        world.refusal(&delete).1,
        format!("eval {} is not safe to delete", id(1))
    );
    let unknown = DeleteEvals {
        eval_ids: vec![id(9)],
    };
    assert_eq!(world.refusal(&unknown).1, "eval not found");
    let stop = crate::job::DeregisterJob {
        namespace: "default".into(),
        job_id: "web".into(),
        eval_id: id(2),
        ..Default::default()
    };
    world.done(&stop);
    assert_eq!(world.done(&delete), Reply::Count(1));
}

#[test]
fn an_evaluation_tells_when_it_was_made_and_when_it_was_written() {
    let world = World::new();
    let mut old = eval(1, "complete");
    old.create_time = 5;
    old.modify_time = 5;
    let command = UpsertEvals {
        evals: vec![old, eval(2, "pending")],
        decision: None,
    };
    let Event::EvalsUpserted(event) = world.event(&command) else {
        panic!()
    };
    let times = event.evals.iter().map(|e| (e.create_time, e.modify_time));
    let now = world.now();
    assert_eq!(times.collect::<Vec<_>>(), [(5, now), (now, now)]);
    assert_eq!(command.cause(&world.view()), None, "it begins a chain");
}

/// The rows a page looks at, from the first on.
fn row_limit(world: &World, filter: &str) -> u32 {
    match world.event(&page(filter, "")) {
        Event::EvalsDeleted(event) => event.row_limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn eval_04_a_page_looks_at_as_many_rows_as_its_filter_and_they_allow() {
    let mut world = World::new();
    pause(&mut world, true);
    let evals: Vec<_> = (1..=2_000).map(|n| eval(n, "complete")).collect();
    for evals in evals.chunks(500) {
        let evals = evals.to_vec();
        world.done(&UpsertEvals {
            evals,
            decision: None,
        });
    }
    let any = "ID != \"\"";
    assert_eq!(row_limit(&world, any), 0, "not before all servers read it");
    world.raise();
    let page_and_end = DELETE_PAGE + 1;
    assert_eq!(
        row_limit(&world, any),
        page_and_end,
        "a full page, and what ends it"
    );
    let none = row_limit(&world, "ID == \"\"");
    assert_eq!(none, 2_000, "all are looked at for one that is not there");
    // A filter of 500 comparisons, all of which are evaluated.
    let costly = vec!["ID == \"\""; 500].join(" or ");
    let few = row_limit(&world, &costly);
    assert!((1..=200).contains(&few), "{few}");
    // Rows that are large cost as well; one that costs more than a page is for a shorter filter.
    let mut large = eval(1, "complete");
    large.status_description = "x".repeat(20_000);
    let put = |large: &Evaluation| UpsertEvals {
        evals: vec![large.clone()],
        decision: None,
    };
    world.done(&put(&large));
    let fewer = row_limit(&world, &costly);
    assert!((1..few).contains(&fewer), "{fewer} of {few}");
    let mut larger = large.clone();
    larger.status_description = "x".repeat(2_000_000);
    world.done(&put(&larger));
    let refused = world.refusal(&page(&costly, ""));
    assert_eq!(refused.0, Code::Refused);
    assert!(refused.1.contains(&id(1)), "{}", refused.1);
    assert!(refused.1.contains("too costly"), "{}", refused.1);
    let beside = affordable(&world, any);
    assert!((2..page_and_end).contains(&beside), "{beside}");
    assert_eq!(row_limit(&world, any), beside, "a short one may");
    world.done(&put(&large));
    // However small the pages are, in the end everything is gone.
    let matches_all = format!("({costly}) or Status == \"complete\"");
    let (mut total, mut token, mut pages) = (0, String::new(), 0);
    loop {
        let Reply::Page { count, next } = world.done(&page(&matches_all, &token)) else {
            panic!("no page");
        };
        total += count;
        pages += 1;
        assert!(pages < 5_000, "{token}");
        token = next;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(total, 2_000);
    assert!(pages > 10, "{pages}");
}

/// What it costs to look at a row, and that it goes where it matches.
fn cost_of(row: &Evaluation, filter: &filter::Filter) -> u64 {
    let (matches, steps) = filter.matches_in_steps(row).unwrap();
    let bytes = encoded_len(row) as u64;
    look_cost(bytes, steps) + u64::from(matches) * delete_cost(bytes)
}

/// How many rows, from the first on, cost no more than a page may.
fn affordable(world: &World, text: &str) -> u32 {
    let filter = filter::compile(text, filter::FILTER_VERSION).unwrap();
    let (mut rows, mut cost) = (0, 0);
    for row in world.view().scan::<Evals>(drover_projections::Scan::all()) {
        cost += cost_of(&row.unwrap(), &filter);
        if cost > PAGE_COST {
            break;
        }
        rows += 1;
    }
    rows
}

#[test]
fn eval_04_a_page_ends_where_its_cost_or_its_matches_do() {
    let mut world = World::new();
    pause(&mut world, true);
    world.raise();
    for from in [1, 401, 801] {
        let evals = (from..from + 400).map(|n| eval(n, "complete")).collect();
        let decision = None;
        world.done(&UpsertEvals { evals, decision });
    }
    let text = vec!["ID == \"\""; 500].join(" or ");
    let rows = affordable(&world, &text);
    assert!((20..=200).contains(&rows), "{rows}");
    assert_eq!(row_limit(&world, &text), rows);
    let from = |token: u32, filter: &str| match world.event(&page(filter, &id(token))) {
        Event::EvalsDeleted(event) => event.row_limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(from(1_191, &text), 10, "the last ten");
    assert_eq!(from(1, "ID != \"\""), DELETE_PAGE + 1);
}

/// The rows that apply looked at for a page: from its token up to the next one.
fn looked_at(all: &[Evaluation], token: &str, next: &str) -> Vec<Evaluation> {
    let from = |eval: &&Evaluation| token.is_empty() || eval.id.as_str() >= token;
    let before = |eval: &&Evaluation| next.is_empty() || eval.id.as_str() < next;
    all.iter().filter(from).filter(before).cloned().collect()
}

/// Three thousand evaluations, some of them long.
fn fill(world: &mut World) {
    let mut chance = StdRng::seed_from_u64(3);
    let mut draw = |below: usize| chance.random_range(0..below);
    let evals: Vec<_> = (1..=3_000)
        .map(|n| {
            let mut eval = eval(n, ["complete", "failed", "pending"][draw(3)]);
            let long = match draw(40) {
                0 => 20_000,
                1..4 => 3_000,
                _ => draw(300),
            };
            eval.status_description = "x".repeat(long);
            eval.job_id = format!("job-{}", draw(5));
            eval
        })
        .collect();
    for evals in evals.chunks(50) {
        let evals = evals.to_vec();
        let decision = None;
        world.done(&UpsertEvals { evals, decision });
    }
}

/// The work of every apply, counted from what it did and not from what was decided: rows deleted,
/// rows looked at, and what both cost.
#[test]
fn eval_04_no_apply_does_more_than_a_page_may_cost() {
    let mut world = World::new();
    pause(&mut world, true);
    world.raise();
    fill(&mut world);
    let long = vec!["JobID == \"none\""; 120].join(" or ");
    let mut dearest = 0;
    for text in [
        "JobID == \"job-1\"".to_owned(),
        "StatusDescription contains \"y\" or Status == \"failed\"".to_owned(),
        format!("{long} or JobID == \"job-2\""),
        "ID != \"\"".to_owned(),
    ] {
        let filter = filter::compile(&text, filter::FILTER_VERSION).unwrap();
        let (mut token, mut pages) = (String::new(), 0);
        loop {
            pages += 1;
            assert!(pages < 10_000, "{token}");
            let scan = drover_projections::Scan::all();
            let view = world.view();
            let mut all: Vec<_> = view.scan::<Evals>(scan).map(Result::unwrap).collect();
            all.sort_by(|a, b| a.id.cmp(&b.id));
            drop(view);
            let Reply::Page { count, next } = world.done(&page(&text, &token)) else {
                panic!("no page");
            };
            assert!(count <= u64::from(DELETE_PAGE));
            let rows = looked_at(&all, &token, &next);
            assert!(rows.len() as u64 <= DELETE_SCAN_LIMIT);
            let mut cost = 0;
            for row in &rows {
                cost += cost_of(row, &filter);
            }
            assert!(
                cost <= PAGE_COST,
                "{cost} for {} rows of {text:.40}",
                rows.len()
            );
            dearest = dearest.max(cost);
            token = next;
            if token.is_empty() {
                break;
            }
        }
    }
    assert!(
        dearest > PAGE_COST / 2,
        "the bound was never near: {dearest}"
    );
    assert_eq!(
        world
            .view()
            .scan::<Evals>(drover_projections::Scan::all())
            .count(),
        0
    );
}
