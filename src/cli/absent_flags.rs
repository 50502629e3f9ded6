//! Flags of Nomad's that commands of drover's do not have: why, and what to do without.
//!
//! A flag stands here only where the command is there: `absent` has the commands.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags, the command they are of (none: any), and the text for them. The first that fits counts.
const ABSENT: [(&[&str], &str, &str); 16] = [
    (
        &["alloc-mounts-dir"],
        "agent",
        "allocations are not mounted anywhere; leave it out",
    ),
    (
        &["client-intro-token"],
        "agent",
        "nodes join without an introduction; leave it out",
    ),
    (
        &[
            "consul-address",
            "consul-auth",
            "consul-auto-advertise",
            "consul-ca-file",
            "consul-cert-file",
            "consul-checks-use-advertise",
            "consul-client-auto-join",
            "consul-client-failures-before-critical",
            "consul-client-failures-before-warning",
            "consul-client-http-check-name",
            "consul-client-service-name",
            "consul-key-file",
            "consul-server-auto-join",
            "consul-server-failures-before-critical",
            "consul-server-failures-before-warning",
            "consul-server-http-check-name",
            "consul-server-rpc-check-name",
            "consul-server-serf-check-name",
            "consul-server-service-name",
            "consul-ssl",
            "consul-token",
            "consul-verify-ssl",
        ],
        "agent",
        "drover does not talk to Consul; leave it out, and give services provider = \"nomad\"",
    ),
    (
        &["dev-connect"],
        "agent",
        "there are no bridge networks and no service mesh; use -dev",
    ),
    (
        &["dev-consul"],
        "agent",
        "drover does not talk to Consul; use -dev, and give services provider = \"nomad\"",
    ),
    (
        &["dev-vault"],
        "agent",
        "drover does not talk to Vault; use -dev, and variables for secrets",
    ),
    (
        &["eventlog", "eventlog-level"],
        "agent",
        "drover runs on Linux, which has no event log of Windows; leave it out",
    ),
    (
        &[
            "vault-address",
            "vault-allow-unauthenticated",
            "vault-ca-file",
            "vault-ca-path",
            "vault-cert-file",
            "vault-create-from-role",
            "vault-enabled",
            "vault-key-file",
            "vault-namespace",
            "vault-tls-server-name",
            "vault-tls-skip-verify",
            "vault-token",
        ],
        "agent",
        "drover does not talk to Vault; leave it out, and use variables for secrets",
    ),
    (
        &["at"],
        "",
        "it shows what is now, or changes it; commands that show the state have -at",
    ),
    (
        &["autocomplete-install", "autocomplete-uninstall"],
        "",
        "use drover completions bash, zsh or fish",
    ),
    (
        &["consul-namespace", "consul-token"],
        "",
        "drover does not talk to Consul; leave it out",
    ),
    (
        &[
            "disable-upgrade-migration",
            "enable-custom-upgrades",
            "enable-redundancy-zones",
        ],
        "operator autopilot set-config",
        "it is a setting of Nomad Enterprise; leave it out",
    ),
    (
        &[
            "consul-http-addr",
            "consul-auth",
            "consul-token-file",
            "consul-client-cert",
            "consul-client-key",
            "consul-ca-cert",
            "consul-ca-path",
            "vault-address",
            "vault-ca-cert",
            "vault-ca-path",
            "vault-client-cert",
            "vault-client-key",
        ],
        "",
        "drover talks to neither Consul nor Vault, and captures nothing of them; leave it out",
    ),
    (
        &["redact"],
        "operator snapshot save",
        "root keys are wrapped in a backup, and the key that unwraps them \
         (server/keystore/wrap.key) is not in it; leave it out",
    ),
    (&["ui"], "", "there is no user interface; leave it out"),
    (
        &["vault-namespace", "vault-token"],
        "",
        "drover does not talk to Vault; leave it out",
    ),
];

/// What to say of a flag that is Nomad's and not drover's; none of other mistakes.
pub(super) fn explain(err: &clap::Error, root: &Command, words: &[String]) -> Option<String> {
    if err.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(given)) = err.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = given.trim_start_matches('-').split('=').next()?;
    let command = named(root, words);
    let (_, _, why) = ABSENT
        .iter()
        .find(|(flags, of, _)| flags.contains(&flag) && (of.is_empty() || *of == command))?;
    let gap = if command.is_empty() { "" } else { " " };
    Some(format!("`drover{gap}{command}` has no -{flag}: {why}"))
}

/// The command that a line begins with, its words parted by spaces.
fn named(root: &Command, words: &[String]) -> String {
    let mut at = root;
    let mut names = Vec::new();
    for word in words {
        let Some(inner) = at.find_subcommand(word) else {
            break;
        };
        at = inner;
        names.push(inner.get_name());
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let all = std::iter::once("drover".to_owned()).chain(words.clone());
        let root = crate::cli::table();
        let err = root.clone().try_get_matches_from(all).unwrap_err();
        explain(&err, &root, &words)
    }

    #[test]
    fn a_flag_that_is_absent_says_what_to_do_without_it() {
        for (line, wanted) in [
            (
                "job run --ui web.hcl",
                "`drover job run` has no -ui: there is no user interface; leave it out",
            ),
            (
                "--autocomplete-install",
                "`drover` has no -autocomplete-install: use drover completions bash, zsh or fish",
            ),
            (
                "agent --dev-connect",
                "`drover agent` has no -dev-connect: there are no bridge networks and no service \
                 mesh; use -dev",
            ),
            (
                "agent --vault-address=http://x",
                "`drover agent` has no -vault-address: drover does not talk to Vault; leave it \
                 out, and use variables for secrets",
            ),
        ] {
            assert_eq!(explained(line).as_deref(), Some(wanted));
        }
        assert!(explained("system gc --at 5").is_some_and(|text| text.contains("has no -at")));
        assert_eq!(explained("job run --redact web.hcl"), None);
        assert_eq!(explained("job run --dev-connect web.hcl"), None);
        assert_eq!(explained("job run --nope web.hcl"), None);
    }
}
