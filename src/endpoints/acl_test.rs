//! Who learns what of access control.

use std::sync::Arc;
use std::time::Duration;

use drover_events::acl::SealedSecret;
use drover_events::model::{AclPolicy, AclRole, AclRolePolicyLink, AclToken, AclTokenRoleLink};
use drover_projections::query;
use drover_projections::tables::acl_tokens::secret_hash as token_hash;
use drover_testkit::LONG;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::commands::Command;
use crate::commands::acl::{CreateAclToken, TtlBounds, UpsertAclPolicies, UpsertAclRoles};
use crate::commands::node::RegisterNode;
use crate::config::Config;
use crate::endpoints::testing::Marking;
use crate::error::{Code, Refusal};
use crate::http::{Api, Forwarded, Settings, router};
use crate::net::{PerSecond, Visitors};
use crate::proposer::Origin;
use crate::requests::{self, Class, RequestQuery};
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::methods::{
    AclPolicySetRequest, AclRolesByIdRequest, NodeSpecificRequest, ResolveAclTokenRequest,
    ResolveAclTokenResponse,
};
use crate::rpc::server::{CallerLimits, RpcServer, serve};
use crate::rpc::volumes::{PluginList, PluginListRequest};
use crate::rpc::{Rpc, RpcError};
use crate::server::testing::Stopping;
use drover_testkit::fixtures as testing;

pub(super) const NODE: &str = "11111111-2222-4333-8444-555555555555";
pub(super) const CI: &str = "22222222-2222-4333-8444-555555555555";
/// The secret of the second node.
pub(super) const OTHER: &str = "77777777-2222-4333-8444-555555555555";
pub(super) const ROOT: &str = "33333333-2222-4333-8444-555555555555";

pub(super) struct World {
    pub(super) server: Stopping,
    rpc: RpcServer,
    pub(super) node: String,
    /// A second node, whose secret is [`OTHER`].
    pub(super) other: String,
    pub(super) role: String,
    _data: tempfile::TempDir,
}

impl World {
    /// A server that knows two nodes, two policies, a role and two tokens.
    pub(super) async fn start(enabled: bool) -> World {
        World::configured(|config| config.acl.enabled = enabled).await
    }

    /// The same, with a configuration of its own.
    pub(super) async fn configured(configure: impl FnOnce(&mut Config)) -> World {
        let data = tempfile::tempdir().unwrap();
        let telemetry = crate::telemetry::install(Duration::from_secs(10));
        let mut config = Config::dev();
        configure(&mut config);
        let server = Server::start(Arc::new(config), data.path(), telemetry);
        let server = server.await.unwrap();
        server.wait_ready().await;
        let mut ids = Vec::new();
        for (number, secret) in [(1, NODE), (2, OTHER)] {
            let mut node = testing::node(number);
            node.secret_id = secret_hash(secret);
            ids.push(node.id.clone());
            let create_node_pool = true;
            let command = RegisterNode {
                node,
                create_node_pool,
            };
            submit(&server, command).await;
        }
        let [id, other] = ids.try_into().unwrap();
        for name in ["mine", "other"] {
            let policy = AclPolicy {
                name: name.into(),
                rules: "agent { policy = \"read\" }".into(),
                ..AclPolicy::default()
            };
            let policies = vec![policy];
            submit(&server, UpsertAclPolicies { policies }).await;
        }
        let link = AclRolePolicyLink {
            name: "mine".into(),
        };
        let roles = vec![AclRole {
            name: "crew".into(),
            policies: vec![link].into(),
            ..AclRole::default()
        }];
        let allow_missing_policies = false;
        submit(
            &server,
            UpsertAclRoles {
                roles,
                allow_missing_policies,
            },
        )
        .await;
        let view = server.projections.view();
        let role = query::acl::role_by_name(&view, "crew");
        let role = role.unwrap().unwrap().id.clone();
        for (secret, kind) in [(CI, "client"), (ROOT, "management")] {
            submit(&server, token(secret, kind)).await;
        }
        drop(view);
        let api = Api::of(&server, Settings::default());
        let routes = router(Arc::new(api), Arc::default());
        let web = Forwarded::new(routes, Visitors::new(None, 1_000), CancellationToken::new());
        let _ = server.web.set(Arc::new(web));
        let beat = Box::new(|_: &str| Duration::from_secs(60));
        let service = Arc::new(Marking(Arc::new(service(server.clone(), beat))));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        World {
            rpc: serve(listener, service, CallerLimits::default()).unwrap(),
            server: Stopping(server),
            node: id,
            other,
            role,
            _data: data,
        }
    }

    pub(super) async fn call<M: Rpc>(
        &self,
        (node, secret): (&str, &str),
        request: M::Req,
    ) -> Result<M::Res, Refusal> {
        let servers = Servers::new(vec![self.rpc.addr().to_string()]);
        let caller = Caller::network(Pool::new(1), servers, secret).of_node(node);
        match caller.once::<M>(&request, LONG).await {
            Ok(answer) => Ok(answer),
            Err(RpcError::Api(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    async fn resolve(&self, secret: &str) -> ResolveAclTokenResponse {
        let request = ResolveAclTokenRequest {
            secret_id: secret.into(),
        };
        self.call::<AclResolveToken>(("", ""), request)
            .await
            .unwrap()
    }

    /// The policies that a caller gets of these.
    async fn policies(&self, who: (&str, &str), names: &[&str]) -> Result<Vec<String>, Refusal> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let request = AclPolicySetRequest { names };
        let answer = self.call::<AclGetPolicies>(who, request).await?;
        Ok(answer.policies.into_keys().collect())
    }

    async fn roles(&self, who: (&str, &str)) -> Result<usize, Refusal> {
        let role_ids = vec![self.role.clone()];
        let request = AclRolesByIdRequest { role_ids };
        let answer = self.call::<AclGetRoles>(who, request).await?;
        Ok(answer.roles.len())
    }
}

pub(super) async fn submit(server: &Server, command: impl Command) {
    server.submit(command, Origin::default()).await.unwrap();
}

pub(super) fn token(secret: &str, kind: &str) -> CreateAclToken {
    let roles = vec![AclTokenRoleLink {
        name: "crew".into(),
        ..AclTokenRoleLink::default()
    }];
    CreateAclToken {
        token: AclToken {
            accessor_id: format!("{}-0000-4000-8000-000000000000", &secret[..8]),
            r#type: kind.into(),
            roles: roles
                .into_iter()
                .filter(|_| kind == "client")
                .collect::<Vec<_>>()
                .into(),
            ..AclToken::default()
        },
        secret: SealedSecret {
            hash: token_hash(secret),
            ..SealedSecret::default()
        },
        ttl: TtlBounds {
            min: Duration::ZERO,
            max: Duration::MAX,
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_told_all_and_others_what_their_token_holds() {
    let world = World::start(true).await;
    let own = (world.node.as_str(), NODE);
    let denied = |reported: Result<_, Refusal>| reported.map(|_: ()| ()).unwrap_err();
    for who in [own, ("", ROOT)] {
        let reported = world.policies(who, &["mine", "other", "none"]).await;
        assert_eq!(reported.unwrap(), ["mine", "other"]);
        assert_eq!(world.roles(who).await, Ok(1));
    }
    let ci = ("", CI);
    assert_eq!(world.policies(ci, &["mine"]).await.unwrap(), ["mine"]);
    assert_eq!(world.roles(ci).await, Ok(1));
    let other = world.policies(ci, &["mine", "other"]).await.map(drop);
    assert_eq!(denied(other), Refusal::permission_denied());
    for who in [("", ""), ("", "nobody"), (world.node.as_str(), "wrong")] {
        let reported = world.policies(who, &["mine"]).await.map(drop);
        assert_eq!(denied(reported), Refusal::permission_denied(), "{who:?}");
        assert!(world.roles(who).await.is_err(), "{who:?}");
    }
    let many = vec!["x"; 1001];
    let reported = world.policies(own, &many).await.map(drop);
    assert_eq!(denied(reported).code, Code::BadRequest);
    let role_ids = vec!["x".to_owned(); 1001];
    let request = AclRolesByIdRequest { role_ids };
    let reported = world.call::<AclGetRoles>(own, request).await.map(drop);
    assert_eq!(denied(reported).code, Code::BadRequest);
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_resolved_to_its_token_and_not_repeated() {
    let world = World::start(true).await;
    let token = world.resolve(CI).await.token.unwrap();
    assert_eq!(
        (token.roles[0].name.as_str(), token.secret_id.as_str()),
        ("crew", "")
    );
    assert_eq!(world.resolve("nobody").await.token, None);
    assert_eq!(world.resolve("").await.token, None);
    let request = ResolveAclTokenRequest {
        secret_id: "canary".into(),
    };
    assert!(!format!("{request:?}").contains("canary"));
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_while_acls_are_off() {
    let world = World::start(false).await;
    let own = (world.node.as_str(), NODE);
    let reported = world.policies(own, &["mine"]).await.unwrap_err();
    assert_eq!(reported.message, "ACL support disabled");
    assert_eq!(world.roles(own).await.unwrap_err(), reported);
    let request = ResolveAclTokenRequest {
        secret_id: CI.into(),
    };
    let reported = world.call::<AclResolveToken>(own, request).await;
    assert_eq!(reported.unwrap_err().message, "ACL support disabled");
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_18_auth_06_a_caller_is_told_its_identity() {
    let world = World::start(true).await;
    let who = async |node: &str, secret: &str| {
        let answer = world.call::<AclWhoAmI>((node, secret), Empty {}).await?;
        let identity = answer.identity;
        assert_eq!(identity.remote_ip, "127.0.0.1");
        let token = identity.acl_token.map(|token| {
            assert!(token.secret_id.is_empty());
            token.r#type
        });
        Ok::<_, Refusal>((token.unwrap_or_default(), identity.client_id))
    };
    let none = String::new;
    assert_eq!(who("", "").await.unwrap(), (none(), none()));
    assert_eq!(who("", CI).await.unwrap(), ("client".into(), none()));
    assert_eq!(who("", ROOT).await.unwrap(), ("management".into(), none()));
    let node = world.node.clone();
    assert_eq!(who(&node, NODE).await.unwrap(), (none(), node.clone()));
    // A secret that no identity has says nothing of whose it is not.
    let forged = who(&node, "44444444-2222-4333-8444-555555555555").await;
    assert_eq!(forged.unwrap_err().code, Code::PermissionDenied);
    world.server.shutdown().await;
}

/// Also where it was not looked up before who that is, and the method requires something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_07_auth_11_a_caller_denied_at_first_sight_is_counted_and_written_down_as_itself() {
    let world = World::start(true).await;
    let view = world.server.projections.view();
    let token = query::acl::acl_token_by_hash(&view, &token_hash(CI))
        .unwrap()
        .unwrap();
    let accessor = token.accessor_id.clone();
    drop((token, view));
    let request = NodeSpecificRequest {
        node_id: world.node.clone(),
        ..NodeSpecificRequest::default()
    };
    // Numbers are of the process, and others of its tests have a token of that name.
    let series = format!("nomad_nomad_rpc_node_read{{identity=\"token:{accessor}\"}} ");
    let counted = || {
        let text = world.server.prometheus();
        let mut counts = text.lines().filter_map(|line| line.strip_prefix(&series));
        counts
            .next()
            .map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let before = counted();
    let denied = world.call::<NodeGetNode>(("", CI), request).await;
    assert_eq!(denied.unwrap_err().code, Code::PermissionDenied);
    assert!(counted() > before, "it was counted as another caller");
    let log = world.server.requests.records().expect("one is kept");
    let requested = RequestQuery {
        class: Some(Class::Denied),
        limit: 10,
        ..RequestQuery::default()
    };
    let reported = requests::list(&*log, &requested).unwrap().entries;
    let mut actors = reported.iter().map(|entry| &entry.received.actor);
    assert!(actors.any(|actor| actor.id == accessor), "{reported:?}");
    world.server.shutdown().await;
}

/// A call is counted where it is served, before it is looked at; a heartbeat is never too much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_09_a_caller_has_so_many_calls_a_second_and_a_heartbeat_is_always_taken() {
    let world = World::start(true).await;
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let calls = Rates::new(PerSecond {
        identity: 1,
        burst: Duration::from_secs(1),
        ..PerSecond::default()
    });
    let limited = Limited {
        calls,
        ..Limited::none()
    };
    let served = service_within(Arc::clone(&world.server.0), beat, limited);
    let rpc = serve(
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(),
        Arc::new(served),
        CallerLimits::default(),
    );
    let rpc = rpc.unwrap();
    let servers = || Servers::new(vec![rpc.addr().to_string()]);
    let who =
        |node: &str, secret: &str| Caller::network(Pool::new(1), servers(), secret).of_node(node);
    let request = NodeSpecificRequest {
        node_id: world.node.clone(),
        ..NodeSpecificRequest::default()
    };
    let (node, forger) = (who(&world.node, NODE), who(&world.node, CI));
    let too_much = async |caller: &Caller| {
        for _ in 0..2_000 {
            match caller.once::<NodeGetNode>(&request, LONG).await {
                Ok(_) => {}
                Err(RpcError::Api(error)) if error.code == Code::PermissionDenied => {}
                Err(RpcError::Api(error)) => return error,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("it is never too much");
    };
    let refused = too_much(&node).await;
    assert_eq!(refused.code, Code::TooManyRequests, "{refused}");
    assert_eq!(refused.retry_after, 1, "it comes with the answer");
    assert!(RpcError::Api(refused).is_transient(), "it is tried again");
    // Guessing is limited by where it comes from, and costs the node nothing.
    assert_eq!(too_much(&forger).await.code, Code::TooManyRequests);
    let beat = crate::rpc::methods::NodeUpdateStatusRequest {
        node_id: world.node.clone(),
        status: "ready".into(),
        ..Default::default()
    };
    for _ in 0..50 {
        let taken = node.once::<NodeUpdateStatus>(&beat, LONG).await;
        taken.expect("a heartbeat is taken");
    }
    world.server.shutdown().await;
}

/// Many callers share one connection: what one of them proved says nothing of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_05_no_caller_is_taken_for_the_node_whose_connection_it_comes_over() {
    let world = World::start(true).await;
    let pool = Pool::new(1);
    let servers = || Servers::new(vec![world.rpc.addr().to_string()]);
    let request = NodeSpecificRequest {
        node_id: world.node.clone(),
        ..NodeSpecificRequest::default()
    };
    let node = Caller::network(pool.clone(), servers(), NODE).of_node(&world.node);
    let shown = node.once::<NodeGetNode>(&request, LONG).await.unwrap();
    assert!(shown.node.is_some(), "the node itself is answered");
    for (name, secret) in [
        (String::new(), ""),
        (world.node.clone(), ""),
        (world.node.clone(), CI),
    ] {
        let other = Caller::network(pool.clone(), servers(), secret).of_node(&name);
        let answer = other.once::<NodeGetNode>(&request, LONG).await;
        let Err(RpcError::Api(error)) = answer else {
            panic!("{name:?} {secret:?}: {answer:?}")
        };
        assert_eq!(error.code, Code::PermissionDenied, "{name:?} {secret:?}");
    }
    let shown = node.once::<NodeGetNode>(&request, LONG).await.unwrap();
    assert!(shown.node.is_some(), "and goes on");
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_13_without_acls_a_node_still_proves_that_it_is_one() {
    let world = World::start(false).await;
    let request = || NodeSpecificRequest {
        node_id: world.node.clone(),
        ..NodeSpecificRequest::default()
    };
    let by =
        async |node: &str, secret: &str| world.call::<NodeGetNode>((node, secret), request()).await;
    assert_eq!(by("", "").await.unwrap_err().code, Code::PermissionDenied);
    assert_eq!(by("", ROOT).await.unwrap_err().code, Code::PermissionDenied);
    assert!(by(&world.node, NODE).await.unwrap().node.is_some());
    // Everything else is open to every caller.
    let who = world.server.gate.authenticate(Some("whatever"), "").await;
    assert!(who.unwrap().is_management());
    let who = world.server.gate.authenticate(None, "").await;
    assert!(who.unwrap().is_management());
    world.server.shutdown().await;
}

/// Another token, role or policy changes nothing for who does not hold it: streams compare.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_token_may_do_stays_the_same_until_it_changes() {
    let world = World::start(true).await;
    let may = async |secret: &str| {
        let found = world.server.gate.authenticate(Some(secret), "").await;
        let found = found.unwrap();
        assert_eq!(found.refusal, None);
        found.acl
    };
    let (root, ci) = (may(ROOT).await, may(CI).await);
    assert!(root.is_management() && ci.agent_read() && !ci.agent_write());
    let other = "55555555-2222-4333-8444-555555555555";
    submit(&world.server, token(other, "client")).await;
    assert!(Arc::ptr_eq(&root, &may(ROOT).await), "a manager stays one");
    assert!(Arc::ptr_eq(&ci, &may(CI).await));
    let policy = |name: &str, rules: &str| AclPolicy {
        name: name.into(),
        rules: rules.into(),
        ..AclPolicy::default()
    };
    let policies = vec![policy("other", "agent { policy = \"write\" }")];
    submit(&world.server, UpsertAclPolicies { policies }).await;
    assert!(
        Arc::ptr_eq(&ci, &may(CI).await),
        "it does not hold that policy"
    );
    let policies = vec![policy("mine", "agent { policy = \"write\" }")];
    submit(&world.server, UpsertAclPolicies { policies }).await;
    let now = may(CI).await;
    assert!(
        now.agent_write() && *now != *ci,
        "the next request counts it"
    );
    // A role that is gone gives nothing; one that is made under its name neither.
    let ids = vec![world.role.clone()];
    submit(&world.server, crate::commands::acl::DeleteAclRoles { ids }).await;
    assert!(!may(CI).await.agent_read());
    let link = AclRolePolicyLink {
        name: "mine".into(),
    };
    let roles = vec![AclRole {
        name: "crew".into(),
        policies: vec![link].into(),
        ..AclRole::default()
    }];
    let allow_missing_policies = false;
    submit(
        &world.server,
        UpsertAclRoles {
            roles,
            allow_missing_policies,
        },
    )
    .await;
    assert!(!may(CI).await.agent_read(), "a name is not who it was");
    world.server.shutdown().await;
}

/// What requests are judged by: a token's own policies and those of its roles, together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_01_acl_06_the_gate_counts_own_policies_and_those_of_roles_that_are_there() {
    let world = World::start(true).await;
    let policies = vec![AclPolicy {
        name: "own".into(),
        rules: "node { policy = \"read\" }".into(),
        ..AclPolicy::default()
    }];
    submit(&world.server, UpsertAclPolicies { policies }).await;
    let secret = "66666666-2222-4333-8444-555555555555";
    let mut both = token(secret, "client");
    both.token.policies = vec!["own".to_owned()].into();
    submit(&world.server, both).await;
    let who = async || {
        let found = world.server.gate.authenticate(Some(secret), "").await;
        found.unwrap()
    };
    let found = who().await;
    assert!(found.acl.node_read() && found.acl.agent_read());
    assert_eq!(found.actor.roles, ["crew"]);
    assert_eq!(found.actor.policies, ["mine", "own"]);
    let ids = vec![world.role.clone()];
    submit(&world.server, crate::commands::acl::DeleteAclRoles { ids }).await;
    let found = who().await;
    assert!(found.acl.node_read() && !found.acl.agent_read());
    assert_eq!(found.refusal, None, "a stale link refuses nobody");
    world.server.shutdown().await;
}

/// Calls are counted by who calls, and in which class.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_07_calls_are_counted_by_node_token_and_nobody() {
    let world = World::start(true).await;
    let node = world.node.clone();
    let request = || NodeSpecificRequest {
        node_id: node.clone(),
        ..NodeSpecificRequest::default()
    };
    world
        .call::<NodeGetNode>((&node, NODE), request())
        .await
        .unwrap();
    world
        .call::<NodeGetNode>((&node, ""), request())
        .await
        .unwrap_err();
    for _ in 0..2 {
        world.call::<AclWhoAmI>(("", CI), Empty {}).await.unwrap();
    }
    let text = world.server.prometheus();
    let accessor = format!("{}-0000-4000-8000-000000000000", &CI[..8]);
    for wanted in [
        format!("nomad_nomad_rpc_node_read{{identity=\"client:{node}\"}}"),
        "nomad_nomad_rpc_node_read{identity=\"unauthenticated\"}".to_owned(),
        format!("nomad_nomad_rpc_acl_read{{identity=\"token:{accessor}\"}}"),
    ] {
        assert!(text.contains(&wanted), "{wanted} in {text}");
    }
    for secret in [NODE, CI] {
        assert!(!text.contains(secret));
    }
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_denied_is_in_the_request_log_once_and_without_its_token() {
    let world = World::start(true).await;
    let denied = |reported: Result<(), Refusal>| {
        assert_eq!(reported.unwrap_err(), Refusal::permission_denied());
    };
    let node = (world.node.as_str(), NODE);
    // Each is let in before it is denied something, so that it is known who it is.
    for who in [("", CI), node] {
        assert_eq!(world.policies(who, &["mine"]).await.unwrap(), ["mine"]);
    }
    denied(world.policies(("", CI), &["other"]).await.map(drop));
    denied(world.policies(("", "guess"), &["mine"]).await.map(drop));
    let request = NodeSpecificRequest {
        node_id: world.other.clone(),
        ..NodeSpecificRequest::default()
    };
    denied(world.call::<NodeGetNode>(node, request).await.map(drop));
    // A request stands behind this one, and has it there already.
    let request = PluginListRequest::default();
    denied(world.call::<PluginList>(("", CI), request).await.map(drop));
    let log = world.server.requests.records().expect("one is kept");
    let requested = RequestQuery {
        class: Some(Class::Denied),
        limit: 100,
        ..RequestQuery::default()
    };
    let reported = requests::list(&*log, &requested).unwrap().entries;
    let reported: Vec<(&str, &str, u16)> = reported
        .iter()
        .map(|one| (&*one.received.path, &*one.received.actor.id, one.status))
        .collect();
    let ci = "22222222-0000-4000-8000-000000000000";
    let wanted = [
        ("ACL.GetPolicies", ci, 403),
        ("ACL.GetPolicies", "", 403),
        ("Node.GetNode", node.0, 403),
        ("/v1/plugins", ci, 403),
    ];
    assert_eq!(reported, wanted);
    world.server.shutdown().await;
}
