//! `log verify` through the API: the tree over all events is built again from what a running agent
//! hands out, and compared with what it signed, and with what was remembered of it.

use super::tiles::{AHEAD, BLOCK_LEVEL, TILE, blocks, leaves, tiles};
use crate::cli::client::Client;
use crate::cli::columns::pairs;
use crate::cli::conn::Conn;
use crate::cli::digests;
use crate::cli::out::Out;
use crate::cli::progress::Bar;
use crate::cli::show::counted;
use crate::history::proof::{Checkpoint, NoteKey, open, proves_consistency, text};
use crate::http::answers::{ConsistencyResponse, HeldDigest};
use crate::log::atomic_file;
use crate::log::{CompactRange, Hash};
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_projections::{TableDigest, tables};
use futures_util::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to verify.
#[derive(Debug)]
pub(in crate::cli) struct VerifyRequest<'a> {
    pub(in crate::cli) conn: &'a Conn,
    /// Keys whose signatures count.
    pub(in crate::cli) keys: &'a [NoteKey],
    /// Where the last checkpoint is remembered.
    pub(in crate::cli) state: Option<&'a PathBuf>,
    /// Whether the events themselves are read, and not their hashes alone.
    pub(in crate::cli) whole: bool,
}

/// What is remembered from one verification to the next.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Memory {
    /// The last checkpoint, as it was signed.
    note: String,
    /// The keys that signed what was verified, as verifier keys.
    keys: Vec<String>,
}

/// What came of it.
#[derive(Debug, Default)]
struct VerifyOutcome {
    checkpoint: Option<Checkpoint>,
    former: Option<Checkpoint>,
    signer: String,
    /// Whether the key came from elsewhere than the agent.
    pinned: bool,
    tables: Option<bool>,
    /// Whether the events themselves were read.
    whole: bool,
    /// Where what is kept begins, where something was dropped.
    read_from: Option<u64>,
    findings: Vec<String>,
}

/// Verifies the log of a running agent.
pub(in crate::cli) async fn run(
    requested: &VerifyRequest<'_>,
    json: bool,
    out: &Out,
) -> Result<u8> {
    let began = Instant::now();
    let client = requested.conn.client()?;
    let mut done = VerifyOutcome {
        whole: requested.whole,
        ..VerifyOutcome::default()
    };
    let memory = requested
        .state
        .map(|path| Memory::read(path))
        .transpose()?
        .flatten();
    let note = signed(&client, requested, memory.as_ref(), &mut done).await?;
    if done.findings.is_empty() {
        let bar = Bar::new(out, "events");
        let walked = walk(&client, requested.whole, &mut done, &bar).await;
        bar.clear();
        walked?;
    }
    if done.findings.is_empty() {
        proved(&client, &mut done).await?;
        compare_tables(&client, &mut done).await?;
    }
    if let (Some(path), true) = (requested.state, done.findings.is_empty()) {
        let mut keys = memory.map(|memory| memory.keys).unwrap_or_default();
        if !keys.contains(&done.signer) {
            keys.push(done.signer.clone());
        }
        Memory { note, keys }.write(path)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    match json {
        true => out.exact(&as_json(&done, seconds).to_string()),
        false => report(&done, seconds, out),
    }
    Ok(u8::from(!done.findings.is_empty()))
}

impl Memory {
    fn read(path: &Path) -> Result<Option<Memory>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.with_context(|| format!("Error reading {}", path.display()))?,
        };
        let memory: Memory = serde_json::from_str(&text)
            .with_context(|| format!("{} is not what -state wrote", path.display()))?;
        Ok(Some(memory))
    }

    fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        atomic_file::put(path, text.as_bytes())
            .with_context(|| format!("Error writing {}", path.display()))
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        Checkpoint::parse(text(&self.note).ok()?)
    }
}

/// Fetches the checkpoint and opens it with a key that counts.
async fn signed(
    client: &Client,
    requested: &VerifyRequest<'_>,
    memory: Option<&Memory>,
    done: &mut VerifyOutcome,
) -> Result<String> {
    let note = client.get("/v1/log/checkpoint", &[]).await;
    let note = note.context("Error reading the checkpoint of the agent")?;
    let note = String::from_utf8_lossy(&note.body).into_owned();
    let known = memory
        .map(|memory| memory.keys.as_slice())
        .unwrap_or_default();
    let mut keys = requested.keys.to_vec();
    if keys.is_empty() {
        keys.extend(known.iter().filter_map(|line| NoteKey::parse(line).ok()));
    }
    done.pinned = !keys.is_empty();
    let offered = client.get("/v1/log/keys", &[]).await;
    let offered = offered.context("Error reading the keys of the agent")?;
    let offered = String::from_utf8_lossy(&offered.body).into_owned();
    let offered: Vec<_> = offered
        .lines()
        .filter_map(|line| NoteKey::parse(line).ok())
        .collect();
    if keys.is_empty() {
        keys.clone_from(&offered);
    }
    let Some(signer) = keys.iter().find(|key| open(&note, key).is_ok()) else {
        let forged = keys.iter().find_map(|key| match open(&note, key) {
            Err(error @ crate::history::proof::NoteError::Forged(_)) => Some(error.to_string()),
            _ => None,
        });
        done.findings
            .push(forged.unwrap_or_else(|| unknown(&note, &offered, &keys)));
        return Ok(note);
    };
    done.signer = signer.text();
    done.checkpoint = Checkpoint::parse(text(&note)?);
    let Some(checkpoint) = &done.checkpoint else {
        done.findings
            .push("the checkpoint cannot be read".to_owned());
        return Ok(note);
    };
    if let Some(former) = memory.and_then(Memory::checkpoint) {
        done.findings.extend(follows(checkpoint, &former));
        done.former = Some(former);
    }
    Ok(note)
}

/// The error where no key that counts signed the checkpoint.
fn unknown(note: &str, offered: &[NoteKey], known: &[NoteKey]) -> String {
    let origin = text(note).ok().and_then(Checkpoint::parse);
    let origin = origin.map(|checkpoint| checkpoint.origin);
    let of_other_log = |origin: &String| known.iter().all(|key| key.name() != origin);
    match offered.iter().find(|key| open(note, key).is_ok()) {
        Some(key) if origin.as_ref().is_some_and(of_other_log) => format!(
            "the checkpoint is signed by another key: {}. It is of another log, {}: a cluster that \
             was restored begins a new one (`drover audit -kind ClusterRestored` says when), as \
             does another cluster at this address. If it was restored, make sure of the key \
             elsewhere and name \
             it with -key; the former log is verified with the former key from its archive or copy",
            key.text(),
            key.name(),
        ),
        Some(key) => format!(
            "the checkpoint is signed by another key: {}. If the cluster's root key was rotated, \
             make sure of it elsewhere and name it with -key",
            key.text()
        ),
        None => "no known key signed the checkpoint".to_owned(),
    }
}

/// What is wrong with a checkpoint in the light of a former one.
fn follows(checkpoint: &Checkpoint, former: &Checkpoint) -> Option<String> {
    let (now, then) = (&checkpoint.origin, &former.origin);
    if now != then {
        return Some(format!(
            "it is another log: {now}, remembered is {then} (a restored cluster begins a new one)"
        ));
    }
    if checkpoint.size < former.size {
        return Some(format!(
            "the log was cut: it is signed to index {}, remembered is {}",
            checkpoint.index, former.index
        ));
    }
    (checkpoint.size == former.size && checkpoint.root != former.root).then(|| {
        let index = former.index;
        format!("two different logs were signed at index {index}: history was rewritten")
    })
}

/// Builds the tree again from its leaves, and compares it with what was signed and remembered. Of
/// what was dropped there are only the roots of blocks, which the signature covers.
async fn walk(client: &Client, whole: bool, done: &mut VerifyOutcome, bar: &Bar) -> Result<()> {
    let Some(checkpoint) = done.checkpoint.clone() else {
        return Ok(());
    };
    let first = (checkpoint.index + 1).saturating_sub(checkpoint.size);
    let reported = blocks(client, checkpoint.size / TILE).await?;
    let behind = |number: u64| (first + (number + 1) * TILE).min(checkpoint.index + 1);
    let mut range = CompactRange::default();
    let mut fetched = futures_util::stream::iter(tiles(checkpoint.size))
        .map(|(number, width)| leaves(client, whole, first, (number, width)))
        .buffered(AHEAD);
    while let Some((number, leaves, as_wanted)) = fetched.try_next().await? {
        let reported = reported.get(number as usize);
        if !as_wanted {
            done.read_from = Some(behind(number));
        }
        match (leaves, reported) {
            (Some(leaves), _) => {
                if let Some(finding) = block(&leaves, reported, &mut range, done) {
                    let from = first + number * TILE;
                    done.findings
                        .push(finding.of(first, from, leaves.len() as u64));
                    return Ok(());
                }
            }
            (None, Some(reported)) if range.push_subtree(BLOCK_LEVEL, *reported) => {
                done.read_from = Some(behind(number));
            }
            (None, _) => bail!("the agent dropped event {}", first + number * TILE),
        }
        bar.set(range.size(), checkpoint.size);
    }
    if range.root() != checkpoint.root {
        let from = done
            .former
            .as_ref()
            .map_or(first, |former| former.index + 1);
        done.findings.push(format!(
            "the events from {from} to {} are not those that were signed",
            checkpoint.index
        ));
    }
    Ok(())
}

/// What is wrong with a block.
enum Wrong {
    /// It was another one when it was remembered.
    Changed(u64),
    /// The agent's tree is over other events.
    Block,
}

impl Wrong {
    fn of(self, first: u64, from: u64, leaves: u64) -> String {
        match self {
            Self::Changed(index) => {
                format!("an event between {first} and {index} was changed since it was remembered")
            }
            Self::Block => format!(
                "the events {from} to {} are not those that the tree was built over",
                from + leaves - 1
            ),
        }
    }
}

/// Adds the leaves of a block; says what is wrong with it.
fn block(
    leaves: &[Hash],
    reported: Option<&Hash>,
    range: &mut CompactRange,
    done: &VerifyOutcome,
) -> Option<Wrong> {
    let mut block = CompactRange::default();
    for leaf in leaves {
        range.push(*leaf);
        block.push(*leaf);
        if let Some(former) = done.former.as_ref().filter(|one| one.size == range.size())
            && range.root() != former.root
        {
            return Some(Wrong::Changed(former.index));
        }
    }
    let differs = reported.is_some_and(|reported| *reported != block.root());
    differs.then_some(Wrong::Block)
}

fn hash(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// Whether the agent can prove, too, that what was remembered is the beginning of what there is.
async fn proved(client: &Client, done: &mut VerifyOutcome) -> Result<()> {
    let (Some(new), Some(old)) = (&done.checkpoint, &done.former) else {
        return Ok(());
    };
    let (from, to) = (old.index.to_string(), new.index.to_string());
    let query = [("from", from.as_str()), ("to", to.as_str())];
    let proof = client.fetch("/v1/log/proof/consistency", &query).await;
    let proof: ConsistencyResponse = proof.context("Error reading a proof of consistency")?;
    let path: Option<Vec<Hash>> = proof.path.iter().map(|text| hash(text)).collect();
    let sizes = ((old.size, &old.root), (new.size, &new.root));
    if !path.is_some_and(|path| proves_consistency(sizes.0, sizes.1, &path)) {
        done.findings.push(format!(
            "the agent cannot prove that the log of index {from} is the beginning of that of {to}"
        ));
    }
    Ok(())
}

/// Compares the tables with the checkpoint, where the agent stands at its index.
async fn compare_tables(client: &Client, done: &mut VerifyOutcome) -> Result<()> {
    let Some(checkpoint) = &done.checkpoint else {
        return Ok(());
    };
    let held = digests::held(client).await;
    let held = held.context("Error reading the digests of the tables")?;
    if held.index != checkpoint.index {
        return Ok(());
    }
    let equal = digest_of(&held.tables) == Some(checkpoint.state);
    done.tables = Some(equal);
    if !equal {
        done.findings.push(format!(
            "the tables are not those that were signed at index {}: `drover projection verify`",
            checkpoint.index
        ));
    }
    Ok(())
}

/// The digest over all tables.
fn digest_of(held: &[HeldDigest]) -> Option<[u8; 32]> {
    let mut digests = Vec::new();
    for table in held {
        let known = tables::registry().table(table.table);
        digests.push(TableDigest {
            table: table.table,
            name: known.map_or("", |known| known.name()),
            digest: drover_projections::Digest::from_hex(&table.digest)?,
        });
    }
    Some(crate::history::proof::state_digest(&digests))
}

fn report(done: &VerifyOutcome, seconds: f64, out: &Out) {
    let (Some(checkpoint), true) = (&done.checkpoint, done.findings.is_empty()) else {
        out.error("NOT verified");
        done.findings.iter().for_each(|finding| out.error(finding));
        return;
    };
    let first = (checkpoint.index + 1).saturating_sub(checkpoint.size);
    let former = match &done.former {
        Some(former) => format!("goes on from the checkpoint at {}", former.index),
        None => "nothing".to_owned(),
    };
    let tables = match done.tables {
        Some(_) => "tables equal there",
        None => "not compared (events came meanwhile)",
    };
    let unpinned = if done.pinned { "" } else { " (unpinned)" };
    let dropped = match done.read_from {
        Some(from) => format!(" (of those below {from} some or all were dropped: their hashes)"),
        None => String::new(),
    };
    let read = if done.whole {
        "verified"
    } else {
        "verified the hashes of"
    };
    let rate = checkpoint.size as f64 / seconds.max(0.001);
    let events = counted(checkpoint.size, "event");
    out.line(&format!("{read} {events}: nothing is wrong"));
    out.line(&pairs(&[
        (
            "Events",
            format!("{first} to {}{dropped}", checkpoint.index),
        ),
        ("Root", STANDARD.encode(checkpoint.root)),
        ("Signed", format!("signed to {}", checkpoint.index)),
        ("Remembered", former),
        ("Tables", tables.to_owned()),
        ("Signer", format!("{}{unpinned}", done.signer)),
        ("Took", format!("{seconds:.2}s ({rate:.0}/s)")),
    ]));
}

fn as_json(done: &VerifyOutcome, seconds: f64) -> Json {
    let checkpoint = done.checkpoint.as_ref();
    json!({
        "Verified": done.findings.is_empty(),
        "Events": checkpoint.map(|one| one.size),
        "From": checkpoint.map(|one| (one.index + 1).saturating_sub(one.size)),
        "To": checkpoint.map(|one| one.index),
        "Root": checkpoint.map(|one| STANDARD.encode(one.root)),
        "State": checkpoint.map(|one| hex::encode(one.state)),
        "EventsRead": done.whole,
        "ReadFrom": done.read_from,
        "Remembered": done.former.as_ref().map(|one| one.index),
        "TablesEqual": done.tables,
        "Signers": [done.signer],
        "Pinned": done.pinned,
        "Seconds": seconds,
        "Findings": done.findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_was_cut_rewritten_or_replaced_is_told() {
        let one = Checkpoint {
            origin: "drover/1".to_owned(),
            size: 10,
            root: [1; 32],
            index: 9,
            time: 0,
            state: [0; 32],
        };
        assert_eq!(follows(&one, &one), None);
        let longer = Checkpoint {
            size: 11,
            index: 10,
            ..one.clone()
        };
        assert_eq!(follows(&longer, &one), None);
        assert!(follows(&one, &longer).unwrap().contains("cut"));
        let forked = Checkpoint {
            root: [2; 32],
            ..one.clone()
        };
        assert!(follows(&forked, &one).unwrap().contains("rewritten"));
        let other = Checkpoint {
            origin: "drover/2".to_owned(),
            ..one.clone()
        };
        assert!(follows(&other, &one).unwrap().contains("another log"));
    }

    #[test]
    fn a_new_epoch_is_not_taken_for_a_key_that_was_rotated() {
        use ed25519_dalek::SigningKey;
        let signing = |seed| SigningKey::from_bytes(&[seed; 32]);
        let key = |name: &str, seed| NoteKey::new(name, signing(seed).verifying_key());
        let note = |name: &str, seed| {
            let checkpoint = Checkpoint {
                origin: name.to_owned(),
                size: 10,
                root: [1; 32],
                index: 9,
                time: 0,
                state: [0; 32],
            };
            crate::history::proof::sign(&checkpoint.to_text(), name, &signing(seed))
        };
        let known = [key("drover/1", 1)];
        let restored = unknown(&note("drover/2", 2), &[key("drover/2", 2)], &known);
        assert!(restored.contains("restored begins a new one"), "{restored}");
        assert!(!restored.contains("rotated"), "{restored}");
        let rotated = unknown(&note("drover/1", 2), &[key("drover/1", 2)], &known);
        assert!(rotated.contains("root key was rotated"), "{rotated}");
        let stranger = unknown(&note("drover/1", 3), &[key("drover/1", 2)], &known);
        assert_eq!(stranger, "no known key signed the checkpoint");
    }
}
