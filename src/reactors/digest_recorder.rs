//! The digest recorder: says in the log, now and then, what the digests of all tables are.
//!
//! Every fold of the log, by each server while it applies and by `drover log verify` long after,
//! meets the digests that the leader had then, and compares. Digests are kept at every 1,024th
//! index; of those one is recorded after so many events, so an idle cluster says nothing.

use std::sync::Arc;
use std::time::Duration;

use drover_projections::{DIGEST_EVERY, Interest};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::cluster::RecordDigests;
use crate::config::ServerConfig;

/// When digests are recorded.
#[derive(Clone, Copy, Debug)]
pub struct DigestSettings {
    /// After so many events, rounded up to where digests are kept; 0: never.
    pub events: u64,
}

impl From<&ServerConfig> for DigestSettings {
    fn from(config: &ServerConfig) -> Self {
        Self {
            events: config.digest_events,
        }
    }
}

impl Default for DigestSettings {
    fn default() -> Self {
        Self::from(&ServerConfig::default())
    }
}

/// How long it sleeps while nothing is due: progress wakes it, and is not looked at more often.
const GRAIN: Duration = Duration::from_millis(200);
const IDLE: Duration = Duration::from_secs(300);

pub struct DigestRecorder {
    every: u64,
    /// This server, by id.
    server: String,
    /// The index recorded last; when it begins, the last one that was due.
    last: Mutex<Option<u64>>,
}

impl DigestRecorder {
    /// A recorder on the server with this id.
    pub fn new(settings: DigestSettings, server: impl Into<String>) -> Self {
        Self {
            every: settings.events.next_multiple_of(DIGEST_EVERY),
            server: server.into(),
            last: Mutex::new(None),
        }
    }

    /// The index that is to be recorded now, if there is one.
    fn due(&self, applied: u64) -> Option<u64> {
        let newest = (applied / self.every.max(1)) * self.every;
        let mut last = self.last.lock();
        let known = *last.get_or_insert(newest);
        (self.every > 0 && newest > known).then_some(newest)
    }
}

impl Reactor for DigestRecorder {
    fn name(&self) -> &'static str {
        "digest_recorder"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        match self.every {
            0 => &[],
            _ => &[Interest::Progress],
        }
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            // While events come, every one of them would wake it.
            tokio::time::sleep(GRAIN).await;
            let view = context.projections.view();
            let digests = match self.due(view.index()) {
                Some(at) => view.digests_at(at)?.map(|digests| (at, digests)),
                None => None,
            };
            drop(view);
            if let Some((at, digests)) = digests {
                let command = RecordDigests::of(at, &digests, &self.server);
                context
                    .proposer
                    .submit(Arc::new(command), self.name())
                    .await?;
                *self.last.lock() = Some(at);
            }
            Ok(Activation {
                sleep: IDLE,
                status: json!({ "Recorded": *self.last.lock(), "Every": self.every }),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_due_once_and_where_digests_are_kept() {
        let recorder = DigestRecorder::new(DigestSettings { events: 1_500 }, "s");
        assert_eq!(recorder.due(5_000), None, "what was before is not its own");
        assert_eq!(recorder.due(6_143), None);
        assert_eq!(recorder.due(6_150), Some(6_144));
        *recorder.last.lock() = Some(6_144);
        assert_eq!(recorder.due(8_191), None);
        assert_eq!(recorder.due(40_000), Some(38_912));
        let never = DigestRecorder::new(DigestSettings { events: 0 }, "s");
        assert_eq!((never.due(0), never.due(1 << 40)), (None, None));
    }
}
