//! Rules that touch more rows than one event may, with real sizes.

use drover_events::Event;
use drover_events::host_volume::HostVolumeRegistered;
use drover_events::model::{HostVolume, ScalingPolicy, TaskGroup};
use drover_events::plan::PlanApplied;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Outcome, Scan};

use super::Decision;
use super::job::{DeregisterJob, PurgeJobs, RegisterJob};
use super::limits::MAX_ROWS;
use super::node::{DeregisterNodes, RegisterNode};
use super::testing::{World, alloc, id, job, node, placed};

/// A job `web` with `count` allocations on one node.
fn spread(world: &mut World, count: u32) {
    world.done(&RegisterJob {
        job: job("web"),
        eval_id: id(1),
        ..RegisterJob::default()
    });
    let index = world.index;
    for first in (0..count).step_by(256) {
        let mut plan = PlanApplied {
            updated_at: 1,
            ..PlanApplied::default()
        };
        for n in first..count.min(first + 256) {
            plan.placed
                .append(&mut placed(alloc(1_000 + n, "web", 10), index).placed);
        }
        world.given(plan);
    }
}

fn stop() -> DeregisterJob {
    DeregisterJob {
        namespace: "default".into(),
        job_id: "web".into(),
        no_shutdown_delay: true,
        eval_id: id(2),
        ..DeregisterJob::default()
    }
}

/// Decides and applies until the last page; the events it took.
fn events(world: &mut World, command: &impl super::Command) -> Vec<Event> {
    let mut all = Vec::new();
    loop {
        assert!(all.len() < 1_000, "pages without end");
        let (event, guards, more) = match world.decide(command).unwrap() {
            Decision::Event { event, guards } => (event, guards, false),
            Decision::Page { event, guards } => (event, guards, true),
            Decision::Nothing(_) => return all,
        };
        all.push(event.clone());
        let outcome = world.append(event, guards);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        if !more {
            return all;
        }
    }
}

#[test]
fn a_large_job_is_told_to_hurry_before_it_is_stopped() {
    let mut world = World::new();
    spread(&mut world, 5_000);
    let done = events(&mut world, &stop());
    let (last, before) = done.split_last().unwrap();
    // The proposer cuts it where it is proposed.
    let mut hurried = 0;
    for event in before {
        let Event::AllocsDesiredTransitionUpdated(ev) = event else {
            panic!("{:?}", event.kind())
        };
        hurried += ev.transitions.len();
    }
    assert_eq!(hurried, 5_000);
    let Event::JobDeregistered(ev) = last else {
        panic!("{:?}", last.kind())
    };
    assert!(!ev.no_shutdown_delay, "its apply touches no allocation");
    for row in world.view().scan::<Allocs>(Scan::all()) {
        assert_eq!(
            row.unwrap().desired_transition.no_shutdown_delay,
            Some(true)
        );
    }
    assert!(world.row::<Jobs>(("default", "web")).unwrap().stop);
}

#[test]
fn a_small_job_is_told_by_its_deregistration() {
    let mut world = World::new();
    spread(&mut world, 100);
    let done = events(&mut world, &stop());
    let [Event::JobDeregistered(ev)] = &done[..] else {
        panic!("{} events", done.len())
    };
    assert!(ev.no_shutdown_delay);
}

#[test]
fn nodes_with_many_host_volumes_go_in_pages() {
    const EACH: u32 = MAX_ROWS as u32 * 2 / 5;
    let mut world = World::new();
    for at in 0..3 {
        world.done(&RegisterNode {
            node: node(10 + at),
            create_node_pool: false,
        });
        for n in 0..EACH {
            let volume = HostVolume {
                id: id(100_000 * (at + 1) + n),
                namespace: "default".into(),
                name: format!("v{n}"),
                node_id: id(10 + at),
                node_pool: "default".into(),
                ..HostVolume::default()
            };
            world.given(HostVolumeRegistered { volume });
        }
    }
    let node_ids: Vec<_> = (10..13).map(id).collect();
    let purge = DeregisterNodes { node_ids };
    let named = |event: Event| match event {
        Event::NodesDeregistered(ev) => ev.node_ids,
        other => panic!("{:?}", other.kind()),
    };
    let gone: Vec<_> = events(&mut world, &purge).into_iter().map(named).collect();
    assert_eq!(
        gone,
        [vec![id(10), id(11)], vec![id(12)]],
        "two fit into one event"
    );
    assert_eq!(world.refusal(&purge).1, "node not found");
}

#[test]
fn jobs_with_many_rows_are_purged_in_pages() {
    let mut world = World::new();
    let mut purge = PurgeJobs { jobs: Vec::new() };
    for n in 0..6 {
        let mut spec = job(&format!("wide-{n}"));
        let group = |g: usize| TaskGroup {
            name: format!("g{g}"),
            count: 0,
            scaling: Some(ScalingPolicy {
                id: id(10_000 + n * 1_000 + g as u32),
                ..ScalingPolicy::default()
            }),
            ..TaskGroup::default()
        };
        spec.task_groups = (0..400).map(group).collect::<Vec<_>>().into();
        world.done(&RegisterJob {
            job: spec,
            eval_id: id(n),
            ..RegisterJob::default()
        });
        purge
            .jobs
            .push(("default".into(), format!("wide-{n}"), world.index));
    }
    let done = events(&mut world, &purge);
    assert_eq!(done.len(), 3, "two jobs of 405 rows an event");
    assert_eq!(world.view().scan::<Jobs>(Scan::all()).count(), 0);
    let error = world.refusal(&RegisterJob {
        job: {
            let mut spec = job("too-wide");
            let group = |g: usize| TaskGroup {
                name: format!("g{g}"),
                scaling: Some(Default::default()),
                ..TaskGroup::default()
            };
            spec.task_groups = (0..1_025).map(group).collect::<Vec<_>>().into();
            spec
        },
        ..RegisterJob::default()
    });
    assert_eq!(error.0, drover_error::Code::BadRequest);
    assert!(error.1.contains("1024"), "{}", error.1);
}
