//! A server that follows another one, and a client that is dialled by one of several. Everything is
//! in one process, with real ports and mutual TLS between the ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use drover_events::Actor;
use drover_testkit::{LONG, eventually, eventually_async, so};
use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::forward_test::{FIRST, SECRET, World, known, opened};
use super::harness::{Harness, counted};
use super::request::Remote;
use super::{Api, Leading, Settings, follow, router};
use crate::client::control::{Answers, DialSettings, stand};
use crate::error::Code;
use crate::net::tls::Role;
use crate::net::{PerSecond, Rates};
use crate::rpc::RpcError;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::client_calls::{self, Unanswered};
use crate::rpc::csi::{NodeExpandVolume, NodeExpandVolumeRequest, NodeExpandVolumeResponse};
use crate::rpc::duplex::Duplex;
use crate::rpc::forward::{ForwardRequest, ServerForward};
use crate::rpc::leader_locator::{LeaderLocation, LeaderLocator};
use crate::rpc::server::{CallerLimits, serve};
use crate::rpc::service::{Access, Call, Service};
use crate::rpc::sessions::{ControlRequest, NodeDial};

/// The routes of a server that follows, and calls the one that leads so.
fn following(world: &World, follower: &Harness, caller: Caller) -> Router {
    let api = follower.guarded(Settings::default());
    let leads = LeaderLocation::There(world.rpc.addr().to_string());
    led(api, caller, &watch::Sender::new(leads))
}

/// The routes of a server that calls the leader by this.
fn led(api: Api, caller: Caller, leader: &watch::Sender<LeaderLocation>) -> Router {
    let leading = Leading {
        caller,
        leader: LeaderLocator::watched(leader.subscribe(), LeaderLocation::clone),
        settings: api.settings.clone(),
    };
    follow(router(Arc::new(api), Arc::default()), Arc::new(leading))
}

/// The leader stands still, or none is known, and another leads before anything of the request was
/// sent: the request goes to that one, be it another or this server itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_04_what_was_not_sent_to_a_leader_that_is_gone_goes_to_the_one_after_it() {
    let world = World::start().await;
    let follower = Harness::with_acls().await;
    let still = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = LeaderLocation::There(still.local_addr().unwrap().to_string());
    let leads = LeaderLocation::There(world.rpc.addr().to_string());
    let what = || (Method::PUT, "/v1/namespace/blue", json!({"Name": "blue"}));
    // What the one after answers, and what this server does: here the token is none.
    for (next, status) in [(leads, 200), (LeaderLocation::Here, 403)] {
        for first in [&gone, &LeaderLocation::Unknown] {
            let api = follower.guarded(Settings::default());
            let leader = watch::Sender::new(first.clone());
            let caller = world.caller("two", Role::Server, ("", ""));
            let routes = led(api, caller, &leader);
            let moves = async {
                let held = match first {
                    LeaderLocation::There(_) => Some(still.accept().await.unwrap()),
                    _ => None,
                };
                // It has looked, and waits for what becomes of it.
                let waits = || so(leader.receiver_count() > 2);
                eventually("it to wait", LONG, waits).await.unwrap();
                leader.send_replace(next.clone());
                held
            };
            let (answer, _held) = tokio::join!(ask(&routes, &world.root, what()), moves);
            assert_eq!(answer.0, status, "{first:?}: {}", answer.1);
        }
    }
    follower.stop().await;
    world.stop().await;
}

/// A caller of a server that comes to lead meanwhile is counted there, and no second time because
/// the request might have been handed on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_08_who_is_answered_here_after_all_is_counted_once() {
    let follower = Harness::start().await;
    let settings = Settings {
        rates: Rates::new(PerSecond {
            address: 1,
            burst: Duration::from_secs(1),
            ..PerSecond::default()
        }),
        ..Settings::default()
    };
    let api = Api::of(&follower.server, settings);
    let leader = watch::Sender::new(LeaderLocation::Unknown);
    let caller = Caller::network(Pool::new(1), Servers::default(), "");
    let routes = led(api, caller, &leader);
    let moves = async {
        let waits = || so(leader.receiver_count() > 2);
        eventually("it to wait", LONG, waits).await.unwrap();
        leader.send_replace(LeaderLocation::Here);
    };
    let what = (Method::GET, "/v1/jobs", Value::Null);
    let (answer, ()) = tokio::join!(ask(&routes, "", what), moves);
    assert_eq!(answer.0, 200, "{}", answer.1);
    follower.stop().await;
}

/// Where no leader is known, what needs none is answered all the same, and at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_any_server_answers_waits_for_nobody_who_leads() {
    let follower = Harness::start().await;
    let api = Api::of(&follower.server, Settings::default());
    let leader = watch::Sender::new(LeaderLocation::Unknown);
    let caller = Caller::network(Pool::new(1), Servers::default(), "");
    let routes = led(api, caller, &leader);
    for path in [
        "/",
        "/v1/regions",
        "/.well-known/jwks.json",
        "/v1/jobs?stale",
    ] {
        let waits = || so(leader.receiver_count() > 2);
        tokio::select! {
            answer = ask(&routes, "", (Method::GET, path, Value::Null)) => {
                assert!(answer.0 < 500, "{path}: {} {}", answer.0, answer.1);
            }
            _ = eventually("it to wait", LONG, waits) => panic!("{path} waits"),
        }
    }
    follower.stop().await;
}

/// A leader that took a request may have done what it requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_leader_took_before_it_was_lost_is_sent_to_nobody_else() {
    let follower = Harness::start().await;
    let taken = Arc::new(AtomicUsize::new(0));
    let takes = async |taken: Arc<AtomicUsize>, _: Call, _: ForwardRequest, stream: Duplex| {
        taken.fetch_add(1, Ordering::SeqCst);
        drop(stream);
        Ok(())
    };
    let service = Service::new(Arc::clone(&taken));
    let service = service.stream::<ServerForward, _, _>(Access::Public, takes);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(listener, Arc::new(service), CallerLimits::default()).unwrap();
    let leads = watch::Sender::new(LeaderLocation::There(rpc.addr().to_string()));
    let caller = Caller::network(Pool::new(1), Servers::default(), "");
    let api = Api::of(&follower.server, Settings::default());
    let routes = led(api, caller, &leads);
    let what = (Method::PUT, "/v1/namespace/blue", json!({"Name": "blue"}));
    let answer = ask(&routes, "", what).await;
    assert_eq!(answer.0, 503);
    assert!(answer.1.contains("the server was lost"), "{}", answer.1);
    assert_eq!(taken.load(Ordering::SeqCst), 1);
    follower.stop().await;
}

/// A caller of a server that the leader does not take for one is not answered that it may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_servers_certificate_says_so_and_nothing_of_who_asks() {
    let world = World::start().await;
    let follower = Harness::with_acls().await;
    let bare = world.caller("bare", Role::Client, ("", ""));
    let routes = following(&world, &follower, bare);
    for token in ["", world.root.as_str()] {
        let request = hyper::Request::get("/v1/jobs").header("x-nomad-token", token);
        let request = request.body(Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(routes.clone(), request);
        let answer = answer.await.unwrap();
        assert_eq!(answer.status().as_u16(), 503);
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
        let text = String::from_utf8(body.unwrap().to_vec()).unwrap();
        assert!(text.contains("tls { rpc = true }"), "{text}");
    }
    follower.stop().await;
    world.stop().await;
}

/// Sends a request, as from [`FIRST`]; status and body of the answer.
async fn ask(
    routes: &Router,
    token: &str,
    (method, target, body): (Method, &str, Value),
) -> (u16, String) {
    let mut request = hyper::Request::builder().method(method).uri(target);
    request = request.extension(Remote(FIRST.parse().unwrap()));
    if !token.is_empty() {
        request = request.header("x-nomad-token", token);
    }
    let body = match body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    let request = request.body(body).unwrap();
    let answer = tower::ServiceExt::oneshot(routes.clone(), request).await;
    let answer = answer.unwrap();
    let status = answer.status().as_u16();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
    (status, String::from_utf8_lossy(&body.unwrap()).into_owned())
}

/// Two whole servers: a caller of the one that follows is answered by the one that leads. Neither
/// is the other's member: where it leads stands in the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_04_auth_08_ns_01_a_server_that_follows_hands_on_and_neither_counts_nor_decides() {
    let world = World::start().await;
    let follower = Harness::with_acls().await;
    let routes = following(
        &world,
        &follower,
        world.caller("two", Role::Server, ("", "")),
    );
    let ask = async |token: &str, method: Method, target: &str, body: Value| {
        ask(&routes, token, (method, target, body)).await
    };
    let narrow = json!({"Name": "narrow", "Type": "client", "Policies": ["nothing"]});
    let made = ask(&world.root, Method::PUT, "/v1/acl/token", narrow).await;
    assert_eq!(made.0, 200, "{}", made.1);
    let narrow: Value = serde_json::from_str(&made.1).unwrap();
    let secret = narrow["SecretID"].as_str().unwrap();
    let accessor = narrow["AccessorID"].as_str().unwrap();

    // The namespace is written there, by a manager that called here, and by no other caller.
    let strong = strong(&routes, &world.root).await;
    let namespace = || json!({"Name": "blue"});
    for token in ["", secret, strong.as_str(), SECRET] {
        let refused = ask(token, Method::PUT, "/v1/namespace/blue", namespace()).await;
        assert_eq!(refused, (403, "Permission denied".to_owned()), "{token}");
    }
    let written = ask(&world.root, Method::PUT, "/v1/namespace/blue", namespace()).await;
    assert_eq!(written.0, 200, "{}", written.1);
    assert_eq!(world.server.get("/v1/namespace/blue").await.status, 200);
    assert_eq!(follower.get("/v1/namespace/blue").await.status, 404);
    let reported = world.server.get("/v1/audit?kind=NamespacesUpserted").await;
    let actors: Vec<Actor> = reported
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(actor_of)
        .collect();
    assert!(
        actors.iter().any(|who| who.addr == "203.0.113.9"),
        "{actors:?}"
    );

    // A caller is counted where it is answered, whatever it may do.
    let answer = ask(secret, Method::GET, "/v1/scaling/policies", Value::Null).await;
    assert_eq!(answer.0, 403);
    let counts = counted(&world.server, "nomad_nomad_rpc_scaling_list").await;
    let own = counts
        .iter()
        .filter(|(series, _)| series.contains(accessor));
    let own: u64 = own.map(|(_, count)| count).sum();
    assert_eq!(
        own, 1,
        "once, though both servers have one register: {counts:?}"
    );
    // So is a caller whose token is none, and it is written down there and nowhere else.
    let answer = ask("guess", Method::GET, "/v1/scaling/policies", Value::Null).await;
    assert_eq!(answer.0, 403);
    assert_eq!(
        denied(&world.server).await,
        2,
        "who may not, and who is nobody"
    );
    assert_eq!(denied(&follower).await, 0);

    its_own(&routes, &world.root).await;
    follower.stop().await;
    world.stop().await;
}

/// The secret of a token that may write everywhere and operate, and does not manage.
async fn strong(routes: &Router, root: &str) -> String {
    let rules = r#"namespace "*" { policy = "write" } operator { policy = "write" }"#;
    let policy = json!({"Name": "strong", "Rules": rules});
    let what = (Method::PUT, "/v1/acl/policy/strong", policy);
    let made = ask(routes, root, what).await;
    assert_eq!(made.0, 200, "{}", made.1);
    let token = json!({"Name": "strong", "Type": "client", "Policies": ["strong"]});
    let made = ask(routes, root, (Method::PUT, "/v1/acl/token", token)).await;
    assert_eq!(made.0, 200, "{}", made.1);
    let token: Value = serde_json::from_str(&made.1).unwrap();
    let secret = token["SecretID"].as_str().unwrap().to_owned();
    let jobs = (Method::GET, "/v1/jobs?namespace=*", Value::Null);
    let seen = ask(routes, &secret, jobs).await;
    assert_eq!(seen, (200, "[]".to_owned()), "its rights count");
    secret
}

/// What is about the follower it answers itself, and what may be old: its tokens are others.
async fn its_own(routes: &Router, root: &str) {
    for target in ["/v1/agent/self", "/v1/jobs?stale"] {
        let answer = ask(routes, root, (Method::GET, target, Value::Null)).await;
        assert_eq!(answer.0, 403, "{target}: {}", answer.1);
    }
    let requested = (Method::GET, "/v1/jobs?stale=false", Value::Null);
    let answer = ask(routes, root, requested).await;
    assert_eq!(answer, (200, "[]".to_owned()));
}

/// How many requests for the scaling policies a server wrote down as denied.
async fn denied(server: &Harness) -> usize {
    let reported = server.get("/v1/audit/requests?class=denied").await.json();
    let reported = reported.as_array().unwrap().iter();
    let reported = reported.filter(|one| one["Path"] == "/v1/scaling/policies");
    reported.count()
}

fn actor_of(reported: &Value) -> Actor {
    serde_json::from_value(reported["Actor"].clone()).unwrap()
}

/// A client's servers change while it is dialled: the session belongs to the one that requested it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_30_a_session_is_taken_up_at_the_server_that_asks_for_it() {
    struct Echo;
    impl Answers for Echo {
        fn answer(&self, mut stream: Duplex) -> BoxFuture<'static, ()> {
            Box::pin(async move {
                let requested: String = stream.inflow.message().await.unwrap();
                stream.outflow.message(&requested).unwrap();
                stream.outflow.end();
                // Not let go of before the other end has it all.
                let _ = stream.inflow.next().await;
            })
        }
    }
    let world = World::start().await;
    let node = world.node.clone();
    let caller = world.caller("client", Role::Client, (&node, SECRET));
    let servers = caller.servers().unwrap().clone();
    let named = node.clone();
    let way = DialSettings {
        caller,
        node: Box::new(move || named.clone()),
        answers: Arc::new(Echo),
        turns: Arc::new(tokio::sync::Semaphore::new(8)),
    };
    let standing = tokio::spawn(stand(Arc::new(way)));
    let sessions = Arc::clone(&world.server.server.sessions);
    let reached = eventually_async("the stream to stand", LONG, async || {
        sessions.reaches(&node).then_some(()).ok_or("not yet")
    });
    reached.await.unwrap();
    // The first in its list is now one that is not there.
    let here = world.rpc.addr().to_string();
    let nobody = drover_testkit::free_port().unwrap();
    servers.refresh(&[format!("127.0.0.1:{nobody}"), here.clone()]);
    servers.failed(&here);
    assert_ne!(servers.first().unwrap(), here);
    let mut session = sessions.dial(&node).await.unwrap();
    session.outflow.message(&"who is there").unwrap();
    let message: String = session.inflow.message().await.unwrap();
    assert_eq!(message, "who is there");
    session.outflow.end();
    standing.abort();
    world.stop().await;
}

/// A plugin's client that answers one call.
struct Plugin;

impl Answers for Plugin {
    fn answer(&self, mut stream: Duplex) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let expand = async |_: Arc<()>, _: Call, requested: NodeExpandVolumeRequest| {
                Ok(NodeExpandVolumeResponse {
                    capacity_bytes: requested.required_bytes,
                    places: 1,
                })
            };
            let service = Service::new(Arc::new(()));
            let service = service.method::<NodeExpandVolume, _, _>(Access::Server, expand);
            let head: client_calls::Head = stream.inflow.message().await.unwrap();
            let ways = (stream.inflow, stream.outflow);
            let answered = client_calls::answer(Some(Arc::new(service)), &head.target, ways);
            answered.await.unwrap();
        })
    }
}

/// Three servers: the node holds on to one, another calls it, and the third knows nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plg_07_mod_30_a_node_is_asked_through_whichever_server_it_holds_on_to() {
    let world = World::start().await;
    let (holder, holds) = opened(&world.authority, "holder", &Rates::none()).await;
    let (third, thirds) = opened(&world.authority, "third", &Rates::none()).await;
    let node = known(&holder).await;
    assert_eq!(node, world.node);
    let ask = async |bytes: i64| {
        let request = NodeExpandVolumeRequest {
            required_bytes: bytes,
            ..NodeExpandVolumeRequest::default()
        };
        let sessions = &world.server.server.sessions;
        let answer = client_calls::call::<NodeExpandVolume>(sessions, &node, &request, LONG).await;
        answer.map(|answer| answer.capacity_bytes)
    };
    let no_path = || Unanswered::Unreached("No path to node".to_owned());
    assert_eq!(ask(1).await, Err(no_path()), "it knows no other server");
    let nobody = format!("127.0.0.1:{}", drover_testkit::free_port().unwrap());
    let others = [thirds.addr().to_string(), nobody, holds.addr().to_string()];
    let caller = world.caller("leader", Role::Server, ("", ""));
    let all = others.to_vec();
    let sessions = &world.server.server.sessions;
    sessions.beside(caller, Box::new(move || all.clone()));
    assert_eq!(ask(1).await, Err(no_path()), "no server has it");

    let client: Caller = world.caller("client", Role::Client, (&node, SECRET));
    let (named, way) = (node.clone(), client.at(&others[2]));
    let way = DialSettings {
        caller: way,
        node: Box::new(move || named.clone()),
        answers: Arc::new(Plugin),
        turns: Arc::new(tokio::sync::Semaphore::new(8)),
    };
    let standing = tokio::spawn(stand(Arc::new(way)));
    let reached = eventually_async("the node to be reached", LONG, async || {
        match ask(7).await {
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(error.to_string()),
        }
    });
    assert_eq!(reached.await.unwrap(), 7);
    let held = |server: &Harness| server.server.sessions.reaches(&node);
    // The choice of a node to call leaves out none that may hold on to another server.
    let may = |server: &Harness| client_calls::Reach::reaches(&server.server.sessions, &node);
    let servers = [&world.server, &third, &holder];
    assert_eq!(servers.map(held), [false, false, true]);
    assert_eq!(servers.map(may), [true, false, true]);
    // Only servers may request that: neither a node for itself, nor a manager.
    let dial = ControlRequest {
        node_id: node.clone(),
    };
    for (name, by) in [("node", (&*node, SECRET)), ("manager", ("", &*world.root))] {
        let caller = world.caller(name, Role::Client, by).at(&others[2]);
        let refused = caller.open::<NodeDial>(&dial, LONG).await;
        let Err(RpcError::Api(refused)) = refused else {
            panic!("{name}: {refused:?}");
        };
        assert_eq!(refused.code, Code::PermissionDenied, "{name}");
    }
    standing.abort();
    let gone = eventually_async("the node to be gone", LONG, async || match ask(7).await {
        Err(error) if error == no_path() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    gone.await.unwrap();
    drop((holds, thirds));
    holder.stop().await;
    third.stop().await;
    world.stop().await;
}
