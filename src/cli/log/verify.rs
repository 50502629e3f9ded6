//! `log verify`: reads a log again from its first byte and says whether it is what was signed.

use super::beside;
use super::place::{LogPlace, OpenedLog};
use super::verify_live::{self, VerifyRequest};
use crate::cli::columns::pairs;
use crate::cli::conn::Conn;
use crate::cli::interruptible::interruptible;
use crate::cli::log::Scratch;
use crate::cli::out::Out;
use crate::cli::progress::Bar;
use crate::cli::show::counted;
use crate::history::backup::{base, inspect};
use crate::history::proof::{
    Checkpoint, CheckpointFile, Finding, NoteKey, Verified, Verify, verify,
};
use crate::history::rebuild::{DigestCheck, DigestsChecked};
use crate::log::ReadOnlyLog;
use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flags of `log verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover log verify
  drover log verify -state /var/lib/auditor/drover.json -key drover/3f0c…+1a2b3c4d+AbCd…
  drover log verify -data-dir /var/lib/drover
  drover log verify -data-dir /mnt/copy -key drover/3f0c…+1a2b3c4d+AbCd…
  drover log verify -archive s3://bucket/drover -data-dir /var/lib/drover
  drover log verify backup.tar

Reads every entry, builds the tree over them again, and compares it with every checkpoint that was
signed. Without -key the keys that lie beside the checkpoints are believed, and the result says
\"unpinned\"; a key noted elsewhere before (GET /v1/log/keys) makes it independent of the server: a
log without any checkpoint by that key is refused.
With -digests the log is folded too, and the digests of the tables are compared with those in the
checkpoints. A log whose beginning was dropped is verified from the signed base that it goes on
from, every row of which is read; with its archive it is verified from the beginning. Snapshots, the
request log, the keys and the id beside the log are read too. Of a backup every part is compared
with its sum first. Nothing is changed, and an agent may be running.

Without -data-dir, -archive or a backup the agent at -address sends its last checkpoint and all
events, of which the tree is built again; with -hashes only the hashes of events, a tenth of the
bytes. Of what was dropped there are hashes only. With -state the checkpoint is remembered in
a file, with the key that signed it: the next time the log must go on from there, signed by the same
key. A key that was rotated is another key, which is named and refused until it is given with -key.
Exit codes: 0 all is well, 1 something is wrong.")]
pub(in crate::cli) struct VerifyArgs {
    #[command(flatten)]
    conn: Conn,
    /// A backup, as `drover operator snapshot save` writes it
    #[arg(value_name = "BACKUP", conflicts_with_all = ["data_dir", "archive"])]
    backup: Option<PathBuf>,
    #[command(flatten)]
    place: LogPlace,
    /// A file in which the verified checkpoint is remembered for the next time
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "archive", "backup"])]
    state: Option<PathBuf>,
    /// Of an agent, fetch the hashes of events, and not the events
    #[arg(long, conflicts_with_all = ["data_dir", "archive", "backup"])]
    hashes: bool,
    /// A verifier key whose signatures count; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Fold the log and compare the tables with every checkpoint and every recorded digest, also
    /// where that takes long; logs of up to 100,000 events are always folded
    #[arg(long, requires = "data_dir")]
    digests: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Events that are folded without a request for it: some seconds' work.
const CHEAP: u64 = 100_000;

/// Verifies a log.
pub(in crate::cli) async fn run(args: &VerifyArgs, out: &Out) -> Result<u8> {
    let parse = |text: &String| {
        NoteKey::parse(text).with_context(|| format!("Error reading the key {text:?}"))
    };
    let pinned: Vec<_> = args.keys.iter().map(parse).collect::<Result<_>>()?;
    let place = &args.place;
    if args.backup.is_none() && place.data_dir.is_none() && place.archive.is_none() {
        let requested = VerifyRequest {
            conn: &args.conn,
            keys: &pinned,
            state: args.state.as_ref(),
            whole: !args.hashes,
        };
        return verify_live::run(&requested, args.json, out).await;
    }
    let how = Verify { pinned };
    let (found, mut also) = match &args.backup {
        Some(backup) => {
            let (found, state) = open_backup(backup, &how, out)?;
            (found, vec![state])
        }
        None => (args.place.find(out).await?, Vec::new()),
    };
    let (log, server) = (&found.log, &found.server);
    let bar = Bar::new(out, "events");
    let began = Instant::now();
    let done = verify(log, server, &how, &mut |at, all| bar.set(at, all));
    bar.clear();
    let mut done = done.with_context(|| format!("Error verifying the log in {}", log.display()))?;
    let seconds = began.elapsed().as_secs_f64();
    // A backup is signed itself.
    if args.backup.is_none() {
        done.want_signature();
    }
    let beside = beside::findings(server).into_iter();
    done.findings
        .extend(beside.map(|what| Finding { index: None, what }));
    // The tables of a log that is wrong say nothing.
    if done.findings.is_empty() {
        also.extend(bases(&found, &how, &mut done)?);
    }
    let well = done.findings.is_empty() && done.entries > 0;
    let digests = match (well, args.digests || done.entries <= CHEAP) {
        (false, _) => None,
        (true, true) => Some(digests(log, also, (None, done.signed_to), out).await?),
        (true, false) => match first_signed(&found)? {
            None => None,
            to => Some(digests(log, also, (to, to), out).await?),
        },
    };
    if let Some(digests) = &digests {
        done.findings.extend(digests.findings.iter().cloned());
    }
    if args.json {
        out.exact(&as_json(&done, digests.as_ref(), seconds).to_string());
    } else {
        report(&done, digests.as_ref(), seconds, out);
    }
    Ok(u8::from(!done.findings.is_empty()))
}

/// Unpacks a backup and compares every part with its sum; answers what it says of its state.
fn open_backup(backup: &Path, how: &Verify, out: &Out) -> Result<(OpenedLog, Checkpoint)> {
    let scratch = Scratch::new()?;
    let what = || format!("Error verifying {}", backup.display());
    let mut file = std::fs::File::open(backup).with_context(what)?;
    let all = file.metadata().with_context(what)?.len();
    let bar = Bar::new(out, "bytes");
    let dir = scratch.0.clone();
    let state = inspect::lay_out(&mut file, &how.pinned, &dir, &mut |at| bar.set(at, all));
    bar.clear();
    Ok((OpenedLog::of(scratch), state.with_context(what)?))
}

/// Reads every row of the base that the log continues and of those behind it, signed or not;
/// returns what these say of the tables.
fn bases(found: &OpenedLog, how: &Verify, done: &mut Verified) -> Result<Vec<Checkpoint>> {
    let keys = how.keys(&found.server)?;
    let log = ReadOnlyLog::open(&found.log)?;
    let mut behind = Vec::new();
    for (index, dir) in base::all(&found.server)? {
        if index < done.first.saturating_sub(1) || index > done.last {
            continue;
        }
        let scratch = Scratch::new()?;
        let at = scratch.0.join("base");
        let read = match base::is_signed(&dir) {
            true => base::verify(&dir, log.epoch(), &keys, &at),
            // Snapshots for which nothing was dropped are not signed.
            false => base::read(&dir, log.epoch(), &at),
        };
        match read {
            Ok(checkpoint) => behind.push(checkpoint),
            // A server that is running removes them when there is a newer one.
            Err(_) if base::is_gone(&dir) => {}
            Err(error) => done.findings.push(Finding {
                index: Some(index),
                what: crate::error::chain(&error),
            }),
        }
    }
    Ok(behind)
}

/// The first checkpoint of a log that a restore began, where it is near: what the log continues is
/// no leaf of its tree, but what is folded up to there was signed.
fn first_signed(found: &OpenedLog) -> Result<Option<u64>> {
    let log = ReadOnlyLog::open(&found.log)?;
    let first = log.bounds().0;
    if first == 0 || first != log.epoch().first_index {
        return Ok(None);
    }
    let signed = CheckpointFile::checkpoints(&found.server)?;
    let index = signed.first().map(|checkpoint| checkpoint.index);
    Ok(index.filter(|index| (first..first + CHEAP).contains(index)))
}

/// Folds the log, up to an index where one is given, and compares digests, those of checkpoints up
/// to the last that was verified.
async fn digests(
    log: &Path,
    also: Vec<Checkpoint>,
    (to, signed_to): (Option<u64>, Option<u64>),
    out: &Out,
) -> Result<DigestsChecked> {
    let bar = Bar::new(out, "events folded");
    let scratch = Scratch::new()?;
    let (log_dir, dir) = (log.to_owned(), scratch.0.clone());
    let done = interruptible(move |cancelled| {
        let check = DigestCheck {
            log_dir,
            also,
            to,
            signed_to: signed_to.unwrap_or(0),
            scratch: dir,
            cancelled,
        };
        let done = check.run(&mut |progress| bar.set(progress.at, progress.last));
        bar.clear();
        done
    })
    .await?;
    done.with_context(|| format!("Error folding the log in {}", log.display()))
}

fn report(done: &Verified, digests: Option<&DigestsChecked>, seconds: f64, out: &Out) {
    if !done.findings.is_empty() {
        not_verified(done, out);
        return;
    }
    let signer = match (done.signers.as_slice(), done.pinned) {
        ([], _) => "nobody".to_owned(),
        (signers, true) => signers.join(", "),
        (signers, false) => format!("{} (unpinned)", signers.join(", ")),
    };
    let signed = match done.signed_to {
        Some(index) => format!(
            "{}, signed to {index}",
            counted(done.checkpoints, "checkpoint")
        ),
        None => "no checkpoint".to_owned(),
    };
    let from = match done.base {
        Some(index) => format!("{} (from the signed base at {index})", done.first),
        None => done.first.to_string(),
    };
    #[allow(clippy::cast_precision_loss)]
    let rate = done.entries as f64 / seconds.max(0.001);
    let events = counted(done.entries, "event");
    out.line(&format!("verified {events}: nothing is wrong"));
    out.line(&pairs(&[
        ("Events", format!("{from} to {}", done.last)),
        ("Root", STANDARD.encode(done.root)),
        ("Signed", signed),
        ("Tables", tables(digests)),
        ("Signer", signer),
        ("Took", format!("{seconds:.2}s ({rate:.0}/s)")),
    ]));
}

/// The verdict, and why.
fn not_verified(done: &Verified, out: &Out) {
    let problems = counted(done.findings.len(), "problem");
    let events = counted(done.entries, "event");
    out.error(&format!("NOT verified: {problems} found, {events} read"));
    for finding in &done.findings {
        match finding.index {
            Some(index) => out.error(&format!("index {index}: {}", finding.what)),
            None => out.error(&finding.what),
        }
    }
}

/// At how many signed or recorded points the tables that the log gives are the same, as text.
fn tables(digests: Option<&DigestsChecked>) -> String {
    let Some(found) = digests else {
        return "not folded (-digests)".to_owned();
    };
    let reported = [
        (found.checkpoints, "checkpoint"),
        (found.also, "base or backup"),
        (found.recorded, "recorded digest"),
    ];
    let reported = reported.iter().filter(|(count, _)| *count > 0);
    let reported: Vec<_> = reported
        .map(|(count, what)| match *what {
            "base or backup" if *count > 1 => format!("{count} bases and backups"),
            what => counted(*count, what),
        })
        .collect();
    match reported.split_last() {
        None => "not compared: nothing was signed of them".to_owned(),
        Some((last, [])) => format!("tables equal at {last}"),
        Some((last, rest)) => format!("tables equal at {} and {last}", rest.join(", ")),
    }
}

fn as_json(done: &Verified, digests: Option<&DigestsChecked>, seconds: f64) -> Json {
    let findings: Vec<Json> = done
        .findings
        .iter()
        .map(|finding| json!({"Index": finding.index, "What": finding.what}))
        .collect();
    json!({
        "Verified": done.findings.is_empty(),
        "Events": done.entries,
        "From": done.first,
        "Base": done.base,
        "To": done.last,
        "Size": done.size,
        "Root": STANDARD.encode(done.root),
        "Checkpoints": done.checkpoints,
        "SignedTo": done.signed_to,
        "TablesAt": digests.map(|digests| digests.checkpoints),
        "TablesElsewhere": digests.map(|digests| digests.also),
        "TablesRecorded": digests.map(|digests| digests.recorded),
        "Signers": done.signers,
        "Pinned": done.pinned,
        "Seconds": seconds,
        "Findings": findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_is_counted_for_what_it_is() {
        let reported = |checkpoints, also, recorded| {
            tables(Some(&DigestsChecked {
                checkpoints,
                also,
                recorded,
                ..DigestsChecked::default()
            }))
        };
        assert_eq!(
            reported(63, 1, 0),
            "tables equal at 63 checkpoints and 1 base or backup"
        );
        assert_eq!(
            reported(1, 2, 3),
            "tables equal at 1 checkpoint, 2 bases and backups and 3 recorded digests"
        );
        assert_eq!(reported(0, 0, 1), "tables equal at 1 recorded digest");
        assert!(reported(0, 0, 0).contains("not compared"));
        assert!(tables(None).contains("-digests"));
    }
}
