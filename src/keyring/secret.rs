//! Secrets of tokens as they lie in the log: ciphertext for those who may read them again. They are
//! found by a hash, which is the table's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_events::acl::SealedSecret;
use zeroize::Zeroizing;

use super::{Keyring, KeyringError, cipher};

impl Keyring {
    /// Seals the secret of a token, bound to the token's accessor. `hash` is what it is found by.
    ///
    /// # Errors
    /// [`KeyringError::NotReady`], [`KeyringError::Random`].
    pub fn seal_secret(
        &self,
        accessor: &str,
        secret: &str,
        hash: String,
    ) -> Result<SealedSecret, KeyringError> {
        let key = self.active()?;
        let sealed = cipher::seal(&key.secret_key(), &place(accessor), secret.as_bytes());
        Ok(SealedSecret {
            hash,
            ciphertext: STANDARD.encode(sealed.ok_or(KeyringError::Random)?),
            key_id: key.id().to_owned(),
        })
    }

    /// Opens what [`Keyring::seal_secret`] made for the same accessor.
    ///
    /// # Errors
    /// [`KeyringError::MissingKey`] when its key is gone, [`KeyringError::Sealed`] when it belongs
    /// to no such key and accessor.
    pub fn open_secret(
        &self,
        accessor: &str,
        sealed: &SealedSecret,
    ) -> Result<Zeroizing<String>, KeyringError> {
        let key = self.key(&sealed.key_id)?;
        let wrong = || KeyringError::Sealed(sealed.key_id.clone());
        let bytes = STANDARD.decode(&sealed.ciphertext).map_err(|_| wrong())?;
        let clear = cipher::open(&key.secret_key(), &place(accessor), &bytes);
        let clear = clear.ok_or_else(wrong)?;
        let text = std::str::from_utf8(&clear).map_err(|_| wrong())?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

/// What a secret's ciphertext is bound to.
fn place(accessor: &str) -> Vec<u8> {
    format!("drover acl token\0{accessor}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Keyring, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let (ring, broken) = Keyring::open(dir.path()).expect("opens");
        assert!(broken.is_empty());
        ring.generate("00000000-0000-4000-8000-000000000001".into(), 1)
            .expect("a key");
        ring.activate("00000000-0000-4000-8000-000000000001")
            .expect("active");
        (ring, dir)
    }

    #[test]
    fn a_secret_opens_for_its_own_accessor_only() {
        let (ring, _dir) = ring();
        let sealed = ring
            .seal_secret("a", "canary", "00ff".into())
            .expect("sealed");
        let open = |accessor| ring.open_secret(accessor, &sealed);
        assert_eq!(*open("a").expect("opens"), "canary");
        assert!(matches!(open("b"), Err(KeyringError::Sealed(_))));
        assert_eq!(sealed.hash, "00ff");
        let shown = format!("{sealed:?}");
        assert!(!shown.contains("canary") && !sealed.ciphertext.contains("canary"));
        ring.generate("00000000-0000-4000-8000-000000000002".into(), 2)
            .expect("another");
        ring.activate("00000000-0000-4000-8000-000000000002")
            .expect("active");
        assert_eq!(*open("a").expect("still"), "canary");
        ring.remove("00000000-0000-4000-8000-000000000001")
            .expect("removed");
        let gone = open("a");
        assert!(matches!(gone, Err(KeyringError::MissingKey(_))));
    }
}
