//! How much of a log is kept, and where what is dropped goes before: the blocks `retention` and
//! `archive` of a server. Without limits everything is kept, but of the request log 1 GB.

use super::read::Reader;
use super::size::read_size;
use crate::history::store;
use crate::log::Keep;
use std::time::Duration;

fn read_keep(keep: &mut Keep, r: &mut Reader<'_>) {
    let (mut bytes, mut age, mut events) = (0, Duration::ZERO, 0);
    read_size(r, "bytes", &mut bytes);
    r.set("age", &mut age);
    r.set("events", &mut events);
    if bytes > 0 {
        keep.bytes = Some(bytes);
    }
    if !age.is_zero() {
        keep.age = Some(age);
    }
    if events > 0 {
        keep.events = Some(events);
    }
}

/// The `retention` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionConfig {
    /// Of the log. By age and by number the horizon moves from event to event; the bytes of what
    /// is below it go with the segment it lies in.
    pub log: Keep,
    /// Of the request log, which anybody can make grow: 1 GB where nothing is said. A block without
    /// limits keeps everything. Whole segments go; one ends with a quarter of the age at the
    /// latest, so nothing is kept for longer than five quarters of it.
    pub requests: Keep,
    /// How often it is looked at.
    pub interval: Duration,
    /// How long what is not in Kafka yet is kept, beyond what the limits say, once the publisher of
    /// events has been said to lag. What is dropped after that is missing there: see
    /// `event_publisher.kafka.missed`. Zero: not at all.
    pub publisher_wait: Duration,
    /// Bytes of a segment of the log, the least that is dropped; absent means 64 MiB.
    pub segment_size: Option<u64>,
}

/// The shortest time between two looks.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of the request log that are kept where nothing is said.
const REQUESTS: u64 = 1_000_000_000;
/// The smallest segment: an event of the largest size fits in it.
const SMALLEST_SEGMENT: u64 = 8_000_000;
/// The largest.
const LARGEST_SEGMENT: u64 = 1 << 30;

/// A long weekend.
const PUBLISHER_WAIT: Duration = Duration::from_secs(72 * 3600);

impl Default for RetentionConfig {
    fn default() -> Self {
        RetentionConfig {
            log: Keep::default(),
            requests: Keep {
                bytes: Some(REQUESTS),
                ..Keep::default()
            },
            interval: Duration::from_secs(60),
            publisher_wait: PUBLISHER_WAIT,
            segment_size: None,
        }
    }
}

impl RetentionConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.block("log", |r| read_keep(&mut self.log, r));
        r.block("requests", |r| {
            self.requests = Keep::default();
            read_keep(&mut self.requests, r);
        });
        r.set("interval", &mut self.interval);
        r.set("publisher_wait", &mut self.publisher_wait);
        let mut size = 0;
        read_size(r, "segment_size", &mut size);
        if size > 0 {
            self.segment_size = Some(size);
        }
    }

    /// What is wrong with it.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.interval < SHORTEST_INTERVAL {
            let got = self.interval;
            wrong.push(format!(
                "retention.interval cannot be {got:?}. Must be at least 100ms"
            ));
        }
        let sizes = SMALLEST_SEGMENT..=LARGEST_SEGMENT;
        if let Some(got) = self.segment_size.filter(|size| !sizes.contains(size)) {
            wrong.push(format!(
                "retention.segment_size cannot be {got}. Must be between 8M and 1G"
            ));
        }
        wrong
    }
}

/// Reads the `archive` block: where what is dropped from the log is copied to before.
pub(super) fn read_archive(place: &mut store::Place, r: &mut Reader<'_>) {
    r.set("url", &mut place.url);
    r.set("endpoint", &mut place.endpoint);
    r.set("region", &mut place.region);
    r.set("access_key_id", &mut place.access_key_id);
    r.set("secret_access_key", &mut place.secret_access_key);
}

/// What is wrong with an `archive` block.
pub(super) fn archive_problem(place: &store::Place) -> Option<String> {
    let known = ["file:///", "s3://"];
    let named = known.iter().any(|scheme| {
        let rest = place.url.strip_prefix(scheme);
        rest.is_some_and(|rest| !rest.trim_matches('/').is_empty())
    });
    let got = &place.url;
    (!named).then(|| {
        format!("archive.url cannot be {got:?}. Must be file:///directory or s3://bucket/prefix")
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, load};
    use super::*;

    fn read(retention: &str) -> RetentionConfig {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.hcl");
        std::fs::write(&path, format!("server {{ retention {{ {retention} }} }}")).unwrap();
        let mut config = Config::default();
        load(&mut config, &[path]).unwrap();
        config.server.retention
    }

    #[test]
    fn the_request_log_has_a_limit_unless_its_block_says_otherwise() {
        let bytes = |bytes| Keep {
            bytes,
            ..Keep::default()
        };
        for (text, log, requests) in [
            ("", bytes(None), bytes(Some(1_000_000_000))),
            ("requests {}", bytes(None), bytes(None)),
            (
                "requests { bytes = \"5M\" }",
                bytes(None),
                bytes(Some(5_000_000)),
            ),
            (
                "log { bytes = \"9G\" }",
                bytes(Some(9_000_000_000)),
                bytes(Some(REQUESTS)),
            ),
        ] {
            let found = read(text);
            assert_eq!((found.log, found.requests), (log, requests), "{text}");
        }
        let aged = read("requests {\n age = \"720h\"\n events = 7\n }").requests;
        assert_eq!((aged.bytes, aged.events), (None, Some(7)));
    }
}
