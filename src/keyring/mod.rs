//! The keyring: what a server encrypts and signs with.
//!
//! A **root key** is 32 random bytes with an id. Nothing uses those bytes directly: HKDF derives
//! one key for each purpose from them (variables, workload identities, checkpoints, HMACs of
//! exports, secrets of tokens), so that no key serves two. The log carries a root key's id, state,
//! times and public halves only; a log that never forgets would otherwise make deleting a key
//! impossible. The bytes
//! lie in `<data_dir>/server/keystore/<id>.json`, wrapped by a key-encryption key in a file beside
//! them that only the server's user may read.
//!
//! What it must not know: what is in the log (its files are written as the log's are), projections,
//! Raft, HTTP. A caller that creates a key keeps this order: **file synced → event committed →
//! first use** ([`Keyring::generate`], then the event, then [`Keyring::activate`]).
//!
//! Invariants:
//! - Everything encrypted or signed carries the id of its key.
//! - What is encrypted is bound to its place: a variable's ciphertext opens under its own namespace
//!   and path only.
//! - Leadership does not wait for a key (KR-03): until one is active every user gets
//!   [`KeyringError::NotReady`] and may wait for it with [`Keyring::wait_active`].
//! - Key bytes are wiped when dropped, and no `Debug` output shows them.
//! - Signing is deterministic: the same claims give the same token, so tokens need not be stored.
//!
//! Start reading at [`Keyring`].

mod cipher;
mod claims;
mod files;
mod items;
mod jwks;
mod material;
mod ring;
mod secret;
mod token;
mod verified;

#[cfg(test)]
mod keyring_test;

use std::path::PathBuf;

pub use cipher::secret_json;
pub use claims::{Claims, DEFAULT_AUDIENCE, WorkloadIdentity};
pub use files::Keystore;
pub use jwks::{Jwk, Jwks};
pub use material::{ALGORITHM, RootKey};
pub use ring::Keyring;
pub use verified::Verified;

/// Why the keyring could not do what was requested.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// No key is active yet: a fresh cluster, or one still being restored. Try again.
    #[error("keyring is not ready yet")]
    NotReady,
    /// The key is not here: not replicated yet, or removed.
    #[error("no such key {0:?} in keyring")]
    MissingKey(String),
    /// A file of the keystore cannot be read or written.
    #[error("keystore file {path}: {source}")]
    Io {
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file of the keystore is damaged, or wrapped by another key-encryption key.
    #[error("keystore file {path} cannot be unwrapped: {reason}")]
    Damaged {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The ciphertext was not made by this key for this place, or was changed.
    #[error("cannot decrypt with key {0:?}: ciphertext does not fit its key and place")]
    Sealed(String),
    /// A token that is no workload identity, is expired, or was signed with another key.
    #[error("invalid identity token: {0}")]
    Token(&'static str),
    /// The system gave no random bytes.
    #[error("no random bytes")]
    Random,
}
