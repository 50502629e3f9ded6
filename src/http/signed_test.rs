//! Workloads that call servers over mutual TLS, by what was signed of them.

use std::sync::Arc;
use std::time::Duration;

use drover_testkit::LONG;
use hyper::Method;
use serde_json::{Value, json};

use super::forward_test::{SECRET, World};
use super::reads_test::web_placed;
use super::workload_test::{ends, signed, workload};
use crate::base::clock::unix_nanos;
use crate::endpoints;
use crate::endpoints::testing::encoded;
use crate::error::{Code, Refusal};
use crate::net::tls::Role;
use crate::net::{PerSecond, Rates};
use crate::rpc::Rpc as _;
use crate::rpc::RpcError;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::methods::{AclWhoAmI, AuthenticatedIdentity, Empty};
use crate::rpc::server::{CallerLimits, serve};
use crate::rpc::service::{Call, Dispatch as _};

/// A server whose node has an allocation of job web; the allocation.
async fn running() -> (World, String) {
    let world = World::start().await;
    web_placed(&world.server).await;
    let stubs = world.server.get("/v1/job/web/allocations").await.json();
    let alloc = stubs[0]["ID"].as_str().unwrap().to_owned();
    (world, alloc)
}

fn token(world: &World, alloc: &str) -> String {
    signed(&world.server, &workload(alloc).claims(unix_nanos()))
}

async fn who(caller: &Caller) -> Result<AuthenticatedIdentity, Refusal> {
    match caller.once::<AclWhoAmI>(&Empty {}, LONG).await {
        Ok(answer) => Ok(answer.identity),
        Err(RpcError::Api(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_18_auth_06_what_was_signed_of_a_workload_is_it_while_it_lives_whoever_forwards_it() {
    let (world, alloc) = running().await;
    let two = world.caller("two", Role::Server, ("", ""));
    let client = world.caller("client", Role::Client, (&world.node, SECRET));
    let target = "/v1/var/nomad/jobs/web";
    let items = json!({"Items": {"k": "v"}});
    let put = world.ask(&two, &world.root, Method::PUT, target, items);
    let put = put.await;
    assert_eq!(put.0, 200, "{}", put.1);
    let live = token(&world, &alloc);
    let missing = token(&world, &uuid::Uuid::new_v4().to_string());
    let tasks = world.caller("task", Role::Client, ("", &live));
    let read = async |by: &Caller, token: &str| {
        world.ask(by, token, Method::GET, target, Value::Null).await
    };
    let denied = (403, "Permission denied".to_owned());
    for by in [&two, &client] {
        assert_eq!(read(by, &live).await.0, 200);
        assert_eq!(read(by, &missing).await, denied);
    }
    let reported = who(&tasks).await.unwrap();
    let claims = reported.claims.expect("it is told what was signed of it");
    let claimed = [
        &claims.namespace,
        &claims.job_id,
        &claims.allocation_id,
        &claims.task_name,
    ];
    assert_eq!(claimed, ["default", "web", &alloc, "t"]);
    assert!(reported.acl_token.is_none() && reported.client_id.is_empty());
    assert_eq!(
        (&*reported.tls_name, &*reported.remote_ip),
        ("task", "127.0.0.1")
    );
    let nobody = world.caller("nobody", Role::Client, ("", &missing));
    let refused = who(&nobody).await.unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied);
    ends(&world.server, &world.node, &alloc).await;
    for by in [&two, &client] {
        assert_eq!(read(by, &live).await, denied, "it has ended");
    }
    let refused = who(&tasks).await.unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied);
    world.stop().await;
}

/// A task's calls are counted as its allocation's, and so many are taken a second, whatever others
/// at its address request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_07_auth_09_the_calls_of_a_workload_have_its_name_and_its_own_share() {
    let (world, alloc) = running().await;
    let live = token(&world, &alloc);
    let tasks = world.caller("task", Role::Client, ("", &live));
    who(&tasks).await.unwrap();
    let label = format!("alloc:{alloc}");
    let series = format!("nomad_nomad_rpc_acl_read{{identity=\"{label}\"}} 1");
    let text = world.server.server.prometheus();
    assert!(text.contains(&series), "{text}");
    assert!(!text.contains(live.rsplit('.').next().unwrap()));
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let calls = Rates::new(PerSecond {
        identity: 1,
        burst: Duration::from_secs(1),
        ..PerSecond::default()
    });
    let limited = endpoints::Limited {
        calls,
        ..endpoints::Limited::none()
    };
    let served = endpoints::service_within(Arc::clone(&world.server.server.0), beat, limited);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(listener, Arc::new(served), CallerLimits::default()).unwrap();
    let by = |token: &str| {
        let servers = Servers::new(vec![rpc.addr().to_string()]);
        Caller::network(Pool::new(1), servers, token)
    };
    let is_too_much = |reported: Result<AuthenticatedIdentity, Refusal>| {
        reported.is_err_and(|error| error.code == Code::TooManyRequests)
    };
    let used_up = async |caller: &Caller| {
        for _ in 0..2_000 {
            if is_too_much(who(caller).await) {
                return;
            }
        }
        panic!("it is never too much");
    };
    let (forged, known) = (by("a.b.c"), by(&live));
    used_up(&forged).await;
    let reported = who(&known).await;
    assert!(
        reported.is_ok(),
        "what strangers use up is none of its share: {reported:?}"
    );
    used_up(&known).await;
    world.stop().await;
}

/// The rates look up who calls, and the method does again: the signature is verified once, and what
/// the caller may do is looked up each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_06_auth_09_a_signature_is_looked_at_once_in_a_call_and_rights_each_time() {
    let (world, alloc) = running().await;
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let calls = Rates::new(PerSecond {
        identity: 1_000,
        burst: Duration::from_secs(1),
        ..PerSecond::default()
    });
    let limited = endpoints::Limited {
        calls,
        ..endpoints::Limited::none()
    };
    let served = endpoints::service_within(Arc::clone(&world.server.server.0), beat, limited);
    let call = Call {
        token: token(&world, &alloc),
        ..Call::default()
    };
    let who = || served.dispatch(AclWhoAmI::NAME, call.clone(), encoded(&json!({})));
    who().await.unwrap();
    assert_eq!(call.verified.signatures(), 1);
    ends(&world.server, &world.node, &alloc).await;
    let refused = who().await.unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied);
    assert_eq!(call.verified.signatures(), 1);
    world.stop().await;
}
