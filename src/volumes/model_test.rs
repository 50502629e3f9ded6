//! A thousand random histories of one volume over the real tables, with a plugin that is strict:
//! claims, ends, collection of allocations, nodes that are lost and come back or do not, faults of
//! every call, answers that are lost, leaders that fall in the middle of a step.
//!
//! What must hold: the plugin never sees a second writer, nor a controller's call before its
//! node's; no claim is held by nobody; in the end everything is free.

use std::collections::BTreeMap;

use drover_events::csi::mode;
use drover_events::model::status::access_mode::{
    MULTI_NODE_MULTI_WRITER as MANY, SINGLE_NODE_WRITER as ONE,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::sync::atomic::Ordering;

use super::harness::*;
use super::testing::*;
use super::*;

const HISTORIES: u64 = 1_000;
/// How many share a state: a new one costs more than a history.
const SHARED: u64 = 100;
const DEEDS: usize = 16;
const NODES: usize = 3;
const METHODS: [&str; 3] = [
    "ControllerAttachVolume",
    "ControllerDetachVolume",
    "NodeDetachVolume",
];

/// An allocation, as its client has it.
struct Held {
    id: String,
    node: usize,
    ended: bool,
    gone: bool,
}

/// One history.
struct History<'w> {
    world: &'w mut World,
    chance: StdRng,
    volume: String,
    access: &'static str,
    allocs: Vec<Held>,
    /// Nodes that are not there.
    lost: BTreeMap<usize, bool>,
    next: usize,
}

/// Works on something until it has waited so often; none: it was given up there, as by a leader
/// that falls.
async fn within<T>(waits: usize, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    for _ in 0..waits {
        if let std::task::Poll::Ready(done) = futures_util::poll!(work.as_mut()) {
            return Some(done);
        }
    }
    None
}

impl History<'_> {
    fn one_of(&mut self, many: usize) -> usize {
        self.chance.random_range(0..many)
    }

    /// Mostly to its end, sometimes not.
    fn waits(&mut self) -> usize {
        match self.one_of(3) {
            0 => self.one_of(8),
            _ => 10_000,
        }
    }

    fn pick(&mut self, fits: impl Fn(&Held) -> bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.allocs.len())
            .filter(|at| fits(&self.allocs[*at]))
            .collect();
        match fit.is_empty() {
            true => None,
            false => Some(fit[self.one_of(fit.len())]),
        }
    }

    async fn start(&mut self) {
        let node = self.one_of(NODES);
        if self.lost.contains_key(&node) {
            return;
        }
        self.next += 1;
        let id = self.world.alloc(self.next, node, &self.volume, self.access);
        self.allocs.push(Held {
            id,
            node,
            ended: false,
            gone: false,
        });
        self.claim(self.allocs.len() - 1).await;
    }

    async fn claim(&mut self, at: usize) {
        let waits = self.waits();
        let (id, node) = (self.allocs[at].id.clone(), self.allocs[at].node);
        let claimed = within(waits, self.world.claim(&self.volume, &id)).await;
        if matches!(claimed, Some(Ok(_))) {
            self.world
                .strict
                .mount(&self.volume, &node_id(node), &id, true);
        }
    }

    async fn unpublish(&mut self, at: usize) {
        let waits = self.waits();
        let id = self.allocs[at].id.clone();
        // It is over for its client, whatever comes of this.
        self.allocs[at].ended = true;
        let _ = within(waits, self.world.unpublish(&self.volume, &id)).await;
    }

    /// An allocation ends and another one comes, at once.
    async fn replace(&mut self, at: usize) {
        let node = self.one_of(NODES);
        if self.lost.contains_key(&node) {
            return;
        }
        self.next += 1;
        let new = self.world.alloc(self.next, node, &self.volume, self.access);
        let old = self.allocs[at].id.clone();
        self.allocs[at].ended = true;
        self.world.alloc_is(&old, "complete");
        let claimed = {
            let going = self.world.unpublish(&self.volume, &old);
            let coming = self.world.claim(&self.volume, &new);
            tokio::join!(coming, going).0
        };
        if claimed.is_ok() {
            self.world
                .strict
                .mount(&self.volume, &node_id(node), &new, true);
        }
        self.allocs.push(Held {
            id: new,
            node,
            ended: false,
            gone: false,
        });
    }

    async fn sweep(&mut self) {
        let waits = self.waits();
        let node = node_id(self.one_of(NODES));
        let key = ("default".to_owned(), self.volume.clone());
        let origin = Origin::default();
        let _ = within(waits, self.world.volumes.detach(&key, &node, &origin)).await;
    }

    fn lose(&mut self, node: usize) {
        let forever = self.one_of(3) == 0;
        if self.lost.contains_key(&node) {
            return;
        }
        self.world.node_is(node, "down");
        for held in self
            .allocs
            .iter_mut()
            .filter(|held| held.node == node && !held.ended)
        {
            held.ended = true;
            self.world.alloc_is(&held.id, "lost");
        }
        if forever {
            self.world.node_goes(node);
        }
        self.lost.insert(node, forever);
    }

    fn find(&mut self, node: usize) {
        match self.lost.remove(&node) {
            Some(true) => {
                self.world.strict.is_new(&node_id(node));
                self.world.node(node, true);
            }
            Some(false) => self.world.node_is(node, "ready"),
            None => {}
        }
    }

    async fn deed(&mut self) {
        match self.one_of(12) {
            0 | 1 => self.start().await,
            2 => {
                if let Some(at) = self.pick(|held| !held.ended) {
                    self.claim(at).await;
                }
            }
            3 | 4 => {
                if let Some(at) = self.pick(|held| !held.gone) {
                    self.unpublish(at).await;
                }
            }
            5 => {
                if let Some(at) = self.pick(|held| !held.ended) {
                    self.replace(at).await;
                }
            }
            6 => {
                if let Some(at) = self.pick(|held| !held.gone) {
                    self.allocs[at].ended = true;
                    let id = self.allocs[at].id.clone();
                    self.world.alloc_is(&id, "complete");
                    if self.one_of(2) == 0 {
                        self.allocs[at].gone = true;
                        self.world.alloc_goes(&id);
                    }
                }
            }
            7 => self.sweep().await,
            8 => {
                let node = self.one_of(NODES);
                self.lose(node);
            }
            9 => {
                let node = self.one_of(NODES);
                self.find(node);
            }
            10 => {
                let faults = [
                    Fault::Before,
                    Fault::Lost,
                    Fault::Says(Code::Unavailable),
                    Fault::Says(Code::Refused),
                ];
                let (method, fault) = (self.one_of(METHODS.len()), self.one_of(faults.len()));
                self.world.strict.fault(METHODS[method], &[faults[fault]]);
            }
            _ => self.world.elect(),
        }
    }

    /// What must hold at any time.
    fn holds(&self) -> Result<(), String> {
        let wrong = self.world.strict.wrong();
        if let Some(first) = wrong.first() {
            return Err(first.clone());
        }
        let row = self.world.row(&self.volume);
        for claims in [&row.read_claims, &row.write_claims, &row.past_claims] {
            for (alloc, claim) in claims.iter() {
                let known = self.allocs.iter().any(|held| held.id == *alloc);
                if !known || claim.node_id.is_empty() || claim.claim >= mode::GC {
                    return Err(format!("held by nobody: {claim:?}"));
                }
            }
        }
        match self.access == ONE && row.holders().count() > 1 {
            true => Err("two hold a volume of one".to_owned()),
            false => Ok(()),
        }
    }

    /// Everything is well again, and everybody leaves.
    async fn end(&mut self) -> Result<(), String> {
        self.world.strict.heal();
        for node in 0..NODES {
            self.find(node);
        }
        for held in self.allocs.iter_mut().filter(|held| !held.gone) {
            self.world.alloc_is(&held.id, "complete");
            held.ended = true;
        }
        let place = ("default", self.volume.as_str());
        let waiting = self
            .world
            .volumes
            .to_release(place)
            .map_err(|e| e.to_string())?;
        for one in waiting {
            let done = self.world.unpublish(&self.volume, &one.alloc).await;
            done.map_err(|error| format!("not free in the end: {error}"))?;
        }
        self.holds()?;
        match self.world.row(&self.volume).in_use() || !self.world.strict.is_idle() {
            true => Err("something is left in the end".to_owned()),
            false => Ok(()),
        }
    }
}

async fn run(world: &mut World, seed: u64) -> Result<(), String> {
    let mut chance = StdRng::seed_from_u64(seed);
    let access = [ONE, MANY][chance.random_range(0..2_usize)];
    world.strict.shared.store(access == MANY, Ordering::SeqCst);
    let volume = format!("data-{seed}");
    world.volume(&volume, access);
    let mut history = History {
        world,
        chance,
        volume,
        access,
        allocs: Vec::new(),
        lost: BTreeMap::new(),
        next: usize::try_from(seed).unwrap() * 1_000,
    };
    for _ in 0..DEEDS {
        history.deed().await;
        history.holds()?;
    }
    history.end().await
}

#[tokio::test]
async fn no_history_lets_a_second_writer_in_or_keeps_a_volume_for_ever() {
    let first = std::env::var("DROVER_SEED")
        .ok()
        .and_then(|seed| seed.parse::<u64>().ok());
    let seeds = first.map_or(0..HISTORIES, |seed| seed..seed + 1);
    let mut world = World::new(NODES);
    let mut calls = 0;
    for seed in seeds {
        if seed % SHARED == 0 {
            calls += world.strict.calls().len();
            world = World::new(NODES);
        }
        if let Err(wrong) = run(&mut world, seed).await {
            panic!("{wrong}: DROVER_SEED={seed}\n{:#?}", world.strict.calls());
        }
    }
    // A model in which nothing happens shows nothing.
    calls += world.strict.calls().len();
    assert!(first.is_some() || calls > 3_000, "{calls} calls");
}

/// What becomes of the first call, at every step, with every fault: the same again ends well.
#[tokio::test]
async fn every_fault_of_every_call_is_made_good_by_asking_again() {
    let says = [
        Code::Unavailable,
        Code::Timeout,
        Code::Conflict,
        Code::Refused,
        Code::NotFound,
        Code::Internal,
        Code::PermissionDenied,
    ];
    let mut faults = vec![Fault::Before, Fault::Lost];
    faults.extend(says.map(Fault::Says));
    let mut world = World::new(1);
    let mut number = 0;
    for method in METHODS {
        for fault in &faults {
            for falls in [false, true] {
                number += 1;
                let volume = format!("data-{number}");
                world.volume(&volume, ONE);
                let alloc = world.alloc(number, 0, &volume, ONE);
                world.strict.fault(method, &[*fault]);
                let attaches = method == METHODS[0];
                let claimed = world.claim(&volume, &alloc).await;
                assert_eq!(claimed.is_err(), attaches, "{method} {fault:?}");
                if falls {
                    world.elect();
                }
                world.claim(&volume, &alloc).await.unwrap();
                world.strict.mount(&volume, &node_id(0), &alloc, true);
                let released = world.unpublish(&volume, &alloc).await;
                assert_eq!(released.is_ok(), attaches, "{method} {fault:?}");
                if falls {
                    world.elect();
                }
                world.unpublish(&volume, &alloc).await.unwrap();
                assert!(world.strict.is_idle() && !world.row(&volume).in_use());
            }
        }
    }
    assert!(
        world.strict.wrong().is_empty(),
        "{:?}",
        world.strict.wrong()
    );
}

/// A leader falls at every point where it waits, at which nobody knows what was done: the next one
/// goes on from what is recorded.
#[tokio::test]
async fn a_leader_that_falls_at_any_point_leaves_nothing_undone() {
    let mut world = World::new(1);
    for waits in 0.. {
        let volume = format!("data-{waits}");
        world.volume(&volume, ONE);
        let alloc = world.alloc(waits, 0, &volume, ONE);
        let taken = within(waits, world.claim(&volume, &alloc)).await;
        world.elect();
        world.claim(&volume, &alloc).await.unwrap();
        world.strict.mount(&volume, &node_id(0), &alloc, true);
        let given_back = within(waits, world.unpublish(&volume, &alloc)).await;
        world.elect();
        world.unpublish(&volume, &alloc).await.unwrap();
        assert!(
            world.strict.is_idle() && !world.row(&volume).in_use(),
            "{waits}"
        );
        if taken.is_some() && given_back.is_some() {
            assert!(waits > 4, "it must have fallen somewhere");
            break;
        }
    }
    assert!(
        world.strict.wrong().is_empty(),
        "{:?}",
        world.strict.wrong()
    );
}
