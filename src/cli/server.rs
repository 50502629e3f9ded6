//! The `server` noun.

use super::answer;
use super::columns::ColumnTable;
use super::conn::Conn;
use super::out::Out;
use super::show::Format;
use crate::server::member_shapes::ServerMember;
use anyhow::Result;
use clap::Subcommand;
use serde::Deserialize;
use serde_json::Value as Json;

/// What can be done with servers.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// List the servers and who leads
    Members(Args),
}

/// Flags of `server members`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Show every tag
    #[arg(long, visible_alias = "verbose")]
    detailed: bool,
}

/// The answer, with the members as they came.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Members {
    members: Vec<Json>,
}

/// What members are sorted by, whatever else of them cannot be read.
#[derive(Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "PascalCase", default)]
struct MemberOrder {
    tags: RegionTag,
    name: String,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(default)]
struct RegionTag {
    region: String,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    let Verb::Members(args) = verb;
    let client = args.conn.client()?;
    let found = client.fetch("/v1/agent/members", &[]).await;
    let found: Members = found.map_err(|err| err.context("Error querying servers"))?;
    let mut members = found.members;
    members.sort_by_cached_key(|one| -> MemberOrder { answer::of_ref(one).unwrap_or_default() });
    let members = Json::Array(members);
    if args.format.print(&members, out)? {
        return Ok(0);
    }
    let members: Vec<ServerMember> = answer::of(members)?;
    if members.is_empty() {
        out.line("No server members found");
        return Ok(0);
    }
    if args.detailed {
        out.line(&detailed(&members).to_string());
        return Ok(0);
    }
    // A server alone with a lost majority has no leader: the table is worth printing then, too.
    let leader = client.fetch::<String>("/v1/status/leader", &[]).await;
    let (leader, why) = match leader {
        Ok(leader) => (leader, None),
        Err(err) => (String::new(), Some(err)),
    };
    out.line(&table(&members, &leader).to_string());
    if let Some(err) = why {
        out.error(&format!("\nError determining the leader: {err:#}"));
        return Ok(1);
    }
    Ok(0)
}

/// What a member says of itself under a name.
fn tag<'a>(member: &'a ServerMember, name: &str) -> &'a str {
    member.tags.get(name).map_or("", String::as_str)
}

fn table(members: &[ServerMember], leader: &str) -> ColumnTable {
    let mut table = ColumnTable::new([
        "Name",
        "Address",
        "Port",
        "Status",
        "Leader",
        "Raft Version",
        "Build",
        "Datacenter",
        "Region",
    ]);
    for member in members {
        let rpc = format!("{}:{}", member.addr, tag(member, "port"));
        table.row([
            member.name.clone(),
            member.addr.clone(),
            member.port.to_string(),
            member.status.clone(),
            (rpc == leader).to_string(),
            tag(member, "raft_vsn").to_owned(),
            tag(member, "build").to_owned(),
            tag(member, "dc").to_owned(),
            tag(member, "region").to_owned(),
        ]);
    }
    table
}

fn detailed(members: &[ServerMember]) -> ColumnTable {
    let mut table = ColumnTable::new(["Name", "Address", "Port", "Tags"]);
    for member in members {
        let tags = member.tags.iter();
        let mut tags: Vec<String> = tags.map(|(key, value)| format!("{key}={value}")).collect();
        tags.sort();
        table.row([
            member.name.clone(),
            member.addr.clone(),
            member.port.to_string(),
            tags.join(","),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::member_shapes::ServerMembersResponse;
    use std::collections::BTreeMap;

    #[test]
    fn what_members_are_sorted_by_is_read_of_what_is_reported() {
        let tags = BTreeMap::from([("region".to_owned(), "north".to_owned())]);
        let member = ServerMember {
            name: "a".to_owned(),
            tags: tags.into(),
            ..ServerMember::default()
        };
        let reported = ServerMembersResponse {
            members: vec![member].into(),
            ..ServerMembersResponse::default()
        };
        let Members { members } = answer::of(serde_json::to_value(reported).unwrap()).unwrap();
        let MemberOrder {
            tags: RegionTag { region },
            name,
        } = answer::of_ref(&members[0]).unwrap();
        assert_eq!([&*region, &*name], ["north", "a"]);
    }
}
