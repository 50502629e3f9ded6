//! Volumes and plugins by calls, beside the same by requests.

use std::sync::Arc;
use std::time::Duration;

use drover_events::gojson::{self, List, Map};
use drover_events::model::{AclToken, CsiSnapshot, CsiVolume};
use drover_testkit::LONG;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Forwarded;
use super::harness::{Harness, counted};
use super::provision_test::{PluginRequests, volume, world};
use crate::acl::Acl;
use crate::endpoints;
use crate::error::{Code, Refusal};
use crate::gate::Gate;
use crate::identity::Identity;
use crate::net::Visitors;
use crate::rpc::caller::Caller;
use crate::rpc::csi::Secrets;
use crate::rpc::service::Dispatch;
use crate::rpc::volumes::*;
use crate::rpc::{Rpc, RpcError};

/// The methods of a server, which calls these routes.
struct Methods(Arc<dyn Dispatch>);

impl Methods {
    fn of(h: &Harness) -> Self {
        let forwarded = Forwarded::new(
            h.router(),
            Visitors::new(None, 100),
            CancellationToken::new(),
        );
        let _ = h.server.web.set(Arc::new(forwarded));
        let beat = Box::new(|_: &str| Duration::from_secs(60));
        Self(Arc::new(endpoints::service(Arc::clone(&h.server.0), beat)))
    }

    async fn by<R: Rpc>(&self, token: &str, requested: R::Req) -> Result<R::Res, Refusal> {
        let caller = Caller::process(Arc::clone(&self.0), token);
        match caller.once::<R>(&requested, LONG).await {
            Ok(answer) => Ok(answer),
            Err(RpcError::Api(error)) => Err(error),
            Err(error) => panic!("{}: {error}", R::NAME),
        }
    }
}

fn volumes(name: &str) -> List<CsiVolume> {
    gojson::from_slice(volume(name)["Volumes"].to_string().as_bytes()).unwrap()
}

fn named(id: &str) -> NamedRequest {
    NamedRequest {
        id: id.to_owned(),
        ..NamedRequest::default()
    }
}

fn ids(id: &str) -> VolumeIdsRequest {
    VolumeIdsRequest {
        volume_ids: vec![id.to_owned()],
        ..VolumeIdsRequest::default()
    }
}

fn snapshots(id: &str) -> SnapshotsRequest {
    let snapshot = CsiSnapshot {
        id: id.to_owned(),
        plugin_id: "p".into(),
        source_volume_id: "new".into(),
        name: "s".into(),
        secrets: Map::from([("own", "canary,2".to_owned())]),
        ..CsiSnapshot::default()
    };
    SnapshotsRequest {
        snapshots: vec![snapshot].into(),
        ..SnapshotsRequest::default()
    }
}

/// A volume that is made, shown and deleted.
async fn made_and_deleted(methods: &Methods, h: &Harness, requested: &PluginRequests) {
    let request = VolumesRequest {
        volumes: volumes("new"),
        ..VolumesRequest::default()
    };
    let made = methods.by::<VolumeCreate>("", request).await.unwrap();
    assert_eq!(made.volumes[0].external_id, "ext-new");
    assert!(made.volumes[0].secrets.is_empty() && made.index > 0);
    let listed = methods.by::<VolumeList>("", VolumeListRequest::default());
    let listed = listed.await.unwrap();
    let shown = h.get("/v1/volumes?type=csi").await;
    assert_eq!(json!(listed.volumes), shown.json());
    assert_eq!(listed.index, shown.index());
    let got = methods.by::<VolumeGet>("", named("new")).await.unwrap();
    let mut shown = h.get("/v1/volume/csi/new").await.json();
    let beside = shown.as_object_mut().unwrap().remove("Allocations");
    assert_eq!(json!(got.volume.unwrap()), shown);
    assert_eq!(Some(json!(got.allocations)), beside);
    assert_eq!(got.index, made.index);
    let none = methods.by::<VolumeGet>("", named("none")).await.unwrap();
    assert_eq!((none.volume, none.index), (None, listed.index));
    let refused = methods.by::<SnapshotDelete>("", snapshots("snap-s")).await;
    let text = "Secrets: \"own\" cannot be given: it has a comma, or = in its name";
    assert_eq!(refused.unwrap_err(), Refusal::bad_request(text));
    let made = methods.by::<SnapshotCreate>("", snapshots("")).await;
    let made = made.unwrap();
    assert_eq!(made.snapshots[0].id, "snap-s");
    let mut gone = snapshots("snap-s");
    gone.snapshots[0].secrets = Map::from([("own", "canary-3".to_owned())]);
    methods.by::<SnapshotDelete>("", gone).await.unwrap();
    let mut secret = ids("new");
    secret.secrets = Secrets([("key".to_owned(), "canary-4".to_owned())].into());
    let deleted = methods.by::<VolumeDelete>("", secret).await.unwrap();
    assert!(deleted.index > got.index);
    let reported = requested.0.lock().join("\n");
    for canary in ["canary", "canary-3", "canary-4"] {
        assert!(reported.contains(&format!("\"{canary}\"")), "{reported}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_mod_30_csi_46_calls_about_volumes_do_what_requests_do() {
    let (h, requested) = world().await;
    let methods = Methods::of(&h);
    made_and_deleted(&methods, &h, &requested).await;
    let external = ExternalRequest {
        plugin_id: "p".into(),
        per_page: 3,
        next_token: "x".into(),
        ..ExternalRequest::default()
    };
    let listed = methods.by::<VolumeListExternal>("", external.clone());
    assert_eq!(listed.await.unwrap().next_token, "after-x-3");
    let refused = methods.by::<SnapshotList>("", external).await.unwrap_err();
    let text = "plugin \"p\" does not list snapshots";
    assert_eq!(refused, Refusal::by_rule(text));
    let mut known = volumes("known");
    known[0].external_id = "ext-known".into();
    let request = VolumesRequest {
        volumes: known,
        ..VolumesRequest::default()
    };
    let registered = methods.by::<VolumeRegister>("", request).await.unwrap();
    assert_eq!(registered.volumes[0].id, "known");
    let gone = methods.by::<VolumeDeregister>("", ids("known")).await;
    assert!(gone.unwrap().index > registered.index);
    let again = methods.by::<VolumeDeregister>("", ids("known")).await;
    assert_eq!(again.unwrap_err().code, Code::Refused);
    let plugins = methods.by::<PluginList>("", PluginListRequest::default());
    let plugins = plugins.await.unwrap();
    assert_eq!(
        json!(plugins.plugins),
        h.get("/v1/plugins?type=csi").await.json()
    );
    let got = methods.by::<PluginGet>("", named("p")).await.unwrap();
    let shown = h.get("/v1/plugin/csi/p").await;
    assert_eq!(json!(got.plugin.unwrap()), shown.json());
    assert_eq!(got.index, shown.index());
    let in_use = methods.by::<PluginDelete>("", named("p")).await;
    assert_eq!(in_use.unwrap_err(), Refusal::by_rule("plugin in use"));
    let none = methods.by::<PluginDelete>("", named("q")).await;
    let text = "plugin \"q\" not found";
    assert_eq!(none.unwrap_err(), Refusal::by_rule(text));
    let region = PluginListRequest {
        region: "elsewhere".into(),
        ..PluginListRequest::default()
    };
    let refused = methods.by::<PluginList>("", region).await.unwrap_err();
    assert_eq!(refused.message, "No path to region");
    h.stop().await;
}

/// Both ways end at one route, and each counts for itself: a request as one of the token that it
/// carries, a call where calls are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_08_a_call_that_a_request_stands_behind_is_counted_once() {
    const WHO: &str = "0a0b0c0d-2222-4333-8444-555555555555";
    let h = Harness::asking(Gate::fixed(|token, addr| {
        let token = AclToken {
            accessor_id: token.unwrap_or_default().to_owned(),
            ..AclToken::default()
        };
        Identity::bearer(Arc::new(token), addr, Arc::new(Acl::management()))
    }))
    .await;
    let methods = Methods::of(&h);
    let requests = async || -> u64 {
        let counts = counted(&h, "nomad_nomad_rpc_csi_volume_list").await;
        let own = counts.iter().filter(|(series, _)| series.contains(WHO));
        own.map(|(_, count)| count).sum()
    };
    let list_request = VolumeListRequest::default;
    methods.by::<VolumeList>(WHO, list_request()).await.unwrap();
    assert_eq!(requests().await, 0, "the call is what counts");
    assert_eq!(h.seen(WHO, "/v1/volumes?type=csi").await.status, 200);
    assert_eq!(requests().await, 1);
    h.stop().await;
}
