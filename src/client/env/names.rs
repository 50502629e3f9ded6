//! Names of variables.

/// Variables of the agent that tasks never see (`env.denylist`).
pub const HOST_DENYLIST: &[&str] = &[
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
    fn mod_19_cores_are_written_as_ranges() {
        assert_eq!(cpu_set(&[5, 0, 1, 2, 1]), "0-2,5");
        assert_eq!(cpu_set(&[]), "");
    }
}
