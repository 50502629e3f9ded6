//! Starting and stopping openraft, on a thread of its own, and which server leads.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drover_projections::Writer;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use openraft::{Config, Instant as _, Raft, ServerState, Snapshot, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::fold::Fold;
use super::log_store::LogStore;
use super::network::{Method, Network, Transport, TransportError, decode, encode};
use super::snapshot::{self, SnapshotDir, SnapshotHead, StateSpace};
use super::state_machine::{Applier, Parked, StateMachine};
use super::types::{Member, Payload, Response, TypeConfig};
use super::write::LogWriter;
use crate::log::LogEngine;
use crate::telemetry::{milliseconds, took};

/// How often at most is looked at when the other servers answered.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
/// How long a base may take.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(600);
/// How long dropping the beginning of the log may take.
const PURGE_LIMIT: Duration = Duration::from_secs(60);

/// Time limits of Raft.
#[derive(Clone, Copy, Debug)]
pub struct RaftSettings {
    /// How often a leader shows itself.
    pub heartbeat: Duration,
    /// The shortest silence after which a follower stands for election.
    pub election_min: Duration,
    /// The longest.
    pub election_max: Duration,
    /// How long a snapshot may take.
    pub snapshot_timeout: Duration,
}

impl RaftSettings {
    /// The same, every time between servers `by` times as long (`raft_multiplier`; 0 is 1).
    pub fn stretched(self, by: u32) -> RaftSettings {
        let by = by.max(1);
        RaftSettings {
            heartbeat: self.heartbeat * by,
            election_min: self.election_min * by,
            election_max: self.election_max * by,
            ..self
        }
    }
}

impl Default for RaftSettings {
    fn default() -> RaftSettings {
        RaftSettings {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(400),
            election_max: Duration::from_millis(800),
            snapshot_timeout: Duration::from_secs(600),
        }
    }
}

/// What a node is started with.
pub struct RaftStart {
    /// The number Raft knows this server by.
    pub number: u64,
    /// The log; its `on_full` must be `Wait`, since a failed append is fatal to openraft.
    pub log: Arc<LogEngine>,
    /// What committed entries are applied to.
    pub fold: Box<dyn Fold>,
    /// Where snapshots lie.
    pub snapshots: PathBuf,
    /// The way to the other servers.
    pub transport: Arc<dyn Transport>,
    /// Time limits.
    pub settings: RaftSettings,
    /// The members of a new cluster; ignored where a log exists. `None` waits to be invited.
    pub bootstrap: Option<BTreeMap<u64, Member>>,
}

/// Which server leads, as far as this one knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// No server.
    #[default]
    Unknown,
    /// Another server.
    Following(Member),
    /// This server, but it has not yet applied an entry of its own term.
    Elected,
    /// This server, and it may propose: the first entry of this term is applied.
    Leading { term: u64 },
}

/// What can go wrong here.
#[derive(Debug, thiserror::Error)]
pub enum RaftFailure {
    /// A file or thread.
    #[error("raft: {0}")]
    Io(#[from] io::Error),
    /// openraft refused or stopped.
    #[error("raft: {0}")]
    Raft(String),
}

fn failed(e: impl std::fmt::Display) -> RaftFailure {
    RaftFailure::Raft(e.to_string())
}

pub(super) type Inner = Raft<TypeConfig, StateMachine>;

/// A running Raft node.
pub struct RaftNode {
    pub(super) raft: Inner,
    handle: Handle,
    pub(super) log: Arc<LogEngine>,
    applier: Applier,
    pub(super) leadership: watch::Receiver<Leadership>,
    thread: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl RaftNode {
    /// Starts a node. A lone voter stands for election at once.
    ///
    /// # Errors
    /// If the log or the state cannot be read, or the threads cannot be started.
    pub async fn start(start: RaftStart) -> Result<Arc<RaftNode>, RaftFailure> {
        let (handle, thread) = spawn_runtime()?;
        let machine = StateMachine::new(start.fold, Arc::clone(&start.log), start.snapshots)?;
        let applier = machine.applier();
        let store = LogStore::new(Arc::clone(&start.log)).of(start.number);
        let network = Network::new(start.transport, start.number);
        let config = Arc::new(config(start.settings).validate().map_err(failed)?);
        let (tx, leadership) = watch::channel(Leadership::default());
        let (number, bootstrap) = (start.number, start.bootstrap);
        let often = start.settings.election_min.max(SHORTEST_LOOK);
        let begin = async move {
            let raft = Inner::new(number, config, network, store, machine)
                .await
                .map_err(failed)?;
            if let Some(members) = bootstrap
                && !raft.is_initialized().await.map_err(failed)?
            {
                raft.initialize(members).await.map_err(failed)?;
            } else if raft.voter_ids().collect::<Vec<_>>() == [number] {
                raft.trigger().elect(false).await.map_err(failed)?;
            }
            tokio::spawn(follow(raft.clone(), number, tx));
            tokio::spawn(watch_contact(raft.clone(), number, often));
            Ok::<Inner, RaftFailure>(raft)
        };
        let raft = handle.spawn(begin).await.map_err(failed)??;
        Ok(Arc::new(RaftNode {
            raft,
            handle,
            log: start.log,
            applier,
            leadership,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Which server leads; changes can be waited for.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// The event at which the applier waits for a newer program.
    pub fn parked(&self) -> Option<Parked> {
        self.applier.parked()
    }

    /// Takes what the leader wants in the log.
    pub fn writer(&self) -> LogWriter {
        LogWriter(self.raft.clone())
    }

    /// openraft itself, for tests.
    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Inner {
        &self.raft
    }

    /// The runtime that Raft runs on.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Why nothing can be written any more, if the log stopped: it takes nothing until it is opened
    /// again, since what a failed write left on the disk is not known.
    pub fn fault(&self) -> Option<String> {
        fault(&self.log)
    }

    /// Runs `f` with the projections' writer between two batches, and waits for what it answers:
    /// nothing is applied meanwhile. Not for a thread that serves others.
    ///
    /// # Errors
    /// If this node has stopped, or projects nothing.
    pub fn with_writer<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T, RaftFailure> {
        let done = self
            .applier
            .with_waiting(move |fold| fold.writer().map(f))?;
        done.ok_or_else(|| failed("nothing is projected here"))
    }

    pub fn log(&self) -> &Arc<LogEngine> {
        &self.log
    }

    /// The voters and learners now in force: number, member, whether it votes.
    pub fn members(&self) -> Vec<(u64, Member, bool)> {
        let metrics = self.raft.server_metrics().borrow_watched().clone();
        let membership = metrics.membership_config.membership();
        let voters: Vec<u64> = membership.voter_ids().collect();
        membership
            .nodes()
            .map(|(id, m)| (*id, m.clone(), voters.contains(id)))
            .collect()
    }

    /// Term, last log index and last applied index.
    pub fn progress(&self) -> (u64, u64, u64) {
        let m = self.raft.metrics().borrow_watched().clone();
        let applied = m.last_applied.map_or(0, |id| id.index);
        (m.current_term, m.last_log_index.unwrap_or(0), applied)
    }

    /// Commits a payload as it is and waits until it is applied. Commands go through the
    /// [`Proposer`](crate::proposer::Proposer); this is for what has no envelope.
    ///
    /// # Errors
    /// If this server does not lead or stops.
    pub async fn commit(&self, payload: Payload) -> Result<Response, RaftFailure> {
        let written = self.raft.client_write(payload).await.map_err(failed)?;
        Ok(written.data)
    }

    /// Answers a message of another server.
    ///
    /// # Errors
    /// If the message is malformed or this node has stopped.
    pub async fn serve(&self, method: Method, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        let refused = |e: String| TransportError::Refused(e);
        match method {
            Method::Append => {
                let rpc: AppendEntriesRequest<TypeConfig> = decode(request)?;
                let answer = self.raft.append_entries(rpc).await;
                encode(&answer.map_err(|e| refused(e.to_string()))?)
            }
            Method::Vote => {
                let rpc: VoteRequest<TypeConfig> = decode(request)?;
                encode(
                    &self
                        .raft
                        .vote(rpc)
                        .await
                        .map_err(|e| refused(e.to_string()))?,
                )
            }
            Method::PreVote => {
                let rpc: VoteRequest<TypeConfig> = decode(request)?;
                encode(
                    &self
                        .raft
                        .pre_vote(rpc)
                        .await
                        .map_err(|e| refused(e.to_string()))?,
                )
            }
            Method::TransferLeader => {
                let rpc: TransferLeaderRequest<TypeConfig> = decode(request)?;
                let answer = self.raft.handle_transfer_leader(rpc).await;
                encode(&answer.map_err(|e| refused(e.to_string()))?)
            }
        }
    }

    /// Installs a snapshot that another server sent into `dir`; answers its message back.
    ///
    /// # Errors
    /// If the snapshot is malformed or this node has stopped.
    pub async fn install(&self, vote: &[u8], dir: PathBuf) -> Result<Vec<u8>, TransportError> {
        let refused = |e: String| TransportError::Refused(e);
        let snapshot = SnapshotDir::new(dir);
        let head = snapshot.head().map_err(|e| refused(e.to_string()))?;
        let snapshot = Snapshot {
            meta: head.meta(),
            snapshot,
        };
        let answer = self
            .raft
            .install_full_snapshot(decode(vote)?, snapshot)
            .await;
        encode(&answer.map_err(|e| refused(e.to_string()))?)
    }

    /// Writes the state as it is applied now, and its head, into the directory `dir`, which is
    /// made, as long as `fits` allows it. Raft does not know of it.
    ///
    /// # Errors
    /// If the files cannot be written; a full disk is of the kind [`io::ErrorKind::StorageFull`].
    pub async fn write_state(
        &self,
        dir: PathBuf,
        fits: StateSpace,
    ) -> io::Result<(SnapshotHead, SnapshotDir)> {
        let membership = {
            let metrics = self.raft.server_metrics().borrow_watched().clone();
            metrics.membership_config.as_ref().clone()
        };
        let dir = SnapshotDir::new(dir);
        let head = snapshot::write(&dir, &self.applier, &self.log, &membership, fits).await?;
        Ok((head, dir))
    }

    /// Makes a snapshot of what is applied, which is a base that the log can continue from.
    ///
    /// # Errors
    /// If it cannot be written in time.
    pub async fn make_snapshot(&self) -> Result<(), RaftFailure> {
        let (_, _, applied) = self.progress();
        self.raft.trigger().snapshot().await.map_err(failed)?;
        let there = move |m: &openraft::RaftMetrics<TypeConfig>| {
            m.snapshot.is_some_and(|id| id.index >= applied)
        };
        let wait = self.raft.wait(Some(SNAPSHOT_LIMIT));
        let done = wait.metrics(there, "a snapshot").await;
        done.map(|_| ()).map_err(failed)
    }

    /// Drops what lies below the base at `index`: first the past that can be queried, then the log.
    ///
    /// # Errors
    /// If there is no such base, or files cannot be written.
    pub async fn forget_below(&self, index: u64) -> Result<(), RaftFailure> {
        self.applier.with(move |fold| fold.forget(index)).await??;
        self.raft.trigger().purge_log(index).await.map_err(failed)?;
        let gone = move |m: &openraft::RaftMetrics<TypeConfig>| {
            m.purged.is_some_and(|id| id.index >= index)
        };
        let wait = self.raft.wait(Some(PURGE_LIMIT));
        let done = wait.metrics(gone, "the end of the log").await;
        done.map(|_| ()).map_err(failed)
    }

    /// Stops Raft and its thread. What is in flight is answered with an error or not at all.
    pub async fn shutdown(&self) {
        let raft = self.raft.clone();
        let _ = self
            .handle
            .spawn(async move { raft.shutdown().await })
            .await;
        self.applier.stop().await;
        let thread = self.thread.lock().take();
        if let Some((stop, thread)) = thread {
            drop(stop);
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// The error of a log that stopped.
pub(crate) fn fault(log: &LogEngine) -> Option<String> {
    let why = log.stopped()?;
    let why = why.strip_prefix("log: ").unwrap_or(&why);
    Some(format!(
        "the log stopped after a failed write ({why}): nothing is written until the disk is mended \
         and the agent started again"
    ))
}

type RuntimeThread = (oneshot::Sender<()>, JoinHandle<()>);

/// A current-thread runtime on its own thread: a busy API never costs an election.
fn spawn_runtime() -> io::Result<(Handle, RuntimeThread)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new()
        .name("raft".to_owned())
        .spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
    Ok((handle, (stop, thread)))
}

fn config(settings: RaftSettings) -> Config {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    Config {
        cluster_name: "drover".to_owned(),
        heartbeat_interval: ms(settings.heartbeat),
        election_timeout_min: ms(settings.election_min),
        election_timeout_max: ms(settings.election_max),
        install_snapshot_timeout: ms(settings.snapshot_timeout),
        max_payload_entries: 4096,
        max_append_entries: Some(4096),
        api_batch_capacity: 4096,
        api_batch_linger_ms: 0,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: u64::MAX,
        enable_pre_vote: Some(true),
        // A restarted leader stands again: its first event names the leader, in a term of its own.
        enable_leader_restore: Some(false),
        ..Config::default()
    }
}

/// Keeps `Leadership` true to openraft's state.
async fn follow(raft: Inner, this: u64, tx: watch::Sender<Leadership>) {
    let mut metrics = raft.server_metrics();
    loop {
        let now = metrics.borrow_watched().clone();
        let term = now.vote.leader_id.term;
        if now.state == ServerState::Leader {
            let began = Instant::now();
            tx.send_if_modified(|l| replace(l, Leadership::Elected, term));
            let own = move |m: &openraft::RaftMetrics<TypeConfig>| {
                m.state != ServerState::Leader
                    || m.current_term != term
                    || m.last_applied.is_some_and(|id| *id.leader_id == term)
            };
            if raft
                .wait(None)
                .metrics(own, "the first entry of this term")
                .await
                .is_err()
            {
                break;
            }
            let still = metrics.borrow_watched().clone();
            if still.state == ServerState::Leader && still.vote.leader_id.term == term {
                let leads = tx.send_if_modified(|l| replace(l, Leadership::Leading { term }, term));
                if leads {
                    took("nomad.nomad.leader.barrier", began);
                }
            }
        } else {
            let leader = now.current_leader.filter(|l| *l != this);
            let member = leader
                .and_then(|l| now.membership_config.membership().get_node(&l).cloned())
                .map_or(Leadership::Unknown, Leadership::Following);
            tx.send_if_modified(|l| replace(l, member, term));
        }
        if metrics.changed().await.is_err() {
            break;
        }
    }
    tx.send_replace(Leadership::Unknown);
}

/// Samples how long ago each other voter answered this server, while it leads.
async fn watch_contact(raft: Inner, this: u64, often: Duration) {
    let seen = raft.metrics();
    drop(raft);
    let mut looks = tokio::time::interval(often);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let now = seen.borrow_watched().clone();
        if now.running_state.is_err() {
            return;
        }
        let voters: Vec<u64> = now.membership_config.voter_ids().collect();
        for (number, answered) in now.heartbeat.iter().flatten() {
            if let Some(answered) = answered
                && *number != this
                && voters.contains(number)
            {
                let ago = milliseconds(answered.elapsed());
                metrics::histogram!("nomad.raft.leader.lastContact").record(ago);
            }
        }
    }
}

/// Sets `now` to `next`; a leader of the same term is not reported as elected again.
fn replace(now: &mut Leadership, next: Leadership, term: u64) -> bool {
    let again = next == Leadership::Elected && *now == Leadership::Leading { term };
    if again || *now == next {
        return false;
    }
    *now = next;
    true
}
