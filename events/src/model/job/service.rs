//! Services and their checks.

use crate::gojson::{List, Map};
use crate::model::{ConsulConnect, WorkloadIdentity};

crate::wire! {
    /// A service a group or task offers.
    pub struct Service {
        name: String = "Name",
        task_name: String = "TaskName",
        port_label: String = "PortLabel",
        address_mode: String = "AddressMode",
        address: String = "Address",
        enable_tag_override: bool = "EnableTagOverride",
        tags: List<String> = "Tags",
        canary_tags: List<String> = "CanaryTags",
        checks: List<ServiceCheck> = "Checks",
        connect: Option<ConsulConnect> = "Connect",
        meta: Map<String> = "Meta" (Configured),
        canary_meta: Map<String> = "CanaryMeta" (Configured),
        weights: Option<ServiceWeights> = "Weights",
        tagged_addresses: Map<String> = "TaggedAddresses",
        namespace: String = "Namespace",
        on_update: String = "OnUpdate",
        provider: String = "Provider",
        cluster: String = "Cluster",
        identity: Option<WorkloadIdentity> = "Identity",
        kind: String = "Kind",
    }
}

crate::wire! {
    /// Weights of a service by health.
    pub struct ServiceWeights {
        passing: i64 = "Passing",
        warning: i64 = "Warning",
    }
}

crate::wire! {
    /// A health check of a service.
    pub struct ServiceCheck {
        name: String = "Name",
        r#type: String = "Type",
        command: String = "Command",
        args: List<String> = "Args" (Configured),
        path: String = "Path",
        protocol: String = "Protocol",
        port_label: String = "PortLabel",
        expose: bool = "Expose",
        address_mode: String = "AddressMode",
        interval: i64 = "Interval",
        timeout: i64 = "Timeout",
        initial_status: String = "InitialStatus",
        notes: String = "Notes",
        tls_server_name: String = "TLSServerName",
        tls_skip_verify: bool = "TLSSkipVerify",
        method: String = "Method",
        header: Map<List<String>> = "Header" (Sensitive),
        check_restart: Option<CheckRestart> = "CheckRestart",
        grpc_service: String = "GRPCService",
        grpc_use_tls: bool = "GRPCUseTLS",
        task_name: String = "TaskName",
        success_before_passing: i64 = "SuccessBeforePassing",
        failures_before_critical: i64 = "FailuresBeforeCritical",
        failures_before_warning: i64 = "FailuresBeforeWarning",
        body: String = "Body" (Configured),
        on_update: String = "OnUpdate",
    }
}

crate::wire! {
    /// When a failing check restarts its task.
    pub struct CheckRestart {
        limit: i64 = "Limit",
        grace: i64 = "Grace",
        ignore_warnings: bool = "IgnoreWarnings",
    }
}
