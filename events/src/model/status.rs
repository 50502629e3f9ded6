//! The words Nomad uses on the wire for kinds, states and reasons.
//!
//! Rows and the wire carry them as plain strings, so that what a later release adds can be read and
//! kept. Here every set of them is twice: as constants, for code that writes one word or compares
//! with it, and as an enum, for code that handles each of them, so that the compiler finds a
//! forgotten one.

use std::fmt;

/// The namespace where none is named.
pub const DEFAULT_NAMESPACE: &str = "default";
/// The node pool of nodes and jobs that name none.
pub const DEFAULT_NODE_POOL: &str = "default";
/// The built-in node pool with every node in it.
pub const ALL_NODE_POOL: &str = "all";
/// The priority of jobs that name none.
pub const DEFAULT_PRIORITY: i64 = 50;

/// `CONSTANT Variant = "text"`: the constants are in a module, the variants in the enum beside it.
macro_rules! words {
    ($($(#[$meta:meta])* $name:ident $set:ident {
        $($word:ident $variant:ident = $text:literal),* $(,)?
    })*) => {
        $(
            $(#[$meta])*
            #[allow(missing_docs, reason = "the text says it")]
            pub mod $name {
                $(pub const $word: &str = $text;)*
                /// Every word of this set.
                pub const ALL: &[&str] = &[$($word),*];
            }

            $(#[$meta])*
            #[allow(missing_docs, reason = "the text says it")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum $set { $($variant),* }

            impl $set {
                /// Every word of this set, in the order of the constants.
                pub const ALL: &'static [Self] = &[$(Self::$variant),*];

                /// The word a text is; none for a word of a later release.
                #[must_use]
                pub fn of(text: &str) -> Option<Self> {
                    match text {
                        $($name::$word => Some(Self::$variant),)*
                        _ => None,
                    }
                }

                /// The text on the wire.
                #[must_use]
                pub const fn as_str(self) -> &'static str {
                    match self {
                        $(Self::$variant => $name::$word,)*
                    }
                }
            }

            impl fmt::Display for $set {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.pad(self.as_str())
                }
            }
        )*

        #[cfg(test)]
        mod sets {
            #[test]
            fn constants_and_enums_agree() {
                $(
                    let (of, as_str) = (super::$set::of, super::$set::as_str);
                    super::tests::agree(super::$name::ALL, super::$set::ALL, of, as_str);
                )*
            }
        }
    };
}

words! {
    /// `Job.Type`; core jobs are the servers' own.
    job_type JobType {
        SERVICE Service = "service", BATCH Batch = "batch", SYSTEM System = "system",
        SYSBATCH Sysbatch = "sysbatch", CORE Core = "_core",
    }
    /// `Job.Status`.
    job JobStatus {
        PENDING Pending = "pending", RUNNING Running = "running", DEAD Dead = "dead",
    }
    /// `Allocation.DesiredStatus`.
    desired DesiredStatus {
        RUN Run = "run", STOP Stop = "stop", EVICT Evict = "evict",
    }
    /// `Allocation.ClientStatus`.
    client ClientStatus {
        PENDING Pending = "pending", RUNNING Running = "running", COMPLETE Complete = "complete",
        FAILED Failed = "failed", LOST Lost = "lost", UNKNOWN Unknown = "unknown",
    }
    /// `TaskState.State`.
    task TaskStatus {
        PENDING Pending = "pending", RUNNING Running = "running", DEAD Dead = "dead",
    }
    /// `CheckQueryResult.Status`, and `ServiceCheck.InitialStatus` where the registry is the
    /// cluster's own; pending until it is looked at.
    check CheckStatus {
        SUCCESS Success = "success", FAILURE Failure = "failure", PENDING Pending = "pending",
    }
    /// `Evaluation.Status`.
    eval EvalStatus {
        BLOCKED Blocked = "blocked", PENDING Pending = "pending", COMPLETE Complete = "complete",
        FAILED Failed = "failed", CANCELED Canceled = "canceled",
    }
    /// `Evaluation.TriggeredBy`.
    trigger Trigger {
        JOB_REGISTER JobRegister = "job-register", JOB_DEREGISTER JobDeregister = "job-deregister",
        PERIODIC_JOB PeriodicJob = "periodic-job", NODE_DRAIN NodeDrain = "node-drain",
        NODE_UPDATE NodeUpdate = "node-update", ALLOC_STOP AllocStop = "alloc-stop",
        SCHEDULED Scheduled = "scheduled", ROLLING_UPDATE RollingUpdate = "rolling-update",
        DEPLOYMENT_WATCHER DeploymentWatcher = "deployment-watcher",
        FAILED_FOLLOW_UP FailedFollowUp = "failed-follow-up",
        MAX_PLAN_ATTEMPTS MaxPlanAttempts = "max-plan-attempts",
        ALLOC_FAILURE AllocFailure = "alloc-failure", QUEUED_ALLOCS QueuedAllocs = "queued-allocs",
        PREEMPTION Preemption = "preemption", SCALING Scaling = "job-scaling",
        MAX_DISCONNECT_TIMEOUT MaxDisconnectTimeout = "max-disconnect-timeout",
        RECONNECT Reconnect = "reconnect", ALLOC_RESCHEDULE AllocReschedule = "alloc-reschedule",
    }
    /// Ways in which a volume may be used by several at once.
    access_mode AccessMode {
        SINGLE_NODE_READER SingleNodeReader = "single-node-reader-only",
        SINGLE_NODE_WRITER SingleNodeWriter = "single-node-writer",
        MULTI_NODE_READER MultiNodeReader = "multi-node-reader-only",
        MULTI_NODE_SINGLE_WRITER MultiNodeSingleWriter = "multi-node-single-writer",
        MULTI_NODE_MULTI_WRITER MultiNodeMultiWriter = "multi-node-multi-writer",
        SINGLE_NODE_SINGLE_WRITER SingleNodeSingleWriter = "single-node-single-writer",
        SINGLE_NODE_MULTI_WRITER SingleNodeMultiWriter = "single-node-multi-writer",
    }
    /// Ways in which a volume appears to a task.
    attachment_mode AttachmentMode {
        FILE_SYSTEM FileSystem = "file-system", BLOCK_DEVICE BlockDevice = "block-device",
    }
    /// `VolumeRequest.Type`.
    volume_type VolumeType {
        HOST Host = "host", CSI Csi = "csi",
    }
    /// `HostVolume.State`.
    host_volume HostVolumeState {
        PENDING Pending = "pending", READY Ready = "ready", UNAVAILABLE Unavailable = "unavailable",
    }
    /// Job ids of the servers' own work (`<id>:<index>`).
    core_job CoreJob {
        EVAL_GC EvalGc = "eval-gc", NODE_GC NodeGc = "node-gc", JOB_GC JobGc = "job-gc",
        DEPLOYMENT_GC DeploymentGc = "deployment-gc",
        CSI_VOLUME_CLAIM_GC CsiVolumeClaimGc = "csi-volume-claim-gc",
        CSI_PLUGIN_GC CsiPluginGc = "csi-plugin-gc",
        ONE_TIME_TOKEN_GC OneTimeTokenGc = "one-time-token-gc",
        LOCAL_TOKEN_EXPIRED_GC LocalTokenExpiredGc = "local-token-expired-gc",
        GLOBAL_TOKEN_EXPIRED_GC GlobalTokenExpiredGc = "global-token-expired-gc",
        ROOT_KEY_ROTATE_GC RootKeyRotateGc = "root-key-rotate-gc",
        VARIABLES_REKEY VariablesRekey = "variables-rekey", FORCE_GC ForceGc = "force-gc",
    }
    /// `Deployment.Status`.
    deployment DeploymentStatus {
        RUNNING Running = "running", PAUSED Paused = "paused", FAILED Failed = "failed",
        SUCCESSFUL Successful = "successful", CANCELLED Cancelled = "cancelled",
        INITIALIZING Initializing = "initializing", PENDING Pending = "pending",
        BLOCKED Blocked = "blocked", UNBLOCKING Unblocking = "unblocking",
    }
    /// `Deployment.StatusDescription`.
    deployment_reason DeploymentReason {
        RUNNING Running = "Deployment is running",
        NEEDS_PROMOTION NeedsPromotion = "Deployment is running but requires manual promotion",
        AUTO_PROMOTION AutoPromotion = "Deployment is running pending automatic promotion",
        PAUSED Paused = "Deployment is paused",
        SUCCESSFUL Successful = "Deployment completed successfully",
        STOPPED_JOB StoppedJob = "Cancelled because job is stopped",
        NEWER_JOB NewerJob = "Cancelled due to newer version of job",
        FAILED_ALLOCATIONS FailedAllocations = "Failed due to unhealthy allocations",
        PROGRESS_DEADLINE ProgressDeadline = "Failed due to progress deadline",
        FAILED_BY_USER FailedByUser = "Deployment marked as failed",
    }
    /// `Node.Status`.
    node NodeStatus {
        INIT Init = "initializing", READY Ready = "ready", DOWN Down = "down",
        DISCONNECTED Disconnected = "disconnected",
    }
    /// `Node.SchedulingEligibility`.
    eligibility Eligibility {
        ELIGIBLE Eligible = "eligible", INELIGIBLE Ineligible = "ineligible",
    }
    /// `DrainMetadata.Status`.
    drain DrainStatus {
        DRAINING Draining = "draining", COMPLETE Complete = "complete",
        CANCELED Canceled = "canceled",
    }
    /// `NodeEvent.Subsystem`.
    node_subsystem NodeSubsystem {
        CLUSTER Cluster = "Cluster", DRIVER Driver = "Driver", HEARTBEAT Heartbeat = "Heartbeat",
        DRAIN Drain = "Drain", SCHEDULER Scheduler = "Scheduler", STORAGE Storage = "Storage",
    }
    /// `TaskLifecycleConfig.Hook`.
    hook Hook {
        PRESTART Prestart = "prestart", POSTSTART Poststart = "poststart",
        POSTSTOP Poststop = "poststop",
    }
    /// `SchedulerConfiguration.SchedulerAlgorithm`.
    algorithm SchedulerAlgorithm {
        BINPACK Binpack = "binpack", SPREAD Spread = "spread",
    }
    /// `RootKeyMeta.State`.
    root_key RootKeyState {
        ACTIVE Active = "active", INACTIVE Inactive = "inactive", REKEYING Rekeying = "rekeying",
        PREPUBLISHED Prepublished = "prepublished", DEPRECATED Deprecated = "deprecated",
    }
    /// `AclToken.Type`: what its policies allow, or everything.
    token_type TokenType {
        CLIENT Client = "client", MANAGEMENT Management = "management",
    }
    /// `JobDiff.Type` and those below it.
    diff DiffType {
        NONE None = "None", ADDED Added = "Added", DELETED Deleted = "Deleted",
        EDITED Edited = "Edited",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The constants of a set and its enum say the same, both ways.
    pub(super) fn agree<W: Copy + PartialEq + std::fmt::Debug + std::fmt::Display>(
        constants: &[&str],
        words: &[W],
        of: fn(&str) -> Option<W>,
        as_str: fn(W) -> &'static str,
    ) {
        let texts: Vec<&str> = words.iter().map(|word| as_str(*word)).collect();
        assert_eq!(texts, constants);
        let shown: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(shown, constants);
        let read: Vec<Option<W>> = constants.iter().map(|text| of(text)).collect();
        let known: Vec<Option<W>> = words.iter().map(|word| Some(*word)).collect();
        assert_eq!(read, known);
        let distinct: BTreeSet<&&str> = constants.iter().collect();
        assert_eq!(distinct.len(), constants.len());
        for later in ["", "of a later release"] {
            assert_eq!(of(later), None);
        }
    }
}
