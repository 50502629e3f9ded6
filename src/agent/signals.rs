//! The signals an agent answers: SIGINT and SIGTERM stop it, SIGHUP is noted.
//!
//! They are taken by a thread of their own that waits for nothing else, so that an agent ends in
//! time even when everything in it is stuck.

use std::io;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use tokio::sync::watch;

use super::STOP_LIMIT;

/// What is left of the time to stop when the process ends itself.
const LAST: Duration = Duration::from_millis(100);

/// Keeps the signals from every thread that is started from now on, for [`Signals::listen`].
///
/// # Errors
/// The kernel said no.
pub(super) fn block() -> io::Result<()> {
    Ok(all().thread_block()?)
}

fn all() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect()
}

/// The signals that end the agent.
pub(super) struct Signals {
    stop: watch::Receiver<Option<&'static str>>,
}

impl Signals {
    /// Starts to listen. Signals that arrive before the first [`Signals::stop`] are kept.
    pub(super) fn listen() -> io::Result<Self> {
        let (tell, stop) = watch::channel(None);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || wait(&tell))?;
        Ok(Self { stop })
    }

    /// Waits for the signal that asks the agent to stop, and names it.
    pub(super) async fn stop(&mut self) -> &'static str {
        match self.stop.wait_for(Option::is_some).await {
            Ok(name) => (*name).unwrap_or_default(),
            // The thread ends only with the process.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Waits for signals until one asks for the end; then for the end, but not for ever.
fn wait(tell: &watch::Sender<Option<&'static str>>) {
    let name = loop {
        match all().wait() {
            Ok(Signal::SIGHUP) => tracing::info!("caught signal: hangup, nothing to reload"),
            Ok(Signal::SIGINT) => break "interrupt",
            Ok(_) => break "terminated",
            Err(error) => {
                tracing::error!(%error, "cannot wait for signals");
                return;
            }
        }
    };
    tell.send_replace(Some(name));
    std::thread::sleep(STOP_LIMIT - LAST);
    tracing::error!("the agent is stuck and ends at once; what it has acknowledged is on the disk");
    // An orderly exit runs what might be stuck as well.
    let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGKILL);
}
