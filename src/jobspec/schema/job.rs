//! The job itself.

use super::group::{GROUP, MIGRATE, RESCHEDULE};
use super::task::{AFFINITY, CONSTRAINT, SECRET, SPREAD, TASK, VAULT};
use super::{BOOL, INT, Kind, OBOOL, ODUR, OINT, OSTR, OU64, STR, Shape, f, j};

pub(crate) static JOB: Shape = Shape {
    name: "job",
    fields: &[
        f("region", "Region", OSTR),
        f("namespace", "Namespace", OSTR),
        f("id", "ID", OSTR),
        f("name", "Name", OSTR),
        f("type", "Type", OSTR),
        f("priority", "Priority", OINT),
        f("all_at_once", "AllAtOnce", OBOOL),
        f("datacenters", "Datacenters", Kind::Strs),
        f("node_pool", "NodePool", OSTR),
        f("constraint", "Constraints", Kind::Many(&CONSTRAINT)),
        f("affinity", "Affinities", Kind::Many(&AFFINITY)),
        f("spread", "Spreads", Kind::Many(&SPREAD)),
        f("group", "TaskGroups", Kind::Labelled(&GROUP, "Name")),
        f("task", "@Tasks", Kind::Labelled(&TASK, "Name")),
        f("update", "Update", Kind::One(&UPDATE)),
        f("multiregion", "Multiregion", Kind::One(&MULTIREGION)),
        f("periodic", "Periodic", Kind::One(&PERIODIC)),
        f(
            "parameterized",
            "ParameterizedJob",
            Kind::One(&PARAMETERIZED),
        ),
        f("reschedule", "Reschedule", Kind::One(&RESCHEDULE)),
        f("migrate", "Migrate", Kind::One(&MIGRATE)),
        f("meta", "Meta", Kind::StrMap),
        f("vault", "@Vault", Kind::One(&VAULT)),
        f("secret", "@Secrets", Kind::Labelled(&SECRET, "Name")),
        f("ui", "UI", Kind::One(&UI)),
        j("Stop", OBOOL),
        j("ParentID", OSTR),
        j("Dispatched", BOOL),
        j("DispatchIdempotencyToken", OSTR),
        j("Payload", Kind::Json),
        j("ConsulNamespace", OSTR),
        j("VaultNamespace", OSTR),
        j("NomadTokenID", OSTR),
        j("Status", OSTR),
        j("StatusDescription", OSTR),
        j("Stable", OBOOL),
        j("Version", OU64),
        j("SubmitTime", OINT),
        j("CreateIndex", OU64),
        j("ModifyIndex", OU64),
        j("JobModifyIndex", OU64),
        j("VersionTag", Kind::One(&VERSION_TAG)),
    ],
};

static VERSION_TAG: Shape = Shape {
    name: "version tag",
    fields: &[j("Name", STR), j("Description", STR), j("TaggedTime", INT)],
};

/// How a new version replaces the old one.
pub(super) static UPDATE: Shape = Shape {
    name: "update",
    fields: &[
        f("stagger", "Stagger", ODUR),
        f("max_parallel", "MaxParallel", OINT),
        f("health_check", "HealthCheck", OSTR),
        f("min_healthy_time", "MinHealthyTime", ODUR),
        f("healthy_deadline", "HealthyDeadline", ODUR),
        f("progress_deadline", "ProgressDeadline", ODUR),
        f("canary", "Canary", OINT),
        f("auto_revert", "AutoRevert", OBOOL),
        f("auto_promote", "AutoPromote", OBOOL),
    ],
};

static PERIODIC: Shape = Shape {
    name: "periodic",
    fields: &[
        f("enabled", "Enabled", OBOOL),
        f("cron", "Spec", OSTR),
        f("crons", "Specs", Kind::Strs),
        j("SpecType", OSTR),
        f("prohibit_overlap", "ProhibitOverlap", OBOOL),
        f("time_zone", "TimeZone", OSTR),
    ],
};

static PARAMETERIZED: Shape = Shape {
    name: "parameterized",
    fields: &[
        f("payload", "Payload", STR),
        f("meta_required", "MetaRequired", Kind::Strs),
        f("meta_optional", "MetaOptional", Kind::Strs),
    ],
};

static UI: Shape = Shape {
    name: "ui",
    fields: &[
        f("description", "Description", STR),
        f("link", "Links", Kind::Many(&LINK)),
    ],
};

static LINK: Shape = Shape {
    name: "link",
    fields: &[f("label", "Label", STR), f("url", "URL", STR)],
};

static MULTIREGION: Shape = Shape {
    name: "multiregion",
    fields: &[
        f("strategy", "Strategy", Kind::One(&STRATEGY)),
        f("region", "Regions", Kind::Labelled(&REGION, "Name")),
    ],
};

static STRATEGY: Shape = Shape {
    name: "strategy",
    fields: &[
        f("max_parallel", "MaxParallel", OINT),
        f("on_failure", "OnFailure", OSTR),
    ],
};

static REGION: Shape = Shape {
    name: "region",
    fields: &[
        j("Name", STR),
        f("count", "Count", OINT),
        f("datacenters", "Datacenters", Kind::Strs),
        f("node_pool", "NodePool", STR),
        f("meta", "Meta", Kind::StrMap),
    ],
};
