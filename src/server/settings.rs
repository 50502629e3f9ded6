//! What the configuration says to each part of a server.

use std::path::Path;
use std::sync::Arc;

use drover_projections::DatabaseOptions;

use crate::config::{self, Config, ConfigError};
use crate::history::proof::Ledger;
use crate::history::store::ArchiveLocation;
use crate::keyring::Keyring;
use crate::log::{self, RetentionPolicy};
use crate::raft::{RaftNode, RaftSettings};
use crate::reactors::checkpoint_signer::CheckpointSettings;
use crate::reactors::core_gc::GcSettings;
use crate::reactors::digest_recorder::DigestSettings;
use crate::reactors::heartbeat_expiry::HeartbeatSettings;
use crate::reactors::kafka::{self, KafkaSource, PublisherPosition};
use crate::reactors::retention::Keeping;
use crate::reactors::scheduling::{SchedulingSettings, Types};
use crate::reactors::{ReactorSettings, Sources};
use crate::requests::RequestLog;

/// How much of a log is kept.
pub(crate) fn kept(keep: &config::Keep) -> RetentionPolicy {
    RetentionPolicy {
        bytes: keep.bytes,
        age: keep.age,
        events: keep.events,
    }
}

/// Where what is dropped from the log is copied to before.
pub(super) fn archive(given: &config::ArchiveConfig) -> ArchiveLocation {
    let secret = given.secret_access_key.as_ref();
    ArchiveLocation {
        url: given.url.clone(),
        endpoint: given.endpoint.clone(),
        region: given.region.clone(),
        access_key_id: given.access_key_id.clone(),
        secret_access_key: secret.map(|hidden| hidden.0.clone()),
    }
}

/// How the tables are kept.
pub(super) fn projection_options(config: &Config) -> DatabaseOptions {
    if config.dev {
        DatabaseOptions::dev()
    } else {
        DatabaseOptions::server()
    }
}

/// Bytes of a segment of a development agent's log.
const DEV_SEGMENT: u64 = 16 << 20;
/// Bytes of that log that stay in memory.
const DEV_TAIL: usize = 1 << 20;

/// How the log is kept.
pub(super) fn log_options(config: &Config) -> log::LogOptions {
    let mut options = log::LogOptions::default();
    if config.dev {
        options.segment_bytes = DEV_SEGMENT;
        options.tail_bytes = DEV_TAIL;
    }
    if let Some(bytes) = config.server.retention.segment_size {
        options.segment_bytes = bytes;
    }
    options
}

/// What librdkafka says to its properties, before anything else starts.
pub(super) fn check_publisher(config: &Config) -> Result<(), ConfigError> {
    let Some(kafka) = &config.event_publisher.kafka else {
        return Ok(());
    };
    kafka::validate(kafka).map_err(|text| ConfigError::Invalid(vec![text]))
}

/// What reactors work with.
pub(super) fn sources(
    config: &Config,
    (raft, requests, server): (&Arc<RaftNode>, &Arc<RequestLog>, &str),
    (ledger, keyring): (&Arc<Ledger>, &Arc<Keyring>),
    dir: &Path,
) -> Sources {
    let kafka = config.event_publisher.kafka.clone();
    let held = Arc::new(PublisherPosition::new(
        config.server.retention.publisher_wait,
    ));
    let publishes = kafka.is_some();
    Sources {
        server: server.to_owned(),
        volumes: None,
        signing: (Arc::clone(ledger), Arc::clone(keyring)),
        kafka: kafka.map(|kafka| KafkaSource {
            config: Arc::new(kafka),
            log: Arc::clone(raft.log()),
            keyring: Arc::clone(keyring),
            held: Arc::clone(&held),
            agent: config.schemas_at(),
        }),
        keeping: Keeping {
            keep: kept(&config.server.retention.log),
            requests: (
                Arc::clone(requests),
                kept(&config.server.retention.requests),
            ),
            interval: config.server.retention.interval,
            archive: config.server.archive.as_ref().map(archive),
            server: dir.to_owned(),
            id: server.to_owned(),
            raft: Arc::clone(raft),
            held: publishes.then_some(held),
        },
    }
}

pub(super) fn reactor_settings(config: &Config) -> ReactorSettings {
    let mut scheduling = SchedulingSettings::default();
    if let Some(workers) = config.server.num_schedulers {
        scheduling.workers = workers as usize;
    }
    scheduling.types = Types::of(&config.server.enabled_schedulers);
    let server = &config.server;
    ReactorSettings {
        scheduling,
        heartbeats: HeartbeatSettings::from(server),
        gc: GcSettings::from(server),
        expired_tokens: server.acl_token_gc_threshold,
        checkpoints: CheckpointSettings::from(server),
        digests: DigestSettings::from(server),
    }
}

/// The times of Raft, as the configuration stretches them.
pub(super) fn raft_settings(config: &Config) -> RaftSettings {
    RaftSettings::default().stretched(config.server.raft_multiplier)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::requests::Guarantee;

    #[test]
    fn what_a_file_says_of_archive_and_guarantee_is_what_the_parts_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.hcl");
        let text = "server {\n archive {\n url = \"s3://b/p\"\n endpoint = \"http://e\"\n \
                    region = \"r\"\n access_key_id = \"i\"\n \
                    secret_access_key = \"canary-3d1c\"\n }\n \
                    retention { log {\n bytes = \"9G\"\n age = \"1h\"\n events = 7\n} }\n}\n\
                    audit { delivery_guarantee = \"enforced\" }";
        std::fs::write(&path, text).unwrap();
        let mut config = config::Config::default();
        config::load(&mut config, &[path]).unwrap();
        let place = config.server.archive.as_ref().map(archive).unwrap();
        assert_eq!(place.url, "s3://b/p");
        assert_eq!(place.endpoint.as_deref(), Some("http://e"));
        assert_eq!(place.region.as_deref(), Some("r"));
        assert_eq!(place.access_key_id.as_deref(), Some("i"));
        assert_eq!(place.secret_access_key.as_deref(), Some("canary-3d1c"));
        assert!(!format!("{config:?}").contains("canary-3d1c"));
        let keep = kept(&config.server.retention.log);
        assert_eq!((keep.bytes, keep.events), (Some(9_000_000_000), Some(7)));
        assert_eq!(keep.age, Some(std::time::Duration::from_secs(3600)));
        assert_eq!(config.audit.delivery_guarantee, Guarantee::Enforced);
        for (one, name) in [
            (Guarantee::BestEffort, "best-effort"),
            (Guarantee::Enforced, "enforced"),
        ] {
            assert_eq!(one.name(), name);
        }
    }

    #[test]
    fn times_between_servers_are_stretched_as_the_configuration_says() {
        let usual = RaftSettings::default();
        for (multiplier, by) in [(0, 1), (1, 1), (5, 5)] {
            let mut config = Config::default();
            config.server.raft_multiplier = multiplier;
            let found = raft_settings(&config);
            assert_eq!(found.heartbeat, usual.heartbeat * by);
            assert_eq!(found.election_min, usual.election_min * by);
            assert_eq!(found.election_max, usual.election_max * by);
            assert_eq!(found.snapshot_timeout, usual.snapshot_timeout);
        }
    }

    #[test]
    fn each_thing_that_is_over_is_kept_as_long_as_is_configured_for_it() {
        let mut config = Config::default();
        let server = &mut config.server;
        server.job_gc_interval = Duration::from_secs(1);
        server.eval_gc_threshold = Duration::from_secs(2);
        server.batch_eval_gc_threshold = Duration::from_secs(3);
        server.job_gc_threshold = Duration::from_secs(4);
        server.deployment_gc_threshold = Duration::from_secs(5);
        server.node_gc_threshold = Duration::from_secs(6);
        server.csi_volume_claim_gc_threshold = Duration::from_secs(7);
        server.csi_volume_claim_gc_interval = Duration::from_secs(8);
        server.csi_plugin_gc_threshold = Duration::from_secs(9);
        server.acl_token_gc_threshold = Duration::from_secs(10);
        let found = reactor_settings(&config);
        let kept = [
            found.gc.interval,
            found.gc.evals,
            found.gc.batch_evals,
            found.gc.jobs,
            found.gc.deployments,
            found.gc.nodes,
            found.gc.claims,
            found.gc.claims_interval,
            found.gc.plugins,
            found.expired_tokens,
        ];
        let seconds = kept.map(|time| time.as_secs());
        assert_eq!(seconds, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn each_time_of_heartbeats_is_the_one_that_is_named_for_it() {
        let mut config = Config::default();
        let server = &mut config.server;
        server.min_heartbeat_ttl = Duration::from_secs(1);
        server.heartbeat_grace = Duration::from_secs(2);
        server.failover_heartbeat_ttl = Duration::from_secs(3);
        server.max_heartbeats_per_second = 4.5;
        let found = reactor_settings(&config).heartbeats;
        let times = [found.min_ttl, found.grace, found.failover_ttl];
        assert_eq!(times.map(|time| time.as_secs()), [1, 2, 3]);
        assert_eq!(found.max_per_second, 4.5);
    }

    #[test]
    fn checkpoints_are_made_as_often_as_the_configuration_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.hcl");
        let settings = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut config = Config::default();
            crate::config::load(&mut config, std::slice::from_ref(&path)).unwrap();
            let found = reactor_settings(&config).checkpoints;
            (found.events, found.interval)
        };
        assert_eq!(settings(""), (1_000, Duration::from_secs(1)));
        let text = "server {\n checkpoint_events = 20\n checkpoint_interval = \"1m\"\n}";
        assert_eq!(settings(text), (20, Duration::from_secs(60)));
    }
}
