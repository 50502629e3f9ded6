//! `acl policy`

use super::super::client::{Query, encode};
use super::super::columns::{Table, pairs};
use super::super::conn::{Conn, Past};
use super::super::out::Out;
use super::super::show::{Format, text};
use super::super::spec::source;
use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value as Json, json};

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
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// Its name
    name: String,
}

/// Flags of `acl policy list` and `acl policy self`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Apply(args) => apply(args, out).await?,
        Verb::Delete(args) => {
            let path = format!("/v1/acl/policy/{}", encode(&args.name));
            let done = args.conn.client()?.delete(&path, &[], None).await;
            done.map_err(|err| err.context("Error deleting ACL policy"))?;
            out.line(&format!("Successfully deleted {} policy!", args.name));
        }
        Verb::Info(args) => info(args, out).await?,
        Verb::List(args) => {
            let rows = [("Name", "Name"), ("Description", "Description")];
            list(&args, "/v1/acl/policies", &rows, out).await?;
        }
        Verb::Own(args) => {
            let rows = [
                ("Name", "Name"),
                ("Job ID", "JobID"),
                ("Group Name", "Group"),
                ("Task Name", "Task"),
            ];
            list(&args, "/v1/acl/policy/self", &rows, out).await?;
        }
    }
    Ok(0)
}

async fn apply(args: ApplyArgs, out: &Out) -> Result<()> {
    let mut policy = json!({
        "Name": args.name,
        "Description": args.description,
        "Rules": source(&args.rules)?,
    });
    let attached = [&args.job, &args.group, &args.task];
    if attached.iter().any(|name| !name.is_empty()) {
        let namespace = match args.conn.namespace.as_str() {
            "" => "default",
            named => named,
        };
        policy["JobACL"] = json!({
            "Namespace": namespace,
            "JobID": args.job,
            "Group": args.group,
            "Task": args.task,
        });
    }
    let path = format!("/v1/acl/policy/{}", encode(&args.name));
    let done = args.conn.client()?.put(&path, &[], &policy).await;
    done.map_err(|err| err.context("Error writing ACL policy"))?;
    out.line(&format!("Successfully wrote {:?} ACL policy!", args.name));
    Ok(())
}

async fn info(args: InfoArgs, out: &Out) -> Result<()> {
    let path = format!("/v1/acl/policy/{}", encode(&args.name));
    let client = args.conn.client()?;
    let asked: (&str, Query<'_>) = (&path, &[]);
    let failed = "Error fetching info on ACL policy";
    let Some(policy) = args.format.ask(&client, asked, failed, out).await? else {
        return Ok(());
    };
    out.line(&pairs(&[
        ("Name", text(&policy, "Name")),
        ("Description", text(&policy, "Description")),
        ("CreateIndex", text(&policy, "CreateIndex")),
        ("ModifyIndex", text(&policy, "ModifyIndex")),
    ]));
    let job = &policy["JobACL"];
    if job.is_object() {
        out.head("Associated Workload");
        out.line(&pairs(&[
            ("Namespace", text(job, "Namespace")),
            ("JobID", text(job, "JobID")),
            ("Group", text(job, "Group")),
            ("Task", text(job, "Task")),
        ]));
    }
    out.head("Rules");
    out.line(&format!("\n{}", text(&policy, "Rules")));
    Ok(())
}

/// A list of policies; fields that a policy does not have are those of the job it is attached to.
async fn list(
    args: &ListArgs,
    path: &str,
    columns: &[(&'static str, &str)],
    out: &Out,
) -> Result<()> {
    let client = args.conn.client()?;
    let failed = "Error listing ACL policies";
    let Some(all) = args.format.ask(&client, (path, &[]), failed, out).await? else {
        return Ok(());
    };
    let mut table = Table::with_head(columns.iter().map(|(head, _)| *head).collect());
    for policy in all.as_array().into_iter().flatten() {
        let cell = |key: &str| match &policy[key] {
            Json::Null => text(&policy["JobACL"], key),
            _ => text(policy, key),
        };
        table.row(columns.iter().map(|(_, key)| cell(key)));
    }
    out.line(&match table.is_empty() {
        true => "No policies found".to_owned(),
        false => table.to_string(),
    });
    Ok(())
}
