//! Tasks, and the placement rules that jobs and groups share with them.

use super::group::{NETWORK, RESTART};
use super::service::SERVICE;
use super::{BOOL, DUR, Kind, OBOOL, ODUR, OI8, OINT, OSTR, OU64, STR, Shape, U8, U64, f, j, req};

pub(super) static TASK: Shape = Shape {
    name: "task",
    fields: &[
        j("Name", STR),
        f("driver", "Driver", STR),
        f("user", "User", STR),
        f("lifecycle", "Lifecycle", Kind::One(&LIFECYCLE)),
        f("config", "Config", Kind::AnyMap),
        f("constraint", "Constraints", Kind::Many(&CONSTRAINT)),
        f("affinity", "Affinities", Kind::Many(&AFFINITY)),
        f("env", "Env", Kind::StrMap),
        f("service", "Services", Kind::Many(&SERVICE)),
        f("resources", "Resources", Kind::One(&RESOURCES)),
        f("restart", "RestartPolicy", Kind::One(&RESTART)),
        f("meta", "Meta", Kind::StrMap),
        f("kill_timeout", "KillTimeout", ODUR),
        f("logs", "LogConfig", Kind::One(&LOGS)),
        f("artifact", "Artifacts", Kind::Many(&ARTIFACT)),
        f("vault", "Vault", Kind::One(&VAULT)),
        f("consul", "Consul", Kind::One(&CONSUL)),
        f("template", "Templates", Kind::Many(&TEMPLATE)),
        f(
            "dispatch_payload",
            "DispatchPayload",
            Kind::One(&DISPATCH_PAYLOAD),
        ),
        f("volume_mount", "VolumeMounts", Kind::Many(&VOLUME_MOUNT)),
        f("csi_plugin", "CSIPluginConfig", Kind::Omit(&CSI_PLUGIN)),
        f("leader", "Leader", BOOL),
        f("shutdown_delay", "ShutdownDelay", DUR),
        f("kill_signal", "KillSignal", STR),
        f("kind", "Kind", STR),
        f(
            "scaling",
            "ScalingPolicies",
            Kind::Labelled(&TASK_SCALING, "@Label"),
        ),
        f("identity", "@Identities", Kind::Many(&IDENTITY)),
        j("Identity", Kind::One(&IDENTITY)),
        j("Identities", Kind::Many(&IDENTITY)),
        f("action", "Actions", Kind::Labelled(&ACTION, "Name")),
        f("schedule", "Schedule", Kind::One(&SCHEDULE)),
        f("secret", "Secrets", Kind::Labelled(&SECRET, "Name")),
    ],
};

/// A rule a node must meet. The shorthands (`version = …`) are resolved after decoding.
pub(super) static CONSTRAINT: Shape = Shape {
    name: "constraint",
    fields: &[
        f("attribute", "LTarget", STR),
        f("value", "RTarget", STR),
        f("operator", "Operand", STR),
        f("version", "@version", OSTR),
        f("semver", "@semver", OSTR),
        f("regexp", "@regexp", OSTR),
        f("set_contains", "@set_contains", OSTR),
        f("set_contains_any", "@set_contains_any", OSTR),
        f("set_contains_all", "@set_contains_all", OSTR),
        f("distinct_hosts", "@distinct_hosts", OBOOL),
        f("distinct_property", "@distinct_property", OSTR),
    ],
};

/// A rule a node had better meet.
pub(super) static AFFINITY: Shape = Shape {
    name: "affinity",
    fields: &[
        f("attribute", "LTarget", STR),
        f("value", "RTarget", STR),
        f("operator", "Operand", STR),
        f("weight", "Weight", OI8),
        f("version", "@version", OSTR),
        f("semver", "@semver", OSTR),
        f("regexp", "@regexp", OSTR),
        f("set_contains", "@set_contains", OSTR),
        f("set_contains_any", "@set_contains_any", OSTR),
        f("set_contains_all", "@set_contains_all", OSTR),
    ],
};

/// How to spread over values of an attribute.
pub(super) static SPREAD: Shape = Shape {
    name: "spread",
    fields: &[
        f("attribute", "Attribute", STR),
        f("weight", "Weight", OI8),
        f(
            "target",
            "SpreadTarget",
            Kind::Labelled(&SPREAD_TARGET, "Value"),
        ),
    ],
};

static SPREAD_TARGET: Shape = Shape {
    name: "target",
    fields: &[f("value", "Value", STR), f("percent", "Percent", U8)],
};

static LIFECYCLE: Shape = Shape {
    name: "lifecycle",
    fields: &[f("hook", "Hook", STR), f("sidecar", "Sidecar", BOOL)],
};

/// What a task asks for.
pub(super) static RESOURCES: Shape = Shape {
    name: "resources",
    fields: &[
        f("cpu", "CPU", OINT),
        f("cores", "Cores", OINT),
        f("memory", "MemoryMB", OINT),
        f("memory_max", "MemoryMaxMB", OINT),
        f("disk", "DiskMB", OINT),
        f("iops", "IOPS", OINT),
        f("secrets", "SecretsMB", OINT),
        f("network", "Networks", Kind::Many(&NETWORK)),
        f("device", "Devices", Kind::Labelled(&DEVICE, "Name")),
        f("numa", "NUMA", Kind::One(&NUMA)),
    ],
};

static DEVICE: Shape = Shape {
    name: "device",
    fields: &[
        j("Name", STR),
        f("count", "Count", OU64),
        f("constraint", "Constraints", Kind::Many(&CONSTRAINT)),
        f("affinity", "Affinities", Kind::Many(&AFFINITY)),
    ],
};

static NUMA: Shape = Shape {
    name: "numa",
    fields: &[
        f("affinity", "Affinity", STR),
        f("devices", "Devices", Kind::Strs),
    ],
};

/// How a task's output is rotated.
pub(super) static LOGS: Shape = Shape {
    name: "logs",
    fields: &[
        f("max_files", "MaxFiles", OINT),
        f("max_file_size", "MaxFileSizeMB", OINT),
        f("enabled", "Enabled", OBOOL),
        f("disabled", "Disabled", OBOOL),
    ],
};

static ARTIFACT: Shape = Shape {
    name: "artifact",
    fields: &[
        f("source", "GetterSource", OSTR),
        f("options", "GetterOptions", Kind::StrMap),
        f("headers", "GetterHeaders", Kind::StrMap),
        f("mode", "GetterMode", OSTR),
        f("insecure", "GetterInsecure", OBOOL),
        f("destination", "RelativeDest", OSTR),
        f("chown", "Chown", BOOL),
    ],
};

static TEMPLATE: Shape = Shape {
    name: "template",
    fields: &[
        f("source", "SourcePath", OSTR),
        f("destination", "DestPath", OSTR),
        f("data", "EmbeddedTmpl", OSTR),
        f("change_mode", "ChangeMode", OSTR),
        f("change_script", "ChangeScript", Kind::One(&CHANGE_SCRIPT)),
        f("change_signal", "ChangeSignal", OSTR),
        f("once", "Once", OBOOL),
        f("splay", "Splay", ODUR),
        f("perms", "Perms", OSTR),
        f("uid", "Uid", OINT),
        f("gid", "Gid", OINT),
        f("left_delimiter", "LeftDelim", OSTR),
        f("right_delimiter", "RightDelim", OSTR),
        f("env", "Envvars", OBOOL),
        f("vault_grace", "VaultGrace", ODUR),
        f("wait", "Wait", Kind::One(&WAIT)),
        f("error_on_missing_key", "ErrMissingKey", OBOOL),
    ],
};

static CHANGE_SCRIPT: Shape = Shape {
    name: "change_script",
    fields: &[
        req("command", "Command", OSTR),
        f("args", "Args", Kind::Strs),
        f("timeout", "Timeout", ODUR),
        f("fail_on_error", "FailOnError", OBOOL),
        f("run_on_first_render", "RunOnFirstRender", OBOOL),
    ],
};

static WAIT: Shape = Shape {
    name: "wait",
    fields: &[req("min", "Min", ODUR), req("max", "Max", ODUR)],
};

/// Access to Vault.
pub(super) static VAULT: Shape = Shape {
    name: "vault",
    fields: &[
        f("policies", "Policies", Kind::Strs),
        f("role", "Role", STR),
        f("namespace", "Namespace", OSTR),
        f("cluster", "Cluster", STR),
        f("env", "Env", OBOOL),
        f("disable_file", "DisableFile", OBOOL),
        f("change_mode", "ChangeMode", OSTR),
        f("change_signal", "ChangeSignal", OSTR),
        f("allow_token_expiration", "AllowTokenExpiration", OBOOL),
    ],
};

/// Access to Consul.
pub(super) static CONSUL: Shape = Shape {
    name: "consul",
    fields: &[
        f("namespace", "Namespace", STR),
        f("cluster", "Cluster", STR),
        f("partition", "Partition", STR),
    ],
};

static DISPATCH_PAYLOAD: Shape = Shape {
    name: "dispatch_payload",
    fields: &[f("file", "File", STR)],
};

/// A volume as one task sees it.
pub(super) static VOLUME_MOUNT: Shape = Shape {
    name: "volume_mount",
    fields: &[
        f("volume", "Volume", OSTR),
        f("destination", "Destination", OSTR),
        f("read_only", "ReadOnly", OBOOL),
        f("propagation_mode", "PropagationMode", OSTR),
        f("selinux_label", "SELinuxLabel", OSTR),
    ],
};

static CSI_PLUGIN: Shape = Shape {
    name: "csi_plugin",
    fields: &[
        f("id", "ID", STR),
        f("type", "Type", STR),
        f("mount_dir", "MountDir", STR),
        f("stage_publish_base_dir", "StagePublishBaseDir", STR),
        f("health_timeout", "HealthTimeout", DUR),
    ],
};

/// The scaling block of a task; its label says of what.
static TASK_SCALING: Shape = Shape {
    name: "task scaling",
    fields: &[
        j("@Label", STR),
        j("ID", STR),
        j("Namespace", STR),
        f("type", "Type", STR),
        j("Target", Kind::StrMap),
        f("min", "Min", OINT),
        req("max", "Max", OINT),
        f("policy", "Policy", Kind::AnyMap),
        f("enabled", "Enabled", OBOOL),
        j("CreateIndex", U64),
        j("ModifyIndex", U64),
    ],
};

/// A workload identity.
pub(super) static IDENTITY: Shape = Shape {
    name: "identity",
    fields: &[
        f("name", "Name", STR),
        f("aud", "Audience", Kind::Strs),
        f("change_mode", "ChangeMode", STR),
        f("change_signal", "ChangeSignal", STR),
        f("env", "Env", BOOL),
        f("file", "File", BOOL),
        f("filepath", "Filepath", STR),
        f("service_name", "ServiceName", STR),
        f("ttl", "TTL", DUR),
        f("extra_claims", "ExtraClaims", Kind::Strs),
    ],
};

static ACTION: Shape = Shape {
    name: "action",
    fields: &[
        j("Name", STR),
        req("command", "Command", STR),
        f("args", "Args", Kind::Strs),
    ],
};

static SCHEDULE: Shape = Shape {
    name: "schedule",
    fields: &[f("cron", "Cron", Kind::One(&SCHEDULE_CRON))],
};

static SCHEDULE_CRON: Shape = Shape {
    name: "cron",
    fields: &[
        f("start", "Start", STR),
        f("end", "End", STR),
        f("timezone", "Timezone", STR),
    ],
};

/// A secret fetched before the task starts.
pub(super) static SECRET: Shape = Shape {
    name: "secret",
    fields: &[
        j("Name", STR),
        f("provider", "Provider", STR),
        f("path", "Path", STR),
        f("config", "Config", Kind::AnyMap),
        f("env", "Env", Kind::StrMap),
    ],
};
