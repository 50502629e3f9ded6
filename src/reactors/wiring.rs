//! Which reactors there are, and when they run: those of the leader while this server leads and has
//! applied the first entry of its term, the others all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_projections::Projections;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::checkpoint_signer::{CheckpointSettings, CheckpointSigner};
use super::core_gc::{CoreGc, GcSettings};
use super::deployment_watcher::DeploymentWatcher;
use super::digest_recorder::{DigestRecorder, DigestSettings};
use super::drainer::Drainer;
use super::heartbeat_expiry::{HeartbeatExpiry, HeartbeatSettings, Heartbeats};
use super::kafka::{KafkaPublisher, KafkaSource};
use super::live_key_sets::LiveKeySets;
use super::periodic::PeriodicDispatcher;
use super::retention::{Keeping, Retention};
use super::runner::{Board, Context, Reactor, ReactorStatus, RunningReactor, Scope, start};
use super::scheduling::{Scheduling, SchedulingSettings, SchedulingStatus};
use super::token_expiry::TokenExpiry;
use super::volume_watcher::VolumeWatcher;
use crate::base::clock::Clock;
use crate::error::chain;
use crate::history::proof::Ledger;
use crate::keyring::Keyring;
use crate::proposer::decided::Propose;
use crate::telemetry::took;
use crate::volumes::Volumes;

#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorSettings {
    pub scheduling: SchedulingSettings,
    pub heartbeats: HeartbeatSettings,
    /// Garbage collection.
    pub gc: GcSettings,
    /// How long tokens are kept that have expired.
    pub expired_tokens: Duration,
    /// Checkpoints of the log.
    pub checkpoints: CheckpointSettings,
    /// Digests in the log.
    pub digests: DigestSettings,
}

/// What reactors work on beside the projections.
#[derive(Clone)]
pub struct Sources {
    /// This server, by id.
    pub server: String,
    /// CSI volumes; none where there are no plugins to call.
    pub volumes: Option<Arc<Volumes>>,
    /// What checkpoints are kept in and signed with.
    pub signing: (Arc<Ledger>, Arc<Keyring>),
    /// Kafka, where events are to be published to it.
    pub kafka: Option<KafkaSource>,
    /// How much of the log is kept.
    pub keeping: Keeping,
}

/// Every reactor but scheduling, which has workers of its own. A new one that is not started below
/// is a warning of the compiler.
struct All {
    live_key_sets: LiveKeySets,
    heartbeat_expiry: HeartbeatExpiry,
    core_gc: CoreGc,
    deployment_watcher: DeploymentWatcher,
    drainer: Drainer,
    periodic_dispatcher: PeriodicDispatcher,
    checkpoint_signer: CheckpointSigner,
    digest_recorder: DigestRecorder,
    event_publisher: Option<KafkaPublisher>,
    retention: Retention,
    token_expiry: TokenExpiry,
    volume_watcher: Option<VolumeWatcher>,
}

impl All {
    fn new(heartbeats: &Arc<Heartbeats>, settings: &ReactorSettings, sources: &Sources) -> Self {
        let (ledger, keyring) = &sources.signing;
        Self {
            live_key_sets: LiveKeySets::default(),
            heartbeat_expiry: HeartbeatExpiry::new(Arc::clone(heartbeats)),
            core_gc: CoreGc::new(settings.gc),
            deployment_watcher: DeploymentWatcher::default(),
            drainer: Drainer::default(),
            periodic_dispatcher: PeriodicDispatcher::default(),
            checkpoint_signer: CheckpointSigner::new(
                Arc::clone(ledger),
                Arc::clone(keyring),
                settings.checkpoints,
            ),
            digest_recorder: DigestRecorder::new(settings.digests, sources.server.as_str()),
            event_publisher: sources.kafka.clone().map(KafkaPublisher::new),
            retention: Retention::new(
                sources.keeping.clone(),
                Arc::clone(ledger),
                Arc::clone(keyring),
            ),
            token_expiry: TokenExpiry::new(settings.expired_tokens),
            volume_watcher: (sources.volumes.as_ref())
                .map(|volumes| VolumeWatcher::new(Arc::clone(volumes), &sources.server)),
        }
    }

    fn into_list(self) -> Vec<Arc<dyn Reactor>> {
        let Self {
            live_key_sets,
            heartbeat_expiry,
            core_gc,
            deployment_watcher,
            drainer,
            periodic_dispatcher,
            checkpoint_signer,
            digest_recorder,
            event_publisher,
            retention,
            token_expiry,
            volume_watcher,
        } = self;
        let mut list: Vec<Arc<dyn Reactor>> = vec![
            Arc::new(live_key_sets),
            Arc::new(heartbeat_expiry),
            Arc::new(core_gc),
            Arc::new(deployment_watcher),
            Arc::new(drainer),
            Arc::new(periodic_dispatcher),
            Arc::new(checkpoint_signer),
            Arc::new(digest_recorder),
            Arc::new(retention),
            Arc::new(token_expiry),
        ];
        list.extend(volume_watcher.map(|one| Arc::new(one) as Arc<dyn Reactor>));
        list.extend(event_publisher.map(|one| Arc::new(one) as Arc<dyn Reactor>));
        list
    }
}

/// What operators see at `/v1/operator/reactors`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReactorsStatus {
    /// Scheduling, while this server leads.
    pub scheduling: Option<SchedulingStatus>,
    /// The others, by name.
    pub reactors: BTreeMap<&'static str, ReactorStatus>,
}

/// What threads that serve can query of reactors. They wait neither for a start or stop of reactors
/// nor, but for the status of scheduling, for readers.
#[derive(Clone)]
pub struct Activity {
    /// Locked for no longer than a look.
    scheduling: Arc<Mutex<Option<Scheduling>>>,
    board: Board,
}

impl Activity {
    /// Whether plans are on their way: what can wait should.
    pub fn is_placing(&self) -> bool {
        let scheduling = self.scheduling.lock();
        scheduling.as_ref().is_some_and(Scheduling::is_placing)
    }

    /// What scheduling does, while this server leads.
    pub fn scheduling(&self) -> Option<SchedulingStatus> {
        // Readers of the tables may be waited for: not while this is locked.
        let shared = self.scheduling.lock().as_ref().map(Scheduling::shared);
        shared.map(|shared| shared.status())
    }

    /// The states of the others, by name.
    pub fn reactors(&self) -> BTreeMap<&'static str, ReactorStatus> {
        self.board.all()
    }

    /// What all of them are doing.
    pub fn status(&self) -> ReactorsStatus {
        ReactorsStatus {
            scheduling: self.scheduling(),
            reactors: self.reactors(),
        }
    }
}

/// The reactors of one server. Dropping it stops them.
pub struct Reactors {
    heartbeats: Arc<Heartbeats>,
    activity: Activity,
    stopped: CancellationToken,
    task: JoinHandle<()>,
}

impl Reactors {
    /// Starts them; to be called in a runtime. `ready` says in which term commands are taken here.
    pub fn start(
        projections: Arc<Projections>,
        proposer: Arc<dyn Propose>,
        ready: watch::Receiver<Option<u64>>,
        settings: ReactorSettings,
        sources: Sources,
    ) -> Self {
        let heartbeats = Heartbeats::new(settings.heartbeats);
        let activity = Activity {
            scheduling: Arc::default(),
            board: Board::default(),
        };
        let context = Context {
            projections,
            proposer,
            clock: Clock::default(),
        };
        let stopped = CancellationToken::new();
        let lead = Lead {
            stopped: stopped.clone(),
            heartbeats: Arc::clone(&heartbeats),
            activity: activity.clone(),
            context,
            settings,
            sources,
        };
        let task = tokio::spawn(lead.follow(ready));
        Self {
            heartbeats,
            activity,
            stopped,
            task,
        }
    }

    /// Stops them all, and waits until none reads or proposes anything any more.
    pub async fn stop(mut self) {
        self.stopped.cancel();
        let _ = (&mut self.task).await;
    }

    /// The deadlines of nodes, for the receiver of heartbeats.
    pub fn heartbeats(&self) -> &Arc<Heartbeats> {
        &self.heartbeats
    }

    /// What they are doing, for status calls.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }
}

impl Drop for Reactors {
    fn drop(&mut self) {
        // First: what is just being started is then not put where nothing would take it from any
        // more.
        self.stopped.cancel();
        self.task.abort();
        let scheduling = self.activity.scheduling.lock().take();
        // Its workers are waited for, but not here: a caller that did not wait for the stop has
        // given it up.
        let dropped = std::thread::Builder::new().name("stop".to_owned());
        let _ = dropped.spawn(move || drop(scheduling));
    }
}

/// When scheduling is started again that could not be.
const RESTART: Duration = Duration::from_secs(1);

/// What starts and stops the leader's reactors.
struct Lead {
    heartbeats: Arc<Heartbeats>,
    activity: Activity,
    context: Context,
    settings: ReactorSettings,
    sources: Sources,
    stopped: CancellationToken,
}

impl Lead {
    async fn follow(self, mut ready: watch::Receiver<Option<u64>>) {
        let always: Vec<RunningReactor> = self.list(Scope::EveryServer);
        let mut leading: Vec<RunningReactor> = Vec::new();
        let (mut term, mut begun) = (None, None);
        loop {
            let now = *ready.borrow_and_update();
            if now != term {
                let ended = Instant::now();
                stop_all(std::mem::take(&mut leading)).await;
                self.stop_scheduling().await;
                if term.is_some() {
                    took("nomad.nomad.leader.revoke_leadership", ended);
                }
                begun = now.map(|_| Instant::now());
                if let Some(term) = now {
                    tracing::info!(term, "reactors of the leader start");
                    leading = self.list(Scope::Leader);
                }
                term = now;
            }
            let missing = term.is_some() && !self.start_scheduling().await;
            if let Some(begun) = begun.take_if(|_| !missing) {
                took("nomad.nomad.leader.establish_leadership", begun);
            }
            let again = if missing { RESTART } else { Duration::MAX };
            let changed = timeout(again, ready.changed());
            match self.stopped.run_until_cancelled(changed).await {
                None | Some(Ok(Err(_))) => break,
                Some(_) => {}
            }
        }
        stop_all(leading).await;
        self.stop_scheduling().await;
        stop_all(always).await;
    }

    fn list(&self, scope: Scope) -> Vec<RunningReactor> {
        let all = All::new(&self.heartbeats, &self.settings, &self.sources).into_list();
        let wanted = all.into_iter().filter(|reactor| reactor.scope() == scope);
        wanted
            .map(|one| start(one, self.context.clone(), self.activity.board.clone()))
            .collect()
    }

    /// Starts scheduling where it does not run. Answers whether it runs, or need not any more.
    async fn start_scheduling(&self) -> bool {
        if self.activity.scheduling.lock().is_some() {
            return true;
        }
        let Context {
            projections,
            proposer,
            ..
        } = self.context.clone();
        let settings = self.settings.scheduling;
        // It reads every node and every open evaluation first. Requests that are served here do not
        // wait for it, nor do status calls.
        let started = move || Scheduling::start(projections, proposer, settings);
        let error = match tokio::task::spawn_blocking(started).await {
            Ok(Ok(started)) => {
                if let Some(late) = self.keep(started) {
                    let _ = tokio::task::spawn_blocking(move || drop(late)).await;
                }
                return true;
            }
            Ok(Err(error)) => chain(&error),
            Err(error) => chain(&error),
        };
        tracing::error!(error, "scheduling did not start; it is tried again");
        false
    }

    /// Keeps what runs from now on; gives it back where all were stopped meanwhile.
    fn keep(&self, started: Scheduling) -> Option<Scheduling> {
        let mut running = self.activity.scheduling.lock();
        if self.stopped.is_cancelled() {
            return Some(started);
        }
        *running = Some(started);
        None
    }

    async fn stop_scheduling(&self) {
        let running = self.activity.scheduling.lock().take();
        if let Some(running) = running {
            let _ = tokio::task::spawn_blocking(move || drop(running)).await;
        }
    }
}

async fn stop_all(running: Vec<RunningReactor>) {
    running.iter().for_each(RunningReactor::halt);
    for one in running {
        one.stop().await;
    }
}

#[cfg(test)]
#[path = "wiring_test.rs"]
mod tests;
