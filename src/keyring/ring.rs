//! The keys that a server has at hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use drover_events::gojson::Base64;
use drover_events::model::{VariableDecrypted, VariableEncrypted};
use drover_log::FileLayer;
use parking_lot::RwLock;
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::{Claims, KeyringError, Keystore, RootKey, cipher, items, token};

/// The keyring of one server: the keystore, the keys read from it, and which one is active.
pub struct Keyring {
    store: Keystore,
    keys: RwLock<BTreeMap<String, Arc<RootKey>>>,
    active: watch::Sender<Option<Arc<RootKey>>>,
}

impl Keyring {
    /// Opens the keystore and reads what it holds. Keys that cannot be read are named in the second
    /// part of the answer and never keep the others from being used.
    ///
    /// # Errors
    /// When the keystore itself cannot be opened.
    pub fn open(dir: &Path) -> Result<(Keyring, Vec<KeyringError>), KeyringError> {
        Self::of_store(Keystore::open(dir)?)
    }

    /// As [`open`](Self::open), over a file layer.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(
        files: Arc<dyn FileLayer>,
        dir: &Path,
    ) -> Result<(Keyring, Vec<KeyringError>), KeyringError> {
        Self::of_store(Keystore::open_on(files, dir)?)
    }

    /// The keys of a keystore, for a tool: nothing is made, and keys that cannot be read are left
    /// out. None: there is no keystore.
    ///
    /// # Errors
    /// When the keystore cannot be opened.
    pub fn read(dir: &Path) -> Result<Option<Keyring>, KeyringError> {
        let store = Keystore::existing(dir)?;
        let keyring = store.map(Self::of_store).transpose()?;
        Ok(keyring.map(|(keyring, _)| keyring))
    }

    fn of_store(store: Keystore) -> Result<(Keyring, Vec<KeyringError>), KeyringError> {
        let mut keys = BTreeMap::new();
        let mut problems = Vec::new();
        for id in store.ids()? {
            match store.load(&id) {
                Ok(key) => {
                    keys.insert(id, Arc::new(key));
                }
                Err(problem) => problems.push(problem),
            }
        }
        let keyring = Keyring {
            store,
            keys: RwLock::new(keys),
            active: watch::Sender::new(None),
        };
        Ok((keyring, problems))
    }

    /// Makes a new key and writes its file. It is used only after [`activate`](Self::activate),
    /// which follows the event that announces it.
    ///
    /// # Errors
    /// [`KeyringError::Io`], [`KeyringError::Random`].
    pub fn generate(&self, id: String, now: i64) -> Result<Arc<RootKey>, KeyringError> {
        let key = Arc::new(RootKey::generate(id, now)?);
        self.install(Arc::clone(&key))?;
        Ok(key)
    }

    /// Takes in a key that another server sent.
    ///
    /// # Errors
    /// [`KeyringError::Io`].
    pub fn install(&self, key: Arc<RootKey>) -> Result<(), KeyringError> {
        self.store.save(&key)?;
        self.keys.write().insert(key.id().to_owned(), key);
        Ok(())
    }

    /// Makes a key the one that new things are encrypted and signed with: its event is applied.
    ///
    /// # Errors
    /// [`KeyringError::MissingKey`] when its material is not here (yet).
    pub fn activate(&self, id: &str) -> Result<(), KeyringError> {
        let key = self.key(id)?;
        self.active.send_replace(Some(key));
        Ok(())
    }

    /// Forgets a key and removes its file: its event is applied.
    ///
    /// # Errors
    /// [`KeyringError::Io`].
    pub fn remove(&self, id: &str) -> Result<(), KeyringError> {
        self.keys.write().remove(id);
        self.active.send_if_modified(|active| {
            let gone = active.as_ref().is_some_and(|key| key.id() == id);
            if gone {
                *active = None;
            }
            gone
        });
        self.store.remove(id)
    }

    /// A key by id.
    ///
    /// # Errors
    /// [`KeyringError::MissingKey`].
    pub fn key(&self, id: &str) -> Result<Arc<RootKey>, KeyringError> {
        let keys = self.keys.read();
        let found = keys.get(id).cloned();
        found.ok_or_else(|| KeyringError::MissingKey(id.to_owned()))
    }

    /// The ids of all keys whose material is here, sorted.
    pub fn ids(&self) -> Vec<String> {
        self.keys.read().keys().cloned().collect()
    }

    /// The keys for HMACs of sensitive values in exports, that of the oldest root key first.
    pub fn export_keys(&self) -> Vec<Zeroizing<[u8; 32]>> {
        let mut keys: Vec<_> = self.keys.read().values().cloned().collect();
        keys.sort_by(|a, b| (a.create_time(), a.id()).cmp(&(b.create_time(), b.id())));
        keys.iter().map(|key| key.export_hmac_key()).collect()
    }

    /// The active key.
    ///
    /// # Errors
    /// [`KeyringError::NotReady`] while there is no active key.
    pub fn active(&self) -> Result<Arc<RootKey>, KeyringError> {
        self.active.borrow().clone().ok_or(KeyringError::NotReady)
    }

    /// Waits until a key is active. The caller sets the limit, with a timeout around it.
    pub async fn wait_active(&self) -> Arc<RootKey> {
        let mut changes = self.active.subscribe();
        loop {
            if let Some(key) = changes.borrow_and_update().clone() {
                return key;
            }
            // The sender lives as long as `self`, so a change comes or the caller gives up.
            let _ = changes.changed().await;
        }
    }

    /// Encrypts a variable's items with the active key; the rest is carried over.
    ///
    /// # Errors
    /// [`KeyringError::NotReady`], [`KeyringError::Random`].
    pub fn encrypt(&self, clear: &VariableDecrypted) -> Result<VariableEncrypted, KeyringError> {
        let key = self.active()?;
        let items = cipher::secret_json(&clear.items)
            .map_err(|_| KeyringError::Sealed(key.id().to_owned()))?;
        let place = place(&clear.namespace, &clear.path);
        let data = cipher::seal(key.data_key(), &place, &items).ok_or(KeyringError::Random)?;
        Ok(VariableEncrypted {
            namespace: clear.namespace.clone(),
            path: clear.path.clone(),
            lock: clear.lock.clone(),
            create_index: clear.create_index,
            create_time: clear.create_time,
            modify_index: clear.modify_index,
            modify_time: clear.modify_time,
            data: Base64::from(data),
            key_id: key.id().to_owned(),
        })
    }

    /// Decrypts a variable with the key that it names. Its items are cleared when it is let go.
    ///
    /// # Errors
    /// [`KeyringError::MissingKey`], or [`KeyringError::Sealed`] when the ciphertext belongs to no
    /// such key, namespace and path.
    pub fn decrypt(
        &self,
        sealed: &VariableEncrypted,
    ) -> Result<Zeroizing<VariableDecrypted>, KeyringError> {
        let key = self.key(&sealed.key_id)?;
        let place = place(&sealed.namespace, &sealed.path);
        let wrong = || KeyringError::Sealed(sealed.key_id.clone());
        let clear = cipher::open(key.data_key(), &place, &sealed.data).ok_or_else(wrong)?;
        let items = items::read(&clear).map_err(|_| wrong())?;
        Ok(Zeroizing::new(VariableDecrypted {
            namespace: sealed.namespace.clone(),
            path: sealed.path.clone(),
            lock: sealed.lock.clone(),
            create_index: sealed.create_index,
            create_time: sealed.create_time,
            modify_index: sealed.modify_index,
            modify_time: sealed.modify_time,
            items,
        }))
    }

    /// Signs claims with a key, by id, so that a token can be made again later.
    ///
    /// # Errors
    /// [`KeyringError::MissingKey`].
    pub fn sign(&self, key_id: &str, claims: &Claims) -> Result<String, KeyringError> {
        token::sign(self.key(key_id)?.as_ref(), claims)
    }

    /// Checks a token; `now` is in Unix nanoseconds. Fails closed when its key is not here.
    ///
    /// # Errors
    /// [`KeyringError::Token`], [`KeyringError::MissingKey`].
    pub fn verify(&self, token: &str, now: i64) -> Result<Claims, KeyringError> {
        let unverified = token::parse(token)?;
        let key = self.key(&unverified.key_id)?;
        unverified.verify(&key.public_identity(), now)
    }
}

/// What a variable's ciphertext is bound to.
fn place(namespace: &str, path: &str) -> Vec<u8> {
    format!("drover variable\0{namespace}\0{path}").into_bytes()
}
