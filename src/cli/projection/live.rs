//! The tables of a running agent: it is asked to compare and rebuild them, and watched.

use crate::cli::client::{Client, is_status};
use crate::cli::conn::Conn;
use crate::cli::out::Out;
use crate::cli::progress::Bar;
use crate::cli::projection::{RebuildArgs, VerifyArgs, report, tell_checked};
use crate::cli::show::{boolean, number, text};
use anyhow::{Context, Result, bail};
use serde_json::{Value as Json, json};
use std::time::Duration;

const PLACE: &str = "/v1/operator/projections";
/// How often the agent is asked how far it is.
const LOOK: Duration = Duration::from_millis(200);

/// What the tables hold.
pub(in crate::cli) async fn list(conn: &Conn) -> Result<Json> {
    let held = conn.client()?.get_json(PLACE, &[]).await;
    held.context("Error reading the tables (of an agent that is not running: -data-dir)")
}

/// Removes what was set aside; answers how much that was.
pub(in crate::cli) async fn discard(conn: &Conn) -> Result<i64> {
    let client = conn.client()?;
    let done = client.delete(&format!("{PLACE}/kept"), &[], None).await;
    Ok(number(
        &done.context("Error removing what was set aside")?,
        "Removed",
    ))
}

/// Tells how far a rebuild or a comparison is.
pub(in crate::cli) async fn status(conn: &Conn, json: bool, out: &Out) -> Result<u8> {
    let status = conn
        .client()?
        .get_json(&format!("{PLACE}/rebuild"), &[])
        .await;
    let status = status.context("Error asking how far it is")?;
    tell_status(&status, json, out);
    Ok(u8::from(text(&status, "Stage") == "failed"))
}

/// Stops a rebuild or a comparison.
pub(in crate::cli) async fn cancel(conn: &Conn, json: bool, out: &Out) -> Result<u8> {
    let client = conn.client()?;
    let status = client.delete(&format!("{PLACE}/rebuild"), &[], None).await;
    tell_status(&status.context("Error stopping it")?, json, out);
    Ok(0)
}

fn tell_status(status: &Json, json: bool, out: &Out) {
    if json {
        out.line(&status.to_string());
        return;
    }
    let (kind, stage) = (text(status, "Kind"), text(status, "Stage"));
    if kind.is_empty() {
        out.line("Nothing was rebuilt or verified since the agent started");
        return;
    }
    let rate = status["PerSecond"].as_f64().unwrap_or_default();
    let left = match status["SecondsLeft"].as_f64() {
        Some(left) if boolean(status, "Running") => format!(", {left:.0}s left"),
        _ => String::new(),
    };
    out.line(&format!(
        "{kind}: {stage}, entry {} of {} ({rate:.0}/s{left})",
        number(status, "At"),
        number(status, "Last")
    ));
    let error = text(status, "Error");
    if !error.is_empty() {
        out.error(&error);
    }
}

/// Rebuilds the tables of a running agent.
pub(in crate::cli) async fn rebuild(args: &RebuildArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let wishes = json!({"Rate": args.rate.unwrap_or(0), "Memory": args.memory,
        "DiscardOld": args.discard_old, "Force": args.force});
    begin(&client, "rebuild", &wishes).await?;
    if args.detach {
        out.line("Started: `drover projection status` shows how far it is");
        return Ok(0);
    }
    let done = watch(&client, "rebuild", args.json, out).await?;
    match args.json {
        true => out.line(&done.to_string()),
        false => report(&done, "", out),
    }
    Ok(0)
}

/// Compares the tables of a running agent with its log.
pub(in crate::cli) async fn verify(args: &VerifyArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    begin(&client, "verify", &json!({"Rate": args.rate.unwrap_or(0)})).await?;
    let done = watch(&client, "verify", args.json, out).await?;
    Ok(tell_checked(&done, (args.json, false, ""), out))
}

async fn begin(client: &Client, what: &str, wishes: &Json) -> Result<()> {
    let begun = client.put(&format!("{PLACE}/{what}"), &[], wishes).await;
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
        let status = client.get_json(&path, &[]).await;
        let status =
            status.context("Error asking how far it is; it goes on without being asked")?;
        let now = text(&status, "Stage");
        if now != stage {
            if now == "fold" {
                bar.skip(number(&status, "At").max(0).unsigned_abs());
            }
            stage.clone_from(&now);
            match now.as_str() {
                "verify" if talks => out.line("Reading the new tables again ..."),
                "catch up" if talks => out.line("Catching up ..."),
                _ => {}
            }
        }
        let at = |name| number(&status, name).max(0).unsigned_abs();
        bar.set(at("At"), at("Last"));
        if !boolean(&status, "Running") {
            bar.clear();
            return ended(what, &status);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = tokio::signal::ctrl_c() => {
                client.delete(&path, &[], None).await.context("Error stopping it")?;
            }
        }
    }
}

fn ended(what: &str, status: &Json) -> Result<Json> {
    let hint = match text(status, "Stage").as_str() {
        "done" => return Ok(status["Result"].clone()),
        "cancelled" => "run it again and it goes on where it was",
        _ => "the tables in use were not touched",
    };
    bail!(
        "Error: to {what} the tables: {} ({hint})",
        text(status, "Error")
    )
}
