//! The `scaling` noun.

use super::columns::{Table, pairs};
use super::conn::Past;
use super::out::Out;
use super::query::{Thing, find};
use super::show::{Format, boolean, number, pretty, short, text};
use anyhow::Result;
use clap::Subcommand;
use serde_json::Value as Json;

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
    conn: Past,
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
    conn: Past,
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
fn target(policy: &Json) -> String {
    let parts = ["Namespace", "Job", "Group", "Task"];
    let given = parts.iter().filter_map(|part| {
        let value = policy["Target"][part].as_str()?;
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
    let Some(all) = args
        .format
        .ask(&client, ("/v1/scaling/policies", &query), failed, out)
        .await?
    else {
        return Ok(0);
    };
    let mut all: Vec<&Json> = all.as_array().into_iter().flatten().collect();
    if all.is_empty() {
        out.line("No policies found");
        return Ok(0);
    }
    all.sort_by_key(|policy| (target(policy), text(policy, "Type")));
    let mut table = Table::new(["ID", "Enabled", "Type", "Target"]);
    for policy in all {
        table.row([
            short(&text(policy, "ID"), args.verbose),
            boolean(policy, "Enabled").to_string(),
            text(policy, "Type"),
            target(policy),
        ]);
    }
    out.line(&table.to_string());
    Ok(0)
}

async fn info(args: InfoArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub = find(&client, Thing::ScalingPolicy, &args.policy).await?;
    let path = format!("/v1/scaling/policy/{}", text(&stub, "ID"));
    let space = text(&stub["Target"], "Namespace");
    let failed = "Error querying scaling policy";
    let Some(policy) = args
        .format
        .ask(
            &client,
            (&path, &[("namespace", space.as_str())]),
            failed,
            out,
        )
        .await?
    else {
        return Ok(0);
    };
    out.line(&pairs(&[
        ("ID", short(&text(&policy, "ID"), args.verbose)),
        ("Enabled", boolean(&policy, "Enabled").to_string()),
        ("Target", target(&policy)),
        ("Min", number(&policy, "Min").to_string()),
        ("Max", number(&policy, "Max").to_string()),
    ]));
    out.head("Policy:");
    out.line(&match &policy["Policy"] {
        Json::Null => "<empty>".to_owned(),
        Json::Object(fields) if fields.is_empty() => "<empty>".to_owned(),
        told => pretty(told),
    });
    Ok(0)
}
