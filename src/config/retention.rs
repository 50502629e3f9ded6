//! How much of a log is kept, and where what is dropped goes before: the blocks `retention` and
//! `archive` of a server. Without limits everything is kept, but of the request log 1 GB.

use super::hidden::Hidden;
use super::kinds::{MINUTE, above_zero, block, reset, set, size_above_zero};
use super::settings::settings;
use std::time::Duration;

settings! {
/// What is kept of a log. Whatever is beyond any of the limits may go; without limits everything
/// is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Bytes of its files.
    pub bytes: Option<u64> => size_above_zero,
    /// Time since an event.
    pub age: Option<Duration> => above_zero,
    /// Events, counted from the last one back.
    pub events: Option<u64> => above_zero,
}
}

settings! {
/// The `retention` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionConfig {
    /// Of the log. By age and by number the horizon moves from event to event; the bytes of what
    /// is below it go with the segment it lies in.
    pub log: Keep => block,
    /// Of the request log, which any caller can make grow: 1 GB by default. A block without limits
    /// keeps everything. Whole segments are dropped; a segment ends with a quarter of the age at
    /// the latest, so nothing is kept for longer than five quarters of the age.
    pub requests: Keep = Keep { bytes: Some(REQUESTS), ..Keep::default() } => reset,
    /// How often it is looked at.
    pub interval: Duration = MINUTE => set,
    /// How long what is not in Kafka yet is kept, beyond what the limits say, once the publisher of
    /// events is recorded to lag. What is dropped after that is missing there: see
    /// `event_publisher.kafka.missed`. Zero: not at all.
    pub publisher_wait: Duration = PUBLISHER_WAIT => set,
    /// Bytes of a segment of the log, the least that is dropped; absent means 64 MiB.
    pub segment_size: Option<u64> => size_above_zero,
}
}

settings! {
/// The `archive` block: where what is dropped from the log is copied to before. What is absent is
/// taken from the environment (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveConfig {
    /// `file:///directory` or `s3://bucket/prefix`.
    pub url: String => set,
    /// The address of the server that speaks S3.
    pub endpoint: Option<String> => set,
    /// The region.
    pub region: Option<String> => set,
    /// The key's id.
    pub access_key_id: Option<String> => set,
    /// The key; it is not shown.
    pub secret_access_key: Option<Hidden<String>> => set,
}
}

/// The shortest time between two looks.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of the request log that are kept where nothing is set.
const REQUESTS: u64 = 1_000_000_000;
/// The smallest segment: an event of the largest size fits in it.
const SMALLEST_SEGMENT: u64 = 8_000_000;
/// The largest.
const LARGEST_SEGMENT: u64 = 1 << 30;

/// A long weekend.
const PUBLISHER_WAIT: Duration = Duration::from_secs(72 * 3600);

impl RetentionConfig {
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

/// What is wrong with an `archive` block.
pub(super) fn archive_problem(place: &ArchiveConfig) -> Option<String> {
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
