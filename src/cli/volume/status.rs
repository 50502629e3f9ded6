//! `volume status`

use super::super::client::{Client, encode, is_status};
use super::super::columns::{Table, pairs};
use super::super::conn::Past;
use super::super::out::Out;
use super::super::paged::Paged;
use super::super::query::{Thing, find};
use super::super::show::{Format, boolean, list, number, short, size, text, time};
use anyhow::{Result, bail};
use drover_events::model::status::{VolumeType, volume_type};
use serde_json::Value as Json;

/// Flags of `volume status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover volume status
  drover volume status -type csi database
  drover volume explain database             who holds it, and what that waits for")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Past,
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
        args.node = text(&find(&client, Thing::Node, &args.node).await?, "ID");
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
    client.tell_moment(out);
    for (at, (kind, rows)) in found.iter().enumerate() {
        if at > 0 {
            out.line("");
        }
        let (title, none, table) = match VolumeType::of(kind) {
            Some(VolumeType::Csi) => (
                "Container Storage Interface",
                "No CSI volumes",
                csi_rows(rows),
            ),
            Some(VolumeType::Host) | None => (
                "Dynamic Host Volumes",
                "No dynamic host volumes",
                host_rows(rows, args.verbose),
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
    Ok(page.rows().to_vec())
}

/// CSI volumes as a list.
fn csi_rows(rows: &[Json]) -> Table {
    let head = [
        "ID",
        "Name",
        "Namespace",
        "Plugin ID",
        "Schedulable",
        "Access Mode",
    ];
    let mut table = Table::new(head);
    for row in rows {
        table.row([
            text(row, "ID"),
            text(row, "Name"),
            text(row, "Namespace"),
            text(row, "PluginID"),
            boolean(row, "Schedulable").to_string(),
            text(row, "AccessMode"),
        ]);
    }
    table
}

/// Host volumes as a list.
fn host_rows(rows: &[Json], verbose: bool) -> Table {
    let head = [
        "ID",
        "Name",
        "Namespace",
        "Plugin ID",
        "Node ID",
        "Node Pool",
        "State",
    ];
    let mut table = Table::new(head);
    for row in rows {
        table.row([
            short(&text(row, "ID"), verbose),
            text(row, "Name"),
            text(row, "Namespace"),
            text(row, "PluginID"),
            short(&text(row, "NodeID"), verbose),
            text(row, "NodePool"),
            text(row, "State"),
        ]);
    }
    table
}

async fn one(args: &Args, client: &Client, out: &Out) -> Result<u8> {
    if args.kind != volume_type::HOST {
        let path = format!("/v1/volume/csi/{}", encode(&args.volume));
        match client.get_json(&path, &[]).await {
            Ok(volume) => {
                if !args.format.print(&volume, out)? {
                    client.tell_moment(out);
                    csi(&volume, args, out);
                }
                return Ok(0);
            }
            Err(err) if is_status(&err, 404) && args.kind.is_empty() => {}
            Err(err) => return Err(err.context("Error querying volume")),
        }
    }
    let id = host_id(client, &args.volume).await?;
    let path = format!("/v1/volume/host/{}", encode(&id));
    let volume = client.get_json(&path, &[]).await;
    let volume = volume.map_err(|err| err.context("Error querying volume"))?;
    if !args.format.print(&volume, out)? {
        client.tell_moment(out);
        host(&volume, args, out);
    }
    Ok(0)
}

/// The host volume whose id begins so.
pub(super) async fn host_id(client: &Client, prefix: &str) -> Result<String> {
    let query = [("type", volume_type::HOST), ("prefix", prefix)];
    let found = client.get_json("/v1/volumes", &query).await;
    let found = found.map_err(|err| err.context("Error querying volumes"))?;
    match found.as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => bail!("No volumes with prefix or ID {prefix:?} found"),
        [one] => Ok(text(one, "ID")),
        many => bail!(
            "Prefix matched multiple host volumes\n\n{}",
            host_rows(many, true)
        ),
    }
}

/// How a volume is mounted, on one line.
pub(super) fn mount_options(options: &Json) -> String {
    let mut said = Vec::new();
    let fs_type = text(options, "FSType");
    if !fs_type.is_empty() {
        said.push(format!("fs_type: {fs_type}"));
    }
    let flags: Vec<_> = list(options, "MountFlags")
        .iter()
        .filter_map(Json::as_str)
        .collect();
    if !flags.is_empty() {
        said.push(format!("flags: {}", flags.join(", ")));
    }
    said.join(" ")
}

fn csi(volume: &Json, args: &Args, out: &Out) {
    let health = |what: &str| format!("{what}Healthy");
    let expected = |what: &str| format!("{what}Expected");
    let count = |key: &str| number(volume, key).to_string();
    let capacity = u64::try_from(number(volume, "Capacity")).unwrap_or_default();
    out.line(&pairs(&[
        ("ID", text(volume, "ID")),
        ("Name", text(volume, "Name")),
        ("Namespace", text(volume, "Namespace")),
        ("External ID", text(volume, "ExternalID")),
        ("Plugin ID", text(volume, "PluginID")),
        ("Provider", text(volume, "Provider")),
        ("Version", text(volume, "ProviderVersion")),
        ("Capacity", size(capacity)),
        ("Schedulable", boolean(volume, "Schedulable").to_string()),
        ("Controllers Healthy", count(&health("Controllers"))),
        ("Controllers Expected", count(&expected("Controllers"))),
        ("Nodes Healthy", count(&health("Nodes"))),
        ("Nodes Expected", count(&expected("Nodes"))),
        ("Access Mode", text(volume, "AccessMode")),
        ("Attachment Mode", text(volume, "AttachmentMode")),
        ("Mount Options", mount_options(&volume["MountOptions"])),
        ("Created", time(number(volume, "CreateTime"))),
        ("Modified", time(number(volume, "ModifyTime"))),
    ]));
    if args.short {
        return;
    }
    let topologies = list(volume, "Topologies");
    if !topologies.is_empty() {
        out.head("Topologies");
        let mut table = Table::new(["Topology", "Segments"]);
        for (at, topology) in topologies.iter().enumerate() {
            let segments = topology["Segments"].as_object().into_iter().flatten();
            let segments = segments
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
            table.row([format!("{at:02}"), segments.collect::<Vec<_>>().join(", ")]);
        }
        out.line(&table.to_string());
    }
    allocations(volume, args.verbose, out);
}

fn host(volume: &Json, args: &Args, out: &Out) {
    let capacity = u64::try_from(number(volume, "CapacityBytes")).unwrap_or_default();
    out.line(&pairs(&[
        ("ID", text(volume, "ID")),
        ("Name", text(volume, "Name")),
        ("Namespace", text(volume, "Namespace")),
        ("Plugin ID", text(volume, "PluginID")),
        ("Node ID", text(volume, "NodeID")),
        ("Node Pool", text(volume, "NodePool")),
        ("Capacity", size(capacity)),
        ("State", text(volume, "State")),
        ("Host Path", text(volume, "HostPath")),
    ]));
    if !args.short {
        allocations(volume, args.verbose, out);
    }
}

fn allocations(volume: &Json, verbose: bool, out: &Out) {
    out.head("Allocations");
    let writers = &volume["WriteAllocs"];
    let head = ["ID", "Node ID", "Job ID", "Access", "Desired", "Status"];
    let mut table = Table::new(head);
    for alloc in list(volume, "Allocations") {
        let id = text(alloc, "ID");
        let access = match (writers.is_object(), writers.get(&id).is_some()) {
            (true, true) => "write",
            (true, false) => "read",
            (false, _) => "",
        };
        table.row([
            short(&id, verbose),
            short(&text(alloc, "NodeID"), verbose),
            text(alloc, "JobID"),
            access.to_owned(),
            text(alloc, "DesiredStatus"),
            text(alloc, "ClientStatus"),
        ]);
    }
    match table.is_empty() {
        true => out.line("No allocations placed"),
        false => out.line(&table.to_string()),
    }
}
