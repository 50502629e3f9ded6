//! The `projection` noun: the tables in a data directory, compared with the log and built again.

use super::columns::{Table, pairs};
use super::out::Out;
use super::progress::Bar;
use crate::rebuild::{self, Check, Checked, Progress, Rebuild, RebuildError, Rebuilt, Stage};
use crate::replay::{self, StateAt};
use anyhow::{Context, Result};
use clap::Subcommand;
use drover_migrations::schema::{self, LATEST};
use drover_projections::{Options, Position, Projections, TableSize};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// Remove the databases that a rebuild or a server set aside
    Discard(DiscardArgs),
}

/// Flags of `projection list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover projection list -data-dir /var/lib/drover
  drover projection list -data-dir /var/lib/drover -json

No agent may be running on the directory.")]
pub(super) struct ListArgs {
    /// The agent's data directory
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
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
  drover projection rebuild -data-dir /var/lib/drover
  drover projection rebuild -data-dir /var/lib/drover -rate 100000 -discard-old

Folds the log into a new database beside the old one, reads it again, compares the digests of all
tables with the old database and with the last signed checkpoint, and lets the two change places in
one step. The old one is kept (`drover projection discard` removes it). Whatever goes wrong before,
the old one stays in use. Stopped with ctrl-C, or killed, it goes on where it was when it is run
again. No agent may be running on the directory. Exit codes: 0 rebuilt, 1 not.")]
pub(super) struct RebuildArgs {
    /// The agent's data directory
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Entries a second at most
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// MiB held in memory before they are written
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    memory: usize,
    /// Keep the old database (the default)
    #[arg(long, conflicts_with = "discard_old")]
    keep: bool,
    /// Remove the old database after the switch, and those set aside before
    #[arg(long)]
    discard_old: bool,
    /// Switch even if the result is not what was signed
    #[arg(long)]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `projection verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover projection verify -data-dir /var/lib/drover
  drover projection verify -data-dir /var/lib/drover -whole

Folds the log to the index at which the database stands and compares the digest of every table; all
rows on disk are read and their digests computed again. With -whole every entry of every index, of
history, changes and postings is compared too. Nothing is changed. No agent may be running on the
directory (`drover log replay` compares a running one). Exit codes: 0 equal, 1 not.")]
pub(super) struct VerifyArgs {
    /// The agent's data directory
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Compare every entry, not only the tables' digests
    #[arg(long)]
    whole: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `projection discard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover projection discard -data-dir /var/lib/drover")]
pub(super) struct DiscardArgs {
    /// The agent's data directory
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::List(args) => list(&args, out),
        Verb::Rebuild(args) => rebuild(args, out).await,
        Verb::Verify(args) => verify(args, out).await,
        Verb::Discard(args) => discard(&args, out),
    }
}

/// The log and the projections under a data directory; the server's own may be named too.
pub(super) fn places(data_dir: &Path) -> (PathBuf, PathBuf) {
    match data_dir.join("log").is_dir() {
        true => (data_dir.join("log"), data_dir.join("projections")),
        false => replay::places(data_dir),
    }
}

/// Runs what takes long on a thread of its own; an interrupt sets the flag that it looks at.
pub(super) async fn interruptible<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<T> {
    let flag = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&flag);
    let mut work = tokio::task::spawn_blocking(move || work(&own));
    loop {
        tokio::select! {
            done = &mut work => return Ok(done?),
            // Asked twice, it is killed, which costs no more than a generation.
            _ = tokio::signal::ctrl_c() => if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            },
        }
    }
}

/// What an operator reads where a rebuild or a comparison fails.
fn explain(error: RebuildError, doing: &'static str, dir: &Path) -> anyhow::Error {
    let hint = match &error {
        _ if error.is_cancelled() => "cancelled: run it again and it goes on where it was",
        _ if error.is_out_of_space() => {
            "the disk is full: make room and run it again, it goes on where it was"
        }
        RebuildError::Busy { .. } => {
            "stop the agent first, or compare a running one with `drover log replay`"
        }
        _ => "the database in use was not touched",
    };
    anyhow::Error::new(error).context(format!("Error {doing} in {} ({hint})", dir.display()))
}

fn list(args: &ListArgs, out: &Out) -> Result<u8> {
    let (_, live) = places(&args.data_dir);
    let shown = live.display();
    let hint = format!("Error opening {shown}; no agent may be running on it");
    anyhow::ensure!(live.is_dir(), "{shown} holds no database");
    let schema = schema::version_of(&live, &Options::default()).with_context(|| hint.clone())?;
    let (projections, _writer) = Projections::open(&live, Options::default()).context(hint)?;
    let view = projections.view();
    let (position, flushed) = (view.position(), projections.flushed()?.index);
    let sizes = view
        .sizes()
        .with_context(|| format!("Error reading {shown}"))?;
    let kept = rebuild::kept(&live)?;
    if args.json {
        let tables: Vec<Json> = sizes.iter().map(table_json).collect();
        let kept: Vec<Json> = kept
            .iter()
            .map(|(path, bytes)| json!({"Path": path, "Bytes": bytes}))
            .collect();
        let json = json!({"Applied": position.index, "Flushed": flushed, "Schema": schema.0,
            "Known": LATEST.0, "Floor": position.floor, "Tables": tables, "SetAside": kept,
            "Building": rebuild::beside(&live).is_dir()});
        out.line(&json.to_string());
        return Ok(0);
    }
    head(position, flushed, (schema.0, &live), out);
    let width = if args.verbose { 64 } else { 16 };
    let mut table = Table::new([
        "Table", "Rows", "Bytes", "Index", "Indexes", "Past", "Digest",
    ]);
    for size in sizes.iter().filter(|size| args.verbose || size.rows > 0) {
        table.row([
            size.name.to_owned(),
            size.rows.to_string(),
            size.bytes.to_string(),
            size.index.to_string(),
            size.indexes.to_string(),
            format!("{:?}", size.history).to_lowercase(),
            size.digest.to_hex()[..width].to_owned(),
        ]);
    }
    out.line(&table.to_string());
    for (path, bytes) in kept {
        out.line(&format!("Set aside: {} ({bytes} bytes)", path.display()));
    }
    Ok(0)
}

fn head(position: Position, flushed: u64, (schema, live): (u32, &Path), out: &Out) {
    let building = rebuild::beside(live);
    out.line(&pairs(&[
        ("Applied", position.index.to_string()),
        ("Flushed", flushed.to_string()),
        (
            "Schema",
            format!("{schema} (this drover knows {})", LATEST.0),
        ),
        ("Past from", position.floor.to_string()),
        (
            "Rebuild",
            match building.is_dir() {
                true => format!("begun in {}", building.display()),
                false => "none".to_owned(),
            },
        ),
    ]));
    out.head("Tables");
}

fn table_json(size: &TableSize) -> Json {
    json!({"Name": size.name, "ID": size.table, "Rows": size.rows, "Bytes": size.bytes,
        "Index": size.index, "Indexes": size.indexes, "Digest": size.digest.to_hex(),
        "History": format!("{:?}", size.history).to_lowercase()})
}

async fn rebuild(args: RebuildArgs, out: &Out) -> Result<u8> {
    let (log, live) = places(&args.data_dir);
    let bar = Bar::new(out, "entries");
    let (json, dir) = (args.json, args.data_dir.clone());
    let talks = !json && out.is_terminal();
    let told = out.clone();
    let done = interruptible(move |cancelled| {
        let mut stage = None;
        let work = Rebuild {
            memory: args.memory.max(1) << 20,
            rate: args.rate,
            discard_old: args.discard_old,
            force: args.force,
            ..Rebuild::of(&log, &live, &Options::default(), cancelled)
        };
        let done = work.run(&mut |progress| tell(progress, &mut stage, (&bar, &told, talks)));
        bar.clear();
        done
    })
    .await?;
    let done = done.map_err(|error| explain(error, "rebuilding the projections", &dir))?;
    match json {
        true => out.line(&rebuilt_json(&done).to_string()),
        false => report(&done, &dir, out),
    }
    Ok(0)
}

/// Draws the progress, and says which stage begins where no bar is drawn.
fn tell(progress: Progress, stage: &mut Option<Stage>, (bar, out, talks): (&Bar, &Out, bool)) {
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

fn report(done: &Rebuilt, dir: &Path, out: &Out) {
    let seconds = done.took.as_secs_f64();
    let rate = done.entries as f64 / seconds.max(0.001);
    out.line(&format!(
        "Rebuilt all tables to index {}: {} entries from {} in {seconds:.2}s ({rate:.0}/s)",
        done.state.index, done.entries, done.from
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
    if let Some(kept) = &done.kept {
        out.line(&format!("The old database is kept in {}", kept.display()));
        let dir = dir.display();
        out.line(&format!(
            "`drover projection discard -data-dir {dir}` removes it"
        ));
    }
}

fn rebuilt_json(done: &Rebuilt) -> Json {
    json!({"Index": done.state.index, "From": done.from, "Entries": done.entries,
        "Seconds": done.took.as_secs_f64(), "Compared": done.compared,
        "OldUnread": done.old_unread, "Kept": done.kept,
        "Digests": digests(&done.state)})
}

fn digests(state: &StateAt) -> Json {
    let tables = state.digests.iter();
    tables
        .map(|table| (table.name.to_owned(), Json::from(table.digest.to_hex())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

async fn verify(args: VerifyArgs, out: &Out) -> Result<u8> {
    let (log, live) = places(&args.data_dir);
    let bar = Bar::new(out, "entries");
    let done = interruptible(move |cancelled| {
        let check = Check {
            log_dir: log,
            live,
            options: Options::default(),
            whole: args.whole,
            cancelled,
        };
        let done = check.run(&mut |progress| bar.set(progress.at, progress.last));
        bar.clear();
        done
    })
    .await?;
    let dir = &args.data_dir;
    let done = done.map_err(|error| explain(error, "verifying the projections", dir))?;
    match args.json {
        true => out.line(&checked_json(&done).to_string()),
        false => tell_checked(&done, &args, out),
    }
    Ok(u8::from(!done.is_well()))
}

fn tell_checked(done: &Checked, args: &VerifyArgs, out: &Out) {
    for table in &done.damaged {
        out.error(&format!("table {table}: its rows do not give its digest"));
    }
    for table in &done.different {
        out.error(&format!("table {table} is not what the log gives"));
    }
    for found in &done.differences {
        let table = found.table.unwrap_or("-");
        out.error(&format!(
            "{} of table {table}: the entry {} {}",
            found.family, found.key, found.what
        ));
    }
    let index = done.state.index;
    if !done.is_well() {
        let dir = args.data_dir.display();
        out.error(&format!(
            "NOT verified at index {index}: `drover projection rebuild -data-dir {dir}` builds \
             them again"
        ));
        return;
    }
    let what = match args.whole {
        true => "every entry of every table, index and history",
        false => "the digests of all tables",
    };
    out.line(&format!(
        "verified {what} at index {index}: {} entries folded, {} tables",
        done.entries,
        done.state.digests.len()
    ));
}

fn checked_json(done: &Checked) -> Json {
    let differences: Vec<Json> = done
        .differences
        .iter()
        .map(|d| json!({"Family": d.family, "Table": d.table, "Key": d.key, "What": d.what}))
        .collect();
    json!({"Verified": done.is_well(), "Index": done.state.index, "Entries": done.entries,
        "Damaged": done.damaged, "Different": done.different, "Differences": differences,
        "Digests": digests(&done.state)})
}

fn discard(args: &DiscardArgs, out: &Out) -> Result<u8> {
    let (_, live) = places(&args.data_dir);
    let count = rebuild::discard(&live).with_context(|| {
        format!(
            "Error removing what was set aside beside {}",
            live.display()
        )
    })?;
    out.line(&format!("Removed {count} databases that were set aside"));
    Ok(0)
}
