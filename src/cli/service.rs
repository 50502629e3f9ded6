//! The `service` noun.

use super::client::encode;
use super::columns::{Table, pairs};
use super::conn::{Conn, Past};
use super::out::Out;
use super::paged::Paged;
use super::show::{Format, joined, list, number, short, text};
use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::Value as Json;

/// What can be done with services.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// List services
    List(ListArgs),
    /// Show where a service is
    Info(InfoArgs),
    /// Delete a registration that was left behind
    Delete(DeleteArgs),
}

/// Flags of `service list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// Only the service with this name
    #[arg(long)]
    name: Option<String>,
}

/// Flags of `service info`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover service info web-api
  drover service info -filter 'Datacenter == \"dc2\"' web-api")]
pub(super) struct InfoArgs {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// Its name
    name: String,
    #[command(flatten)]
    paged: Paged,
    /// Show each registration whole
    #[arg(long)]
    verbose: bool,
}

/// Flags of `service delete`.
#[derive(Debug, clap::Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// The service's name
    name: String,
    /// The registration's id, as service info -verbose shows it
    id: String,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::List(args) => all(args, out).await,
        Verb::Info(args) => info(args, out).await,
        Verb::Delete(args) => delete(args, out).await,
    }
}

async fn all(args: ListArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let found = client.get_json("/v1/services", &[]).await;
    let mut found = found.map_err(|err| err.context("Error listing service registrations"))?;
    if let Some(name) = &args.name {
        for space in found.as_array_mut().into_iter().flatten() {
            if let Some(services) = space["Services"].as_array_mut() {
                services.retain(|service| text(service, "ServiceName") == *name);
            }
        }
        if let Some(spaces) = found.as_array_mut() {
            spaces.retain(|space| !list(space, "Services").is_empty());
        }
    }
    if args.format.print(&found, out)? {
        return Ok(0);
    }
    client.tell_moment(out);
    let spaces = found.as_array().map(Vec::as_slice).unwrap_or_default();
    if spaces.is_empty() {
        out.line("No service registrations found");
        return Ok(0);
    }
    let of_all = args.conn.namespace == "*";
    let mut head = vec!["Service Name"];
    if of_all {
        head.push("Namespace");
    }
    head.push("Tags");
    let mut rows = Vec::new();
    for space in spaces {
        for service in list(space, "Services") {
            let mut row = vec![text(service, "ServiceName")];
            if of_all {
                row.push(text(space, "Namespace"));
            }
            row.push(format!("[{}]", joined(service, "Tags")));
            rows.push(row);
        }
    }
    rows.sort();
    let mut table = Table::with_head(head);
    rows.into_iter().for_each(|row| table.row(row));
    out.line(&table.to_string());
    Ok(0)
}

async fn info(args: InfoArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let path = format!("/v1/service/{}", encode(&args.name));
    let page = args.paged.of(&client, &path, &[]).await;
    let page = page.map_err(|err| err.context("Error listing service registrations"))?;
    if args.format.print(&page.rows, out)? {
        return Ok(0);
    }
    client.tell_moment(out);
    if page.is_empty() {
        bail!("No service registrations found for {:?}", args.name);
    }
    let mut found: Vec<&Json> = page.rows().iter().collect();
    found.sort_by_key(|one| (text(one, "JobID"), text(one, "AllocID"), text(one, "ID")));
    match args.verbose {
        true => {
            let all: Vec<String> = found.iter().map(|one| whole(one)).collect();
            out.line(&all.join("\n\n"));
        }
        false => out.line(&table(&found).to_string()),
    }
    page.tell_next(out);
    Ok(0)
}

fn table(found: &[&Json]) -> Table {
    let mut table = Table::new(["Job ID", "Address", "Tags", "Node ID", "Alloc ID"]);
    for one in found {
        table.row([
            text(one, "JobID"),
            address(one),
            format!("[{}]", joined(one, "Tags")),
            short(&text(one, "NodeID"), false),
            short(&text(one, "AllocID"), false),
        ]);
    }
    table
}

fn whole(one: &Json) -> String {
    pairs(&[
        ("ID", text(one, "ID")),
        ("Service Name", text(one, "ServiceName")),
        ("Namespace", text(one, "Namespace")),
        ("Job ID", text(one, "JobID")),
        ("Alloc ID", text(one, "AllocID")),
        ("Node ID", text(one, "NodeID")),
        ("Datacenter", text(one, "Datacenter")),
        ("Address", address(one)),
        ("Tags", format!("[{}]", joined(one, "Tags"))),
    ])
}

/// Host and port, or the host alone where the service has no port.
fn address(one: &Json) -> String {
    match number(one, "Port") {
        0 => text(one, "Address"),
        port => format!("{}:{port}", text(one, "Address")),
    }
}

async fn delete(args: DeleteArgs, out: &Out) -> Result<u8> {
    let (name, id) = (encode(&args.name), encode(&args.id));
    let path = format!("/v1/service/{name}/{id}");
    let done = args.conn.client()?.delete(&path, &[], None).await;
    done.map_err(|err| err.context("Error deleting service registration"))?;
    out.line("Successfully deleted service registration");
    Ok(0)
}
