//! Signed notes: a text, and under it lines with signatures (C2SP signed-note).
//!
//! ```text
//! text, ending with a line end
//!
//! — name base64(key id ‖ signature)
//! ```
//!
//! A key id is the first four bytes of SHA-256(name ‖ LF ‖ 0x01 ‖ public key); 0x01 stands for
//! Ed25519.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, Verifier as _, VerifyingKey};
use sha2::{Digest, Sha256};

const ED25519: u8 = 1;
const LINE_START: &str = "\u{2014} ";

/// Why a text is not a note, or not what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// It has not the form of a note.
    #[error("not a signed note: {0}")]
    Form(&'static str),
    /// It has no signature by the key.
    #[error("the note carries no signature of {0}")]
    Unsigned(String),
    /// A line by the key does not fit the text.
    #[error("the signature of {0} does not fit the text")]
    Forged(String),
}

/// A key that notes are checked with, under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteKey {
    name: String,
    key: VerifyingKey,
}

impl NoteKey {
    /// A key under a name, which holds neither spaces nor `+`.
    pub fn new(name: impl Into<String>, key: VerifyingKey) -> Self {
        Self {
            name: name.into(),
            key,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id that stands before its signatures.
    pub fn id(&self) -> [u8; 4] {
        let mut hash = Sha256::new();
        hash.update(self.name.as_bytes());
        hash.update([b'\n', ED25519]);
        hash.update(self.key.as_bytes());
        let hash: [u8; 32] = hash.finalize().into();
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// `name+id+base64(0x01 ‖ key)`, the form in which verifiers are handed on.
    pub fn text(&self) -> String {
        let key = [&[ED25519], self.key.as_bytes().as_slice()].concat();
        let id = u32::from_be_bytes(self.id());
        format!("{}+{id:08x}+{}", self.name, STANDARD.encode(key))
    }

    /// Reads what [`NoteKey::text`] wrote.
    ///
    /// # Errors
    /// Another form, another algorithm, or an id that is not the key's.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let form = NoteError::Form;
        let mut parts = text.trim().splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(form("a verifier key is name+id+key"));
        };
        let key = STANDARD
            .decode(key)
            .map_err(|_| form("the key is not base64"))?;
        let [ED25519, key @ ..] = key.as_slice() else {
            return Err(form("only Ed25519 keys are known"));
        };
        let key: &[u8; 32] = key.try_into().map_err(|_| form("a key has 32 bytes"))?;
        let key = VerifyingKey::from_bytes(key).map_err(|_| form("the key is no point"))?;
        let own = Self::new(name, key);
        match u32::from_str_radix(id, 16) {
            Ok(id) if id.to_be_bytes() == own.id() => Ok(own),
            _ => Err(form("the id is not that of the key")),
        }
    }
}

/// The text with a signature under it; `text` ends with a line end.
pub fn sign(text: &str, name: &str, key: &SigningKey) -> String {
    let id = NoteKey::new(name, key.verifying_key()).id();
    let signature = key.sign(text.as_bytes()).to_bytes();
    let line = STANDARD.encode([id.as_slice(), &signature].concat());
    format!("{text}\n{LINE_START}{name} {line}\n")
}

/// The text of a note, if the key signed it; signatures by others are ignored.
///
/// # Errors
/// Another form; no signature by the key; one that does not fit.
pub fn open<'n>(note: &'n str, key: &NoteKey) -> Result<&'n str, NoteError> {
    let (text, lines) = split(note)?;
    let mut signed = false;
    for line in lines.lines() {
        let (name, bytes) = signature(line)?;
        if name != key.name || bytes[..4] != key.id() {
            continue;
        }
        let forged = || NoteError::Forged(key.name.clone());
        let bytes = Signature::from_slice(&bytes[4..]).map_err(|_| forged())?;
        key.key
            .verify(text.as_bytes(), &bytes)
            .map_err(|_| forged())?;
        signed = true;
    }
    match signed {
        true => Ok(text),
        false => Err(NoteError::Unsigned(key.name.clone())),
    }
}

/// The text of a note, by any signer.
///
/// # Errors
/// Another form.
pub fn text(note: &str) -> Result<&str, NoteError> {
    split(note).map(|(text, _)| text)
}

fn split(note: &str) -> Result<(&str, &str), NoteError> {
    let at = note
        .rfind("\n\n")
        .ok_or(NoteError::Form("no empty line before signatures"))?;
    let (text, lines) = (&note[..=at], &note[at + 2..]);
    if lines.is_empty() || !lines.ends_with('\n') {
        return Err(NoteError::Form("signatures are whole lines"));
    }
    Ok((text, lines))
}

fn signature(line: &str) -> Result<(&str, Vec<u8>), NoteError> {
    let form = NoteError::Form("a signature is a dash, a name and base64");
    let rest = line.strip_prefix(LINE_START).ok_or(form.clone())?;
    let (name, encoded) = rest.split_once(' ').ok_or(form.clone())?;
    let bytes = STANDARD.decode(encoded).map_err(|_| form.clone())?;
    if bytes.len() <= 4 || name.is_empty() {
        return Err(form);
    }
    Ok((name, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    #[test]
    fn a_note_opens_for_its_signer_only() {
        let text = "origin\n5\nAAAA\n";
        let note = sign(text, "drover/one", &key(1));
        let own = NoteKey::new("drover/one", key(1).verifying_key());
        assert_eq!(open(&note, &own), Ok(text));
        let other = NoteKey::new("drover/one", key(2).verifying_key());
        assert_eq!(
            open(&note, &other),
            Err(NoteError::Unsigned("drover/one".to_owned()))
        );
        let changed = note.replacen('5', "6", 1);
        assert_eq!(
            open(&changed, &own),
            Err(NoteError::Forged("drover/one".to_owned()))
        );
        assert_eq!(super::text(&note), Ok(text));
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let own = NoteKey::new("n", key(1).verifying_key());
        for bad in [
            "",
            "text\n",
            "text\n\n",
            "text\n\n- n AAAA\n",
            "a\n\n\u{2014} n !\n",
        ] {
            assert!(
                matches!(open(bad, &own), Err(NoteError::Form(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_verifier_key_returns_from_its_text() {
        let own = NoteKey::new("drover/one", key(3).verifying_key());
        assert_eq!(NoteKey::parse(&own.text()), Ok(own.clone()));
        for bad in [
            "",
            "a+b",
            "a+00000000+AAAA",
            &own.text().replacen("one", "two", 1),
        ] {
            assert!(NoteKey::parse(bad).is_err(), "{bad:?}");
        }
    }
}
