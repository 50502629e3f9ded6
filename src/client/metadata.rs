//! What is said of this node while it runs, beside what its configuration says.
//!
//! It must not know who asks, nor how the request came: two functions on [`Client`], one that reads
//! and one that changes.
//!
//! Invariants: what is in force was written to the journal before; a key that is set to nothing
//! hides the configuration's for as long as that has it; the servers are told at once, and again
//! until they know.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use drover_events::gojson::Map;
use drover_events::model::Node;
use parking_lot::Mutex;

use super::agent::{Client, Core};
use super::journal::Journal;
use crate::error::ApiError;

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

/// What is said of a node, and by whom.
pub(super) struct Said {
    fixed: Mutex<Map<String>>,
    dynamic: Mutex<Dynamic>,
    /// One change at a time: the journal's order is that of what is in force.
    turn: tokio::sync::Mutex<()>,
}

impl Said {
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
fn check(fixed: &Map<String>, changes: &Map<Option<String>>) -> Result<(), ApiError> {
    if changes.is_empty() {
        return Err(ApiError::bad_request("missing required Meta object"));
    }
    let known = |key: &String| fixed.contains_key(key);
    match changes.keys().find(|key| !known(key) && !is_key(key)) {
        None => Ok(()),
        Some(key) if key.is_empty() => {
            Err(ApiError::bad_request("metadata keys must not be empty"))
        }
        Some(key) => Err(ApiError::bad_request(format!(
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
        self.core.said.now()
    }

    /// Sets keys, and takes away those without a value. Durable, and in force on this node, when it
    /// answers; the servers hear of it at once, and again until they do.
    ///
    /// # Errors
    /// 400 for keys that no constraint could name and for too much of it; 500 where it cannot be
    /// kept.
    pub async fn apply_metadata(&self, changes: Map<Option<String>>) -> Result<Metadata, ApiError> {
        check(&self.core.said.fixed.lock(), &changes)?;
        let core = Arc::clone(&self.core);
        // Whoever asked may be gone by then: what is durable comes into force all the same.
        let done = tokio::spawn(async move { core.say(changes).await });
        done.await
            .unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
    }
}

impl Core {
    /// Takes over what the configuration says of the node from now on; what was set while it ran
    /// goes on counting. Nothing where that is what it said before.
    pub(super) fn configure_metadata(&self, configured: Map<String>) {
        let said = &self.said;
        let _turn = said.turn.blocking_lock();
        if *said.fixed.lock() == configured {
            return;
        }
        let meta = merged(&configured, &said.dynamic.lock());
        *said.fixed.lock() = configured;
        Arc::make_mut(&mut self.node.lock()).meta = meta;
        self.described.notify_one();
    }

    async fn say(&self, changes: Map<Option<String>>) -> Result<Metadata, ApiError> {
        let said = &self.said;
        let _turn = said.turn.lock().await;
        let fixed = said.fixed.lock().clone();
        let mut dynamic = said.dynamic.lock().clone();
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
            return Err(ApiError::bad_request(format!(
                "metadata that is set on a node may take {LIMIT} bytes, this would be {bytes}"
            )));
        }
        let failed = |error: &dyn std::fmt::Display| {
            ApiError::internal(format!("failed to persist dynamic node metadata: {error}"))
        };
        let kept = rmp_serde::to_vec(&dynamic).map_err(|error| failed(&error))?;
        let kept = self.journal.put(KEY, kept);
        kept.await.map_err(|error| failed(&error))?;
        let meta = merged(&fixed, &dynamic);
        *said.dynamic.lock() = dynamic;
        Arc::make_mut(&mut self.node.lock()).meta = meta;
        self.described.notify_one();
        Ok(said.now())
    }
}

#[cfg(test)]
mod tests {
    use drover_projections::tables::nodes;
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::client::agent::tests::{World, group};
    use crate::client::journal::{JournalError, NoJournal};
    use crate::rpc::duplex::{Duplex, Pace};
    use crate::rpc::service::{Call, Dispatch};
    use drover_testkit::until;

    type Answered = Result<Bytes, ApiError>;

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
            assert_eq!(error.code, crate::error::Code::BadRequest, "{key:?}");
        }
        assert!(
            check(&fixed, &changes(&[])).is_err(),
            "nothing is asked for"
        );
    }

    #[test]
    fn mod_23_what_hides_nothing_any_more_is_forgotten() {
        struct Kept(Vec<u8>);
        impl Journal for Kept {
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
        let said = Said::restore(&node, &Kept(kept)).now();
        assert_eq!(
            said.dynamic,
            changes(&[("there", None), ("new", Some("c"))])
        );
        let merged: Map<String> = [("new", "c".to_owned()), ("other", "b".to_owned())].into();
        assert_eq!((&said.meta, &node.lock().meta), (&merged, &merged));
        assert_eq!(said.fixed.len(), 2);
        // What cannot be read is not in force.
        let said = Said::restore(&node, &Kept(b"\xc1".to_vec())).now();
        assert!(said.dynamic.is_empty());
    }

    /// A job that only a node of rack r7 can run; whether an evaluation of it is blocked.
    async fn waits_for_a_rack(world: &World) -> impl FnMut() -> bool {
        let mut wanting = group(1, serde_json::json!({"run_for": "1h"}));
        wanting.constraints = vec![drover_events::model::Constraint {
            l_target: "${meta.rack}".into(),
            r_target: "r7".into(),
            operand: "=".into(),
        }]
        .into();
        world.register_group("waits", "service", wanting).await;
        let projections = Arc::clone(&world.server.projections);
        move || {
            let view = projections.view();
            let all = drover_projections::Scan::all();
            let mut evals = drover_projections::Read::rows::<
                drover_projections::tables::evals::Evals,
            >(&view, all);
            evals.any(|eval| eval.unwrap().status == "blocked")
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mod_23_metadata_reaches_the_servers_at_once_wakes_what_waited_and_stays() {
        let world = World::start().await;
        let client = world.client();
        let id = client.node_id();
        let row = || nodes::get(&world.server.projections.view(), &id).unwrap();
        until("the node is ready", || {
            row().is_some_and(|node| node.status == "ready")
        })
        .await;
        let class = row().unwrap().computed_class;
        let blocked = waits_for_a_rack(&world).await;
        until("its evaluation is blocked", blocked).await;
        assert!(world.allocs("waits").is_empty());

        let said = client
            .apply_metadata(changes(&[
                ("rack", Some("r7")),
                ("connect.log_level", None),
                ("never", None),
            ]))
            .await
            .unwrap();
        assert_eq!(said.meta["rack"], "r7");
        assert!(!said.meta.contains_key("connect.log_level"));
        assert_eq!(said.fixed["connect.log_level"], "info");
        let dynamic = changes(&[("rack", Some("r7")), ("connect.log_level", None)]);
        assert_eq!(said.dynamic, dynamic);
        until("it is placed and runs", || {
            let allocs = world.allocs("waits");
            allocs.iter().any(|alloc| alloc.client_status == "running")
        })
        .await;
        let node = row().unwrap();
        assert_eq!(node.meta, said.meta);
        assert_ne!(node.computed_class, class, "the class follows");
        assert_eq!(node.status, "ready", "it was never taken for another");

        client.shutdown().await;
        drop(client);
        let again = world.client();
        let kept = again.metadata();
        assert_eq!((&kept.meta, &kept.dynamic), (&said.meta, &said.dynamic));
        assert_eq!(
            kept.fixed, said.fixed,
            "what is set is not taken for configured"
        );
        let back = changes(&[("rack", None), ("connect.log_level", Some("debug"))]);
        let said = again.apply_metadata(back).await.unwrap();
        assert_eq!(
            said.dynamic,
            changes(&[("connect.log_level", Some("debug"))])
        );
        assert_eq!(said.meta["connect.log_level"], "debug");
        until("the servers know", || {
            row().is_some_and(|node| node.meta == said.meta)
        })
        .await;
        let long = "x".repeat(LIMIT);
        let refused = again.apply_metadata(changes(&[("long", Some(&long))]));
        assert!(refused.await.unwrap_err().message.contains("262144 bytes"));
        assert_eq!(again.metadata().meta, said.meta);
    }

    /// Refuses the second registration.
    struct Deaf(std::sync::atomic::AtomicUsize, Arc<dyn Dispatch>);

    impl Dispatch for Deaf {
        fn dispatch(&self, name: &str, call: Call, body: Bytes) -> BoxFuture<'static, Answered> {
            let registers = name == "Node.Register";
            if registers && self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
                let error = ApiError::internal("not now");
                return std::future::ready(Err(error)).boxed();
            }
            self.1.dispatch(name, call, body)
        }

        fn streams(&self, name: &str) -> Option<Pace> {
            self.1.streams(name)
        }

        fn open(
            &self,
            name: &str,
            call: Call,
            stream: Duplex,
        ) -> BoxFuture<'static, Result<(), ApiError>> {
            self.1.open(name, call, stream)
        }

        fn knows(&self, call: &Call) -> BoxFuture<'static, bool> {
            self.1.knows(call)
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mod_23_metadata_that_the_servers_did_not_take_is_told_again() {
        let deaf = |service| -> Arc<dyn Dispatch> { Arc::new(Deaf(Default::default(), service)) };
        let world = World::start_behind(deaf).await;
        let client = world.client();
        let id = client.node_id();
        let row = || nodes::get(&world.server.projections.view(), &id).unwrap();
        until("the node is there", || row().is_some()).await;
        let said = client.apply_metadata(changes(&[("rack", Some("r7"))]));
        let said = said.await.unwrap();
        until("the servers know", || {
            row().is_some_and(|node| node.meta == said.meta)
        })
        .await;
        until("all is well", || client.health().is_ok()).await;
    }
}
