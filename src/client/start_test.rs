//! What a client knows of allocations and of their volumes.

use std::os::unix::fs::PermissionsExt;

use drover_events::gojson::from_value;
use drover_events::model::Allocation;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::journal::{Journal, alloc_key, state_key};
use crate::testing::Pretended;
use crate::uses::Uses;
use crate::volumes::host::Users;
use drover_rpc::Rpc;
use drover_rpc::methods::{NodeGetClientAllocs, NodeRegister};
use drover_testkit::until;

/// An allocation that runs, and does nothing.
struct Idle(Allocation, watch::Sender<bool>);

impl AllocRunner for Idle {
    fn update(&self, _: Arc<Allocation>) {}

    fn alloc(&self) -> Arc<Allocation> {
        Arc::new(self.0.clone())
    }

    fn done(&self) -> watch::Receiver<bool> {
        self.1.subscribe()
    }

    fn destroy(&self) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

/// An allocation that uses the volume `data`.
fn user(id: &str) -> Allocation {
    from_value(
        json!({"ID": id, "Name": "j.g[0]", "Namespace": "default", "TaskGroup": "g",
        "Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Volumes": {
            "a": {"Type": "host", "Source": "data"}}}]}}),
    )
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allocation_that_cannot_be_restored_may_run() {
    let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
    let (odd, broken) = ("00000000-0000-0000-0000-00000000000a", "b");
    {
        let folder = tmp.path().join("client/journal");
        std::fs::create_dir_all(&folder).unwrap();
        let (journal, _) = LogJournal::open(&folder).unwrap();
        journal.put(&alloc_key(odd), b"odd".to_vec()).await.unwrap();
        // It has no job, and cannot be run.
        let alloc = Allocation {
            id: broken.to_owned(),
            ..Allocation::default()
        };
        let alloc = rmp_serde::to_vec_named(&alloc).unwrap();
        journal.put(&alloc_key(broken), alloc).await.unwrap();
        let state = b"odd".to_vec();
        journal.put(&state_key(broken), state).await.unwrap();
    }
    let client = open(settings(tmp.path()), |_| servers.caller()).unwrap();
    assert_eq!(client.known(odd), AllocKnowledge::Lives);
    assert_eq!(client.known(broken), AllocKnowledge::Lives);
    assert_eq!(client.known("nobody"), AllocKnowledge::Not);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_uses_a_volume_is_here_or_leaving_or_was_sent_here_meanwhile() {
    let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::new());
    let client = servers.client(tmp.path());
    let core = &client.core;
    let (users, of) = (Uses::of(core), ("default", "data"));
    let (end, runner) = {
        let end = watch::Sender::new(false);
        let runner: Arc<dyn AllocRunner> = Arc::new(Idle(user("a1"), end.clone()));
        (end, runner)
    };
    assert!(users.here(of.0, of.1).is_empty());
    core.leaving.lock().insert("a1".to_owned(), runner);
    assert_eq!(users.here(of.0, of.1), ["a1"], "it is still being killed");
    assert!(users.here("other", of.1).is_empty());
    end.send_replace(true);
    assert!(users.here(of.0, of.1).is_empty());

    // One that was placed and did not come yet: the node offers the volume no more.
    let offered = drover_events::model::ClientHostVolumeConfig {
        name: "data".to_owned(),
        path: "/".to_owned(),
        ..Default::default()
    };
    until("registered", || core.contact.borrow().registered).await;
    let offers = |is: bool| {
        let mut node = core.node.lock();
        let node = Arc::make_mut(&mut node);
        node.host_volumes = drover_events::gojson::Map::nil();
        if is {
            node.host_volumes.insert("data", offered.clone());
        }
    };
    offers(true);
    assert_eq!(users.anew(of.0, of.1).await, Ok(Vec::new()));
    // Once above, and twice by the loop that follows what is to run: it waits for a change since.
    let follows = || {
        let methods = servers.methods.lock();
        let times = methods
            .iter()
            .filter(|one| **one == NodeGetClientAllocs::NAME);
        times.count() == 3
    };
    until("what is to run is followed", follows).await;
    let one = |id: &str, status: &str| {
        servers.wanted.lock().insert(id.to_owned(), 7);
        servers.there.lock().push(Allocation {
            desired_status: "run".into(),
            client_status: status.into(),
            alloc_modify_index: 7,
            ..user(id)
        });
    };
    one("a2", "pending");
    one("a3", "complete");
    offers(false);
    assert!(users.here(of.0, of.1).is_empty());
    servers.methods.lock().clear();
    assert_eq!(users.anew(of.0, of.1).await, Ok(vec!["a2".to_owned()]));
    // Servers are called once they know that nothing more may be placed.
    let methods = [NodeRegister::NAME, NodeGetClientAllocs::NAME];
    assert_eq!(*servers.methods.lock(), methods);
    let node = servers.node.lock().clone();
    assert!(node.unwrap().host_volumes.is_empty(), "it is withdrawn");
}

fn settings(dir: &std::path::Path) -> ClientSettings {
    ClientSettings {
        alloc_dir: dir.join("new/alloc"),
        state_dir: dir.join("client"),
        dev: true,
        ..ClientSettings::default()
    }
}

#[tokio::test]
async fn a_client_does_not_start_with_an_interface_that_is_not_there() {
    let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
    let mut settings = settings(tmp.path());
    settings.client.network_interface = "no-such-0".to_owned();
    let alloc_dir = settings.alloc_dir.clone();
    let refused = open(settings, |_| servers.caller()).err().unwrap();
    let refused = refused.to_string();
    let begin = "client: client.network_interface: there is no interface \"no-such-0\", there are ";
    assert!(refused.starts_with(begin), "{refused}");
    assert!(!alloc_dir.exists(), "nothing was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directory_of_allocations_is_there_before_the_first_of_them() {
    let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
    let settings = settings(tmp.path());
    let alloc_dir = settings.alloc_dir.clone();
    let _client = open(settings, |_| servers.caller()).unwrap();
    let mode = std::fs::metadata(alloc_dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o711, "tasks may pass");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_is_private_where_it_is_new_and_stays_as_it_is_otherwise() {
    let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    for (name, before, after) in [("new", None, 0o700), ("there", Some(0o711), 0o711)] {
        let settings = settings(&tmp.path().join(name));
        let state_dir = settings.state_dir.clone();
        if let Some(before) = before {
            std::fs::create_dir_all(&state_dir).unwrap();
            let before = std::fs::Permissions::from_mode(before);
            std::fs::set_permissions(&state_dir, before).unwrap();
        }
        let _client = open(settings, |_| servers.caller()).unwrap();
        assert_eq!(mode(&state_dir), after, "{name}");
        assert_eq!(mode(&state_dir.join("tasks")), 0o700, "{name}");
    }
}
