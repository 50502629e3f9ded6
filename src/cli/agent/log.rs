//! `monitor` and `monitor export`: the log of an agent, as it is written and as it was.

use crate::cli::client::{Client, Query};
use crate::cli::conn::Conn;
use crate::cli::out::Out;
use crate::cli::query::find;
use crate::http::answers::NodeListStub;
use anyhow::{Result, bail};
use clap::Subcommand;

/// Flags of `monitor`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  drover monitor
  drover monitor -log-level debug -node-id 8ba85cef
  drover monitor -json -server-id leader | jq .
  drover monitor export -on-disk > agent.log
  drover monitor export -service-name nomad -logs-since 2h -follow

It shows what is logged from now on, at a level of its own, whatever the agent's log_level is. A
reader that is too slow misses lines, and a line says how many. Ctrl-C ends it.")]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    whose: Whose,
    /// The least level: trace, debug, info, warn or error
    #[arg(long, value_name = "LEVEL", default_value = "INFO")]
    log_level: String,
    /// Source file and line in each record
    #[arg(long)]
    log_include_location: bool,
    /// JSON lines in place of text
    #[arg(long)]
    json: bool,
}

/// What else can be done with logs of agents.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Print what an agent logged before
    Export(ExportArgs),
}

/// Whose log.
#[derive(Debug, clap::Args)]
struct Whose {
    /// The client with this id or prefix of it, in place of the agent that is called
    #[arg(long, value_name = "ID", conflicts_with = "server_id")]
    node_id: Option<String>,
    /// The server of this name or id, or leader
    #[arg(long, value_name = "NAME")]
    server_id: Option<String>,
}

impl Whose {
    /// The parameters that name it.
    async fn query(&self, client: &Client) -> Result<Vec<(&'static str, String)>> {
        let mut query = Vec::new();
        if let Some(node) = &self.node_id {
            let NodeListStub { id, .. } = find(client, node).await?;
            query.push(("node_id", id));
        }
        query.extend(self.server_id.clone().map(|name| ("server_id", name)));
        Ok(query)
    }
}

/// Flags of `monitor export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover monitor export -on-disk
  drover monitor export -service-name drover.service -logs-since 30m
  drover monitor export -node-id 8ba85cef -service-name nomad -follow")]
struct ExportArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    whose: Whose,
    /// The file that the agent logs to (log_file)
    #[arg(long)]
    on_disk: bool,
    /// The journal of this service of the agent's machine; its name holds nomad or drover
    #[arg(long, value_name = "NAME")]
    service_name: Option<String>,
    /// How far back the journal is read
    #[arg(long, value_name = "DURATION", default_value = "72h")]
    logs_since: String,
    /// Follow what is logged from then on
    #[arg(short, long)]
    follow: bool,
}

/// Prints a log.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    if let Some(Verb::Export(args)) = args.verb {
        return export(args, out).await;
    }
    let client = args.conn.client()?;
    let mut query = args.whose.query(&client).await?;
    query.push(("log_level", args.log_level));
    query.push(("log_json", args.json.to_string()));
    query.push((
        "log_include_location",
        args.log_include_location.to_string(),
    ));
    print(&client, "/v1/agent/monitor", query, out).await
}

async fn export(args: ExportArgs, out: &Out) -> Result<u8> {
    if !args.on_disk && args.service_name.is_none() {
        bail!("Either -service-name or -on-disk must be set");
    }
    let client = args.conn.client()?;
    let mut query = args.whose.query(&client).await?;
    query.push(("on_disk", args.on_disk.to_string()));
    query.push(("logs_since", args.logs_since));
    query.push(("follow", args.follow.to_string()));
    query.extend(args.service_name.map(|name| ("service_name", name)));
    print(&client, "/v1/agent/monitor/export", query, out).await
}

/// Prints what comes until it ends, or until it is enough.
async fn print(
    client: &Client,
    path: &str,
    mut query: Vec<(&'static str, String)>,
    out: &Out,
) -> Result<u8> {
    query.push(("plain", "true".to_owned()));
    let query: Vec<(&str, &str)> = query.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let requested: Query<'_> = &query;
    let stream = client.stream(path, requested).await;
    let mut stream = stream.map_err(|err| err.context("Error reading the agent's log"))?;
    loop {
        let chunk = tokio::select! {
            chunk = stream.chunk() => chunk?,
            _ = tokio::signal::ctrl_c() => return Ok(0),
        };
        match chunk {
            Some(chunk) => out.raw(&chunk),
            None => return Ok(0),
        }
    }
}
