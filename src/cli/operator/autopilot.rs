//! `operator autopilot`.

use crate::cli::answer;
use crate::cli::client::{Refused, is_status};
use crate::cli::columns::{ColumnTable, pairs};
use crate::cli::conn::{Conn, PastConnection};
use crate::cli::merge;
use crate::cli::out::Out;
use crate::cli::show::{Format, stamp};
use crate::http::answers::HealthReply;
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::gojson::format_duration;
use drover_events::model::AutopilotConfiguration;
use serde_json::Value as Json;

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
    conn: PastConnection,
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
    let config = args.format.ask(&client, (PATH, &[]), failed, out).await?;
    let Some(config): Option<AutopilotConfiguration> = config else {
        return Ok(0);
    };
    let flag = |set: bool| set.to_string();
    out.line(&pairs(&[
        ("CleanupDeadServers", flag(config.cleanup_dead_servers)),
        (
            "LastContactThreshold",
            format_duration(config.last_contact_threshold.0),
        ),
        ("MaxTrailingLogs", config.max_trailing_logs.to_string()),
        ("MinQuorum", config.min_quorum.to_string()),
        (
            "ServerStabilizationTime",
            format_duration(config.server_stabilization_time.0),
        ),
        (
            "EnableRedundancyZones",
            flag(config.enable_redundancy_zones),
        ),
        (
            "DisableUpgradeMigration",
            flag(config.disable_upgrade_migration),
        ),
        ("EnableCustomUpgrades", flag(config.enable_custom_upgrades)),
    ]));
    out.line(&format!("\n{ALONE}"));
    Ok(0)
}

async fn set(args: SetArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let failed = "Error querying Autopilot configuration";
    let mut config = merge::current(&client, PATH, failed).await?;
    // What was read is what is changed: another operator may have been faster.
    let read: AutopilotConfiguration = answer::of(Json::Object(config.clone())).unwrap_or_default();
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
    merge::set(&mut config, given);
    let cas = read.modify_index.to_string();
    let done = client.put(PATH, &[("cas", &cas)], &config).await;
    let done: bool = done.map_err(|err| err.context("Error updating Autopilot configuration"))?;
    if !done {
        bail!("Somebody else changed the Autopilot configuration meanwhile; try again");
    }
    out.line(&format!("Configuration updated!\n\n{ALONE}"));
    Ok(0)
}

async fn health(args: HealthArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let answer: Json = match client.fetch("/v1/operator/autopilot/health", &[]).await {
        Ok(answer) => answer,
        // The agent answers with this status where not all servers are healthy.
        Err(err) if is_status(&err, 429) => match err.downcast_ref::<Refused>() {
            Some(refused) => answer::read(refused.text.as_bytes())?,
            None => return Err(err),
        },
        Err(err) => return Err(err.context("Error querying Autopilot health")),
    };
    if args.format.print(&answer, out)? {
        return Ok(0);
    }
    let answer: HealthReply = answer::of(answer)?;
    out.line(&pairs(&[
        ("Healthy", answer.healthy.to_string()),
        ("FailureTolerance", answer.failure_tolerance.to_string()),
        ("Leader", answer.leader),
        ("Voters", format!("[{}]", answer.voters.join(","))),
    ]));
    let mut table = ColumnTable::new([
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
    for server in answer.servers {
        table.row([
            server.id,
            server.name,
            server.address,
            server.serf_status,
            server.version,
            server.leader.to_string(),
            server.voter.to_string(),
            server.healthy.to_string(),
            format_duration(server.last_contact.0),
            server.last_term.to_string(),
            server.last_index.to_string(),
            stamp(server.stable_since.0),
        ]);
    }
    out.head("Servers");
    out.line(&table.to_string());
    Ok(0)
}
