//! Tasks: what is run.

use crate::gojson::{Any, List, Map};
use crate::model::{
    Affinity, Constraint, Resources, RestartPolicy, ScalingPolicy, Service, VolumeMount,
};

crate::wire! {
    /// One thing to run with a driver.
    pub struct Task = "task" {
        name: String = "Name",
        driver: String = "Driver" [hcl()],
        user: String = "User" [hcl()],
        config: Map<Any> = "Config" (Configured) [hcl()],
        env: Map<String> = "Env" (Sensitive) [hcl()],
        services: List<Service> = "Services" [hcl_as("service")],
        vault: Option<Vault> = "Vault" [hcl()],
        secrets: List<Secret> = "Secrets" (Public) [hcl_as("secret").labelled("Name")],
        consul: Option<Consul> = "Consul" [hcl()],
        templates: List<Template> = "Templates" [hcl_as("template")],
        constraints: List<Constraint> = "Constraints" [hcl_as("constraint")],
        affinities: List<Affinity> = "Affinities" [hcl_as("affinity")],
        resources: Option<Resources> = "Resources" [hcl()],
        restart_policy: Option<RestartPolicy> = "RestartPolicy" [hcl_as("restart")],
        dispatch_payload: Option<DispatchPayloadConfig> = "DispatchPayload" (Public) [hcl()],
        lifecycle: Option<TaskLifecycleConfig> = "Lifecycle" [hcl()],
        meta: Map<String> = "Meta" (Configured) [hcl()],
        kill_timeout: i64 = "KillTimeout" [hcl().duration().optional().default_seconds(5)],
        log_config: Option<LogConfig> = "LogConfig" [hcl_as("logs")],
        artifacts: List<TaskArtifact> = "Artifacts" [hcl_as("artifact")],
        leader: bool = "Leader" [hcl()],
        shutdown_delay: i64 = "ShutdownDelay" [hcl().duration()],
        volume_mounts: List<VolumeMount> = "VolumeMounts" [hcl_as("volume_mount")],
        scaling_policies: List<ScalingPolicy> = "ScalingPolicies"
            [hcl_as("scaling").labelled("@Label")],
        kill_signal: String = "KillSignal" [hcl()],
        kind: String = "Kind" [hcl()],
        csi_plugin_config: Option<TaskCsiPluginConfig> = "CSIPluginConfig"
            [hcl_as("csi_plugin").absent()],
        identity: Option<WorkloadIdentity> = "Identity",
        identities: List<WorkloadIdentity> = "Identities",
        actions: List<Action> = "Actions" [hcl_as("action").labelled("Name")],
        schedule: Option<TaskSchedule> = "Schedule" [hcl()],
    } + {
        identity: List<WorkloadIdentity> = "@Identities" [hcl()],
    }
}

crate::wire! {
    /// When a task runs in relation to the main tasks.
    pub struct TaskLifecycleConfig = "lifecycle" {
        hook: String = "Hook" [hcl()],
        sidecar: bool = "Sidecar" [hcl()],
    }
}

crate::wire! {
    /// How a task's output is rotated.
    pub struct LogConfig = "logs" {
        max_files: i64 = "MaxFiles" [hcl().optional().default_int(10)],
        max_file_size_mb: i64 = "MaxFileSizeMB"
            [hcl_as("max_file_size").optional().default_int(10)],
        disabled: bool = "Disabled" [hcl().optional()],
    } + {
        enabled: bool = "Enabled" [hcl().optional()],
    }
}

crate::wire! {
    /// Something to fetch before a task starts.
    pub struct TaskArtifact = "artifact" {
        getter_source: String = "GetterSource" (Address)
            [hcl_as("source").optional().default_text("")],
        getter_options: Map<String> = "GetterOptions" (Sensitive) [hcl_as("options")],
        getter_headers: Map<String> = "GetterHeaders" (Sensitive) [hcl_as("headers")],
        getter_mode: String = "GetterMode"
            [hcl_as("mode").optional().default_text("any").empty_is_unset()],
        getter_insecure: bool = "GetterInsecure"
            [hcl_as("insecure").optional().default_bool(false)],
        relative_dest: String = "RelativeDest" [hcl_as("destination").optional()],
        chown: bool = "Chown" [hcl()],
    }
}

crate::wire! {
    /// A file rendered for a task.
    pub struct Template = "template" {
        source_path: String = "SourcePath" [hcl_as("source").optional().default_text("")],
        dest_path: String = "DestPath" [hcl_as("destination").optional().default_text("")],
        embedded_tmpl: String = "EmbeddedTmpl" (Sensitive)
            [hcl_as("data").optional().default_text("")],
        change_mode: String = "ChangeMode"
            [hcl().optional().default_text("restart").empty_is_unset()],
        change_signal: String = "ChangeSignal" [hcl().optional()],
        change_script: Option<ChangeScript> = "ChangeScript" [hcl()],
        once: bool = "Once" [hcl().optional().default_bool(false)],
        splay: i64 = "Splay" [hcl().duration().optional().default_seconds(5)],
        perms: String = "Perms" [hcl().optional().default_text("0644")],
        uid: Option<i64> = "Uid" [hcl()],
        gid: Option<i64> = "Gid" [hcl()],
        left_delim: String = "LeftDelim" [hcl_as("left_delimiter").optional().default_text("{{")],
        right_delim: String = "RightDelim"
            [hcl_as("right_delimiter").optional().default_text("}}")],
        envvars: bool = "Envvars" [hcl_as("env").optional().default_bool(false)],
        vault_grace: i64 = "VaultGrace" [hcl().duration().optional().default_seconds(0)],
        wait: Option<WaitConfig> = "Wait" [hcl()],
        err_missing_key: bool = "ErrMissingKey"
            [hcl_as("error_on_missing_key").optional().default_bool(false)],
    }
}

crate::wire! {
    /// How long a template waits until its values stop changing; nanoseconds.
    pub struct WaitConfig = "wait" {
        min: Option<i64> = "Min" [hcl().duration().required().default_seconds(5)],
        max: Option<i64> = "Max" [hcl().duration().required().default_seconds(240)],
    }
}

crate::wire! {
    /// What runs when a template changes.
    pub struct ChangeScript = "change_script" {
        command: String = "Command" [hcl().optional().required().default_text("")],
        args: List<String> = "Args" (Configured) [hcl().default_list()],
        timeout: i64 = "Timeout" [hcl().duration().optional().default_seconds(5)],
        fail_on_error: bool = "FailOnError" [hcl().optional().default_bool(false)],
        run_on_first_render: bool = "RunOnFirstRender" [hcl().optional().default_bool(false)],
    }
}

crate::wire! {
    /// Access to Vault for a task.
    pub struct Vault = "vault" {
        role: String = "Role" [hcl()],
        namespace: String = "Namespace" [hcl().optional().default_text("")],
        cluster: String = "Cluster" [hcl().default_text("default").empty_is_unset()],
        env: bool = "Env" (Public) [hcl().optional().default_bool(true)],
        disable_file: bool = "DisableFile" [hcl().optional().default_bool(false)],
        change_mode: String = "ChangeMode"
            [hcl().optional().default_text("restart").empty_is_unset()],
        change_signal: String = "ChangeSignal" [hcl().optional().default_text("SIGHUP")],
        allow_token_expiration: bool = "AllowTokenExpiration" (Public)
            [hcl().optional().default_bool(false)],
    } + {
        policies: List<String> = "Policies" [hcl()],
    }
}

crate::wire! {
    /// Access to Consul for a group or task.
    pub struct Consul = "consul" {
        namespace: String = "Namespace" [hcl()],
        cluster: String = "Cluster" [hcl().default_text("default").empty_is_unset()],
        partition: String = "Partition" [hcl()],
    }
}

crate::wire! {
    /// A secret fetched for a task.
    pub struct Secret = "secret" {
        name: String = "Name",
        provider: String = "Provider" [hcl()],
        path: String = "Path" [hcl()],
        config: Map<Any> = "Config" (Sensitive) [hcl()],
        env: Map<String> = "Env" (Sensitive) [hcl()],
    }
}

crate::wire! {
    /// A signed identity a task is given.
    pub struct WorkloadIdentity = "identity" {
        name: String = "Name" [hcl()],
        audience: List<String> = "Audience" [hcl_as("aud")],
        change_mode: String = "ChangeMode" [hcl()],
        change_signal: String = "ChangeSignal" [hcl()],
        env: bool = "Env" (Public) [hcl()],
        file: bool = "File" [hcl()],
        filepath: String = "Filepath" [hcl()],
        service_name: String = "ServiceName" [hcl()],
        ttl: i64 = "TTL" [hcl().duration()],
        extra_claims: List<String> = "ExtraClaims" [hcl()],
    }
}

crate::wire! {
    /// Where a dispatch's payload is written.
    pub struct DispatchPayloadConfig = "dispatch_payload" {
        file: String = "File" [hcl()],
    }
}

crate::wire! {
    /// A task that is a CSI plugin.
    pub struct TaskCsiPluginConfig = "csi_plugin" {
        id: String = "ID" [hcl()],
        r#type: String = "Type" [hcl()],
        mount_dir: String = "MountDir" [hcl().default_text("/csi").empty_is_unset()],
        stage_publish_base_dir: String = "StagePublishBaseDir"
            [hcl().default_text("/local/csi").empty_is_unset()],
        health_timeout: i64 = "HealthTimeout"
            [hcl().duration().default_seconds(30).empty_is_unset()],
    }
}

crate::wire! {
    /// A command that can be run in a task.
    pub struct Action = "action" {
        name: String = "Name",
        command: String = "Command" [hcl().required()],
        args: List<String> = "Args" (Configured) [hcl()],
    }
}

crate::wire! {
    /// When a task is allowed to run.
    pub struct TaskSchedule = "schedule" {
        cron: Option<TaskScheduleCron> = "Cron" [hcl()],
    }
}

crate::wire! {
    /// The window a task runs in, as cron expressions.
    pub struct TaskScheduleCron = "cron" {
        start: String = "Start" [hcl()],
        end: String = "End" [hcl()],
        timezone: String = "Timezone" [hcl()],
    }
}
