//! The `node` noun.

pub(super) mod drain;
pub(super) mod eligibility;
pub(super) mod meta;
pub(super) mod pool;
pub(super) mod stats;

use super::client::Client;
use super::columns::{Table, pairs};
use super::conn::Past;
use super::out::Out;
use super::paged::Paged;
use super::query::{Thing, find};
use super::show::{Format, boolean, list, number, short, stamp, text};
use super::{alloc, volume};
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::model::status::{ClientStatus, client, node as status};
use serde_json::Value as Json;

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// List nodes, or show one
    Status(Args),
    /// Work with node pools
    #[command(subcommand)]
    Pool(pool::Verb),
    /// Show and change what is said of a node while it runs
    #[command(subcommand)]
    Meta(meta::Verb),
    /// Move everything off a node
    Drain(Box<drain::Args>),
    /// Let a node take new allocations, or not
    Eligibility(eligibility::Args),
}

/// Flags of `node status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover node status
  drover node status -filter 'Status != \"ready\"'
  drover node status 8ba85cef
  drover node status -self")]
pub(super) struct Args {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// A node's id or a prefix of it; without one all nodes are listed
    node: Option<String>,
    /// The node of the agent that is asked
    #[arg(long = "self", conflicts_with = "node")]
    own: bool,
    /// Only the node itself
    #[arg(long)]
    short: bool,
    /// Show full ids, addresses and versions
    #[arg(long)]
    verbose: bool,
    /// Print ids alone
    #[arg(long)]
    quiet: bool,
    /// Show the operating system
    #[arg(long)]
    os: bool,
    /// Count running allocations
    #[arg(long)]
    allocs: bool,
    /// Show in detail what the node's machine uses
    #[arg(long, conflicts_with = "at")]
    stats: bool,
    #[command(flatten)]
    paged: Paged,
}

impl Args {
    /// Those that show what this id begins.
    pub(super) fn of(conn: Past, format: Format, id: String, verbose: bool) -> Self {
        Self {
            conn,
            format,
            node: Some(id),
            own: false,
            short: false,
            verbose,
            quiet: false,
            os: false,
            allocs: false,
            stats: false,
            paged: Paged::default(),
        }
    }
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Status(args) => status(args, out).await,
        Verb::Pool(verb) => pool::run(verb, out).await,
        Verb::Meta(verb) => meta::run(verb, out).await,
        Verb::Drain(args) => drain::run(*args, out).await,
        Verb::Eligibility(args) => eligibility::run(args, out).await,
    }
}

/// The stub of the node that a command names: by an id or what it begins with, or as the node of
/// the agent that is asked.
pub(super) async fn named(client: &Client, node: Option<&str>, own_node: bool) -> Result<Json> {
    match node {
        Some(name) => find(client, Thing::Node, name).await,
        None if own_node => find(client, Thing::Node, &own(client).await?).await,
        None => bail!("Node ID must be specified if -self isn't being used"),
    }
}

/// Lists nodes or shows one.
async fn status(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let name = match &args.node {
        Some(name) => name.clone(),
        None if args.own => own(&client).await?,
        None => return all(&args, &client, out).await,
    };
    let stub = find(&client, Thing::Node, &name).await?;
    let path = format!("/v1/node/{}", text(&stub, "ID"));
    let failed = "Error querying node info";
    let Some(node) = args.format.ask(&client, (&path, &[]), failed, out).await? else {
        return Ok(0);
    };
    // What is used is known of now alone, by the client of a node that answers.
    let asked = !args.short && args.conn.at.is_empty();
    let host = match asked {
        true => Some(stats::of_node(&client, &text(&node, "ID")).await),
        false => None,
    };
    let measured = host.as_ref().and_then(|host| host.as_ref().ok());
    // Who may not see volumes sees the rest all the same.
    let volumes = volume::of_node(&client, &text(&node, "ID")).await;
    let volumes = volumes.unwrap_or_default();
    out.line(&basics(&node, (measured, &volumes)));
    if args.short {
        return Ok(0);
    }
    events(&node, args.verbose, out);
    let allocs = client
        .get_json(&format!("{path}/allocations"), &[("namespace", "*")])
        .await?;
    resources(&node, &allocs, out);
    if let Some(host) = measured {
        stats::used(&client, &node, (host, &allocs), out).await?;
        if args.stats {
            stats::detailed(host, out);
        }
    }
    out.head("Allocations");
    out.line(&alloc::table(&allocs, (args.verbose, client.now())));
    if args.verbose {
        volume::show_of_node(&client, &volumes, out).await;
        attributes(&node, out);
    }
    match host {
        Some(Err(err)) if args.stats || text(&node, "Status") == status::READY => {
            out.error(&format!("\nWhat the node uses is not shown: {err:#}"));
            Ok(u8::from(args.stats))
        }
        _ => Ok(0),
    }
}

fn attributes(node: &Json, out: &Out) {
    out.head("Attributes");
    let map = node["Attributes"].as_object();
    let rows: Vec<(String, String)> = map
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.as_str().unwrap_or("").to_owned()))
        .collect();
    out.line(&pairs(&rows));
}

/// The id of the node of the agent that is asked.
async fn own(client: &Client) -> Result<String> {
    // An agent has no past: which node it is is asked of now.
    let agent = client.get_json("/v1/agent/self", &[("as_of", "")]).await;
    let agent = agent.map_err(|err| err.context("Error querying agent info"))?;
    let id = text(&agent["stats"]["client"], "node_id");
    if id.is_empty() {
        bail!("The agent runs no client: name a node");
    }
    Ok(id)
}

async fn all(args: &Args, client: &Client, out: &Out) -> Result<u8> {
    let more = [("os", if args.os { "true" } else { "" })];
    let page = args.paged.of(client, "/v1/nodes", &more).await;
    let page = page.map_err(|err| err.context("Error querying node status"))?;
    if args.format.print(&page.rows, out)? {
        return Ok(0);
    }
    let nodes = page.rows();
    if !args.quiet {
        client.tell_moment(out);
    }
    if nodes.is_empty() {
        out.line("No nodes registered");
        return Ok(0);
    }
    if args.quiet {
        for node in nodes {
            out.line(&text(node, "ID"));
        }
        return Ok(0);
    }
    let table = table(args, client, nodes).await?;
    out.line(&table.to_string());
    page.tell_next(out);
    Ok(0)
}

async fn table(args: &Args, client: &Client, nodes: &[Json]) -> Result<Table> {
    let mut head = vec!["ID", "Node Pool", "DC", "Name", "Class"];
    if args.os {
        head.push("OS");
    }
    if args.verbose {
        head.extend(["Address", "Version"]);
    }
    head.extend(["Drain", "Eligibility", "Status"]);
    if args.allocs {
        head.push("Running Allocs");
    }
    let mut table = Table::with_head(head);
    for node in nodes {
        let mut row = vec![
            short(&text(node, "ID"), args.verbose),
            text(node, "NodePool"),
            text(node, "Datacenter"),
            text(node, "Name"),
            text(node, "NodeClass"),
        ];
        if args.os {
            row.push(text(&node["Attributes"], "os.name"));
        }
        if args.verbose {
            row.extend([text(node, "Address"), text(node, "Version")]);
        }
        row.push(boolean(node, "Drain").to_string());
        row.extend([text(node, "SchedulingEligibility"), text(node, "Status")]);
        if args.allocs {
            let path = format!("/v1/node/{}/allocations", text(node, "ID"));
            let allocs = client.get_json(&path, &[("namespace", "*")]).await?;
            let running = allocs.as_array().into_iter().flatten();
            row.push(
                running
                    .filter(|a| text(a, "ClientStatus") == client::RUNNING)
                    .count()
                    .to_string(),
            );
        }
        table.row(row);
    }
    Ok(table)
}

/// A list of nodes without what has to be asked for.
pub(super) fn plain_table(nodes: &[Json], verbose: bool) -> Table {
    let head = [
        "ID",
        "Node Pool",
        "DC",
        "Name",
        "Class",
        "Drain",
        "Eligibility",
        "Status",
    ];
    let mut table = Table::new(head);
    for node in nodes {
        table.row([
            short(&text(node, "ID"), verbose),
            text(node, "NodePool"),
            text(node, "Datacenter"),
            text(node, "Name"),
            text(node, "NodeClass"),
            boolean(node, "Drain").to_string(),
            text(node, "SchedulingEligibility"),
            text(node, "Status"),
        ]);
    }
    table
}

/// A node's fields; `host`: the figures of its machine, where they are known.
fn basics(node: &Json, (host, volumes): (Option<&Json>, &[Json])) -> String {
    let names = |key: &str| {
        let map = node[key].as_object();
        map.into_iter()
            .flatten()
            .map(|(k, _)| k.clone())
            .collect::<Vec<_>>()
            .join(",")
    };
    let drivers = node["Drivers"].as_object().into_iter().flatten();
    let drivers = drivers
        .filter(|(_, d)| boolean(d, "Detected"))
        .map(|(name, d)| {
            if boolean(d, "Healthy") {
                name.clone()
            } else {
                format!("{name} (unhealthy)")
            }
        });
    let used: Vec<_> = volumes.iter().map(|volume| text(volume, "ID")).collect();
    let mut rows = vec![
        ("ID", text(node, "ID")),
        ("Name", text(node, "Name")),
        ("Node Pool", text(node, "NodePool")),
        ("Class", text(node, "NodeClass")),
        ("DC", text(node, "Datacenter")),
        ("Drain", drain(&node["DrainStrategy"])),
        ("Eligibility", text(node, "SchedulingEligibility")),
        ("Status", text(node, "Status")),
        ("CSI Controllers", names("CSIControllerPlugins")),
        ("CSI Drivers", names("CSINodePlugins")),
    ];
    if let Some(host) = host {
        let up = number(host, "Uptime").saturating_mul(1_000_000_000);
        rows.push(("Uptime", crate::jobspec::duration::format(up)));
    }
    rows.extend([
        ("Host Volumes", names("HostVolumes")),
        ("Host Networks", names("HostNetworks")),
        ("CSI Volumes", used.join(",")),
        ("Driver Status", drivers.collect::<Vec<_>>().join(",")),
    ]);
    pairs(&rows)
}

/// Whether a node drains, and how.
fn drain(strategy: &Json) -> String {
    if strategy.is_null() {
        return "false".to_owned();
    }
    let until = match number(strategy, "Deadline") {
        forced if forced < 0 => "force drain".to_owned(),
        0 => "no deadline".to_owned(),
        _ => format!("{} deadline", stamp(strategy, "ForceDeadline")),
    };
    let system = if boolean(strategy, "IgnoreSystemJobs") {
        "; ignoring system jobs"
    } else {
        ""
    };
    format!("true; {until}{system}")
}

fn events(node: &Json, verbose: bool, out: &Out) {
    let mut head = vec!["Time", "Subsystem", "Message"];
    if verbose {
        head.push("Details");
    }
    let mut table = Table::with_head(head);
    for event in list(node, "Events").iter().rev() {
        let mut row = vec![
            stamp(event, "Timestamp"),
            text(event, "Subsystem"),
            text(event, "Message"),
        ];
        if verbose {
            let details = event["Details"].as_object().into_iter().flatten();
            row.push(
                details
                    .map(|(k, v)| format!("{k} = {}", v.as_str().unwrap_or("")))
                    .collect::<Vec<_>>()
                    .join(","),
            );
        }
        table.row(row);
    }
    if !table.is_empty() {
        out.head("Node Events");
        out.line(&table.to_string());
    }
}

fn resources(node: &Json, allocs: &Json, out: &Out) {
    let (mut cpu, mut memory, mut disk) = (0, 0, 0);
    for alloc in allocs.as_array().into_iter().flatten() {
        match ClientStatus::of(&text(alloc, "ClientStatus")) {
            Some(ClientStatus::Running | ClientStatus::Pending) => {}
            Some(
                ClientStatus::Complete
                | ClientStatus::Failed
                | ClientStatus::Lost
                | ClientStatus::Unknown,
            )
            | None => continue,
        }
        let given = &alloc["AllocatedResources"];
        for (_, task) in given["Tasks"].as_object().into_iter().flatten() {
            cpu += number(&task["Cpu"], "CpuShares");
            memory += number(&task["Memory"], "MemoryMB");
        }
        disk += number(&given["Shared"], "DiskMB");
    }
    let (has, kept) = (&node["NodeResources"], &node["ReservedResources"]);
    let left = |block: &str, key: &str| number(&has[block], key) - number(&kept[block], key);
    let gib = |mb: i64| {
        #[allow(clippy::cast_precision_loss)]
        if mb >= 1024 {
            format!("{:.1} GiB", mb as f64 / 1024.0)
        } else {
            format!("{mb} MiB")
        }
    };
    let mut table = Table::new(["CPU", "Memory", "Disk"]);
    table.row([
        format!("{cpu}/{} MHz", left("Cpu", "CpuShares")),
        format!("{}/{}", gib(memory), gib(left("Memory", "MemoryMB"))),
        format!("{}/{}", gib(disk), gib(left("Disk", "DiskMB"))),
    ]);
    out.head("Allocated Resources");
    out.line(&table.to_string());
}
