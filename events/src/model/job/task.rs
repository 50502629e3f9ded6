//! Tasks: what is run.

use crate::gojson::{Any, List, Map};
use crate::model::{
    Affinity, Constraint, Resources, RestartPolicy, ScalingPolicy, Service, VolumeMount,
};

crate::wire! {
    /// One thing to run with a driver.
    pub struct Task {
        name: String = "Name",
        driver: String = "Driver",
        user: String = "User",
        config: Map<Any> = "Config" (Configured),
        env: Map<String> = "Env" (Sensitive),
        services: List<Service> = "Services",
        vault: Option<Vault> = "Vault",
        secrets: List<Secret> = "Secrets" (Public),
        consul: Option<Consul> = "Consul",
        templates: List<Template> = "Templates",
        constraints: List<Constraint> = "Constraints",
        affinities: List<Affinity> = "Affinities",
        resources: Option<Resources> = "Resources",
        restart_policy: Option<RestartPolicy> = "RestartPolicy",
        dispatch_payload: Option<DispatchPayloadConfig> = "DispatchPayload" (Public),
        lifecycle: Option<TaskLifecycleConfig> = "Lifecycle",
        meta: Map<String> = "Meta" (Configured),
        kill_timeout: i64 = "KillTimeout",
        log_config: Option<LogConfig> = "LogConfig",
        artifacts: List<TaskArtifact> = "Artifacts",
        leader: bool = "Leader",
        shutdown_delay: i64 = "ShutdownDelay",
        volume_mounts: List<VolumeMount> = "VolumeMounts",
        scaling_policies: List<ScalingPolicy> = "ScalingPolicies",
        kill_signal: String = "KillSignal",
        kind: String = "Kind",
        csi_plugin_config: Option<TaskCsiPluginConfig> = "CSIPluginConfig",
        identity: Option<WorkloadIdentity> = "Identity",
        identities: List<WorkloadIdentity> = "Identities",
        actions: List<Action> = "Actions",
        schedule: Option<TaskSchedule> = "Schedule",
    }
}

crate::wire! {
    /// When a task runs in relation to the main tasks.
    pub struct TaskLifecycleConfig {
        hook: String = "Hook",
        sidecar: bool = "Sidecar",
    }
}

crate::wire! {
    /// How a task's output is rotated.
    pub struct LogConfig {
        max_files: i64 = "MaxFiles",
        max_file_size_mb: i64 = "MaxFileSizeMB",
        disabled: bool = "Disabled",
    }
}

crate::wire! {
    /// Something to fetch before a task starts.
    pub struct TaskArtifact {
        getter_source: String = "GetterSource" (Address),
        getter_options: Map<String> = "GetterOptions" (Sensitive),
        getter_headers: Map<String> = "GetterHeaders" (Sensitive),
        getter_mode: String = "GetterMode",
        getter_insecure: bool = "GetterInsecure",
        relative_dest: String = "RelativeDest",
        chown: bool = "Chown",
    }
}

crate::wire! {
    /// A file rendered for a task.
    pub struct Template {
        source_path: String = "SourcePath",
        dest_path: String = "DestPath",
        embedded_tmpl: String = "EmbeddedTmpl" (Sensitive),
        change_mode: String = "ChangeMode",
        change_signal: String = "ChangeSignal",
        change_script: Option<ChangeScript> = "ChangeScript",
        once: bool = "Once",
        splay: i64 = "Splay",
        perms: String = "Perms",
        uid: Option<i64> = "Uid",
        gid: Option<i64> = "Gid",
        left_delim: String = "LeftDelim",
        right_delim: String = "RightDelim",
        envvars: bool = "Envvars",
        vault_grace: i64 = "VaultGrace",
        wait: Option<WaitConfig> = "Wait",
        err_missing_key: bool = "ErrMissingKey",
    }
}

crate::wire! {
    /// How long a template waits to settle; nanoseconds.
    pub struct WaitConfig {
        min: Option<i64> = "Min",
        max: Option<i64> = "Max",
    }
}

crate::wire! {
    /// What runs when a template changes.
    pub struct ChangeScript {
        command: String = "Command",
        args: List<String> = "Args" (Configured),
        timeout: i64 = "Timeout",
        fail_on_error: bool = "FailOnError",
        run_on_first_render: bool = "RunOnFirstRender",
    }
}

crate::wire! {
    /// Access to Vault for a task.
    pub struct Vault {
        role: String = "Role",
        namespace: String = "Namespace",
        cluster: String = "Cluster",
        env: bool = "Env" (Public),
        disable_file: bool = "DisableFile",
        change_mode: String = "ChangeMode",
        change_signal: String = "ChangeSignal",
        allow_token_expiration: bool = "AllowTokenExpiration" (Public),
    }
}

crate::wire! {
    /// Access to Consul for a group or task.
    pub struct Consul {
        namespace: String = "Namespace",
        cluster: String = "Cluster",
        partition: String = "Partition",
    }
}

crate::wire! {
    /// A secret fetched for a task.
    pub struct Secret {
        name: String = "Name",
        provider: String = "Provider",
        path: String = "Path",
        config: Map<Any> = "Config" (Sensitive),
        env: Map<String> = "Env" (Sensitive),
    }
}

crate::wire! {
    /// A signed identity a task is given.
    pub struct WorkloadIdentity {
        name: String = "Name",
        audience: List<String> = "Audience",
        change_mode: String = "ChangeMode",
        change_signal: String = "ChangeSignal",
        env: bool = "Env" (Public),
        file: bool = "File",
        filepath: String = "Filepath",
        service_name: String = "ServiceName",
        ttl: i64 = "TTL",
        extra_claims: List<String> = "ExtraClaims",
    }
}

crate::wire! {
    /// Where a dispatch's payload is written.
    pub struct DispatchPayloadConfig {
        file: String = "File",
    }
}

crate::wire! {
    /// A task that is a CSI plugin.
    pub struct TaskCsiPluginConfig {
        id: String = "ID",
        r#type: String = "Type",
        mount_dir: String = "MountDir",
        stage_publish_base_dir: String = "StagePublishBaseDir",
        health_timeout: i64 = "HealthTimeout",
    }
}

crate::wire! {
    /// A command that can be run in a task.
    pub struct Action {
        name: String = "Name",
        command: String = "Command",
        args: List<String> = "Args" (Configured),
    }
}

crate::wire! {
    /// When a task is allowed to run.
    pub struct TaskSchedule {
        cron: Option<TaskScheduleCron> = "Cron",
    }
}

crate::wire! {
    /// The window a task runs in, as cron expressions.
    pub struct TaskScheduleCron {
        start: String = "Start",
        end: String = "End",
        timezone: String = "Timezone",
    }
}
