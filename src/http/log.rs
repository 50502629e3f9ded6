//! The log itself: checkpoints, proofs, tiles, segments. None of it is Nomad's.
//!
//! Whatever these answer can be checked by the caller with hashes and one public key; see
//! [`crate::history::proof`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{Answer, TEXT};
use super::front::Read;
use crate::error::{Code, Refusal};
use crate::history::proof::ProofError;
use crate::log::{Hash, LogError, SegmentInfo};
use crate::table_reads::offload;

/// The type of tiles and entries.
const BYTES: &str = "application/octet-stream";
/// Bytes of entries in an answer, unless the first alone has more.
const ENTRIES: usize = 4 << 20;

fn refusal(error: ProofError) -> Refusal {
    match error {
        ProofError::Question(text) => Refusal::bad_request(text),
        error @ ProofError::Short { .. } => Refusal::bad_request(error.to_string()),
        ProofError::Log(error @ LogError::Purged { .. }) => {
            Refusal::new(Code::Gone, error.to_string())
        }
        error => {
            tracing::error!(%error, "no proof can be made");
            Refusal::internal(format!("log error: {error}"))
        }
    }
}

fn base64(hash: &Hash) -> String {
    STANDARD.encode(hash)
}

fn path(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(base64).collect()
}

/// A number that a request must give.
fn required_number(read: &Read<'_>, name: &str) -> Result<u64, Refusal> {
    let number = read.request.query.number(name)?;
    number.ok_or_else(|| Refusal::bad_request(format!("the parameter {name} is missing")))
}

/// An index that a request may give; the last applied one without.
fn until(read: &Read<'_>, name: &str) -> Result<u64, Refusal> {
    let newest = read.view.index();
    match read.request.query.number(name)? {
        Some(index) if index > newest => Err(Refusal::bad_request(format!(
            "{name} {index} has not happened yet: the last event is {newest}"
        ))),
        other => Ok(other.unwrap_or(newest)),
    }
}

/// `GET /v1/log/checkpoint`: the last checkpoint, a signed note.
pub(super) fn checkpoint(read: &Read<'_>) -> Result<Answer, Refusal> {
    match offload(|| read.api.ledger.latest()) {
        Some(note) => Ok(Answer::of(TEXT, note)),
        None => Err(Refusal::not_found("no checkpoint has been signed yet")),
    }
}

/// `GET /v1/log/keys`: the keys that sign checkpoints, a verifier key a line.
pub(super) fn keys(read: &Read<'_>) -> Result<Answer, Refusal> {
    let mut text = read.api.ledger.keys().map_err(refusal)?.join("\n");
    text.push('\n');
    Ok(Answer::of(TEXT, text))
}

/// `GET /v1/log/proof/inclusion?event=N[&until=M]`: the event at N is in the log that ends at M.
pub(super) fn inclusion(read: &Read<'_>) -> Result<Answer, Refusal> {
    let (index, until) = (required_number(read, "event")?, until(read, "until")?);
    let proof = offload(|| read.api.ledger.inclusion(index, until)).map_err(refusal)?;
    Answer::json(&json!({
        "Index": index,
        "Leaf": proof.leaf,
        "LeafHash": base64(&proof.hash),
        "Size": proof.size,
        "Root": base64(&proof.root),
        "Path": path(&proof.path),
    }))
}

/// A proof that one log is the beginning of another; hashes are base64.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ConsistencyResponse {
    /// The last index of the one.
    pub(crate) from: u64,
    pub(crate) new_root: String,
    pub(crate) new_size: u64,
    pub(crate) old_root: String,
    pub(crate) old_size: u64,
    /// The hashes that prove it.
    pub(crate) path: Vec<String>,
    /// The last index of the other.
    pub(crate) to: u64,
}

/// `GET /v1/log/proof/consistency?from=N[&to=M]`: the log up to N is the beginning of that up to M.
pub(super) fn consistency(read: &Read<'_>) -> Result<Answer, Refusal> {
    let (from, to) = (required_number(read, "from")?, until(read, "to")?);
    let proof = offload(|| read.api.ledger.consistency(from, to)).map_err(refusal)?;
    Answer::json(&ConsistencyResponse {
        from,
        new_root: base64(&proof.new.1),
        new_size: proof.new.0,
        old_root: base64(&proof.old.1),
        old_size: proof.old.0,
        path: path(&proof.path),
        to,
    })
}

/// `GET /v1/log/tile/<level>/<number>[.p/<width>]` (C2SP tlog-tiles).
pub(super) fn tile(read: &Read<'_>) -> Result<Answer, Refusal> {
    let rest = read.request.behind("/v1/log/tile/")?;
    let (level, number, width) = tile_name(&rest)
        .ok_or_else(|| Refusal::bad_request(format!("{rest:?} is not the name of a tile")))?;
    let newest = read.view.index();
    let bytes = offload(|| read.api.ledger.tile(level, number, width, newest));
    match bytes {
        Ok(bytes) => Ok(Answer::of(BYTES, bytes)),
        Err(ProofError::Question(text)) => Err(Refusal::not_found(text)),
        Err(error) => Err(refusal(error)),
    }
}

/// Level, number and width of a tile's name: numbers go in groups of three digits, all but the
/// last with an `x` before them.
fn tile_name(name: &str) -> Option<(u32, u64, u64)> {
    let (level, mut rest) = name.split_once('/')?;
    let mut width = 256;
    if let Some((whole, part)) = rest.split_once(".p/") {
        width = part.parse().ok().filter(|width| (1..256).contains(width))?;
        rest = whole;
    }
    let mut number = 0_u64;
    let mut groups = rest.split('/').peekable();
    while let Some(group) = groups.next() {
        let digits = match groups.peek() {
            Some(_) => group.strip_prefix('x')?,
            None => group,
        };
        if digits.len() != 3 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        number = number
            .checked_mul(1000)?
            .checked_add(digits.parse().ok()?)?;
    }
    Some((
        level.parse().ok().filter(|level| *level < 8)?,
        number,
        width,
    ))
}

/// `GET /v1/log/entries?from=N[&to=M]`: what the leaves are made of, from N on, as many as fit: for
/// each the length of its body (u32, big endian), then the body.
pub(super) fn entries(read: &Read<'_>) -> Result<Answer, Refusal> {
    let (from, to) = (required_number(read, "from")?, until(read, "to")?);
    if from > to {
        let text = format!("from is {from}, which is above {to}");
        return Err(Refusal::bad_request(text));
    }
    let found = offload(|| read.api.log.read_range(from, to + 1, ENTRIES));
    let found = found.map_err(|error| refusal(error.into()))?;
    let mut bytes = Vec::with_capacity(found.iter().map(|entry| entry.body.len() + 4).sum());
    for entry in &found {
        let length = u32::try_from(entry.body.len());
        let length = length.map_err(|_| Refusal::internal("an event is above 4 GiB"))?;
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&entry.body);
    }
    Ok(Answer::of(BYTES, bytes))
}

/// `GET /v1/log/segments`: the files of the log.
pub(super) fn segments(read: &Read<'_>) -> Result<Answer, Refusal> {
    let show = |segment: &SegmentInfo| {
        json!({
            "Name": segment.name,
            "Sealed": segment.sealed,
            "First": segment.first,
            "Entries": segment.entries,
            "Bytes": segment.bytes,
            "From": segment.times.map(|times| times.0),
            "To": segment.times.map(|times| times.1),
        })
    };
    let segments: Vec<Value> = read.api.log.segments().iter().map(show).collect();
    Answer::json(&segments)
}

#[cfg(test)]
mod tests {
    use super::super::harness::Harness;
    use super::*;
    use crate::history::proof::{Checkpoint, NoteKey, open, proves_consistency, proves_inclusion};

    #[test]
    fn names_of_tiles_are_read() {
        for (name, wanted) in [
            ("0/000", Some((0, 0, 256))),
            ("1/067", Some((1, 67, 256))),
            ("0/x001/x234/067", Some((0, 1_234_067, 256))),
            ("0/001.p/16", Some((0, 1, 16))),
            ("8/000", None),
            ("0/1", None),
            ("0/x001", None),
            ("0/001.p/256", None),
            ("0/001/002", None),
            ("", None),
        ] {
            assert_eq!(tile_name(name), wanted, "{name}");
        }
    }

    fn hash(value: &Value) -> Hash {
        let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
        bytes.try_into().unwrap()
    }

    fn hashes(value: &Value) -> Vec<Hash> {
        value.as_array().unwrap().iter().map(hash).collect()
    }

    async fn signed(server: &Harness, beyond: u64) -> Checkpoint {
        let found = async || {
            let note = server.get("/v1/log/checkpoint").await;
            if note.status != 200 {
                return Err(note.text());
            }
            let keys = server.get("/v1/log/keys").await.text();
            let key = NoteKey::parse(keys.lines().next().unwrap()).unwrap();
            let note = note.text();
            let checkpoint = Checkpoint::parse(open(&note, &key).unwrap()).unwrap();
            match checkpoint.index >= beyond {
                true => Ok(checkpoint),
                false => Err(note),
            }
        };
        let what = format!("a checkpoint at {beyond} or beyond");
        let found = drover_testkit::eventually_async(&what, drover_testkit::LONG, found);
        found.await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_event_is_proved_by_what_the_api_answers_alone() {
        let server = Harness::start().await;
        let index = server.register("proved").await.index();
        let early = signed(&server, index).await;
        let later = server.register("later").await.index();
        let late = signed(&server, later).await;

        let target = format!("/v1/log/proof/inclusion?event={index}&until={}", late.index);
        let proof = server.get(&target).await.json();
        let (leaf, at) = (hash(&proof["LeafHash"]), proof["Leaf"].as_u64().unwrap());
        assert_eq!(hash(&proof["Root"]), late.root, "the signed root");
        let path = hashes(&proof["Path"]);
        assert!(proves_inclusion(leaf, at, late.size, &path, &late.root));
        assert!(!proves_inclusion([0; 32], at, late.size, &path, &late.root));

        let target = format!(
            "/v1/log/proof/consistency?from={}&to={}",
            early.index, late.index
        );
        let proof = server.get(&target).await.json();
        let path = hashes(&proof["Path"]);
        let (old, new) = ((early.size, &early.root), (late.size, &late.root));
        assert!(proves_consistency(old, new, &path));

        let tile = server
            .get(&format!("/v1/log/tile/0/000.p/{}", at + 1))
            .await;
        assert_eq!(tile.body.len() as u64, (at + 1) * 32);
        assert_eq!(&tile.body[at as usize * 32..], leaf);
        let target = format!("/v1/log/entries?from={index}&to={index}");
        let entry = server.get(&target).await.body;
        let (length, body) = entry.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_be_bytes(*length) as usize, body.len());
        assert_eq!(crate::log::leaf_hash(body), leaf);
        for (target, status) in [
            ("/v1/log/proof/inclusion", 400),
            ("/v1/log/proof/inclusion?event=900000", 400),
            ("/v1/log/proof/inclusion?event=1&until=900000", 400),
            ("/v1/log/proof/consistency?from=9&to=3", 400),
            ("/v1/log/entries", 400),
            ("/v1/log/entries?from=9&to=3", 400),
            ("/v1/log/entries?from=900000", 400),
            ("/v1/log/tile/0/900", 404),
            ("/v1/log/tile/x", 400),
        ] {
            assert_eq!(server.get(target).await.status, status, "{target}");
        }
        let segments = server.get("/v1/log/segments").await.json();
        assert!(!segments.as_array().unwrap().is_empty());
        server.stop().await;
    }
}
