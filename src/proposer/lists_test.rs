//! Lists of real sizes: what is cut and applied part after part is the whole change.

use drover_events::EventKind;
use drover_events::model::status::client;
use drover_events::model::{Allocation, Job};
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_projections::Scan;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::evals::Evals;
use drover_testkit::fixtures::node;

use super::fit::rows;
use super::*;
use crate::commands::alloc::UpdateAllocsFromClient;
use crate::commands::job::RegisterJob;
use crate::commands::limits::PAGE_ROWS;
use crate::commands::node::{DeregisterNodes, MissHeartbeat, RegisterNode};
use crate::reactors::testing::Direct;

fn id(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// A server with one node.
fn with_node() -> Arc<Direct> {
    let direct = Direct::new();
    let register = RegisterNode {
        node: node(10),
        create_node_pool: false,
    };
    direct.command(&register).unwrap();
    direct
}

/// Registers a job; its index.
fn register(direct: &Direct, name: String, number: usize) -> u64 {
    let job = Job {
        id: name.as_str().into(),
        name: name.as_str().into(),
        ..drover_testkit::fixtures::job("service", 2)
    };
    let register = RegisterJob {
        job,
        eval_id: id(100_000 + number),
        ..RegisterJob::default()
    };
    direct.command(&register).unwrap().0
}

fn alloc(number: usize, job: &str) -> Allocation {
    Allocation {
        id: id(200_000 + number),
        namespace: "default".into(),
        eval_id: id(1),
        name: format!("{job}.g[{number}]"),
        node_id: node(10).id,
        job_id: job.into(),
        task_group: "g".into(),
        desired_status: "run".into(),
        client_status: "pending".into(),
        ..Allocation::default()
    }
}

/// Places allocations of a job on the node.
fn place(direct: &Direct, numbers: std::ops::Range<usize>, job: &str, job_modify_index: u64) {
    let placed = numbers.map(|number| PlacedAlloc {
        alloc: Box::new(alloc(number, job)),
        job_modify_index,
    });
    let plan = PlanApplied {
        placed: placed.collect(),
        updated_at: 1,
        ..PlanApplied::default()
    };
    let (_, outcome) = direct.apply(plan);
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
}

/// Decides, cuts and applies until the last page; the events it took.
fn events(direct: &Direct, command: &dyn Command) -> Vec<Event> {
    let mut all = Vec::new();
    for _ in 0..1_000 {
        let stamp = Stamp {
            id: new_id(),
            now: unix_nanos(),
        };
        let decision = command.decide(&direct.projections.view(), &stamp);
        let (event, guards, more) = match decision.unwrap() {
            Decision::Event { event, guards } => (event, guards, false),
            Decision::Page { event, guards } => (event, guards, true),
            Decision::Nothing(_) => return all,
        };
        for (event, guards) in fit(event, guards, |e, g| Ok((e, g))).unwrap() {
            assert!(rows(&event) <= PAGE_ROWS, "{:?}", event.kind());
            all.push(event.clone());
            let (_, outcome) = direct.apply_guarded(event, guards);
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        }
        if !more {
            return all;
        }
    }
    panic!("pages without end");
}

#[test]
fn a_node_with_thousands_of_jobs_that_is_lost_has_each_looked_at_again() {
    const JOBS: usize = 3_000;
    let direct = with_node();
    for number in 0..JOBS {
        let name = format!("job-{number}");
        let index = register(&direct, name.clone(), number);
        place(&direct, number..number + 1, &name, index);
    }
    let missed = MissHeartbeat {
        node_id: node(10).id,
    };
    let done = events(&direct, &missed);
    assert_eq!(done[0].kind(), EventKind::NodeStatusUpdated);
    assert!(done.len() > 3, "{} events", done.len());
    let view = direct.projections.view();
    let updates = view.scan::<Evals>(Scan::all());
    let updates = updates.filter(|e| e.as_ref().is_ok_and(|e| e.triggered_by == "node-update"));
    assert_eq!(updates.count(), JOBS);
    drop(view);
    assert!(events(&direct, &missed).is_empty(), "once");
    let purge = DeregisterNodes {
        node_ids: vec![node(10).id],
    };
    let gone = events(&direct, &purge);
    assert_eq!(gone[0].kind(), EventKind::NodesDeregistered);
    assert!(gone.len() > 3);
}

#[test]
fn a_report_of_thousands_of_allocations_is_cut_and_its_evaluations_come_last() {
    const ALLOCS: usize = 2_000;
    let direct = with_node();
    let index = register(&direct, "web".to_owned(), 0);
    for first in (0..ALLOCS).step_by(250) {
        place(&direct, first..first + 250, "web", index);
    }
    let running = |number| Allocation {
        client_status: client::RUNNING.to_owned(),
        ..alloc(number, "web")
    };
    let report = UpdateAllocsFromClient {
        allocs: (0..ALLOCS).map(running).collect(),
        caller: None,
    };
    let done = events(&direct, &report);
    assert!(done.len() > 3, "{} events", done.len());
    for row in direct.projections.view().scan::<Allocs>(Scan::all()) {
        assert_eq!(row.unwrap().client_status, client::RUNNING);
    }
}
