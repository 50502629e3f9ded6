//! `eval delete`: by one id, or by filter. A filter is counted first, shown, confirmed, and sent
//! once as it is; the servers page through what it matches (EVAL-13).

use super::super::conn::Conn;
use super::super::out::Out;
use super::super::query::find;
use super::super::show::counted;
use crate::http::answers::{EvalCountResponse, EvalDeleteResponse};
use anyhow::{Result, bail};
use drover_events::model::Evaluation;
use serde::de::IgnoredAny;
use serde_json::json;
use std::time::Duration;

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(120);

/// Flags of `eval delete`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator scheduler set-config -pause-eval-broker true
  drover eval delete -filter 'Status == \"blocked\"'
  drover eval delete -yes 8ba85cef

The evaluation broker must be paused meanwhile.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The evaluation's id or a prefix of it
    evaluation: Option<String>,
    /// Delete every evaluation that this expression holds for
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Answer yes to every question
    #[arg(long)]
    yes: bool,
}

/// Deletes evaluations.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    match (&args.evaluation, &args.filter) {
        (Some(_), Some(_)) => bail!("Evaluation ID and -filter cannot be used together"),
        (None, None) => bail!(
            "Error: either an evaluation ID or -filter is needed\nFor additional help try 'drover \
                eval delete -help'"
        ),
        (Some(id), None) => one(&args, id, out).await,
        (None, Some(filter)) => many(&args, filter, out).await,
    }
}

async fn one(args: &Args, id: &str, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let Evaluation { id, .. } = find(&client, id).await?;
    if !args.yes
        && !confirmed(
            out,
            &format!("Are you sure you want to delete evaluation {id:?}? [y/N] "),
        )
    {
        out.line("Cancelling evaluation deletion");
        return Ok(0);
    }
    let body = json!({"EvalIDs": [id]});
    let answer = client.delete::<IgnoredAny>("/v1/evaluations", &[], Some(&body));
    let answer = answer.await;
    answer.map_err(|err| err.context("Error deleting evaluation"))?;
    out.line("Successfully deleted 1 evaluation");
    Ok(0)
}

async fn many(args: &Args, filter: &str, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let count = client
        .fetch("/v1/evaluations/count", &[("filter", filter)])
        .await;
    let EvalCountResponse { count, .. } =
        count.map_err(|err| err.context("Error counting evaluations"))?;
    if count == 0 {
        out.line("failed to find any evals that matched filter criteria");
        return Ok(1);
    }
    out.line(&format!(
        "{count} {} the filter",
        if count == 1 {
            "evaluation matches"
        } else {
            "evaluations match"
        }
    ));
    if !args.yes
        && !confirmed(
            out,
            &format!(
                "Are you sure you want to delete {}? [y/N] ",
                counted(count, "eval")
            ),
        )
    {
        out.line("Cancelling bulk evaluation deletion");
        return Ok(0);
    }
    let spinner = out.draws().then(|| {
        let bar = indicatif::ProgressBar::new_spinner()
            .with_message(format!("deleting {}", counted(count, "evaluation")));
        bar.enable_steady_tick(TICK);
        bar
    });
    let body = json!({"Filter": filter});
    let answer = client.delete("/v1/evaluations", &[], Some(&body)).await;
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    let deleted: EvalDeleteResponse =
        answer.map_err(|err| err.context("Error deleting evaluations"))?;
    let deleted = counted(deleted.count, "evaluation");
    out.line(&format!("Successfully deleted {deleted}"));
    Ok(0)
}

fn confirmed(out: &Out, question: &str) -> bool {
    matches!(out.ask(question).as_str(), "y" | "Y" | "yes")
}
