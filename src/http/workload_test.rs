//! Workloads that call, by what servers signed of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drover_events::model::{Allocation, Namespace};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::attacks_test::{ask, guarded};
use super::harness::Harness;
use super::reads_test::placed_on;
use crate::acl::{NamespaceCapability as Ns, VariableCapability};
use crate::base::clock::unix_nanos;
use crate::commands::alloc::UpdateAllocsFromClient;
use crate::commands::namespace::UpsertNamespaces;
use crate::endpoints;
use crate::gate::{Gate, Ttls};
use crate::identity::Rejection;
use crate::keyring::{Claims, RootKey, WorkloadIdentity};
use crate::rpc::caller::Caller;
use crate::rpc::methods::AclClaimPoliciesRequest;

const SECOND: i64 = 1_000_000_000;

/// A server with access control and a service that runs; who runs it is its first allocation.
struct World {
    h: Harness,
    routes: Router,
    root: String,
    node: String,
    alloc: String,
}

impl World {
    async fn start() -> Self {
        let (h, node) = placed_on(Harness::with_acls().await).await;
        let stubs = h.get("/v1/job/web/allocations").await.json();
        let alloc = stubs[0]["ID"].as_str().unwrap().to_owned();
        let namespaces = vec![Namespace {
            name: "other".to_owned(),
            ..Namespace::default()
        }];
        h.submit(UpsertNamespaces { namespaces }).await;
        let routes = guarded(&h);
        let made = ask(&routes, "", "PUT", "/v1/acl/bootstrap", &Value::Null).await;
        let root = made.1["SecretID"].as_str().unwrap().to_owned();
        let world = Self {
            h,
            routes,
            root,
            node,
            alloc,
        };
        for path in OWN.into_iter().chain(OTHERS) {
            for namespace in ["default", "other"] {
                let body = json!({"Items": {"k": "v"}});
                let target = format!("/v1/var/{path}?namespace={namespace}");
                let put = world.by(&world.root, "PUT", &target, &body).await;
                assert_eq!(put.0, 200, "{target}: {}", put.1);
            }
        }
        world
    }

    async fn by(&self, token: &str, method: &str, target: &str, body: &Value) -> (u16, Value) {
        ask(&self.routes, token, method, target, body).await
    }

    async fn get(&self, token: &str, target: &str) -> u16 {
        self.by(token, "GET", target, &Value::Null).await.0
    }

    fn workload(&self) -> WorkloadIdentity {
        workload(&self.alloc)
    }

    fn signed(&self, claims: &Claims) -> String {
        signed(&self.h, claims)
    }

    fn token(&self, workload: &WorkloadIdentity) -> String {
        self.signed(&workload.claims(unix_nanos()))
    }

    async fn ends(&self) {
        ends(&self.h, &self.node, &self.alloc).await;
    }
}

/// Task t of group g of job web, in this allocation.
pub(super) fn workload(alloc: &str) -> WorkloadIdentity {
    WorkloadIdentity {
        region: "global".to_owned(),
        namespace: "default".to_owned(),
        job_id: "web".to_owned(),
        group: "g".to_owned(),
        task: "t".to_owned(),
        alloc_id: alloc.to_owned(),
        name: "default".to_owned(),
        ..WorkloadIdentity::default()
    }
}

/// What a server signs.
pub(super) fn signed(h: &Harness, claims: &Claims) -> String {
    let keyring = &h.server.keyring;
    let key = keyring.active().unwrap();
    keyring.sign(key.id(), claims).unwrap()
}

/// An allocation ends, as its node says.
pub(super) async fn ends(h: &Harness, node: &str, alloc: &str) {
    let reported = Allocation {
        id: alloc.to_owned(),
        node_id: node.to_owned(),
        client_status: "complete".to_owned(),
        ..Allocation::default()
    };
    let command = UpdateAllocsFromClient {
        allocs: vec![reported],
        caller: None,
    };
    h.submit(command).await;
}

/// What a workload of task t of group g of job web may read by itself.
const OWN: [&str; 4] = [
    "nomad/jobs",
    "nomad/jobs/web",
    "nomad/jobs/web/g",
    "nomad/jobs/web/g/t",
];
const OTHERS: [&str; 5] = [
    "nomad/jobs/db",
    "nomad/jobs/web/g2",
    "nomad/jobs/web/g/t2",
    "nomad/jobs/web/g/t/below",
    "secret",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wi_05_auth_06_a_workload_is_who_asks_while_its_allocation_lives() {
    let world = World::start().await;
    let token = world.token(&world.workload());
    let own = "/v1/var/nomad/jobs/web";
    assert_eq!(world.get(&token, own).await, 200);
    // In the header that other callers use too.
    let bearer = hyper::Request::builder()
        .uri(own)
        .header("authorization", format!("Bearer {token}"));
    let bearer = bearer.body(axum::body::Body::empty()).unwrap();
    let answer = tower::ServiceExt::oneshot(world.routes.clone(), bearer).await;
    assert_eq!(answer.unwrap().status(), 200);
    let missing = WorkloadIdentity {
        alloc_id: uuid::Uuid::new_v4().to_string(),
        ..world.workload()
    };
    assert_eq!(world.get(&world.token(&missing), own).await, 403);
    world.ends().await;
    let refused = world.by(&token, "GET", own, &Value::Null).await;
    assert_eq!(refused, (403, json!("Permission denied")));
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wi_08_a_workload_reads_its_own_variables_and_nothing_else() {
    let world = World::start().await;
    let token = world.token(&world.workload());
    for path in OWN {
        let target = format!("/v1/var/{path}");
        assert_eq!(world.get(&token, &target).await, 200, "{path}");
        let elsewhere = format!("{target}?namespace=other");
        assert_eq!(world.get(&token, &elsewhere).await, 403, "{path}");
        let body = json!({"Items": {"k": "w"}});
        for method in ["PUT", "DELETE"] {
            let changed = world.by(&token, method, &target, &body).await;
            assert_eq!(changed.0, 403, "{method} {path}");
        }
    }
    for path in OTHERS {
        let target = format!("/v1/var/{path}");
        assert_eq!(world.get(&token, &target).await, 403, "{path}");
    }
    let listed = world.by(&token, "GET", "/v1/vars", &Value::Null).await;
    let listed = listed.1.as_array().unwrap().clone();
    let paths: Vec<_> = listed
        .iter()
        .filter_map(|one| one["Path"].as_str())
        .collect();
    assert_eq!(paths, OWN);
    for target in [
        "/v1/job/web",
        "/v1/nodes",
        "/v1/acl/tokens",
        "/v1/acl/token/self",
        "/v1/agent/self",
        "/v1/operator/snapshot",
    ] {
        assert_eq!(world.get(&token, target).await, 403, "{target}");
    }
    // A service's identity has no task.
    let service = WorkloadIdentity {
        service: "http".to_owned(),
        task: String::new(),
        ..world.workload()
    };
    let token = world.token(&service);
    assert_eq!(world.get(&token, "/v1/var/nomad/jobs/web/g").await, 200);
    assert_eq!(world.get(&token, "/v1/var/nomad/jobs/web/g/t").await, 403);
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wi_09_acl_15_acl_16_a_workload_has_the_policies_of_its_job_too() {
    let world = World::start().await;
    let token = world.token(&world.workload());
    let reads = r#"namespace "default" { policy = "read" }"#;
    for (scope, may) in [
        (json!({"Namespace": "default", "JobID": "db"}), 403),
        (json!({"Namespace": "other", "JobID": "web"}), 403),
        (
            json!({"Namespace": "default", "JobID": "web", "Group": "g2"}),
            403,
        ),
        (
            json!({"Namespace": "default", "JobID": "web", "Group": "g", "Task": "t2"}),
            403,
        ),
        (
            json!({"Namespace": "default", "JobID": "web", "Group": "g", "Task": "t"}),
            200,
        ),
        (
            json!({"Namespace": "default", "JobID": "web", "Group": "g"}),
            200,
        ),
        (json!({"Namespace": "default", "JobID": "web"}), 200),
    ] {
        let body = json!({"Name": "jobs", "Rules": reads, "JobACL": scope});
        let put = world
            .by(&world.root, "PUT", "/v1/acl/policy/jobs", &body)
            .await;
        assert_eq!(put.0, 200, "{}", put.1);
        assert_eq!(world.get(&token, "/v1/job/web").await, may, "{scope}");
        assert_eq!(world.get(&token, "/v1/var/nomad/jobs/web").await, 200);
        let held = world
            .by(&token, "GET", "/v1/acl/policies", &Value::Null)
            .await;
        let names = held.1.as_array().unwrap().len();
        assert_eq!(names, usize::from(may == 200), "{scope}: {}", held.1);
    }
    // One of a name that looks so is attached to nothing (ACL-16).
    for name in ["jobs", "web", "default-web", "web-g-t"] {
        let body = json!({"Name": name, "Rules": reads});
        let target = format!("/v1/acl/policy/{name}");
        let put = world.by(&world.root, "PUT", &target, &body).await.0;
        assert_eq!(put, 200, "{name}");
        assert_eq!(world.get(&token, "/v1/job/web").await, 403, "{name}");
    }
    // Patterns do not take away what is its own; its own path by name does.
    for (path, may) in [("*", 200), ("nomad/jobs/web", 403)] {
        let denied = format!("path \"{path}\" {{ capabilities = [\"deny\"] }}");
        let rules = format!("namespace \"default\" {{ variables {{ {denied} }} }}");
        let scope = json!({"Namespace": "default", "JobID": "web"});
        let body = json!({"Name": "jobs", "Rules": rules, "JobACL": scope});
        let put = world
            .by(&world.root, "PUT", "/v1/acl/policy/jobs", &body)
            .await;
        assert_eq!(put.0, 200, "{}", put.1);
        assert_eq!(
            world.get(&token, "/v1/var/nomad/jobs/web").await,
            may,
            "{path}"
        );
    }
    world.h.stop().await;
}

/// An agent without tables gets the same from servers as they answer themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_06_acl_15_a_client_is_told_by_servers_who_a_workload_is_and_what_it_may() {
    let world = World::start().await;
    for (name, job) in [("web", "web"), ("db", "db")] {
        let rules = format!("namespace \"{name}\" {{ policy = \"read\" }}");
        let scope = json!({"Namespace": "default", "JobID": job});
        let body = json!({"Name": name, "Rules": rules, "JobACL": scope});
        let target = format!("/v1/acl/policy/{name}");
        let put = world.by(&world.root, "PUT", &target, &body).await;
        assert_eq!(put.0, 200, "{}", put.1);
    }
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let service = endpoints::service(Arc::clone(&world.h.server.0), beat);
    let ttls = Ttls {
        token: Duration::ZERO,
        policy: Duration::ZERO,
        role: Duration::ZERO,
    };
    let gate = Gate::far(Caller::process(Arc::new(service), ""), ttls);
    let token = world.token(&world.workload());
    let who = gate.authenticate(Some(&token), "10.0.0.1").await.unwrap();
    assert_eq!(who.label(), format!("alloc:{}", world.alloc));
    assert_eq!(who.actor.policies, ["web"]);
    let may = |namespace| who.acl.namespace_allows(namespace, Ns::ReadJob);
    assert!(may("web") && !may("db") && !may("default"));
    let requested = ("default", "nomad/jobs/web/g/t", VariableCapability::Read);
    assert!(
        who.acl
            .variable_allows(requested.0, requested.1, requested.2)
    );
    // Not signed here, and of one that has ended.
    let requested = AclClaimPoliciesRequest {
        signed: token.clone(),
    };
    assert!(!format!("{requested:?}").contains(&token));
    let mut forged = token.clone();
    forged.pop();
    world.ends().await;
    for token in [&forged, &token] {
        let who = gate.authenticate(Some(token), "").await.unwrap();
        assert_eq!(who.refusal, Some(Rejection::Unknown));
    }
    world.h.stop().await;
}

/// The three parts of something signed, the second and the first as documents.
fn parts(token: &str) -> (Value, Value, String) {
    let parts: Vec<_> = token.split('.').collect();
    let read = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    (read(parts[0]), read(parts[1]), parts[2].to_owned())
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// What was not signed, or not for this.
fn forged(world: &World) -> Vec<(&'static str, String)> {
    let now = unix_nanos();
    let good = world.token(&world.workload());
    let (header, claims, signature) = parts(&good);
    let mut altered = claims.clone();
    altered["nomad_job_id"] = json!("db");
    let mut none = header.clone();
    none["alg"] = json!("none");
    // By what every caller may know of the key.
    let key = world.h.server.keyring.active().unwrap();
    let symmetric = Header {
        kid: Some(key.id().to_owned()),
        ..Header::new(Algorithm::HS256)
    };
    let public = key.public_identity();
    let secret = EncodingKey::from_secret(public.as_bytes());
    let symmetric = jsonwebtoken::encode(&symmetric, &claims, &secret).unwrap();
    let another = RootKey::generate(uuid::Uuid::new_v4().to_string(), now).unwrap();
    let mut named = header.clone();
    named["kid"] = json!(another.id());
    let for_vault = WorkloadIdentity {
        audience: vec!["vault.io".to_owned()],
        ..world.workload()
    };
    let short = WorkloadIdentity {
        ttl_ns: SECOND,
        ..world.workload()
    };
    let early = world.workload().claims(now + 3_600 * SECOND);
    vec![
        (
            "altered",
            format!("{}.{}.{signature}", part(&header), part(&altered)),
        ),
        ("unsigned", format!("{}.{}.", part(&none), part(&claims))),
        (
            "none, signed",
            format!("{}.{}.{signature}", part(&none), part(&claims)),
        ),
        ("symmetric", symmetric),
        (
            "another key",
            format!("{}.{}.{signature}", part(&named), part(&claims)),
        ),
        ("another audience", world.token(&for_vault)),
        ("over", world.signed(&short.claims(now - 10 * SECOND))),
        ("to come", world.signed(&early)),
        ("cut", good[..good.len() - 4].to_owned()),
        ("longer", format!("{good}AAAA")),
        ("empty parts", "..".to_owned()),
        ("no document", "a.b.c".to_owned()),
        (
            "huge",
            format!("{}.{}.{signature}", part(&header), "A".repeat(20_000)),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wi_06_what_was_not_signed_so_is_nobodys() {
    let world = World::start().await;
    let own = "/v1/var/nomad/jobs/web";
    let good = world.token(&world.workload());
    assert_eq!(world.get(&good, own).await, 200);
    for (what, token) in forged(&world) {
        let refused = world.by(&token, "GET", own, &Value::Null).await;
        assert_eq!(refused, (403, json!("Permission denied")), "{what}");
    }
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_07_a_workload_is_counted_as_its_allocation_and_what_it_gave_is_told_to_nobody() {
    let world = World::start().await;
    let token = world.token(&world.workload());
    assert_eq!(world.get(&token, "/v1/var/nomad/jobs/web").await, 200);
    let scrape = "/v1/metrics?format=prometheus";
    let text = ask(&world.routes, &world.root, "GET", scrape, &Value::Null)
        .await
        .1;
    let text = text.as_str().unwrap();
    let label = format!("identity=\"alloc:{}\"", world.alloc);
    assert!(text.contains(&label), "{text}");
    assert!(!text.contains(token.rsplit('.').next().unwrap()));
    world.h.stop().await;
}
