//! What an export hides: values of a class other than public, on their way into any format.
//!
//! A text that is configured or sensitive becomes `hmac:` and the hexadecimal HMAC-SHA256 of it,
//! under a key derived from a root key: the same value gives the same text, so a value that is
//! known can be found, but values cannot be tried without the key. A secret text becomes
//! `redacted`. Shapes, names and empty values stay, so what was valid under a schema stays so. The
//! classes are those of [`drover_events::class`]; they are applied while a value is serialised, and
//! no tree of the value is built.
//!
//! The key is that of the *oldest* root key at hand: it stays through rotations, is the same on
//! every server, and goes when its root key is deleted. With no key at hand, sensitive values are
//! shown as secret ones are.
//!
//! What is sensitive to one reader is what another needs: each destination may name fields that it
//! shows in clear ([`PublicFields`]). Secrets are never shown.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use aws_lc_rs::hmac;
use drover_events::class::Class;
use drover_events::gojson::Base64;
use drover_events::mask::{Hidden, Place, Redact};
use drover_events::public::PublicFields;
use serde::{Serialize, Serializer};

use crate::keyring::{Keyring, KeyringError};

/// What stands for a value that is never shown.
pub const REDACTED: &str = "redacted";
/// What the hash of a sensitive value begins with.
pub const HASHED: &str = "hmac:";

/// Hides values by their class.
#[derive(Default)]
pub struct Redactor {
    /// The oldest first; empty: nothing can be hashed.
    keys: Vec<hmac::Key>,
    public: PublicFields,
}

impl Redactor {
    /// With the keys of a server's keyring as they are now.
    pub fn of(keyring: &Keyring) -> Self {
        let keys = keyring.export_keys();
        let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        Self {
            keys: keys.iter().map(|bytes| key(bytes.as_slice())).collect(),
            public: PublicFields::default(),
        }
    }

    /// The same, with these fields in clear.
    #[must_use]
    pub fn showing(self, public: PublicFields) -> Self {
        Self { public, ..self }
    }

    /// With the keys below a data directory, read only; with none where it holds none.
    ///
    /// # Errors
    /// When there is a keystore and it cannot be read.
    pub fn of_data_dir(data_dir: &Path) -> Result<Self, KeyringError> {
        for inner in ["server/keystore", "keystore"] {
            if let Some(keyring) = Keyring::read(&data_dir.join(inner))? {
                return Ok(Self::of(&keyring));
            }
        }
        Ok(Self::default())
    }

    /// Whether sensitive values can be hashed; else they are shown as secret ones are.
    pub fn can_hash(&self) -> bool {
        !self.keys.is_empty()
    }

    /// What a sensitive value is shown as.
    pub fn hash(&self, value: &str) -> String {
        let key = self.keys.first();
        key.map_or_else(|| REDACTED.to_owned(), |key| hashed(key, value))
    }

    /// Every text a known value may be shown as: under each key, as text and as the base64 that
    /// bytes are shown in. Empty when nothing can be hashed.
    pub fn hashes(&self, value: &str) -> Vec<String> {
        let bytes = Base64::encode(value.as_bytes());
        let forms = self
            .keys
            .iter()
            .flat_map(|key| [hashed(key, value), hashed(key, &bytes)]);
        forms.collect()
    }

    /// A value that serialises with what has a class hidden. `Display` gives JSON on one line.
    pub fn redacted<'a, T: Serialize + ?Sized>(&'a self, value: &'a T) -> Redacted<'a, T> {
        Redacted {
            value,
            redactor: self,
        }
    }

    /// Writes a value as JSON, confidential values hidden where there is a redactor.
    ///
    /// # Errors
    /// A value that cannot be written as JSON, or a failed write.
    pub fn write<T: Serialize>(
        this: Option<&Self>,
        to: impl std::io::Write,
        value: &T,
    ) -> Result<(), serde_json::Error> {
        match this {
            Some(redactor) => serde_json::to_writer(to, &redactor.redacted(value)),
            None => serde_json::to_writer(to, value),
        }
    }

    /// Finds a value by its hashes; none where nothing can be hashed. What is looked for is a
    /// value as it was, or the hash of one as an export shows it.
    pub fn finder(&self, value: &str) -> Option<Finder<'_>> {
        if !self.can_hash() {
            return None;
        }
        let mut wanted: BTreeSet<String> = self.hashes(value).into_iter().collect();
        if value.starts_with(HASHED) {
            wanted.insert(value.to_owned());
        }
        let redactor = self;
        Some(Finder { redactor, wanted })
    }
}

impl Redact for Redactor {
    fn text(&self, class: Class, value: &str) -> String {
        match class {
            Class::Public => value.to_owned(),
            Class::Configured | Class::Address | Class::Sensitive => self.hash(value),
            Class::Secret => REDACTED.to_owned(),
        }
    }

    fn class_of(&self, field: Place, key: Option<&str>, class: Class) -> Class {
        match self.public.show(field, key) {
            true => Class::Public,
            false => class,
        }
    }
}

/// Looks for one sensitive value, by its hashes.
#[derive(Debug)]
pub struct Finder<'r> {
    redactor: &'r Redactor,
    wanted: BTreeSet<String>,
}

impl Finder<'_> {
    /// Whether a sensitive field of `value` holds what is looked for.
    pub fn is_in<T: Serialize + ?Sized>(&self, value: &T) -> bool {
        let search = Search {
            finder: self,
            found: Cell::new(false),
        };
        let whole = serde_json::to_writer(std::io::sink(), &Hidden::new(value, &search));
        // What has no form in JSON is not shown.
        whole.is_ok() && search.found.get()
    }
}

/// One value that is looked into.
struct Search<'f> {
    finder: &'f Finder<'f>,
    found: Cell<bool>,
}

impl Redact for Search<'_> {
    fn text(&self, class: Class, value: &str) -> String {
        if class.is_hashed() && !self.found.get() {
            let keys = &self.finder.redactor.keys;
            let is = |key: &hmac::Key| self.finder.wanted.contains(&hashed(key, value));
            self.found.set(keys.iter().any(is));
        }
        String::new()
    }
}

fn hashed(key: &hmac::Key, value: &str) -> String {
    format!(
        "{HASHED}{}",
        hex::encode(hmac::sign(key, value.as_bytes()).as_ref())
    )
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// A value whose confidential parts are hidden when it is serialised.
#[derive(Clone, Copy)]
pub struct Redacted<'a, T: ?Sized> {
    value: &'a T,
    redactor: &'a Redactor,
}

impl<T: Serialize + ?Sized> Serialize for Redacted<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Hidden::new(self.value, self.redactor).serialize(serializer)
    }
}

impl<T: Serialize + ?Sized> fmt::Display for Redacted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

#[cfg(test)]
#[path = "redact_test.rs"]
pub(super) mod tests;
