//! `log export` and `log import`: events as lines of JSON, and a log made of them again.

use super::events::{outcomes, redactor};
use super::place::LogPlace;
use crate::base::clock::{Moment, unix_nanos};
use crate::cli::out::Out;
use crate::cli::progress::Bar;
use crate::cli::show::counted;
use crate::history::ArchiveError;
use crate::history::export::import::import;
use crate::history::export::lines::{AGENT, Export, Exported, Format};
use crate::history::export::parquet;
use crate::history::record::numbers::Numbers;
use crate::log::ReadOnlyLog;
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use drover_events::EventKind;
use drover_events::public::PublicFields;
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 20;

/// Bytes looked at first for the last line of a file.
const WINDOW: u64 = 64 << 10;

/// Flags of `log export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover log export -data-dir /var/lib/drover -out events.ndjson
  drover log export -data-dir /var/lib/drover -kind JobRegistered -kind JobDeregistered | jq .
  drover log export -data-dir /var/lib/drover -format cloudevents -from 12000 -out new.json
  drover log export -data-dir /var/lib/drover -bodies -out whole.ndjson -resume
  drover log export -data-dir /var/lib/drover -format parquet -out events
  duckdb -c \"FROM read_parquet('events/**/*.parquet', hive_partitioning = true) LIMIT 5\"
  drover log export -archive s3://bucket/drover -data-dir /var/lib/drover -out all.ndjson

One event is one line. Sensitive values (the environment of tasks, templates, ...) are keyed hashes,
secrets are hidden; -clear shows them as they are in the log. With -bodies a line carries the exact
bytes that were hashed too, nothing hidden: `drover log import` makes the same log of them, with the
same proofs. Parquet files go into a directory, partitioned by day and kind; the payload is a column
of JSON, export.json is there when all of it is and says with which flags. With -resume an export
that was interrupted goes on after its last whole line, which must be one that this log gives with
these flags; Parquet files go on after the last whole day, also those of an export that ended.
Every event says what became of it (Outcome, and Reason where it was refused and changed nothing).
The log alone does not know: it is read from the tables beside it, and where they are behind, the
log is folded once before; -no-outcomes saves that time and leaves the two fields out.
Nothing is changed, and an agent may be running.")]
pub(in crate::cli) struct ExportArgs {
    #[command(flatten)]
    place: LogPlace,
    /// The first event: an index, an RFC 3339 time, or so long ago (-5m)
    #[arg(long, value_name = "MOMENT", default_value = "0")]
    from: String,
    /// The last event: an index, an RFC 3339 time, or so long ago (-5m)
    #[arg(long, value_name = "MOMENT")]
    to: Option<String>,
    /// Only events of this kind; may be repeated
    #[arg(long = "kind", value_name = "NAME")]
    kinds: Vec<String>,
    /// How a line looks
    #[arg(long, value_enum, default_value = "ndjson")]
    format: FormatName,
    /// Add the exact bytes of each event, for `drover log import`
    #[arg(long)]
    bodies: bool,
    /// Show sensitive values, which are keyed hashes otherwise, and secrets
    #[arg(long)]
    clear: bool,
    /// Where it is written, for parquet a directory; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// Go on after the last whole line of the file, or the last whole day of Parquet files
    #[arg(long)]
    resume: bool,
    /// Write integers beyond 2^53 as texts, for readers with doubles (JavaScript, jq)
    #[arg(long)]
    strings: bool,
    /// Show this field in clear, not as a keyed hash, Task.Config.image or Job.Meta for example;
    /// may be repeated
    #[arg(long = "public", value_name = "FIELD", conflicts_with = "clear")]
    public: Vec<String>,
    /// Do not say what became of the events
    #[arg(long)]
    no_outcomes: bool,
    /// The agent that CloudEvents name for their schemas
    #[arg(long, value_name = "URL", default_value = AGENT)]
    schemas: String,
}

/// The forms, as they are named.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    /// One document a line
    Ndjson,
    /// One CloudEvent 1.0 a line
    #[value(name = "cloudevents")]
    CloudEvents,
    /// Parquet files in a directory, partitioned by day and kind
    Parquet,
}

/// Flags of `log import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover log import whole.ndjson -data-dir /var/lib/drover
  zstd -dc whole.ndjson.zst | drover log import - -data-dir /var/lib/drover

The lines are those of `drover log export -bodies`. The data directory must be empty; its log is
the same as the one exported, root and all, and a server started there folds it into the same state.
Keys are in no export: copy server/keystore too, before a server starts there, or use `drover
operator snapshot`, which takes them along. Without them the server makes a new key and goes on:
variables written before cannot be read, only written again or deleted; checkpoints and backups are
signed by the new key; sensitive values have other hashes in exports and in the audit trail.")]
pub(in crate::cli) struct ImportArgs {
    /// The exported lines; - is standard input
    file: PathBuf,
    /// The data directory to fill
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The moment that a flag names.
pub(in crate::cli) fn moment(flag: &str, text: &str) -> Result<Moment> {
    Moment::parse(text, unix_nanos()).map_err(|error| anyhow::anyhow!("-{flag} {error}"))
}

fn wanted(args: &ExportArgs) -> Result<Export> {
    let mut export = Export {
        bodies: args.bodies,
        format: match args.format {
            FormatName::Ndjson | FormatName::Parquet => Format::Ndjson,
            FormatName::CloudEvents => Format::CloudEvents,
        },
        numbers: match args.strings {
            true => Numbers::Strings,
            false => Numbers::Plain,
        },
        agent: args.schemas.clone(),
        ..Export::default()
    };
    if args.bodies && !matches!(args.format, FormatName::Ndjson) {
        bail!("-bodies goes with -format ndjson: the other forms are for other readers");
    }
    match moment("from", &args.from)? {
        Moment::Index(index) => export.from = index,
        Moment::Time(time) => export.since = Some(time),
    }
    match args.to.as_deref().map(|to| moment("to", to)).transpose()? {
        Some(Moment::Index(index)) => export.to = Some(index),
        Some(Moment::Time(time)) => export.until = Some(time),
        None => {}
    }
    for name in &args.kinds {
        let kind = EventKind::from_name(name);
        let kind = kind.with_context(|| {
            format!("-kind {name:?} is no kind of event; `drover event schema` lists them")
        })?;
        export.kinds.push(kind.number());
    }
    Ok(export)
}

/// Exports.
pub(in crate::cli) async fn export(args: &ExportArgs, out: &Out) -> Result<u8> {
    let mut export = wanted(args)?;
    let place = args.place.find(out).await?;
    if !args.clear && !args.bodies {
        let keys = args.place.keys_below(&place);
        let shown = PublicFields::read(&args.public).map_err(anyhow::Error::msg)?;
        export.redactor = Some(Arc::new(redactor(&keys, out)?.showing(shown)));
    }
    let dir = &place.log;
    let log = ReadOnlyLog::open(dir)
        .with_context(|| format!("Error reading the log in {}", dir.display()))?;
    let next = log.bounds().1;
    if export.from >= next.max(1) {
        let (from, last) = (export.from, next.saturating_sub(1));
        bail!(
            "-from {from} is beyond the end: the log in {} ends at index {last}",
            dir.display()
        );
    }
    if !args.no_outcomes {
        let range = (export.from, export.to);
        export.outcomes = Arc::new(outcomes(&args.place, &place, &log, range, out)?);
    }
    if matches!(args.format, FormatName::Parquet) {
        return tables(args, &export, &log, out);
    }
    let to_file = args.out != Path::new("-");
    if args.resume && !to_file {
        bail!("-resume needs a file: name it with -out");
    }
    let target = match (to_file, args.resume) {
        (true, true) => Some(resumed(&args.out, &log, &mut export)?),
        (true, false) => Some(made(&args.out)?),
        _ => None,
    };
    let bar = Bar::new(out, "events");
    let mut progress = |at: u64, all: u64| bar.set(at, all);
    let done = match &target {
        Some(file) => {
            let mut to = BufWriter::with_capacity(BUFFER, file);
            let done = export.run(&log, &mut to, &mut progress);
            done.and_then(|done| {
                file.sync_all().map_err(ArchiveError::Write)?;
                Ok(done)
            })
        }
        None => export.run(&log, &mut Printed(out), &mut progress),
    };
    bar.clear();
    let done = done.with_context(|| match to_file {
        true => format!(
            "Error exporting the log in {}; what is in {} stays, go on with -resume",
            dir.display(),
            args.out.display()
        ),
        false => format!("Error exporting the log in {}", dir.display()),
    })?;
    if to_file {
        report(&done, &args.out, out);
    }
    Ok(0)
}

/// Makes a file that is not there yet.
fn made(path: &Path) -> Result<File> {
    File::create_new(path).map_err(|error| {
        let path = path.display();
        match error.kind() {
            ErrorKind::AlreadyExists => anyhow!(
                "{path} exists: go on with it (-resume), or export to another file; nothing is \
                 overwritten"
            ),
            _ => anyhow::Error::from(error).context(format!("Error making {path}")),
        }
    })
}

/// Exports as Parquet files.
fn tables(args: &ExportArgs, export: &Export, log: &ReadOnlyLog, out: &Out) -> Result<u8> {
    if args.out == Path::new("-") {
        bail!("-format parquet needs a directory: name it with -out DIR");
    }
    let bar = Bar::new(out, "events");
    let mut progress = |at, all| bar.set(at, all);
    let done = parquet::write(export, log, &args.out, args.resume, &mut progress);
    bar.clear();
    let done = done.map_err(|error| {
        let path = args.out.display();
        let what = match error {
            ArchiveError::Refused(_) => format!("Error exporting to {path}"),
            _ => format!("Error exporting to {path}; what is there is not all: go on with -resume"),
        };
        anyhow::Error::from(error).context(what)
    })?;
    report(&done, &args.out, out);
    Ok(0)
}

fn report(done: &Exported, path: &Path, out: &Out) {
    let behind = match done.last {
        Some(last) => format!(", up to index {last}"),
        None => String::new(),
    };
    let (events, bytes) = (done.events, done.bytes);
    let path = path.display();
    out.line(&format!(
        "{} written to {path}{behind} ({})",
        counted(events, "event"),
        counted(bytes, "byte")
    ));
}

/// Standard output, line by line.
struct Printed<'a>(&'a Out);

impl std::io::Write for Printed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.raw(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The part of a line of an export that says which event it is.
#[derive(Deserialize)]
struct ExportLine {
    #[serde(rename = "Index")]
    index: Option<u64>,
    /// The event, where the line is a CloudEvent.
    data: Option<Box<ExportLine>>,
}

impl ExportLine {
    fn index(&self) -> Option<u64> {
        let of_event = || self.data.as_ref().and_then(|event| event.index);
        self.index.or_else(of_event)
    }
}

/// Opens a file that an export of a log broke off in, behind its last whole line, which must be
/// what this export says of that event.
fn resumed(path: &Path, log: &ReadOnlyLog, export: &mut Export) -> Result<File> {
    let failed = || format!("Error reading {}", path.display());
    let mut options = File::options();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(failed)?;
    let Some((line, end)) = last_line(&mut file).with_context(failed)? else {
        file.set_len(0).with_context(failed)?;
        file.rewind().with_context(failed)?;
        return Ok(file);
    };
    let last: ExportLine = serde_json::from_slice(&line)
        .with_context(|| format!("{} is no export: its last line is no JSON", path.display()))?;
    let index = last
        .index()
        .with_context(|| format!("{} is no export: no index in it", path.display()))?;
    let (first, next) = log.bounds();
    let shown = path.display();
    if index >= next {
        bail!("{shown} is no export of this log: it has index {index}, the log ends before {next}");
    }
    if index < first {
        bail!("{shown} cannot be continued: it ends at {index}, the log begins at {first} now");
    }
    let own = export
        .line_of(log, index)
        .context("Error reading the log")?;
    if own.is_none_or(|own| own.trim_ascii_end() != line) {
        bail!(
            "{shown} is no export of this log with these flags: its line of index {index} is \
             another; export to another file"
        );
    }
    export.from = export.from.max(index + 1);
    file.set_len(end).with_context(failed)?;
    file.seek(SeekFrom::Start(end)).with_context(failed)?;
    Ok(file)
}

/// The last line that has an end, and where it ends.
fn last_line(file: &mut File) -> std::io::Result<Option<(Vec<u8>, u64)>> {
    let length = file.metadata()?.len();
    let mut window = WINDOW;
    loop {
        let from = length.saturating_sub(window);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut bytes)?;
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            if from == 0 {
                return Ok(None);
            }
            window *= 2;
            continue;
        };
        let begin = bytes[..end].iter().rposition(|byte| *byte == b'\n');
        match begin {
            None if from > 0 => window *= 2,
            _ => {
                let begin = begin.map_or(0, |at| at + 1);
                return Ok(Some((bytes[begin..end].to_vec(), from + end as u64 + 1)));
            }
        }
    }
}

/// Imports.
pub(in crate::cli) fn import_lines(args: &ImportArgs, out: &Out) -> Result<u8> {
    let dir = args.data_dir.display();
    let bar = Bar::bytes(out);
    let done = if args.file == Path::new("-") {
        let progress = &mut |at| bar.reach(at);
        import(&mut std::io::stdin().lock(), &args.data_dir, progress)
    } else {
        let file = File::open(&args.file)
            .with_context(|| format!("Error reading {}", args.file.display()))?;
        let all = file.metadata()?.len();
        let mut lines = BufReader::with_capacity(BUFFER, file);
        import(&mut lines, &args.data_dir, &mut |at| bar.set(at, all))
    };
    bar.clear();
    let done = done.with_context(|| format!("Error importing into {dir}"))?;
    let root = STANDARD.encode(done.root);
    if args.json {
        let json = json!({"Events": done.events, "First": done.first, "Last": done.last,
            "Root": root, "Server": done.server});
        out.exact(&json.to_string());
        return Ok(0);
    }
    out.line(&format!(
        "imported {}, {} to {}, root {root}",
        counted(done.events, "event"),
        done.first,
        done.last
    ));
    if done.server.is_none() {
        out.error(
            "the log names no lone server: it can be read and replayed, but no server can go on \
             from it",
        );
    }
    if !args.data_dir.join("server/keystore").exists() {
        out.line(&format!(
            "keys are in no export: copy the keystore of the former server to \
             {dir}/server/keystore before a server starts there, or variables cannot be read again"
        ));
    }
    out.line(&format!(
        "compare with `drover log verify -data-dir {dir}` and `drover log replay -data-dir {dir}`"
    ));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::record::{CloudEvent, Document};
    use crate::history::testing::blank;

    #[test]
    fn the_index_of_every_form_of_a_line_is_read() {
        let blank = blank(7);
        let document = Document::of(&blank);
        let cloud = CloudEvent::of(document, [1; 16], "");
        for line in [serde_json::to_vec(&document), serde_json::to_vec(&cloud)] {
            let line: ExportLine = serde_json::from_slice(&line.unwrap()).unwrap();
            assert_eq!(line.index(), Some(7));
        }
    }
}
