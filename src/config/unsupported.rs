//! Settings of Nomad's that this version does not act on.
//!
//! A file that changes one of those that are [`UNSUPPORTED`] is refused, with its place and what to
//! do instead. Naming the value that drover works with anyway (a default, an empty or disabled
//! block) is no change. The list follows from what is declared unsupported, and may only shrink;
//! `drover config validate -unsupported` prints it.
//!
//! Few are accepted although they do nothing; nothing is ignored without a word: an agent names
//! them when it starts, and `drover config validate` does ([`without_effect`]).

use super::hcl1::{HclNode, HclValue};
use super::option;
use super::settings::all_settings;
use std::sync::LazyLock;

/// A setting, or a block with all that is in it, and what to do instead.
#[derive(Debug, Clone)]
pub struct Unsupported {
    /// The path of the setting or block, blocks joined by dots, labels left out.
    pub path: String,
    /// Why it is refused, or what to do instead.
    pub advice: &'static str,
}

/// Of whatever only Nomad Enterprise has.
pub(super) const ENTERPRISE: &str = "it belongs to an edition that drover is not";

/// All of them: what is declared unsupported, sorted.
pub static UNSUPPORTED: LazyLock<Vec<Unsupported>> = LazyLock::new(|| {
    let refused = all_settings().into_iter().filter_map(|one| {
        let advice = one.unsupported_advice?;
        let path = one.path;
        Some(Unsupported { path, advice })
    });
    let mut all: Vec<_> = refused.collect();
    all.sort_by(|one, other| one.path.cmp(&other.path));
    // What is in a block that is off needs no entry of its own.
    all.dedup_by(|one, block| covers(&block.path, &one.path));
    all
});

/// Whether a path is that of a setting or block, or below it.
fn covers(listed: &str, path: &str) -> bool {
    path.strip_prefix(listed)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Why `path` is refused, or what to set instead; none where it is supported.
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
    let found = UNSUPPORTED.iter().find(|one| covers(&one.path, &plain));
    found.map(|one| one.advice)
}

/// A setting that is accepted, since files name it everywhere, and does nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithoutEffect {
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
const NO_ACL: &str = "no request needs a token: set acl { enabled = true }";
const SERVER_AT_HAND: &str = "the client of an agent that is a server calls that one";
const ACL_AT_HAND: &str = "a server has tokens, roles and policies itself; only an agent without \
    a server keeps what servers answer about them";

/// What of a configuration is accepted and does nothing.
pub fn without_effect(config: &super::Config) -> Vec<WithoutEffect> {
    let usual = match config.dev {
        true => super::Config::dev(),
        false => super::Config::default(),
    };
    // Only an agent without a server queries others for a caller's identity.
    let asks = config.acl.enabled && !config.server.enabled && !config.dev;
    let unrequested = match config.acl.enabled {
        true => ACL_AT_HAND,
        false => NO_ACL,
    };
    let (acl, usually) = (&config.acl, &usual.acl);
    let (near, client) = (config.server.enabled, &config.client);
    let settings = [
        (
            !asks && acl.policy_ttl != usually.policy_ttl,
            "acl.policy_ttl",
            unrequested,
        ),
        (
            !asks && acl.role_ttl != usually.role_ttl,
            "acl.role_ttl",
            unrequested,
        ),
        (
            !asks && acl.token_ttl != usually.token_ttl,
            "acl.token_ttl",
            unrequested,
        ),
        (
            config.ports.serf != usual.ports.serf,
            "ports.serf",
            NO_GOSSIP_PORT,
        ),
        (config.addresses.serf.is_some(), "addresses.serf", NO_GOSSIP),
        (config.advertise.serf.is_some(), "advertise.serf", NO_GOSSIP),
        (
            near && !client.servers.is_empty(),
            "client.servers",
            SERVER_AT_HAND,
        ),
        (
            near && !client.server_join.start_join.is_empty(),
            "client.server_join.start_join",
            SERVER_AT_HAND,
        ),
        (
            near && !client.server_join.retry_join.is_empty(),
            "client.server_join.retry_join",
            SERVER_AT_HAND,
        ),
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
pub(super) fn is_off(node: &HclNode) -> bool {
    match &node.value {
        HclValue::Null | HclValue::Bool(false) => true,
        HclValue::Bool(true) | HclValue::Number(_) => false,
        HclValue::String(text) => text.is_empty(),
        HclValue::List(items) => items.iter().all(is_off),
        HclValue::Object(entries) => {
            let off = entries
                .iter()
                .any(|e| e.key == "enabled" && matches!(e.node.value, HclValue::Bool(false)));
            off || entries.iter().all(|e| is_off(&e.node))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, load};

    fn refusal(text: &str) -> Option<String> {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a.hcl");
        std::fs::write(&path, text).expect("written");
        load(&mut Config::default(), &[path])
            .err()
            .map(|e| e.to_string())
    }

    #[test]
    fn what_is_unsupported_is_refused_with_its_place_and_what_to_do() {
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
    fn what_is_accepted_and_does_nothing_is_named() {
        for mut config in [Config::default(), Config::dev()] {
            assert!(without_effect(&config).is_empty());
            config.ports.serf = 5648;
            config.addresses.serf = Some("10.0.0.1".to_owned());
            config.advertise.serf = Some("10.0.0.1".to_owned());
            let reported = [
                ("ports.serf", NO_GOSSIP_PORT),
                ("addresses.serf", NO_GOSSIP),
                ("advertise.serf", NO_GOSSIP),
            ];
            assert_eq!(reported_of(&config), reported.map(owned));
        }
    }

    #[test]
    fn servers_are_named_to_a_client_that_has_one_at_hand_in_vain() {
        for (mut config, all) in [(Config::default(), &[][..]), (Config::dev(), &SERVERS[..])] {
            config.client.enabled = true;
            config.client.servers = vec!["a".to_owned()];
            config.client.server_join.start_join = vec!["b".to_owned()];
            config.client.server_join.retry_join = vec!["c".to_owned()];
            let reported = all.iter().map(|path| owned((*path, SERVER_AT_HAND)));
            assert_eq!(reported_of(&config), reported.collect::<Vec<_>>());
        }
    }

    const SERVERS: [&str; 3] = [
        "client.servers",
        "client.server_join.start_join",
        "client.server_join.retry_join",
    ];

    #[test]
    fn what_is_kept_of_tokens_does_nothing_where_nobody_is_asked_about_them() {
        let mut config = Config::default();
        let second = std::time::Duration::from_secs(1);
        config.acl.policy_ttl = second;
        config.acl.role_ttl = second;
        config.acl.token_ttl = second;
        let all = ["acl.policy_ttl", "acl.role_ttl", "acl.token_ttl"];
        assert_eq!(reported_of(&config), all.map(|path| owned((path, NO_ACL))));
        config.acl.enabled = true;
        assert!(without_effect(&config).is_empty());
        config.server.enabled = true;
        assert_eq!(
            reported_of(&config),
            all.map(|path| owned((path, ACL_AT_HAND)))
        );
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
        let reported: Vec<_> = without_effect(&config)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(reported.len(), unknown.len(), "{reported:?}");
        for (key, reported) in unknown.iter().zip(&reported) {
            let begin = format!("client.options {key:?} has no effect: nobody acts on it");
            assert!(reported.starts_with(&begin), "{reported}");
            assert!(reported.contains("driver.raw_exec.enable,"), "{reported}");
        }
    }

    fn reported_of(config: &Config) -> Vec<(String, String)> {
        let reported = without_effect(config).into_iter();
        reported.map(|one| (one.path, one.why)).collect()
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
