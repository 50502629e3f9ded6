//! Claims on volumes that are over and were not released: of nodes that were lost, of clients that
//! could not, of steps that failed. Each is given back by the same function that clients call
//! (VW-06), outside of scheduling (VW-01).
//!
//! A volume with claims to free has one worker; a volume without has none (VW-08). A worker's
//! claims do not wait for one another (VW-16), and each waits longer after each failure (VW-20).
//!
//! Invariants:
//! 1. What changes is followed without a gap; what was missed before this server led is found by
//!    one look at every volume when it begins (VW-04).
//! 2. A worker leaves only when its volume did not change since it looked last, both under one
//!    lock: the notice of a change reaches it, or the next worker (VW-09).
//! 3. Workers belong to the reactor: they end with it, and call nothing any more (VW-02).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use drover_events::EventKind;
use drover_events::model::CsiVolumeKey;
use drover_projections::key::{Id, Key as _};
use drover_projections::query::csi;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes::Nodes;
use drover_projections::{Change, Interest, Scan, StorageError, Table, View};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::identity::Identity;
use crate::proposer::Origin;
use crate::volumes::{PendingRelease, Signs, Volumes};

/// The wait after the first failure of a claim, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// By how much of itself each wait differs at random: many that failed at once do not come at once.
const SPREAD: f64 = 0.5;
/// How far behind what changed is still followed; beyond, every volume is looked at.
const BEHIND: u64 = 20_000;
/// How often the status is updated while there is work, and while there is none.
const BUSY: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(300);
/// How many claims that wait are shown.
const SHOWN: usize = 20;

pub struct VolumeWatcher {
    shared: Arc<WatcherShared>,
    workers: Mutex<JoinSet<()>>,
    /// What was followed last; none before the first look at all.
    followed: Mutex<Option<u64>>,
    /// Whether the next look at a volume panics.
    #[cfg(test)]
    breaks: std::sync::atomic::AtomicBool,
}

/// What workers share.
struct WatcherShared {
    volumes: Arc<Volumes>,
    server: String,
    desks: Mutex<HashMap<CsiVolumeKey, Desk>>,
    /// A node or a plugin came, or went: what failed may be possible now.
    chance: Notify,
    /// The wait after the first failure of a claim.
    first: Duration,
    /// By how much of itself each wait differs at random.
    spread: f64,
}

/// The notices for a worker.
struct Desk {
    /// Its volume changed since it looked.
    news: bool,
    /// The index of the last change.
    cause: Option<u64>,
    wake: Arc<Notify>,
}

impl VolumeWatcher {
    /// Gives back what is over, in the name of this server.
    pub fn new(volumes: Arc<Volumes>, server: &str) -> Self {
        Self {
            shared: Arc::new(WatcherShared {
                volumes,
                server: server.to_owned(),
                desks: Mutex::default(),
                chance: Notify::new(),
                first: FIRST,
                spread: SPREAD,
            }),
            workers: Mutex::default(),
            followed: Mutex::new(None),
            #[cfg(test)]
            breaks: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// How many volumes have a worker.
    pub fn workers(&self) -> usize {
        self.shared.desks.lock().len()
    }

    /// Looks at every volume once. A volume that cannot be read has its turn at its next change.
    fn look_at_all(&self, context: &Context, each: &mut Each) -> Result<(), StorageError> {
        let view = context.projections.view();
        let index = view.index();
        let used = used(&view, each)?;
        drop(view);
        self.shared.volumes.forget_others(&used);
        for key in used {
            let what = key.1.clone();
            each.judge(&what, || self.see_to(key, None))?;
        }
        *self.followed.lock() = Some(index);
        Ok(())
    }

    /// Follows what changed.
    fn follow(&self, context: &Context, from: u64, each: &mut Each) -> Result<(), StorageError> {
        let view = context.projections.view();
        let index = view.index();
        let mut touched = BTreeMap::new();
        let (mut chance, mut all) = (false, false);
        // Where there never was a volume there is nothing to follow.
        if view.table_index::<CsiVolumes>() > 0 {
            for changes in view.changes(from + 1) {
                for change in changes? {
                    chance |= is_chance(&change);
                    match each.row(volumes_of(&view, &change))?.flatten() {
                        Some(volumes) => {
                            let cause = Some(change.index);
                            touched.extend(volumes.into_iter().map(|key| (key, cause)));
                        }
                        None => all = true,
                    }
                }
            }
        }
        if all {
            for key in used(&view, each)? {
                touched.entry(key).or_insert(None);
            }
        }
        drop(view);
        for (key, cause) in touched {
            let what = key.1.clone();
            each.judge(&what, || self.see_to(key, cause))?;
        }
        if chance {
            self.shared.chance.notify_waiters();
        }
        *self.followed.lock() = Some(index);
        Ok(())
    }

    /// Sees to it that a volume that needs one has a worker, and gives it the cause.
    fn see_to(&self, key: CsiVolumeKey, cause: Option<u64>) -> Result<(), StorageError> {
        #[cfg(test)]
        assert!(
            !self.breaks.swap(false, std::sync::atomic::Ordering::AcqRel),
            "a test says so"
        );
        if let Some(desk) = self.shared.desks.lock().get_mut(&key) {
            (desk.news, desk.cause) = (true, cause);
            desk.wake.notify_one();
            return Ok(());
        }
        // Only this reactor makes workers, so between the two looks none came.
        let volumes = &self.shared.volumes;
        if volumes.to_release((&key.0, &key.1))?.is_empty() {
            volumes.forget((&key.0, &key.1));
            return Ok(());
        }
        let wake = Arc::new(Notify::new());
        let desk = Desk {
            news: true,
            cause,
            wake: Arc::clone(&wake),
        };
        self.shared.desks.lock().insert(key.clone(), desk);
        let worker = Worker::new(&self.shared, key, wake);
        self.workers.lock().spawn(worker.run());
        Ok(())
    }

    /// Whether a worker failed: then every volume is looked at again, its own too.
    fn reap(&self) -> bool {
        let mut workers = self.workers.lock();
        let mut failed = false;
        while let Some(ended) = workers.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a worker of a volume failed; its volume has another turn");
                failed = true;
            }
        }
        failed
    }

    fn status(&self, failed: bool) -> Activation {
        let workers = self.workers();
        let waiting = self.shared.volumes.all_last_errors(SHOWN).into_iter();
        let waiting: Vec<_> = waiting
            .map(|((namespace, volume, alloc), trouble)| {
                json!({
                    "Namespace": namespace, "VolumeID": volume, "AllocID": alloc,
                    "Error": trouble.error, "Since": trouble.since, "Tries": trouble.tries,
                })
            })
            .collect();
        Activation {
            sleep: if workers > 0 || failed { BUSY } else { IDLE },
            status: json!({ "Workers": workers, "Waiting": waiting }),
        }
    }
}

/// Whether a node or a plugin came, or went. A client's report of its allocations touches its
/// node's row only to note the time of it.
fn is_chance(change: &Change) -> bool {
    [Nodes::ID, NodeStates::ID, CsiPlugins::ID].contains(&change.table)
        && change.kind != EventKind::AllocsUpdatedByClient
}

/// The volumes with claims.
fn used(view: &View, each: &mut Each) -> Result<Vec<CsiVolumeKey>, StorageError> {
    let mut used = Vec::new();
    for row in view.scan::<CsiVolumes>(Scan::all()) {
        let Some(row) = each.row(row)? else {
            continue;
        };
        // What rows of older versions hold is not among their claims (CSI-26).
        let older = !row.volume.read_allocs.is_empty() || !row.volume.write_allocs.is_empty();
        if !row.is_at_rest() || older {
            used.push((row.volume.namespace, row.volume.id));
        }
    }
    Ok(used)
}

/// The volumes that a change may have given something to do; `None` where they can no longer be
/// found: then it may be any volume.
fn volumes_of(view: &View, change: &Change) -> Result<Option<Vec<CsiVolumeKey>>, StorageError> {
    if change.table == CsiVolumes::ID {
        return Ok(Some(
            CsiVolumeKey::from_bytes(&change.key).into_iter().collect(),
        ));
    }
    if change.table != Allocs::ID {
        return Ok(Some(Vec::new()));
    }
    let Ok(id) = Id::from_bytes(&change.key) else {
        return Ok(Some(Vec::new()));
    };
    csi::left_by(view, &id, change.index)
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
            let mut each = Each::default();
            let done = match followed {
                Some(from) if now.saturating_sub(from) <= BEHIND => {
                    self.follow(context, from, &mut each)
                }
                _ => self.look_at_all(context, &mut each),
            };
            let failed = self.reap() || each.panicked();
            if done.is_err() || failed {
                // Changes that were looked at in part are looked at again, with everything else.
                *self.followed.lock() = None;
            }
            done?;
            let mut activation = self.status(failed);
            each.report(&mut activation.status);
            Ok(activation)
        })
    }
}

/// The waits after each failure of a claim.
fn delays(first: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(first), |last| Some((*last * 2).min(MAX_DELAY)))
}

/// What frees the claims of one volume.
struct Worker {
    shared: Arc<WatcherShared>,
    key: CsiVolumeKey,
    wake: Arc<Notify>,
    /// One of the claims that it waits for need not be given back any more.
    over: Notify,
    /// Its volume, in every line of the log that is its own: a release names it by itself.
    span: tracing::Span,
}

impl Drop for Worker {
    /// However it ends, it does not stay in the way of the next one (VW-10).
    fn drop(&mut self) {
        let mut desks = self.shared.desks.lock();
        if desks
            .get(&self.key)
            .is_some_and(|desk| Arc::ptr_eq(&desk.wake, &self.wake))
        {
            desks.remove(&self.key);
        }
    }
}

impl Worker {
    fn new(shared: &Arc<WatcherShared>, key: CsiVolumeKey, wake: Arc<Notify>) -> Self {
        Self {
            span: tracing::info_span!("volume", namespace = key.0, volume = key.1),
            shared: Arc::clone(shared),
            key,
            wake,
            over: Notify::new(),
        }
    }

    async fn run(self) {
        let mut at_work = BTreeSet::new();
        let mut claims = FuturesUnordered::new();
        loop {
            let cause = self.heard();
            let waiting = self.waiting();
            if at_work.iter().any(|one| !waiting.contains(one)) {
                self.over.notify_waiters();
            }
            for one in &waiting {
                if at_work.insert(one.clone()) {
                    claims.push(self.free(one.clone(), cause));
                }
            }
            if claims.is_empty() {
                // Then nothing waits to be given back.
                let volumes = &self.shared.volumes;
                volumes.forget((&self.key.0, &self.key.1));
                if self.leaves() {
                    return;
                }
                continue;
            }
            tokio::select! {
                Some(one) = claims.next() => {
                    at_work.remove(&one);
                }
                () = self.wake.notified() => {}
            }
        }
    }

    /// It looks at what its volume is now; after what.
    fn heard(&self) -> Option<u64> {
        let mut desks = self.shared.desks.lock();
        let desk = desks.get_mut(&self.key)?;
        desk.news = false;
        desk.cause
    }

    /// Leaves, unless something was reported since it looked.
    fn leaves(&self) -> bool {
        let mut desks = self.shared.desks.lock();
        let news = desks.get(&self.key).is_some_and(|desk| desk.news);
        if !news {
            desks.remove(&self.key);
        }
        !news
    }

    /// What is to be given back; nothing where that cannot be read: the next sign starts another
    /// look.
    fn waiting(&self) -> Vec<PendingRelease> {
        self.read(self.shared.volumes.to_release((&self.key.0, &self.key.1)))
    }

    /// What was read; nothing where it could not be, which is logged.
    fn read<T: Default, E: std::fmt::Display>(&self, found: Result<T, E>) -> T {
        let warn = |error: &E| {
            let _volume = self.span.enter();
            tracing::warn!(%error, "a volume cannot be read");
        };
        found.inspect_err(warn).unwrap_or_default()
    }

    /// Sees to one claim, or to a deletion, however often it must be tried; to which.
    async fn free(&self, waiting: PendingRelease, cause: Option<u64>) -> PendingRelease {
        let mut delays = delays(self.shared.first);
        let alloc = waiting.alloc();
        let volume_key = (self.key.0.as_str(), self.key.1.as_str());
        loop {
            let origin = Origin {
                actor: Identity::server(&self.shared.server, "volume_watcher").actor,
                request_id: uuid::Uuid::now_v7().to_string(),
                cause,
                ..Origin::default()
            };
            // Looked at before the try: what becomes possible meanwhile is not missed.
            let before = self.signs(alloc);
            let done = self
                .shared
                .volumes
                .retry_release(volume_key, &waiting, &origin)
                .await;
            let Err(error) = done else {
                return waiting;
            };
            // They never end.
            let delay = delays.next().unwrap_or(MAX_DELAY);
            self.span
                .in_scope(|| tracing::debug!(alloc, %error, ?delay, "it is not free yet"));
            let random = (rand::random::<f64>() - 0.5) * self.shared.spread;
            let jitter = delay.mul_f64(1.0 + random);
            let pause = async {
                tokio::select! {
                    () = tokio::time::sleep(jitter) => {}
                    () = self.changed(alloc, &before) => {
                        tokio::time::sleep(self.shared.first.min(jitter)).await;
                    }
                }
            };
            tokio::select! {
                () = pause => {}
                () = self.freed(&waiting) => return waiting,
            }
        }
    }

    /// Waits until a claim is given back by another caller, or its volume is no more. What becomes
    /// of others gives it no turn of its own.
    async fn freed(&self, waiting: &PendingRelease) {
        loop {
            let over = self.over.notified();
            if !self.waiting().contains(waiting) {
                return;
            }
            over.await;
        }
    }

    /// Waits until what a claim needs is another than it was. What is another node's, or another
    /// plugin's, gives this claim no turn of its own: with many nodes there is always something.
    async fn changed(&self, alloc: &str, before: &Signs) {
        loop {
            let chance = self.shared.chance.notified();
            if self.signs(alloc) != *before {
                return;
            }
            chance.await;
        }
    }

    /// What a claim needs, as it is now; nothing where that cannot be read.
    fn signs(&self, alloc: &str) -> Signs {
        let volume_key = (self.key.0.as_str(), self.key.1.as_str());
        self.read(self.shared.volumes.signs(volume_key, alloc))
    }
}

#[cfg(test)]
#[path = "volume_watcher_test.rs"]
mod tests;

#[cfg(test)]
#[path = "volume_histories_test.rs"]
mod histories;
