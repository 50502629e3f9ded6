//! Settings of Nomad's that this version does not act on.
//!
//! Nothing is accepted and ignored: a file that changes one of these is refused, with its place and
//! what to do instead. Naming the value that drover works with anyway (a default, an empty or
//! disabled block) is no change. The list may only shrink; `drover config validate` prints it.

use super::hcl1::{Node, Value};
use super::option;

/// A setting, or a block with all that is in it, and what to do instead.
#[derive(Debug, Clone, Copy)]
pub struct Unsupported {
    /// The path of the setting or block, blocks joined by dots, labels left out.
    pub path: &'static str,
    /// Why it has no effect here, and what to do.
    pub advice: &'static str,
}

const fn not(path: &'static str, advice: &'static str) -> Unsupported {
    Unsupported { path, advice }
}

const KEYS: &str = "keys are neither rotated nor collected";
const ENTERPRISE: &str = "it belongs to an edition that drover is not";
const BRIDGE: &str = "there are no bridge or CNI networks: use the host network";
const ARTIFACTS: &str = "artifacts are not downloaded";
const LOG: &str = "the log is drover's own: see server.retention";
const ONE_SERVER: &str = "there is one server";
const TRIED: &str = "a client asks its servers again until one answers";
const REQUESTS: &str = "the request log has one place and all that matters: drover audit requests";
const SINKS: &str = "metrics are pushed to statsd and statsite only: set statsd_address, or let \
    Prometheus read /v1/metrics?format=prometheus";

/// All of them.
pub const UNSUPPORTED: &[Unsupported] = &[
    not(
        "acl.replication_token",
        "there is one region: tokens are made where they are used",
    ),
    not("audit.filter", REQUESTS),
    not("audit.sink.format", REQUESTS),
    not("audit.sink.mode", REQUESTS),
    not("audit.sink.path", REQUESTS),
    not("audit.sink.rotate_bytes", REQUESTS),
    not("audit.sink.rotate_duration", REQUESTS),
    not("audit.sink.rotate_max_files", REQUESTS),
    not("audit.sink.type", REQUESTS),
    not(
        "autopilot",
        "there is one server: no other is dead, behind or new",
    ),
    not(
        "client.alloc_mounts_dir",
        "allocations are not mounted anywhere",
    ),
    not("client.artifact", ARTIFACTS),
    not(
        "client.bind_wildcard_default_host_network",
        "ports are bound by the tasks themselves",
    ),
    not("client.bridge_network_hairpin_mode", BRIDGE),
    not("client.bridge_network_name", BRIDGE),
    not("client.bridge_network_subnet", BRIDGE),
    not("client.bridge_network_subnet_ipv6", BRIDGE),
    not(
        "client.client_max_port",
        "plugins listen on sockets of their own choice",
    ),
    not(
        "client.client_min_port",
        "plugins listen on sockets of their own choice",
    ),
    not("client.cni_config_dir", BRIDGE),
    not("client.cni_path", BRIDGE),
    not(
        "client.common_plugin_dir",
        "secrets of tasks come from variables",
    ),
    not("client.cpu_disable_dmidecode", "dmidecode is not used"),
    not(
        "client.disk_free_mb",
        "what is free is measured; set client.disk_total_mb or reserved.disk",
    ),
    not("client.fingerprint", "what a node has is always looked up"),
    not(
        "client.host_network",
        "ports are not bound to networks by name",
    ),
    not(
        "client.log_file",
        "a client logs where its agent does: log_file at the top",
    ),
    not(
        "client.no_host_uuid",
        "a node's id is always one of its own",
    ),
    not(
        "client.reservable_cores",
        "set reserved.cores: the rest may be reserved",
    ),
    not("client.server_join.retry_interval", TRIED),
    not("client.server_join.retry_max", TRIED),
    not("client.template", "templates are not rendered"),
    not("client.users", "there are no dynamic users"),
    not("consul", "use services with provider = \"nomad\""),
    not(
        "enable_syslog",
        "use log_file, or let the service manager keep standard error",
    ),
    not("eventlog", "it is for another operating system"),
    not(
        "keyring",
        "key material is wrapped by a file of the server; there is no external one",
    ),
    not("plugin.args", "this driver is not a process of its own"),
    not(
        "plugin.config.no_pivot_root",
        "a task's root is always its own",
    ),
    not("reporting", ENTERPRISE),
    not("rpc.accept_backlog", "the system's default is used"),
    not(
        "rpc.connection_write_timeout",
        "requests have deadlines of their own",
    ),
    not(
        "rpc.stream_close_timeout",
        "requests have deadlines of their own",
    ),
    not(
        "rpc.stream_open_timeout",
        "requests have deadlines of their own",
    ),
    not("sentinel", ENTERPRISE),
    not("server.authoritative_region", "there is one region"),
    not(
        "server.client_introduction",
        "nodes are recognised by their secret",
    ),
    not(
        "server.default_scheduler_config.preemption_config",
        "nothing is preempted",
    ),
    not(
        "server.deploy_query_rate_limit",
        "deployments are told of changes, not polled",
    ),
    not(
        "server.enable_event_broker",
        "the stream reads the log, and costs nothing until it is asked",
    ),
    not("server.encrypt", "there is no gossip to encrypt"),
    not(
        "server.event_buffer_size",
        "the stream reads the log: every event that is kept is there",
    ),
    not("server.license_path", ENTERPRISE),
    not(
        "server.log_file",
        "a server logs where its agent does: log_file at the top",
    ),
    not("server.non_production", ENTERPRISE),
    not("server.non_voting_server", ENTERPRISE),
    not("server.oidc_issuer", "identities name no issuer"),
    not("server.plan_apply_pipeline", "plans are always pipelined"),
    not(
        "server.plan_rejection_tracker",
        "a refused plan is made again on newer state",
    ),
    not("server.raft_boltdb", LOG),
    not("server.raft_logstore", LOG),
    not("server.raft_snapshot_interval", LOG),
    not("server.raft_snapshot_threshold", LOG),
    not("server.raft_trailing_logs", LOG),
    not("server.redundancy_zone", ENTERPRISE),
    not("server.rejoin_after_leave", ONE_SERVER),
    not("server.retry_join", ONE_SERVER),
    not("server.root_key_gc_interval", KEYS),
    not("server.root_key_gc_threshold", KEYS),
    not("server.root_key_rotation_threshold", KEYS),
    not("server.server_join", ONE_SERVER),
    not("server.start_join", ONE_SERVER),
    not("server.start_timeout", "a start takes as long as it takes"),
    not("server.upgrade_version", ENTERPRISE),
    not(
        "syslog_facility",
        "use log_file, or let the service manager keep standard error",
    ),
    not("telemetry.datadog_address", SINKS),
    not("telemetry.datadog_tags", SINKS),
    not("telemetry.disable_quota_utilization_metrics", ENTERPRISE),
    not("ui", "there is no user interface"),
    not("vault", "secrets of tasks come from variables"),
];

/// What to do instead of setting `path`, where that has no effect here.
pub fn advice(path: &str) -> Option<&'static str> {
    let mut plain = String::with_capacity(path.len());
    let mut label = false;
    for c in path.chars() {
        match c {
            '"' => label = !label,
            ' ' => {}
            c if !label => plain.push(c),
            _ => {}
        }
    }
    let covers = |one: &&Unsupported| {
        plain
            .strip_prefix(one.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    UNSUPPORTED.iter().find(covers).map(|one| one.advice)
}

/// A setting that is taken since files name it everywhere, and does nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithoutEffect {
    /// Its path.
    pub path: String,
    /// Why it does nothing.
    pub why: String,
}

impl std::fmt::Display for WithoutEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has no effect: {}", self.path, self.why)
    }
}

const NO_GOSSIP: &str = "there is no gossip between servers, nothing listens there";
const NO_GOSSIP_PORT: &str = "there is no gossip between servers, nothing listens there; the port \
    is shown as a server's, as Nomad's clients expect";
const NO_ACL: &str = "nobody is asked for a token: set acl { enabled = true }";
const ACL_AT_HAND: &str = "a server has tokens, roles and policies itself; only an agent without \
    a server keeps what servers said of them";

/// What is taken and does nothing.
pub fn without_effect(config: &super::Config) -> Vec<WithoutEffect> {
    let usual = match config.dev {
        true => super::Config::dev(),
        false => super::Config::default(),
    };
    // Only an agent without a server asks others who asks it.
    let asks = config.acl.enabled && !config.server.enabled && !config.dev;
    let unasked = match config.acl.enabled {
        true => ACL_AT_HAND,
        false => NO_ACL,
    };
    let (acl, usually) = (&config.acl, &usual.acl);
    let settings = [
        (
            !asks && acl.policy_ttl != usually.policy_ttl,
            "acl.policy_ttl",
            unasked,
        ),
        (
            !asks && acl.role_ttl != usually.role_ttl,
            "acl.role_ttl",
            unasked,
        ),
        (
            !asks && acl.token_ttl != usually.token_ttl,
            "acl.token_ttl",
            unasked,
        ),
        (
            config.ports.serf != usual.ports.serf,
            "ports.serf",
            NO_GOSSIP_PORT,
        ),
        (config.addresses.serf.is_some(), "addresses.serf", NO_GOSSIP),
        (config.advertise.serf.is_some(), "advertise.serf", NO_GOSSIP),
    ];
    let settings = settings.into_iter().filter(|(is_set, ..)| *is_set);
    let settings = settings.map(|(_, path, why)| WithoutEffect {
        path: path.to_owned(),
        why: why.to_owned(),
    });
    let (options, usually) = (&config.client.options, &usual.client.options);
    let unknown = options.iter().filter(|(key, value)| {
        !option::KNOWN.contains(&key.as_str()) && usually.get(*key) != Some(*value)
    });
    let unknown = unknown.map(|(key, _)| WithoutEffect {
        path: format!("client.options {key:?}"),
        why: format!("nobody acts on it, only on {}", option::KNOWN.join(", ")),
    });
    settings.chain(unknown).collect()
}

/// Whether a value says that nothing is wanted: empty, or a block that is switched off.
pub(super) fn is_off(node: &Node) -> bool {
    match &node.value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::List(items) => items.iter().all(is_off),
        Value::Object(entries) => {
            let off = entries
                .iter()
                .any(|e| e.key == "enabled" && matches!(e.node.value, Value::Bool(false)));
            off || entries.iter().all(|e| is_off(&e.node))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, load};

    fn refusal(text: &str) -> Option<String> {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a.hcl");
        std::fs::write(&path, text).expect("written");
        load(&mut Config::default(), &[path])
            .err()
            .map(|e| e.to_string())
    }

    #[test]
    fn what_has_no_effect_is_refused_with_its_place_and_what_to_do() {
        for (text, place, part) in [
            (
                "server {\n  redundancy_zone = \"a\"\n}",
                ":2:21:",
                "redundancy_zone",
            ),
            (
                "client { artifact { http_max_size = \"1GB\" } }",
                ":1:37:",
                "not downloaded",
            ),
            (
                "consul { address = \"127.0.0.1:8500\" }",
                ":1:",
                "provider = \"nomad\"",
            ),
            (
                "client { host_network \"x\" { cidr = \"10.0.0.0/8\" } }",
                ":1:",
                "by name",
            ),
            (
                "telemetry { datadog_address = \"x:1\" }",
                ":1:",
                "statsd_address",
            ),
            (
                "server { raft_boltdb { no_freelist_sync = true } }",
                ":1:",
                "server.retention",
            ),
            (
                "plugin \"raw_exec\" { args = [\"a\"] }",
                ":1:",
                "this driver",
            ),
            (
                "plugin \"docker\" { config { gc { image = true } } }",
                ":1:",
                "no driver",
            ),
        ] {
            refused_at(text, place, part);
        }
    }

    fn refused_at(text: &str, place: &str, part: &str) {
        let refused = refusal(text).unwrap_or_else(|| panic!("{text} was taken"));
        for part in [place, part, "is not supported by this version"] {
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }

    #[test]
    fn what_was_only_shown_or_never_read_is_refused() {
        for (text, place, part) in [
            ("autopilot { min_quorum = 3 }", ":1:26:", "one server"),
            (
                "autopilot { last_contact_threshold = \"3s\" }",
                ":1:",
                "one server",
            ),
            (
                "client { server_join { retry_max = 3 } }",
                ":1:",
                "asks its servers again",
            ),
            (
                "client { server_join { retry_interval = \"15s\" } }",
                ":1:",
                "asks its servers again",
            ),
        ] {
            refused_at(text, place, part);
        }
    }

    #[test]
    fn what_drover_does_anyway_may_be_said() {
        for text in [
            "acl { enabled = false }",
            "vault { enabled = false\n address = \"http://x\" }",
            "consul {}",
            "ui { enabled = true }",
            "server { raft_protocol = 3\n bootstrap_expect = 1 }",
            "client { no_host_uuid = true\n bridge_network_name = \"nomad\" }",
            "enable_syslog = false",
            "disable_update_check = true",
            "autopilot { cleanup_dead_servers = true\n max_trailing_logs = 250 }",
            "client { server_join { retry_join = [\"a\"]\n retry_max = 0 } }",
        ] {
            assert_eq!(refusal(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_taken_and_does_nothing_is_named() {
        for mut config in [Config::default(), Config::dev()] {
            assert!(without_effect(&config).is_empty());
            config.ports.serf = 5648;
            config.addresses.serf = Some("10.0.0.1".to_owned());
            config.advertise.serf = Some("10.0.0.1".to_owned());
            let told = [
                ("ports.serf", NO_GOSSIP_PORT),
                ("addresses.serf", NO_GOSSIP),
                ("advertise.serf", NO_GOSSIP),
            ];
            assert_eq!(told_of(&config), told.map(owned));
        }
    }

    #[test]
    fn what_is_kept_of_tokens_does_nothing_where_nobody_is_asked_about_them() {
        let mut config = Config::default();
        let second = std::time::Duration::from_secs(1);
        config.acl.policy_ttl = second;
        config.acl.role_ttl = second;
        config.acl.token_ttl = second;
        let all = ["acl.policy_ttl", "acl.role_ttl", "acl.token_ttl"];
        assert_eq!(told_of(&config), all.map(|path| owned((path, NO_ACL))));
        config.acl.enabled = true;
        assert!(without_effect(&config).is_empty());
        config.server.enabled = true;
        assert_eq!(told_of(&config), all.map(|path| owned((path, ACL_AT_HAND))));
    }

    #[test]
    fn options_of_a_client_are_named_where_nobody_acts_on_them() {
        let mut config = Config::default();
        for key in option::KNOWN {
            config.client.options.insert((*key).into(), "a".into());
        }
        assert!(without_effect(&config).is_empty());
        let unknown = ["docker.volumes", "driver.raw_exec.enabled"];
        for key in unknown {
            config.client.options.insert(key.into(), "true".into());
        }
        let told: Vec<_> = without_effect(&config)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(told.len(), unknown.len(), "{told:?}");
        for (key, told) in unknown.iter().zip(&told) {
            let begin = format!("client.options {key:?} has no effect: nobody acts on it");
            assert!(told.starts_with(&begin), "{told}");
            assert!(told.contains("driver.raw_exec.enable,"), "{told}");
        }
    }

    fn told_of(config: &Config) -> Vec<(String, String)> {
        let told = without_effect(config).into_iter();
        told.map(|one| (one.path, one.why)).collect()
    }

    fn owned((path, why): (&str, &str)) -> (String, String) {
        (path.to_owned(), why.to_owned())
    }

    #[test]
    fn the_list_is_sorted_and_says_what_to_do() {
        assert!(UNSUPPORTED.is_sorted_by(|a, b| a.path < b.path));
        assert!(UNSUPPORTED.iter().all(|one| !one.advice.is_empty()));
    }
}
