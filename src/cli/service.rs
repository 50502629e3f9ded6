//! The `service` noun.

use super::answer;
use super::client::encode;
use super::columns::{ColumnTable, pairs};
use super::conn::{Conn, PastConnection};
use super::out::Out;
use super::paged::Paged;
use super::show::{Format, short};
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::model::{ServiceRegistration, ServiceRegistrationListStub};
use serde::Deserialize;
use serde::de::IgnoredAny;
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
    conn: PastConnection,
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
    conn: PastConnection,
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
    let found = client.fetch("/v1/services", &[]).await;
    let spaces: Vec<Json> =
        found.map_err(|err| err.context("Error listing service registrations"))?;
    let spaces = Json::Array(match &args.name {
        Some(name) => named(spaces, name),
        None => spaces,
    });
    if args.format.print(&spaces, out)? {
        return Ok(0);
    }
    let spaces: Vec<ServiceRegistrationListStub> = answer::of(spaces)?;
    client.report_moment(out);
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
    for space in &spaces {
        for service in &space.services {
            let mut row = vec![service.service_name.clone()];
            if of_all {
                row.push(space.namespace.clone());
            }
            row.push(format!("[{}]", service.tags.join(",")));
            rows.push(row);
        }
    }
    rows.sort();
    let mut table = ColumnTable::with_head(head);
    rows.into_iter().for_each(|row| table.row(row));
    out.line(&table.to_string());
    Ok(0)
}

/// The name of a service, whatever else of it cannot be read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceNamed {
    service_name: String,
}

/// Namespaces with the services of this name alone, all else as it came.
fn named(mut spaces: Vec<Json>, name: &str) -> Vec<Json> {
    spaces.retain_mut(|space| {
        let Some(Json::Array(services)) = space.get_mut("Services") else {
            return false;
        };
        services.retain(|service| {
            let service = answer::of_ref::<ServiceNamed>(service);
            service.is_ok_and(|service| service.service_name == name)
        });
        !services.is_empty()
    });
    spaces
}

async fn info(args: InfoArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let path = format!("/v1/service/{}", encode(&args.name));
    let page = args.paged.of(&client, &path, &[]).await;
    let page = page.map_err(|err| err.context("Error listing service registrations"))?;
    let Some(mut found) = page.take::<ServiceRegistration>(&args.format, out)? else {
        return Ok(0);
    };
    client.report_moment(out);
    if found.is_empty() {
        bail!("No service registrations found for {:?}", args.name);
    }
    found.sort_by(|a, b| (&a.job_id, &a.alloc_id, &a.id).cmp(&(&b.job_id, &b.alloc_id, &b.id)));
    match args.verbose {
        true => {
            let all: Vec<String> = found.iter().map(whole).collect();
            out.line(&all.join("\n\n"));
        }
        false => out.line(&table(&found).to_string()),
    }
    page.report_next(out);
    Ok(0)
}

fn table(found: &[ServiceRegistration]) -> ColumnTable {
    let mut table = ColumnTable::new(["Job ID", "Address", "Tags", "Node ID", "Alloc ID"]);
    for one in found {
        table.row([
            one.job_id.clone(),
            address(one),
            format!("[{}]", one.tags.join(",")),
            short(&one.node_id, false),
            short(&one.alloc_id, false),
        ]);
    }
    table
}

fn whole(one: &ServiceRegistration) -> String {
    pairs(&[
        ("ID", one.id.clone()),
        ("Service Name", one.service_name.clone()),
        ("Namespace", one.namespace.clone()),
        ("Job ID", one.job_id.clone()),
        ("Alloc ID", one.alloc_id.clone()),
        ("Node ID", one.node_id.clone()),
        ("Datacenter", one.datacenter.clone()),
        ("Address", address(one)),
        ("Tags", format!("[{}]", one.tags.join(","))),
    ])
}

/// Host and port, or the host alone where the service has no port.
fn address(one: &ServiceRegistration) -> String {
    match one.port {
        0 => one.address.clone(),
        port => format!("{}:{port}", one.address),
    }
}

async fn delete(args: DeleteArgs, out: &Out) -> Result<u8> {
    let (name, id) = (encode(&args.name), encode(&args.id));
    let path = format!("/v1/service/{name}/{id}");
    let client = args.conn.client()?;
    let done = client.delete::<IgnoredAny>(&path, &[], None).await;
    done.map_err(|err| err.context("Error deleting service registration"))?;
    out.line("Successfully deleted service registration");
    Ok(0)
}
