//! The `projection` noun: the tables of a running agent or in a data directory, compared with the
//! log and built again.

pub(super) mod live;
mod shapes;

use super::answer;
use super::columns::{ColumnTable, pairs};
use super::conn::Conn;
use super::interruptible::interruptible;
use super::log::place::{LogPlace, OpenedLog};
use super::out::Out;
use super::progress::Bar;
use super::show::counted;
use crate::history::rebuild::{
    self, Check, CheckReport, DatabaseInfo, HeldTable, Rebuild, RebuildError, RebuildProgress,
    RebuildReport, Stage,
};
use crate::history::replay;
use anyhow::{Context, Result};
use clap::Subcommand;
use drover_migrations::schema;
use drover_projections::{DatabaseOptions, Projections};
use serde_json::Value as Json;
use shapes::Verdict;
use std::path::{Path, PathBuf};

/// What can be done with projections.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Show the tables: rows, bytes, index, digest
    List(ListArgs),
    /// Build all tables again from the log, beside the old ones, and switch
    Rebuild(RebuildArgs),
    /// Fold the log and compare with what is on disk
    Verify(VerifyArgs),
    /// How far a running agent's rebuild or comparison is
    Status(StatusArgs),
    /// Stop a running agent's rebuild or comparison
    Cancel(StatusArgs),
    /// Remove the databases that a rebuild or a server retired
    Discard(DiscardArgs),
}

/// Flags of `projection list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover projection list
  drover projection list -data-dir /var/lib/drover -json

Without -data-dir the agent at -address lists them; with it, no agent may run on the directory.")]
pub(super) struct ListArgs {
    #[command(flatten)]
    conn: Conn,
    /// The data directory of an agent that is not running
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Show tables without rows too, and whole digests
    #[arg(long)]
    verbose: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `projection rebuild`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover projection rebuild
  drover projection rebuild -throttle 50000 -discard-old
  drover projection rebuild -data-dir /var/lib/drover
  drover projection rebuild -data-dir /var/lib/drover -archive s3://bucket/drover

Folds the log into a new database beside the old one, reads it again, compares the digests of all
tables with the old database and with the last signed checkpoint, and lets the two change places in
one step. The old one is kept (`drover projection discard` removes it). Whatever goes wrong before,
the old one stays in use. Stopped with ctrl-C, or killed, it goes on where it was when it is run
again. Without -data-dir the agent at -address does it while it serves: no request is refused, and
its applier stops for some milliseconds only. With -data-dir no agent may be running on the
directory. With -archive too, the log is folded from where the archive begins, not from the state
that retention left; the past that can be read begins there. Exit codes: 0 rebuilt, 1 not.")]
pub(super) struct RebuildArgs {
    #[command(flatten)]
    pub(super) conn: Conn,
    #[command(flatten)]
    place: LogPlace,
    /// Entries a second at most
    #[arg(long, alias = "throttle", value_name = "N")]
    pub(super) rate: Option<u64>,
    /// MiB held in memory before they are written [default: 256, of a running agent 64]
    #[arg(long, value_name = "MIB")]
    pub(super) memory: Option<usize>,
    /// Begin it and do not wait for its end (of a running agent)
    #[arg(long, conflicts_with = "data_dir")]
    pub(super) detach: bool,
    /// Keep the old database (the default)
    #[arg(long, conflicts_with = "discard_old")]
    keep: bool,
    /// Remove the old database after the switch, and those retired before
    #[arg(long)]
    pub(super) discard_old: bool,
    /// Switch even if the result is not what was signed, or not what a running agent has in use
    #[arg(long)]
    pub(super) force: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Flags of `projection verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover projection verify
  drover projection verify -data-dir /var/lib/drover -whole
  drover projection verify -data-dir /var/lib/drover -archive s3://bucket/drover

Folds the log to the index at which the database stands and compares the digest of every table; all
rows on disk are read and their digests computed again. With -whole every entry of every index, of
history, changes and postings is compared too. Nothing is changed. Without -data-dir the agent at
-address does it while it serves; with it, none may be running on the directory. With -archive too,
the log is folded from where the archive begins. Exit codes: 0 equal, 1 not.")]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    pub(super) conn: Conn,
    #[command(flatten)]
    place: LogPlace,
    /// Compare every entry, not only the tables' digests (with -data-dir)
    #[arg(long, requires = "data_dir")]
    whole: bool,
    /// Entries a second at most (of a running agent)
    #[arg(
        long,
        alias = "throttle",
        value_name = "N",
        conflicts_with = "data_dir"
    )]
    pub(super) rate: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Flags of `projection status` and `projection cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover projection status
  drover projection cancel")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    conn: Conn,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `projection discard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover projection discard
  drover projection discard -data-dir /var/lib/drover")]
pub(super) struct DiscardArgs {
    #[command(flatten)]
    conn: Conn,
    /// The agent's data directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::List(args) => list(&args, out).await,
        Verb::Rebuild(args) => match whose(&args.place)? {
            Some(dir) => rebuild(args, dir, out).await,
            None => live::rebuild(&args, out).await,
        },
        Verb::Verify(args) => match whose(&args.place)? {
            Some(dir) => verify(args, dir, out).await,
            None => live::verify(&args, out).await,
        },
        Verb::Status(args) => live::status(&args.conn, args.json, out).await,
        Verb::Cancel(args) => live::cancel(&args.conn, args.json, out).await,
        Verb::Discard(args) => discard(&args, out).await,
    }
}

/// The directory that is named; an archive by itself has no tables.
fn whose(place: &LogPlace) -> Result<Option<PathBuf>> {
    let alone = place.archive.is_some() && place.data_dir.is_none();
    anyhow::ensure!(
        !alone,
        "An archive holds no tables: name those to compare or to build again with -data-dir DIR, \
         or make those of an index with `drover state at`"
    );
    Ok(place.data_dir.clone())
}

/// The log that is folded where there is an archive.
async fn joined(place: &LogPlace, out: &Out) -> Result<Option<OpenedLog>> {
    match place.archive {
        Some(_) => Ok(Some(place.find(out).await?)),
        None => Ok(None),
    }
}

/// The log and the projections under a data directory; the server's own may be named too.
pub(super) fn places(data_dir: &Path) -> (PathBuf, PathBuf) {
    match data_dir.join("log").is_dir() {
        true => (data_dir.join("log"), data_dir.join("projections")),
        false => replay::places(data_dir),
    }
}

/// What an operator reads where a rebuild or a comparison fails.
fn explain(error: RebuildError, doing: &'static str, dir: &Path) -> anyhow::Error {
    let hint = match &error {
        _ if error.is_cancelled() => "cancelled: run it again and it goes on where it was",
        _ if error.is_out_of_space() => {
            "the disk is full: free space and run it again, it goes on where it was"
        }
        RebuildError::Busy { .. } => {
            "stop the agent first, or compare a running one with `drover log replay`"
        }
        _ => "the database in use was not touched",
    };
    anyhow::Error::new(error).context(format!("Error {doing} in {} ({hint})", dir.display()))
}

/// What the database in a directory holds.
fn holds(data_dir: &Path) -> Result<Json> {
    let (log, live) = places(data_dir);
    let shown = live.display();
    let hint = format!("Error opening {shown}; no agent may be running on it");
    rebuild::finish_switch(&log, &live).with_context(|| hint.clone())?;
    anyhow::ensure!(live.is_dir(), "{shown} holds no database");
    let schema =
        schema::version_of(&live, &DatabaseOptions::default()).with_context(|| hint.clone())?;
    let (projections, _writer) =
        Projections::open(&live, DatabaseOptions::default()).context(hint)?;
    let flushed = projections.flushed()?.index;
    rebuild::tables(&projections.view(), (&live, &live), (flushed, schema.0))
        .with_context(|| format!("Error reading {shown}"))
}

async fn list(args: &ListArgs, out: &Out) -> Result<u8> {
    let held = match &args.data_dir {
        Some(dir) => holds(dir)?,
        None => live::list(&args.conn).await?,
    };
    if args.json {
        out.exact(&held.to_string());
        return Ok(0);
    }
    let held: DatabaseInfo = answer::of(held)?;
    head(&held, out);
    let width = if args.verbose { 64 } else { 16 };
    let mut table = ColumnTable::new([
        "Table", "Rows", "Bytes", "Index", "Indexes", "Past", "Digest",
    ]);
    let wanted = |one: &&HeldTable| args.verbose || one.rows > 0;
    for one in held.tables.iter().filter(wanted) {
        table.row([
            one.name.clone(),
            one.rows.to_string(),
            one.bytes.to_string(),
            one.index.to_string(),
            one.indexes.to_string(),
            one.history.clone(),
            one.digest.get(..width).unwrap_or(&one.digest).to_owned(),
        ]);
    }
    out.line(&table.to_string());
    for kept in &held.retired {
        out.line(&format!(
            "Retired: {} ({})",
            kept.path,
            counted(kept.bytes, "byte")
        ));
    }
    Ok(0)
}

fn head(held: &DatabaseInfo, out: &Out) {
    let building = match held.building {
        true => "begun",
        false => "none",
    };
    let (schema, known) = (held.schema, held.known);
    out.line(&pairs(&[
        ("Applied", held.applied.to_string()),
        ("Flushed", held.flushed.to_string()),
        ("Schema", format!("{schema} (this drover knows {known})")),
        ("Past from", held.floor.to_string()),
        ("Rebuild", building.to_owned()),
    ]));
    out.head("Tables");
}

async fn rebuild(args: RebuildArgs, dir: PathBuf, out: &Out) -> Result<u8> {
    let (log, live) = places(&dir);
    let found = joined(&args.place, out).await?;
    let from = found.as_ref().map(|found| found.log.clone());
    let bar = Bar::new(out, "entries");
    let json = args.json;
    let talks = !json && out.is_terminal();
    let reported = out.clone();
    let done = interruptible(move |cancelled| {
        let mut stage = None;
        let work = Rebuild {
            memory: args.memory.unwrap_or(256).max(1) << 20,
            rate: args.rate,
            discard_old: args.discard_old,
            force: args.force,
            from,
            ..Rebuild::of(&log, &live, &DatabaseOptions::default(), cancelled)
        };
        let done = work
            .run(&mut |progress| report_progress(progress, &mut stage, (&bar, &reported, talks)));
        bar.clear();
        done
    })
    .await?;
    let done = done.map_err(|error| explain(error, "rebuilding the projections", &dir))?;
    match json {
        true => out.exact(&done.to_json().to_string()),
        false => {
            let whose = format!(" -data-dir {}", dir.display());
            report(&answer::of(done.to_json())?, &whose, out);
        }
    }
    Ok(0)
}

/// Draws the progress, and says which stage begins where no bar is drawn.
fn report_progress(
    progress: RebuildProgress,
    stage: &mut Option<Stage>,
    (bar, out, talks): (&Bar, &Out, bool),
) {
    if *stage != Some(progress.stage) {
        if *stage != Some(Stage::Fold) && progress.stage == Stage::Fold {
            bar.skip(progress.at);
        }
        *stage = Some(progress.stage);
        match progress.stage {
            Stage::Verify if talks => out.line("Reading the new tables again ..."),
            Stage::Switch if talks => out.line("Switching ..."),
            _ => {}
        }
    }
    if progress.stage == Stage::Fold {
        bar.set(progress.at, progress.last);
    }
}

/// What came of a rebuild; `whose` are the flags that name its directory.
fn report(done: &RebuildReport, whose: &str, out: &Out) {
    let RebuildReport {
        index,
        from,
        entries,
        seconds,
        ..
    } = done;
    let rate = *entries as f64 / seconds.max(0.001);
    out.line(&format!(
        "Rebuilt all tables to index {index}: {} from {from} in {seconds:.2}s ({rate:.0}/s)",
        counted(*entries, "entry"),
    ));
    for compared in &done.compared {
        let (with, index) = (&compared.with, compared.index);
        match compared.different.as_slice() {
            [] => out.line(&format!(
                "All digests are equal to those of {with} at {index}"
            )),
            tables => out.error(&format!(
                "Different from {with} at {index}: {}",
                tables.join(", ")
            )),
        }
    }
    if let Some(why) = &done.old_unread {
        out.error(&format!("The old database was not compared: {why}"));
    }
    if let Some(took) = done.cut_over_ms {
        out.line(&format!(
            "Switched while serving: nothing was applied for {took:.1} ms"
        ));
    }
    if let Some(kept) = &done.kept {
        out.line(&format!("The old database is kept in {kept}"));
        out.line(&format!("`drover projection discard{whose}` removes it"));
    }
}

async fn verify(args: VerifyArgs, dir: PathBuf, out: &Out) -> Result<u8> {
    let (log, live) = places(&dir);
    let found = joined(&args.place, out).await?;
    let from = found.as_ref().map(|found| found.log.clone());
    let bar = Bar::new(out, "entries");
    let done = interruptible(move |cancelled| {
        let check = Check {
            log_dir: log,
            from,
            live,
            options: DatabaseOptions::default(),
            whole: args.whole,
            cancelled,
        };
        let done = check.run(&mut |progress| bar.set(progress.at, progress.last));
        bar.clear();
        done
    })
    .await?;
    let done = done.map_err(|error| explain(error, "verifying the projections", &dir))?;
    let whose = format!(" -data-dir {}", dir.display());
    report_checked(done.to_json(), (args.json, args.whole, &whose), out)
}

/// Prints what came of a comparison; returns the exit code.
fn report_checked(done: Json, (json, whole, whose): (bool, bool, &str), out: &Out) -> Result<u8> {
    if json {
        let verdict: Verdict = answer::of_ref(&done).unwrap_or_default();
        out.exact(&done.to_string());
        return Ok(u8::from(!verdict.verified));
    }
    let done: CheckReport = answer::of(done)?;
    for table in &done.damaged {
        out.error(&format!("table {table}: its rows do not give its digest"));
    }
    for table in &done.different {
        out.error(&format!("table {table} is not what the log gives"));
    }
    for found in &done.differences {
        let table = found.table.as_deref().unwrap_or("-");
        out.error(&format!(
            "{} of table {table}: the entry {} {}",
            found.family, found.key, found.what
        ));
    }
    let index = done.index;
    if !done.verified {
        out.error(&format!(
            "NOT verified at index {index}: `drover projection rebuild{whose}` builds them again"
        ));
        return Ok(1);
    }
    let what = match whole {
        true => "every entry of every table, index and history",
        false => "the digests of all tables",
    };
    out.line(&format!(
        "verified {what} at index {index}: {} folded, {}",
        counted(done.entries, "entry"),
        counted(done.tables, "table")
    ));
    Ok(0)
}

async fn discard(args: &DiscardArgs, out: &Out) -> Result<u8> {
    let count = match &args.data_dir {
        None => live::discard(&args.conn).await?,
        Some(dir) => {
            let (_, live) = places(dir);
            let removed = rebuild::discard(&live).with_context(|| {
                let live = live.display();
                format!("Error removing the retired databases beside {live}")
            });
            removed?
        }
    };
    out.line(&format!("Removed {}", counted(count, "retired database")));
    Ok(0)
}
