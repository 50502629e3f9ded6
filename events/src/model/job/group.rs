//! Task groups and their policies.

use crate::gojson::{List, Map};
use crate::model::{
    Affinity, Constraint, Consul, CsiMountOptions, NetworkResource, ScalingPolicy, Secret, Service,
    Spread, Task, UpdateStrategy, Vault,
};

crate::wire! {
    /// Tasks that are placed together on one node.
    pub struct TaskGroup = "group" {
        name: String = "Name" [optional().default_text("")],
        count: i64 = "Count" [hcl().optional()],
        update: Option<UpdateStrategy> = "Update" [hcl()],
        migrate: Option<MigrateStrategy> = "Migrate" [hcl()],
        constraints: List<Constraint> = "Constraints" [hcl_as("constraint")],
        scaling: Option<ScalingPolicy> = "Scaling" [hcl()],
        restart_policy: Option<RestartPolicy> = "RestartPolicy" [hcl_as("restart")],
        disconnect: Option<DisconnectStrategy> = "Disconnect" [hcl()],
        tasks: List<Task> = "Tasks" [hcl_as("task").labelled("Name")],
        ephemeral_disk: Option<EphemeralDisk> = "EphemeralDisk" [hcl()],
        meta: Map<String> = "Meta" (Configured) [hcl()],
        reschedule_policy: Option<ReschedulePolicy> = "ReschedulePolicy" [hcl_as("reschedule")],
        affinities: List<Affinity> = "Affinities" [hcl_as("affinity")],
        spreads: List<Spread> = "Spreads" [hcl_as("spread")],
        networks: List<NetworkResource> = "Networks" [hcl_as("network")],
        consul: Option<Consul> = "Consul" [hcl()],
        services: List<Service> = "Services" [hcl_as("service")],
        volumes: Map<VolumeRequest> = "Volumes" [hcl_as("volume")],
        shutdown_delay: Option<i64> = "ShutdownDelay" [hcl().duration()],
        max_run_duration: Option<i64> = "MaxRunDuration" [hcl().duration()],
        stop_after_client_disconnect: Option<i64> = "StopAfterClientDisconnect" [hcl().duration()],
        max_client_disconnect: Option<i64> = "MaxClientDisconnect" [hcl().duration()],
        prevent_reschedule_on_lost: bool = "PreventRescheduleOnLost" [hcl().optional()],
    } + {
        vault: Option<Vault> = "@Vault" [hcl()],
        secret: List<Secret> = "@Secrets" [hcl().labelled("Name")],
    }
}

crate::wire! {
    /// How a client restarts a failed task; times in nanoseconds.
    pub struct RestartPolicy = "restart" {
        attempts: i64 = "Attempts" [hcl().optional()],
        interval: i64 = "Interval" [hcl().duration().optional()],
        delay: i64 = "Delay" [hcl().duration().optional().default_seconds(15)],
        mode: String = "Mode" [hcl().optional().default_text("fail")],
        render_templates: bool = "RenderTemplates" [hcl().optional().default_bool(false)],
    }
}

crate::wire! {
    /// How a failed allocation moves elsewhere; times in nanoseconds.
    pub struct ReschedulePolicy = "reschedule" {
        attempts: i64 = "Attempts" [hcl().optional()],
        interval: i64 = "Interval" [hcl().duration().optional()],
        delay: i64 = "Delay" [hcl().duration().optional()],
        delay_function: String = "DelayFunction" [hcl().optional()],
        max_delay: i64 = "MaxDelay" [hcl().duration().optional()],
        unlimited: bool = "Unlimited" [hcl().optional()],
    }
}

crate::wire! {
    /// What happens to a group on a disconnected node; times in nanoseconds.
    pub struct DisconnectStrategy = "disconnect" {
        lost_after: i64 = "LostAfter" [hcl().duration().optional()],
        stop_on_client_after: Option<i64> = "StopOnClientAfter" [hcl().duration()],
        replace: Option<bool> = "Replace" [hcl().default_bool(true)],
        reconcile: String = "Reconcile"
            [hcl().optional().default_text("best_score").empty_is_unset()],
    }
}

crate::wire! {
    /// How a group leaves a draining node; times in nanoseconds.
    pub struct MigrateStrategy = "migrate" {
        max_parallel: i64 = "MaxParallel" [hcl().optional().default_int(1)],
        health_check: String = "HealthCheck" [hcl().optional().default_text("checks")],
        min_healthy_time: i64 = "MinHealthyTime" [hcl().duration().optional().default_seconds(10)],
        healthy_deadline: i64 = "HealthyDeadline"
            [hcl().duration().optional().default_seconds(300)],
    }
}

crate::wire! {
    /// The disk an allocation shares among its tasks.
    pub struct EphemeralDisk = "ephemeral_disk" {
        sticky: bool = "Sticky" [hcl().optional().default_bool(false)],
        size_mb: i64 = "SizeMB" [hcl_as("size").optional().default_int(300)],
        migrate: bool = "Migrate" [hcl().optional().default_bool(false)],
    }
}

crate::wire! {
    /// A volume that a group requests.
    pub struct VolumeRequest = "volume" {
        name: String = "Name",
        r#type: String = "Type" [hcl()],
        source: String = "Source" [hcl()],
        read_only: bool = "ReadOnly" [hcl()],
        sticky: bool = "Sticky" [hcl()],
        access_mode: String = "AccessMode" [hcl()],
        attachment_mode: String = "AttachmentMode" [hcl()],
        mount_options: Option<CsiMountOptions> = "MountOptions" [hcl()],
        per_alloc: bool = "PerAlloc" [hcl()],
    }
}

crate::wire! {
    /// A volume as one task sees it.
    pub struct VolumeMount = "volume_mount" {
        volume: String = "Volume" [hcl().optional().default_text("")],
        destination: String = "Destination" [hcl().optional().default_text("")],
        read_only: bool = "ReadOnly" [hcl().optional().default_bool(false)],
        propagation_mode: String = "PropagationMode"
            [hcl().optional().default_text("private").empty_is_unset()],
        se_linux_label: String = "SELinuxLabel"
            [hcl_as("selinux_label").optional().default_text("")],
    }
}
