//! The signals an agent answers: SIGINT and SIGTERM stop it, SIGHUP has it read its configuration
//! anew.
//!
//! They are taken by a thread of their own that waits for nothing else, so that an agent ends in
//! time even when everything in it is stuck.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use tokio::sync::{Notify, watch};

use super::{Leaving, STOP_LIMIT};

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

/// What SIGINT is called.
pub(super) const INTERRUPT: &str = "interrupt";

/// A signal that asks for the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// What it is called.
    pub(super) signal: &'static str,
    /// When it came.
    pub(super) at: Instant,
    /// How long after that the process ends itself, whatever it does by then.
    pub(super) limit: Duration,
}

/// The signals that end the agent, or have it reload.
pub(super) struct Signals {
    stop: watch::Receiver<Vec<Heard>>,
    hangup: Arc<Notify>,
}

impl Signals {
    /// Starts to listen. Signals that arrive before the first [`Signals::stop`] are kept. `leaving`
    /// says how long the agent may take before it stops.
    pub(super) fn listen(leaving: Leaving) -> io::Result<Self> {
        let (tell, stop) = watch::channel(Vec::new());
        let hangup = Arc::new(Notify::new());
        let hung = Arc::clone(&hangup);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || wait(&tell, &hung, leaving))?;
        Ok(Self { stop, hangup })
    }

    /// Waits for the signal that asks the agent to stop.
    pub(super) async fn stop(&mut self) -> Heard {
        let heard = self.stop.wait_for(|heard| !heard.is_empty()).await;
        let first = heard.ok().and_then(|heard| heard.first().copied());
        match first {
            Some(first) => first,
            // The thread ends only with the process.
            None => std::future::pending().await,
        }
    }

    /// Says when SIGHUP came.
    pub(super) fn hangup(&self) -> Arc<Notify> {
        Arc::clone(&self.hangup)
    }

    /// Waits for a second one.
    pub(super) async fn again(&mut self) {
        if self.stop.wait_for(|heard| heard.len() > 1).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Waits for signals that ask for the end; from each of them on that is waited for, but not for
/// ever.
fn wait(tell: &watch::Sender<Vec<Heard>>, hangup: &Notify, leaving: Leaving) {
    loop {
        let signal = match all().wait() {
            Ok(Signal::SIGHUP) => {
                tracing::info!("Caught signal: hangup");
                hangup.notify_one();
                continue;
            }
            Ok(Signal::SIGINT) => INTERRUPT,
            Ok(_) => "terminated",
            Err(error) => {
                tracing::error!(%error, "cannot wait for signals");
                return;
            }
        };
        let at = Instant::now();
        let first = tell.borrow().is_empty();
        let leaves = leaving.limit(signal).filter(|_| first);
        let limit = leaves.unwrap_or_default() + STOP_LIMIT - LAST;
        tell.send_modify(|heard| heard.push(Heard { signal, at, limit }));
        end_within(limit);
    }
}

/// Ends the process after this time, whatever it does by then.
fn end_within(limit: Duration) {
    let ends = move || {
        std::thread::sleep(limit);
        tracing::error!(
            "the agent is stuck and ends at once; what it has acknowledged is on the disk"
        );
        // An orderly exit runs what might be stuck as well.
        let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGKILL);
    };
    let timer = std::thread::Builder::new().name("end".to_owned());
    if let Err(error) = timer.spawn(ends) {
        tracing::error!(%error, "nothing ends the agent should it be stuck");
    }
}
