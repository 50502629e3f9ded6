//! What the completion scripts query while a command line is typed: ids and names that the agent
//! knows.

use super::client::Client;
use super::conn::Conn;
use super::out::Out;
use crate::http::answers::SearchResponse;
use anyhow::Result;
use drover_events::model::{
    AclPolicyListStub, AclRoleListStub, AclTokenListStub, ServiceRegistrationListStub,
};
use drover_events::{EventKind, Topic};
use serde_json::json;
use std::time::Duration;

/// Flags of the hidden command.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The words behind the program's name, the one that is being typed last
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A shell that hangs is worse than one that offers nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// The exit code that leaves the word to the shell: it is a file's name.
const FILE: u8 = 3;

/// What is to be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Offer {
    /// Files, which the shell knows.
    Files,
    /// These words.
    Words(Vec<String>),
    /// Ids of this context of the search.
    Ids(&'static str),
    /// Names of policies.
    Policies,
    /// Ids of roles.
    Roles,
    /// Names of roles.
    RoleNames,
    /// Accessors of tokens.
    Tokens,
    /// Names of services.
    Services,
    /// Kinds of events.
    Kinds,
    /// Topics of the event stream.
    Topics,
}

/// What the first argument of a command is.
static ARGUMENTS: [(&str, Offer); 71] = [
    ("acl policy apply", Offer::Policies),
    ("acl policy delete", Offer::Policies),
    ("acl policy info", Offer::Policies),
    ("acl role delete", Offer::Roles),
    ("acl role info", Offer::Roles),
    ("acl role update", Offer::Roles),
    ("acl token delete", Offer::Tokens),
    ("acl token info", Offer::Tokens),
    ("acl token update", Offer::Tokens),
    ("alloc checks", Offer::Ids("allocs")),
    ("alloc exec", Offer::Ids("allocs")),
    ("alloc fs", Offer::Ids("allocs")),
    ("alloc logs", Offer::Ids("allocs")),
    ("alloc restart", Offer::Ids("allocs")),
    ("alloc signal", Offer::Ids("allocs")),
    ("alloc stats", Offer::Ids("allocs")),
    ("alloc status", Offer::Ids("allocs")),
    ("alloc stop", Offer::Ids("allocs")),
    ("deployment fail", Offer::Ids("deployment")),
    ("deployment pause", Offer::Ids("deployment")),
    ("deployment promote", Offer::Ids("deployment")),
    ("deployment resume", Offer::Ids("deployment")),
    ("deployment status", Offer::Ids("deployment")),
    ("deployment unblock", Offer::Ids("deployment")),
    ("eval delete", Offer::Ids("evals")),
    ("eval explain", Offer::Ids("evals")),
    ("eval status", Offer::Ids("evals")),
    ("exec", Offer::Ids("allocs")),
    ("inspect", Offer::Ids("jobs")),
    ("job allocs", Offer::Ids("jobs")),
    ("job deployments", Offer::Ids("jobs")),
    ("job dispatch", Offer::Ids("jobs")),
    ("job eval", Offer::Ids("jobs")),
    ("job history", Offer::Ids("jobs")),
    ("job inspect", Offer::Ids("jobs")),
    ("job periodic force", Offer::Ids("jobs")),
    ("job promote", Offer::Ids("jobs")),
    ("job restart", Offer::Ids("jobs")),
    ("job revert", Offer::Ids("jobs")),
    ("job scale", Offer::Ids("jobs")),
    ("job scaling-events", Offer::Ids("jobs")),
    ("job status", Offer::Ids("jobs")),
    ("job stop", Offer::Ids("jobs")),
    ("job tag apply", Offer::Ids("jobs")),
    ("job tag unset", Offer::Ids("jobs")),
    ("logs", Offer::Ids("allocs")),
    ("namespace apply", Offer::Ids("namespaces")),
    ("namespace delete", Offer::Ids("namespaces")),
    ("namespace inspect", Offer::Ids("namespaces")),
    ("namespace status", Offer::Ids("namespaces")),
    ("node drain", Offer::Ids("nodes")),
    ("node eligibility", Offer::Ids("nodes")),
    ("node pool delete", Offer::Ids("node_pools")),
    ("node pool info", Offer::Ids("node_pools")),
    ("node pool jobs", Offer::Ids("node_pools")),
    ("node pool nodes", Offer::Ids("node_pools")),
    ("node status", Offer::Ids("nodes")),
    ("plugin status", Offer::Ids("plugins")),
    ("scaling policy info", Offer::Ids("scaling_policy")),
    ("service info", Offer::Services),
    ("status", Offer::Ids("all")),
    ("trace", Offer::Ids("all")),
    ("var get", Offer::Ids("vars")),
    ("var purge", Offer::Ids("vars")),
    ("volume delete", Offer::Ids("volumes")),
    ("volume deregister", Offer::Ids("volumes")),
    ("volume detach", Offer::Ids("volumes")),
    ("volume explain", Offer::Ids("volumes")),
    ("volume history", Offer::Ids("volumes")),
    ("volume snapshot create", Offer::Ids("volumes")),
    ("volume status", Offer::Ids("volumes")),
];

/// What the value of a flag is, whichever command it is of.
static FLAGS: [(&str, Offer); 9] = [
    ("event-topic", Offer::Topics),
    ("job", Offer::Ids("jobs")),
    ("kind", Offer::Kinds),
    ("namespace", Offer::Ids("namespaces")),
    ("node-id", Offer::Ids("nodes")),
    ("policy", Offer::Policies),
    ("role-id", Offer::Roles),
    ("role-name", Offer::RoleNames),
    ("topic", Offer::Topics),
];

/// The commands whose first argument is a file.
const OF_FILES: [&str; 12] = [
    "config validate",
    "job plan",
    "job run",
    "job validate",
    "node pool apply",
    "operator snapshot inspect",
    "operator snapshot restore",
    "operator snapshot save",
    "plan",
    "validate",
    "volume create",
    "volume register",
];

/// How values that are files are called in usages.
const FILE_NAMES: [&str; 4] = ["DIR", "FILE", "OUT", "PATH"];

/// What the second argument of `audit` is, by the first.
static AUDITED: [(&str, Offer); 7] = [
    ("alloc", Offer::Ids("allocs")),
    ("deployment", Offer::Ids("deployment")),
    ("eval", Offer::Ids("evals")),
    ("job", Offer::Ids("jobs")),
    ("namespace", Offer::Ids("namespaces")),
    ("node", Offer::Ids("nodes")),
    ("variable", Offer::Ids("vars")),
];

/// Prints what may stand in place of the last word, one a line; nothing where the scripts know
/// better or no agent answers.
pub(super) async fn run(args: &Args, out: &Out) -> Result<u8> {
    let words = joined(&args.words);
    let Some((last, before)) = words.split_last() else {
        return Ok(0);
    };
    let (last, line) = (last.as_str(), TypedLine::read(before));
    let Some(offer) = line.offer(last) else {
        return Ok(0);
    };
    if offer == Offer::Files {
        return Ok(FILE);
    }
    let mut conn = args.conn.clone();
    for (flag, value) in &line.flags {
        match flag.as_str() {
            "address" => conn.address.clone_from(value),
            "namespace" => conn.namespace.clone_from(value),
            "region" => conn.region.clone_from(value),
            "token" => conn.token.clone_from(value),
            _ => {}
        }
    }
    let requested = async {
        let client = conn.client()?;
        offer.words(&client, last).await
    };
    let Ok(Ok(words)) = tokio::time::timeout(PATIENCE, requested).await else {
        return Ok(0);
    };
    for word in words.iter().filter(|word| word.starts_with(last)) {
        out.line(word);
    }
    Ok(0)
}

impl Offer {
    /// The words that may be meant.
    async fn words(self, client: &Client, prefix: &str) -> Result<Vec<String>> {
        match self {
            Offer::Files => Ok(Vec::new()),
            Offer::Words(words) => Ok(words),
            Offer::Ids(context) => {
                let requested = json!({ "Prefix": prefix, "Context": context });
                let found = client.read("/v1/search", &[], &requested).await?;
                let found: SearchResponse = found.read()?;
                let matches = found.matches.into_iter();
                Ok(matches.flat_map(|(_, ids)| ids).collect())
            }
            Offer::Policies => {
                let all = client.fetch("/v1/acl/policies", &[]).await;
                let all: Vec<AclPolicyListStub> = all?;
                Ok(all.into_iter().map(|one| one.name).collect())
            }
            Offer::Roles => {
                let all = client.fetch("/v1/acl/roles", &[("prefix", prefix)]).await;
                let all: Vec<AclRoleListStub> = all?;
                Ok(all.into_iter().map(|one| one.id).collect())
            }
            // A prefix is one of the key, which a role's name is not.
            Offer::RoleNames => {
                let all = client.fetch("/v1/acl/roles", &[]).await;
                let all: Vec<AclRoleListStub> = all?;
                Ok(all.into_iter().map(|one| one.name).collect())
            }
            Offer::Tokens => {
                let all = client.fetch("/v1/acl/tokens", &[("prefix", prefix)]).await;
                let all: Vec<AclTokenListStub> = all?;
                Ok(all.into_iter().map(|one| one.accessor_id).collect())
            }
            Offer::Services => {
                let spaces = client.fetch("/v1/services", &[]).await;
                let spaces: Vec<ServiceRegistrationListStub> = spaces?;
                let services = spaces.into_iter().flat_map(|space| space.services);
                Ok(services.map(|one| one.service_name).collect())
            }
            Offer::Kinds => Ok(EventKind::ALL.iter().map(ToString::to_string).collect()),
            Offer::Topics => Ok(Topic::ALL.iter().map(ToString::to_string).collect()),
        }
    }
}

/// The words as they were typed: bash parts `-flag=value` into three. The last word is what is to
/// be completed, the beginning of a value alone.
fn joined(words: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let is_last = place + 1 == words.len();
        let is_flag = |word: &String| word.starts_with('-') && !word.contains('=');
        let sign = word == "=" && out.last().is_some_and(is_flag);
        let behind = place > 0 && words[place - 1] == "=";
        match (sign, behind, out.last_mut()) {
            (true, _, _) if is_last => out.push(String::new()),
            (true, _, _) => {}
            (false, true, Some(flag)) if is_flag(&*flag) && !is_last => {
                flag.push_str(&format!("={word}"));
            }
            _ => out.push(word.clone()),
        }
    }
    out
}

/// A command line that is being typed, without its last word.
#[derive(Debug, Default)]
struct TypedLine {
    /// The command, its words parted by spaces.
    command: String,
    /// Its arguments.
    arguments: Vec<String>,
    /// Its flags that have a value.
    flags: Vec<(String, String)>,
    /// A flag whose value comes next.
    pending: Option<String>,
    /// The flags of the command, as they are written with two dashes or one, and what each takes.
    known: Vec<(String, Option<Offer>)>,
}

impl TypedLine {
    fn read(words: &[String]) -> TypedLine {
        let mut root = super::table();
        root.build();
        let mut at = &root;
        let mut line = TypedLine::default();
        for word in words {
            if let Some(flag) = line.pending.take() {
                line.flags.push((flag, word.clone()));
                continue;
            }
            if word.len() > 1 && word.starts_with('-') {
                let bare = word.trim_start_matches('-');
                if let Some((name, value)) = bare.split_once('=') {
                    line.flags.push((name.to_owned(), value.to_owned()));
                } else if takes_value(at, bare) {
                    line.pending = Some(bare.to_owned());
                }
                continue;
            }
            match at
                .find_subcommand(word)
                .filter(|_| line.arguments.is_empty())
            {
                Some(inner) => {
                    at = inner;
                    let gap = if line.command.is_empty() { "" } else { " " };
                    line.command = format!("{}{gap}{word}", line.command);
                }
                None => line.arguments.push(word.clone()),
            }
        }
        line.known = at.get_arguments().flat_map(flags_of).collect();
        line
    }

    /// What the word that is being typed may be.
    fn offer(&self, last: &str) -> Option<Offer> {
        if let Some(flag) = &self.pending {
            let ours = FLAGS.iter().find(|(name, _)| name == flag);
            let own = || self.known.iter().find(|(name, _)| name == flag)?.1.clone();
            return ours.map(|(_, offer)| offer.clone()).or_else(own);
        }
        if last.starts_with('-') {
            let dashes = if last.starts_with("--") { "--" } else { "-" };
            let long = self.known.iter().filter(|(name, _)| name.len() > 1);
            let words = long.map(|(name, _)| format!("{dashes}{name}")).collect();
            return Some(Offer::Words(words));
        }
        if self.arguments.is_empty() && OF_FILES.contains(&self.command.as_str()) {
            return Some(Offer::Files);
        }
        match (self.command.as_str(), self.arguments.as_slice()) {
            ("audit", [kind]) => AUDITED
                .iter()
                .find(|(name, _)| name == kind)
                .map(|(_, offer)| offer.clone()),
            // Several jobs are stopped at once.
            (command, arguments) if arguments.is_empty() || command == "job stop" => {
                let found = ARGUMENTS.iter().find(|(name, _)| *name == command);
                found.map(|(_, offer)| offer.clone())
            }
            _ => None,
        }
    }
}

/// The names of a flag, and what its value may be.
fn flags_of(argument: &clap::Arg) -> Vec<(String, Option<Offer>)> {
    if argument.is_hide_set() {
        return Vec::new();
    }
    let values = argument.get_possible_values();
    let names = argument.get_value_names().unwrap_or_default();
    let offer = if !argument.get_action().takes_values() {
        None
    } else if !values.is_empty() {
        let words = values.iter().map(|value| value.get_name().to_owned());
        Some(Offer::Words(words.collect()))
    } else {
        let is_file = names.iter().any(|name| FILE_NAMES.contains(&name.as_str()));
        is_file.then_some(Offer::Files)
    };
    let long = argument.get_long().map(str::to_owned);
    let short = argument.get_short().map(String::from);
    let names = long.into_iter().chain(short);
    names.map(|name| (name, offer.clone())).collect()
}

fn takes_value(command: &clap::Command, name: &str) -> bool {
    let mut arguments = command.get_arguments();
    arguments.any(|argument| {
        let short = argument.get_short().map(String::from);
        let is_it = argument.get_long() == Some(name) || short.as_deref() == Some(name);
        is_it && argument.get_action().takes_values()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(line: &str) -> Option<Offer> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().expect("words");
        TypedLine::read(before).offer(last)
    }

    #[test]
    fn the_place_decides_what_is_offered() {
        for (line, expected) in [
            ("job status we", Some(Offer::Ids("jobs"))),
            ("job status -verbose we", Some(Offer::Ids("jobs"))),
            ("job status -namespace pr", Some(Offer::Ids("namespaces"))),
            ("job status -namespace prod ", Some(Offer::Ids("jobs"))),
            ("job status -address=http://x:1 ", Some(Offer::Ids("jobs"))),
            ("job status web ", None),
            ("job stop web ap", Some(Offer::Ids("jobs"))),
            ("job run ", Some(Offer::Files)),
            ("log verify -data-dir ", Some(Offer::Files)),
            ("job st", None),
            ("alloc logs -n 5 ab", Some(Offer::Ids("allocs"))),
            ("alloc logs -job ab", Some(Offer::Ids("allocs"))),
            ("node pool info d", Some(Offer::Ids("node_pools"))),
            ("event stream -kind Job", Some(Offer::Kinds)),
            ("event stream -topic Job", Some(Offer::Topics)),
            ("audit job w", Some(Offer::Ids("jobs"))),
            ("audit j", None),
            ("status ab", Some(Offer::Ids("all"))),
        ] {
            assert_eq!(offer(line), expected, "{line}");
        }
    }

    #[test]
    fn flags_are_offered_as_they_are_typed_and_their_values_by_name() {
        let words = |line: &str| match offer(line) {
            Some(Offer::Words(words)) => words,
            other => panic!("{line}: {other:?}"),
        };
        assert!(words("node drain -en").contains(&"-enable".to_owned()));
        assert!(words("node drain --en").contains(&"--enable".to_owned()));
        assert!(words("job status -").contains(&"-verbose".to_owned()));
        assert!(
            !words("job status -").contains(&"-http-auth".to_owned()),
            "hidden"
        );
        assert!(words("var list -out ").contains(&"json".to_owned()));
    }

    #[test]
    fn what_is_offered_belongs_to_commands_that_are_there() {
        let mut root = crate::cli::table();
        root.build();
        for (command, _) in &ARGUMENTS {
            let mut at = Some(&root);
            for word in command.split(' ') {
                at = at.and_then(|at| at.find_subcommand(word));
            }
            assert!(at.is_some(), "{command}");
        }
    }
}
