//! `operator snapshot`: backups, one file each.

use super::client::{Client, Refused};
use super::columns::{ColumnTable, pairs};
use super::conn::Conn;
use super::digests;
use super::log::export;
use super::out::Out;
use super::progress::Bar;
use super::show::counted;
use crate::base::clock::{Moment, unix_nanos};
use crate::history::backup::adopt::adopt;
use crate::history::backup::inspect::{Inspection, inspect};
use crate::history::backup::restore::{Former, Restore, RestoreStep, Restored, prepare};
use crate::history::error::FULL;
use crate::history::proof::NoteKey;
use crate::history::rebuild;
use crate::http::answers::RestoreResponse;
use crate::log::atomic_file;
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use serde_json::{Value as Json, json};
use std::fs::{self, File};
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const PATH: &str = "/v1/operator/snapshot";
/// Bytes read at a time.
const BUFFER: usize = 1 << 20;

/// Backups of the cluster.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Write a backup of the cluster into a file
    Save(SaveArgs),
    /// Show what is in a backup, and check every byte of it
    Inspect(InspectArgs),
    /// Make a backup the state of a cluster, as a new epoch of its log
    Restore(RestoreArgs),
}

/// Flags of `operator snapshot save`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator snapshot save backup.tar
  drover operator snapshot save -stale /mnt/backup/$(date +%F).tar

The file holds the state, the log up to it and the root keys as they are wrapped on the server. The
key that wraps them, <data_dir>/server/keystore/wrap.key, is not in it: keep a copy of it elsewhere.
The file has its name only when it is whole and was checked. Nomad does not read it, nor drover a
backup of Nomad's: jobs, namespaces, pools and variables go over as their commands print them
(src/docs/backups.md).")]
pub(super) struct SaveArgs {
    #[command(flatten)]
    conn: Conn,
    /// Any server may answer
    #[arg(long)]
    stale: bool,
    /// The file to write; it must not exist
    file: PathBuf,
}

/// Flags of `operator snapshot inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator snapshot inspect backup.tar
  drover operator snapshot inspect -key drover/3f0c…+1a2b3c4d+AbCd… backup.tar

Every part is checked against its SHA-256, the sums against their signature. Without -key the keys
in the backup are believed, and the result says \"unpinned\". Unpacked with tar, a backup is what
`drover log verify -data-dir` takes. Exit codes: 0 all is well, 1 something is wrong.")]
pub(super) struct InspectArgs {
    /// The backup
    file: PathBuf,
    /// A verifier key whose signature counts; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `operator snapshot restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator snapshot restore backup.tar
  drover operator snapshot restore -at 2026-03-01T12:00:00Z backup.tar
  drover operator snapshot restore -data-dir /var/lib/drover -wrap-key wrap.key backup.tar

A running server checks the backup, goes on until the new state is ready, then starts anew with it:
a new epoch of the log, whose first index lies above every index known. Tasks go on. The former log
is kept under <data_dir>/server/former. With -data-dir no server may run there; it takes up the new
state when it is started. With -at the state of an earlier event is restored, by index, time or how
long ago (-5m), as far back as the log in the backup reaches; a time before its first event, or
after the backup was made, is refused.")]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    conn: Conn,
    /// Restore the state of this moment: an index, an RFC 3339 time, or so long ago (-5m)
    #[arg(
        long,
        value_name = "MOMENT",
        default_value = "",
        hide_default_value = true
    )]
    at: String,
    /// Restore into this data directory, whose server is stopped, instead of a running one
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The file with the key that the backup's keys are wrapped with: keystore/wrap.key of the
    /// server that was backed up; the server's own without it
    #[arg(long, value_name = "FILE")]
    wrap_key: Option<PathBuf>,
    /// A verifier key that must have signed the backup
    #[arg(long = "key", value_name = "KEY")]
    key: Option<String>,
    /// The new epoch begins above this index (with -data-dir): the highest that anybody has seen
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    above: u64,
    /// Do not wait until the server is back
    #[arg(long, conflicts_with = "data_dir")]
    detach: bool,
    /// The backup
    file: PathBuf,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Save(args) => save(&args, out).await,
        Verb::Inspect(args) => show(&args, out),
        Verb::Restore(args) => match &args.data_dir {
            Some(dir) => offline(&args, dir, out),
            None => online(&args, out).await,
        },
    }
}

/// An error with what was being done, and what helps where the server's disk is full.
fn failed(error: anyhow::Error, doing: &str) -> anyhow::Error {
    let full = error.chain().any(|why| why.to_string().starts_with(FULL));
    error.context(match full {
        true => format!("{doing} (free space on the server's disk and run it again)"),
        false => doing.to_owned(),
    })
}

fn keys(texts: &[String]) -> Result<Vec<NoteKey>> {
    let parse = |text: &String| {
        NoteKey::parse(text).with_context(|| format!("Error reading the key {text:?}"))
    };
    texts.iter().map(parse).collect()
}

/// Reads a backup whole.
fn read(path: &Path, keys: &[NoteKey], out: &Out) -> Result<Inspection> {
    let failed = || format!("Error reading {}", path.display());
    let file = File::open(path).with_context(failed)?;
    let all = file.metadata().with_context(failed)?.len();
    let bar = Bar::bytes(out);
    let mut from = BufReader::with_capacity(BUFFER, file);
    let found = inspect(&mut from, keys, &mut |at| bar.set(at, all));
    bar.clear();
    found.with_context(failed)
}

async fn save(args: &SaveArgs, out: &Out) -> Result<u8> {
    if args.file.exists() {
        bail!(
            "{} exists: a backup is never overwritten",
            args.file.display()
        );
    }
    let draft = PathBuf::from(format!("{}.tmp", args.file.display()));
    let done = fetch(args, &draft, out).await.and_then(|()| {
        let found = read(&draft, &[], out)?;
        if let Some(problem) = found.problems.first() {
            bail!("the backup did not arrive whole: {problem}");
        }
        fs::rename(&draft, &args.file)?;
        let dir = args.file.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(found)
    });
    let found = done.inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    });
    let found = found.map_err(|error| failed(error, "Error saving a backup"))?;
    let manifest = found.manifest.unwrap_or_default();
    out.line(&format!(
        "State file written to {} (index {}, {})",
        args.file.display(),
        manifest.index,
        counted(manifest.keys.len(), "key")
    ));
    Ok(0)
}

async fn fetch(args: &SaveArgs, draft: &Path, out: &Out) -> Result<()> {
    let client = args.conn.client()?;
    let query: &[(&str, &str)] = if args.stale {
        &[("stale", "true")]
    } else {
        &[]
    };
    let mut stream = client.stream(PATH, query).await?;
    let bar = Bar::styled(out, "{spinner} {bytes}  {bytes_per_sec}");
    let mut file = File::create(draft).with_context(|| draft.display().to_string())?;
    let mut fetched = 0;
    while let Some(chunk) = stream.chunk().await? {
        file.write_all(&chunk)
            .with_context(|| draft.display().to_string())?;
        fetched += chunk.len() as u64;
        bar.reach(fetched);
    }
    bar.clear();
    file.sync_all().with_context(|| draft.display().to_string())
}

fn show(args: &InspectArgs, out: &Out) -> Result<u8> {
    let found = read(&args.file, &keys(&args.keys)?, out)?;
    let code = u8::from(!found.problems.is_empty());
    if args.json {
        out.exact(&as_json(&found).to_string());
        return Ok(code);
    }
    if let Some(manifest) = &found.manifest {
        let signer = match (&found.signer, found.pinned) {
            (None, _) => "nobody".to_owned(),
            (Some(key), true) => key.clone(),
            (Some(key), false) => format!("{key} (unpinned)"),
        };
        let size: u64 = found.parts.iter().map(|part| part.size).sum();
        out.line(&pairs(&[
            ("Created", manifest.created.clone()),
            ("Version", manifest.version.clone()),
            (
                "Epoch",
                format!("{} from {}", manifest.epoch, manifest.epoch_first),
            ),
            ("Index", manifest.index.to_string()),
            ("Term", manifest.term.to_string()),
            ("Time", manifest.time.clone()),
            (
                "Restorable",
                format!("{} to {}", manifest.first, manifest.index),
            ),
            ("Tree size", manifest.tree_size.to_string()),
            ("Tree root", manifest.tree_root.clone()),
            ("State", manifest.state.clone()),
            ("Keys", manifest.keys.len().to_string()),
            ("Size", size.to_string()),
            ("Signer", signer),
        ]));
        let mut table = ColumnTable::new(["Table", "Rows", "Digest"]);
        for row in manifest.tables.iter().filter(|table| table.rows > 0) {
            let digest = row.digest.chars().take(16).collect::<String>();
            table.row([row.name.clone(), row.rows.to_string(), digest]);
        }
        out.head("Tables");
        out.line(&table.to_string());
    }
    for problem in &found.problems {
        out.error(problem);
    }
    match code {
        0 => out.line("Every part is what was written"),
        _ => out.error("NOT whole: a restore refuses this backup"),
    }
    Ok(code)
}

fn as_json(found: &Inspection) -> Json {
    let parts: Vec<Json> = found
        .parts
        .iter()
        .map(|part| {
            let sha256 = hex::encode(part.sha256);
            json!({"Name": part.name, "Size": part.size, "SHA256": sha256})
        })
        .collect();
    json!({
        "Manifest": found.manifest,
        "Parts": parts,
        "Signer": found.signer,
        "Pinned": found.pinned,
        "Problems": found.problems,
    })
}

fn wrap_key(args: &RestoreArgs) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).map(Zeroizing::new);
        bytes.with_context(|| format!("Error reading {}", path.display()))
    };
    args.wrap_key.as_ref().map(read).transpose()
}

async fn online(args: &RestoreArgs, out: &Out) -> Result<u8> {
    let client: Client = args.conn.client()?;
    // What is refused is so before a backup is sent for nothing.
    moment(&args.at)?;
    File::open(&args.file).with_context(|| format!("Error reading {}", args.file.display()))?;
    let mut query: Vec<(&str, &str)> = Vec::new();
    if !args.at.is_empty() {
        query.push(("at", &args.at));
    }
    if let Some(key) = &args.key {
        query.push(("key", key));
    }
    let wrap = wrap_key(args)?.map(|wrap| STANDARD.encode(&*wrap));
    let header = wrap.as_deref().map(|wrap| ("x-drover-wrap-key", wrap));
    let answer = client.upload(PATH, &query, header, &args.file).await;
    let taken: RestoreResponse = answer.map_err(|error| {
        let refused = error.downcast_ref::<Refused>().is_some();
        match refused {
            true => failed(
                error,
                "Error restoring the backup; the state is what it was",
            ),
            false => error.context(
                "Nobody answered whether the backup was restored: `drover operator raft \
                 list-peers` shows when the server is back, `drover log inspect` its epoch",
            ),
        }
    })?;
    out.line(&format!(
        "Restored the state of index {} as epoch {}, which begins at index {}; {} proved",
        taken.restored,
        taken.epoch,
        taken.index,
        counted(taken.tables, "table"),
    ));
    if args.detach {
        out.line(
            "The server starts anew with it; `drover operator raft list-peers` answers when it is \
             back",
        );
        return Ok(0);
    }
    back(&client, taken.index).await?;
    out.line("The server is back with the restored state");
    Ok(0)
}

/// How long a server may take to come back.
const BACK: Duration = Duration::from_secs(300);
/// Between two looks whether it is back, at first.
const LOOK: Duration = Duration::from_millis(50);
/// The same, at last.
const LOOK_MOST: Duration = Duration::from_secs(1);

/// Waits until the server answers with the new epoch, whose first index is above all that was.
/// A server does not report that it is back, so it is polled.
async fn back(client: &Client, first: u64) -> Result<()> {
    let begun = Instant::now();
    let mut pause = LOOK;
    loop {
        match digests::held(client).await {
            Ok(held) if held.index >= first => return Ok(()),
            Err(error) if begun.elapsed() > BACK => {
                let text = format!(
                    "The backup is restored, but the server is not back after {BACK:?}: see its log"
                );
                return Err(error.context(text));
            }
            Ok(_) if begun.elapsed() > BACK => {
                bail!(
                    "The backup is restored, but the server answers with the old state after \
                     {BACK:?}: see its log"
                )
            }
            _ => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(LOOK_MOST);
    }
}

/// What `-at` names, if it is given.
fn moment(text: &str) -> Result<Option<Moment>> {
    if text.is_empty() {
        return Ok(None);
    }
    export::moment("at", text).map(Some)
}

/// Restores where no server runs: what is begun there is finished at once.
fn offline(args: &RestoreArgs, data_dir: &Path, out: &Out) -> Result<u8> {
    let server = data_dir.join("server");
    fs::create_dir_all(&server).with_context(|| server.display().to_string())?;
    let _alone = lock(&server)?;
    // What an agent built again beside itself comes home first: the restored state takes its place.
    let home = server.join("projections");
    rebuild::finish_switch_locked(&home).context("Error finishing an earlier rebuild")?;
    adopt(&server).context("Error finishing an earlier restore")?;
    let how = Restore {
        moment: moment(&args.at)?,
        wrap: wrap_key(args)?,
        pinned: keys(args.key.as_slice())?,
        above: args.above.max(known(&server)?),
        term: 0,
    };
    let done = restored(args, &server, &how, out);
    let what = "Error restoring the backup; the data directory is what it was";
    let done = done.map_err(|error| failed(error, what))?;
    adopt(&server).context("Error putting the restored state in place; run this again")?;
    out.line(&format!(
        "Restored the state of index {} as epoch {}, which begins at index {}; {} proved",
        done.index,
        done.epoch,
        done.first,
        counted(done.tables, "table")
    ));
    out.line(&format!(
        "Start it with `drover agent -data-dir {}`",
        data_dir.display()
    ));
    Ok(0)
}

/// Keeps a server from starting, or refuses where one runs.
fn lock(server: &Path) -> Result<Option<Box<dyn std::any::Any + Send + Sync>>> {
    use crate::log::{FileLayer as _, RealFiles};
    let log = server.join("log");
    if !log.is_dir() {
        return Ok(None);
    }
    let lock = RealFiles.lock(&log)?;
    if lock.is_none() {
        bail!(
            "a server runs on {}: leave -data-dir out to restore through its API",
            server.display()
        );
    }
    Ok(lock)
}

/// The highest index that a data directory's log has.
fn known(server: &Path) -> Result<u64> {
    let log = server.join("log");
    if !log.is_dir() {
        return Ok(0);
    }
    let log = crate::log::ReadOnlyLog::open(&log).context("Error reading the former log")?;
    Ok(log.bounds().1)
}

fn restored(args: &RestoreArgs, server: &Path, how: &Restore, out: &Out) -> Result<Restored> {
    let file = File::open(&args.file).with_context(|| args.file.display().to_string())?;
    let bar = Bar::styled(out, "{msg:10} {spinner} {pos}");
    let mut from = BufReader::with_capacity(BUFFER, file);
    let prepared = prepare(&mut from, server, how, &mut |step, at, _| {
        bar.say(match step {
            RestoreStep::Unpack => "unpacking",
            RestoreStep::Verify => "verifying",
            RestoreStep::Fold => "folding",
        });
        bar.reach(at);
    });
    bar.clear();
    let prepared = prepared?;
    let mut member = prepared.member().cloned().unwrap_or_default();
    member.id = own_id(server)?;
    let former = Former {
        member,
        actor: drover_events::Actor {
            name: "drover operator snapshot restore".to_owned(),
            ..drover_events::Actor::default()
        },
        request_id: uuid::Uuid::now_v7().to_string(),
        log: None,
        now: unix_nanos(),
    };
    Ok(prepared.finish(&former)?)
}

/// The id of the server of this data directory; a new one is given where it has none.
fn own_id(server: &Path) -> Result<String> {
    let path = server.join("node-id");
    if let Ok(id) = fs::read_to_string(&path) {
        return Ok(id.trim().to_owned());
    }
    let id = uuid::Uuid::new_v4().to_string();
    atomic_file::put(&path, id.as_bytes())?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ArchiveError;

    #[test]
    fn where_the_disk_of_the_server_is_full_the_error_names_what_helps() {
        let shown = |error: anyhow::Error| failed(error, "Error saving a backup").to_string();
        let full = ArchiveError::NoSpace(format!("{FULL}: 5 MiB are free in /srv"));
        assert_eq!(
            shown(full.into()),
            "Error saving a backup (free space on the server's disk and run it again)"
        );
        let closed = anyhow::anyhow!("log: closed");
        assert_eq!(shown(closed), "Error saving a backup");
    }
}
