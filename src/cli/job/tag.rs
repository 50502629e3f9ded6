//! `job tag apply` and `job tag unset`

use super::super::client::encode;
use super::super::conn::Conn;
use super::super::out::Out;
use super::FoundJob;
use anyhow::Result;
use clap::Subcommand;
use drover_events::model::Job;
use serde::de::IgnoredAny;
use serde_json::json;

/// What can be done with the names of versions.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// Name a version; it is kept until the name is taken away
    Apply(ApplyArgs),
    /// Take a name away
    Unset(UnsetArgs),
}

/// Flags of `job tag apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job tag apply -name golden -version 3 web")]
pub(in crate::cli) struct ApplyArgs {
    #[command(flatten)]
    conn: Conn,
    /// The job's ID or a prefix of it
    job: String,
    /// The name
    #[arg(long)]
    name: String,
    /// What it is for
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// The version; the latest by default
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

/// Flags of `job tag unset`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct UnsetArgs {
    #[command(flatten)]
    conn: Conn,
    /// The job's ID or a prefix of it
    job: String,
    /// The name
    #[arg(long)]
    name: String,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Apply(args) => apply(args, out).await,
        Verb::Unset(args) => unset(args, out).await,
    }
}

fn path(job: &FoundJob, name: &str) -> String {
    job.path(&format!("/versions/{}/tag", encode(name)))
}

async fn apply(args: ApplyArgs, out: &Out) -> Result<u8> {
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let version = match args.version {
        Some(version) => version,
        None => {
            let found = job.get::<Job>("").await;
            let found = found.map_err(|err| err.context("Error querying job"))?;
            found.version
        }
    };
    let body = json!({ "Version": version, "Description": args.description });
    let done = job
        .client
        .put::<IgnoredAny>(&path(&job, &args.name), &job.scope(), &body)
        .await;
    done.map_err(|err| err.context("Error tagging job version"))?;
    let name = &args.name;
    out.line(&format!("Job version {version} tagged with name {name:?}"));
    Ok(0)
}

async fn unset(args: UnsetArgs, out: &Out) -> Result<u8> {
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let path = path(&job, &args.name);
    let scope = job.scope();
    let done = job.client.delete::<IgnoredAny>(&path, &scope, None).await;
    done.map_err(|err| err.context("Error removing tag from job version"))?;
    let (name, id) = (&args.name, &job.id);
    out.line(&format!("Tag {name:?} removed from job {id:?}"));
    Ok(0)
}
