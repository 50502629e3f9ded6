//! The `server` block.

use super::hidden::Hidden;
use super::kinds::{HOUR, MINUTE, SECOND, block, maybe, set, size, switch, unread};
use super::read::BodyReader;
use super::retention::{ArchiveConfig, RetentionConfig};
use super::settings::{overlay, settings};
use super::unsupported::ENTERPRISE;
use drover_events::model::status::algorithm;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

const KEYS: &str = "keys are neither rotated nor collected";
const LOG: &str = "the log is drover's own: see server.retention";
const ONE_SERVER: &str = "there is one server";

settings! {
/// The settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Run a server.
    pub enabled: bool => switch shown "Enabled",
    /// How many servers form a new cluster; 0 waits for others.
    pub bootstrap_expect: u32 => set shown "BootstrapExpect",
    /// The region whose ACLs count; empty means this one.
    pub authoritative_region: String
        => set shown "AuthoritativeRegion" unsupported "there is one region",
    /// Where the server keeps its files; absent means `<data_dir>/server`.
    pub data_dir: Option<PathBuf> => set,
    /// Always 3.
    pub raft_protocol: u32 = 3 => set shown "RaftProtocol",
    /// Stretches Raft's times, 1 to 10; 0 means 1.
    pub raft_multiplier: u32 = 1 => set,
    /// Scheduling workers; absent means one per processor.
    pub num_schedulers: Option<u32> => set shown "NumSchedulers",
    /// Schedulers to run; empty means all. `_core` always runs.
    pub enabled_schedulers: Vec<String> => set shown "EnabledSchedulers",
    /// A down node is forgotten after this long.
    pub node_gc_threshold: Duration = 24 * HOUR => set,
    /// How often garbage is looked for.
    pub job_gc_interval: Duration = 5 * MINUTE => set,
    /// A dead job is forgotten after this long.
    pub job_gc_threshold: Duration = 4 * HOUR => set,
    /// A finished evaluation is forgotten after this long.
    pub eval_gc_threshold: Duration = HOUR => set,
    /// The same for batch jobs.
    pub batch_eval_gc_threshold: Duration = 24 * HOUR => set,
    /// A finished deployment is forgotten after this long.
    pub deployment_gc_threshold: Duration = HOUR => set,
    /// How often unused volume claims are looked for.
    pub csi_volume_claim_gc_interval: Duration = 5 * MINUTE => set,
    /// A claim is unused after this long.
    pub csi_volume_claim_gc_threshold: Duration = 5 * MINUTE => set,
    /// An empty plugin is forgotten after this long.
    pub csi_plugin_gc_threshold: Duration = HOUR => set,
    /// An expired token is forgotten after this long.
    pub acl_token_gc_threshold: Duration = HOUR => set,
    /// How often old keys are looked for.
    pub root_key_gc_interval: Duration = 10 * MINUTE => set unsupported KEYS,
    /// An unused key is forgotten after this long.
    pub root_key_gc_threshold: Duration = HOUR => set unsupported KEYS,
    /// A key is replaced after this long.
    pub root_key_rotation_threshold: Duration = 720 * HOUR => set unsupported KEYS,
    /// Time a node is given beyond its heartbeat's end.
    pub heartbeat_grace: Duration = 10 * SECOND => set,
    /// The shortest time between heartbeats.
    pub min_heartbeat_ttl: Duration = 10 * SECOND => set,
    /// Heartbeats the servers are willing to take each second.
    pub max_heartbeats_per_second: f64 = 50.0 => set,
    /// What every node is given after a change of leader.
    pub failover_heartbeat_ttl: Duration = 5 * MINUTE => set,
    /// Join again after leaving.
    pub rejoin_after_leave: bool => switch unsupported ONE_SERVER,
    /// Availability zone.
    pub redundancy_zone: String => set unsupported ENTERPRISE,
    /// Version used for upgrades.
    pub upgrade_version: String => set unsupported ENTERPRISE,
    /// Gossip's key.
    pub encrypt: Hidden<String> => set unsupported "there is no gossip to encrypt",
    /// How to find other servers.
    pub server_join: ServerJoin => joins of ServerJoin unsupported ONE_SERVER,
    /// Scheduler settings of a new cluster.
    pub default_scheduler_config: DefaultSchedulerConfig => block,
    /// Watches nodes that refuse plans.
    pub plan_rejection_tracker: PlanRejectionTracker
        => block unsupported "a refused plan is made again on newer state",
    /// Serve the event stream.
    pub enable_event_broker: bool = true
        => set unsupported "the stream reads the log, and costs nothing until it is read",
    /// Events kept ready for the stream.
    pub event_buffer_size: u64 = 100
        => set unsupported "the stream reads the log: every event that is kept is there",
    /// Search settings.
    pub search: SearchConfig => block,
    /// Deployment queries per second.
    pub deploy_query_rate_limit: f64 = 2.0
        => set unsupported "deployments are watched, not polled",
    /// Priority of jobs that name none.
    pub job_default_priority: i64 = 50 => set,
    /// The highest priority a job may have.
    pub job_max_priority: i64 = 100 => set,
    /// The largest sum of a job's group counts.
    pub job_max_count: i64 = 50_000 => set,
    /// The longest job source kept, in bytes.
    pub job_max_source_size: u64 = 1_000_000 => size,
    /// How many versions of a job are kept.
    pub job_tracked_versions: u32 = 6 => set,
    /// The most bytes the variables of a namespace may take; 0: any number.
    pub variables_quota: u64 => size,
    /// The issuer named in identities.
    pub oidc_issuer: String => set unsupported "identities name no issuer",
    /// How long a start may take.
    pub start_timeout: Duration = 30 * SECOND
        => set unsupported "a start takes as long as it takes",
    /// Events between two records of the tables' digests in the log; 0: none.
    pub digest_events: u64 = 16_384 => set,
    /// Events after which a checkpoint of the log is signed.
    pub checkpoint_events: u64 = 1_000 => set,
    /// Or so long after the first event that none covers, if that comes first.
    pub checkpoint_interval: Duration = SECOND => set,
    /// How much of the log is kept.
    pub retention: RetentionConfig => block,
    /// Where what is dropped from it is copied to before.
    pub archive: Option<ArchiveConfig> => maybe,
} compat {
    /// As in `server_join`.
    start_join: Vec<String> => unread unsupported ONE_SERVER,
    /// As in `server_join`.
    retry_join: Vec<String> => unread unsupported ONE_SERVER,
    /// As in `server_join`.
    retry_max: u32 => unread,
    /// As in `server_join`.
    retry_interval: Duration => unread,
    /// Tuning of a store of Raft's.
    raft_boltdb: Value => set unsupported LOG,
    /// Which store Raft has.
    raft_logstore: Value => set unsupported LOG,
    /// Events between two snapshots of Raft's.
    raft_snapshot_threshold: u64 => set unsupported LOG,
    /// Events that are kept behind a snapshot.
    raft_trailing_logs: u64 => set unsupported LOG,
    /// How often it is looked whether a snapshot is due.
    raft_snapshot_interval: Duration => set unsupported LOG,
    /// How nodes are let in.
    client_introduction: Value => set unsupported "nodes are recognised by their secret",
    /// Whether the next plan is looked at while one is written.
    plan_apply_pipeline: Value => set unsupported "plans are always pipelined",
    /// The file of the license.
    license_path: String => set unsupported ENTERPRISE,
    /// A file for what a server logs.
    log_file: String => set unsupported "a server logs where its agent does: log_file at the top",
    /// A server that only reads.
    non_voting_server: bool => set unsupported ENTERPRISE,
    /// An installation to try things in.
    non_production: bool => set unsupported ENTERPRISE,
}
}

/// The settings of joining may stand in the block of the server itself too.
fn joins(join: &mut ServerJoin, name: &str, r: &mut BodyReader<'_>) {
    overlay(join, r);
    block(join, name, r);
}

const TRIED: &str = "a client asks its servers again until one answers";

settings! {
/// How to find other servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerJoin {
    /// Tried once.
    pub start_join: Vec<String> => set,
    /// Tried until one answers.
    pub retry_join: Vec<String> => set,
    /// How often at most; 0 for ever.
    pub retry_max: u32 => set unsupported TRIED,
    /// How long between tries.
    pub retry_interval: Duration = 30 * SECOND => set unsupported TRIED,
}
}

settings! {
/// Scheduler settings of a new cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultSchedulerConfig {
    /// `binpack` or `spread`.
    pub scheduler_algorithm: String = algorithm::BINPACK.into() => set,
    /// Whether `memory_max` counts.
    pub memory_oversubscription_enabled: bool => set,
    /// Refuse registrations of all but management tokens.
    pub reject_job_registration: bool => set,
    /// Start with the evaluation broker paused.
    pub pause_eval_broker: bool => set,
    /// How many nodes are looked at for a job with affinities or spreads; 0 for the default.
    pub node_limit_for_feasibility_checks: u32 => set,
    /// Preemption of allocations by those of a greater priority.
    pub preemption_config: Preemption => block unsupported "nothing is preempted",
}
}

settings! {
/// For which jobs others are preempted. The defaults are as Nomad's clients find them in a new
/// cluster. Nothing is preempted here: the command line says so beside it, and switching it on is
/// refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Preemption {
    /// Preemption for system jobs.
    pub system_scheduler_enabled: bool = true => set,
    /// Preemption for sysbatch jobs.
    pub sysbatch_scheduler_enabled: bool => set,
    /// Preemption for batch jobs.
    pub batch_scheduler_enabled: bool => set,
    /// Preemption for service jobs.
    pub service_scheduler_enabled: bool => set,
}
}

settings! {
/// Watches nodes that refuse plans.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRejectionTracker {
    /// Mark such nodes ineligible.
    pub enabled: bool => set,
    /// After this many refusals.
    pub node_threshold: u32 = 100 => set,
    /// Within this long.
    pub node_window: Duration = 5 * MINUTE => set,
}
}

settings! {
/// Search settings.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchConfig {
    /// Offer fuzzy search.
    pub fuzzy_enabled: bool = true => set,
    /// How many objects of a kind a fuzzy search looks at; 0: all.
    pub limit_query: usize => set,
    /// Results per kind of a fuzzy search.
    pub limit_results: usize = 100 => set,
    /// The shortest term of a fuzzy search, characters.
    pub min_term_length: usize = 2 => set,
}
}

impl ServerConfig {
    /// The scheduler configuration of a new cluster, as the model has it.
    pub fn scheduler_configuration(&self) -> drover_events::model::SchedulerConfiguration {
        use drover_events::model::{PreemptionConfig, SchedulerConfiguration};
        let set = &self.default_scheduler_config;
        let preemption = &set.preemption_config;
        SchedulerConfiguration {
            scheduler_algorithm: set.scheduler_algorithm.clone(),
            preemption_config: PreemptionConfig {
                system_scheduler_enabled: preemption.system_scheduler_enabled,
                sys_batch_scheduler_enabled: preemption.sysbatch_scheduler_enabled,
                batch_scheduler_enabled: preemption.batch_scheduler_enabled,
                service_scheduler_enabled: preemption.service_scheduler_enabled,
            },
            memory_oversubscription_enabled: set.memory_oversubscription_enabled,
            reject_job_registration: set.reject_job_registration,
            pause_eval_broker: set.pause_eval_broker,
            node_limit_for_feasibility_checks: set.node_limit_for_feasibility_checks.into(),
            ..SchedulerConfiguration::default()
        }
    }
}
