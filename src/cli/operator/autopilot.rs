//! `operator autopilot`.

use crate::cli::client::{Refused, is_status};
use crate::cli::columns::{Table, pairs};
use crate::cli::conn::{Conn, Past};
use crate::cli::out::Out;
use crate::cli::show::{Format, boolean, list, number, stamp, text};
use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::{Value as Json, json};

/// The configuration and the health of servers.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// Show the configuration
    GetConfig(GetArgs),
    /// Change the configuration
    SetConfig(SetArgs),
    /// Show the health of the servers
    Health(HealthArgs),
}

/// Flags of `operator autopilot get-config`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct GetArgs {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
}

/// Flags of `operator autopilot health`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct HealthArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
}

/// Flags of `operator autopilot set-config`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator autopilot set-config -cleanup-dead-servers=false -last-contact-threshold 500ms")]
pub(in crate::cli) struct SetArgs {
    #[command(flatten)]
    conn: Conn,
    /// Whether servers that are gone are removed
    #[arg(long, value_name = "BOOL")]
    cleanup_dead_servers: Option<bool>,
    /// How many entries a healthy server may be behind
    #[arg(long, value_name = "N")]
    max_trailing_logs: Option<u64>,
    /// How long a healthy server may be without contact with the leader, such as 200ms
    #[arg(long, value_name = "TIME")]
    last_contact_threshold: Option<String>,
    /// How long a new server has to be healthy before it votes, such as 10s
    #[arg(long, value_name = "TIME")]
    server_stabilization_time: Option<String>,
    /// How many servers are never removed
    #[arg(long, value_name = "N")]
    min_quorum: Option<u64>,
}

const PATH: &str = "/v1/operator/autopilot/configuration";

/// What all of it is for.
const ALONE: &str = "It is about other servers, which this version does not have: nothing acts on \
    it yet.";

/// Runs a verb.
pub(in crate::cli) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::GetConfig(args) => get(args, out).await,
        Verb::SetConfig(args) => set(args, out).await,
        Verb::Health(args) => health(args, out).await,
    }
}

async fn get(args: GetArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let failed = "Error querying Autopilot configuration";
    let Some(config) = args.format.ask(&client, (PATH, &[]), failed, out).await? else {
        return Ok(0);
    };
    let mut rows = Vec::new();
    for key in [
        "CleanupDeadServers",
        "LastContactThreshold",
        "MaxTrailingLogs",
        "MinQuorum",
        "ServerStabilizationTime",
        "EnableRedundancyZones",
        "DisableUpgradeMigration",
        "EnableCustomUpgrades",
    ] {
        rows.push((key, text(&config, key)));
    }
    out.line(&pairs(&rows));
    out.line(&format!("\n{ALONE}"));
    Ok(0)
}

async fn set(args: SetArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let config = client.get_json(PATH, &[]).await;
    let mut config = config.map_err(|err| err.context("Error querying Autopilot configuration"))?;
    let flag = |value: Option<bool>| value.map(Json::from);
    let size = |value: Option<u64>| value.map(Json::from);
    let span = |value: Option<String>| value.map(Json::from);
    let given = [
        ("CleanupDeadServers", flag(args.cleanup_dead_servers)),
        ("MaxTrailingLogs", size(args.max_trailing_logs)),
        ("LastContactThreshold", span(args.last_contact_threshold)),
        (
            "ServerStabilizationTime",
            span(args.server_stabilization_time),
        ),
        ("MinQuorum", size(args.min_quorum)),
    ];
    for (key, value) in given {
        if let Some(value) = value {
            config[key] = value;
        }
    }
    // What was read is what is changed: somebody else may have been faster.
    let cas = number(&config, "ModifyIndex").to_string();
    let done = client.put(PATH, &[("cas", &cas)], &config).await;
    let done = done.map_err(|err| err.context("Error updating Autopilot configuration"))?;
    if done != json!(true) {
        bail!("Somebody else changed the Autopilot configuration meanwhile; try again");
    }
    out.line(&format!("Configuration updated!\n\n{ALONE}"));
    Ok(0)
}

async fn health(args: HealthArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let answer = match client.get_json("/v1/operator/autopilot/health", &[]).await {
        Ok(answer) => answer,
        // Servers that are not all healthy are told with this status.
        Err(err) if is_status(&err, 429) => match err.downcast_ref::<Refused>() {
            Some(refused) => serde_json::from_str(&refused.text)?,
            None => return Err(err),
        },
        Err(err) => return Err(err.context("Error querying Autopilot health")),
    };
    if args.format.print(&answer, out)? {
        return Ok(0);
    }
    out.line(&pairs(&[
        ("Healthy", boolean(&answer, "Healthy").to_string()),
        (
            "FailureTolerance",
            number(&answer, "FailureTolerance").to_string(),
        ),
        ("Leader", text(&answer, "Leader")),
        (
            "Voters",
            format!("[{}]", crate::cli::show::joined(&answer, "Voters")),
        ),
    ]));
    let mut table = Table::new([
        "ID",
        "Name",
        "Address",
        "SerfStatus",
        "Version",
        "Leader",
        "Voter",
        "Healthy",
        "LastContact",
        "LastTerm",
        "LastIndex",
        "StableSince",
    ]);
    for server in list(&answer, "Servers") {
        let shown = |key: &str| text(server, key);
        table.row([
            shown("ID"),
            shown("Name"),
            shown("Address"),
            shown("SerfStatus"),
            shown("Version"),
            shown("Leader"),
            shown("Voter"),
            shown("Healthy"),
            shown("LastContact"),
            shown("LastTerm"),
            shown("LastIndex"),
            stamp(server, "StableSince"),
        ]);
    }
    out.head("Servers");
    out.line(&table.to_string());
    Ok(0)
}
