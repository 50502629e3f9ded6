//! Secrets of tokens and of volumes as they lie in the log: ciphertext for callers that may read
//! them again. Those of tokens are found by a hash, which is the table's.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_events::acl::SealedSecret;
use drover_events::csi;
use drover_events::gojson::Map;
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

impl Keyring {
    /// Seals the secrets of a volume, each bound to the volume and to its own name (CSI-09).
    ///
    /// # Errors
    /// [`KeyringError::NotReady`], [`KeyringError::Random`].
    pub fn seal_volume_secrets(
        &self,
        (namespace, volume): (&str, &str),
        secrets: &Map<String>,
    ) -> Result<Map<String>, KeyringError> {
        if secrets.is_empty() {
            return Ok(secrets.clone());
        }
        let key = self.active()?;
        let mut sealed = Map::empty();
        for (name, clear) in secrets.iter() {
            let place = place_of_volume(namespace, volume, name);
            let bytes = cipher::seal(&key.secret_key(), &place, clear.as_bytes());
            let bytes = bytes.ok_or(KeyringError::Random)?;
            sealed.insert(
                name.as_str(),
                csi::sealed(key.id(), &STANDARD.encode(bytes)),
            );
        }
        Ok(sealed)
    }

    /// Opens what [`Keyring::seal_volume_secrets`] made for the same volume.
    ///
    /// # Errors
    /// [`KeyringError::MissingKey`] when a key is gone, [`KeyringError::Sealed`] when a secret
    /// belongs to no such key, volume and name, or was never sealed.
    pub fn open_volume_secrets(
        &self,
        (namespace, volume): (&str, &str),
        secrets: &Map<String>,
    ) -> Result<BTreeMap<String, Zeroizing<String>>, KeyringError> {
        let mut opened = BTreeMap::new();
        for (name, secret) in secrets.iter() {
            let wrong = |key: &str| KeyringError::Sealed(key.to_owned());
            let (key_id, text) = csi::as_sealed(secret).ok_or_else(|| wrong(""))?;
            let key = self.key(key_id)?;
            let bytes = STANDARD.decode(text).map_err(|_| wrong(key_id))?;
            let place = place_of_volume(namespace, volume, name);
            let clear = cipher::open(&key.secret_key(), &place, &bytes);
            let clear = clear.ok_or_else(|| wrong(key_id))?;
            let text = std::str::from_utf8(&clear).map_err(|_| wrong(key_id))?;
            opened.insert(name.clone(), Zeroizing::new(text.to_owned()));
        }
        Ok(opened)
    }
}

fn place_of_volume(namespace: &str, volume: &str, name: &str) -> Vec<u8> {
    format!("drover volume secret\0{namespace}\0{volume}\0{name}").into_bytes()
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
    fn csi_09_secrets_of_a_volume_open_for_that_volume_and_name_only() {
        let (ring, _dir) = ring();
        let clear = Map::from([
            ("user", "admin".to_owned()),
            ("password", "canary".to_owned()),
        ]);
        let sealed = ring
            .seal_volume_secrets(("prod", "data"), &clear)
            .expect("sealed");
        assert!(!format!("{sealed:?}").contains("canary"));
        assert!(sealed.values().all(|one| csi::as_sealed(one).is_some()));
        let open = |place, sealed: &Map<String>| ring.open_volume_secrets(place, sealed);
        let opened = open(("prod", "data"), &sealed).expect("opens");
        assert_eq!(*opened["password"], "canary");
        assert!(open(("dev", "data"), &sealed).is_err());
        assert!(open(("prod", "other"), &sealed).is_err());
        let swapped = Map::from([("user", sealed["password"].clone())]);
        assert!(open(("prod", "data"), &swapped).is_err());
        assert!(
            open(("prod", "data"), &clear).is_err(),
            "clear text was never sealed"
        );
        let none = ring
            .seal_volume_secrets(("prod", "data"), &Map::nil())
            .expect("nothing");
        assert!(none.is_nil());
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
