//! Names of variables, and which of the agent's own tasks may see.

use std::collections::BTreeMap;

/// The agent's own: its credentials elsewhere, and what its starter set for it. No task sees
/// these, whatever is configured.
const OWN: &[&str] = &[
    "DROVER_*",
    "KAFKA_*",
    "NOMAD_TOKEN",
    "NOMAD_HTTP_AUTH",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "NOTIFY_SOCKET",
    "WATCHDOG_*",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "CREDENTIALS_DIRECTORY",
];

/// Further ones that tasks do not see, where `env.denylist` of `client.options` names no others.
const DENYLIST: &[&str] = &[
    "CONSUL_TOKEN",
    "CONSUL_HTTP_TOKEN",
    "CONSUL_HTTP_TOKEN_FILE",
    "NOMAD_TOKEN",
    "VAULT_TOKEN",
    "CONSUL_LICENSE",
    "NOMAD_LICENSE",
    "VAULT_LICENSE",
    "CONSUL_LICENSE_PATH",
    "NOMAD_LICENSE_PATH",
    "VAULT_LICENSE_PATH",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_METADATA_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
];

/// The variables of the agent that tasks inherit: not its own, and none of those that are denied:
/// names separated by commas where `*` stands for anything.
pub fn inherited(
    vars: impl IntoIterator<Item = (String, String)>,
    denied: Option<&str>,
) -> BTreeMap<String, String> {
    let denied: Vec<&str> = match denied {
        Some(list) => list.split(',').map(str::trim).collect(),
        None => DENYLIST.to_vec(),
    };
    let hidden = OWN.iter().chain(&denied).copied();
    vars.into_iter()
        .filter(|(name, _)| !hidden.clone().any(|pattern| matches(pattern, name)))
        .collect()
}

/// Whether a name is what a pattern says; `*` stands for anything.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            let Some(rest) = name.strip_prefix(head) else {
                return false;
            };
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(tail, &rest[at..]))
        }
    }
}

/// A label or key as part of a variable's name: what is not a letter, digit, `_` or `.` becomes
/// `_`.
pub fn clean(label: &str) -> String {
    label
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '.' {
                c
            } else {
                '_'
            }
        })
        .collect()
}

/// Cores in the kernel's list form: `0-2,5`.
pub fn cpu_set(cores: &[u16]) -> String {
    let mut cores = cores.to_vec();
    cores.sort_unstable();
    cores.dedup();
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for core in cores {
        match runs.last_mut() {
            Some((_, end)) if u32::from(*end) + 1 == u32::from(core) => *end = core,
            _ => runs.push((core, core)),
        }
    }
    let text = |(a, b): &(u16, u16)| {
        if a == b {
            a.to_string()
        } else {
            format!("{a}-{b}")
        }
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_19_labels_become_names() {
        assert_eq!(clean("my-port é"), "my_port__");
        assert_eq!(clean("a.b_c9"), "a.b_c9");
    }

    #[test]
    fn the_agents_own_variables_are_never_inherited_and_the_list_of_others_is_configured() {
        let all = [
            "PATH",
            "VAULT_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_REGION",
            "DROVER_TOKEN",
            "KAFKA_SASL_PASSWORD",
            "NOMAD_TOKEN",
            "NOMAD_ADDR",
            "MY_KEY",
        ];
        let seen = |denied: Option<&str>| {
            let vars = all.iter().map(|name| ((*name).to_owned(), "x".to_owned()));
            let seen = inherited(vars, denied);
            seen.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(seen(None), ["AWS_REGION", "MY_KEY", "NOMAD_ADDR", "PATH"]);
        let own_list = ["AWS_REGION", "NOMAD_ADDR", "PATH", "VAULT_TOKEN"];
        for denied in ["MY_*, none", "MY_KEY"] {
            assert_eq!(seen(Some(denied)), own_list, "{denied}");
        }
        let empty = ["AWS_REGION", "MY_KEY", "NOMAD_ADDR", "PATH", "VAULT_TOKEN"];
        assert_eq!(seen(Some("")), empty);
    }

    #[test]
    fn drv_06_denied_variables_are_matched_by_pattern() {
        assert!(matches("AWS_*", "AWS_KEY"));
        assert!(matches("*SECRET*", "MY_SECRET_X"));
        assert!(!matches("AWS_*", "XAWS_"));
        assert!(matches("A", "A") && !matches("A", "AB"));
    }

    #[test]
    fn mod_19_cores_are_written_as_ranges() {
        assert_eq!(cpu_set(&[5, 0, 1, 2, 1]), "0-2,5");
        assert_eq!(cpu_set(&[]), "");
    }
}
