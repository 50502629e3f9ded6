//! Services and their checks.

use crate::gojson::{List, Map};
use crate::model::{ConsulConnect, WorkloadIdentity};

crate::wire! {
    /// A service a group or task offers.
    pub struct Service = "service" {
        name: String = "Name" [hcl()],
        task_name: String = "TaskName" [hcl_as("task")],
        port_label: String = "PortLabel" [hcl_as("port")],
        address_mode: String = "AddressMode" [hcl().default_text("auto").empty_is_unset()],
        address: String = "Address" [hcl()],
        enable_tag_override: bool = "EnableTagOverride" [hcl()],
        tags: List<String> = "Tags" [hcl()],
        canary_tags: List<String> = "CanaryTags" [hcl()],
        checks: List<ServiceCheck> = "Checks" [hcl_as("check")],
        connect: Option<ConsulConnect> = "Connect" [hcl()],
        meta: Map<String> = "Meta" (Configured) [hcl()],
        canary_meta: Map<String> = "CanaryMeta" (Configured) [hcl()],
        weights: Option<ServiceWeights> = "Weights" [hcl()],
        tagged_addresses: Map<String> = "TaggedAddresses" [hcl()],
        namespace: String = "Namespace" [server_only()],
        on_update: String = "OnUpdate" [hcl().default_text("require_healthy").empty_is_unset()],
        provider: String = "Provider" [hcl().default_text("consul").empty_is_unset()],
        cluster: String = "Cluster" [hcl().default_text("default").empty_is_unset()],
        identity: Option<WorkloadIdentity> = "Identity" [hcl()],
        kind: String = "Kind" [hcl()],
    } + {
        check_restart: Option<CheckRestart> = "CheckRestart" [hcl()],
    }
}

crate::wire! {
    /// Weights of a service by health.
    pub struct ServiceWeights = "weights" {
        passing: i64 = "Passing" [hcl()],
        warning: i64 = "Warning" [hcl()],
    }
}

crate::wire! {
    /// A health check of a service.
    pub struct ServiceCheck = "check" {
        name: String = "Name" [hcl()],
        r#type: String = "Type" [hcl()],
        command: String = "Command" [hcl()],
        args: List<String> = "Args" (Configured) [hcl()],
        path: String = "Path" [hcl()],
        protocol: String = "Protocol" [hcl()],
        port_label: String = "PortLabel" [hcl_as("port")],
        expose: bool = "Expose" [hcl()],
        address_mode: String = "AddressMode" [hcl()],
        interval: i64 = "Interval" [hcl().duration()],
        timeout: i64 = "Timeout" [hcl().duration()],
        initial_status: String = "InitialStatus" [hcl()],
        notes: String = "Notes" [hcl()],
        tls_server_name: String = "TLSServerName" [hcl()],
        tls_skip_verify: bool = "TLSSkipVerify" [hcl()],
        method: String = "Method" [hcl()],
        header: Map<List<String>> = "Header" (Sensitive) [hcl()],
        check_restart: Option<CheckRestart> = "CheckRestart" [hcl()],
        grpc_service: String = "GRPCService" [hcl()],
        grpc_use_tls: bool = "GRPCUseTLS" [hcl()],
        task_name: String = "TaskName" [hcl_as("task")],
        success_before_passing: i64 = "SuccessBeforePassing" [hcl()],
        failures_before_critical: i64 = "FailuresBeforeCritical" [hcl()],
        failures_before_warning: i64 = "FailuresBeforeWarning" [hcl()],
        body: String = "Body" (Configured) [hcl()],
        on_update: String = "OnUpdate" [hcl()],
    } + {
        advertise: String = "Advertise" [hcl().dropped()],
    }
}

crate::wire! {
    /// When a failing check restarts its task.
    pub struct CheckRestart = "check_restart" {
        limit: i64 = "Limit" [hcl()],
        grace: i64 = "Grace" [hcl().duration().optional().default_seconds(1)],
        ignore_warnings: bool = "IgnoreWarnings" [hcl()],
    }
}
