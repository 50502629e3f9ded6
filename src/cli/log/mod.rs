//! The `log` noun: tools on a server's log, which it may be writing meanwhile.

pub(super) mod beside;
pub(super) mod events;
pub(super) mod export;
pub(super) mod moment;
pub(super) mod place;
pub(super) mod tiles;
pub(super) mod verify;
pub(super) mod verify_live;

use super::client::{Client, Refused};
use super::columns::{ColumnTable, pairs};
use super::conn::Conn;
use super::digests;
use super::out::Out;
use super::progress::Bar;
use super::show::{Format, counted, time};
use crate::history::replay::{self, Replayed, StateAt};
use crate::log::tools::{Inspection, inspect};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use drover_events::EventKind;
use events::EventsArgs;
use export::{ExportArgs, ImportArgs};
use place::LogPlace;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use verify::VerifyArgs;

/// What can be done with a log.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Show segments, kinds, the tree's root, and any damage
    Inspect(InspectArgs),
    /// Print what happened: kind, actor, cause
    Events(EventsArgs),
    /// Read everything again and check it against what was signed
    Verify(VerifyArgs),
    /// Fold the log from its beginning and compare digests with what the server holds
    Replay(ReplayArgs),
    /// Write events as lines of JSON
    Export(ExportArgs),
    /// Make a log of exported lines, in an empty data directory
    Import(ImportArgs),
}

/// Flags of `log inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover log inspect -data-dir /var/lib/drover
  drover log inspect -data-dir /var/lib/drover -json
  drover log inspect -archive s3://bucket/drover")]
pub(super) struct InspectArgs {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    place: LogPlace,
}

/// Flags of `log replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover log replay -data-dir /var/lib/drover
  drover log replay -data-dir /var/lib/drover -address http://127.0.0.1:4646

With an agent running, the log is folded to the index that the agent names and compared with the
digests of its tables. With none, it is compared with the database in the data directory, brought
up to the log's end first. With -archive too, the log is folded from where the archive begins.
Exit codes: 0 equal, 1 different, or nothing was compared.")]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    place: LogPlace,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Inspect(args) => inspection(&args, out).await,
        Verb::Events(args) => events::run(&args, out).await,
        Verb::Verify(args) => verify::run(&args, out).await,
        Verb::Replay(args) => replay(&args, out).await,
        Verb::Export(args) => export::export(&args, out).await,
        Verb::Import(args) => export::import_lines(&args, out),
    }
}

/// A data directory's log: the agent's, the server's, or the log itself may be named.
pub(super) fn log_dir(data_dir: &Path) -> PathBuf {
    for inner in ["server/log", "log"] {
        let dir = data_dir.join(inner);
        if dir.is_dir() {
            return dir;
        }
    }
    data_dir.to_owned()
}

pub(super) fn kind_name(number: u16) -> String {
    EventKind::from_number(number).map_or_else(|| format!("kind {number}"), |k| k.to_string())
}

async fn inspection(args: &InspectArgs, out: &Out) -> Result<u8> {
    let place = args.place.find(out).await?;
    let dir = &place.log;
    let found =
        inspect(dir).with_context(|| format!("Error reading the log in {}", dir.display()))?;
    let damaged = u8::from(found.damage.is_some());
    if args.format.print(&as_json(&found), out)? {
        return Ok(damaged);
    }
    let (first, next) = found.bounds;
    out.line(&pairs(&[
        (
            "Epoch",
            format!(
                "{} from {}",
                hex::encode(found.epoch.id),
                found.epoch.first_index
            ),
        ),
        ("Entries", format!("{first}..{}", next.saturating_sub(1))),
        (
            "Committed",
            found.committed.map(|n| n.to_string()).unwrap_or_default(),
        ),
        (
            "Tree size",
            found.root.map(|(n, _)| n.to_string()).unwrap_or_default(),
        ),
        (
            "Tree root",
            found
                .root
                .map(|(_, root)| hex::encode(root))
                .unwrap_or_default(),
        ),
        (
            "Damage",
            found.damage.clone().unwrap_or_else(|| "none".to_owned()),
        ),
    ]));
    let mut table = ColumnTable::new([
        "Segment", "State", "First", "Entries", "Bytes", "From", "To",
    ]);
    for segment in &found.segments {
        let (from, to) = segment.times.unwrap_or_default();
        table.row([
            segment.name.clone(),
            if segment.sealed { "sealed" } else { "open" }.to_owned(),
            segment.first.to_string(),
            segment.entries.to_string(),
            segment.bytes.to_string(),
            time(from),
            time(to),
        ]);
    }
    out.head("Segments");
    out.line(&table.to_string());
    let mut table = ColumnTable::new(["Kind", "Entries"]);
    for (kind, count) in &found.kinds {
        table.row([kind_name(*kind), count.to_string()]);
    }
    out.head("Kinds");
    out.line(&table.to_string());
    Ok(damaged)
}

fn as_json(found: &Inspection) -> Json {
    let segments: Vec<Json> = found
        .segments
        .iter()
        .map(|s| {
            json!({"Name": s.name, "Sealed": s.sealed, "First": s.first, "Entries": s.entries,
                "Bytes": s.bytes, "BodyBytes": s.body_bytes, "Times": s.times})
        })
        .collect();
    let kinds: BTreeMap<String, u64> = found
        .kinds
        .iter()
        .map(|(k, n)| (kind_name(*k), *n))
        .collect();
    json!({
        "Epoch": hex::encode(found.epoch.id),
        "EpochFirstIndex": found.epoch.first_index,
        "First": found.bounds.0,
        "Next": found.bounds.1,
        "Committed": found.committed,
        "TreeSize": found.root.map(|r| r.0),
        "TreeRoot": found.root.map(|r| hex::encode(r.1)),
        "Segments": segments,
        "Kinds": kinds,
        "Damage": found.damage,
    })
}

/// Digests of the tables at one index.
struct Digests {
    index: u64,
    tables: BTreeMap<String, String>,
}

impl Digests {
    fn of(state: &StateAt) -> Digests {
        let tables = state
            .digests
            .iter()
            .map(|d| (d.name.to_string(), d.digest.to_hex()));
        Digests {
            index: state.index,
            tables: tables.collect(),
        }
    }
}

async fn from_agent(client: &Client) -> Result<Digests> {
    let held = digests::held(client).await?;
    let tables = held.tables.into_iter();
    Ok(Digests {
        index: held.index,
        tables: tables.map(|table| (table.name, table.digest)).collect(),
    })
}

async fn replay(args: &ReplayArgs, out: &Out) -> Result<u8> {
    let place = args.place.find(out).await?;
    let dir = &place.log;
    let (held, whose) = match from_agent(&args.conn.client()?).await {
        Ok(held) if held.index == 0 => {
            bail!(
                "the agent at {} has applied nothing: nothing to compare",
                args.conn.address
            )
        }
        Ok(held) => (Some(held), format!("the agent at {}", args.conn.address)),
        // Refused, it is an agent all the same, and its database is in use.
        Err(err) if err.is::<Refused>() => {
            return Err(err.context("Error reading the digests of the tables"));
        }
        Err(_) => (None, "the database in the data directory".to_owned()),
    };
    let scratch = Scratch::new()?;
    let bar = Bar::new(out, "entries");
    let mut progress = |at: u64, last: u64| bar.set(at, last);
    let done = replay::replay(
        dir,
        &scratch.0,
        held.as_ref().map(|h| h.index),
        &mut progress,
    );
    bar.clear();
    let done = done.with_context(|| format!("Error replaying the log in {}", dir.display()))?;
    let held = match held {
        Some(held) => held,
        None => {
            let data_dir = args.place.data_dir.as_deref();
            let data_dir = data_dir.context("No agent answers: name its -data-dir, or -address")?;
            own_database(data_dir, dir)?
        }
    };
    report(args, &done, &held, &whose, out)
}

fn report(
    args: &ReplayArgs,
    done: &Replayed,
    held: &Digests,
    whose: &str,
    out: &Out,
) -> Result<u8> {
    let mine = Digests::of(&done.state);
    let different: Vec<&String> = held
        .tables
        .iter()
        .filter(|(table, digest)| mine.tables.get(*table) != Some(digest))
        .map(|(table, _)| table)
        .collect();
    let compared = held.tables.len();
    let equal = mine.index == held.index && different.is_empty();
    let seconds = done.took.as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let rate = done.entries as f64 / seconds.max(0.001);
    if args.json {
        let json = json!({"Index": mine.index, "HeldIndex": held.index, "Entries": done.entries,
            "Seconds": seconds, "Compared": compared, "Different": different, "Equal": equal});
        out.exact(&json.to_string());
    } else {
        out.line(&format!(
            "Replayed {} to index {} in {seconds:.2}s ({rate:.0}/s)",
            counted(done.entries, "entry"),
            mine.index
        ));
        if mine.index != held.index {
            out.error(&format!(
                "{whose} is at index {}, the log gives {}",
                held.index, mine.index
            ));
        }
        for table in &different {
            out.error(&format!("table {table} differs from {whose}"));
        }
    }
    if compared == 0 || done.entries == 0 {
        bail!("nothing was compared");
    }
    if equal && !args.json {
        out.line(&format!(
            "All {compared} table digests are equal to those of {whose}"
        ));
    }
    Ok(u8::from(!equal))
}

/// Opens the server's own database and brings it to the end of the log, as the server would.
fn own_database(data_dir: &Path, log: &Path) -> Result<Digests> {
    let dirs = ["server/projections", "projections"].map(|d| data_dir.join(d));
    let Some(dir) = dirs.iter().find(|d| d.is_dir()) else {
        let shown = data_dir.display();
        bail!("no agent answers and {shown} holds no database: nothing to compare with");
    };
    crate::history::rebuild::finish_switch(log, dir)?;
    let state = replay::catch_up(log, dir).with_context(|| {
        format!(
            "Error opening {}; if an agent runs on it, name its -address",
            dir.display()
        )
    })?;
    Ok(Digests::of(&state))
}

/// A directory that is gone when this is.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    /// An empty directory.
    pub(super) fn new() -> Result<Scratch> {
        let name = format!("drover-replay-{}", uuid::Uuid::new_v4().simple());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).context("Error making a directory for the replay")?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
