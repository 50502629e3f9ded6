//! The signals an agent answers: SIGINT and SIGTERM stop it, SIGHUP is noted.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the agent.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts to listen. Signals that arrive before the first [`Signals::stop`] are kept.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the signal that asks the agent to stop, and names it.
    pub(super) async fn stop(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return "interrupt",
                _ = self.terminate.recv() => return "terminated",
                _ = self.hangup.recv() => tracing::info!("caught signal: hangup, nothing to reload"),
            }
        }
    }
}
