//! `acl policy`

use super::super::client::{Query, encode};
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::{Conn, PastConnection};
use super::super::out::Out;
use super::super::show::Format;
use super::super::spec::source;
use anyhow::Result;
use clap::Subcommand;
use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_events::model::{AclPolicy, AclPolicyListStub, JobAcl};
use serde::de::IgnoredAny;
use serde_json::json;

/// What can be done with policies.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// Create or change a policy
    Apply(ApplyArgs),
    /// Delete a policy
    Delete(DeleteArgs),
    /// Show a policy
    Info(InfoArgs),
    /// List policies
    List(ListArgs),
    /// List the policies that the token in use holds
    #[command(name = "self")]
    Own(ListArgs),
}

/// Flags of `acl policy apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover acl policy apply -description 'reads all' reader reader.hcl
  drover acl policy apply -namespace shops -job web web-vars vars.hcl")]
pub(in crate::cli) struct ApplyArgs {
    #[command(flatten)]
    conn: Conn,
    /// What it is for
    #[arg(long, default_value = "")]
    description: String,
    /// Attach it to this job of -namespace
    #[arg(long, default_value = "")]
    job: String,
    /// Attach it to this group of -job
    #[arg(long, default_value = "")]
    group: String,
    /// Attach it to this task of -group
    #[arg(long, default_value = "")]
    task: String,
    /// Its name
    name: String,
    /// A file with its rules, HCL or JSON; - reads standard input
    #[arg(value_name = "PATH")]
    rules: String,
}

/// Flags of `acl policy delete`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its name
    name: String,
}

/// Flags of `acl policy info`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct InfoArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// Its name
    name: String,
}

/// Flags of `acl policy list` and `acl policy self`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Apply(args) => apply(args, out).await?,
        Verb::Delete(args) => {
            let path = format!("/v1/acl/policy/{}", encode(&args.name));
            let client = args.conn.client()?;
            let done = client.delete::<IgnoredAny>(&path, &[], None).await;
            done.map_err(|err| err.context("Error deleting ACL policy"))?;
            out.line(&format!("Successfully deleted {} policy!", args.name));
        }
        Verb::Info(args) => info(args, out).await?,
        Verb::List(args) => {
            let row = |policy: AclPolicyListStub| [policy.name, policy.description];
            let shown = (["Name", "Description"], row);
            list(&args, "/v1/acl/policies", shown, out).await?;
        }
        Verb::Own(args) => {
            let row = |policy: AclPolicyListStub| {
                let JobAcl {
                    job_id,
                    group,
                    task,
                    ..
                } = policy.job_acl.unwrap_or_default();
                [policy.name, job_id, group, task]
            };
            let shown = (["Name", "Job ID", "Group Name", "Task Name"], row);
            list(&args, "/v1/acl/policy/self", shown, out).await?;
        }
    }
    Ok(0)
}

async fn apply(args: ApplyArgs, out: &Out) -> Result<()> {
    let attached = [&args.job, &args.group, &args.task];
    let attached = attached.iter().any(|name| !name.is_empty());
    let job = attached.then(|| {
        let namespace = match args.conn.namespace.as_str() {
            "" => DEFAULT_NAMESPACE,
            named => named,
        };
        json!({
            "Namespace": namespace,
            "JobID": args.job,
            "Group": args.group,
            "Task": args.task,
        })
    });
    let policy = json!({
        "Name": args.name,
        "Description": args.description,
        "Rules": source(&args.rules)?,
        "JobACL": job,
    });
    let path = format!("/v1/acl/policy/{}", encode(&args.name));
    let client = args.conn.client()?;
    let done = client.put::<IgnoredAny>(&path, &[], &policy).await;
    done.map_err(|err| err.context("Error writing ACL policy"))?;
    out.line(&format!("Successfully wrote {:?} ACL policy!", args.name));
    Ok(())
}

async fn info(args: InfoArgs, out: &Out) -> Result<()> {
    let path = format!("/v1/acl/policy/{}", encode(&args.name));
    let client = args.conn.client()?;
    let requested: (&str, Query<'_>) = (&path, &[]);
    let failed = "Error fetching info on ACL policy";
    let policy = args
        .format
        .ask::<AclPolicy>(&client, requested, failed, out);
    let Some(policy) = policy.await? else {
        return Ok(());
    };
    out.line(&pairs(&[
        ("Name", policy.name),
        ("Description", policy.description),
        ("CreateIndex", policy.create_index.to_string()),
        ("ModifyIndex", policy.modify_index.to_string()),
    ]));
    if let Some(job) = policy.job_acl {
        out.head("Associated Workload");
        out.line(&pairs(&[
            ("Namespace", job.namespace),
            ("JobID", job.job_id),
            ("Group", job.group),
            ("Task", job.task),
        ]));
    }
    out.head("Rules");
    out.line(&format!("\n{}", policy.rules));
    Ok(())
}

/// A list of policies, under a head, each in a row.
async fn list<const N: usize>(
    args: &ListArgs,
    path: &str,
    (head, row): ([&str; N], impl Fn(AclPolicyListStub) -> [String; N]),
    out: &Out,
) -> Result<()> {
    let client = args.conn.client()?;
    let failed = "Error listing ACL policies";
    let all = args.format.ask(&client, (path, &[]), failed, out).await?;
    let Some(all): Option<Vec<AclPolicyListStub>> = all else {
        return Ok(());
    };
    let mut table = ColumnTable::new(head);
    for policy in all {
        table.row(row(policy));
    }
    out.line(&match table.is_empty() {
        true => "No policies found".to_owned(),
        false => table.to_string(),
    });
    Ok(())
}
