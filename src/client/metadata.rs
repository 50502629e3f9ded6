//! The metadata of this node that is set while it runs, beside that of its configuration.
//!
//! It must not know its callers, nor how the request came: two functions on [`Client`], one that
//! reads and one that changes.
//!
//! Invariants: what is in force was written to the journal before; a key that is set to nothing
//! hides the configuration's for as long as that has it; the servers get it at once, and again
//! until they know.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use drover_events::gojson::Map;
use drover_events::model::Node;
use parking_lot::Mutex;

use super::agent::{Client, Core};
use super::journal::Journal;
use drover_error::Refusal;

/// Where it lies in the journal.
const KEY: &str = "nodemeta";
/// The most bytes that all of it may take: it goes out with each registration.
const LIMIT: usize = 256 << 10;

drover_events::wire! {
    /// A change of a node's metadata.
    pub struct MetadataRequest {
        node_id: String = "NodeID",
        /// What is set, and what is set to nothing.
        meta: Map<Option<String>> = "Meta",
    }

    /// A node's metadata.
    pub struct Metadata {
        /// What counts.
        meta: Map<String> = "Meta",
        /// What was set while it ran; nothing hides what the configuration says.
        dynamic: Map<Option<String>> = "Dynamic",
        /// What the configuration says.
        fixed: Map<String> = "Static",
    }
}

type Dynamic = BTreeMap<String, Option<String>>;

/// The metadata of a node, by where it comes from.
pub(super) struct MetadataSources {
    fixed: Mutex<Map<String>>,
    dynamic: Mutex<Dynamic>,
    /// One change at a time: the journal's order is that of what is in force.
    turn: tokio::sync::Mutex<()>,
}

impl MetadataSources {
    /// What the node was configured with, and over it what was set before it was started anew.
    pub(super) fn restore(node: &Mutex<Arc<Node>>, journal: &dyn Journal) -> Self {
        let mut node = node.lock();
        let fixed = node.meta.clone();
        let mut dynamic = journal.load().get(KEY).map(decoded).unwrap_or_default();
        // Nothing is left that a key without a value would hide.
        dynamic.retain(|key, value| value.is_some() || fixed.contains_key(key));
        if !dynamic.is_empty() {
            Arc::make_mut(&mut node).meta = merged(&fixed, &dynamic);
        }
        Self {
            fixed: Mutex::new(fixed),
            dynamic: Mutex::new(dynamic),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn now(&self) -> Metadata {
        let (fixed, dynamic) = (self.fixed.lock().clone(), self.dynamic.lock().clone());
        Metadata {
            meta: merged(&fixed, &dynamic),
            dynamic: dynamic.into(),
            fixed: fixed.or_empty(),
        }
    }
}

fn decoded(bytes: &Bytes) -> Dynamic {
    rmp_serde::from_slice(bytes).unwrap_or_else(|error| {
        tracing::error!("the metadata that was set on this node cannot be read: {error}");
        Dynamic::new()
    })
}

fn merged(fixed: &Map<String>, dynamic: &Dynamic) -> Map<String> {
    let mut meta = fixed.clone().or_empty();
    for (key, value) in dynamic {
        match value {
            Some(value) => meta.insert(key, value.clone()),
            None => meta.remove(key),
        };
    }
    meta
}

/// Refuses keys that no constraint could name.
fn check(fixed: &Map<String>, changes: &Map<Option<String>>) -> Result<(), Refusal> {
    if changes.is_empty() {
        return Err(Refusal::bad_request("missing required Meta object"));
    }
    let known = |key: &String| fixed.contains_key(key);
    match changes.keys().find(|key| !known(key) && !is_key(key)) {
        None => Ok(()),
        Some(key) if key.is_empty() => Err(Refusal::bad_request("metadata keys must not be empty")),
        Some(key) => Err(Refusal::bad_request(format!(
            "metadata key {key:?} is not valid: identifiers with dots between them are"
        ))),
    }
}

/// Whether a job can write `${meta.KEY}`.
fn is_key(key: &str) -> bool {
    key.split('.').all(|part| {
        let inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let first = |c: char| c.is_alphabetic() || c == '_';
        part.starts_with(first) && part.chars().all(inner)
    })
}

impl Client {
    /// The node's metadata.
    pub fn metadata(&self) -> Metadata {
        self.core.metadata.now()
    }

    /// Sets keys, and takes away those without a value. Durable, and in force on this node, when it
    /// answers; the servers get it at once, and again until they know.
    ///
    /// # Errors
    /// 400 for keys that no constraint could name and for too much of it; 500 where it cannot be
    /// kept.
    pub async fn apply_metadata(&self, changes: Map<Option<String>>) -> Result<Metadata, Refusal> {
        check(&self.core.metadata.fixed.lock(), &changes)?;
        let core = Arc::clone(&self.core);
        // The caller may be gone by then: what is durable comes into force all the same.
        let done = tokio::spawn(async move { core.say(changes).await });
        done.await
            .unwrap_or_else(|error| Err(Refusal::internal(error.to_string())))
    }
}

impl Core {
    /// Takes over what the configuration says of the node from now on; what was set while it ran
    /// stays in force. Nothing where that is what it had before.
    pub(super) fn configure_metadata(&self, configured: Map<String>) {
        let metadata = &self.metadata;
        let _turn = metadata.turn.blocking_lock();
        if *metadata.fixed.lock() == configured {
            return;
        }
        let meta = merged(&configured, &metadata.dynamic.lock());
        *metadata.fixed.lock() = configured;
        Arc::make_mut(&mut self.node.lock()).meta = meta;
        self.described.notify_one();
    }

    async fn say(&self, changes: Map<Option<String>>) -> Result<Metadata, Refusal> {
        let metadata = &self.metadata;
        let _turn = metadata.turn.lock().await;
        let fixed = metadata.fixed.lock().clone();
        let mut dynamic = metadata.dynamic.lock().clone();
        for (key, value) in changes {
            match value {
                None if !fixed.contains_key(&key) => dynamic.remove(&key),
                value => dynamic.insert(key, value),
            };
        }
        let length = |(key, value): (&String, &Option<String>)| {
            key.len() + value.as_ref().map_or(0, String::len)
        };
        let bytes: usize = dynamic.iter().map(length).sum();
        if bytes > LIMIT {
            return Err(Refusal::bad_request(format!(
                "metadata that is set on a node may take {LIMIT} bytes, this would be {bytes}"
            )));
        }
        let failed = |error: &dyn std::fmt::Display| {
            Refusal::internal(format!("failed to persist dynamic node metadata: {error}"))
        };
        let kept = rmp_serde::to_vec(&dynamic).map_err(|error| failed(&error))?;
        let kept = self.journal.put(KEY, kept);
        kept.await.map_err(|error| failed(&error))?;
        let meta = merged(&fixed, &dynamic);
        *metadata.dynamic.lock() = dynamic;
        Arc::make_mut(&mut self.node.lock()).meta = meta;
        self.described.notify_one();
        Ok(metadata.now())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::journal::{JournalError, NoJournal};

    fn changes(pairs: &[(&str, Option<&str>)]) -> Map<Option<String>> {
        let owned =
            |(key, value): &(&str, Option<&str>)| ((*key).to_owned(), value.map(str::to_owned));
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn mod_23_keys_are_what_a_constraint_can_name() {
        let fixed: Map<String> = [("odd/key", "x".to_owned())].into();
        for key in ["a", "rack", "a.b-c.d_e", "_x", "über.ß", "odd/key"] {
            check(&fixed, &changes(&[(key, Some("v"))])).expect(key);
        }
        for key in [
            "", ".", "a.", ".a", "a..b", "1a", "-a", "a b", "a/b", "a$", "a\n",
        ] {
            let refused = check(&fixed, &changes(&[(key, None)]));
            let error = refused.expect_err(key);
            assert_eq!(error.code, drover_error::Code::BadRequest, "{key:?}");
        }
        assert!(
            check(&fixed, &changes(&[])).is_err(),
            "nothing is requested"
        );
    }

    #[test]
    fn mod_23_what_hides_nothing_any_more_is_forgotten() {
        struct JournaledMetadata(Vec<u8>);
        impl Journal for JournaledMetadata {
            fn put(
                &self,
                key: &str,
                value: Vec<u8>,
            ) -> BoxFuture<'static, Result<(), JournalError>> {
                NoJournal.put(key, value)
            }
            fn delete(&self, key: &str) -> BoxFuture<'static, Result<(), JournalError>> {
                NoJournal.delete(key)
            }
            fn load(&self) -> BTreeMap<String, Bytes> {
                BTreeMap::from([(KEY.to_owned(), self.0.clone().into())])
            }
        }
        let node = Node {
            meta: [("there", "a".to_owned()), ("other", "b".to_owned())].into(),
            ..Node::default()
        };
        let node = Mutex::new(Arc::new(node));
        let dynamic = changes(&[("there", None), ("gone", None), ("new", Some("c"))]);
        let kept = rmp_serde::to_vec(&dynamic.into_map()).unwrap();
        let restored = MetadataSources::restore(&node, &JournaledMetadata(kept)).now();
        assert_eq!(
            restored.dynamic,
            changes(&[("there", None), ("new", Some("c"))])
        );
        let merged: Map<String> = [("new", "c".to_owned()), ("other", "b".to_owned())].into();
        assert_eq!((&restored.meta, &node.lock().meta), (&merged, &merged));
        assert_eq!(restored.fixed.len(), 2);
        // What cannot be read is not in force.
        let restored = MetadataSources::restore(&node, &JournaledMetadata(b"\xc1".to_vec())).now();
        assert!(restored.dynamic.is_empty());
    }
}
