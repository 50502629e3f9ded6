//! The checkpoint signer: signs the log's root and the tables' digests while events come.
//!
//! A checkpoint is made after so many events, or so long after the first that none covers, which
//! ever is first; an idle log is signed once.

use std::sync::Arc;
use std::time::Duration;

use drover_projections::Interest;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::config::ServerConfig;
use crate::history::proof::{Ledger, state_digest};
use crate::keyring::Keyring;

/// When checkpoints are made.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointSettings {
    /// After so many events.
    pub events: u64,
    /// Or so long after the first event that no checkpoint covers.
    pub interval: Duration,
}

impl From<&ServerConfig> for CheckpointSettings {
    fn from(config: &ServerConfig) -> Self {
        Self {
            events: config.checkpoint_events,
            interval: config.checkpoint_interval,
        }
    }
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self::from(&ServerConfig::default())
    }
}

/// How long it sleeps while nothing happens; progress wakes it.
const IDLE: Duration = Duration::from_secs(300);

/// How often it looks at most.
const GRAIN: Duration = Duration::from_millis(50);

pub struct CheckpointSigner {
    ledger: Arc<Ledger>,
    keyring: Arc<Keyring>,
    settings: CheckpointSettings,
    /// When the first event came that no checkpoint covers, by the reactor's clock.
    since: Mutex<Option<i64>>,
}

impl CheckpointSigner {
    /// A signer of a log.
    pub fn new(ledger: Arc<Ledger>, keyring: Arc<Keyring>, settings: CheckpointSettings) -> Self {
        Self {
            ledger,
            keyring,
            settings,
            since: Mutex::new(None),
        }
    }

    /// How long to wait until a checkpoint is due; zero if it is now.
    fn due(&self, open: u64, now: i64) -> Duration {
        if open == 0 {
            *self.since.lock() = None;
            return IDLE;
        }
        let since = *self.since.lock().get_or_insert(now);
        let waited = Duration::from_nanos(now.saturating_sub(since).max(0).unsigned_abs());
        match open >= self.settings.events {
            true => Duration::ZERO,
            false => self.settings.interval.saturating_sub(waited),
        }
    }
}

impl Reactor for CheckpointSigner {
    fn name(&self) -> &'static str {
        "checkpoint_signer"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        &[Interest::Progress]
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            let applied = context.projections.applied_index();
            let open = applied.saturating_sub(self.ledger.status().index);
            let wait = self.due(open, context.clock.now());
            let mut sleep = wait;
            // While events come, every one of them would wake it.
            if open > 0 {
                tokio::time::sleep(wait.min(GRAIN)).await;
            }
            if wait.is_zero() {
                let key = match self.keyring.active() {
                    Ok(key) => key.checkpoint_key(),
                    Err(error) => return Err(error.into()),
                };
                let statement = {
                    let view = context.projections.view();
                    (view.index(), view.time(), state_digest(&view.digests()))
                };
                let ledger = Arc::clone(&self.ledger);
                tokio::task::spawn_blocking(move || ledger.sign(statement, &key)).await??;
                *self.since.lock() = None;
                sleep = IDLE;
            }
            let status = serde_json::to_value(self.ledger.status())?;
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_after_enough_events_or_enough_time() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) =
            crate::log::LogEngine::open(&dir.path().join("log"), Default::default()).unwrap();
        let ledger = Arc::new(Ledger::open(Arc::new(log), dir.path()).unwrap());
        let (keyring, _) = Keyring::open(&dir.path().join("keys")).unwrap();
        let settings = CheckpointSettings {
            events: 10,
            interval: Duration::from_secs(1),
        };
        let signer = CheckpointSigner::new(ledger, Arc::new(keyring), settings);
        let second = 1_000_000_000;
        assert_eq!(signer.due(0, 0), IDLE, "nothing to sign");
        assert_eq!(signer.due(3, second), Duration::from_secs(1));
        assert_eq!(
            signer.due(5, second + second / 2),
            Duration::from_millis(500)
        );
        assert_eq!(signer.due(6, 2 * second), Duration::ZERO, "long enough");
        assert_eq!(signer.due(0, 3 * second), IDLE);
        assert_eq!(signer.due(10, 4 * second), Duration::ZERO, "events enough");
    }
}
