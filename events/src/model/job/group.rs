//! Task groups and their policies.

use crate::gojson::{List, Map};
use crate::model::{
    Affinity, Constraint, Consul, CsiMountOptions, NetworkResource, ScalingPolicy, Service, Spread,
    Task, UpdateStrategy,
};

crate::wire! {
    /// Tasks that are placed together on one node.
    pub struct TaskGroup {
        name: String = "Name",
        count: i64 = "Count",
        update: Option<UpdateStrategy> = "Update",
        migrate: Option<MigrateStrategy> = "Migrate",
        constraints: List<Constraint> = "Constraints",
        scaling: Option<ScalingPolicy> = "Scaling",
        restart_policy: Option<RestartPolicy> = "RestartPolicy",
        disconnect: Option<DisconnectStrategy> = "Disconnect",
        tasks: List<Task> = "Tasks",
        ephemeral_disk: Option<EphemeralDisk> = "EphemeralDisk",
        meta: Map<String> = "Meta" (Configured),
        reschedule_policy: Option<ReschedulePolicy> = "ReschedulePolicy",
        affinities: List<Affinity> = "Affinities",
        spreads: List<Spread> = "Spreads",
        networks: List<NetworkResource> = "Networks",
        consul: Option<Consul> = "Consul",
        services: List<Service> = "Services",
        volumes: Map<VolumeRequest> = "Volumes",
        shutdown_delay: Option<i64> = "ShutdownDelay",
        max_run_duration: Option<i64> = "MaxRunDuration",
        stop_after_client_disconnect: Option<i64> = "StopAfterClientDisconnect",
        max_client_disconnect: Option<i64> = "MaxClientDisconnect",
        prevent_reschedule_on_lost: bool = "PreventRescheduleOnLost",
    }
}

crate::wire! {
    /// How a client restarts a failed task; times in nanoseconds.
    pub struct RestartPolicy {
        attempts: i64 = "Attempts",
        interval: i64 = "Interval",
        delay: i64 = "Delay",
        mode: String = "Mode",
        render_templates: bool = "RenderTemplates",
    }
}

crate::wire! {
    /// How a failed allocation moves elsewhere; times in nanoseconds.
    pub struct ReschedulePolicy {
        attempts: i64 = "Attempts",
        interval: i64 = "Interval",
        delay: i64 = "Delay",
        delay_function: String = "DelayFunction",
        max_delay: i64 = "MaxDelay",
        unlimited: bool = "Unlimited",
    }
}

crate::wire! {
    /// What happens to a group on a disconnected node; times in nanoseconds.
    pub struct DisconnectStrategy {
        lost_after: i64 = "LostAfter",
        stop_on_client_after: Option<i64> = "StopOnClientAfter",
        replace: Option<bool> = "Replace",
        reconcile: String = "Reconcile",
    }
}

crate::wire! {
    /// How a group leaves a draining node; times in nanoseconds.
    pub struct MigrateStrategy {
        max_parallel: i64 = "MaxParallel",
        health_check: String = "HealthCheck",
        min_healthy_time: i64 = "MinHealthyTime",
        healthy_deadline: i64 = "HealthyDeadline",
    }
}

crate::wire! {
    /// The disk an allocation shares among its tasks.
    pub struct EphemeralDisk {
        sticky: bool = "Sticky",
        size_mb: i64 = "SizeMB",
        migrate: bool = "Migrate",
    }
}

crate::wire! {
    /// A volume a group asks for.
    pub struct VolumeRequest {
        name: String = "Name",
        r#type: String = "Type",
        source: String = "Source",
        read_only: bool = "ReadOnly",
        sticky: bool = "Sticky",
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        mount_options: Option<CsiMountOptions> = "MountOptions",
        per_alloc: bool = "PerAlloc",
    }
}

crate::wire! {
    /// A volume as one task sees it.
    pub struct VolumeMount {
        volume: String = "Volume",
        destination: String = "Destination",
        read_only: bool = "ReadOnly",
        propagation_mode: String = "PropagationMode",
        se_linux_label: String = "SELinuxLabel",
    }
}
