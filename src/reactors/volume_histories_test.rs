//! A thousand random histories of volumes over the real tables, commands, steps and watcher, with a
//! plugin that is strict: claims, ends, replacements, collected allocations, nodes that are lost or
//! given up and come back with their mounts or do not, faults of every call, plugins that die and
//! forget, volumes that are deleted, forced, made larger and registered twice, leaders that fall
//! with everything under way.
//!
//! What must hold at any time: the plugin sees no second one where one may be, nor a controller's
//! call before its node's; a claim is held only by an allocation that took it; in the end
//! everything is free and no worker is left.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use drover_events::csi::{CsiVolumeClaimed, claim_mode};
use drover_events::model::CsiVolume;
use drover_events::model::status::access_mode::{
    MULTI_NODE_MULTI_WRITER as MANY, MULTI_NODE_SINGLE_WRITER as WRITER, SINGLE_NODE_WRITER as ONE,
};
use drover_testkit::LONG;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use tokio::task::JoinHandle;

use super::*;
use crate::base::clock::Clock;
use crate::commands::csi::{ClaimVolume, DeregisterVolumes};
use crate::error::Code;
use crate::rpc::csi::Secrets;
use crate::volumes::harness::{World, claim_request, named, node_id, volume};
use crate::volumes::testing::{ANOTHER, Fault, turns};

#[path = "volume_histories_holds_test.rs"]
mod holds;

const HISTORIES: u64 = 1_000;
/// How many share a state: a new one costs more than a history.
const SHARED: u64 = 100;
const DEEDS: usize = 24;
const NODES: usize = 3;
const METHODS: [&str; 8] = [
    "ControllerAttachVolume",
    "ControllerDetachVolume",
    "NodeDetachVolume",
    "ControllerCreateVolume",
    "ControllerDeleteVolume",
    "ControllerValidateVolume",
    "ControllerExpandVolume",
    "NodeExpandVolume",
];
/// What volumes are to hold at least, bytes; as large as they are for the first.
const SIZES: [i64; 3] = [0, 1 << 20, 1 << 21];
/// Whatever the client of a plugin makes of the codes of gRPC, and of its own trouble.
const CODES: [Code; 10] = [
    Code::BadRequest,
    Code::Unauthorized,
    Code::PermissionDenied,
    Code::NotFound,
    Code::Conflict,
    Code::TooManyRequests,
    Code::Refused,
    Code::Internal,
    Code::Unavailable,
    Code::Timeout,
];

/// An allocation, as its client has it.
#[derive(Clone, Debug)]
struct Held {
    node: usize,
    /// It is over for its client.
    ended: bool,
    /// Its row was collected.
    gone: bool,
    mode: u8,
}

type Allocs = Arc<Mutex<BTreeMap<String, Held>>>;

/// How a node was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// It is away, and everything on it keeps running.
    Away,
    /// It is gone from the state, and everything on it keeps running.
    GivenUp,
    /// It is gone with all that was on it.
    Dead,
}

/// One history.
struct History<'w> {
    world: &'w mut World,
    watcher: VolumeWatcher,
    chance: StdRng,
    volume: String,
    access: &'static str,
    allocs: Allocs,
    lost: BTreeMap<usize, Lost>,
    /// What clients and operators wait for.
    calls: Vec<JoinHandle<()>>,
    next: usize,
}

fn watcher(world: &World) -> VolumeWatcher {
    let mut watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let shared = Arc::get_mut(&mut watcher.shared).expect("it is new");
    shared.first = Duration::from_millis(1);
    shared.spread = 0.0;
    watcher
}

fn context(world: &World) -> Context {
    Context {
        projections: Arc::clone(&world.direct.projections),
        proposer: world.direct.clone(),
        clock: Clock::default(),
    }
}

impl History<'_> {
    fn one_of(&mut self, many: usize) -> usize {
        self.chance.random_range(0..many)
    }

    fn pick(&mut self, fits: impl Fn(&Held) -> bool) -> Option<String> {
        let fit: Vec<String> = {
            let allocs = self.allocs.lock();
            let fit = allocs.iter().filter(|(_, held)| fits(held));
            fit.map(|(id, _)| id.clone()).collect()
        };
        match fit.is_empty() {
            true => None,
            false => Some(fit[self.one_of(fit.len())].clone()),
        }
    }

    fn key(&self) -> CsiVolumeKey {
        ("default".to_owned(), self.volume.clone())
    }

    /// An allocation is placed, as after an update beside the one that it replaces.
    fn place(&mut self) -> Option<String> {
        let node = self.one_of(NODES);
        if self.lost.contains_key(&node) {
            return None;
        }
        self.next += 1;
        let reads = self.access != ONE && self.one_of(3) == 0;
        let how = (self.access, reads);
        let id = self.world.alloc_as((self.next, node), &self.volume, how);
        let mode = if reads {
            claim_mode::READ
        } else {
            claim_mode::WRITE
        };
        let held = Held {
            node,
            ended: false,
            gone: false,
            mode,
        };
        self.allocs.lock().insert(id.clone(), held);
        Some(id)
    }

    /// A client claims the volume, and mounts it unless its allocation has ended meanwhile.
    fn claim(&mut self, id: &str) {
        let held = self.allocs.lock()[id].clone();
        let (volumes, strict) = (
            Arc::clone(&self.world.volumes),
            Arc::clone(&self.world.strict),
        );
        let claim = claim_request(&self.volume, id, ("", held.mode));
        let (allocs, volume, id) = (Arc::clone(&self.allocs), self.volume.clone(), id.to_owned());
        self.calls.push(tokio::spawn(async move {
            let claimed = volumes.claim(claim, Origin::default()).await;
            if claimed.is_ok() && !allocs.lock()[&id].ended {
                let node = node_id(held.node);
                strict.mount(&volume, &node, &id, held.mode == claim_mode::WRITE);
            }
        }));
    }

    /// A client gives the volume back.
    fn give_back(&mut self, id: &str) {
        let node = self.allocs.lock()[id].node;
        if self.lost.contains_key(&node) {
            return;
        }
        self.end_of(id);
        let volumes = Arc::clone(&self.world.volumes);
        let mode = self.allocs.lock()[id].mode;
        let (volume, claim) = (self.volume.clone(), named(id, node, mode));
        self.calls.push(tokio::spawn(async move {
            let origin = Origin::default();
            let _ = volumes
                .release_by_node(("default", &volume), &claim, &origin)
                .await;
        }));
    }

    fn end_of(&mut self, id: &str) {
        if let Some(held) = self.allocs.lock().get_mut(id) {
            held.ended = true;
        }
    }

    /// The end of an allocation is reported to the servers, and perhaps it is collected at once.
    fn ends(&mut self, id: &str) {
        self.end_of(id);
        self.world.alloc_is(id, "complete");
        if self.one_of(3) == 0 {
            self.collect(id);
        }
    }

    fn collect(&mut self, id: &str) {
        if let Some(held) = self.allocs.lock().get_mut(id) {
            held.gone = true;
        }
        self.world.alloc_goes(id);
    }

    fn lose(&mut self, node: usize) {
        if self.lost.contains_key(&node) {
            return;
        }
        let how = [Lost::Away, Lost::GivenUp, Lost::Dead][self.one_of(3)];
        self.world.node_is(node, "down");
        let live: Vec<String> = {
            let mut allocs = self.allocs.lock();
            let here = allocs.iter_mut().filter(|(_, held)| held.node == node);
            let live = here.filter(|(_, held)| !held.gone).map(|(id, held)| {
                held.ended = true;
                id.clone()
            });
            live.collect()
        };
        for id in live {
            self.world.alloc_is(&id, "lost");
        }
        match how {
            Lost::Away => {}
            Lost::GivenUp => self.world.node_is_given_up(node),
            Lost::Dead => self.world.node_goes(node),
        }
        self.lost.insert(node, how);
    }

    /// A node is there again; its client gives back what it finds.
    fn find(&mut self, node: usize) {
        match self.lost.remove(&node) {
            Some(Lost::Away) => self.world.node_is(node, "ready"),
            Some(_) => {
                self.world.strict.is_new(&node_id(node));
                self.world.node(node, true);
            }
            None => return,
        }
        self.clients_give_back(node);
    }

    /// What a client has of allocations that have ended, it gives back until it is not there.
    fn clients_give_back(&mut self, node: usize) {
        for (volume, id) in self.world.strict.mounted_on(&node_id(node)) {
            let ended = self.allocs.lock().get(&id).is_none_or(|held| held.ended);
            if volume == self.volume && ended {
                self.give_back(&id);
            }
        }
    }

    /// Another leader. The former one is gone with all it did, or does not know yet.
    async fn elect(&mut self) {
        if self.one_of(2) == 0 {
            for call in self.calls.drain(..) {
                call.abort();
                let _ = call.await;
            }
        }
        self.world.elect();
        self.watcher = watcher(self.world);
    }

    async fn watch(&mut self) {
        let context = context(self.world);
        self.watcher
            .activate(&context)
            .await
            .expect("it can be read");
        // What waits after a failure tries again.
        self.watcher.shared.chance.notify_waiters();
    }

    fn operator(&mut self, what: usize) {
        let volumes = Arc::clone(&self.world.volumes);
        let (key, origin) = (self.key(), Origin::default());
        let node = node_id(self.one_of(NODES));
        let (named, access) = (self.volume.clone(), self.access);
        let size = SIZES[self.one_of(SIZES.len())];
        let done = async move {
            match what {
                0 => drop(volumes.detach(&key, (&node, false), &origin).await),
                1 => drop(volumes.delete(&key, Secrets::default(), &origin).await),
                _ => {
                    let mut again = volume(&named, access);
                    again.requested_capacity_min = size;
                    drop(volumes.register(vec![again], &origin).await);
                }
            }
        };
        self.calls.push(tokio::spawn(done));
    }

    /// A volume is made twice at once, by a plugin that may lie; and deleted.
    fn make(&mut self) {
        let mut new = volume(&format!("new-{}", self.volume), ONE);
        new.external_id = String::new();
        new.requested_capacity_min = SIZES[self.one_of(SIZES.len())];
        let key = ("default".to_owned(), new.id.clone());
        for again in [true, true, false] {
            let volumes = Arc::clone(&self.world.volumes);
            let (new, key, origin) = (new.clone(), key.clone(), Origin::default());
            self.calls.push(tokio::spawn(async move {
                match again {
                    true => drop(volumes.create(vec![new], &origin).await),
                    false => drop(volumes.delete(&key, Secrets::default(), &origin).await),
                }
            }));
        }
    }

    /// An operator has a volume forgotten, and cleans up at the provider's.
    async fn force(&mut self) {
        // What is under way there cannot be cleaned up.
        for call in self.calls.drain(..) {
            call.abort();
            let _ = call.await;
        }
        let limit = std::time::Instant::now() + LONG;
        while self.world.strict.is_busy() {
            assert!(std::time::Instant::now() < limit, "it stays busy");
            self.world.strict.catches_up().await;
            self.world.strict.strays().await;
            turns(1).await;
        }
        let command = DeregisterVolumes {
            namespace: "default".into(),
            ids: vec![self.volume.clone()],
            force: true,
            deleted: false,
        };
        if self.world.direct.command(&command).is_ok() {
            self.world.strict.forget(&self.volume);
        }
    }

    /// A sign of garbage collection.
    fn sign(&mut self) {
        let claim = CsiVolumeClaimed {
            namespace: "default".into(),
            volume_id: self.volume.clone(),
            mode: claim_mode::GC,
            ..CsiVolumeClaimed::default()
        };
        // There may be no such volume now.
        let _ = self.world.direct.command(&ClaimVolume { claim });
    }

    fn faults(&mut self) {
        // Tasks have dozens of turns while this one waits for one.
        let turns = self.one_of(12) * 60;
        let code = CODES[self.one_of(CODES.len())];
        let all = [
            Fault::Before,
            Fault::Lost,
            Fault::Late,
            Fault::Twice,
            Fault::Lies,
            Fault::Slow(turns),
            Fault::Says(code),
            Fault::Says(code),
        ];
        let (method, fault) = (self.one_of(METHODS.len()), self.one_of(all.len()));
        let fault = match all[fault] {
            // One that is done after the volume was detached from there.
            Fault::Late if method == 0 && self.one_of(2) == 0 => Fault::Later,
            fault => fault,
        };
        self.world.strict.fault(METHODS[method], &[fault]);
    }

    async fn deed(&mut self) {
        match self.one_of(20) {
            0..=2 => {
                if let Some(id) = self.place() {
                    self.claim(&id);
                }
            }
            3 => {
                if let Some(id) = self.pick(|held| !held.ended) {
                    self.claim(&id);
                }
            }
            4 | 5 => {
                if let Some(id) = self.pick(|held| !held.gone) {
                    self.give_back(&id);
                }
            }
            6 => self.replace(),
            7 | 8 => {
                if let Some(id) = self.pick(|held| !held.gone) {
                    self.ends(&id);
                }
            }
            9 => {
                if let Some(id) = self.pick(|held| held.ended && !held.gone) {
                    self.world.alloc_is(&id, "complete");
                    self.collect(&id);
                }
            }
            10 => {
                let node = self.one_of(NODES);
                self.lose(node);
            }
            11 => {
                let node = self.one_of(NODES);
                self.find(node);
            }
            12 | 13 => self.faults(),
            14 => self.elect().await,
            15 => {
                self.operator(0);
                self.sign();
            }
            16 => {
                let what = 1 + self.one_of(2);
                self.operator(what);
                self.operator(2);
            }
            17 => self.make(),
            18 if self.one_of(3) == 0 => self.force().await,
            _ => {
                let dead = self.one_of(4) == 0;
                self.world.strict.dead.store(dead, Ordering::SeqCst);
            }
        }
    }

    /// A job is updated: one allocation ends and another one comes, at once.
    fn replace(&mut self) {
        let old = self.pick(|held| !held.ended);
        if let (Some(old), Some(new)) = (old, self.place()) {
            self.claim(&new);
            self.give_back(&old);
            self.ends(&old);
            self.claim(&new);
        }
    }
}

async fn run(world: &mut World, seed: u64) -> Result<(), String> {
    let mut chance = StdRng::seed_from_u64(seed);
    let access = [ONE, ONE, WRITER, MANY][chance.random_range(0..4_usize)];
    let strict = &world.strict;
    strict.shared.store(access != ONE, Ordering::SeqCst);
    strict.one_writer.store(access == WRITER, Ordering::SeqCst);
    let stern = chance.random_range(0..2_u8) == 0;
    strict.stern.store(stern, Ordering::SeqCst);
    let volume = format!("data-{seed}");
    world.volume(&volume, access);
    let mut history = History {
        watcher: watcher(world),
        world,
        chance,
        volume,
        access,
        allocs: Allocs::default(),
        lost: BTreeMap::new(),
        calls: Vec::new(),
        next: usize::try_from(seed).unwrap() * 1_000,
    };
    for _ in 0..DEEDS {
        history.deed().await;
        if history.one_of(2) == 0 {
            history.watch().await;
        }
        let many = history.one_of(12);
        turns(many).await;
        history.holds()?;
    }
    history.end().await
}

/// A state whose provider has one more volume, which the plugin names when it lies.
fn world() -> World {
    let world = World::new(NODES);
    world.volume(ANOTHER, ONE);
    world
}

/// Runs histories one after another; answers how often each call met each fault.
async fn histories(seeds: Range<u64>) -> BTreeMap<String, usize> {
    let mut shared = world();
    let mut calls = BTreeMap::<String, usize>::new();
    let mut count = |world: &World| {
        for call in world.strict.calls() {
            let (name, fault) = call.split_once(' ').expect("a call");
            let fault = fault.split_once(' ').map_or("", |(_, fault)| fault);
            let fault = fault.split('(').nth(1).unwrap_or("None");
            *calls.entry(format!("{name} {fault}")).or_default() += 1;
        }
    };
    for seed in seeds {
        if seed % SHARED == 0 {
            count(&shared);
            shared = world();
        }
        if let Err(wrong) = run(&mut shared, seed).await {
            panic!("{wrong}: DROVER_SEED={seed}\n{:#?}", shared.strict.calls());
        }
    }
    count(&shared);
    calls
}

#[test]
fn csi_28_csi_40_no_history_lets_a_second_writer_in_or_keeps_a_volume_for_ever() {
    let first = std::env::var("DROVER_SEED").ok();
    let first = first.and_then(|seed| seed.parse::<u64>().ok());
    let half = HISTORIES / 2;
    let parts = first.map_or([0..half, half..HISTORIES], |seed| [seed..seed + 1, 0..0]);
    let mut calls = BTreeMap::<String, usize>::new();
    std::thread::scope(|scope| {
        let run = |seeds| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.expect("a runtime").block_on(histories(seeds))
            })
        };
        let running: Vec<_> = parts.into_iter().map(run).collect();
        for part in running {
            for (call, times) in part.join().expect("histories") {
                *calls.entry(call).or_default() += times;
            }
        }
    });
    if first.is_none() {
        // A model in which nothing happens shows nothing: each fault of each call is among them.
        for name in METHODS {
            for fault in ["None", "Before", "Lost", "Late", "Twice", "Slow", "Says"] {
                let met = calls.keys().any(|call| {
                    let rest = call.strip_prefix(name).map(str::trim_start);
                    rest.is_some_and(|rest| rest.starts_with(fault))
                });
                assert!(met, "no {name} {fault}: {calls:#?}");
            }
        }
        for one in [
            "ControllerAttachVolume Later",
            "ControllerCreateVolume Lies",
        ] {
            let met = calls.keys().any(|call| call.starts_with(one));
            assert!(met, "no {one}: {calls:#?}");
        }
    }
}
