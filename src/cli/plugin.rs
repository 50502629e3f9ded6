//! The `plugin` noun.

use super::client::encode;
use super::columns::{ColumnTable, pairs};
use super::conn::PastConnection;
use super::out::Out;
use super::show::{Format, short};
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::model::status::volume_type;
use drover_events::model::{CsiPlugin, CsiPluginListStub};

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
    conn: PastConnection,
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
    let requested = ("/v1/plugins", &query[..]);
    let found = args.format.ask(&client, requested, failed, out).await?;
    let Some(found): Option<Vec<CsiPluginListStub>> = found else {
        return Ok(0);
    };
    out.head("Container Storage Interface");
    let mut table = ColumnTable::new([
        "ID",
        "Provider",
        "Controllers Healthy/Expected",
        "Nodes Healthy/Expected",
    ]);
    for plugin in found {
        let (controllers, nodes) = (
            [plugin.controllers_healthy, plugin.controllers_expected],
            [plugin.nodes_healthy, plugin.nodes_expected],
        );
        table.row([plugin.id, plugin.provider, of(controllers), of(nodes)]);
    }
    match table.is_empty() {
        true => out.line("No CSI plugins"),
        false => out.line(&table.to_string()),
    }
    Ok(0)
}

/// Healthy ones of those expected.
fn of([healthy, expected]: [i64; 2]) -> String {
    format!("{healthy}/{expected}")
}

async fn one(args: &Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let path = format!("/v1/plugin/csi/{}", encode(&args.plugin));
    let failed = "Error querying plugin";
    let plugin = args
        .format
        .ask::<CsiPlugin>(&client, (&path, &[]), failed, out);
    let Some(plugin) = plugin.await? else {
        return Ok(0);
    };
    let expected = plugin.controllers_expected;
    out.line(&pairs(&[
        ("ID", plugin.id.clone()),
        ("Provider", plugin.provider.clone()),
        ("Version", plugin.version.clone()),
        (
            "Controllers Healthy",
            plugin.controllers_healthy.to_string(),
        ),
        ("Controllers Expected", expected.to_string()),
        ("Nodes Healthy", plugin.nodes_healthy.to_string()),
        ("Nodes Expected", plugin.nodes_expected.to_string()),
    ]));
    if args.short {
        return Ok(0);
    }
    instances(&plugin, args.verbose, out);
    out.head("Allocations");
    let mut table = ColumnTable::new(["ID", "Node ID", "Job ID", "Desired", "Status"]);
    for alloc in &plugin.allocations {
        table.row([
            short(&alloc.id, args.verbose),
            short(&alloc.node_id, args.verbose),
            alloc.job_id.clone(),
            alloc.desired_status.clone(),
            alloc.client_status.clone(),
        ]);
    }
    match table.is_empty() {
        true => out.line("No allocations placed"),
        false => out.line(&table.to_string()),
    }
    Ok(0)
}

/// Where it runs, and how it is there.
fn instances(plugin: &CsiPlugin, verbose: bool, out: &Out) {
    let mut table = ColumnTable::new(["Node ID", "Part", "Healthy", "Description"]);
    for (part, what) in [(&plugin.controllers, "controller"), (&plugin.nodes, "node")] {
        for (node, info) in part {
            table.row([
                short(node, verbose),
                what.to_owned(),
                info.healthy.to_string(),
                info.health_description.clone(),
            ]);
        }
    }
    if !table.is_empty() {
        out.head("Instances");
        out.line(&table.to_string());
    }
}
