//! The `node` noun.

pub(super) mod drain;
pub(super) mod eligibility;
pub(super) mod meta;
pub(super) mod pool;

use super::client::Client;
use super::columns::{ColumnTable, pairs};
use super::conn::PastConnection;
use super::out::Out;
use super::paged::Paged;
use super::query::find;
use super::show::{Format, short, stamp};
use super::{alloc, stats, volume};
use crate::http::answers::NodeListStub;
use crate::server::member_shapes::AgentDescription;
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::gojson::Map;
use drover_events::model::status::{self as words, ClientStatus};
use drover_events::model::{Allocation, CsiVolListStub, DrainStrategy, HostStats, Node};

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// List nodes, or show one
    Status(Args),
    /// Work with node pools
    #[command(subcommand)]
    Pool(pool::Verb),
    /// Show and change the metadata of a node while it runs
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
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// A node's id or a prefix of it; without one all nodes are listed
    node: Option<String>,
    /// The node of the agent that is called
    #[arg(long = "self", conflicts_with = "node")]
    own: bool,
    /// Only the node itself
    #[arg(long)]
    short: bool,
    /// Show full ids, addresses and versions
    #[arg(long)]
    verbose: bool,
    /// Print only ids
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
    pub(super) fn of(conn: PastConnection, format: Format, id: String, verbose: bool) -> Self {
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
/// the agent that answers.
pub(super) async fn named(
    client: &Client,
    node: Option<&str>,
    own_node: bool,
) -> Result<NodeListStub> {
    match node {
        Some(name) => find(client, name).await,
        None if own_node => find(client, &own(client).await?).await,
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
    let stub: NodeListStub = find(&client, &name).await?;
    let path = format!("/v1/node/{}", stub.id);
    let failed = "Error querying node info";
    let node = args.format.ask::<Node>(&client, (&path, &[]), failed, out);
    let Some(node) = node.await? else {
        return Ok(0);
    };
    // What is used is known of now alone, by the client of a node that answers.
    let requested = !args.short && args.conn.at.is_empty();
    let host = match requested {
        true => Some(stats::of_node(&client, &node.id).await),
        false => None,
    };
    let measured = host.as_ref().and_then(|host| host.as_ref().ok());
    // A token that may not see volumes sees the rest all the same.
    let volumes = volume::of_node(&client, &node.id).await;
    let volumes = volumes.unwrap_or_default();
    out.line(&basics(&node, (measured, &volumes)));
    if args.short {
        return Ok(0);
    }
    events(&node, args.verbose, out);
    let path = format!("{path}/allocations");
    let allocs: Vec<Allocation> = client.fetch(&path, &[("namespace", "*")]).await?;
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
        Some(Err(err)) if args.stats || node.status == words::node::READY => {
            out.error(&format!("\nWhat the node uses is not shown: {err:#}"));
            Ok(u8::from(args.stats))
        }
        _ => Ok(0),
    }
}

fn attributes(node: &Node, out: &Out) {
    out.head("Attributes");
    let rows = node.attributes.iter().map(|(k, v)| (k, v.clone()));
    out.line(&pairs(&rows.collect::<Vec<_>>()));
}

/// The id of the node of the agent that answers.
async fn own(client: &Client) -> Result<String> {
    // An agent has no past: its node is the one of now.
    let agent = client.fetch("/v1/agent/self", &[("as_of", "")]).await;
    let agent: AgentDescription = agent.map_err(|err| err.context("Error querying agent info"))?;
    let client = agent.stats.client.unwrap_or_default();
    if client.node_id.is_empty() {
        bail!("The agent runs no client: name a node");
    }
    Ok(client.node_id)
}

async fn all(args: &Args, client: &Client, out: &Out) -> Result<u8> {
    let more = [("os", if args.os { "true" } else { "" })];
    let page = args.paged.of(client, "/v1/nodes", &more).await;
    let page = page.map_err(|err| err.context("Error querying node status"))?;
    let Some(nodes) = page.take::<NodeListStub>(&args.format, out)? else {
        return Ok(0);
    };
    if !args.quiet {
        client.report_moment(out);
    }
    if nodes.is_empty() {
        out.line("No nodes registered");
        return Ok(0);
    }
    if args.quiet {
        for node in nodes {
            out.line(&node.id);
        }
        return Ok(0);
    }
    let table = table(args, client, &nodes).await?;
    out.line(&table.to_string());
    page.report_next(out);
    Ok(0)
}

async fn table(args: &Args, client: &Client, nodes: &[NodeListStub]) -> Result<ColumnTable> {
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
    let mut table = ColumnTable::with_head(head);
    for node in nodes {
        let mut row = vec![
            short(&node.id, args.verbose),
            node.node_pool.clone(),
            node.datacenter.clone(),
            node.name.clone(),
            node.node_class.clone(),
        ];
        if args.os {
            row.push(node.attributes.get("os.name").cloned().unwrap_or_default());
        }
        if args.verbose {
            row.extend([node.address.clone(), node.version.clone()]);
        }
        row.push(node.drain.to_string());
        row.extend([node.scheduling_eligibility.clone(), node.status.clone()]);
        if args.allocs {
            let path = format!("/v1/node/{}/allocations", node.id);
            let allocs: Vec<Allocation> = client.fetch(&path, &[("namespace", "*")]).await?;
            let running = allocs
                .iter()
                .filter(|a| a.client_status == words::client::RUNNING);
            row.push(running.count().to_string());
        }
        table.row(row);
    }
    Ok(table)
}

/// A list of nodes without what needs further requests.
pub(super) fn plain_table(nodes: &[NodeListStub], verbose: bool) -> ColumnTable {
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
    let mut table = ColumnTable::new(head);
    for node in nodes {
        table.row([
            short(&node.id, verbose),
            node.node_pool.clone(),
            node.datacenter.clone(),
            node.name.clone(),
            node.node_class.clone(),
            node.drain.to_string(),
            node.scheduling_eligibility.clone(),
            node.status.clone(),
        ]);
    }
    table
}

/// A node's fields; `host`: the figures of its machine, where they are known.
fn basics(node: &Node, (host, volumes): (Option<&HostStats>, &[CsiVolListStub])) -> String {
    let drivers = node.drivers.iter().filter(|(_, driver)| driver.detected);
    let drivers = drivers.map(|(name, driver)| {
        if driver.healthy {
            name.clone()
        } else {
            format!("{name} (unhealthy)")
        }
    });
    let used: Vec<_> = volumes.iter().map(|volume| volume.id.as_str()).collect();
    let mut rows = vec![
        ("ID", node.id.clone()),
        ("Name", node.name.clone()),
        ("Node Pool", node.node_pool.clone()),
        ("Class", node.node_class.clone()),
        ("DC", node.datacenter.clone()),
        ("Drain", drain(node.drain_strategy.as_ref())),
        ("Eligibility", node.scheduling_eligibility.clone()),
        ("Status", node.status.clone()),
        ("CSI Controllers", names(&node.csi_controller_plugins)),
        ("CSI Drivers", names(&node.csi_node_plugins)),
    ];
    if let Some(host) = host {
        let up = i64::try_from(host.uptime).unwrap_or(0);
        let up = up.saturating_mul(1_000_000_000);
        rows.push(("Uptime", crate::jobspec::duration::format(up)));
    }
    rows.extend([
        ("Host Volumes", names(&node.host_volumes)),
        ("Host Networks", names(&node.host_networks)),
        ("CSI Volumes", used.join(",")),
        ("Driver Status", drivers.collect::<Vec<_>>().join(",")),
    ]);
    pairs(&rows)
}

/// The names of what a node has.
fn names<V: 'static>(of: &Map<V>) -> String {
    let names: Vec<&str> = of.keys().map(String::as_str).collect();
    names.join(",")
}

/// Whether a node drains, and how.
fn drain(strategy: Option<&DrainStrategy>) -> String {
    let Some(strategy) = strategy else {
        return "false".to_owned();
    };
    let until = match strategy.deadline {
        forced if forced < 0 => "force drain".to_owned(),
        0 => "no deadline".to_owned(),
        _ => format!("{} deadline", stamp(strategy.force_deadline.nanos())),
    };
    let system = if strategy.ignore_system_jobs {
        "; ignoring system jobs"
    } else {
        ""
    };
    format!("true; {until}{system}")
}

fn events(node: &Node, verbose: bool, out: &Out) {
    let mut head = vec!["Time", "Subsystem", "Message"];
    if verbose {
        head.push("Details");
    }
    let mut table = ColumnTable::with_head(head);
    for event in node.events.iter().rev() {
        let mut row = vec![
            stamp(event.timestamp.nanos()),
            event.subsystem.clone(),
            event.message.clone(),
        ];
        if verbose {
            let details = event.details.iter();
            let details = details.map(|(key, value)| format!("{key} = {value}"));
            row.push(details.collect::<Vec<_>>().join(","));
        }
        table.row(row);
    }
    if !table.is_empty() {
        out.head("Node Events");
        out.line(&table.to_string());
    }
}

fn resources(node: &Node, allocs: &[Allocation], out: &Out) {
    let (mut cpu, mut memory, mut disk) = (0, 0, 0);
    for alloc in allocs {
        match alloc.client() {
            Some(ClientStatus::Running | ClientStatus::Pending) => {}
            Some(
                ClientStatus::Complete
                | ClientStatus::Failed
                | ClientStatus::Lost
                | ClientStatus::Unknown,
            )
            | None => continue,
        }
        let Some(given) = &alloc.allocated_resources else {
            continue;
        };
        for task in given.tasks.values() {
            cpu += task.cpu.cpu_shares;
            memory += task.memory.memory_mb;
        }
        disk += given.shared.disk_mb;
    }
    let has = node.node_resources.clone().unwrap_or_default();
    let kept = node.reserved_resources.clone().unwrap_or_default();
    let gib = |mb: i64| {
        #[allow(clippy::cast_precision_loss)]
        if mb >= 1024 {
            format!("{:.1} GiB", mb as f64 / 1024.0)
        } else {
            format!("{mb} MiB")
        }
    };
    let mut table = ColumnTable::new(["CPU", "Memory", "Disk"]);
    table.row([
        format!("{cpu}/{} MHz", has.cpu.cpu_shares - kept.cpu.cpu_shares),
        format!(
            "{}/{}",
            gib(memory),
            gib(has.memory.memory_mb - kept.memory.memory_mb)
        ),
        format!(
            "{}/{}",
            gib(disk),
            gib(has.disk.disk_mb - kept.disk.disk_mb)
        ),
    ]);
    out.head("Allocated Resources");
    out.line(&table.to_string());
}
