//! Allocations that may run only so long.

use drover_events::model::status::ClientStatus;

use super::*;

/// With a prestart task, a main one and one for the end; it may run for ten seconds.
fn limited() -> Case {
    let mut case = Case::new(&[
        ("a-prep", task(Kind::PrestartOnce)),
        ("b-main", task(Kind::Main)),
        ("c-clean", task(Kind::Poststop)),
    ]);
    case.spec.max_run_duration = Some(10 * SECOND);
    case
}

fn wait_until(case: &mut Case, seconds: i64) {
    while case.now < seconds * SECOND {
        case.input(Input::Tick);
    }
}

#[test]
fn what_has_run_too_long_ends_with_all_its_tasks_and_is_complete() {
    let mut case = limited().begin();
    case.exit("a-prep", 0);
    assert_eq!(
        case.alloc.wakes_at(&case.spec, case.now),
        Some(10 * SECOND),
        "since it came here"
    );
    wait_until(&mut case, 9);
    assert_eq!(case.stops, [""; 0]);
    wait_until(&mut case, 10);
    assert_eq!(case.stops, ["b-main"]);
    assert_eq!(case.status(), "running");
    assert_eq!(case.alloc.wakes_at(&case.spec, case.now), None);
    case.exit("b-main", 130);
    assert_eq!(case.starts, ["a-prep", "b-main"], "nothing begins any more");
    assert_eq!(
        case.alloc.status(),
        (
            ClientStatus::Complete,
            "allocation exceeded max_run_duration"
        )
    );
    assert_eq!(case.postrun, 1);
    assert!(case.events("b-main").contains(&"Task hook message"));
    assert!(!case.events("a-prep").contains(&"Task hook message"));
}

#[test]
fn a_task_for_the_end_has_no_time_of_its_own() {
    let mut case = limited().begin();
    case.exit("a-prep", 0);
    case.exit("b-main", 0);
    assert_eq!(case.starts, ["a-prep", "b-main", "c-clean"]);
    wait_until(&mut case, 10);
    assert_eq!(case.stops, ["c-clean"]);
    case.exit("c-clean", 130);
    assert_eq!(case.status(), "complete");
    assert_eq!(case.postrun, 1);
}

#[test]
fn what_ended_in_time_or_failed_says_nothing_of_it() {
    let mut case = limited().begin();
    for name in ["a-prep", "b-main", "c-clean"] {
        case.exit(name, 0);
    }
    wait_until(&mut case, 20);
    assert_eq!(
        case.alloc.status(),
        (ClientStatus::Complete, "All tasks have completed")
    );

    let mut case = limited().begin();
    case.exit("a-prep", 1);
    assert_eq!(case.starts, ["a-prep", "c-clean"]);
    wait_until(&mut case, 10);
    case.exit("c-clean", 130);
    assert_eq!(case.alloc.status(), (ClientStatus::Failed, "Failed tasks"));
}

#[test]
fn what_never_got_to_its_tasks_ends_in_time_too() {
    let mut case = limited();
    assert_eq!(case.alloc.begin(), [Action::Prerun]);
    wait_until(&mut case, 10);
    assert_eq!(case.starts, [""; 0]);
    assert_eq!(case.status(), "complete");
    assert_eq!(case.postrun, 1);
}

#[test]
fn the_time_goes_on_with_the_next_agent_and_is_what_the_group_says_now() {
    let mut case = limited().begin();
    case.exit("a-prep", 0);
    let kept = rmp_serde::to_vec_named(&case.alloc).unwrap();
    case.alloc = rmp_serde::from_slice(&kept).unwrap();
    case.alloc.begin();
    assert_eq!(case.alloc.ends_at(&case.spec), Some(10 * SECOND));
    // What an older agent wrote does not say when it began.
    case.alloc.began = None;
    let started = case.alloc.tasks["a-prep"].state.started_at.nanos();
    assert!(started > 0);
    assert_eq!(case.alloc.ends_at(&case.spec), Some(started + 10 * SECOND));
    case.spec.max_run_duration = Some(20 * SECOND);
    wait_until(&mut case, 15);
    assert_eq!(case.stops, [""; 0]);
    case.spec.max_run_duration = Some(SECOND);
    case.input(Input::Updated);
    assert_eq!(case.stops, ["b-main"]);
}
