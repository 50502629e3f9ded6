//! `log events`: what happened, by whom and from what it followed, straight from the log.

use super::moment;
use super::place::{LogPlace, OpenedLog};
use crate::cli::changes::{Who, who};
use crate::cli::columns::ColumnTable;
use crate::cli::log::{Scratch, kind_name};
use crate::cli::out::{Out, one_line};
use crate::cli::progress::Bar;
use crate::cli::show::{refused, time};
use crate::error::chain;
use crate::history::export::outcomes::{OutcomeQuery, Outcomes};
use crate::history::record::{Document, RecordedOutcome, Redactor};
use crate::history::replay::places;
use crate::log::ReadOnlyLog;
use anyhow::{Context, Result, bail};
use drover_events::{EventKind, Recorded};
use std::path::{Path, PathBuf};

/// Rows are printed this many at a time, so that a long log shows something at once.
const ROWS: usize = 500;

/// Flags of `log events`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover log events -data-dir /var/lib/drover
  drover log events -data-dir /var/lib/drover -from 1200 -kind JobRegistered
  drover log events -data-dir /var/lib/drover -json | jq .Cause
  drover log events -archive s3://bucket/drover -from 1200
  drover log events -data-dir /var/lib/drover -json -clear -kind JobRegistered

With -json, sensitive values (environments, meta, templates, ...) are shown as hashes under a key
of the cluster, the same value always as the same hash, and secrets as \"redacted\".
Cause is the index of the event that this one followed from; the first of a chain has none.
Outcome says whether an event was applied or refused: then it changed nothing. It is taken from the
tables beside the log, and is \"unknown\" where they do not say; with -json or -outcomes the log is
folded then, which takes its time. -no-outcomes leaves it out.")]
pub(in crate::cli) struct EventsArgs {
    #[command(flatten)]
    place: LogPlace,
    /// The first event: an index, an RFC 3339 time, or so long ago (-5m); the first that is kept
    /// without it
    #[arg(long, value_name = "MOMENT")]
    from: Option<String>,
    /// The last event, as well
    #[arg(long, value_name = "MOMENT")]
    to: Option<String>,
    /// Only events of this kind
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Print a JSON object per line
    #[arg(long)]
    json: bool,
    /// Show sensitive values and what is stored of secrets as they are
    #[arg(long, requires = "json")]
    clear: bool,
    /// Fold the log where the tables beside it do not say what became of the events
    #[arg(long, conflicts_with = "no_outcomes")]
    outcomes: bool,
    /// Do not say what became of the events
    #[arg(long)]
    no_outcomes: bool,
}

/// Prints the events of a log, oldest first.
pub(in crate::cli) async fn run(args: &EventsArgs, out: &Out) -> Result<u8> {
    let place = args.place.find(out).await?;
    let dir = &place.log;
    let log = ReadOnlyLog::open(dir)
        .with_context(|| format!("Error reading the log in {}", dir.display()))?;
    let (from, to) = range(args, &log)?;
    if let Some(kind) = args.kind.as_ref().filter(|kind| !is_kind(kind)) {
        bail!("-kind: there is no event kind {kind:?}; `drover event schema` lists them");
    }
    let redactor = match args.json && !args.clear {
        true => Some(redactor(&args.place.keys_below(&place), out)?),
        false => None,
    };
    let known = match (args.no_outcomes, args.json || args.outcomes) {
        (true, _) => None,
        (false, true) => Some(outcomes(&args.place, &place, &log, (from, to), out)?),
        (false, false) => Some(stored(&args.place)),
    };
    let (mut rows, mut reached) = (Vec::new(), from);
    let mut damage = None;
    for entry in log.scan(from) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                damage = Some(error);
                break;
            }
        };
        if to.is_some_and(|last| entry.index > last) {
            break;
        }
        reached = entry.index + 1;
        let name = kind_name(entry.kind);
        if args.kind.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let event = drover_migrations::decode(&entry.body)
            .with_context(|| format!("Error decoding the event at index {}", entry.index))?;
        if args.json {
            let outcome = known.as_ref().and_then(|known| known.get(event.index));
            let document = Document::of(&event).became(outcome);
            out.exact(&document.text(redactor.as_ref())?);
            continue;
        }
        rows.push(event);
        if rows.len() == ROWS {
            out.line(&table(&rows, known.as_ref()));
            rows.clear();
        }
    }
    if !rows.is_empty() {
        out.line(&table(&rows, known.as_ref()));
    }
    let damage = damage.or_else(|| log.damage_from(from).cloned());
    match damage.filter(|_| to.is_none_or(|to| to >= reached)) {
        Some(damage) => {
            let what = format!("What lies at index {reached} and above is not shown");
            Err(anyhow::Error::from(damage).context(what))
        }
        None => Ok(0),
    }
}

/// The first index that is wanted, and the last where one is named.
fn range(args: &EventsArgs, log: &ReadOnlyLog) -> Result<(u64, Option<u64>)> {
    let first = log.bounds().0.max(log.epoch().first_index);
    let from = args.from.as_deref();
    let from = from.map(|text| moment::since(log, "from", text));
    let from = from.transpose()?.unwrap_or(first);
    refuse_dropped(log, from)?;
    let Some(named) = args.to.as_deref() else {
        return Ok((from, None));
    };
    match (moment::until(log, "to", named)?, &args.from) {
        (Some(to), _) if to >= from => Ok((from, Some(to))),
        (_, Some(begin)) => bail!("-to {named} is before -from {begin}"),
        (_, None) => bail!("-to {named} is before the log begins, at index {from}"),
    }
}

/// Whether events are shown under a name: one that this release does not know has a number.
fn is_kind(name: &str) -> bool {
    let number = name.strip_prefix("kind ").map(str::parse::<u16>);
    EventKind::from_name(name).is_some() || number.is_some_and(|number| number.is_ok())
}

/// Refuses an index below the horizon, and says where the log begins.
fn refuse_dropped(log: &ReadOnlyLog, from: u64) -> Result<()> {
    let (first, epoch) = (log.bounds().0, log.epoch().first_index);
    if from >= first || first == epoch {
        return Ok(());
    }
    bail!(
        "index {from} is not kept: the log begins at {first} here. What was dropped is in the \
         archive, where there is one (-archive URL)"
    )
}

/// What became of the events in a range of a log. Where that cannot be known (the log is damaged,
/// or continues a state that is not here) that is printed, and no outcome is known.
pub(in crate::cli) fn outcomes(
    place: &LogPlace,
    found: &OpenedLog,
    log: &ReadOnlyLog,
    (from, to): (u64, Option<u64>),
    out: &Out,
) -> Result<Outcomes> {
    let tables = place.data_dir.as_deref().map(tables_dir);
    let scratch = Scratch::new()?;
    let wanted = OutcomeQuery {
        log_dir: &found.log,
        tables: tables.as_deref(),
        from,
        to,
        scratch: &scratch.0.join("tables"),
    };
    let bar = Bar::new(out, "events folded");
    let outcomes = Outcomes::find(wanted, log, &mut |at, all| bar.set(at, all));
    bar.clear();
    outcomes.or_else(|error| {
        let why = chain(&error);
        out.error(&format!(
            "which events were refused is not known, and nothing says so of them: {why}"
        ));
        Ok(Outcomes::default())
    })
}

/// What the tables beside a log know of its events: whoever looks at some waits for no more.
fn stored(place: &LogPlace) -> Outcomes {
    let tables = place.data_dir.as_deref().map(tables_dir);
    tables.map_or_else(Outcomes::default, |tables| Outcomes::stored(&tables))
}

/// Where a server's tables lie below a data directory.
fn tables_dir(data_dir: &Path) -> PathBuf {
    let inner = data_dir.join("projections");
    match inner.is_dir() {
        true => inner,
        false => places(data_dir).1,
    }
}

/// What hides confidential values, with the keys below a data directory.
pub(in crate::cli) fn redactor(data_dir: &Path, out: &Out) -> Result<Redactor> {
    let redactor = Redactor::of_data_dir(data_dir).context("Error reading the keystore")?;
    if !redactor.can_hash() {
        let shown = data_dir.display();
        out.error(&format!(
            "no keys in {shown}: sensitive values are shown as \"redacted\"; -clear shows them"
        ));
    }
    Ok(redactor)
}

/// Events in columns; what became of them too, where that was looked for.
fn table(rows: &[Recorded], known: Option<&Outcomes>) -> String {
    let mut head = vec!["Index", "Time", "Kind", "Actor", "Cause", "Request"];
    if known.is_some() {
        head.push("Outcome");
    }
    let mut table = ColumnTable::with_head(head);
    for event in rows {
        let envelope = event.envelope.as_ref();
        let actor = envelope.map(|envelope| Who::from(&envelope.actor));
        let when = if event.time == 0 {
            String::new()
        } else {
            time(event.time)
        };
        let mut cells = vec![
            event.index.to_string(),
            when,
            event.kind.name().to_owned(),
            who(actor.as_ref()),
            envelope
                .and_then(|envelope| envelope.cause)
                .map_or_else(|| "-".to_owned(), |cause| cause.to_string()),
            envelope
                .map(|envelope| envelope.request_id.clone())
                .unwrap_or_default(),
        ];
        cells.extend(known.map(|known| became(known.get(event.index))));
        table.row(cells.iter().map(|cell| one_line(cell)));
    }
    table.to_string()
}

/// What became of an event, a refused one in the words of the audit trail.
fn became(outcome: Option<RecordedOutcome<'_>>) -> String {
    match outcome {
        Some(RecordedOutcome::Rejected(reason)) => refused(reason),
        Some(applied) => applied.name().to_owned(),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::history::testing::write_log;

    /// A command line with nothing but these flags.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EventsArgs,
    }

    #[test]
    fn a_log_is_folded_for_a_table_where_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        write_log(&data, 200);
        let parse = |flags: &[&str]| {
            let all = ["events", "--data-dir", data.to_str().unwrap()];
            Line::try_parse_from(all.iter().chain(flags))
        };
        let args = parse(&[]).unwrap().args;
        assert!(!args.outcomes);
        assert_eq!(stored(&args.place), Outcomes::default(), "no tables");
        assert!(parse(&["--outcomes"]).unwrap().args.outcomes);
        assert!(parse(&["--outcomes", "--no-outcomes"]).is_err());
    }

    #[test]
    fn a_refused_event_is_no_fact_in_the_table() {
        let dir = tempfile::tempdir().unwrap();
        let log_dir = write_log(&dir.path().join("data"), 200);
        let log = ReadOnlyLog::open(&log_dir).unwrap();
        let scratch = dir.path().join("scratch");
        let wanted = OutcomeQuery {
            log_dir: &log_dir,
            tables: None,
            from: 0,
            to: None,
            scratch: &scratch,
        };
        let known = Outcomes::find(wanted, &log, &mut |_, _| ()).unwrap();
        let decoded = log.scan(0).map(|entry| {
            let entry = entry.unwrap();
            drover_migrations::decode(&entry.body).unwrap()
        });
        let rows: Vec<Recorded> = decoded.collect();
        let text = table(&rows, Some(&known));
        let mut lines = text.lines();
        assert!(lines.next().unwrap().ends_with("Outcome"), "{text}");
        let mut refused = 0;
        for (event, line) in rows.iter().zip(lines) {
            match known.get(event.index).unwrap() {
                RecordedOutcome::Applied => assert!(line.ends_with("  applied"), "{line}"),
                RecordedOutcome::Rejected(why) => {
                    refused += 1;
                    assert!(line.ends_with(&format!("  REFUSED: {why}")), "{line}");
                }
            }
        }
        assert!(refused > 2, "{text}");
        let nothing_known = table(&rows[..1], Some(&Outcomes::default()));
        assert!(nothing_known.ends_with("  unknown"), "{nothing_known}");
        let without = table(&rows, None);
        assert!(
            !without.contains("Outcome") && !without.contains("applied"),
            "{without}"
        );
    }
}
