//! `state at`: the whole state of an earlier index, as a database and as NDJSON.

use crate::base::clock::{Moment, unix_nanos};
use crate::cli::columns::ColumnTable;
use crate::cli::interruptible::interruptible;
use crate::cli::log::moment;
use crate::cli::log::place::LogPlace;
use crate::cli::out::Out;
use crate::cli::progress::Bar;
use crate::cli::show::{counted, time};
use crate::history::rebuild::{Materialise, Materialised};
use crate::log::ReadOnlyLog;
use anyhow::{Context, Result};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// Flags of `state at`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover state at 812 -data-dir /var/lib/drover -out /tmp/state-812
  drover state at -10m -data-dir /var/lib/drover -out /tmp/state
  drover state at 812 -data-dir /var/lib/drover -out /tmp/state-812 -ndjson
  drover state at 812 -archive s3://bucket/drover -data-dir /var/lib/drover -out /tmp/state-812

Folds the log to the moment: OUT/projections is the database as it was then, state.json names its
index, its time and the digests of its tables, and with -ndjson every table's rows are in
OUT/tables. Secrets in rows are ciphertext or hashes, as they are in the log. What retention dropped
is read from -archive. An agent may be running; nothing of it is changed.")]
pub(in crate::cli) struct AtArgs {
    /// When: after the event with this index, at an RFC 3339 time, or so long ago (-10m)
    #[arg(value_name = "MOMENT", allow_hyphen_values = true)]
    moment: String,
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
pub(in crate::cli) async fn run(args: AtArgs, out: &Out) -> Result<u8> {
    let place = args.place.find(out).await?;
    let index = index(&place.log, &args.moment)?;
    let bar = Bar::new(out, "entries");
    let (dir, json) = (args.out.clone(), args.json);
    let log = place.log.clone();
    let done = interruptible(move |cancelled| {
        let work = Materialise {
            log_dir: log,
            index,
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
        out.exact(&as_json(&done).to_string());
        return Ok(0);
    }
    let mut table = ColumnTable::new(["Table", "Rows", "Digest"]);
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
        "The state at index {} ({}) is in {}: {} folded",
        done.state.index,
        time(done.state.time),
        dir.display(),
        counted(done.entries, "entry")
    ));
    Ok(0)
}

/// The index of the last event at or before a moment.
fn index(dir: &Path, named: &str) -> Result<u64> {
    if let Moment::Index(index) = moment(named)? {
        return Ok(index);
    }
    let log = ReadOnlyLog::open(dir)
        .with_context(|| format!("Error reading the log in {}", dir.display()))?;
    let found = moment::until(&log, "MOMENT", named)?;
    found.with_context(|| {
        let first = log.bounds().0;
        format!("nothing had happened yet at {named}; the log begins at index {first}")
    })
}

fn moment(named: &str) -> Result<Moment> {
    Ok(Moment::parse(named, unix_nanos())?)
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
