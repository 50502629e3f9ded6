//! What the service manager is notified of, where one started the agent (sd_notify(3), a unit of
//! `Type=notify-reload`): that it serves, that it reloads, that it stops. Elsewhere nothing is
//! sent.

use sd_notify::{NotifyState, notify};

/// The API is open.
pub(super) fn serves() {
    report(&[NotifyState::Ready]);
}

/// The agent stops.
pub(super) fn stops() {
    report(&[NotifyState::Stopping]);
}

/// The configuration is read anew while `work` runs; the manager waits for its end.
pub(super) fn reloads<T>(work: impl FnOnce() -> T) -> T {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => report(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager is not notified of the reload"),
    }
    let done = work();
    report(&[NotifyState::Ready]);
    done
}

fn report(states: &[NotifyState]) {
    // Without a manager this does nothing and is no error.
    if let Err(error) = notify(states) {
        tracing::warn!(%error, "the service manager is not notified");
    }
}
