//! The words Nomad uses on the wire for kinds, states and reasons.

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($word:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "the text says it")]
        pub mod $name {
            $(pub const $word: &str = $text;)*
            /// Every word of this set.
            pub const ALL: &[&str] = &[$($word),*];
        }
    )*};
}

words! {
    /// `Job.Type`; core jobs are the servers' own.
    job_type {
        SERVICE = "service", BATCH = "batch", SYSTEM = "system", SYSBATCH = "sysbatch",
        CORE = "_core",
    }
    /// `Job.Status`.
    job { PENDING = "pending", RUNNING = "running", DEAD = "dead" }
    /// `Allocation.DesiredStatus`.
    desired { RUN = "run", STOP = "stop", EVICT = "evict" }
    /// `Allocation.ClientStatus`.
    client {
        PENDING = "pending", RUNNING = "running", COMPLETE = "complete", FAILED = "failed",
        LOST = "lost", UNKNOWN = "unknown",
    }
    /// `TaskState.State`.
    task { PENDING = "pending", RUNNING = "running", DEAD = "dead" }
    /// `Evaluation.Status`.
    eval {
        BLOCKED = "blocked", PENDING = "pending", COMPLETE = "complete", FAILED = "failed",
        CANCELED = "canceled",
    }
    /// `Evaluation.TriggeredBy`.
    trigger {
        JOB_REGISTER = "job-register", JOB_DEREGISTER = "job-deregister",
        PERIODIC_JOB = "periodic-job", NODE_DRAIN = "node-drain", NODE_UPDATE = "node-update",
        ALLOC_STOP = "alloc-stop", SCHEDULED = "scheduled", ROLLING_UPDATE = "rolling-update",
        DEPLOYMENT_WATCHER = "deployment-watcher", FAILED_FOLLOW_UP = "failed-follow-up",
        MAX_PLAN_ATTEMPTS = "max-plan-attempts", ALLOC_FAILURE = "alloc-failure",
        QUEUED_ALLOCS = "queued-allocs", PREEMPTION = "preemption", SCALING = "job-scaling",
        MAX_DISCONNECT_TIMEOUT = "max-disconnect-timeout", RECONNECT = "reconnect",
        ALLOC_RESCHEDULE = "alloc-reschedule",
    }
    /// Ways in which a volume may be used by several at once.
    access_mode {
        SINGLE_NODE_READER = "single-node-reader-only",
        SINGLE_NODE_WRITER = "single-node-writer",
        MULTI_NODE_READER = "multi-node-reader-only",
        MULTI_NODE_SINGLE_WRITER = "multi-node-single-writer",
        MULTI_NODE_MULTI_WRITER = "multi-node-multi-writer",
        SINGLE_NODE_SINGLE_WRITER = "single-node-single-writer",
        SINGLE_NODE_MULTI_WRITER = "single-node-multi-writer",
    }
    /// Ways in which a volume appears to a task.
    attachment_mode { FILE_SYSTEM = "file-system", BLOCK_DEVICE = "block-device" }
    /// `VolumeRequest.Type`.
    volume_type { HOST = "host", CSI = "csi" }
    /// `HostVolume.State`.
    host_volume { PENDING = "pending", READY = "ready", UNAVAILABLE = "unavailable" }
    /// Job ids of the servers' own work (`<id>:<index>`).
    core_job {
        EVAL_GC = "eval-gc", NODE_GC = "node-gc", JOB_GC = "job-gc",
        DEPLOYMENT_GC = "deployment-gc", CSI_VOLUME_CLAIM_GC = "csi-volume-claim-gc",
        CSI_PLUGIN_GC = "csi-plugin-gc", ONE_TIME_TOKEN_GC = "one-time-token-gc",
        LOCAL_TOKEN_EXPIRED_GC = "local-token-expired-gc",
        GLOBAL_TOKEN_EXPIRED_GC = "global-token-expired-gc",
        ROOT_KEY_ROTATE_GC = "root-key-rotate-gc", VARIABLES_REKEY = "variables-rekey",
        FORCE_GC = "force-gc",
    }
    /// `Deployment.Status`.
    deployment {
        RUNNING = "running", PAUSED = "paused", FAILED = "failed", SUCCESSFUL = "successful",
        CANCELLED = "cancelled", INITIALIZING = "initializing", PENDING = "pending",
        BLOCKED = "blocked", UNBLOCKING = "unblocking",
    }
    /// `Deployment.StatusDescription`.
    deployment_reason {
        RUNNING = "Deployment is running",
        NEEDS_PROMOTION = "Deployment is running but requires manual promotion",
        AUTO_PROMOTION = "Deployment is running pending automatic promotion",
        PAUSED = "Deployment is paused",
        SUCCESSFUL = "Deployment completed successfully",
        STOPPED_JOB = "Cancelled because job is stopped",
        NEWER_JOB = "Cancelled due to newer version of job",
        FAILED_ALLOCATIONS = "Failed due to unhealthy allocations",
        PROGRESS_DEADLINE = "Failed due to progress deadline",
        FAILED_BY_USER = "Deployment marked as failed",
    }
    /// `Node.Status`.
    node {
        INIT = "initializing", READY = "ready", DOWN = "down", DISCONNECTED = "disconnected",
    }
    /// `Node.SchedulingEligibility`.
    eligibility { ELIGIBLE = "eligible", INELIGIBLE = "ineligible" }
    /// `DrainMetadata.Status`.
    drain { DRAINING = "draining", COMPLETE = "complete", CANCELED = "canceled" }
    /// `NodeEvent.Subsystem`.
    node_subsystem {
        CLUSTER = "Cluster", DRIVER = "Driver", HEARTBEAT = "Heartbeat", DRAIN = "Drain",
        SCHEDULER = "Scheduler", STORAGE = "Storage",
    }
    /// `TaskLifecycleConfig.Hook`.
    hook { PRESTART = "prestart", POSTSTART = "poststart", POSTSTOP = "poststop" }
    /// `SchedulerConfiguration.SchedulerAlgorithm`.
    algorithm { BINPACK = "binpack", SPREAD = "spread" }
    /// `RootKeyMeta.State`.
    root_key {
        ACTIVE = "active", INACTIVE = "inactive", REKEYING = "rekeying",
        PREPUBLISHED = "prepublished", DEPRECATED = "deprecated",
    }
    /// `JobDiff.Type` and those below it.
    diff { NONE = "None", ADDED = "Added", DELETED = "Deleted", EDITED = "Edited" }
}

/// The namespace of whoever names none.
pub const DEFAULT_NAMESPACE: &str = "default";
/// The node pool of nodes and jobs that name none.
pub const DEFAULT_NODE_POOL: &str = "default";
/// The built-in node pool with every node in it.
pub const ALL_NODE_POOL: &str = "all";
/// The priority of jobs that name none.
pub const DEFAULT_PRIORITY: i64 = 50;
