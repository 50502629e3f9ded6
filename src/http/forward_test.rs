//! Requests that one server hands to another over mutual TLS, and what a client's certificate is
//! worth there. Two ends in one process, a real port between them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use drover_events::Actor;
use drover_events::acl::SealedSecret;
use drover_events::gojson::DurationTextOrEmpty;
use drover_events::model::AclToken;
use drover_projections::tables::acl_tokens::secret_hash as token_hash;
use drover_testkit::certs::{Authority, Pair};
use drover_testkit::{LONG, eventually_async};
use hyper::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::forward;
use super::front::Incoming;
use super::harness::{Harness, counted, job};
use super::request::Remote;
use super::{Forwarded, Settings, router};
use crate::commands::acl::{CreateAclToken, TtlBounds};
use crate::commands::node::RegisterNode;
use crate::endpoints;
use crate::error::Code;
use crate::net::tls::{Loader, Role, TlsSettings as Tls};
use crate::net::{PerSecond, Rates, Visitors};
use crate::rpc::RpcError;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::{Dialing, Pool};
use crate::rpc::duplex::Duplex;
use crate::rpc::forward::{ForwardRequest, ServerForward};
use crate::rpc::methods::{AclWhoAmI, Empty, StatusLeader, StatusPing};
use crate::rpc::server::{CallerLimits, RpcServer, serve};
use crate::rpc::service::Access::Public;
use crate::rpc::service::{Call as RpcCall, Service};
use crate::rpc::sessions::{ControlRequest, Dial, NodeControl, NodeSession, SessionRequest};

pub(super) const SECRET: &str = "66666666-2222-4333-8444-555555555555";
/// Where callers are, as the server says.
pub(super) const FIRST: &str = "203.0.113.9:4711";

/// A server with ACLs and mutual TLS, its HTTP API open to what is forwarded.
pub(super) struct World {
    pub(super) server: Harness,
    pub(super) rpc: RpcServer,
    pub(super) authority: Authority,
    dir: tempfile::TempDir,
    pub(super) node: String,
    /// How many requests may be made; no limit unless a test sets one.
    rates: Arc<Rates>,
    /// The secret of a manager.
    pub(super) root: String,
}

fn tls(authority: &Path, pair: &Pair, role: Role) -> Arc<Loader> {
    Loader::open(&settings(authority, pair, role)).expect("they fit")
}

fn settings(authority: &Path, pair: &Pair, role: Role) -> Tls {
    Tls {
        rpc: true,
        ca_file: Some(authority.to_owned()),
        cert_file: Some(pair.cert.clone()),
        key_file: Some(pair.key.clone()),
        verify_names: true,
        region: "global".to_owned(),
        roles: vec![role],
        ..Tls::default()
    }
}

/// A server that knows the node whose secret is [`SECRET`]; the node.
pub(super) async fn known(server: &Harness) -> String {
    let mut node = drover_testkit::fixtures::node(1);
    node.secret_id = endpoints::secret_hash(SECRET);
    let id = node.id.clone();
    let create_node_pool = false;
    let command = RegisterNode {
        node,
        create_node_pool,
    };
    server.submit(command).await;
    id
}

/// A server with ACLs and a certificate of this name, its HTTP API open to what is forwarded.
pub(super) async fn opened(
    authority: &Authority,
    name: &str,
    rates: &Arc<Rates>,
) -> (Harness, RpcServer) {
    let server = Harness::with_acls().await;
    let settings = Settings {
        rates: Arc::clone(rates),
        ..Settings::default()
    };
    let api = server.guarded(settings);
    let visitors = Visitors::new(None, 1_000);
    let routes = router(Arc::new(api), Arc::default());
    let forwarded = Forwarded::new(routes, visitors, CancellationToken::new());
    let _ = server.server.web.set(Arc::new(forwarded));
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let service = endpoints::service(Arc::clone(&server.server.0), beat);
    let names = ["server.global.nomad", "localhost", "127.0.0.1"];
    let pair = authority.issue(name, &names).unwrap();
    let limits = CallerLimits {
        tls: tls(&authority.file(), &pair, Role::Server),
        ..CallerLimits::default()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(listener, Arc::new(service), limits).unwrap();
    (server, rpc)
}

impl World {
    pub(super) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::make(dir.path()).unwrap();
        let rates = Rates::none();
        let (server, rpc) = opened(&authority, "one", &rates).await;
        let node = known(&server).await;
        let mut world = Self {
            server,
            rpc,
            authority,
            dir,
            node,
            rates,
            root: String::new(),
        };
        let two = world.caller("two", Role::Server, ("", ""));
        let made = world
            .ask(&two, "", Method::PUT, "/v1/acl/bootstrap", Value::Null)
            .await;
        assert_eq!(made.0, 200, "{}", made.1);
        let made: Value = serde_json::from_str(&made.1).unwrap();
        world.root = made["SecretID"].as_str().unwrap().to_owned();
        world
    }

    /// An agent with a certificate of this role, which calls as this node.
    pub(super) fn caller(&self, name: &str, role: Role, (node, secret): (&str, &str)) -> Caller {
        let names = [&*role.in_region("global"), "localhost"].map(str::to_owned);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let pair = self.authority.issue(name, &names).unwrap();
        let dialing = Dialing {
            tls: tls(&self.authority.file(), &pair, role),
            ..Dialing::default()
        };
        let servers = Servers::new(vec![self.rpc.addr().to_string()]);
        Caller::network(Pool::dialing(1, dialing), servers, secret).of_node(node)
    }

    /// Forwards a request, as from [`FIRST`]; status and body of the answer.
    pub(super) async fn ask(
        &self,
        by: &Caller,
        token: &str,
        method: Method,
        target: &str,
        body: Value,
    ) -> (u16, String) {
        self.ask_from(FIRST, by, token, (method, target, body))
            .await
    }

    /// The same as from this address.
    async fn ask_from(
        &self,
        first: &str,
        by: &Caller,
        token: &str,
        (method, target, body): (Method, &str, Value),
    ) -> (u16, String) {
        let first: SocketAddr = first.parse().unwrap();
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(target)
            .header("x-request-id", "first-asked")
            .extension(Remote(first));
        if !token.is_empty() {
            request = request.header("x-nomad-token", token);
        }
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(body.to_string()),
        };
        let incoming: Incoming = request.body(body).unwrap();
        let answer = forward::send(by, incoming, LONG).await.unwrap();
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20)
            .await
            .unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Who registered a job, and by which request.
    async fn registered(&self, id: &str) -> (Actor, String) {
        let target = format!("/v1/audit?type=job&id={id}&kind=JobRegistered");
        let reported = self.server.get(&target).await.json();
        let actor = serde_json::from_value(reported[0]["Actor"].clone()).unwrap();
        (actor, reported[0]["RequestID"].as_str().unwrap().to_owned())
    }

    pub(super) async fn stop(self) {
        drop(self.rpc);
        self.server.stop().await;
        drop(self.dir);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_01_auth_04_auth_08_what_a_server_forwards_is_who_asked_first_and_is_decided_here() {
    let world = World::start().await;
    let two = world.caller("two", Role::Server, ("", ""));
    let put = |id: &str| (Method::PUT, "/v1/jobs", job(id));
    let (method, target, body) = put("web");
    let (status, text) = world.ask(&two, &world.root, method, target, body).await;
    assert_eq!(status, 200, "{text}");
    let (actor, request) = world.registered("web").await;
    assert_eq!(request, "first-asked");
    assert_eq!(actor.addr, "203.0.113.9", "{actor:?}");
    assert!(!actor.id.is_empty(), "the token, not the server: {actor:?}");
    // Neither a wrong token nor none is more because a server hands it on; and it is counted, here
    // and once.
    for token in ["", SECRET, "11111111-1111-1111-1111-111111111111"] {
        let (method, target, body) = put("other");
        let (status, text) = world.ask(&two, token, method, target, body).await;
        assert_eq!((status, text.as_str()), (403, "Permission denied"));
    }
    let narrow = json!({"Name": "narrow", "Type": "client", "Policies": ["nothing"]});
    let target = "/v1/acl/token";
    let (status, text) = world
        .ask(&two, &world.root, Method::PUT, target, narrow)
        .await;
    assert_eq!(status, 200, "{text}");
    let narrow: Value = serde_json::from_str(&text).unwrap();
    let secret = narrow["SecretID"].as_str().unwrap();
    let accessor = narrow["AccessorID"].as_str().unwrap();
    for _ in 0..3 {
        let target = "/v1/scaling/policies";
        let answer = world.ask(&two, secret, Method::GET, target, Value::Null);
        assert_eq!(answer.await.0, 403);
    }
    let counts = counted(&world.server, "nomad_nomad_rpc_scaling_list").await;
    let own = counts.iter().find(|(series, _)| series.contains(accessor));
    assert_eq!(own.map(|(_, count)| *count), Some(3), "{counts:?}");
    world.stop().await;
}

/// Over mutual TLS, as a server forwards it: only a token that is one gives anything, whatever else
/// comes with it, and why another is none is not said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_06_what_is_no_token_is_refused_in_the_same_words_whatever_it_is() {
    const SHORT: &str = "77777777-2222-4333-8444-555555555555";
    let world = World::start().await;
    let two = world.caller("two", Role::Server, ("", ""));
    let client = world.caller("client", Role::Client, (&world.node, SECRET));
    let narrow = json!({"Name": "narrow", "Type": "client", "Policies": ["nothing"]});
    let target = "/v1/acl/token";
    let (status, text) = world
        .ask(&two, &world.root, Method::PUT, target, narrow)
        .await;
    assert_eq!(status, 200, "{text}");
    let narrow: Value = serde_json::from_str(&text).unwrap();
    let narrow = narrow["SecretID"].as_str().unwrap();
    let short = CreateAclToken {
        token: AclToken {
            accessor_id: "88888888-2222-4333-8444-555555555555".into(),
            r#type: "management".into(),
            expiration_ttl: DurationTextOrEmpty(1_000_000),
            ..AclToken::default()
        },
        secret: SealedSecret {
            hash: token_hash(SHORT),
            ..SealedSecret::default()
        },
        ttl: TtlBounds {
            min: Duration::ZERO,
            max: Duration::MAX,
        },
    };
    world.server.submit(short).await;
    let read = async |by: &Caller, token: &str| {
        let read = world.ask(by, token, Method::GET, "/v1/acl/tokens", Value::Null);
        read.await
    };
    let over = eventually_async("the token to expire", LONG, async || {
        match read(&two, SHORT).await.0 {
            403 => Ok(()),
            status => Err(status),
        }
    });
    over.await.unwrap();
    for by in [&two, &client] {
        assert_eq!(read(by, &world.root).await.0, 200);
        for (what, token) in [
            ("one without the right", narrow),
            ("expired", SHORT),
            ("unknown", "99999999-2222-4333-8444-555555555555"),
            ("a node's secret", SECRET),
            ("no UUID", "nonsense"),
            ("none", ""),
        ] {
            let denied = (403, "Permission denied".to_owned());
            assert_eq!(read(by, token).await, denied, "{what}");
        }
    }
    world.stop().await;
}

/// A caller that shows a certificate gets its name in the answer beside whatever else it proves,
/// and is counted by it where it proves nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_18_auth_06_auth_07_a_certificate_is_told_and_counted_by_its_name_and_address() {
    let world = World::start().await;
    let node = world.node.as_str();
    for (name, role, by, reported) in [
        ("two", Role::Server, ("", ""), ("", "")),
        ("bare", Role::Client, ("", ""), ("", "")),
        ("named", Role::Client, (node, SECRET), ("", node)),
        (
            "manager",
            Role::Client,
            ("", world.root.as_str()),
            ("management", ""),
        ),
        (
            "both",
            Role::Server,
            ("", world.root.as_str()),
            ("management", ""),
        ),
    ] {
        let caller = world.caller(name, role, by);
        let who = caller.call::<AclWhoAmI>(&Empty {}, LONG).await.unwrap();
        let who = who.identity;
        assert_eq!(
            (who.tls_name.as_str(), who.remote_ip.as_str()),
            (name, "127.0.0.1")
        );
        let token = who.acl_token.map(|token| token.r#type).unwrap_or_default();
        assert_eq!((token.as_str(), who.client_id.as_str()), reported, "{name}");
    }
    // A certificate makes no wrong secret a good one.
    let liar = world.caller("liar", Role::Server, (node, "nobody's"));
    let Err(RpcError::Api(refused)) = liar.call::<AclWhoAmI>(&Empty {}, LONG).await else {
        panic!("a forged secret is told who it is");
    };
    assert_eq!(refused.code, Code::PermissionDenied);
    let text = world.server.server.prometheus();
    let counted = |label: &str| {
        let series = format!("nomad_nomad_rpc_acl_read{{identity=\"{label}\"}}");
        text.contains(&series)
    };
    for label in ["two:127.0.0.1", "bare:127.0.0.1", "liar:127.0.0.1"] {
        assert!(counted(label), "{label}: {text}");
    }
    assert!(counted(&format!("client:{node}")), "{text}");
    for label in ["named:127.0.0.1", "manager:127.0.0.1", "both:127.0.0.1"] {
        assert!(!counted(label), "{label} proves more: {text}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ns_01_auth_04_a_namespace_is_written_by_a_manager_whichever_server_is_called() {
    let world = World::start().await;
    let two = world.caller("two", Role::Server, ("", ""));
    let target = "/v1/namespace/red";
    let body = json!({"Name": "red"});
    let denied = world.ask(&two, "", Method::PUT, target, body.clone()).await;
    assert_eq!(denied, (403, "Permission denied".to_owned()));
    let (status, _) = world
        .ask(&two, &world.root, Method::GET, target, Value::Null)
        .await;
    assert_eq!(status, 404, "nothing was written");
    let (status, text) = world
        .ask(&two, &world.root, Method::PUT, target, body)
        .await;
    assert_eq!(status, 200, "{text}");
    let (status, text) = world
        .ask(&two, &world.root, Method::GET, target, Value::Null)
        .await;
    assert_eq!(status, 200, "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_02_auth_05_what_a_client_forwards_comes_from_the_client_and_from_no_server() {
    let world = World::start().await;
    let requested = ForwardRequest {
        address: FIRST.to_owned(),
    };
    // A certificate of a client is none of a server: without a node's secret it opens nothing.
    for (name, node, secret) in [
        ("nobody", "", ""),
        ("secretless", world.node.as_str(), ""),
        ("liar", world.node.as_str(), world.root.as_str()),
    ] {
        let client = world.caller(name, Role::Client, (node, secret));
        let refused = client.open::<ServerForward>(&requested, LONG).await;
        let Err(RpcError::Api(refused)) = refused else {
            panic!("{name}: {refused:?}");
        };
        assert_eq!(refused.code, Code::PermissionDenied, "{name}");
    }
    // With it the request is taken; its address is the client's own, whatever it says, and the
    // node's identity gives the request nothing.
    let client = world.caller("client", Role::Client, (&world.node, SECRET));
    let target = "/v1/jobs";
    for token in ["", SECRET] {
        let (status, _) = world
            .ask(&client, token, Method::PUT, target, job("x"))
            .await;
        assert_eq!(status, 403);
    }
    let (status, text) = world
        .ask(&client, &world.root, Method::PUT, target, job("web"))
        .await;
    assert_eq!(status, 200, "{text}");
    let (actor, _) = world.registered("web").await;
    assert_eq!(actor.addr, "127.0.0.1", "{actor:?}");
    // An address that is none is refused, even from a server.
    let two = world.caller("two", Role::Server, ("", ""));
    let nonsense = ForwardRequest {
        address: "nowhere".to_owned(),
    };
    let refused = two.open::<ServerForward>(&nonsense, LONG).await;
    let Err(RpcError::Api(refused)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refused.code, Code::BadRequest);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_09_a_caller_through_a_client_has_a_share_of_its_own() {
    let world = World::start().await;
    let client = world.caller("client", Role::Client, (&world.node, SECRET));
    let two = world.caller("two", Role::Server, ("", ""));
    world.rates.limit(PerSecond {
        address: 1,
        burst: Duration::from_secs(1),
        ..PerSecond::default()
    });
    let ask = async |first: &str, by: &Caller| {
        let requested = (Method::GET, "/v1/status/leader", Value::Null);
        world.ask_from(first, by, "", requested).await.0
    };
    let all = (0..20).map(|_| ask("10.9.0.1:1", &client));
    let all = futures_util::future::join_all(all).await;
    assert!(all.contains(&200) && all.contains(&429), "{all:?}");
    // Neither others who come through it pay for it, nor whose address it names.
    assert_eq!(ask("10.9.0.2:1", &client).await, 200);
    assert_eq!(ask("10.9.0.1:1", &two).await, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_02_mod_30_a_node_is_dialled_over_mutual_tls_and_only_its_secret_takes_it_up() {
    let world = World::start().await;
    let node = world.node.as_str();
    let held = ControlRequest {
        node_id: node.to_owned(),
    };
    let denied = |refused: Result<Duplex, RpcError>, what: &str| {
        let Err(RpcError::Api(refused)) = refused else {
            panic!("{what}: {refused:?}");
        };
        assert_eq!(refused.code, Code::PermissionDenied, "{what}");
    };
    // Neither a certificate nor a manager's token is a node's secret, whatever the role.
    for (name, role, by) in [
        ("bare", Role::Client, ("", "")),
        ("manager", Role::Client, (node, world.root.as_str())),
        ("server", Role::Server, ("", "")),
    ] {
        let caller = world.caller(name, role, by);
        denied(caller.open::<NodeControl>(&held, LONG).await, name);
    }
    let client = world.caller("client", Role::Client, (node, SECRET));
    client.call::<StatusPing>(&Empty {}, LONG).await.unwrap();
    let leader = client.call::<StatusLeader>(&Empty {}, LONG).await.unwrap();
    assert!(!leader.leader.is_empty());
    let mut control = client.open::<NodeControl>(&held, LONG).await.unwrap();
    let sessions = Arc::clone(&world.server.server.sessions);
    assert!(sessions.reaches(node));
    let id = node.to_owned();
    let dialled = tokio::spawn(async move { sessions.dial(&id).await });
    let dial: Dial = control.inflow.message().await.unwrap();
    let taken = SessionRequest {
        node_id: node.to_owned(),
        session: dial.session,
    };
    // A caller that learned the name cannot take the session up.
    let thief = world.caller("thief", Role::Client, ("", ""));
    denied(thief.open::<NodeSession>(&taken, LONG).await, "thief");
    let mut far = client.open::<NodeSession>(&taken, LONG).await.unwrap();
    let mut near = dialled.await.unwrap().unwrap();
    near.outflow.message(&"what is asked").unwrap();
    let requested: String = far.inflow.message().await.unwrap();
    assert_eq!(requested, "what is asked");
    // More than the window, through TLS.
    let piece = bytes::Bytes::from(vec![7; 256 << 10]);
    let sent = tokio::spawn(async move {
        for _ in 0..12 {
            far.outflow.send(piece.clone()).await.unwrap();
        }
        far.outflow.end();
        far.inflow
    });
    let mut came = 0;
    while let Some(data) = near.inflow.data().await.unwrap() {
        came += data.len();
    }
    assert_eq!(came, 12 * (256 << 10));
    drop(sent.await.unwrap());
    let again = client.open::<NodeSession>(&taken, LONG).await;
    let Err(RpcError::Api(again)) = again else {
        panic!("{again:?}");
    };
    assert_eq!(again.code, Code::NotFound, "a name is good once");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_02_a_call_after_a_reload_shows_the_certificate_of_now() {
    type Seen = parking_lot::Mutex<Vec<String>>;
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::make(dir.path()).unwrap();
    let names = ["server.global.nomad", "localhost", "127.0.0.1"];
    let seen = Arc::new(Seen::default());
    let note = async |seen: Arc<Seen>, call: RpcCall, _: Empty| {
        let shown = call.certificate.map(|shown| shown.common_name.clone());
        seen.lock().push(shown.unwrap_or_default());
        Ok(Empty {})
    };
    let service = Service::new(Arc::clone(&seen)).method::<StatusPing, _, _>(Public, note);
    let pair = authority.issue("one", &names).unwrap();
    let serving = tls(&authority.file(), &pair, Role::Server);
    let limits = CallerLimits {
        tls: Arc::clone(&serving),
        parting: Duration::ZERO,
        ..CallerLimits::default()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(listener, Arc::new(service), limits).unwrap();
    let first = authority.issue("first", &names).unwrap();
    let second = authority.issue("second", &names).unwrap();
    let loader = tls(&authority.file(), &first, Role::Server);
    let dialing = Dialing {
        tls: Arc::clone(&loader),
        ..Dialing::default()
    };
    let servers = Servers::new(vec![rpc.addr().to_string()]);
    let caller = Caller::network(Pool::dialing(1, dialing), servers, "");
    let ask = async || caller.once::<StatusPing>(&Empty {}, LONG).await;
    ask().await.unwrap();
    ask().await.unwrap();
    loader
        .reload(&settings(&authority.file(), &second, Role::Server))
        .unwrap();
    ask().await.unwrap();
    assert_eq!(*seen.lock(), ["first", "first", "second"]);
    // The server trusts another authority now: who came by the one before may not stay.
    let other = Authority::make(&dir.path().join("other")).unwrap();
    let theirs = other.issue("theirs", &names).unwrap();
    serving
        .reload(&settings(&other.file(), &theirs, Role::Server))
        .unwrap();
    let refused = eventually_async("the connection to go", LONG, async || match ask().await {
        Err(error) => Ok(error),
        Ok(_) => Err("it is answered"),
    });
    let refused = refused.await.unwrap();
    assert!(matches!(refused, RpcError::Unreachable(_)), "{refused}");
}
