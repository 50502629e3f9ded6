use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_events::model::{AclRolePolicyLink, AclTokenRoleLink};

use super::*;
use crate::acl::{NamespaceCapability as Ns, VariableCapability};
use crate::gate::{Gate, Kind};
use crate::identity::{Identity, Rejection};
use crate::keyring::Claims;
use crate::rpc::methods::{AclPolicySetResponse, AclRolesByIdResponse, ResolveAclTokenResponse};
use crate::rpc::service::{Access, Call, Service};

/// Servers that know some tokens, and may be away.
#[derive(Default)]
struct Servers {
    away: AtomicBool,
    busy: AtomicBool,
    calls: Mutex<BTreeMap<&'static str, usize>>,
    tokens: Mutex<BTreeMap<String, AclToken>>,
    roles: Mutex<BTreeMap<String, AclRole>>,
    policies: Mutex<BTreeMap<String, AclPolicy>>,
    /// Groups of workloads that live, by what was signed of them.
    workloads: Mutex<BTreeMap<String, Claims>>,
}

impl Servers {
    fn answer<T>(&self, name: &'static str, answer: impl FnOnce() -> T) -> Result<T, Refusal> {
        if self.away.load(Ordering::Relaxed) {
            return Err(Refusal::new(Code::Unavailable, "away"));
        }
        if self.busy.load(Ordering::Relaxed) {
            return Err(Refusal::new(Code::TooManyRequests, "too much").after(2));
        }
        *self.calls.lock().entry(name).or_default() += 1;
        Ok(answer())
    }

    fn calls(&self, name: &'static str) -> usize {
        self.calls.lock().get(name).copied().unwrap_or_default()
    }

    fn policy(&self, name: &str, rules: &str, index: u64) {
        let policy = AclPolicy {
            name: name.to_owned(),
            rules: rules.to_owned(),
            modify_index: index,
            ..AclPolicy::default()
        };
        self.policies.lock().insert(name.to_owned(), policy);
    }
}

async fn resolve(
    servers: Arc<Servers>,
    _: Call,
    requested: ResolveAclTokenRequest,
) -> Result<ResolveAclTokenResponse, Refusal> {
    servers.answer("token", || ResolveAclTokenResponse {
        token: servers.tokens.lock().get(&requested.secret_id).cloned(),
        index: 1,
    })
}

async fn roles(
    servers: Arc<Servers>,
    _: Call,
    requested: AclRolesByIdRequest,
) -> Result<AclRolesByIdResponse, Refusal> {
    servers.answer("roles", || {
        let mut roles = servers.roles.lock().clone();
        roles.retain(|id, _| requested.role_ids.contains(id));
        AclRolesByIdResponse { roles, index: 1 }
    })
}

async fn policies(
    servers: Arc<Servers>,
    _: Call,
    requested: AclPolicySetRequest,
) -> Result<AclPolicySetResponse, Refusal> {
    servers.answer("policies", || {
        let mut policies = servers.policies.lock().clone();
        policies.retain(|name, _| requested.names.contains(name));
        AclPolicySetResponse { policies, index: 1 }
    })
}

async fn workload(
    servers: Arc<Servers>,
    _: Call,
    requested: AclClaimPoliciesRequest,
) -> Result<AclClaimPoliciesResponse, Refusal> {
    servers.answer("workload", || AclClaimPoliciesResponse {
        claims: servers.workloads.lock().get(&requested.signed).cloned(),
        task_group: "g".to_owned(),
        policies: servers.policies.lock().clone(),
        index: 1,
    })
}

const KEPT: Duration = Duration::from_secs(3_600);

/// A client's gate; what it learns is kept for an hour, or not at all.
fn gate(servers: &Arc<Servers>, ttl: Duration) -> Gate {
    let ttls = Ttls {
        token: ttl,
        policy: ttl,
        role: ttl,
    };
    keeping(servers, ttls)
}

/// The same; each kind is kept for a time of its own.
fn keeping(servers: &Arc<Servers>, ttls: Ttls) -> Gate {
    let service = Service::new(Arc::clone(servers))
        .method::<AclResolveToken, _, _>(Access::Public, resolve)
        .method::<AclGetRoles, _, _>(Access::Public, roles)
        .method::<AclGetPolicies, _, _>(Access::Public, policies)
        .method::<AclGetClaimPolicies, _, _>(Access::Public, workload);
    Gate(Kind::Far(Box::new(Far {
        asking: Duration::from_millis(100),
        again: Duration::ZERO,
        ..Far::new(Caller::process(Arc::new(service), "node"), ttls)
    })))
}

/// Servers with a token that has nothing but a role.
fn servers() -> Arc<Servers> {
    let servers = Arc::new(Servers::default());
    let token = AclToken {
        accessor_id: "a".to_owned(),
        name: "only a role".to_owned(),
        r#type: "client".to_owned(),
        roles: vec![AclTokenRoleLink {
            id: "r1".to_owned(),
            ..AclTokenRoleLink::default()
        }]
        .into(),
        ..AclToken::default()
    };
    servers.tokens.lock().insert("role".to_owned(), token);
    let role = AclRole {
        id: "r1".to_owned(),
        name: "readers".to_owned(),
        policies: vec![AclRolePolicyLink {
            name: "read".to_owned(),
        }]
        .into(),
        ..AclRole::default()
    };
    servers.roles.lock().insert("r1".to_owned(), role);
    let rules = "namespace \"web\" { capabilities = [\"read-logs\"] }";
    servers.policy("read", rules, 1);
    servers
}

async fn asks(gate: &Gate, token: &str) -> Identity {
    let token = Some(token).filter(|token| !token.is_empty());
    gate.authenticate(token, "10.0.0.1").await.unwrap()
}

fn reads_logs(identity: &Identity) -> bool {
    identity.acl.namespace_allows_any("web", &[Ns::ReadLogs])
}

#[tokio::test]
async fn acl_10_mod_22_a_token_of_nothing_but_a_role_is_what_the_servers_say_and_that_is_kept() {
    let servers = servers();
    let gate = gate(&servers, KEPT);
    for _ in 0..3 {
        let who = asks(&gate, "role").await;
        assert!(reads_logs(&who) && !who.is_management());
        assert_eq!(who.actor.name, "only a role");
        assert_eq!(
            (who.actor.roles, who.actor.policies),
            (vec!["readers".into()], vec!["read".into()])
        );
    }
    for kind in ["token", "roles", "policies"] {
        assert_eq!(servers.calls(kind), 1, "{kind}");
    }
    // Who gives no token is who the servers' policy says.
    assert!(!reads_logs(&asks(&gate, "").await));
    servers.policy("anonymous", "namespace \"web\" { policy = \"read\" }", 2);
    assert!(!reads_logs(&asks(&gate, "").await), "it is kept");
    // A token that is none is queried each time: it may be made in the next moment.
    assert_eq!(asks(&gate, "none").await.refusal, Some(Rejection::Unknown));
    let made = servers.tokens.lock()["role"].clone();
    servers.tokens.lock().insert("none".to_owned(), made);
    assert!(reads_logs(&asks(&gate, "none").await));
}

#[tokio::test]
async fn acl_10_mod_22_what_changes_counts_in_time_and_what_was_known_while_servers_are_away() {
    let servers = servers();
    let gate = gate(&servers, Duration::ZERO);
    assert!(reads_logs(&asks(&gate, "role").await));
    servers.policy("read", "namespace \"web\" { policy = \"deny\" }", 2);
    assert!(
        !reads_logs(&asks(&gate, "role").await),
        "the policy changed"
    );
    let rules = "namespace \"web\" { capabilities = [\"read-logs\"] }";
    servers.policy("read", rules, 3);
    assert!(reads_logs(&asks(&gate, "role").await));

    servers.away.store(true, Ordering::Relaxed);
    assert!(reads_logs(&asks(&gate, "role").await), "what was known");
    let unknown = gate.authenticate(Some("other"), "").await.unwrap_err();
    assert_eq!(unknown.code, Code::Unavailable);
    servers.away.store(false, Ordering::Relaxed);

    servers.roles.lock().clear();
    assert!(!reads_logs(&asks(&gate, "role").await), "the role is gone");
    servers.tokens.lock().clear();
    assert_eq!(asks(&gate, "role").await.refusal, Some(Rejection::Unknown));
    // Nothing that is known to be gone comes back.
    servers.away.store(true, Ordering::Relaxed);
    assert!(gate.authenticate(Some("role"), "").await.is_err());
}

#[test]
fn what_servers_say_is_bounded_and_what_is_known_already_drops_nothing() {
    let kept = RemoteCache::<usize, usize>::default();
    for key in 0..MOST {
        kept.put(key, key);
    }
    kept.put(0, MOST);
    assert_eq!(kept.get(&0, KEPT), (Some(MOST), true));
    assert_eq!(kept.get(&1, KEPT), (Some(1), true), "it was there already");
    kept.put(MOST, 7);
    assert_eq!(kept.get(&MOST, KEPT), (Some(7), true));
    assert_eq!(kept.0.lock().len(), 1, "all else is queried again");
}

/// How often servers were queried for tokens, roles and policies.
fn questions(servers: &Servers) -> [usize; 3] {
    ["token", "roles", "policies"].map(|kind| servers.calls(kind))
}

#[tokio::test]
async fn acl_10_a_role_that_changes_counts_at_once_where_all_but_roles_are_kept() {
    let servers = servers();
    let gate = keeping(
        &servers,
        Ttls {
            token: KEPT,
            policy: KEPT,
            role: Duration::ZERO,
        },
    );
    let turns_to = |policy: &str| {
        let link = AclRolePolicyLink {
            name: policy.to_owned(),
        };
        let mut roles = servers.roles.lock();
        roles.get_mut("r1").expect("a role").policies = vec![link].into();
    };
    assert!(reads_logs(&asks(&gate, "role").await));
    assert_eq!(questions(&servers), [1, 1, 1]);
    servers.policy(
        "list",
        "namespace \"web\" { capabilities = [\"list-jobs\"] }",
        1,
    );
    turns_to("list");
    let who = asks(&gate, "role").await;
    assert!(!reads_logs(&who));
    assert_eq!(who.actor.policies, ["list"]);
    assert_eq!(
        questions(&servers),
        [1, 2, 2],
        "of a policy that is new to it"
    );
    turns_to("read");
    assert!(reads_logs(&asks(&gate, "role").await));
    assert_eq!(questions(&servers), [1, 3, 2], "that policy is kept");
    assert!(gate.keeps("role"));
}

#[tokio::test]
async fn acl_10_a_policy_that_changes_counts_at_once_where_all_but_policies_are_kept() {
    let servers = servers();
    let gate = keeping(
        &servers,
        Ttls {
            token: KEPT,
            policy: Duration::ZERO,
            role: KEPT,
        },
    );
    assert!(reads_logs(&asks(&gate, "role").await));
    servers.policy("read", "namespace \"web\" { policy = \"deny\" }", 2);
    assert!(!reads_logs(&asks(&gate, "role").await));
    assert_eq!(questions(&servers), [1, 1, 2]);
    // The role is kept, whatever becomes of it.
    servers.roles.lock().clear();
    assert_eq!(asks(&gate, "role").await.actor.roles, ["readers"]);
    assert_eq!(questions(&servers), [1, 1, 3]);
    assert!(gate.keeps("role"));
}

#[tokio::test]
async fn acl_10_a_token_that_expired_or_cannot_be_read_gives_nothing() {
    let servers = servers();
    let mut token = servers.tokens.lock()["role"].clone();
    token.expiration_time = Some(drover_events::gojson::GoTime(1));
    servers.tokens.lock().insert("old".to_owned(), token);
    let gate = gate(&servers, Duration::ZERO);
    assert_eq!(asks(&gate, "old").await.refusal, Some(Rejection::Expired));
    assert!(reads_logs(&asks(&gate, "role").await));
    servers.policy("read", "no policy {", 9);
    assert!(!reads_logs(&asks(&gate, "role").await));
}

#[tokio::test]
async fn acl_10_servers_that_are_asked_too_much_are_not_away() {
    let servers = servers();
    let (fresh, stale) = (gate(&servers, KEPT), gate(&servers, Duration::ZERO));
    for gate in [&fresh, &stale] {
        let who = gate.authenticate(Some("role"), "").await.unwrap();
        assert!(who.acl.namespace_allows("web", Ns::ReadLogs));
    }
    assert!(fresh.keeps("role") && !fresh.keeps("guess") && !stale.keeps("role"));
    // Revoked, while so many requests come that no gate learns of it.
    servers.tokens.lock().clear();
    servers.busy.store(true, Ordering::Relaxed);
    let refused = stale.authenticate(Some("role"), "").await.unwrap_err();
    assert_eq!(refused.code, Code::TooManyRequests);
    assert_eq!(refused.retry_after, 2);
    let kept = fresh.authenticate(Some("role"), "").await.unwrap();
    assert!(
        kept.acl.namespace_allows("web", Ns::ReadLogs),
        "its time is not over"
    );
    // The next query is made: no server was away.
    servers.busy.store(false, Ordering::Relaxed);
    let gone = stale.authenticate(Some("role"), "").await.unwrap();
    assert_eq!(gone.refusal, Some(Rejection::Unknown));
}

#[tokio::test]
async fn auth_06_a_workload_is_what_the_servers_say_while_its_time_lasts() {
    use drover_events::actor::ActorKind;
    const SIGNED: &str = "a.b.c";
    let servers = servers();
    let (kept, unkept) = (gate(&servers, KEPT), gate(&servers, Duration::ZERO));
    let none = asks(&kept, SIGNED).await;
    assert_eq!(none.refusal, Some(Rejection::Unknown));
    assert!(!kept.keeps(SIGNED), "it may be signed in the next moment");
    let claims = Claims {
        nomad_allocation_id: "one".to_owned(),
        nomad_job_id: "web".to_owned(),
        nomad_namespace: "default".to_owned(),
        nomad_task: "t".to_owned(),
        ..Claims::default()
    };
    let over = Claims {
        exp: Some(1),
        ..claims.clone()
    };
    let signed = [(SIGNED, claims), ("o.v.er", over)];
    let signed = signed.map(|(signed, claims)| (signed.to_owned(), claims));
    servers.workloads.lock().extend(signed);
    let ended = asks(&kept, "o.v.er").await;
    assert_eq!(ended.refusal, Some(Rejection::Expired));
    servers.calls.lock().clear();
    for gate in [&kept, &unkept] {
        for _ in 0..2 {
            let who = asks(gate, SIGNED).await;
            assert!(reads_logs(&who) && !who.is_management());
            assert_eq!(who.actor.kind, ActorKind::Workload);
            assert_eq!((who.label().as_str(), who.token), ("alloc:one", None));
            assert_eq!(who.actor.policies, ["read"]);
            let reads = |path| {
                who.acl
                    .variable_allows("default", path, VariableCapability::Read)
            };
            assert!(reads("nomad/jobs/web/g/t") && !reads("nomad/jobs/db"));
        }
    }
    assert_eq!(
        servers.calls("workload"),
        3,
        "the one that keeps it asks once"
    );
    assert_eq!(servers.calls("token"), 0, "it is no token's secret");
    assert!(kept.keeps(SIGNED) && !unkept.keeps(SIGNED));
    // No server says otherwise; and then one does.
    servers.away.store(true, Ordering::Relaxed);
    assert!(reads_logs(&asks(&unkept, SIGNED).await), "what was known");
    servers.away.store(false, Ordering::Relaxed);
    servers.policy("broken", "no policy {", 9);
    assert!(!reads_logs(&asks(&unkept, SIGNED).await), "it might deny");
    servers.workloads.lock().clear();
    let ended = asks(&unkept, SIGNED).await;
    assert_eq!(ended.refusal, Some(Rejection::Unknown));
}
