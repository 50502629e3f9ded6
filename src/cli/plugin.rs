//! The `plugin` noun.

use super::client::encode;
use super::columns::{Table, pairs};
use super::conn::Past;
use super::out::Out;
use super::show::{Format, boolean, list as rows, number, short, text};
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::model::status::volume_type;
use serde_json::Value as Json;

/// What can be done with plugins.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Show plugins, or one of them
    Status(Args),
}

/// Flags of `plugin status`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// Its id
    #[arg(default_value = "", hide_default_value = true)]
    plugin: String,
    /// The type of plugin; csi is the only one
    #[arg(long = "type", value_name = "TYPE", default_value = "csi")]
    kind: String,
    /// Leave out allocations
    #[arg(long)]
    short: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    let Verb::Status(args) = verb;
    if args.kind != volume_type::CSI {
        bail!(
            "Error: unknown plugin type {:?}: csi is the only one",
            args.kind
        );
    }
    match args.plugin.is_empty() {
        true => list(&args, out).await,
        false => one(&args, out).await,
    }
}

async fn list(args: &Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let query = [("type", volume_type::CSI)];
    let failed = "Error querying CSI plugins";
    let asked = args
        .format
        .ask(&client, ("/v1/plugins", &query), failed, out);
    let Some(found) = asked.await? else {
        return Ok(0);
    };
    out.head("Container Storage Interface");
    let mut table = Table::new([
        "ID",
        "Provider",
        "Controllers Healthy/Expected",
        "Nodes Healthy/Expected",
    ]);
    for plugin in found.as_array().into_iter().flatten() {
        table.row([
            text(plugin, "ID"),
            text(plugin, "Provider"),
            of(plugin, "Controllers"),
            of(plugin, "Nodes"),
        ]);
    }
    match table.is_empty() {
        true => out.line("No CSI plugins"),
        false => out.line(&table.to_string()),
    }
    Ok(0)
}

/// Healthy ones of those expected.
fn of(plugin: &Json, what: &str) -> String {
    let count = |which: &str| number(plugin, &format!("{what}{which}"));
    format!("{}/{}", count("Healthy"), count("Expected"))
}

async fn one(args: &Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let path = format!("/v1/plugin/csi/{}", encode(&args.plugin));
    let failed = "Error querying plugin";
    let Some(plugin) = args.format.ask(&client, (&path, &[]), failed, out).await? else {
        return Ok(0);
    };
    let count = |key: &str| number(&plugin, key).to_string();
    out.line(&pairs(&[
        ("ID", text(&plugin, "ID")),
        ("Provider", text(&plugin, "Provider")),
        ("Version", text(&plugin, "Version")),
        ("Controllers Healthy", count("ControllersHealthy")),
        ("Controllers Expected", count("ControllersExpected")),
        ("Nodes Healthy", count("NodesHealthy")),
        ("Nodes Expected", count("NodesExpected")),
    ]));
    if args.short {
        return Ok(0);
    }
    instances(&plugin, args.verbose, out);
    out.head("Allocations");
    let mut table = Table::new(["ID", "Node ID", "Job ID", "Desired", "Status"]);
    for alloc in rows(&plugin, "Allocations") {
        table.row([
            short(&text(alloc, "ID"), args.verbose),
            short(&text(alloc, "NodeID"), args.verbose),
            text(alloc, "JobID"),
            text(alloc, "DesiredStatus"),
            text(alloc, "ClientStatus"),
        ]);
    }
    match table.is_empty() {
        true => out.line("No allocations placed"),
        false => out.line(&table.to_string()),
    }
    Ok(0)
}

/// Where it runs, and how it is there.
fn instances(plugin: &Json, verbose: bool, out: &Out) {
    let mut table = Table::new(["Node ID", "Part", "Healthy", "Description"]);
    for (part, what) in [("Controllers", "controller"), ("Nodes", "node")] {
        for (node, info) in plugin[part].as_object().into_iter().flatten() {
            table.row([
                short(node, verbose),
                what.to_owned(),
                boolean(info, "Healthy").to_string(),
                text(info, "HealthDescription"),
            ]);
        }
    }
    if !table.is_empty() {
        out.head("Instances");
        out.line(&table.to_string());
    }
}
