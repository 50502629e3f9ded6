use drover_events::EventKind;
use drover_events::cluster::SchedulerConfigured;
use drover_events::codec::encode_map;
use drover_events::eval::EvalsDeleted;
use drover_events::model::SchedulerConfiguration;

use super::*;
use crate::engine::scan::Scan;
use crate::tables::evals::Evals;
use crate::tables::job_summaries::JobSummaries;

fn paused(pause: bool) -> SchedulerConfigured {
    let config = SchedulerConfiguration {
        pause_eval_broker: pause,
        ..Default::default()
    };
    SchedulerConfigured { config, cas: false }
}

fn by_filter(token: &str, per_page: u32) -> EvalsDeleted {
    EvalsDeleted {
        filter: "Status == \"complete\"".into(),
        filter_version: 1,
        page_token: token.into(),
        per_page,
        user_initiated: true,
        ..Default::default()
    }
}

fn ids(world: &World) -> Vec<String> {
    world
        .view()
        .scan::<Evals>(Scan::all())
        .map(|eval| eval.unwrap().id)
        .collect()
}

fn many(from: u32, to: u32) -> EvalsDeletedSetup {
    evals((from..to).map(|n| eval(n, "web", "complete")).collect())
}

type EvalsDeletedSetup = drover_events::eval::EvalsUpserted;

fn page(reply: Reply) -> (u64, String) {
    match reply {
        Reply::Page { count, next } => (count, next),
        other => panic!("not a page: {other:?}"),
    }
}

#[test]
fn eval_02_pages_follow_one_another_until_no_token_is_left() {
    let mut world = World::new();
    world.given(many(100, 125));
    world.given(evals(vec![eval(200, "web", "pending")]));
    world.given(paused(true));
    let mut total = 0;
    let mut token = String::new();
    let mut pages = 0;
    loop {
        let (count, next) = page(world.given(by_filter(&token, 10)));
        assert!(count <= 10);
        total += count;
        pages += 1;
        assert!(pages < 100, "{token}");
        token = next;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((total, pages), (25, 3));
    assert_eq!(ids(&world), [id(200)]);
}

#[test]
fn eval_02_the_entry_does_not_grow_with_what_it_deletes() {
    let size = |event: &EvalsDeleted| {
        let mut bytes = Vec::new();
        encode_map(&mut bytes, event, EventKind::EvalsDeleted).unwrap();
        bytes.len()
    };
    let mut world = World::new();
    world.given(paused(true));
    world.given(many(100, 110));
    let small = by_filter("", 1024);
    world.given(many(110, 900));
    let large = by_filter("", 1024);
    assert_eq!(size(&small), size(&large));
    assert!(size(&large) < 200);
    assert!(large.eval_ids.is_empty(), "eval_05: no list of ids");
    assert_eq!(page(world.given(large)), (800, String::new()));
}

#[test]
fn eval_03_the_page_is_made_again_from_what_is_there_by_then() {
    let mut world = World::new();
    world.given(paused(true));
    world.given(many(100, 110));
    // Decided on ten; by the time it is applied, one of them is gone and three are new.
    let decided = by_filter("", 5);
    let one = EvalsDeleted {
        eval_ids: vec![id(100)],
        ..Default::default()
    };
    world.given(one);
    world.given(many(50, 53));
    let (count, next) = page(world.given(decided));
    assert_eq!((count, next), (5, id(103)));
}

#[test]
fn eval_06_what_is_inserted_behind_the_cursor_survives() {
    let mut world = World::new();
    world.given(paused(true));
    world.given(many(100, 110));
    let (_, next) = page(world.given(by_filter("", 5)));
    world.given(many(10, 11));
    let (_, next) = page(world.given(by_filter(&next, 100)));
    assert_eq!((next, ids(&world)), (String::new(), vec![id(10)]));
    world.given(by_filter("", 100));
    assert!(ids(&world).is_empty(), "a second run removes it");
}

#[test]
fn eval_03_a_token_that_names_a_row_gone_goes_on_behind_it() {
    let mut world = World::new();
    world.given(paused(true));
    world.given(many(100, 104));
    assert_eq!(page(world.given(by_filter(&id(90), 2))), (2, id(102)));
    assert_eq!(
        page(world.given(by_filter(&id(103), 9))),
        (1, String::new())
    );
    assert_eq!(ids(&world), [id(102)]);
}

#[test]
fn eval_09_the_broker_is_checked_again_in_apply() {
    let mut world = World::new();
    world.given(many(100, 101));
    world.given(paused(true));
    world.given(paused(false));
    let text = "eval broker is enabled; eval broker must be paused to delete evals";
    assert_eq!(world.refused(by_filter("", 10)), text);
    let by_ids = EvalsDeleted {
        eval_ids: vec![id(100)],
        user_initiated: true,
        ..Default::default()
    };
    assert_eq!(world.refused(by_ids.clone()), text);
    world.given(EvalsDeleted {
        user_initiated: false,
        ..by_ids
    });
}

#[test]
fn ev_12_a_filter_nobody_knows_is_refused_and_a_version_keeps_its_meaning() {
    let mut world = World::new();
    world.given(paused(true));
    world.given(many(100, 101));
    let bad = EvalsDeleted {
        filter: "Status ==".into(),
        ..by_filter("", 1)
    };
    assert!(
        world
            .refused(bad)
            .starts_with("failed to read filter expression: ")
    );
    let newer = EvalsDeleted {
        filter_version: 70_000,
        ..by_filter("", 1)
    };
    assert!(
        world
            .refused(newer)
            .starts_with("failed to read filter expression: ")
    );
}

#[test]
fn a_complete_evaluation_cancels_what_was_blocked() {
    let mut world = World::new();
    world.given(submitted(job("web")));
    world.given(evals(vec![
        eval(1, "web", "blocked"),
        eval(2, "other", "blocked"),
    ]));
    let mut failed = eval(3, "web", "complete");
    failed.failed_tg_allocs.insert("g", Default::default());
    world.given(evals(vec![failed]));
    let status = |world: &World, n| world.view().get::<Evals>(&id(n)).unwrap().unwrap().status;
    assert_eq!(status(&world, 1), "blocked", "it still waits for room");
    world.given(evals(vec![eval(4, "web", "complete")]));
    assert_eq!(status(&world, 1), "canceled");
    assert_eq!(status(&world, 2), "blocked");
    let row = world.view().get::<Evals>(&id(1)).unwrap().unwrap();
    assert_eq!(
        row.status_description,
        format!("evaluation \"{}\" successful", id(4))
    );
    let now = now(&world);
    assert_eq!((row.modify_index, row.modify_time), (world.index, now));
}

#[test]
fn a_plan_is_written_with_its_evaluation() {
    let mut world = running_job();
    world.given(evals(vec![eval(1, "web", "pending")]));
    world.given(placed(vec![alloc(42, "web", 10)], 2));
    let row = world.view().get::<Evals>(&id(1)).unwrap().unwrap();
    let now = now(&world);
    assert_eq!((row.modify_index, row.modify_time), (world.index, now));
    assert_eq!(row.create_index + 1, world.index);
}

#[test]
fn queued_counts_come_from_the_evaluation() {
    let mut world = World::new();
    world.given(submitted(job("web")));
    let mut blocked = eval(1, "web", "blocked");
    blocked.queued_allocations.insert("g", 2);
    world.given(evals(vec![blocked]));
    let row = world
        .view()
        .get::<JobSummaries>(("default", "web"))
        .unwrap()
        .unwrap();
    assert_eq!(row.summary.get("g").unwrap().queued, 2);
}
