//! `volume snapshot create`, `delete` and `list`: what only plugins know.

use super::super::answer;
use super::super::client::{Client, encode, refused};
use super::super::columns::ColumnTable;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::{Format, short, size, time};
use crate::http::answers::{SnapshotsCreated, SnapshotsResponse};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use drover_events::model::CsiSnapshot;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// Take a snapshot of a volume
    Create(CreateArgs),
    /// Delete a snapshot
    Delete(DeleteArgs),
    /// List the snapshots that a plugin knows
    List(ListArgs),
}

/// Flags of `volume snapshot create`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CreateArgs {
    #[command(flatten)]
    conn: Conn,
    /// The volume's id
    volume: String,
    /// The snapshot's name
    #[arg(default_value = "", hide_default_value = true)]
    name: String,
    /// A parameter for the plugin, as key=value; may be repeated
    #[arg(long = "parameter", value_name = "KEY=VALUE")]
    parameters: Vec<String>,
    /// A secret for the plugin, as key=value; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    secrets: Vec<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `volume snapshot delete`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// The plugin's id
    plugin: String,
    /// The snapshot's id
    snapshot: String,
    /// A secret for the plugin, as key=value; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    secrets: Vec<String>,
}

/// Flags of `volume snapshot list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// The plugin's id
    #[arg(long)]
    plugin: String,
    /// A secret for the plugin, as key=value; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    secrets: Vec<String>,
    /// How many in one page
    #[arg(long, value_name = "N")]
    per_page: Option<u32>,
    /// Where the page begins
    #[arg(
        long,
        value_name = "TOKEN",
        default_value = "",
        hide_default_value = true
    )]
    page_token: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Create(args) => create(args, out).await,
        Verb::Delete(args) => delete(args, out).await,
        Verb::List(args) => list(args, out).await,
    }
}

/// A request with secrets for a plugin, which are in a header; its answer, null where it is empty
/// and something was changed.
///
/// # Errors
/// A refusal, in the agent's words.
pub(super) async fn with_secrets(
    client: &Client,
    (method, target): (Method, &str),
    secrets: &[String],
) -> Result<Json> {
    for (name, value) in parameters(secrets)? {
        if name.contains(',') || value.contains(',') {
            bail!("Error: the secret {name:?} holds a comma, which separates secrets");
        }
    }
    let headers = match secrets.is_empty() {
        true => Vec::new(),
        false => vec![("x-nomad-csi-secrets".to_owned(), secrets.join(","))],
    };
    let is_read = method == Method::GET;
    let requested = format!("{method} {target}");
    let response = client.raw((method, target), &headers, Vec::new()).await?;
    if !response.status().is_success() {
        return Err(refused(response, requested).await);
    }
    let body = response.into_body().collect().await;
    let body = body.context("reading the answer")?.to_bytes();
    answer::body(&body, is_read)
}

/// Pairs as `key=value`, by their keys.
fn parameters(pairs: &[String]) -> Result<BTreeMap<String, String>> {
    let mut named = BTreeMap::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("Error: {pair:?} is not of the form key=value");
        };
        named.insert(key.to_owned(), value.to_owned());
    }
    Ok(named)
}

async fn create(args: CreateArgs, out: &Out) -> Result<u8> {
    let snapshot = json!({
        "SourceVolumeID": args.volume, "Name": args.name,
        "Parameters": parameters(&args.parameters)?, "Secrets": parameters(&args.secrets)?,
    });
    let client = args.conn.client()?;
    let body = json!({ "Snapshots": [snapshot] });
    let done = client.put("/v1/volumes/snapshot", &[], &body).await;
    let done: SnapshotsCreated = done.map_err(|err| err.context("Error snapshotting volume"))?;
    out.line(&table(&done.snapshots, args.verbose).to_string());
    Ok(0)
}

async fn delete(args: DeleteArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let (plugin, snapshot) = (encode(&args.plugin), encode(&args.snapshot));
    let target = format!("/v1/volumes/snapshot?plugin_id={plugin}&snapshot_id={snapshot}");
    let done = with_secrets(&client, (Method::DELETE, &target), &args.secrets).await;
    done.map_err(|err| err.context("Error deleting volume snapshot"))?;
    out.line(&format!(
        "Successfully deleted snapshot {:?}!",
        args.snapshot
    ));
    Ok(0)
}

async fn list(args: ListArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let mut target = format!("/v1/volumes/snapshot?plugin_id={}", encode(&args.plugin));
    if let Some(most) = args.per_page {
        target += &format!("&per_page={most}");
    }
    if !args.page_token.is_empty() {
        target += &format!("&next_token={}", encode(&args.page_token));
    }
    let found = with_secrets(&client, (Method::GET, &target), &args.secrets).await;
    let found = found.map_err(|err| err.context("Error querying CSI external snapshots"))?;
    if args.format.print(&found, out)? {
        return Ok(0);
    }
    let found: SnapshotsResponse = answer::of(found)?;
    let table = table(&found.snapshots, args.verbose);
    match table.is_empty() {
        true => out.line("No snapshots"),
        false => out.line(&table.to_string()),
    }
    let next = &found.next_token;
    if !next.is_empty() {
        out.line(&format!("\nThere is more: repeat with -page-token {next}"));
    }
    Ok(0)
}

fn table(snapshots: &[CsiSnapshot], verbose: bool) -> ColumnTable {
    let head = [
        "Snapshot ID",
        "External ID",
        "Size",
        "Creation Time",
        "Ready?",
    ];
    let mut table = ColumnTable::new(head);
    for one in snapshots {
        let bytes = u64::try_from(one.size_bytes).unwrap_or_default();
        table.row([
            short(&one.id, verbose),
            short(&one.external_source_volume_id, verbose),
            size(bytes),
            time(one.create_time.saturating_mul(1_000_000_000)),
            one.is_ready.to_string(),
        ]);
    }
    table
}
