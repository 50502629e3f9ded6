//! What retention must not drop yet: the events that Kafka has not received.

use std::time::Duration;

use drover_projections::View;
use drover_projections::tables::cluster_meta::ClusterMetaTable;
use parking_lot::Mutex;

use super::super::runner::Failure;
use crate::log::{LogEngine, LogError};

/// The position that a publisher reports, and retention reads. On the leader it is where the
/// publisher is now; every other server knows from the state where it was when it fell behind.
pub struct PublisherPosition {
    /// How long what is dropped waits for a publisher that lags.
    patience: Duration,
    published: Mutex<Option<u64>>,
}

/// What is held back for a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The last index that is published.
    pub published: u64,
    /// Until when it is waited for, Unix nanoseconds; none while it is not recorded to lag.
    pub until: Option<i64>,
}

impl PublisherPosition {
    /// Nothing is known yet.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            published: Mutex::new(None),
        }
    }

    /// The position of this server's publisher; none when it publishes no longer.
    #[cfg_attr(
        not(feature = "kafka"),
        expect(dead_code, reason = "nothing is published without Kafka")
    )]
    pub(super) fn set(&self, published: Option<u64>) {
        *self.published.lock() = published;
    }

    /// What is to be held back, and until when, which may be over; none where nothing is.
    ///
    /// # Errors
    /// The state or the log cannot be read.
    pub fn hold(&self, view: &View, log: &LogEngine) -> Result<Option<Hold>, Failure> {
        let own = *self.published.lock();
        let meta = view.get::<ClusterMetaTable>(())?.unwrap_or_default();
        if meta.publisher_lagging_since == 0 {
            let until = self.patience.is_zero().then_some(0);
            return Ok(own.map(|published| Hold { published, until }));
        }
        let published = own.unwrap_or(0).max(meta.publisher_position);
        let began = time_at(log, meta.publisher_lagging_since)?;
        let patience = i64::try_from(self.patience.as_nanos()).unwrap_or(i64::MAX);
        Ok(Some(Hold {
            published,
            until: Some(began.saturating_add(patience)),
        }))
    }
}

/// The time of an event; that of one which was dropped is long ago.
fn time_at(log: &LogEngine, index: u64) -> Result<i64, LogError> {
    match log.read(index) {
        Err(LogError::Purged { .. }) => Ok(0),
        other => Ok(other?.map_or(0, |entry| entry.time)),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::log::LogOptions;

    #[test]
    fn an_event_that_was_dropped_was_waited_for_long_enough() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = LogEngine::open(dir.path(), LogOptions::journal()).unwrap();
        for time in [10, 20, 30] {
            log.append_next(1, time, |_| Bytes::new(), Box::new(drop))
                .unwrap();
        }
        log.sync().unwrap();
        assert_eq!(time_at(&log, 1).unwrap(), 20);
        log.purge(1, Bytes::new(), Box::new(|_| ())).unwrap();
        assert_eq!(time_at(&log, 1).unwrap(), 0);
        assert_eq!(time_at(&log, 2).unwrap(), 30);
    }
}
