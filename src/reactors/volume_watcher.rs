//! Claims on volumes that are over and that nobody gives back: of nodes that were lost, of clients
//! that could not, of steps that failed. Each is given back by the same function that clients call
//! (VW-06), outside of scheduling (VW-01).
//!
//! A volume with claims to free has one worker; a volume without has none (VW-08). A worker's
//! claims do not wait for one another (VW-16), and each waits longer after each failure (VW-20).
//!
//! Invariants:
//! 1. What changes is followed without a gap; what was missed before this server led is found by
//!    one look at every volume when it begins (VW-04).
//! 2. A worker leaves only when nothing was said of its volume since it looked last, both under one
//!    lock: what is said is heard by it, or by the next one (VW-09).
//! 3. Workers belong to the reactor: they end with it, and call nothing any more (VW-02).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use drover_projections::key::{Id, Key as _};
use drover_projections::query::csi;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes::Nodes;
use drover_projections::{Change, Interest, Operation, Scan, StorageError, Table, View};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::driver::{Activation, Context, Failure, Reactor, Scope};
use crate::identity::Identity;
use crate::proposer::Origin;
use crate::volumes::{Key, Volumes};

/// The wait after the first failure of a claim, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// How far behind what changed is still followed; beyond, every volume is looked at.
const BEHIND: u64 = 20_000;
/// How often the status is told while there is work, and while there is none.
const BUSY: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(300);
/// How many claims that wait are shown.
const SHOWN: usize = 20;

/// The reactor.
pub struct VolumeWatcher {
    shared: Arc<Shared>,
    workers: Mutex<JoinSet<()>>,
    /// What was followed last; none before the first look at all.
    followed: Mutex<Option<u64>>,
}

/// What workers share.
struct Shared {
    volumes: Arc<Volumes>,
    server: String,
    desks: Mutex<HashMap<Key, Desk>>,
    /// A node or a plugin came, or went: what failed may be possible now.
    chance: Notify,
    /// The wait after the first failure of a claim.
    first: Duration,
}

/// What a worker is told.
struct Desk {
    /// Something was said of its volume since it looked.
    news: bool,
    told: Arc<Notify>,
}

impl VolumeWatcher {
    /// Gives back what is over, in the name of this server.
    pub fn new(volumes: Arc<Volumes>, server: &str) -> Self {
        Self {
            shared: Arc::new(Shared {
                volumes,
                server: server.to_owned(),
                desks: Mutex::default(),
                chance: Notify::new(),
                first: FIRST,
            }),
            workers: Mutex::default(),
            followed: Mutex::new(None),
        }
    }

    /// How many volumes have a worker.
    pub fn workers(&self) -> usize {
        self.shared.desks.lock().len()
    }

    /// Looks at every volume once.
    fn look_at_all(&self, context: &Context) -> Result<(), Failure> {
        let view = context.projections.view();
        let index = view.index();
        let mut used = Vec::new();
        for row in view.scan::<CsiVolumes>(Scan::all()) {
            let row = row?;
            // What rows of older versions hold is not among their claims (CSI-26).
            let older = !row.volume.read_allocs.is_empty() || !row.volume.write_allocs.is_empty();
            if row.in_use() || older {
                used.push((row.volume.namespace, row.volume.id));
            }
        }
        drop(view);
        for key in used {
            self.see_to(key)?;
        }
        *self.followed.lock() = Some(index);
        Ok(())
    }

    /// Follows what changed.
    fn follow(&self, context: &Context, from: u64) -> Result<(), Failure> {
        let view = context.projections.view();
        let index = view.index();
        let mut touched = BTreeSet::new();
        let mut chance = false;
        // Where there never was a volume there is nothing to follow.
        if view.table_index::<CsiVolumes>() > 0 {
            for changes in view.changes(from + 1) {
                for change in changes? {
                    chance |= [Nodes::ID, NodeStates::ID, CsiPlugins::ID].contains(&change.table);
                    touched.extend(volumes_of(&view, &change)?);
                }
            }
        }
        drop(view);
        for key in touched {
            self.see_to(key)?;
        }
        if chance {
            self.shared.chance.notify_waiters();
        }
        *self.followed.lock() = Some(index);
        Ok(())
    }

    /// Sees to it that a volume that needs one has a worker.
    fn see_to(&self, key: Key) -> Result<(), Failure> {
        if let Some(desk) = self.shared.desks.lock().get_mut(&key) {
            desk.news = true;
            desk.told.notify_one();
            return Ok(());
        }
        // Only this reactor makes workers, so between the two looks none came.
        if self.shared.volumes.to_release((&key.0, &key.1))?.is_empty() {
            return Ok(());
        }
        let told = Arc::new(Notify::new());
        let desk = Desk {
            news: true,
            told: Arc::clone(&told),
        };
        self.shared.desks.lock().insert(key.clone(), desk);
        let worker = Worker {
            shared: Arc::clone(&self.shared),
            key,
            told,
        };
        let (namespace, volume) = (&worker.key.0, &worker.key.1);
        let span = tracing::debug_span!("volume", namespace, volume);
        self.workers.lock().spawn(worker.run().instrument(span));
        Ok(())
    }

    fn reap(&self) {
        let mut workers = self.workers.lock();
        while let Some(ended) = workers.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a worker of a volume failed; its volume has another turn");
            }
        }
    }

    fn status(&self) -> Activation {
        let workers = self.workers();
        let waiting = self.shared.volumes.all_troubles(SHOWN).into_iter();
        let waiting: Vec<_> = waiting
            .map(|((namespace, volume, alloc), trouble)| {
                json!({
                    "Namespace": namespace, "VolumeID": volume, "AllocID": alloc,
                    "Error": trouble.error, "Since": trouble.since, "Tries": trouble.tries,
                })
            })
            .collect();
        Activation {
            sleep: if workers > 0 { BUSY } else { IDLE },
            status: json!({ "Workers": workers, "Waiting": waiting }),
        }
    }
}

/// The volumes that a change may have given something to do.
fn volumes_of(view: &View, change: &Change) -> Result<Vec<Key>, StorageError> {
    if change.table == CsiVolumes::ID {
        return Ok(Key::from_bytes(&change.key).into_iter().collect());
    }
    if change.table != Allocs::ID || change.operation != Operation::Put {
        return Ok(Vec::new());
    }
    let Ok(id) = Id::from_bytes(&change.key) else {
        return Ok(Vec::new());
    };
    let Some(row) = view.get::<Allocs>(&id)? else {
        return Ok(Vec::new());
    };
    if !row.alloc.client_terminal() {
        return Ok(Vec::new());
    }
    let asked = csi::requests_of_alloc(view, &row)?.into_iter();
    Ok(asked
        .map(|(source, _)| (row.alloc.namespace.clone(), source))
        .collect())
}

impl Reactor for VolumeWatcher {
    fn name(&self) -> &'static str {
        "volume_watcher"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        const INTERESTS: &[Interest] = &[
            Interest::table::<CsiVolumes>(),
            Interest::table::<Allocs>(),
            Interest::table::<Nodes>(),
            Interest::table::<NodeStates>(),
            Interest::table::<CsiPlugins>(),
        ];
        INTERESTS
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            let followed = *self.followed.lock();
            let now = context.projections.applied_index();
            let done = match followed {
                Some(from) if now.saturating_sub(from) <= BEHIND => self.follow(context, from),
                _ => self.look_at_all(context),
            };
            if done.is_err() {
                // What was seen of it in part is seen again, with everything else.
                *self.followed.lock() = None;
            }
            self.reap();
            done?;
            Ok(self.status())
        })
    }
}

/// The waits after each failure of a claim.
fn delays(first: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(first), |last| Some((*last * 2).min(LONGEST)))
}

/// What frees the claims of one volume.
struct Worker {
    shared: Arc<Shared>,
    key: Key,
    told: Arc<Notify>,
}

impl Drop for Worker {
    /// However it ends, it does not stay in the way of the next one (VW-10).
    fn drop(&mut self) {
        let mut desks = self.shared.desks.lock();
        if desks
            .get(&self.key)
            .is_some_and(|desk| Arc::ptr_eq(&desk.told, &self.told))
        {
            desks.remove(&self.key);
        }
    }
}

impl Worker {
    async fn run(self) {
        let mut at_work = BTreeSet::new();
        let mut claims = FuturesUnordered::new();
        loop {
            self.heard();
            let waiting = self.waiting();
            for alloc in &waiting {
                if at_work.insert(alloc.clone()) {
                    claims.push(self.free(alloc.clone()));
                }
            }
            if claims.is_empty() {
                self.shared
                    .volumes
                    .forget((&self.key.0, &self.key.1), &waiting);
                if self.leaves() {
                    return;
                }
                continue;
            }
            tokio::select! {
                Some(alloc) = claims.next() => {
                    at_work.remove(&alloc);
                }
                () = self.told.notified() => {}
            }
        }
    }

    /// It looks at what its volume is now.
    fn heard(&self) {
        if let Some(desk) = self.shared.desks.lock().get_mut(&self.key) {
            desk.news = false;
        }
    }

    /// Leaves, unless something was said since it looked.
    fn leaves(&self) -> bool {
        let mut desks = self.shared.desks.lock();
        let news = desks.get(&self.key).is_some_and(|desk| desk.news);
        if !news {
            desks.remove(&self.key);
        }
        !news
    }

    /// The allocations whose claims are to be freed; none where that cannot be read: the next sign
    /// is heard again.
    fn waiting(&self) -> Vec<String> {
        let found = self.shared.volumes.to_release((&self.key.0, &self.key.1));
        let found = found.inspect_err(|error| tracing::warn!(%error, "a volume cannot be read"));
        let found = found.unwrap_or_default().into_iter();
        found.map(|waiting| waiting.alloc).collect()
    }

    /// Frees one claim, however often it must be tried; the allocation.
    async fn free(&self, alloc: String) -> String {
        let mut delays = delays(self.shared.first);
        let place = (self.key.0.as_str(), self.key.1.as_str());
        loop {
            let origin = Origin {
                actor: Identity::server(&self.shared.server, "volume_watcher").actor,
                request_id: uuid::Uuid::now_v7().to_string(),
                ..Origin::default()
            };
            // Registered before the try: what becomes possible meanwhile is not missed.
            let chance = self.shared.chance.notified();
            let Err(error) = self.shared.volumes.unpublish(place, &alloc, &origin).await else {
                return alloc;
            };
            // They never end.
            let delay = delays.next().unwrap_or(LONGEST);
            tracing::debug!(alloc, %error, ?delay, "a claim is not free yet");
            if !self.waiting().contains(&alloc) {
                return alloc;
            }
            let jitter = delay.mul_f64(0.75 + rand::random::<f64>() / 2.0);
            tokio::select! {
                () = tokio::time::sleep(jitter) => {}
                () = chance => tokio::time::sleep(self.shared.first.min(jitter)).await,
            }
        }
    }
}

#[cfg(test)]
#[path = "volume_watcher_test.rs"]
mod tests;
