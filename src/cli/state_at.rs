//! `state at`: the whole state of an earlier index, as a database and as NDJSON.

use super::columns::Table;
use super::log_place::LogPlace;
use super::out::Out;
use super::progress::Bar;
use super::projection::interruptible;
use super::show::time;
use crate::rebuild::{Materialise, Materialised};
use anyhow::{Context, Result};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Flags of `state at`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover state at 812 -data-dir /var/lib/drover -out /tmp/state-812
  drover state at 812 -data-dir /var/lib/drover -out /tmp/state-812 -ndjson
  drover state at 812 -archive s3://bucket/drover -data-dir /var/lib/drover -out /tmp/state-812

Folds the log to the index: OUT/projections is the database as it was then, state.json names its
index, its time and the digests of its tables, and with -ndjson every table's rows are in
OUT/tables. Secrets in rows are ciphertext or hashes, as they are in the log. What retention dropped
is read from -archive. An agent may be running; nothing of it is changed.")]
pub(super) struct AtArgs {
    /// The index after whose event the state is wanted
    #[arg(value_name = "INDEX")]
    index: u64,
    #[command(flatten)]
    place: LogPlace,
    /// The directory to make
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// Write every table's rows as NDJSON too
    #[arg(long)]
    ndjson: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Makes the state.
pub(super) async fn run(args: AtArgs, out: &Out) -> Result<u8> {
    let place = args.place.find(out).await?;
    let bar = Bar::new(out, "entries");
    let (index, dir, json) = (args.index, args.out.clone(), args.json);
    let log = place.log.clone();
    let done = interruptible(move |cancelled| {
        let work = Materialise {
            log_dir: log,
            index: args.index,
            out: args.out,
            json: args.ndjson,
            cancelled,
        };
        let done = work.run(&mut |progress| bar.set(progress.at, progress.last));
        bar.clear();
        done
    })
    .await?;
    let done = done.with_context(|| {
        format!(
            "Error making the state at {index} in {} (`drover log inspect` shows which indexes \
             there are)",
            dir.display()
        )
    })?;
    if json {
        out.line(&as_json(&done).to_string());
        return Ok(0);
    }
    let mut table = Table::new(["Table", "Rows", "Digest"]);
    for (name, rows) in &done.rows {
        let digest = done
            .state
            .digests
            .iter()
            .find(|digest| digest.name == *name);
        let digest = digest.map_or_else(String::new, |digest| digest.digest.to_hex());
        table.row([
            (*name).to_owned(),
            rows.to_string(),
            digest.get(..16).unwrap_or_default().to_owned(),
        ]);
    }
    out.line(&table.to_string());
    out.line(&format!(
        "The state at index {} ({}) is in {}: {} entries folded",
        done.state.index,
        time(done.state.time),
        dir.display(),
        done.entries
    ));
    Ok(0)
}

fn as_json(done: &Materialised) -> Json {
    let rows: serde_json::Map<_, _> = done
        .rows
        .iter()
        .map(|(name, rows)| ((*name).to_owned(), Json::from(*rows)))
        .collect();
    json!({"Index": done.state.index, "Time": done.state.time, "Entries": done.entries,
        "Rows": rows})
}
