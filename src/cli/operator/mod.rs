//! The `operator` noun.

pub(super) mod api;
pub(super) mod autopilot;

use super::columns::{ColumnTable, pairs};
use super::conn::{Conn, PastConnection};
use super::merge;
use super::out::Out;
use super::reactors;
use super::show::Format;
use super::snapshot;
use crate::http::answers::{SchedulerConfigurationResponse, SchedulerSetResponse};
use crate::server::member_shapes::RaftConfigurationResponse;
use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::Value as Json;

/// Tools for cluster operators.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// The scheduler's configuration
    #[command(subcommand)]
    Scheduler(Scheduler),
    /// The servers of Raft
    #[command(subcommand)]
    Raft(Raft),
    /// Backups of the cluster
    #[command(subcommand)]
    Snapshot(snapshot::Verb),
    /// What follows from events, and how far the event publisher is
    Reactors(reactors::Args),
    /// Capture logs, profiles and state of a cluster in one archive
    Debug(Box<super::debug::Args>),
    /// Make any request of the API
    Api(api::Args),
    /// Print the metrics of an agent
    Metrics(api::MetricsArgs),
    /// The configuration and the health of servers
    #[command(subcommand)]
    Autopilot(autopilot::Verb),
}

/// The scheduler's configuration.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Scheduler {
    /// Show the scheduler's configuration
    GetConfig(GetArgs),
    /// Change the scheduler's configuration
    SetConfig(SetArgs),
}

/// The servers of Raft.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Raft {
    /// List the servers
    ListPeers(PeersArgs),
}

/// Flags of `operator scheduler get-config`.
#[derive(Debug, clap::Args)]
pub(super) struct GetArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
}

/// Flags of `operator scheduler set-config`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator scheduler set-config -scheduler-algorithm spread
  drover operator scheduler set-config -pause-eval-broker true -check-index 10")]
pub(super) struct SetArgs {
    #[command(flatten)]
    conn: Conn,
    /// Change it only if its modify index is this
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// binpack or spread
    #[arg(long, value_name = "NAME")]
    scheduler_algorithm: Option<String>,
    /// Whether memory_max counts
    #[arg(long, value_name = "BOOL")]
    memory_oversubscription: Option<bool>,
    /// Refuse registrations of all but management tokens
    #[arg(long, value_name = "BOOL")]
    reject_job_registration: Option<bool>,
    /// Pause the evaluation broker
    #[arg(long, value_name = "BOOL")]
    pause_eval_broker: Option<bool>,
    /// Preemption for batch jobs
    #[arg(long, value_name = "BOOL")]
    preempt_batch_scheduler: Option<bool>,
    /// Preemption for service jobs
    #[arg(long, value_name = "BOOL")]
    preempt_service_scheduler: Option<bool>,
    /// Preemption for sysbatch jobs
    #[arg(long, value_name = "BOOL")]
    preempt_sysbatch_scheduler: Option<bool>,
    /// Preemption for system jobs
    #[arg(long, value_name = "BOOL")]
    preempt_system_scheduler: Option<bool>,
    /// How many nodes are looked at for one placement
    #[arg(long, value_name = "N")]
    node_limit_for_feasibility_checks: Option<u32>,
}

/// Flags of `operator raft list-peers`.
#[derive(Debug, clap::Args)]
pub(super) struct PeersArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Any server may answer
    #[arg(long)]
    stale: bool,
}

const PATH: &str = "/v1/operator/scheduler/configuration";

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Scheduler(Scheduler::GetConfig(args)) => get(args, out).await,
        Verb::Scheduler(Scheduler::SetConfig(args)) => set(args, out).await,
        Verb::Raft(Raft::ListPeers(args)) => peers(args, out).await,
        Verb::Snapshot(verb) => snapshot::run(verb, out).await,
        Verb::Reactors(args) => reactors::run(args, out).await,
        Verb::Debug(args) => Box::pin(super::debug::run(*args, out)).await,
        Verb::Api(args) => api::run(args, out).await,
        Verb::Metrics(args) => api::metrics(args, out).await,
        Verb::Autopilot(verb) => autopilot::run(verb, out).await,
    }
}

async fn get(args: GetArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let failed = "Error querying scheduler configuration";
    let answer = args.format.ask(&client, (PATH, &[]), failed, out).await?;
    let Some(answer): Option<SchedulerConfigurationResponse> = answer else {
        return Ok(0);
    };
    let config = answer.scheduler_config.unwrap_or_default();
    let preempt = config.preemption_config;
    let mut rows = vec![
        ("Scheduler Algorithm", config.scheduler_algorithm),
        (
            "Memory Oversubscription",
            config.memory_oversubscription_enabled.to_string(),
        ),
        (
            "Reject Job Registration",
            config.reject_job_registration.to_string(),
        ),
        ("Pause Eval Broker", config.pause_eval_broker.to_string()),
    ];
    let limit = config.node_limit_for_feasibility_checks;
    if limit > 0 {
        rows.push(("Node Limit For Feasibility Checks", limit.to_string()));
    }
    for (name, enabled) in [
        (
            "Preemption System Scheduler",
            preempt.system_scheduler_enabled,
        ),
        (
            "Preemption Service Scheduler",
            preempt.service_scheduler_enabled,
        ),
        (
            "Preemption Batch Scheduler",
            preempt.batch_scheduler_enabled,
        ),
        (
            "Preemption SysBatch Scheduler",
            preempt.sys_batch_scheduler_enabled,
        ),
    ] {
        rows.push((name, enabled.to_string()));
    }
    rows.push(("Modify Index", config.modify_index.to_string()));
    out.line(&pairs(&rows));
    out.line("\nNothing is preempted in this version, whatever is configured.");
    Ok(0)
}

async fn set(args: SetArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let failed = "Error querying scheduler configuration";
    let mut current = merge::current(&client, PATH, failed).await?;
    let mut config = merge::part(&mut current, "SchedulerConfig");
    let mut preempt = merge::part(&mut config, "PreemptionConfig");
    let flag = |value: Option<bool>| value.map(Json::from);
    let given = [
        (
            "SystemSchedulerEnabled",
            flag(args.preempt_system_scheduler),
        ),
        (
            "SysBatchSchedulerEnabled",
            flag(args.preempt_sysbatch_scheduler),
        ),
        ("BatchSchedulerEnabled", flag(args.preempt_batch_scheduler)),
        (
            "ServiceSchedulerEnabled",
            flag(args.preempt_service_scheduler),
        ),
    ];
    merge::set(&mut preempt, given);
    let limit = args.node_limit_for_feasibility_checks;
    let given = [
        (
            "SchedulerAlgorithm",
            args.scheduler_algorithm.map(Json::from),
        ),
        ("PreemptionConfig", Some(Json::Object(preempt))),
        (
            "MemoryOversubscriptionEnabled",
            flag(args.memory_oversubscription),
        ),
        ("RejectJobRegistration", flag(args.reject_job_registration)),
        ("PauseEvalBroker", flag(args.pause_eval_broker)),
        ("NodeLimitForFeasibilityChecks", limit.map(Json::from)),
        ("ModifyIndex", args.check_index.map(Json::from)),
    ];
    merge::set(&mut config, given);
    let cas = args.check_index.map(|n| n.to_string());
    let query: Vec<(&str, &str)> = cas.iter().map(|n| ("cas", n.as_str())).collect();
    let answer = client.put(PATH, &query, &config).await;
    let answer: SchedulerSetResponse =
        answer.map_err(|err| err.context("Error updating scheduler configuration"))?;
    if cas.is_some() && !answer.updated {
        bail!("Scheduler configuration could not be atomically updated, please try again");
    }
    out.line("Scheduler configuration updated!");
    Ok(0)
}

async fn peers(args: PeersArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stale: &[(&str, &str)] = if args.stale {
        &[("stale", "true")]
    } else {
        &[]
    };
    let requested = ("/v1/operator/raft/configuration", stale);
    let failed = "Failed to retrieve raft configuration";
    let answer = args.format.ask(&client, requested, failed, out).await?;
    let Some(answer): Option<RaftConfigurationResponse> = answer else {
        return Ok(0);
    };
    let mut table = ColumnTable::new(["Node", "ID", "Address", "State", "Voter", "RaftProtocol"]);
    for server in answer.servers {
        let state = if server.leader { "leader" } else { "follower" };
        table.row([
            server.node,
            server.id,
            server.address,
            state.to_owned(),
            server.voter.to_string(),
            server.raft_protocol,
        ]);
    }
    out.line(&table.to_string());
    Ok(0)
}
