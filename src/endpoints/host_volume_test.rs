//! Host volumes for callers with a token: what they may do, and what they learn.

use drover_events::model::{HostVolume, HostVolumeCapability};
use drover_testkit::fixtures;
use futures_util::FutureExt as _;

use super::acl_test::{CI, NODE, ROOT, World};
use super::*;
use crate::commands::node::{RegisterNode, UpdateNodeStatus};
use crate::endpoints::testing::encoded;
use crate::error::Code;
use crate::net::PerSecond;
use crate::proposer::Origin;
use crate::rpc::Rpc as _;
use crate::rpc::csi::Done;
use crate::rpc::host_volume::*;
use crate::rpc::methods::WriteResponse;
use crate::rpc::service::{Access, Dispatch as _};

/// The client of a node that does what is requested.
fn handlers() -> Service<()> {
    Service::new(Arc::new(()))
        .method::<ClientHostVolumeCreate, _, _>(
            Access::Server,
            async |_, _: Call, requested: ClientHostVolumeCreateRequest| {
                Ok(ClientHostVolumeCreateResponse {
                    host_path: format!("/volumes/{}", requested.id),
                    volume_name: requested.name,
                    volume_id: requested.id,
                    capacity_bytes: 5,
                })
            },
        )
        .method::<ClientHostVolumeRegister, _, _>(
            Access::Server,
            async |_, _: Call, _: ClientHostVolumeRegisterRequest| Ok(Done {}),
        )
        .method::<ClientHostVolumeDelete, _, _>(
            Access::Server,
            async |_, _: Call, _: ClientHostVolumeDeleteRequest| {
                Ok(ClientHostVolumeDeleteResponse::default())
            },
        )
}

async fn world() -> World {
    let world = World::start(true).await;
    let mut node = fixtures::node(1);
    node.secret_id = secret_hash(NODE);
    let version = "plugins.host_volume.mkdir.version";
    node.attributes.insert(version, "0.0.1".to_owned());
    let command = RegisterNode {
        node,
        create_node_pool: true,
    };
    let submit = world.server.submit(command, Origin::default());
    submit.await.unwrap();
    let ready = UpdateNodeStatus {
        node_id: world.node.clone(),
        status: "ready".into(),
        event: None,
    };
    let submit = world.server.submit(ready, Origin::default());
    submit.await.unwrap();
    let answers = Box::new(|_| std::future::ready(()).boxed());
    let handlers = Arc::new(handlers());
    world
        .server
        .sessions
        .own(&world.node, Some(handlers), answers);
    world
}

fn volume(name: &str) -> HostVolume {
    HostVolume {
        name: name.into(),
        plugin_id: "mkdir".into(),
        requested_capabilities: vec![HostVolumeCapability {
            access_mode: "single-node-writer".into(),
            attachment_mode: "file-system".into(),
        }]
        .into(),
        ..HostVolume::default()
    }
}

fn created(name: &str) -> HostVolumeCreateRequest {
    HostVolumeCreateRequest {
        volume: Some(volume(name)),
        ..HostVolumeCreateRequest::default()
    }
}

fn listed(prefix: &str) -> HostVolumeListRequest {
    HostVolumeListRequest {
        prefix: prefix.into(),
        ..HostVolumeListRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_makes_shows_and_deletes_what_it_may() {
    let world = world().await;
    let root = ("", ROOT);
    let made = world.call::<HostVolumeCreate>(root, created("data")).await;
    let made = made.unwrap();
    let shown = made.volume.unwrap();
    assert_eq!(
        (shown.namespace.as_str(), shown.capacity_bytes),
        ("default", 5)
    );
    assert_eq!(shown.host_path, format!("/volumes/{}", shown.id));
    assert!(made.index > 0);
    let there = HostVolumeRegisterRequest {
        volume: Some(HostVolume {
            node_id: world.node.clone(),
            host_path: "/srv".into(),
            ..volume("there")
        }),
        policy_override: true,
        ..HostVolumeRegisterRequest::default()
    };
    let registered = world.call::<HostVolumeRegister>(root, there).await.unwrap();
    let warnings = [made.warnings, registered.warnings];
    let ignored = "\"field PolicyOverride\" means nothing here and was ignored";
    assert_eq!(warnings, ["", ignored]);
    assert_eq!(registered.volume.unwrap().host_path, "/srv");
    let all = world
        .call::<HostVolumeList>(root, listed(""))
        .await
        .unwrap();
    assert_eq!(all.volumes.len(), 2);
    let one = world.call::<HostVolumeList>(root, listed(&shown.id)).await;
    assert_eq!(one.unwrap().volumes[0].name, "data");
    let get_request = |min_query_index| HostVolumeGetRequest {
        id: shown.id.clone(),
        min_query_index,
        ..HostVolumeGetRequest::default()
    };
    let known = world
        .call::<HostVolumeGet>(root, get_request(0))
        .await
        .unwrap();
    assert_eq!(known.volume.unwrap().id, shown.id);
    // Who waits hears of the change.
    let deletes = HostVolumeDeleteRequest {
        volume_id: shown.id.clone(),
        ..HostVolumeDeleteRequest::default()
    };
    let (waited, deleted) = tokio::join!(
        world.call::<HostVolumeGet>(root, get_request(known.index)),
        world.call::<HostVolumeDelete>(root, deletes),
    );
    assert!(deleted.unwrap().index > known.index);
    assert_eq!(waited.unwrap().volume, None);
    let none = HostVolumeCreateRequest::default();
    let refused = world
        .call::<HostVolumeCreate>(root, none)
        .await
        .unwrap_err();
    assert_eq!(refused.message, "missing volume definition");
    let claims = TaskGroupVolumeClaimListRequest::default();
    let claims = world.call::<TaskGroupVolumeClaimList>(root, claims).await;
    assert_eq!(claims.unwrap().claims, []);
    let gone = TaskGroupVolumeClaimDeleteRequest {
        claim_id: shown.id.clone(),
    };
    let refused = world.call::<TaskGroupVolumeClaimDelete>(root, gone);
    assert_eq!(refused.await.unwrap_err().message, "claim not found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_answered_by_the_rights_of_then() {
    use crate::commands::acl::DeleteAclTokens;
    use drover_projections::{query, tables::acl_tokens};
    let world = world().await;
    let made = world.call::<HostVolumeCreate>(("", ROOT), created("data"));
    let made = made.await.unwrap();
    let waits = HostVolumeListRequest {
        min_query_index: made.index,
        ..listed("")
    };
    let before = world.server.projections.watch().waiting();
    let waits = world.call::<HostVolumeList>(("", ROOT), waits);
    let goes = async {
        let waits =
            drover_testkit::eventually_async("it waits", drover_testkit::LONG, async || {
                let waiting = world.server.projections.watch().waiting();
                (waiting > before).then_some(()).ok_or("not yet")
            })
            .await;
        waits.expect("it waits");
        let view = world.server.projections.view();
        let token = query::acl::acl_token_by_hash(&view, &acl_tokens::secret_hash(ROOT));
        let gone = DeleteAclTokens {
            accessor_ids: vec![token.unwrap().unwrap().accessor_id.clone()],
            expired_by: 0,
        };
        drop(view);
        world.server.submit(gone, Origin::default()).await.unwrap();
        let changed = crate::commands::host_volume::RegisterHostVolume {
            volume: made.volume.clone().unwrap(),
        };
        world
            .server
            .submit(changed, Origin::default())
            .await
            .unwrap();
    };
    let (waited, ()) = tokio::join!(waits, goes);
    let refused = waited.unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_the_right_is_refused_whatever_it_requests() {
    let world = world().await;
    let id = fixtures::node(9).id;
    // Neither a token without the right, nor a node, nor an anonymous caller.
    let node = (world.node.as_str(), NODE);
    for who in [("", CI), ("", ""), node, ("", "no-token")] {
        let mut answers = Vec::new();
        macro_rules! asks {
            ($($method:ident($request:expr),)*) => {$(
                answers.push(world.call::<$method>(who, $request).await.map(drop));
            )*};
        }
        asks! {
            HostVolumeCreate(created("x")),
            HostVolumeRegister(HostVolumeRegisterRequest {
                volume: Some(volume("x")),
                ..HostVolumeRegisterRequest::default()
            }),
            HostVolumeDelete(HostVolumeDeleteRequest {
                volume_id: id.clone(),
                ..HostVolumeDeleteRequest::default()
            }),
            HostVolumeGet(HostVolumeGetRequest {
                id: id.clone(),
                ..HostVolumeGetRequest::default()
            }),
            HostVolumeList(listed("")),
            TaskGroupVolumeClaimList(TaskGroupVolumeClaimListRequest::default()),
            TaskGroupVolumeClaimDelete(TaskGroupVolumeClaimDeleteRequest {
                claim_id: id.clone(),
            }),
        }
        for answer in answers {
            let code = answer.expect_err("it is refused").code;
            assert_eq!(code, Code::PermissionDenied, "{who:?}");
        }
    }
}

/// Calls too take of a namespace's share of requests, and only a caller that may do something there
/// learns of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_09_a_call_about_host_volumes_takes_of_its_namespaces_share() {
    let world = world().await;
    let requests = Rates::new(PerSecond {
        namespace: 1,
        burst: Duration::from_secs(1),
        ..PerSecond::default()
    });
    let limited = Limited {
        requests,
        ..Limited::none()
    };
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let served = service_within(Arc::clone(&world.server.0), beat, limited);
    let id = fixtures::node(9).id;
    let by = |token: &str| Call {
        token: token.into(),
        ..Call::default()
    };
    let call = async |method: &'static str, token: &str, namespace: &str| {
        let request = serde_json::json!({
            "Namespace": namespace, "ID": id, "VolumeID": id, "Volume": null,
        });
        let answer = served.dispatch(method, by(token), encoded(&request));
        answer.await.err().map(|error| error.code)
    };
    let methods = [
        HostVolumeCreate::NAME,
        HostVolumeRegister::NAME,
        HostVolumeDelete::NAME,
        HostVolumeGet::NAME,
        HostVolumeList::NAME,
        TaskGroupVolumeClaimList::NAME,
    ];
    for method in methods {
        let mut last = None;
        for _ in 0..2_000 {
            last = call(method, ROOT, "default").await;
            if last == Some(Code::TooManyRequests) {
                break;
            }
        }
        assert_eq!(
            last,
            Some(Code::TooManyRequests),
            "{method} is never too much"
        );
        let stranger = call(method, CI, "default").await;
        assert_eq!(stranger, Some(Code::PermissionDenied), "{method}");
        let elsewhere = call(method, ROOT, method).await;
        assert_ne!(elsewhere, Some(Code::TooManyRequests), "{method} elsewhere");
    }
    world.server.shutdown().await;
}

#[test]
fn messages_have_nomads_names() {
    let bytes = rmp_serde::to_vec_named(&HostVolumeDeleteRequest {
        volume_id: "v".into(),
        force: true,
        namespace: "default".into(),
    });
    let text = b"\x83\xa8VolumeID\xa1v\xa5Force\xc3\xa9Namespace\xa7default";
    assert_eq!(bytes.unwrap(), text);
    let bytes = rmp_serde::to_vec_named(&ClientHostVolumeCreateResponse {
        volume_name: "data".into(),
        volume_id: "v".into(),
        host_path: "/p".into(),
        capacity_bytes: 5,
    });
    let text =
        b"\x84\xaaVolumeName\xa4data\xa8VolumeID\xa1v\xa8HostPath\xa2/p\xadCapacityBytes\x05";
    assert_eq!(bytes.unwrap(), text);
    let bytes = rmp_serde::to_vec_named(&WriteResponse { index: 7 });
    assert_eq!(bytes.unwrap(), b"\x81\xa5Index\x07");
}
