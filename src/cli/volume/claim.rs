//! `volume claim list` and `volume claim delete`

use super::super::client::encode;
use super::super::columns::ColumnTable;
use super::super::conn::{Conn, PastConnection};
use super::super::out::Out;
use super::super::paged::Paged;
use super::super::show::{Format, short};
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::model::TaskGroupHostVolumeClaim;
use serde::de::IgnoredAny;

/// What can be done with task groups' claims on sticky host volumes.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// List what groups hold
    List(ListArgs),
    /// Give back what a group holds
    Delete(DeleteArgs),
}

/// Flags of `volume claim list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    paged: Paged,
    /// Only claims whose id begins so
    #[arg(default_value = "")]
    prefix: String,
    /// Only those of this job
    #[arg(long, default_value = "", hide_default_value = true)]
    job: String,
    /// Only those of groups of this name
    #[arg(long, default_value = "", hide_default_value = true)]
    group: String,
    /// Only those on volumes of this name
    #[arg(long, default_value = "", hide_default_value = true)]
    volume_name: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `volume claim delete`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its id
    claim: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::List(args) => list(args, out).await,
        Verb::Delete(args) => delete(args, out).await,
    }
}

async fn list(args: ListArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let given = [
        ("prefix", args.prefix.as_str()),
        ("job_id", args.job.as_str()),
        ("task_group", args.group.as_str()),
        ("volume_name", args.volume_name.as_str()),
    ];
    let given: Vec<_> = given
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let page = args.paged.of(&client, "/v1/volumes/claims", &given).await;
    let page = page.map_err(|err| err.context("Error querying volume claims"))?;
    let Some(claims) = page.take::<TaskGroupHostVolumeClaim>(&args.format, out)? else {
        return Ok(0);
    };
    client.report_moment(out);
    let mut table = ColumnTable::new(["ID", "Namespace", "Job ID", "Volume ID", "Volume Name"]);
    for claim in claims {
        table.row([
            short(&claim.id, args.verbose),
            claim.namespace,
            claim.job_id,
            short(&claim.volume_id, args.verbose),
            claim.volume_name,
        ]);
    }
    match table.is_empty() {
        true => out.line("No claims"),
        false => out.line(&table.to_string()),
    }
    page.report_next(out);
    Ok(0)
}

async fn delete(args: DeleteArgs, out: &Out) -> Result<u8> {
    let id = &args.claim;
    if !args.yes {
        let question = format!("Are you sure you want to delete the claim {id:?}? [y/N] ");
        if !matches!(out.ask(&question).as_str(), "y" | "Y" | "yes") {
            bail!("Cancelled: the claim stays");
        }
    }
    let path = format!("/v1/volumes/claim/{}", encode(id));
    let client = args.conn.client()?;
    let done = client.delete::<IgnoredAny>(&path, &[], None).await;
    done.map_err(|err| err.context("Error deleting volume claim"))?;
    out.line(&format!(
        "Task group host volume claim {id} successfully deleted"
    ));
    Ok(0)
}
