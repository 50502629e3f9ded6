//! The tables of a running agent: requests to compare and rebuild them, and their progress.

use super::shapes::StageReached;
use crate::cli::answer;
use crate::cli::client::{Client, is_status};
use crate::cli::conn::Conn;
use crate::cli::out::Out;
use crate::cli::progress::Bar;
use crate::cli::projection::{RebuildArgs, VerifyArgs, report, report_checked};
use crate::history::rebuild::{RebuildStatus, Stage};
use crate::http::answers::Discarded;
use anyhow::{Context, Result, bail};
use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};
use std::time::Duration;

const PLACE: &str = "/v1/operator/projections";
/// How often the agent's progress is queried.
const LOOK: Duration = Duration::from_millis(200);

/// What the tables hold.
pub(in crate::cli) async fn list(conn: &Conn) -> Result<Json> {
    let held = conn.client()?.fetch(PLACE, &[]).await;
    held.context("Error reading the tables (of an agent that is not running: -data-dir)")
}

/// Removes the retired databases; returns how many there were.
pub(in crate::cli) async fn discard(conn: &Conn) -> Result<usize> {
    let client = conn.client()?;
    let done = client.delete(&format!("{PLACE}/kept"), &[], None).await;
    let done: Discarded = done.context("Error removing the retired databases")?;
    Ok(done.removed)
}

/// Prints how far a rebuild or a comparison is.
pub(in crate::cli) async fn status(conn: &Conn, json: bool, out: &Out) -> Result<u8> {
    let status = conn.client()?.fetch(&format!("{PLACE}/rebuild"), &[]).await;
    let failed = report_status(status.context("Error reading the progress")?, json, out)?;
    Ok(u8::from(failed))
}

/// Stops a rebuild or a comparison.
pub(in crate::cli) async fn cancel(conn: &Conn, json: bool, out: &Out) -> Result<u8> {
    let client = conn.client()?;
    let status = client.delete(&format!("{PLACE}/rebuild"), &[], None).await;
    report_status(
        status.context("Error stopping the rebuild or comparison")?,
        json,
        out,
    )?;
    Ok(0)
}

/// Prints how far it is; returns whether it failed.
fn report_status(reported: Json, json: bool, out: &Out) -> Result<bool> {
    let reached: StageReached = answer::of_ref(&reported).unwrap_or_default();
    let failed = Stage::of(&reached.stage) == Some(Stage::Failed);
    if json {
        out.exact(&reported.to_string());
        return Ok(failed);
    }
    let status: RebuildStatus = answer::of(reported)?;
    if status.kind.is_empty() {
        out.line("Nothing was rebuilt or verified since the agent started");
        return Ok(failed);
    }
    let left = match status.seconds_left {
        Some(left) if status.running => format!(", {left:.0}s left"),
        _ => String::new(),
    };
    out.line(&format!(
        "{}: {}, entry {} of {} ({:.0}/s{left})",
        status.kind, status.stage, status.at, status.last, status.per_second
    ));
    if !status.error.is_empty() {
        out.error(&status.error);
    }
    Ok(failed)
}

/// Rebuilds the tables of a running agent.
pub(in crate::cli) async fn rebuild(args: &RebuildArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let requests = json!({"Rate": args.rate.unwrap_or(0), "Memory": args.memory,
        "DiscardOld": args.discard_old, "Force": args.force});
    begin(&client, "rebuild", &requests).await?;
    if args.detach {
        out.line("Started: `drover projection status` shows how far it is");
        return Ok(0);
    }
    let done = watch(&client, "rebuild", args.json, out).await?;
    match args.json {
        true => out.exact(&done.to_string()),
        false => report(&answer::of(done)?, "", out),
    }
    Ok(0)
}

/// Compares the tables of a running agent with its log.
pub(in crate::cli) async fn verify(args: &VerifyArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    begin(&client, "verify", &json!({"Rate": args.rate.unwrap_or(0)})).await?;
    let done = watch(&client, "verify", args.json, out).await?;
    report_checked(done, (args.json, false, ""), out)
}

async fn begin(client: &Client, what: &str, requests: &Json) -> Result<()> {
    let path = format!("{PLACE}/{what}");
    let begun = client.put::<IgnoredAny>(&path, &[], requests).await;
    if let Err(error) = &begun
        && is_status(error, 409)
    {
        bail!(
            "Error: the agent rebuilds or verifies its tables already; `drover projection status` \
             shows how far it is, `drover projection cancel` stops it"
        );
    }
    begun
        .map(|_| ())
        .with_context(|| format!("Error beginning to {what} the tables"))
}

/// Waits for the end of what was begun; an interrupt stops it there too.
async fn watch(client: &Client, what: &str, json: bool, out: &Out) -> Result<Json> {
    let path = format!("{PLACE}/{what}");
    let bar = Bar::new(out, "entries");
    let talks = !json && out.is_terminal();
    let mut stage = String::new();
    loop {
        let status = client.fetch(&path, &[]).await;
        let status: RebuildStatus =
            status.context("Error reading the progress; the work itself goes on")?;
        if status.stage != stage {
            let begun = Stage::of(&status.stage);
            if begun == Some(Stage::Fold) {
                bar.skip(status.at);
            }
            stage.clone_from(&status.stage);
            match begun {
                Some(Stage::Verify) if talks => out.line("Reading the new tables again ..."),
                Some(Stage::CatchUp) if talks => out.line("Catching up ..."),
                _ => {}
            }
        }
        bar.set(status.at, status.last);
        if !status.running {
            bar.clear();
            return ended(what, status);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = tokio::signal::ctrl_c() => {
                let stopped = client.delete::<IgnoredAny>(&path, &[], None).await;
                stopped.context("Error stopping the rebuild or comparison")?;
            }
        }
    }
}

fn ended(what: &str, status: RebuildStatus) -> Result<Json> {
    let hint = match Stage::of(&status.stage) {
        Some(Stage::Done) => return Ok(status.result.unwrap_or_default()),
        Some(Stage::Cancelled) => "run it again and it goes on where it was",
        _ => "the tables in use were not touched",
    };
    bail!(
        "Error: could not {what} the tables: {} ({hint})",
        status.error
    )
}
