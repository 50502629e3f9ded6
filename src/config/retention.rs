//! How much of a log is kept, and where what is dropped goes before: the blocks `retention` and
//! `archive` of a server. Without limits everything is kept, but of the request log 1 GB.

use super::hcl1::{Node, Value};
use super::read::{FromNode, Reader};
use super::server::parse_size;
use std::time::Duration;

/// How much of one log is kept. Whatever is beyond any of its limits may go; without a limit
/// nothing ever does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Bytes of its files.
    pub bytes: Option<u64>,
    /// Time since an event.
    pub age: Option<Duration>,
    /// Events, counted from the last index back.
    pub events: Option<u64>,
}

impl RetentionPolicy {
    /// Whether anything is ever dropped.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }

    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        let (mut bytes, mut age, mut events) = (Size(0), Duration::ZERO, 0);
        r.set("bytes", &mut bytes);
        r.set("age", &mut age);
        r.set("events", &mut events);
        if bytes.0 > 0 {
            self.bytes = Some(bytes.0);
        }
        if !age.is_zero() {
            self.age = Some(age);
        }
        if events > 0 {
            self.events = Some(events);
        }
    }
}

/// Bytes, as `512M` or `10G`: powers of ten.
struct Size(u64);

impl FromNode for Size {
    fn read(&mut self, node: &Node) -> Result<(), String> {
        let text = match &node.value {
            Value::String(text) | Value::Number(text) => text,
            other => return Err(format!("expected a size, not a {}", other.kind())),
        };
        let wrong = || format!("cannot be {text:?}. Must be a size like 512M or 10G");
        self.0 = parse_size(text).ok_or_else(wrong)?;
        Ok(())
    }
}

/// The `retention` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionConfig {
    /// Of the log.
    pub log: RetentionPolicy,
    /// Of the request log, which anybody can make grow: 1 GB where nothing is said. A block without
    /// limits keeps everything.
    pub requests: RetentionPolicy,
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
            log: RetentionPolicy::default(),
            requests: RetentionPolicy {
                bytes: Some(REQUESTS),
                ..RetentionPolicy::default()
            },
            interval: Duration::from_secs(60),
            publisher_wait: PUBLISHER_WAIT,
            segment_size: None,
        }
    }
}

impl RetentionConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.block("log", |r| self.log.read(r));
        r.block("requests", |r| {
            self.requests = RetentionPolicy::default();
            self.requests.read(r);
        });
        r.set("interval", &mut self.interval);
        r.set("publisher_wait", &mut self.publisher_wait);
        let mut size = Size(0);
        r.set("segment_size", &mut size);
        if size.0 > 0 {
            self.segment_size = Some(size.0);
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

/// The `archive` block: where what is dropped from the log is copied to before.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ArchiveConfig {
    /// `file:///directory` or `s3://bucket/prefix`.
    pub url: String,
    /// The address of the server that speaks S3, http://host:port or https://host; absent means
    /// `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// The region; absent means `AWS_REGION`, or `us-east-1`.
    pub region: Option<String>,
    /// The key's id; absent means `AWS_ACCESS_KEY_ID`.
    pub access_key_id: Option<String>,
    /// The key; absent means `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: Option<String>,
}

impl std::fmt::Debug for ArchiveConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveConfig")
            .field("url", &self.url)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

impl ArchiveConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("url", &mut self.url);
        r.set("endpoint", &mut self.endpoint);
        r.set("region", &mut self.region);
        r.set("access_key_id", &mut self.access_key_id);
        r.set("secret_access_key", &mut self.secret_access_key);
    }

    /// What is wrong with it.
    pub(super) fn problems(&self) -> Vec<String> {
        let known = ["file:///", "s3://"];
        let long = known.iter().any(|scheme| {
            let rest = self.url.strip_prefix(scheme);
            rest.is_some_and(|rest| !rest.trim_matches('/').is_empty())
        });
        let mut wrong = Vec::new();
        if !long {
            let got = &self.url;
            wrong.push(format!(
                "archive.url cannot be {got:?}. Must be file:///directory or s3://bucket/prefix"
            ));
        }
        wrong
    }
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
        let bytes = |bytes| RetentionPolicy {
            bytes,
            ..RetentionPolicy::default()
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
