//! The `server` noun.

use super::columns::Table;
use super::conn::Conn;
use super::out::Out;
use super::show::{Format, list, number, text};
use anyhow::Result;
use clap::Subcommand;
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

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    let Verb::Members(args) = verb;
    let client = args.conn.client()?;
    let found = client.get_json("/v1/agent/members", &[]).await;
    let found = found.map_err(|err| err.context("Error querying servers"))?;
    let mut members: Vec<Json> = list(&found, "Members").to_vec();
    members.sort_by_key(|member| (text(&member["Tags"], "region"), text(member, "Name")));
    if args.format.print(&Json::from(members.clone()), out)? {
        return Ok(0);
    }
    if members.is_empty() {
        out.line("No server members found");
        return Ok(0);
    }
    if args.detailed {
        out.line(&detailed(&members).to_string());
        return Ok(0);
    }
    // Nobody leads where a server is alone with a lost majority: that is worth a table, too.
    let leader = client.get_json("/v1/status/leader", &[]).await;
    let (leader, why) = match leader {
        Ok(leader) => (leader.as_str().unwrap_or("").to_owned(), None),
        Err(err) => (String::new(), Some(err)),
    };
    out.line(&table(&members, &leader).to_string());
    if let Some(err) = why {
        out.error(&format!("\nError determining the leader: {err:#}"));
        return Ok(1);
    }
    Ok(0)
}

fn table(members: &[Json], leader: &str) -> Table {
    let mut table = Table::new([
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
        let tags = &member["Tags"];
        let rpc = format!("{}:{}", text(member, "Addr"), text(tags, "port"));
        table.row([
            text(member, "Name"),
            text(member, "Addr"),
            number(member, "Port").to_string(),
            text(member, "Status"),
            (rpc == leader).to_string(),
            text(tags, "raft_vsn"),
            text(tags, "build"),
            text(tags, "dc"),
            text(tags, "region"),
        ]);
    }
    table
}

fn detailed(members: &[Json]) -> Table {
    let mut table = Table::new(["Name", "Address", "Port", "Tags"]);
    for member in members {
        let tags = member["Tags"].as_object().into_iter().flatten();
        let mut tags: Vec<String> = tags
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
            .collect();
        tags.sort();
        table.row([
            text(member, "Name"),
            text(member, "Addr"),
            number(member, "Port").to_string(),
            tags.join(","),
        ]);
    }
    table
}
