//! One server: the log, Raft, the projections, the keyring and the reactors, put together.
//!
//! What it is: the handle that HTTP and RPC handlers work with, and the order in which its parts
//! start and stop. A read takes a view of [`Server::projections`]; a write is one command given to
//! [`Server::submit`]. There is no third way.
//!
//! What it must not know: routes, message names, tables' contents, what any event means.
//!
//! Invariants: parts start bottom up (files, projections, log, Raft, proposer, reactors) and stop
//! top down; what is acknowledged is in the log before anyone learns of it.

mod about;
mod acl_reset;
mod agreement;
pub mod backup;
mod bootstrap;
mod gauges;
mod heal;
mod keys;
pub(crate) mod leader;
pub mod member_shapes;
mod myself;
mod settings;
mod tables;
#[cfg(test)]
pub mod testing;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use drover_projections::Projections;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::agent::Client;
use crate::commands::Command;
use crate::config::Config;
use crate::error::Refusal;
use crate::gate::Gate;
use crate::history::proof::{Checkpoint, CheckpointFile, Ledger};
use crate::history::rebuild::RebuildRunner;
use crate::host_volumes::HostVolumes;
use crate::identity::Identity;
use crate::keyring::{Keyring, KeyringError};
use crate::log::{self, Epoch, LogEngine, LogError};
use crate::net::tls::Expiry;
use crate::proposer::decided::RaftPropose;
use crate::proposer::{Committed, FirstEvents, Origin, Proposer};
use crate::raft::network::Alone;
use crate::raft::{Leadership, Member, Projector, RaftFailure, RaftNode, RaftStart};
use crate::reactors::heartbeat_expiry::Heartbeats;
use crate::reactors::{Activity, Reactors, Sources};
use crate::requests::RequestLog;
use crate::rpc::forward::Web;
use crate::rpc::sessions::Sessions;
use crate::telemetry::Telemetry;
use crate::volumes::Volumes;

pub use about::described;
pub use agreement::Agreed;
use agreement::Agreement;
use gauges::jobs::JobGauges;
pub use myself::Myself;
pub(crate) use settings::kept;
use settings::{
    check_publisher, log_options, projection_options, raft_settings, reactor_settings, sources,
};

/// How long reactors have to stop, and how long a rebuild has.
const REACTORS_STOP: Duration = Duration::from_secs(2);
const WORK_STOPS: Duration = Duration::from_secs(2);

/// What a server requests of the agent that it runs in. `agent` starts what is in `server` and
/// `http`, so it knows both, and neither may know it.
pub trait Around: Send + Sync {
    /// Reads the configuration anew; answers which settings need a restart.
    ///
    /// # Errors
    /// Why all stays as it was.
    fn reload(&self) -> Result<Vec<String>, String>;

    /// The configuration as it is now.
    fn config(&self) -> Arc<Config>;

    /// When the certificates end that it uses.
    fn expiries(&self) -> Vec<Expiry>;
}

/// A running server.
pub struct Server {
    /// The agent's configuration.
    pub config: Arc<Config>,
    /// This server's name, id and addresses.
    pub me: Myself,
    /// The state to read.
    pub projections: Arc<Projections>,
    /// The way to write; most callers want [`Server::submit`].
    pub proposer: Proposer,
    /// Raft: the leader, the members, the log.
    pub raft: Arc<RaftNode>,
    /// Proofs over the log.
    pub ledger: Arc<Ledger>,
    /// The requests to this server that change nothing but matter.
    pub requests: Arc<RequestLog>,
    /// The caller.
    pub gate: Arc<Gate>,
    /// The clients of other machines that are reached from here.
    pub sessions: Arc<Sessions>,
    /// CSI volumes: what is done at their plugins.
    pub volumes: Arc<Volumes>,
    /// Volumes of hosts: what is done on their nodes.
    pub host_volumes: Arc<HostVolumes>,
    /// The root keys.
    pub keyring: Arc<Keyring>,
    /// The client of the same process, where there is one.
    pub client: OnceLock<Arc<Client>>,
    /// The HTTP API of this server, once it is open.
    pub web: OnceLock<Arc<dyn Web>>,
    /// The agent around it; none in tests.
    pub around: OnceLock<Arc<dyn Around>>,
    heartbeats: Arc<Heartbeats>,
    activity: Activity,
    reactors: Mutex<Option<Reactors>>,
    telemetry: Telemetry,
    started: Instant,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Where its files lie.
    dir: PathBuf,
    restoring: tokio::sync::Mutex<()>,
    restart: CancellationToken,
    /// Held as long as this server uses its directory.
    _alone: Box<dyn std::any::Any + Send + Sync>,
    rebuild: Arc<RebuildRunner>,
    agreement: Arc<Agreement>,
    job_gauges: Mutex<JobGauges>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file or directory.
    #[error("cannot use {path}")]
    Files {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An address in the configuration.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The projections cannot be opened.
    #[error("the projections cannot be opened")]
    Projections(#[from] drover_projections::StorageError),
    /// The log cannot be opened.
    #[error("the log cannot be opened")]
    Log(#[from] LogError),
    /// Another process serves from the directory.
    #[error(
        "{} is used by another agent: stop it first, or give this one its own -data-dir",
        .0.display()
    )]
    InUse(PathBuf),
    /// The log's end is gone.
    #[error(
        "the log ends before index {next}, but the tables were built from it up to index \
         {applied}: its end is lost. Nothing was changed; put the files of the log back, or \
         restore a backup with `drover operator snapshot restore -data-dir`"
    )]
    Short {
        /// The index after the log's last entry.
        next: u64,
        /// The last index that the tables have.
        applied: u64,
    },
    /// The log's end is gone, and the tables do not say so.
    #[error(
        "the log ends before index {next}, but index {signed} was signed: its end is lost. Nothing \
         was changed; put the files of the log back, or restore a backup with \
         `drover operator snapshot restore -data-dir`"
    )]
    Cut {
        /// The index after the log's last entry.
        next: u64,
        /// The index of the last checkpoint.
        signed: u64,
    },
    /// The request log cannot be opened.
    #[error("the request log, without which requests must not be answered, cannot be opened")]
    Requests(#[source] LogError),
    /// The projections were written by a newer drover, or cannot be brought up to date.
    #[error(transparent)]
    Schema(#[from] drover_migrations::schema::SchemaError),
    /// The projections are damaged and cannot be built again.
    #[error("the projections are damaged and cannot be built again from the log")]
    Rebuild(#[source] crate::history::rebuild::RebuildError),
    /// A backup that was restored cannot be put in place.
    #[error("the backup that was restored cannot be put in place; the next start continues it")]
    Restore(#[from] crate::history::ArchiveError),
    /// The keystore cannot be opened.
    #[error("the keystore cannot be opened")]
    Keyring(#[from] KeyringError),
    /// The files of the log's proofs cannot be used.
    #[error(transparent)]
    Proof(#[from] crate::history::proof::ProofError),
    /// Raft does not start.
    #[error(transparent)]
    Raft(#[from] RaftFailure),
}

/// The log of a server whose files lie in `dir` and whose tables reach `applied`.
fn open_log(config: &Config, dir: &Path, applied: u64) -> Result<Arc<LogEngine>, StartError> {
    let (log, report) = LogEngine::open(&dir.join("log"), log_options(config))?;
    whole(&log, applied)?;
    signed(dir, log.epoch(), log.bounds().1)?;
    tracing::debug!(?report, "opened the log");
    Ok(Arc::new(log))
}

/// What a leader of an empty state begins with.
fn first_events(config: &Config, me: &Myself, raft: &RaftNode) -> FirstEvents {
    let (me, configured) = (me.clone(), config.server.scheduler_configuration());
    let begin = raft.log().epoch().first_index;
    Arc::new(move |view: &_| bootstrap::first_events(view, &me, &configured, true, begin))
}

/// The request log of an agent whose files lie in `dir`.
///
/// # Errors
/// That it cannot be opened, where requests must not be answered without it.
pub(crate) fn requests(config: &Config, dir: &Path) -> Result<Arc<RequestLog>, StartError> {
    if !config.audit.enabled {
        return Ok(Arc::new(RequestLog::off()));
    }
    let opened = RequestLog::open(&dir.join("requests"), config.audit.delivery_guarantee);
    opened.map(Arc::new).map_err(StartError::Requests)
}

impl Server {
    /// Starts a server whose files lie in `data_dir`.
    ///
    /// # Errors
    /// What could not be opened, with its place. Nothing is changed by a start that fails.
    pub async fn start(
        config: Arc<Config>,
        data_dir: &Path,
        telemetry: Telemetry,
    ) -> Result<Arc<Self>, StartError> {
        let files: Arc<dyn log::FileLayer> = Arc::new(log::RealFiles);
        Self::start_on(config, (data_dir, files), telemetry).await
    }

    /// The same with its keystore on a file layer, so that tests can have its files fail.
    pub(crate) async fn start_on(
        config: Arc<Config>,
        (data_dir, keystore): (&Path, Arc<dyn log::FileLayer>),
        telemetry: Telemetry,
    ) -> Result<Arc<Self>, StartError> {
        let (started, agreement) = (Instant::now(), Arc::new(Agreement::default()));
        check_publisher(&config)?;
        let dir = config.server_dir(data_dir);
        let me = Myself::load_or_create(&config, &dir)?;
        let alone = only_one(&dir)?;
        let (projections, writer) = heal::open(&dir, &projection_options(&config))?;
        let keyring = Arc::new(open_keys(keystore, &dir)?);
        let log = open_log(&config, &dir, projections.applied_index())?;
        let owed = about::owed(&log);
        let ledger = Arc::new(Ledger::open(Arc::clone(&log), &dir)?);
        let requests = requests(&config, &dir)?;
        let fold = Box::new(Projector::new(writer).observed(agreement.observer()));
        let raft = RaftNode::start(raft_start(&config, &me, &dir, log, fold)).await?;
        let first = first_events(&config, &me, &raft);
        let actor = Identity::server(&me.id, "leader").actor;
        let proposer = Proposer::start(Arc::clone(&raft), Arc::clone(&projections), actor, first);
        let sessions: Arc<Sessions> = Arc::default();
        let record = leader::Leader::new(proposer.clone(), Arc::clone(&raft));
        let (volumes, host_volumes) = volumes(&projections, record, &sessions, &keyring);
        let own = (&raft, &requests, me.id.as_str());
        let sources = Sources {
            volumes: Some(Arc::clone(&volumes)),
            ..sources(&config, own, (&ledger, &keyring), &dir)
        };
        let reactors = Reactors::start(
            Arc::clone(&projections),
            Arc::new(RaftPropose::new(proposer.clone(), &me.id)),
            proposer.ready(),
            reactor_settings(&config),
            sources,
        );
        let server = Arc::new(Self {
            sessions,
            volumes,
            host_volumes,
            gate: Arc::new(Gate::of(config.acl.enabled, &projections, &keyring, owed)),
            config,
            me,
            projections,
            proposer,
            raft,
            keyring,
            ledger,
            requests,
            client: OnceLock::new(),
            web: OnceLock::new(),
            around: OnceLock::new(),
            heartbeats: Arc::clone(reactors.heartbeats()),
            activity: reactors.activity().clone(),
            reactors: Mutex::new(Some(reactors)),
            telemetry,
            started,
            tasks: Mutex::default(),
            dir,
            restoring: tokio::sync::Mutex::default(),
            restart: CancellationToken::new(),
            _alone: alone,
            rebuild: Arc::default(),
            agreement,
            job_gauges: Mutex::default(),
        });
        (server.tasks.lock()).push(tokio::spawn(keys::keep_a_key(Arc::clone(&server))));
        tracing::info!(id = %server.me.id, took = ?started.elapsed(), "server started");
        Ok(server)
    }

    /// Decides, replicates and applies a command.
    ///
    /// # Errors
    /// As [`Proposer::submit`].
    pub async fn submit(
        &self,
        command: impl Command + 'static,
        origin: Origin,
    ) -> Result<Committed, Refusal> {
        self.proposer.submit(Arc::new(command), origin).await
    }

    /// The origin of what a part of this server does by itself.
    pub fn origin(&self, part: &str) -> Origin {
        Origin {
            actor: Identity::server(&self.me.id, part).actor,
            ..Origin::default()
        }
    }

    /// A node sent a heartbeat: answers when the next one is due.
    pub fn beat(&self, node: &str) -> std::time::Duration {
        self.heartbeats
            .beat(node, crate::base::clock::unix_nanos(), rand::random())
    }

    /// Whether plans are on their way here: what can wait should.
    pub fn is_placing(&self) -> bool {
        self.activity.is_placing()
    }

    /// Whether this server leads and takes commands.
    pub fn leads(&self) -> bool {
        self.proposer.ready().borrow().is_some()
    }

    /// Whether this server's tables are what the cluster recorded.
    pub fn agreed(&self) -> Agreed {
        self.agreement.status()
    }

    /// Waits until this server leads and takes commands.
    pub async fn wait_ready(&self) {
        let mut ready = self.proposer.ready();
        // The sender lives as long as Raft does; without it nothing will ever be ready.
        let _ = ready.wait_for(Option::is_some).await;
    }

    /// The leader, where one is known.
    pub fn leader(&self) -> Option<Member> {
        match &*self.raft.leadership().borrow() {
            Leadership::Unknown => None,
            Leadership::Following(leader) => Some(leader.clone()),
            Leadership::Elected | Leadership::Leading { .. } => Some(self.me.member()),
        }
    }

    /// Stops everything, top down, and writes the projections out so that the next start is short.
    pub async fn shutdown(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        let reactors = self.reactors.lock().take();
        if let Some(reactors) = reactors
            && tokio::time::timeout(REACTORS_STOP, reactors.stop())
                .await
                .is_err()
        {
            tracing::warn!("a reactor does not stop");
        }
        let rebuild = Arc::clone(&self.rebuild);
        let stopped = tokio::task::spawn_blocking(move || rebuild.stop());
        // What does not stop in time ends with the process: it is resumed, or begun again.
        let _ = tokio::time::timeout(WORK_STOPS, stopped).await;
        self.raft.shutdown().await;
        let projections = Arc::clone(&self.projections);
        let flushed = tokio::task::spawn_blocking(move || {
            let flushed = projections.flush();
            projections.stop_background_work();
            flushed
        })
        .await;
        if let Ok(Err(error)) = flushed {
            tracing::warn!(%error, "the projections were not written out: the log has it all");
        }
    }
}

/// Opens the keystore; what cannot be used of it is logged.
fn open_keys(files: Arc<dyn log::FileLayer>, dir: &Path) -> Result<Keyring, StartError> {
    let (keyring, unreadable) = Keyring::open_on(files, &dir.join("keystore"))?;
    for problem in unreadable {
        tracing::error!(error = %problem, "a root key cannot be used");
    }
    Ok(keyring)
}

/// Takes the right to serve from a directory.
fn only_one(dir: &Path) -> Result<Box<dyn std::any::Any + Send + Sync>, StartError> {
    let lock = log::FileLayer::lock(&log::RealFiles, dir);
    let lock = lock.map_err(|source| StartError::Files {
        path: dir.join("lock"),
        source,
    })?;
    lock.ok_or_else(|| StartError::InUse(dir.to_owned()))
}

/// Refuses a log that has less than was applied from it: Raft would take the rest for dropped.
fn whole(log: &LogEngine, applied: u64) -> Result<(), StartError> {
    match log.bounds() {
        (_, next) if applied > 0 && applied >= next => Err(StartError::Short { next, applied }),
        _ => Ok(()),
    }
}

/// Refuses a log that is shorter than its signed checkpoint. Entries are committed and synced
/// before they are signed; whether the checkpoint itself was synced does not matter.
fn signed(dir: &Path, epoch: Epoch, next: u64) -> Result<(), StartError> {
    match CheckpointFile::last_signed(dir, epoch)? {
        Some(Checkpoint { index: signed, .. }) if signed >= next => {
            Err(StartError::Cut { next, signed })
        }
        _ => Ok(()),
    }
}

/// The volumes of this server, whose plugins and nodes are reached by sessions with clients.
fn volumes(
    projections: &Arc<Projections>,
    record: Arc<leader::Leader>,
    sessions: &Arc<Sessions>,
    keyring: &Arc<Keyring>,
) -> (Arc<Volumes>, Arc<HostVolumes>) {
    let reach = Arc::new(Arc::clone(sessions));
    let (state, far) = (Arc::clone(projections), Arc::clone(&reach));
    let of_hosts = HostVolumes::new(state, Arc::clone(&record) as _, far);
    let state = Arc::clone(projections);
    let volumes = Volumes::new(state, record, reach, Arc::clone(keyring));
    (volumes, of_hosts)
}

/// How Raft begins: alone, until there are other servers.
fn raft_start(
    config: &Config,
    me: &Myself,
    dir: &Path,
    log: Arc<LogEngine>,
    fold: Box<Projector>,
) -> RaftStart {
    RaftStart {
        number: me.number,
        log,
        fold,
        snapshots: dir.join("snapshots"),
        transport: Arc::new(Alone),
        settings: raft_settings(config),
        bootstrap: Some([(me.number, me.member())].into()),
    }
}
