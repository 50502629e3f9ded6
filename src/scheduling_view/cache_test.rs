//! The cache against the projections: after any order of plans and reports it holds what the rows
//! say, the marks of nodes above all.

use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::model::Allocation;
use drover_events::node::NodesDeregistered;
use drover_events::plan::{PlacedAlloc, PlanApplied, StoppedAlloc};
use drover_projections::Outcome;
use drover_projections::tables::jobs::Jobs;

use super::*;
use crate::commands::job::RegisterJob;
use crate::commands::node::{RegisterNode, UpdateNodeEligibility};
use crate::reactors::testing::{Direct, spoil};
use drover_testkit::fixtures::{job, node};
use std::sync::Arc;

const PLACED: EventId = EventId([1; 16]);
const STOPPED: EventId = EventId([2; 16]);

/// One node with one allocation `a` of job `j`, and a cache that has followed everything.
struct Stage {
    direct: Arc<Direct>,
    cache: Cache,
    followed: u64,
}

impl Stage {
    fn new() -> Self {
        let direct = Direct::new();
        let register = RegisterNode {
            node: node(1),
            create_node_pool: true,
        };
        direct.command(&register).unwrap();
        let register = RegisterJob {
            job: job("batch", 1),
            eval_id: "11111111-1111-1111-1111-111111111111".to_owned(),
            ..RegisterJob::default()
        };
        direct.command(&register).unwrap();
        let mut stage = Self {
            direct,
            cache: Cache::default(),
            followed: 0,
        };
        stage.plan(PLACED, vec![stage.placed()], Vec::new());
        stage.cache = Cache::load(&stage.direct.projections.view()).unwrap();
        stage.followed = stage.cache.cluster().index();
        stage
    }

    fn placed(&self) -> Allocation {
        let mut alloc = Allocation {
            id: "a".into(),
            namespace: "default".into(),
            job_id: "j".into(),
            task_group: "g".into(),
            node_id: node(1).id,
            desired_status: "run".into(),
            client_status: "pending".into(),
            ..Allocation::default()
        };
        let resources = alloc.allocated_resources.get_or_insert_default();
        let mut task = drover_events::model::AllocatedTaskResources::default();
        task.cpu.cpu_shares = 20;
        resources.tasks.insert("t", task);
        alloc
    }

    fn plan(&self, id: EventId, placed: Vec<Allocation>, stopped: Vec<&str>) {
        let view = self.direct.projections.view();
        let job = view.get::<Jobs>(("default", "j")).unwrap().unwrap();
        let place = |alloc| PlacedAlloc {
            alloc: Box::new(alloc),
            job_modify_index: job.job_modify_index,
        };
        let stop = |id: &str| StoppedAlloc {
            id: id.to_owned(),
            ..StoppedAlloc::default()
        };
        let event = PlanApplied {
            placed: placed.into_iter().map(place).collect(),
            stopped: stopped.into_iter().map(stop).collect(),
            ..PlanApplied::default()
        };
        let (_, outcome) = self.direct.apply_as(id, event);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }

    fn client_says(&self, status: &str) {
        let update = ClientAllocUpdate {
            id: "a".into(),
            client_status: status.to_owned(),
            ..ClientAllocUpdate::default()
        };
        self.direct.apply(AllocsUpdatedByClient {
            updates: vec![update],
            ..AllocsUpdatedByClient::default()
        });
    }

    fn slot(&self) -> u32 {
        self.cache.cluster().find(&node(1).id).unwrap()
    }

    fn follow(&mut self) -> Vec<Freed> {
        let view = self.direct.projections.view();
        let mut freed = Vec::new();
        for changes in view.changes(self.followed + 1) {
            freed.extend(self.cache.follow(&view, &changes.unwrap()).unwrap());
        }
        self.followed = view.index();
        freed
    }

    /// What is cached is what is stored.
    fn check(&self, cpu: i64, mark: EventId) {
        let view = self.direct.projections.view();
        let row = view.get::<NodeUses>(node(1).id.as_str()).unwrap().unwrap();
        let cached = &self.cache.cluster().slot(self.slot());
        assert_eq!((row.cpu, row.mark), (cpu, mark), "stored");
        assert_eq!((cached.used.cpu, cached.mark), (cpu, mark), "cached");
    }
}

#[test]
fn what_was_placed_takes_room_until_a_plan_stops_it() {
    let mut stage = Stage::new();
    stage.check(20, PLACED);
    let slot = stage.slot();
    stage
        .cache
        .expect("a".into(), STOPPED, Effect::Gone { slot });
    stage.plan(STOPPED, Vec::new(), vec!["a"]);
    let freed = stage.follow();
    assert_eq!(freed.len(), 1);
    stage.check(0, STOPPED);
}

#[test]
fn a_stop_marks_the_node_when_the_client_ended_the_allocation_before_it() {
    let mut stage = Stage::new();
    let slot = stage.slot();
    stage
        .cache
        .expect("a".into(), STOPPED, Effect::Gone { slot });
    stage.client_says("complete");
    assert_eq!(stage.follow().len(), 1, "the client made room");
    stage.plan(STOPPED, Vec::new(), vec!["a"]);
    assert_eq!(stage.follow(), Vec::new(), "the plan makes none");
    stage.check(0, STOPPED);
}

#[test]
fn a_stop_of_an_allocation_that_ended_long_ago_marks_its_node_too() {
    let mut stage = Stage::new();
    stage.client_says("failed");
    stage.follow();
    stage.plan(STOPPED, Vec::new(), vec!["a"]);
    stage.follow();
    stage.check(0, STOPPED);
}

#[test]
fn both_followed_at_once_come_to_the_same() {
    let mut stage = Stage::new();
    let slot = stage.slot();
    stage
        .cache
        .expect("a".into(), STOPPED, Effect::Gone { slot });
    stage.client_says("complete");
    stage.plan(STOPPED, Vec::new(), vec!["a"]);
    stage.follow();
    stage.check(0, STOPPED);
}

#[test]
fn an_update_in_place_takes_no_room_once_the_client_ended_the_allocation() {
    let mut stage = Stage::new();
    stage.client_says("complete");
    let mut updated = stage.placed();
    updated.create_index = 1;
    stage.plan(STOPPED, vec![updated], Vec::new());
    stage.follow();
    stage.check(0, STOPPED);
}

#[test]
fn a_node_that_is_purged_and_comes_back_has_what_is_still_there() {
    let mut stage = Stage::new();
    let purged = NodesDeregistered {
        node_ids: vec![node(1).id],
        ..NodesDeregistered::default()
    };
    stage.direct.apply(purged);
    stage.follow();
    assert_eq!(stage.cache.demand("a").map(|(slot, _)| slot), None);
    let register = RegisterNode {
        node: node(1),
        create_node_pool: true,
    };
    stage.direct.command(&register).unwrap();
    stage.follow();
    let view = stage.direct.projections.view();
    let row = view.get::<NodeUses>(node(1).id.as_str()).unwrap().unwrap();
    stage.check(20, row.mark);
    assert_eq!(
        stage.cache.demand("a").map(|(slot, _)| slot),
        Some(stage.slot())
    );
}

/// The cluster as it is read after a restart, with one row damaged, and how many were left out.
fn without<T: Table>(key: &T::Key) -> (Cache, usize) {
    let Stage { direct, .. } = Stage::new();
    let direct = direct.reopened(|database| spoil::<T>(database, key));
    let mut cache = Cache::load(&direct.projections.view()).unwrap();
    let left_out = cache.take_left_out().len();
    (cache, left_out)
}

#[test]
fn a_node_of_which_something_cannot_be_read_keeps_what_it_has_and_gets_nothing_more() {
    let (id, alloc) = (Id::new(node(1).id), Id::new("a"));
    for (what, (cache, left_out), known) in [
        ("nodes", without::<Nodes>(&id), true),
        ("node_states", without::<NodeStates>(&id), true),
        ("node_use", without::<NodeUses>(&id), true),
        ("allocs", without::<Allocs>(&alloc), false),
    ] {
        assert_eq!(left_out, 1, "{what}");
        let info = cache.cluster().node(&node(1).id).unwrap();
        assert!(!info.ready && info.node.status != "down", "{what}");
        assert_eq!(cache.demand("a").is_some(), known, "{what}");
    }
}

#[test]
fn an_allocation_that_cannot_be_read_any_more_may_still_take_its_room() {
    let stage = Stage::new();
    stage.client_says("running");
    let Stage {
        direct,
        cache,
        followed,
    } = stage;
    let direct = direct.reopened(|database| spoil::<Allocs>(database, &Id::new("a")));
    let mut stage = Stage {
        direct,
        cache,
        followed,
    };
    assert!(stage.follow().is_empty());
    assert_eq!(stage.cache.take_left_out().len(), 1);
    assert!(stage.cache.demand("a").is_some());
    let info = stage.cache.cluster().node(&node(1).id).unwrap();
    assert!(!info.ready && info.node.status != "down");
    assert_eq!(info.cpu, 4_000, "it is described as it was");
}

/// A change of a closed node has all of its rows read, and not only the changed row.
#[test]
fn a_closed_node_is_open_again_once_a_change_finds_all_of_it_readable() {
    let (mut cache, _) = without::<Allocs>(&Id::new("a"));
    assert!(cache.has_closed() && cache.demand("a").is_none());
    let sound = Stage::new();
    for eligibility in ["ineligible", "eligible"] {
        let command = UpdateNodeEligibility {
            node_id: node(1).id,
            eligibility: eligibility.to_owned(),
        };
        sound.direct.command(&command).unwrap();
    }
    let view = sound.direct.projections.view();
    let mut freed = Vec::new();
    for changes in view.changes(sound.followed + 1) {
        freed.extend(cache.follow(&view, &changes.unwrap()).unwrap());
    }
    assert!(!cache.has_closed() && !freed.is_empty());
    assert!(cache.cluster().node(&node(1).id).unwrap().ready);
    assert!(cache.demand("a").is_some());
}
