//! The `operator` noun.

pub(super) mod api;
pub(super) mod autopilot;

use super::columns::{Table, pairs};
use super::conn::{Conn, Past};
use super::out::Out;
use super::reactors;
use super::show::{Format, boolean, list, number, text};
use super::snapshot;
use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::{Value as Json, json};

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
    conn: Past,
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
    let Some(answer) = args.format.ask(&client, (PATH, &[]), failed, out).await? else {
        return Ok(0);
    };
    let config = &answer["SchedulerConfig"];
    let preempt = &config["PreemptionConfig"];
    let mut rows = vec![
        ("Scheduler Algorithm", text(config, "SchedulerAlgorithm")),
        (
            "Memory Oversubscription",
            boolean(config, "MemoryOversubscriptionEnabled").to_string(),
        ),
        (
            "Reject Job Registration",
            boolean(config, "RejectJobRegistration").to_string(),
        ),
        (
            "Pause Eval Broker",
            boolean(config, "PauseEvalBroker").to_string(),
        ),
    ];
    let limit = number(config, "NodeLimitForFeasibilityChecks");
    if limit > 0 {
        rows.push(("Node Limit For Feasibility Checks", limit.to_string()));
    }
    for (name, key) in [
        ("Preemption System Scheduler", "SystemSchedulerEnabled"),
        ("Preemption Service Scheduler", "ServiceSchedulerEnabled"),
        ("Preemption Batch Scheduler", "BatchSchedulerEnabled"),
        ("Preemption SysBatch Scheduler", "SysBatchSchedulerEnabled"),
    ] {
        rows.push((name, boolean(preempt, key).to_string()));
    }
    rows.push(("Modify Index", number(config, "ModifyIndex").to_string()));
    out.line(&pairs(&rows));
    out.line("\nNothing is preempted in this version, whatever is configured.");
    Ok(0)
}

async fn set(args: SetArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let current = client.get_json(PATH, &[]).await;
    let mut config = current
        .map_err(|err| err.context("Error querying scheduler configuration"))?["SchedulerConfig"]
        .take();
    if !config.is_object() {
        config = json!({});
    }
    let flag = |key: &'static str, value: Option<bool>| value.map(|v| (key, Json::Bool(v)));
    let top = [
        args.scheduler_algorithm
            .map(|v| ("SchedulerAlgorithm", Json::String(v))),
        flag(
            "MemoryOversubscriptionEnabled",
            args.memory_oversubscription,
        ),
        flag("RejectJobRegistration", args.reject_job_registration),
        flag("PauseEvalBroker", args.pause_eval_broker),
        args.node_limit_for_feasibility_checks
            .map(|n| ("NodeLimitForFeasibilityChecks", n.into())),
    ];
    for (key, value) in top.into_iter().flatten() {
        config[key] = value;
    }
    if !config["PreemptionConfig"].is_object() {
        config["PreemptionConfig"] = json!({});
    }
    let preempt = [
        flag("BatchSchedulerEnabled", args.preempt_batch_scheduler),
        flag("ServiceSchedulerEnabled", args.preempt_service_scheduler),
        flag("SysBatchSchedulerEnabled", args.preempt_sysbatch_scheduler),
        flag("SystemSchedulerEnabled", args.preempt_system_scheduler),
    ];
    for (key, value) in preempt.into_iter().flatten() {
        config["PreemptionConfig"][key] = value;
    }
    let cas = args.check_index.map(|n| n.to_string());
    if let Some(index) = args.check_index {
        config["ModifyIndex"] = index.into();
    }
    let query: Vec<(&str, &str)> = cas.iter().map(|n| ("cas", n.as_str())).collect();
    let answer = client.put(PATH, &query, &config).await;
    let answer = answer.map_err(|err| err.context("Error updating scheduler configuration"))?;
    if cas.is_some() && !boolean(&answer, "Updated") {
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
    let asked = ("/v1/operator/raft/configuration", stale);
    let failed = "Failed to retrieve raft configuration";
    let Some(answer) = args.format.ask(&client, asked, failed, out).await? else {
        return Ok(0);
    };
    let mut table = Table::new(["Node", "ID", "Address", "State", "Voter", "RaftProtocol"]);
    for server in list(&answer, "Servers") {
        let state = if boolean(server, "Leader") {
            "leader"
        } else {
            "follower"
        };
        table.row([
            text(server, "Node"),
            text(server, "ID"),
            text(server, "Address"),
            state.to_owned(),
            boolean(server, "Voter").to_string(),
            text(server, "RaftProtocol"),
        ]);
    }
    out.line(&table.to_string());
    Ok(0)
}
