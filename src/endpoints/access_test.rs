//! What each method requires of its caller is checked of all that may call.

use std::time::Duration;

use drover_events::model::Node as ModelNode;
use parking_lot::Mutex;

use super::acl_test::{NODE, OTHER, ROOT, World};
use super::*;
use crate::client::clock::Clock;
use crate::client::config::ClientSettings;
use crate::client::journal::{Journal, LogJournal};
use crate::client::volumes::{csi, host};
use crate::config::Shared;
use crate::endpoints::testing::listed;
use crate::error::{Code, Refusal};
use crate::rpc::Rpc as _;
use crate::rpc::caller::Caller;
use crate::rpc::duplex::Duplex;
use crate::rpc::service::{Access, Dispatch as _};

/// The methods that are open to all (AUTH-12), and that of new nodes, which no server knows yet.
const OPEN: [&str; 6] = [
    "ACL.GetClaimPolicies",
    "ACL.ResolveToken",
    "ACL.WhoAmI",
    "Node.Register",
    "Status.Leader",
    "Status.Ping",
];

/// Calls a method, whichever kind it is, whatever it answers.
async fn call_method(
    served: &crate::rpc::service::Service<ClientEndpoints>,
    name: &str,
    (node, token): (&str, &str),
    about: &serde_json::Value,
) -> Result<(), Refusal> {
    let call = Call {
        node: node.into(),
        token: token.into(),
        ..Call::default()
    };
    let found = call.found.clone();
    let answer = match served.streams(name) {
        None => {
            let body = crate::endpoints::testing::encoded(about);
            served.dispatch(name, call, body).await.map(drop)
        }
        Some(keepalive) => {
            let (mut near, far) = Duplex::pair(keepalive);
            near.outflow.message(about).unwrap();
            served.open(name, call, far).await
        }
    };
    assert!(found.get().is_some(), "{name}: nobody asked who calls");
    answer
}

/// Every method but those that are open to all, called about a node by an anonymous caller, by a
/// token that may do everything, by another node with its own name and with this one's, by a forged
/// secret; and by the node itself, which is let in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_18_auth_01_auth_12_csi_20_no_method_answers_who_is_not_who_it_asks_for() {
    const OWN: [&str; 2] = [AllocGetAllocs::NAME, ServiceDelete::NAME];
    const FORGED: &str = "44444444-2222-4333-8444-555555555555";
    let world = World::start(true).await;
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let served = service(Arc::clone(&world.server.0), beat);
    let (id, other) = (world.node.as_str(), world.other.as_str());
    let about = serde_json::json!({
        "NodeID": id, "Alloc": [{"ID": id, "NodeID": id}], "NodeEvents": {(id): []},
        "DrainSpec": {}, "Services": [{"ID": "s", "NodeID": id}], "AllocIDs": [id],
        "ID": "s", "Namespace": "default", "Names": ["mine"], "ACLRoleIDs": [world.role],
        "Volumes": [{"ID": "v"}], "VolumeIDs": ["v"], "Snapshots": [{"ID": "s"}],
        "PluginID": "p",
    });
    let (mut open, mut tried) = (Vec::new(), 0);
    for (name, access) in served.methods() {
        if matches!(access, Public | NewNode) {
            open.push(name);
            // Whatever is answered: who calls is found out.
            let _ = call_method(&served, name, ("", ROOT), &about).await;
            continue;
        }
        for who in [
            ("", ""),
            (id, ""),
            (id, ROOT),
            (id, FORGED),
            (id, OTHER),
            ("", OTHER),
            (other, OTHER),
            (other, NODE),
            (FORGED, NODE),
        ] {
            let (node, token) = who;
            // A token is proof where it is required; any node's secret is, of that node, where what
            // is requested is about none.
            let proves = match access {
                NodeOrToken => token == ROOT || who == (other, OTHER),
                Agent => who == (other, OTHER),
                Token(_) | Management => token == ROOT,
                // Of several things each node gets, or may remove, what is its own.
                _ => who == (other, OTHER) && OWN.contains(&name),
            };
            if proves {
                continue;
            }
            let answer = call_method(&served, name, who, &about).await;
            let denied = matches!(&answer, Err(error) if error.code == Code::PermissionDenied);
            assert!(denied, "{name} by {node:?} {token:?}: {answer:?}");
            tried += 1;
        }
        // It says whose claim it gives back in another place, and is checked for that node.
        if name == CsiVolumeUnpublish::NAME {
            continue;
        }
        let answer = call_method(&served, name, (id, NODE), &about).await;
        let denied = matches!(&answer, Err(error) if error.code == Code::PermissionDenied);
        let of_others =
            matches!(access, Token(_) | Management) || access.to_string() == super::SERVER;
        assert_eq!(denied, of_others, "{name} by the node itself: {answer:?}");
    }
    assert_eq!(open, OPEN);
    assert!(tried > 150, "{tried}");
    world.server.shutdown().await;
}

fn rows(methods: impl Iterator<Item = (&'static str, Access)>) -> String {
    methods
        .map(|(name, access)| format!("| `{name}` | {access} |\n"))
        .collect()
}

/// What servers answer to other agents, and clients to servers in sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_12_the_page_of_methods_is_what_is_registered_at_servers_and_clients() {
    let world = World::start(true).await;
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let served = service(Arc::clone(&world.server.0), beat);
    listed("| Method | Access |", &rows(served.methods()));
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = LogJournal::open(&folder.path().join("journal")).unwrap();
    let journal: Arc<dyn Journal> = Arc::new(journal);
    let node = Arc::new(Mutex::new(Arc::new(ModelNode::default())));
    let settings = Shared::new(ClientSettings {
        host_volumes_dir: folder.path().to_owned(),
        host_volume_plugin_dir: folder.path().to_owned(),
        ..ClientSettings::default()
    });
    let volumes = host::HostVolumes::restore(&settings, &node, &journal);
    let more = (Caller::process(Arc::new(served), ""), Clock::System);
    let csi = csi::Csi::restore(folder.path(), &node, &journal, more);
    let (volumes, csi) = (host::answer::service(&volumes), csi::answer::service(&csi));
    let all: Vec<_> = csi.methods().chain(volumes.methods()).collect();
    for (name, access) in &all {
        assert_eq!(*access, Access::Server, "{name}: clients know nobody else");
    }
    let all = rows(all.into_iter());
    listed("| Method of a client | Access |", &all);
    world.server.shutdown().await;
}
