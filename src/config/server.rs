//! The `server` block.

use super::hidden::Hidden;
use super::read::Reader;
use super::retention::{RetentionConfig, read_archive};
use super::size::read_size;
use crate::history::store;
use drover_events::model::status::algorithm;
use std::path::PathBuf;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// What a server was told.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Run a server.
    pub enabled: bool,
    /// How many servers form a new cluster; 0 waits for others.
    pub bootstrap_expect: u32,
    /// The region whose ACLs count; empty means this one.
    pub authoritative_region: String,
    /// Where the server keeps its files; absent means `<data_dir>/server`.
    pub data_dir: Option<PathBuf>,
    /// Always 3.
    pub raft_protocol: u32,
    /// Stretches Raft's times, 1 to 10; 0 means 1.
    pub raft_multiplier: u32,
    /// Scheduling workers; absent means one per processor.
    pub num_schedulers: Option<u32>,
    /// Schedulers to run; empty means all. `_core` always runs.
    pub enabled_schedulers: Vec<String>,
    /// A down node is forgotten after this long.
    pub node_gc_threshold: Duration,
    /// How often garbage is looked for.
    pub job_gc_interval: Duration,
    /// A dead job is forgotten after this long.
    pub job_gc_threshold: Duration,
    /// A finished evaluation is forgotten after this long.
    pub eval_gc_threshold: Duration,
    /// The same for batch jobs.
    pub batch_eval_gc_threshold: Duration,
    /// A finished deployment is forgotten after this long.
    pub deployment_gc_threshold: Duration,
    /// How often unused volume claims are looked for.
    pub csi_volume_claim_gc_interval: Duration,
    /// A claim is unused after this long.
    pub csi_volume_claim_gc_threshold: Duration,
    /// An empty plugin is forgotten after this long.
    pub csi_plugin_gc_threshold: Duration,
    /// An expired token is forgotten after this long.
    pub acl_token_gc_threshold: Duration,
    /// How often old keys are looked for.
    pub root_key_gc_interval: Duration,
    /// An unused key is forgotten after this long.
    pub root_key_gc_threshold: Duration,
    /// A key is replaced after this long.
    pub root_key_rotation_threshold: Duration,
    /// Time a node is given beyond its heartbeat's end.
    pub heartbeat_grace: Duration,
    /// The shortest time between heartbeats.
    pub min_heartbeat_ttl: Duration,
    /// Heartbeats the servers are willing to take each second.
    pub max_heartbeats_per_second: f64,
    /// What every node is given after a change of leader.
    pub failover_heartbeat_ttl: Duration,
    /// Join again after leaving.
    pub rejoin_after_leave: bool,
    /// Availability zone.
    pub redundancy_zone: String,
    /// Version used for upgrades.
    pub upgrade_version: String,
    /// Gossip's key.
    pub encrypt: Hidden<String>,
    /// How to find other servers.
    pub server_join: ServerJoin,
    /// Scheduler settings of a new cluster.
    pub default_scheduler_config: DefaultSchedulerConfig,
    /// Watches nodes that refuse plans.
    pub plan_rejection_tracker: PlanRejectionTracker,
    /// Serve the event stream.
    pub enable_event_broker: bool,
    /// Events kept ready for the stream.
    pub event_buffer_size: u64,
    /// Search settings.
    pub search: SearchConfig,
    /// Deployment queries per second.
    pub deploy_query_rate_limit: f64,
    /// Priority of jobs that name none.
    pub job_default_priority: i64,
    /// The highest priority a job may have.
    pub job_max_priority: i64,
    /// The largest sum of a job's group counts.
    pub job_max_count: i64,
    /// The longest job source kept, in bytes.
    pub job_max_source_size: u64,
    /// How many versions of a job are kept.
    pub job_tracked_versions: u32,
    /// The most bytes the variables of a namespace may take; 0: any number.
    pub variables_quota: u64,
    /// The issuer named in identities.
    pub oidc_issuer: String,
    /// How long a start may take.
    pub start_timeout: Duration,
    /// Events between two records of the tables' digests in the log; 0: none.
    pub digest_events: u64,
    /// Events after which a checkpoint of the log is signed.
    pub checkpoint_events: u64,
    /// Or so long after the first event that none covers, if that comes first.
    pub checkpoint_interval: Duration,
    /// How much of the log is kept.
    pub retention: RetentionConfig,
    /// Where what is dropped of it is copied to before.
    pub archive: Option<store::Place>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            enabled: false,
            bootstrap_expect: 0,
            authoritative_region: String::new(),
            data_dir: None,
            raft_protocol: 3,
            raft_multiplier: 1,
            num_schedulers: None,
            enabled_schedulers: Vec::new(),
            node_gc_threshold: 24 * HOUR,
            job_gc_interval: 5 * MINUTE,
            job_gc_threshold: 4 * HOUR,
            eval_gc_threshold: HOUR,
            batch_eval_gc_threshold: 24 * HOUR,
            deployment_gc_threshold: HOUR,
            csi_volume_claim_gc_interval: 5 * MINUTE,
            csi_volume_claim_gc_threshold: 5 * MINUTE,
            csi_plugin_gc_threshold: HOUR,
            acl_token_gc_threshold: HOUR,
            root_key_gc_interval: 10 * MINUTE,
            root_key_gc_threshold: HOUR,
            root_key_rotation_threshold: 720 * HOUR,
            heartbeat_grace: Duration::from_secs(10),
            min_heartbeat_ttl: Duration::from_secs(10),
            max_heartbeats_per_second: 50.0,
            failover_heartbeat_ttl: 5 * MINUTE,
            rejoin_after_leave: false,
            redundancy_zone: String::new(),
            upgrade_version: String::new(),
            encrypt: Hidden::default(),
            server_join: ServerJoin::default(),
            default_scheduler_config: DefaultSchedulerConfig::default(),
            plan_rejection_tracker: PlanRejectionTracker::default(),
            enable_event_broker: true,
            event_buffer_size: 100,
            search: SearchConfig::default(),
            deploy_query_rate_limit: 2.0,
            job_default_priority: 50,
            job_max_priority: 100,
            job_max_count: 50_000,
            job_max_source_size: 1_000_000,
            job_tracked_versions: 6,
            variables_quota: 0,
            oidc_issuer: String::new(),
            start_timeout: Duration::from_secs(30),
            digest_events: 16_384,
            checkpoint_events: 1_000,
            checkpoint_interval: Duration::from_secs(1),
            retention: RetentionConfig::default(),
            archive: None,
        }
    }
}

impl ServerConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.switch("enabled", &mut self.enabled);
        r.set("bootstrap_expect", &mut self.bootstrap_expect);
        r.set("authoritative_region", &mut self.authoritative_region);
        r.set("data_dir", &mut self.data_dir);
        r.set("raft_protocol", &mut self.raft_protocol);
        r.set("raft_multiplier", &mut self.raft_multiplier);
        r.set("num_schedulers", &mut self.num_schedulers);
        r.set("enabled_schedulers", &mut self.enabled_schedulers);
        self.read_thresholds(r);
        r.set("heartbeat_grace", &mut self.heartbeat_grace);
        r.set("min_heartbeat_ttl", &mut self.min_heartbeat_ttl);
        r.set(
            "max_heartbeats_per_second",
            &mut self.max_heartbeats_per_second,
        );
        r.set("failover_heartbeat_ttl", &mut self.failover_heartbeat_ttl);
        r.switch("rejoin_after_leave", &mut self.rejoin_after_leave);
        r.set("redundancy_zone", &mut self.redundancy_zone);
        r.set("upgrade_version", &mut self.upgrade_version);
        r.set("encrypt", &mut self.encrypt.0);
        self.server_join.read(r);
        r.block("server_join", |r| self.server_join.read(r));
        r.block("default_scheduler_config", |r| {
            self.default_scheduler_config.read(r)
        });
        r.block("plan_rejection_tracker", |r| {
            self.plan_rejection_tracker.read(r)
        });
        r.set("enable_event_broker", &mut self.enable_event_broker);
        r.set("event_buffer_size", &mut self.event_buffer_size);
        r.block("search", |r| self.search.read(r));
        r.set("deploy_query_rate_limit", &mut self.deploy_query_rate_limit);
        r.set("job_default_priority", &mut self.job_default_priority);
        r.set("job_max_priority", &mut self.job_max_priority);
        r.set("job_max_count", &mut self.job_max_count);
        read_size(r, "job_max_source_size", &mut self.job_max_source_size);
        r.set("job_tracked_versions", &mut self.job_tracked_versions);
        read_size(r, "variables_quota", &mut self.variables_quota);
        r.set("oidc_issuer", &mut self.oidc_issuer);
        r.set("start_timeout", &mut self.start_timeout);
        r.set("digest_events", &mut self.digest_events);
        r.set("checkpoint_events", &mut self.checkpoint_events);
        r.set("checkpoint_interval", &mut self.checkpoint_interval);
        r.block("retention", |r| self.retention.read(r));
        r.block("archive", |r| {
            read_archive(self.archive.get_or_insert_default(), r);
        });
        // Tuning of stores and processes that drover does not have; read so that files carry over.
        for key in [
            "raft_boltdb",
            "raft_logstore",
            "client_introduction",
            "plan_apply_pipeline",
        ] {
            r.set(key, &mut serde_json::Value::Null);
        }
        for key in ["raft_snapshot_threshold", "raft_trailing_logs"] {
            r.set(key, &mut u64::default());
        }
        r.set("raft_snapshot_interval", &mut Duration::default());
        r.set("license_path", &mut String::new());
        r.set("log_file", &mut String::new());
        r.set("non_voting_server", &mut bool::default());
        r.set("non_production", &mut bool::default());
    }

    fn read_thresholds(&mut self, r: &mut Reader<'_>) {
        r.set("node_gc_threshold", &mut self.node_gc_threshold);
        r.set("job_gc_interval", &mut self.job_gc_interval);
        r.set("job_gc_threshold", &mut self.job_gc_threshold);
        r.set("eval_gc_threshold", &mut self.eval_gc_threshold);
        r.set("batch_eval_gc_threshold", &mut self.batch_eval_gc_threshold);
        r.set("deployment_gc_threshold", &mut self.deployment_gc_threshold);
        r.set(
            "csi_volume_claim_gc_interval",
            &mut self.csi_volume_claim_gc_interval,
        );
        r.set(
            "csi_volume_claim_gc_threshold",
            &mut self.csi_volume_claim_gc_threshold,
        );
        r.set("csi_plugin_gc_threshold", &mut self.csi_plugin_gc_threshold);
        r.set("acl_token_gc_threshold", &mut self.acl_token_gc_threshold);
        r.set("root_key_gc_interval", &mut self.root_key_gc_interval);
        r.set("root_key_gc_threshold", &mut self.root_key_gc_threshold);
        r.set(
            "root_key_rotation_threshold",
            &mut self.root_key_rotation_threshold,
        );
    }
}

/// How to find other servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerJoin {
    /// Tried once.
    pub start_join: Vec<String>,
    /// Tried until one answers.
    pub retry_join: Vec<String>,
    /// How often at most; 0 for ever.
    pub retry_max: u32,
    /// How long between tries.
    pub retry_interval: Duration,
}

impl Default for ServerJoin {
    fn default() -> Self {
        ServerJoin {
            start_join: Vec::new(),
            retry_join: Vec::new(),
            retry_max: 0,
            retry_interval: Duration::from_secs(30),
        }
    }
}

impl ServerJoin {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("start_join", &mut self.start_join);
        r.set("retry_join", &mut self.retry_join);
        r.set("retry_max", &mut self.retry_max);
        r.set("retry_interval", &mut self.retry_interval);
    }
}

/// Scheduler settings of a new cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultSchedulerConfig {
    /// `binpack` or `spread`.
    pub scheduler_algorithm: String,
    /// Whether `memory_max` counts.
    pub memory_oversubscription_enabled: bool,
    /// Refuse registrations of all but management tokens.
    pub reject_job_registration: bool,
    /// Start with the evaluation broker paused.
    pub pause_eval_broker: bool,
    /// How many nodes are looked at for a job with affinities or spreads; 0 for the default.
    pub node_limit_for_feasibility_checks: u32,
    /// Preemption for system jobs.
    pub preempt_system: bool,
    /// Preemption for sysbatch jobs.
    pub preempt_sysbatch: bool,
    /// Preemption for batch jobs.
    pub preempt_batch: bool,
    /// Preemption for service jobs.
    pub preempt_service: bool,
}

impl Default for DefaultSchedulerConfig {
    fn default() -> Self {
        DefaultSchedulerConfig {
            scheduler_algorithm: algorithm::BINPACK.into(),
            memory_oversubscription_enabled: false,
            reject_job_registration: false,
            pause_eval_broker: false,
            node_limit_for_feasibility_checks: 0,
            // As Nomad's clients find it in a new cluster. Nothing is preempted here: the command
            // line says so beside it, and what somebody switches on is refused.
            preempt_system: true,
            preempt_sysbatch: false,
            preempt_batch: false,
            preempt_service: false,
        }
    }
}

impl DefaultSchedulerConfig {
    fn read(&mut self, r: &mut Reader<'_>) {
        r.set("scheduler_algorithm", &mut self.scheduler_algorithm);
        r.set(
            "memory_oversubscription_enabled",
            &mut self.memory_oversubscription_enabled,
        );
        r.set("reject_job_registration", &mut self.reject_job_registration);
        r.set("pause_eval_broker", &mut self.pause_eval_broker);
        r.set(
            "node_limit_for_feasibility_checks",
            &mut self.node_limit_for_feasibility_checks,
        );
        r.block("preemption_config", |r| {
            r.set("system_scheduler_enabled", &mut self.preempt_system);
            r.set("sysbatch_scheduler_enabled", &mut self.preempt_sysbatch);
            r.set("batch_scheduler_enabled", &mut self.preempt_batch);
            r.set("service_scheduler_enabled", &mut self.preempt_service);
        });
    }
}

/// Watches nodes that refuse plans.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRejectionTracker {
    /// Mark such nodes ineligible.
    pub enabled: bool,
    /// After this many refusals.
    pub node_threshold: u32,
    /// Within this long.
    pub node_window: Duration,
}

impl Default for PlanRejectionTracker {
    fn default() -> Self {
        PlanRejectionTracker {
            enabled: false,
            node_threshold: 100,
            node_window: 5 * MINUTE,
        }
    }
}

impl PlanRejectionTracker {
    fn read(&mut self, r: &mut Reader<'_>) {
        r.set("enabled", &mut self.enabled);
        r.set("node_threshold", &mut self.node_threshold);
        r.set("node_window", &mut self.node_window);
    }
}

/// Search settings.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchConfig {
    /// Offer fuzzy search.
    pub fuzzy_enabled: bool,
    /// How many objects of a kind a fuzzy search looks at; 0: all.
    pub limit_query: usize,
    /// Results per kind of a fuzzy search.
    pub limit_results: usize,
    /// The shortest term of a fuzzy search, characters.
    pub min_term_length: usize,
}

impl Default for SearchConfig {
    fn default() -> Self {
        SearchConfig {
            fuzzy_enabled: true,
            limit_query: 0,
            limit_results: 100,
            min_term_length: 2,
        }
    }
}

impl SearchConfig {
    fn read(&mut self, r: &mut Reader<'_>) {
        r.set("fuzzy_enabled", &mut self.fuzzy_enabled);
        r.set("limit_query", &mut self.limit_query);
        r.set("limit_results", &mut self.limit_results);
        r.set("min_term_length", &mut self.min_term_length);
    }
}

impl ServerConfig {
    /// The scheduler configuration of a new cluster, as the model has it.
    pub fn scheduler_configuration(&self) -> drover_events::model::SchedulerConfiguration {
        use drover_events::model::{PreemptionConfig, SchedulerConfiguration};
        let set = &self.default_scheduler_config;
        SchedulerConfiguration {
            scheduler_algorithm: set.scheduler_algorithm.clone(),
            preemption_config: PreemptionConfig {
                system_scheduler_enabled: set.preempt_system,
                sys_batch_scheduler_enabled: set.preempt_sysbatch,
                batch_scheduler_enabled: set.preempt_batch,
                service_scheduler_enabled: set.preempt_service,
            },
            memory_oversubscription_enabled: set.memory_oversubscription_enabled,
            reject_job_registration: set.reject_job_registration,
            pause_eval_broker: set.pause_eval_broker,
            node_limit_for_feasibility_checks: set.node_limit_for_feasibility_checks.into(),
            ..SchedulerConfiguration::default()
        }
    }
}
