//! Commands of Nomad's that drover does not have, and short forms that it does not take: what to
//! use instead. A guess at a name that is spelled alike would lead astray.

use clap::error::ErrorKind;

/// A command as it is typed, and what to do.
const ABSENT: [(&str, &str); 47] = [
    (
        "acl auth-method",
        "sign-in by other services is not in this version",
    ),
    (
        "acl binding-rule",
        "sign-in by other services is not in this version",
    ),
    (
        "alloc pause",
        "drover job stop and drover job run do it for a whole job",
    ),
    ("alloc-status", "use drover alloc status"),
    (
        "check",
        "use drover operator api /v1/agent/health, or drover operator autopilot health",
    ),
    (
        "client-config",
        "the servers of a client are in its configuration (client.servers)",
    ),
    ("eval-status", "use drover eval status"),
    ("fmt", "terraform fmt or hclfmt format the same language"),
    ("fs", "use drover alloc fs"),
    ("init", "see job init"),
    (
        "job action",
        "drover operator api /v1/job/ID/actions lists them",
    ),
    (
        "job init",
        "begin with tools/demo.d/service.hcl of the sources, or drover job inspect -hcl ID",
    ),
    (
        "job start",
        "use drover job run with its file, or drover job revert ID VERSION",
    ),
    ("license", "there is no license"),
    (
        "login",
        "sign-in by other services is not in this version; drover acl token create makes tokens",
    ),
    (
        "node config",
        "the servers of a client are in its configuration (client.servers)",
    ),
    ("node identity", "nodes have a secret, no identity"),
    ("node intro", "nodes join without an introduction"),
    ("node-drain", "use drover node drain"),
    ("node-status", "use drover node status"),
    (
        "operator client-state",
        "the client's state is in its journal; drover alloc status shows it",
    ),
    ("operator gossip", "there is no gossip between servers"),
    ("operator raft info", "use drover log inspect -data-dir DIR"),
    ("operator raft logs", "use drover log events -data-dir DIR"),
    ("operator raft migrate-backend", "there is one kind of log"),
    ("operator raft remove-peer", "there is one server"),
    (
        "operator raft state",
        "use drover state at INDEX -data-dir DIR -out DIR",
    ),
    ("operator raft transfer-leadership", "there is one server"),
    (
        "operator root",
        "drover operator api /v1/operator/keyring/keys lists the keys",
    ),
    (
        "operator snapshot redact",
        "secrets are ciphertext in a backup",
    ),
    (
        "operator snapshot state",
        "use drover state at INDEX -data-dir DIR -out DIR -ndjson",
    ),
    ("operator utilization", "use drover operator metrics"),
    ("quota", "quotas are a part of Nomad Enterprise"),
    (
        "recommendation",
        "recommendations are a part of Nomad Enterprise",
    ),
    ("run", "use drover job run"),
    ("sentinel", "Sentinel is a part of Nomad Enterprise"),
    ("server force-leave", "there is one server"),
    ("server join", "there is one server"),
    ("server-force-leave", "there is one server"),
    ("server-join", "there is one server"),
    ("server-members", "use drover server members"),
    ("setup", "drover talks to neither Consul nor Vault"),
    ("start", "see job start"),
    ("stop", "use drover job stop"),
    ("ui", "there is no user interface"),
    (
        "var lock",
        "drover var put -check-index INDEX refuses what somebody else changed",
    ),
    ("windows", "drover runs on Linux"),
];

/// What to say of a command line that names no command of drover's, but one of Nomad's; none for
/// other mistakes.
pub(super) fn explain(err: &clap::Error, words: &[String]) -> Option<String> {
    if err.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .take_while(|word| !word.starts_with('-'))
        .collect();
    let found = (1..=words.len().min(3)).rev().find_map(|length| {
        let typed = words.get(..length)?.join(" ");
        ABSENT.iter().find(|(command, _)| *command == typed)
    });
    let (command, instead) = found?;
    let instead = match instead.strip_prefix("see ") {
        Some(other) => ABSENT.iter().find(|(command, _)| *command == other)?.1,
        None => instead,
    };
    Some(format!("drover has no `{command}`: {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::table;

    fn reported(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let all = std::iter::once("drover".to_owned()).chain(words.clone());
        let err = table().try_get_matches_from(all).unwrap_err();
        explain(&err, &words)
    }

    #[test]
    fn what_is_absent_says_what_to_use() {
        for (line, part) in [
            ("run web.hcl", "drover has no `run`: use drover job run"),
            ("stop web", "drover has no `stop`: use drover job stop"),
            (
                "operator raft remove-peer --peer-id x",
                "there is one server",
            ),
            (
                "quota status",
                "drover has no `quota`: quotas are a part of",
            ),
        ] {
            let text = reported(line).unwrap_or_else(|| panic!("nothing for {line}"));
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(reported("job runn"), None);
        assert_eq!(reported("operator nope"), None);
    }

    #[test]
    fn nothing_that_is_there_is_called_absent() {
        let mut root = table();
        root.build();
        for (command, _) in ABSENT {
            let mut at = &root;
            let mut found = true;
            for word in command.split(' ') {
                match at.find_subcommand(word) {
                    Some(inner) => at = inner,
                    None => {
                        found = false;
                        break;
                    }
                }
            }
            assert!(!found, "{command} is there");
        }
    }
}
