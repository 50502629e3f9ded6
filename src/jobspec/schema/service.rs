//! Services and their checks.

use super::connect::CONNECT;
use super::task::IDENTITY;
use super::{BOOL, DUR, INT, Kind, ODUR, STR, Shape, f, stored};

pub(super) static SERVICE: Shape = Shape {
    name: "service",
    fields: &[
        f("name", "Name", STR),
        f("tags", "Tags", Kind::Strs),
        f("canary_tags", "CanaryTags", Kind::Strs),
        f("enable_tag_override", "EnableTagOverride", BOOL),
        f("port", "PortLabel", STR),
        f("address_mode", "AddressMode", STR),
        f("address", "Address", STR),
        f("check", "Checks", Kind::Many(&CHECK)),
        f("check_restart", "CheckRestart", Kind::One(&CHECK_RESTART)),
        f("connect", "Connect", Kind::One(&CONNECT)),
        f("meta", "Meta", Kind::StrMap),
        f("canary_meta", "CanaryMeta", Kind::StrMap),
        f("tagged_addresses", "TaggedAddresses", Kind::StrMap),
        f("task", "TaskName", STR),
        f("on_update", "OnUpdate", STR),
        f("identity", "Identity", Kind::One(&IDENTITY)),
        f("weights", "Weights", Kind::One(&WEIGHTS)),
        f("provider", "Provider", STR),
        f("cluster", "Cluster", STR),
        f("kind", "Kind", STR),
        stored("Namespace", STR),
    ],
};

static WEIGHTS: Shape = Shape {
    name: "weights",
    fields: &[f("passing", "Passing", INT), f("warning", "Warning", INT)],
};

static CHECK: Shape = Shape {
    name: "check",
    fields: &[
        f("name", "Name", STR),
        f("type", "Type", STR),
        f("command", "Command", STR),
        f("args", "Args", Kind::Strs),
        f("path", "Path", STR),
        f("protocol", "Protocol", STR),
        f("port", "PortLabel", STR),
        f("expose", "Expose", BOOL),
        f("address_mode", "AddressMode", STR),
        f("advertise", "Advertise", STR),
        f("interval", "Interval", DUR),
        f("timeout", "Timeout", DUR),
        f("initial_status", "InitialStatus", STR),
        f("notes", "Notes", STR),
        f("tls_server_name", "TLSServerName", STR),
        f("tls_skip_verify", "TLSSkipVerify", BOOL),
        f("header", "Header", Kind::StrsMap),
        f("method", "Method", STR),
        f("check_restart", "CheckRestart", Kind::One(&CHECK_RESTART)),
        f("grpc_service", "GRPCService", STR),
        f("grpc_use_tls", "GRPCUseTLS", BOOL),
        f("task", "TaskName", STR),
        f("success_before_passing", "SuccessBeforePassing", INT),
        f("failures_before_critical", "FailuresBeforeCritical", INT),
        f("failures_before_warning", "FailuresBeforeWarning", INT),
        f("body", "Body", STR),
        f("on_update", "OnUpdate", STR),
    ],
};

static CHECK_RESTART: Shape = Shape {
    name: "check_restart",
    fields: &[
        f("limit", "Limit", INT),
        f("grace", "Grace", ODUR),
        f("ignore_warnings", "IgnoreWarnings", BOOL),
    ],
};
