//! The `scaling` noun.

use super::columns::{ColumnTable, pairs};
use super::conn::PastConnection;
use super::out::Out;
use super::query::find;
use super::show::{Format, pretty, short};
use anyhow::Result;
use clap::Subcommand;
use drover_events::gojson::Map;
use drover_events::model::{ScalingPolicy, ScalingPolicyListStub};
use serde_json::json;

/// What can be done with scaling.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Work with scaling policies
    #[command(subcommand)]
    Policy(Policy),
}

/// What can be done with scaling policies.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Policy {
    /// List scaling policies
    List(ListArgs),
    /// Show a scaling policy
    Info(InfoArgs),
}

/// Flags of `scaling policy list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// Only policies of this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only policies of this type: horizontal, vertical_cpu, vertical_mem, cluster
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `scaling policy info`.
#[derive(Debug, clap::Args)]
pub(super) struct InfoArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// The policy's ID or a prefix of it
    policy: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    let Verb::Policy(verb) = verb;
    match verb {
        Policy::List(args) => list(args, out).await,
        Policy::Info(args) => info(args, out).await,
    }
}

/// What a policy is about, each part as `Job:web`.
fn reported(target: &Map<String>) -> String {
    let parts = ["Namespace", "Job", "Group", "Task"];
    let given = parts.iter().filter_map(|part| {
        let value = target.get(*part)?;
        (!value.is_empty()).then(|| format!("{part}:{value}"))
    });
    given.collect::<Vec<_>>().join(",")
}

async fn list(args: ListArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let given = [("job", &args.job), ("type", &args.kind)];
    let query: Vec<(&str, &str)> = given
        .iter()
        .filter_map(|(key, value)| Some((*key, value.as_deref()?)))
        .collect();
    let failed = "Error listing scaling policies";
    let requested = ("/v1/scaling/policies", &query[..]);
    let all = args.format.ask(&client, requested, failed, out).await?;
    let Some(mut all): Option<Vec<ScalingPolicyListStub>> = all else {
        return Ok(0);
    };
    if all.is_empty() {
        out.line("No policies found");
        return Ok(0);
    }
    all.sort_by_key(|policy| (reported(&policy.target), policy.r#type.clone()));
    let mut table = ColumnTable::new(["ID", "Enabled", "Type", "Target"]);
    for policy in all {
        table.row([
            short(&policy.id, args.verbose),
            policy.enabled.to_string(),
            policy.r#type,
            reported(&policy.target),
        ]);
    }
    out.line(&table.to_string());
    Ok(0)
}

async fn info(args: InfoArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub: ScalingPolicyListStub = find(&client, &args.policy).await?;
    let path = format!("/v1/scaling/policy/{}", stub.id);
    let space = stub.target.get("Namespace").map_or("", String::as_str);
    let requested = (path.as_str(), &[("namespace", space)][..]);
    let failed = "Error querying scaling policy";
    let policy = args
        .format
        .ask::<ScalingPolicy>(&client, requested, failed, out);
    let Some(policy) = policy.await? else {
        return Ok(0);
    };
    out.line(&pairs(&[
        ("ID", short(&policy.id, args.verbose)),
        ("Enabled", policy.enabled.to_string()),
        ("Target", reported(&policy.target)),
        ("Min", policy.min.to_string()),
        ("Max", policy.max.to_string()),
    ]));
    out.head("Policy:");
    out.line(&match policy.policy.is_empty() {
        true => "<empty>".to_owned(),
        false => pretty(&json!(policy.policy)),
    });
    Ok(0)
}
