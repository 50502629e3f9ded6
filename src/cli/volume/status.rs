//! `volume status`

use super::super::answer;
use super::super::client::{Client, encode, is_status};
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::PastConnection;
use super::super::out::Out;
use super::super::paged::Paged;
use super::super::query::find;
use super::super::show::{Format, short, size, time};
use crate::http::answers::NodeListStub;
use anyhow::{Result, bail};
use drover_events::gojson::Map;
use drover_events::model::status::{VolumeType, volume_type};
use drover_events::model::{
    AllocListStub, Allocation, CsiMountOptions, CsiVolListStub, CsiVolume, HostVolume,
    HostVolumeStub,
};
use serde::Deserialize;
use serde_json::Value as Json;

/// Flags of `volume status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover volume status
  drover volume status -type csi database
  drover volume explain database             who holds it, and what that waits for")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    paged: Paged,
    /// Its id, or the beginning of the ids of a list
    #[arg(default_value = "", hide_default_value = true)]
    volume: String,
    /// The type of volume: csi or host; both without it
    #[arg(
        long = "type",
        value_name = "TYPE",
        default_value = "",
        hide_default_value = true
    )]
    kind: String,
    /// Only those that this node uses, or has
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    node: String,
    /// Only host volumes of this node pool
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    node_pool: String,
    /// Leave out allocations
    #[arg(long)]
    short: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Shows volumes, or one of them.
pub(super) async fn run(mut args: Args, out: &Out) -> Result<u8> {
    if !args.kind.is_empty() && VolumeType::of(&args.kind).is_none() {
        bail!(
            "Error: unknown volume type {:?}: it is csi or host",
            args.kind
        );
    }
    if args.kind == volume_type::CSI && !args.node_pool.is_empty() {
        bail!("Error: -node-pool is about host volumes: CSI volumes are in no node pool");
    }
    let client = args.conn.client()?;
    if !args.volume.is_empty() {
        return one(&args, &client, out).await;
    }
    // A node that is not there any more has only its full id left.
    if !args.node.is_empty() && args.node.len() != 36 {
        args.node = find::<NodeListStub>(&client, &args.node).await?.id;
    }
    let mut found = Vec::new();
    // Only host volumes are in a node pool.
    let kinds: &[&str] = match args.node_pool.as_str() {
        "" => &[volume_type::CSI, volume_type::HOST],
        _ => &[volume_type::HOST],
    };
    for kind in kinds.iter().copied() {
        if args.kind.is_empty() || args.kind == kind {
            found.push((kind, of_type(&args, &client, kind).await?));
        }
    }
    if args.format.is_given() {
        let all = found.into_iter().flat_map(|(_, rows)| rows).collect();
        args.format.print(&Json::Array(all), out)?;
        return Ok(0);
    }
    client.report_moment(out);
    for (at, (kind, rows)) in found.into_iter().enumerate() {
        if at > 0 {
            out.line("");
        }
        let (title, none, table) = match VolumeType::of(kind) {
            Some(VolumeType::Csi) => (
                "Container Storage Interface",
                "No CSI volumes",
                csi_rows(&answer::of::<Vec<_>>(Json::Array(rows))?),
            ),
            Some(VolumeType::Host) | None => (
                "Dynamic Host Volumes",
                "No dynamic host volumes",
                host_rows(&answer::of::<Vec<_>>(Json::Array(rows))?, args.verbose),
            ),
        };
        out.head(title);
        match table.is_empty() {
            true => out.line(none),
            false => out.line(&table.to_string()),
        }
    }
    Ok(0)
}

/// The volumes of a type that the flags leave.
async fn of_type(args: &Args, client: &Client, kind: &str) -> Result<Vec<Json>> {
    let given = [
        ("type", kind),
        ("node_id", args.node.as_str()),
        ("node_pool", args.node_pool.as_str()),
    ];
    let given: Vec<_> = given
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let page = args.paged.of(client, "/v1/volumes", &given).await;
    let page = page.map_err(|err| err.context(format!("Error querying {kind} volumes")))?;
    page.rows()
}

/// CSI volumes as a list.
fn csi_rows(rows: &[CsiVolListStub]) -> ColumnTable {
    let head = [
        "ID",
        "Name",
        "Namespace",
        "Plugin ID",
        "Schedulable",
        "Access Mode",
    ];
    let mut table = ColumnTable::new(head);
    for row in rows {
        table.row([
            row.id.clone(),
            row.name.clone(),
            row.namespace.clone(),
            row.plugin_id.clone(),
            row.schedulable.to_string(),
            row.access_mode.clone(),
        ]);
    }
    table
}

/// Host volumes as a list.
fn host_rows(rows: &[HostVolumeStub], verbose: bool) -> ColumnTable {
    let head = [
        "ID",
        "Name",
        "Namespace",
        "Plugin ID",
        "Node ID",
        "Node Pool",
        "State",
    ];
    let mut table = ColumnTable::new(head);
    for row in rows {
        table.row([
            short(&row.id, verbose),
            row.name.clone(),
            row.namespace.clone(),
            row.plugin_id.clone(),
            short(&row.node_id, verbose),
            row.node_pool.clone(),
            row.state.clone(),
        ]);
    }
    table
}

async fn one(args: &Args, client: &Client, out: &Out) -> Result<u8> {
    if args.kind != volume_type::HOST {
        let path = format!("/v1/volume/csi/{}", encode(&args.volume));
        match client.fetch::<Json>(&path, &[]).await {
            Ok(volume) => {
                if !args.format.print(&volume, out)? {
                    client.report_moment(out);
                    let users: Users = answer::of(volume.clone())?;
                    let volume: CsiVolume = answer::of(volume)?;
                    csi(&volume, &users.allocations, args, out);
                }
                return Ok(0);
            }
            Err(err) if is_status(&err, 404) && args.kind.is_empty() => {}
            Err(err) => return Err(err.context("Error querying volume")),
        }
    }
    let id = host_id(client, &args.volume).await?;
    let path = format!("/v1/volume/host/{}", encode(&id));
    let failed = "Error querying volume";
    let volume = args
        .format
        .ask::<HostVolume>(client, (&path, &[]), failed, out);
    if let Some(volume) = volume.await? {
        host(&volume, args, out);
    }
    Ok(0)
}

/// What the API shows of a CSI volume beside the volume itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Users {
    allocations: Vec<AllocListStub>,
}

/// The host volume whose id begins so.
pub(super) async fn host_id(client: &Client, prefix: &str) -> Result<String> {
    let query = [("type", volume_type::HOST), ("prefix", prefix)];
    let found = client.fetch("/v1/volumes", &query).await;
    let found: Vec<HostVolumeStub> = found.map_err(|err| err.context("Error querying volumes"))?;
    match found.as_slice() {
        [] => bail!("No volumes with prefix or ID {prefix:?} found"),
        [one] => Ok(one.id.clone()),
        many => bail!(
            "Prefix matched multiple host volumes\n\n{}",
            host_rows(many, true)
        ),
    }
}

/// How a volume is mounted, on one line.
pub(super) fn mount_options(options: Option<&CsiMountOptions>) -> String {
    let Some(options) = options else {
        return String::new();
    };
    let mut parts = Vec::new();
    if !options.fs_type.is_empty() {
        parts.push(format!("fs_type: {}", options.fs_type));
    }
    if !options.mount_flags.is_empty() {
        parts.push(format!("flags: {}", options.mount_flags.join(", ")));
    }
    parts.join(" ")
}

fn csi(volume: &CsiVolume, users: &[AllocListStub], args: &Args, out: &Out) {
    let capacity = u64::try_from(volume.capacity).unwrap_or_default();
    let options = mount_options(volume.mount_options.as_ref());
    let controllers = [volume.controllers_healthy, volume.controllers_expected];
    let [controllers_healthy, controllers_expected] = controllers.map(|count| count.to_string());
    out.line(&pairs(&[
        ("ID", volume.id.clone()),
        ("Name", volume.name.clone()),
        ("Namespace", volume.namespace.clone()),
        ("External ID", volume.external_id.clone()),
        ("Plugin ID", volume.plugin_id.clone()),
        ("Provider", volume.provider.clone()),
        ("Version", volume.provider_version.clone()),
        ("Capacity", size(capacity)),
        ("Schedulable", volume.schedulable.to_string()),
        ("Controllers Healthy", controllers_healthy),
        ("Controllers Expected", controllers_expected),
        ("Nodes Healthy", volume.nodes_healthy.to_string()),
        ("Nodes Expected", volume.nodes_expected.to_string()),
        ("Access Mode", volume.access_mode.clone()),
        ("Attachment Mode", volume.attachment_mode.clone()),
        ("Mount Options", options),
        ("Created", time(volume.create_time)),
        ("Modified", time(volume.modify_time)),
    ]));
    if args.short {
        return;
    }
    if !volume.topologies.is_empty() {
        out.head("Topologies");
        let mut table = ColumnTable::new(["Topology", "Segments"]);
        for (at, topology) in volume.topologies.iter().enumerate() {
            let segments = topology.segments.iter();
            let segments = segments.map(|(key, value)| format!("{key}={value}"));
            table.row([format!("{at:02}"), segments.collect::<Vec<_>>().join(", ")]);
        }
        out.line(&table.to_string());
    }
    let writers = Some(&volume.write_allocs).filter(|writers| !writers.is_nil());
    allocations(users, writers, args.verbose, out);
}

fn host(volume: &HostVolume, args: &Args, out: &Out) {
    let capacity = u64::try_from(volume.capacity_bytes).unwrap_or_default();
    out.line(&pairs(&[
        ("ID", volume.id.clone()),
        ("Name", volume.name.clone()),
        ("Namespace", volume.namespace.clone()),
        ("Plugin ID", volume.plugin_id.clone()),
        ("Node ID", volume.node_id.clone()),
        ("Node Pool", volume.node_pool.clone()),
        ("Capacity", size(capacity)),
        ("State", volume.state.clone()),
        ("Host Path", volume.host_path.clone()),
    ]));
    if !args.short {
        allocations(&volume.allocations, None, args.verbose, out);
    }
}

/// The users of a volume, and which of them write to it, where that is known.
fn allocations(
    users: &[AllocListStub],
    writers: Option<&Map<Option<Allocation>>>,
    verbose: bool,
    out: &Out,
) {
    out.head("Allocations");
    let head = ["ID", "Node ID", "Job ID", "Access", "Desired", "Status"];
    let mut table = ColumnTable::new(head);
    for alloc in users {
        let access = match writers.map(|writers| writers.contains_key(&alloc.id)) {
            Some(true) => "write",
            Some(false) => "read",
            None => "",
        };
        table.row([
            short(&alloc.id, verbose),
            short(&alloc.node_id, verbose),
            alloc.job_id.clone(),
            access.to_owned(),
            alloc.desired_status.clone(),
            alloc.client_status.clone(),
        ]);
    }
    match table.is_empty() {
        true => out.line("No allocations placed"),
        false => out.line(&table.to_string()),
    }
}
