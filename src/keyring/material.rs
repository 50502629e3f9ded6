//! A root key and the keys derived from it.

use std::fmt;

use drover_events::model::RootKeyMeta;
use ed25519_dalek::{SigningKey, VerifyingKey};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::KeyringError;

/// Name of the algorithm that root keys encrypt with, as the API shows it.
pub const ALGORITHM: &str = "aes256-gcm";

/// The salt of every derivation.
const SALT: &[u8] = b"drover root key v1";

/// A root key: its id, when it was made, its bytes and what is derived from them.
pub struct RootKey {
    id: String,
    create_time: i64,
    bytes: Zeroizing<[u8; 32]>,
    data: Zeroizing<[u8; 32]>,
    identity: SigningKey,
}

impl RootKey {
    /// A new key with random bytes. `create_time` is in Unix nanoseconds.
    ///
    /// # Errors
    /// [`KeyringError::Random`] when the system has no random bytes.
    pub fn generate(id: String, create_time: i64) -> Result<RootKey, KeyringError> {
        let mut bytes = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut_slice()).map_err(|_| KeyringError::Random)?;
        Ok(Self::from_bytes(id, create_time, bytes))
    }

    /// The key with these bytes, as they were unwrapped.
    pub(super) fn from_bytes(id: String, create_time: i64, bytes: Zeroizing<[u8; 32]>) -> RootKey {
        let data = derive(&bytes, b"variables");
        let identity = SigningKey::from_bytes(&derive(&bytes, b"identity"));
        RootKey {
            id,
            create_time,
            bytes,
            data,
            identity,
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// When it was made, in Unix nanoseconds.
    pub fn create_time(&self) -> i64 {
        self.create_time
    }

    /// What the API and the log say about this key, in the given state: no material.
    pub fn meta(&self, state: &str) -> RootKeyMeta {
        RootKeyMeta {
            key_id: self.id.clone(),
            algorithm: ALGORITHM.to_owned(),
            create_time: self.create_time,
            state: state.to_owned(),
            ..RootKeyMeta::default()
        }
    }

    /// The public half of the key that signs workload identities. It goes into the log.
    pub fn public_identity(&self) -> VerifyingKey {
        self.identity.verifying_key()
    }

    /// The key that signs checkpoints of the log (RFC 8032).
    pub fn checkpoint_key(&self) -> SigningKey {
        SigningKey::from_bytes(&derive(&self.bytes, b"checkpoint"))
    }

    /// The key for HMACs of sensitive fields in exports.
    pub fn export_hmac_key(&self) -> Zeroizing<[u8; 32]> {
        derive(&self.bytes, b"export hmac")
    }

    /// The key that secrets of access control are sealed with.
    pub(super) fn secret_key(&self) -> Zeroizing<[u8; 32]> {
        derive(&self.bytes, b"acl secrets")
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    pub(super) fn data_key(&self) -> &[u8; 32] {
        &self.data
    }

    pub(super) fn identity_key(&self) -> &SigningKey {
        &self.identity
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RootKey");
        shown.field("id", &self.id).finish_non_exhaustive()
    }
}

/// HKDF with SHA-256 (RFC 5869); `purpose` separates the derived keys.
fn derive(bytes: &[u8; 32], purpose: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut derived = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(Some(SALT), bytes)
        .expand(purpose, derived.as_mut_slice())
        .expect("32 bytes are within what HKDF gives");
    derived
}
