//! Task groups and what belongs to a whole group.

use super::job::UPDATE;
use super::service::SERVICE;
use super::task::{AFFINITY, CONSTRAINT, CONSUL, SECRET, SPREAD, TASK, VAULT};
use super::{BOOL, INT, Kind, OBOOL, ODUR, OINT, OSTR, STR, Shape, U64, f, j, req};

/// A task group.
pub(super) static GROUP: Shape = Shape {
    name: "group",
    fields: &[
        j("Name", OSTR),
        f("count", "Count", OINT),
        f("constraint", "Constraints", Kind::Many(&CONSTRAINT)),
        f("affinity", "Affinities", Kind::Many(&AFFINITY)),
        f("spread", "Spreads", Kind::Many(&SPREAD)),
        f("task", "Tasks", Kind::Labelled(&TASK, "Name")),
        f("volume", "Volumes", Kind::ByLabel(&VOLUME, "Name")),
        f("restart", "RestartPolicy", Kind::One(&RESTART)),
        f("disconnect", "Disconnect", Kind::One(&DISCONNECT)),
        f("reschedule", "ReschedulePolicy", Kind::One(&RESCHEDULE)),
        f("ephemeral_disk", "EphemeralDisk", Kind::One(&DISK)),
        f("update", "Update", Kind::One(&UPDATE)),
        f("migrate", "Migrate", Kind::One(&MIGRATE)),
        f("network", "Networks", Kind::Many(&NETWORK)),
        f("meta", "Meta", Kind::StrMap),
        f("service", "Services", Kind::Many(&SERVICE)),
        f("shutdown_delay", "ShutdownDelay", ODUR),
        f("max_run_duration", "MaxRunDuration", ODUR),
        f(
            "stop_after_client_disconnect",
            "StopAfterClientDisconnect",
            ODUR,
        ),
        f("max_client_disconnect", "MaxClientDisconnect", ODUR),
        f(
            "prevent_reschedule_on_lost",
            "PreventRescheduleOnLost",
            OBOOL,
        ),
        f("scaling", "Scaling", Kind::One(&SCALING)),
        f("consul", "Consul", Kind::One(&CONSUL)),
        f("vault", "@Vault", Kind::One(&VAULT)),
        f("secret", "@Secrets", Kind::Labelled(&SECRET, "Name")),
    ],
};

/// How a client restarts a failed task.
pub(super) static RESTART: Shape = Shape {
    name: "restart",
    fields: &[
        f("attempts", "Attempts", OINT),
        f("interval", "Interval", ODUR),
        f("delay", "Delay", ODUR),
        f("mode", "Mode", OSTR),
        f("render_templates", "RenderTemplates", OBOOL),
    ],
};

static DISCONNECT: Shape = Shape {
    name: "disconnect",
    fields: &[
        f("lost_after", "LostAfter", ODUR),
        f("stop_on_client_after", "StopOnClientAfter", ODUR),
        f("replace", "Replace", OBOOL),
        f("reconcile", "Reconcile", OSTR),
    ],
};

/// How a failed allocation moves elsewhere.
pub(super) static RESCHEDULE: Shape = Shape {
    name: "reschedule",
    fields: &[
        f("attempts", "Attempts", OINT),
        f("interval", "Interval", ODUR),
        f("delay", "Delay", ODUR),
        f("delay_function", "DelayFunction", OSTR),
        f("max_delay", "MaxDelay", ODUR),
        f("unlimited", "Unlimited", OBOOL),
    ],
};

/// How a group leaves a draining node.
pub(super) static MIGRATE: Shape = Shape {
    name: "migrate",
    fields: &[
        f("max_parallel", "MaxParallel", OINT),
        f("health_check", "HealthCheck", OSTR),
        f("min_healthy_time", "MinHealthyTime", ODUR),
        f("healthy_deadline", "HealthyDeadline", ODUR),
    ],
};

static DISK: Shape = Shape {
    name: "ephemeral_disk",
    fields: &[
        f("sticky", "Sticky", OBOOL),
        f("migrate", "Migrate", OBOOL),
        f("size", "SizeMB", OINT),
    ],
};

static VOLUME: Shape = Shape {
    name: "volume",
    fields: &[
        j("Name", STR),
        f("type", "Type", STR),
        f("source", "Source", STR),
        f("read_only", "ReadOnly", BOOL),
        f("sticky", "Sticky", BOOL),
        f("access_mode", "AccessMode", STR),
        f("attachment_mode", "AttachmentMode", STR),
        f("mount_options", "MountOptions", Kind::One(&MOUNT_OPTIONS)),
        f("per_alloc", "PerAlloc", BOOL),
    ],
};

static MOUNT_OPTIONS: Shape = Shape {
    name: "mount_options",
    fields: &[
        f("fs_type", "FSType", STR),
        f("mount_flags", "MountFlags", Kind::Strs),
    ],
};

/// A network and its ports.
pub(super) static NETWORK: Shape = Shape {
    name: "network",
    fields: &[
        f("mode", "Mode", STR),
        f("device", "Device", STR),
        f("cidr", "CIDR", STR),
        f("ip", "IP", STR),
        f("hostname", "Hostname", STR),
        f("mbits", "MBits", OINT),
        f("dns", "DNS", Kind::One(&DNS)),
        f("port", "@Ports", Kind::Labelled(&PORT, "Label")),
        j("ReservedPorts", Kind::Many(&PORT)),
        j("DynamicPorts", Kind::Many(&PORT)),
        f("cni", "CNI", Kind::One(&CNI)),
    ],
};

static PORT: Shape = Shape {
    name: "port",
    fields: &[
        j("Label", STR),
        f("static", "Value", INT),
        f("to", "To", INT),
        f("host_network", "HostNetwork", STR),
        f("ignore_collision", "IgnoreCollision", BOOL),
    ],
};

static DNS: Shape = Shape {
    name: "dns",
    fields: &[
        f("servers", "Servers", Kind::Strs),
        f("searches", "Searches", Kind::Strs),
        f("options", "Options", Kind::Strs),
    ],
};

static CNI: Shape = Shape {
    name: "cni",
    fields: &[f("args", "Args", Kind::StrMap)],
};

/// The scaling block of a group.
pub(super) static SCALING: Shape = Shape {
    name: "scaling",
    fields: &[
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
