//! One process: a server, a client, or both, with the HTTP API in front.
//!
//! What it is: the order in which the roles of an agent start and stop, its signals, its log and its
//! data directory. It must not know: events, tables, jobs.
//!
//! Invariants: SIGINT and SIGTERM end the process within [`STOP_LIMIT`], after the time that it was
//! given to leave, which a second signal ends; the HTTP listener opens when the roles behind it are
//! there; tasks of the client outlive the agent.

mod client;
mod data_dir;
mod expiry;
mod logging;
mod notify;
mod reload;
mod roles;
mod settings;
mod signals;
mod tls;
#[cfg(test)]
pub(crate) mod with_server;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::Config;
pub use reload::Again;
use reload::Reloader;
use roles::Roles;

/// How long an orderly stop may take before the process ends without it.
pub const STOP_LIMIT: Duration = Duration::from_secs(5);
/// The part of that limit that is left for the runtime and the process themselves.
const STOP_REST: Duration = Duration::from_millis(500);
/// How long tasks that do not end are waited for.
const RUNTIME_LIMIT: Duration = Duration::from_millis(200);

/// Runs an agent until a signal ends it.
///
/// The exit code is 0 after a stop by signal and 1 where the agent cannot start; the reason is on
/// standard error.
///
/// `again` reads the configuration anew at a reload.
pub fn run(config: Config, again: Again) -> ExitCode {
    match try_run(config, again) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint_chain(&*error);
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn try_run(config: Config, again: Again) -> Result<(), Failure> {
    keep_to_ourselves()?;
    let level = logging::install(&config.log)?;
    let reloader = Reloader::open(&config, again, Some(level))?;
    crate::net::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("api")
        .enable_all()
        .build()?;
    let stopped = runtime.block_on(serve(config, reloader));
    runtime.shutdown_timeout(RUNTIME_LIMIT);
    match stopped? {
        End::Stop(heard) => {
            tracing::info!(took_ms = heard.at.elapsed().as_millis(), "stopped");
            Ok(())
        }
        End::Again(data) => Err(start_again(data.as_deref()).into()),
    }
}

/// What the agent writes is for its own user only; its signals reach the one thread that waits for
/// them.
fn keep_to_ourselves() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior, umask};
    signals::block()?;
    umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    if !geteuid().is_root() {
        // Its tasks run as the same user, which could otherwise read its environment and memory.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}

/// How a run ends.
enum End {
    /// The process ends too, for this signal.
    Stop(signals::Heard),
    /// It is started anew in the same process, on a temporary data directory if it had one.
    Again(Option<PathBuf>),
}

async fn serve(config: Config, reloader: Arc<Reloader>) -> Result<End, Failure> {
    let leaving = Leaving::of(&config);
    let mut signals = signals::Signals::listen(leaving)?;
    let mut roles = tokio::select! {
        roles = Roles::start(config, &reloader) => roles?,
        heard = signals.stop() => return Ok(End::Stop(heard)),
    };
    let reloads = tokio::spawn(reload_on_request(signals.hangup(), reloader));
    notify::serves();
    let end = tokio::select! {
        heard = signals.stop() => {
            let leaves = leaving.limit(heard.signal);
            // At its deadline a drain stops all that still runs, and tasks have their kill timeout
            // for that.
            let more = leaves.map_or(Duration::ZERO, |_| roles.longest_kill());
            signals.grant(more);
            let limit_ms = (heard.limit + more).as_millis();
            tracing::info!(signal = heard.signal, limit_ms, "stopping");
            notify::stops();
            if let Some(limit) = leaves {
                leave(&roles, &mut signals, limit + more).await;
            }
            End::Stop(heard)
        }
        () = roles.wants_restart() => {
            tracing::info!("starting anew");
            End::Again(roles.keep_data())
        }
    };
    reloads.abort();
    let limit = tokio::time::timeout(STOP_LIMIT - STOP_REST, roles.stop());
    if limit.await.is_err() {
        tracing::warn!("not everything stopped in time");
    }
    Ok(end)
}

/// Reads the configuration anew whenever SIGHUP says so; the result is in the log.
async fn reload_on_request(hangup: Arc<Notify>, reloader: Arc<Reloader>) {
    loop {
        hangup.notified().await;
        let reloader = Arc::clone(&reloader);
        let _ = tokio::task::spawn_blocking(move || reloader.reload_in_turn()).await;
    }
}

/// How long an agent may take to leave the cluster before it stops, by the signal that ends it;
/// none where it just stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Leaving {
    on_interrupt: Option<Duration>,
    on_terminate: Option<Duration>,
}

impl Leaving {
    fn of(config: &Config) -> Self {
        let drain = config.client.drain_on_shutdown.as_ref();
        let drain = drain.filter(|_| config.client.enabled);
        // A forced drain stops everything at once; that the clients report it takes a moment.
        let limit = match drain {
            Some(drain) if !drain.force => STOP_LIMIT + drain.deadline,
            _ => STOP_LIMIT,
        };
        Self {
            on_interrupt: config.leave_on_interrupt.then_some(limit),
            on_terminate: config.leave_on_terminate.then_some(limit),
        }
    }

    fn limit(self, signal: &str) -> Option<Duration> {
        match signal {
            signals::INTERRUPT => self.on_interrupt,
            _ => self.on_terminate,
        }
    }
}

/// Leaves the cluster, until that is done, time is up, or a second signal says that it is enough.
async fn leave(roles: &Roles, signals: &mut signals::Signals, limit: Duration) {
    tracing::info!("Gracefully shutting down agent...");
    tokio::select! {
        left = tokio::time::timeout(limit, roles.leave()) => if left.is_err() {
            let running = roles.running();
            tracing::warn!(?running, "leaving takes too long: the agent stops as it is");
        },
        () = signals.again() => tracing::warn!("a second signal: the agent stops as it is"),
    }
}

/// Runs this program again in this process: nothing of the former run is left in memory, the
/// process id and the tasks stay. Answers only if that fails.
fn start_again(data: Option<&Path>) -> std::io::Error {
    let own = Path::new("/proc/self/exe");
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(program.as_deref().unwrap_or(own));
    command.args(std::env::args_os().skip(1));
    if let Some(data) = data {
        command.arg("-data-dir").arg(data);
    }
    crate::net::restore_open_files();
    command.exec()
}

fn workers() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .max(2)
}

/// The error and what it came from, a line each, on standard error.
#[allow(clippy::print_stderr, reason = "the log may be off or not there yet")]
fn eprint_chain(error: &dyn std::error::Error) {
    eprintln!("==> the agent cannot run: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("    because: {error}");
        cause = error.source();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_leaves_by_the_signals_it_was_told_and_for_as_long_as_its_drain_may_take() {
        let mut config = Config::dev();
        assert_eq!(Leaving::of(&config), Leaving::default());
        config.leave_on_terminate = true;
        let leaving = Leaving::of(&config);
        assert_eq!(leaving.limit("terminated"), Some(STOP_LIMIT));
        assert_eq!(leaving.limit(signals::INTERRUPT), None);
        let mut drain = crate::config::DrainOnShutdown {
            deadline: Duration::from_secs(60),
            ..Default::default()
        };
        config.client.drain_on_shutdown = Some(drain.clone());
        let with_drain = Some(STOP_LIMIT + Duration::from_secs(60));
        assert_eq!(Leaving::of(&config).limit("terminated"), with_drain);
        drain.force = true;
        config.client.drain_on_shutdown = Some(drain);
        assert_eq!(Leaving::of(&config).limit("terminated"), Some(STOP_LIMIT));
        config.leave_on_interrupt = true;
        assert!(Leaving::of(&config).limit(signals::INTERRUPT).is_some());
    }
}
