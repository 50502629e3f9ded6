//! The first root key: made once this server leads and there is none, or where the file of the
//! active one is gone, as after an import without the keystore: what it encrypted stays unreadable,
//! but everything else continues.
//!
//! Leadership does not wait for it (KR-03); callers that need a key cope with "not there yet". The
//! order is: file synced, then the event, then first use.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::status::root_key;
use drover_projections::tables::root_keys::RootKeys;
use drover_projections::{Scan, View};

use super::Server;
use crate::commands::keyring::UpsertRootKey;
use crate::error::Refusal;
use crate::keyring::{Keyring, KeyringError, Keystore, RootKey};
use crate::proposer::Committed;
use crate::table_reads::offload;

/// How long a failed attempt waits before the next.
const RETRY: Duration = Duration::from_secs(1);

/// Whenever this server begins to lead, sees to it that there is an active root key. Ends with Raft.
pub(super) async fn keep_a_key(server: Arc<Server>) {
    let mut ready = server.proposer.ready();
    let mut offered = Offered::default();
    loop {
        let term = *ready.borrow_and_update();
        if let Some(term) = term {
            while let Err(error) = ensure(&server, &mut offered, term).await {
                tracing::warn!(%error, "no root key yet");
                if ready.has_changed().unwrap_or(true) {
                    break;
                }
                tokio::time::sleep(RETRY).await;
            }
        }
        if ready.changed().await.is_err() {
            return;
        }
    }
}

async fn ensure(server: &Arc<Server>, offered: &mut Offered, term: u64) -> Result<(), Refusal> {
    let (known, active) = offload(|| known(&server.projections.view()))?;
    if let Some(id) = active
        && !is_lost(server, &id)?
    {
        return offered
            .reconcile(&server.keyring, &known, term)
            .map_err(failed);
    }
    let submit = |command: UpsertRootKey| server.submit(command, server.origin("keyring"));
    let done = offer(&server.keyring, offered, known, term, submit).await;
    if let (Err(_), Some(leads)) = (&done, *server.proposer.ready().borrow()) {
        offered.extend_to(leads);
    }
    done
}

/// Offers a key where the tables know the ids `known`: the one that was offered before, else a new
/// one. It is active once its event was submitted.
async fn offer<F>(
    keyring: &Arc<Keyring>,
    offered: &mut Offered,
    known: Vec<String>,
    term: u64,
    submit: impl FnOnce(UpsertRootKey) -> F,
) -> Result<(), Refusal>
where
    F: Future<Output = Result<Committed, Refusal>>,
{
    // A copy: were the attempt to panic, the key of those before it would still be known.
    let (store, mut taken) = (Arc::clone(keyring), offered.clone());
    let (taken, key) = tokio::task::spawn_blocking(move || {
        let key = taken.key(&store, &known, term);
        (taken, key)
    })
    .await
    .map_err(|error| Refusal::internal(error.to_string()))?;
    *offered = taken;
    let key = key.map_err(failed)?;
    let command = UpsertRootKey {
        key: key.meta(root_key::ACTIVE),
        public_key: key.public_identity().to_bytes().to_vec().into(),
        rekey: false,
    };
    submit(command).await?;
    keyring.activate(key.id()).map_err(failed)?;
    *offered = Offered::default();
    tracing::info!(key = key.id(), "made a root key");
    Ok(())
}

fn failed(error: KeyringError) -> Refusal {
    Refusal::internal(error.to_string())
}

/// The key that was made and is offered until it is the active one: a refused or unanswered event
/// is tried again with the same key, so that its file is the only one.
#[derive(Clone, Debug, Default)]
struct Offered {
    /// Its id, and the last term in which its event may have been proposed.
    key: Option<(String, u64)>,
}

impl Offered {
    /// The key to offer, where the tables know the ids `known`.
    fn key(
        &mut self,
        keyring: &Keyring,
        known: &[String],
        term: u64,
    ) -> Result<Arc<RootKey>, KeyringError> {
        let before = self.key.take().map(|(id, _)| id);
        // Where there never was a key, a file is what a kill left before its event.
        let left = || keyring.ids().pop().filter(|_| known.is_empty());
        let key = match before.or_else(left) {
            Some(id) => keyring.key(&id)?,
            None => {
                let id = uuid::Uuid::new_v4().to_string();
                keyring.generate(id, crate::base::clock::unix_nanos())?
            }
        };
        self.key = Some((key.id().to_owned(), term));
        Ok(key)
    }

    /// The attempt failed while this server leads in this term: its event may have waited for that.
    fn extend_to(&mut self, leads: u64) {
        if let Some((_, term)) = &mut self.key {
            *term = leads.max(*term);
        }
    }

    /// There is an active key. What was offered and never became one goes with its file; in the
    /// last term in which it may have been proposed its event may still come.
    fn reconcile(
        &mut self,
        keyring: &Keyring,
        known: &[String],
        term: u64,
    ) -> Result<(), KeyringError> {
        match &self.key {
            Some((id, _)) if known.contains(id) => {}
            Some((id, offered)) if *offered != term => keyring.remove(id)?,
            _ => return Ok(()),
        }
        self.key = None;
        Ok(())
    }
}

/// Activates a key; answers whether it cannot be, because it has no file.
fn is_lost(server: &Server, id: &str) -> Result<bool, Refusal> {
    match server.keyring.activate(id) {
        Ok(()) => return Ok(false),
        Err(KeyringError::MissingKey(_)) => {}
        Err(error) => return Err(failed(error)),
    }
    let files = Keystore::open(&server.dir.join("keystore")).and_then(|store| store.ids());
    if files.map_err(failed)?.iter().any(|known| known == id) {
        return Err(Refusal::internal(format!(
            "the file of root key {id} cannot be used: put it back, or wrap.key beside it, and \
             start again; if they are lost, remove it, and a new key is made"
        )));
    }
    tracing::error!(
        key = id,
        "the active root key is not in the keystore: what it encrypted cannot be read; a new key \
         is made"
    );
    Ok(true)
}

/// The ids of the root keys that the tables know, and of the active one.
fn known(view: &View) -> Result<(Vec<String>, Option<String>), Refusal> {
    let (mut known, mut active) = (Vec::new(), None);
    for key in view.scan::<RootKeys>(Scan::all()) {
        let key = key.map_err(|error| Refusal::internal(error.to_string()))?;
        if key.meta.state == root_key::ACTIVE {
            active = Some(key.meta.key_id.clone());
        }
        known.push(key.meta.key_id);
    }
    Ok((known, active))
}

#[cfg(test)]
mod tests {
    use drover_projections::Reply;

    use super::*;

    fn files(dir: &std::path::Path) -> Vec<String> {
        Keystore::open(dir).unwrap().ids().unwrap()
    }

    #[test]
    fn a_key_whose_event_fails_is_offered_again_and_leaves_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let (keyring, _) = Keyring::open(dir.path()).unwrap();
        let mut offered = Offered::default();
        let first = offered.key(&keyring, &[], 1).unwrap();
        for term in 1..6 {
            let again = offered.key(&keyring, &[], term).unwrap();
            assert_eq!(again.id(), first.id());
        }
        assert_eq!(files(dir.path()), [first.id()]);
        // Killed before its event: the next start continues with what lies there.
        let (keyring, _) = Keyring::open(dir.path()).unwrap();
        let mut offered = Offered::default();
        assert_eq!(offered.key(&keyring, &[], 9).unwrap().id(), first.id());
        assert_eq!(files(dir.path()), [first.id()]);
    }

    /// The tables know a key whose file is gone, so none that lies there is taken for its own.
    #[tokio::test]
    async fn a_key_that_is_refused_again_and_again_leaves_one_file_until_it_is_active() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Arc::new(Keyring::open(dir.path()).unwrap().0);
        let known = vec!["lost".to_owned()];
        let (mut offered, mut ids) = (Offered::default(), Vec::new());
        for _ in 0..3 {
            let refuses = |command: UpsertRootKey| {
                ids.push(command.key.key_id);
                async { Err::<Committed, _>(Refusal::internal("nobody leads")) }
            };
            let refused = offer(&keyring, &mut offered, known.clone(), 1, refuses).await;
            assert!(refused.is_err());
        }
        assert_eq!(files(dir.path()).len(), 1, "{ids:?}");
        assert_eq!(files(dir.path()), ids[..1]);
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert!(keyring.active().is_err(), "it was never accepted");
        let accepts = |_: UpsertRootKey| async {
            Ok::<_, Refusal>(Committed {
                index: 1,
                reply: Reply::None,
                is_written: true,
            })
        };
        offer(&keyring, &mut offered, known, 1, accepts)
            .await
            .unwrap();
        assert_eq!(files(dir.path()), ids[..1]);
        assert_eq!(keyring.active().unwrap().id(), ids[0]);
        let nothing = format!("{:?}", Offered::default());
        assert_eq!(format!("{offered:?}"), nothing, "it is not offered again");
    }

    #[test]
    fn a_key_that_never_became_active_goes_when_its_event_cannot_come_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let (keyring, _) = Keyring::open(dir.path()).unwrap();
        let other = keyring.generate("other".to_owned(), 1).unwrap();
        let known = [other.id().to_owned()];
        let mut offered = Offered::default();
        let mine = offered.key(&keyring, &known, 4).unwrap();
        assert_ne!(
            mine.id(),
            other.id(),
            "a key that is known is not offered again"
        );
        offered.reconcile(&keyring, &known, 4).unwrap();
        assert_eq!(files(dir.path()).len(), 2, "its event may still come");
        // It waited for the next term, and had no answer there either.
        offered.extend_to(6);
        offered.reconcile(&keyring, &known, 6).unwrap();
        assert_eq!(files(dir.path()).len(), 2, "its event may still come");
        offered.reconcile(&keyring, &known, 7).unwrap();
        assert_eq!(files(dir.path()), [other.id()]);
        // One that the tables know stays, whatever became of the answer.
        let mine = offered.key(&keyring, &known, 7).unwrap();
        let known = [other.id().to_owned(), mine.id().to_owned()];
        offered.reconcile(&keyring, &known, 8).unwrap();
        assert_eq!(files(dir.path()).len(), 2);
    }
}
