//! Every list, count and search of the router, and the stream, in a world with one of everything in
//! red and in blue: a manager is shown both, who has every right in red is shown red.

use std::collections::BTreeSet;

use drover_events::model::{AclPolicy, AclRole, AclRolePolicyLink};
use serde_json::{Value, json};

use super::both_world_test::Both;
use super::router;
use crate::commands::acl::{UpsertAclPolicies, UpsertAclRoles};

/// What reads many things at once: the method, the target, the body, and whether there is
/// something of red in it.
type List = (&'static str, &'static str, fn() -> Value, bool);

fn none() -> Value {
    Value::Null
}

fn all_contexts(prefix: &str, context: &str) -> Value {
    json!({"Prefix": prefix, "Text": prefix, "Context": context, "Namespace": "*"})
}

const LISTS: &[List] = &[
    ("GET", "/v1/jobs?namespace=*", none, true),
    ("GET", "/v1/jobs?namespace=*&meta=true", none, true),
    (
        "GET",
        "/v1/jobs?namespace=*&filter=Namespace!=%22green%22",
        none,
        true,
    ),
    ("GET", "/v1/jobs?namespace=*&per_page=5", none, true),
    (
        "GET",
        "/v1/jobs?namespace=*&per_page=5&reverse=true",
        none,
        true,
    ),
    ("GET", "/v1/jobs/statuses?namespace=*", none, true),
    ("GET", "/v1/evaluations?namespace=*", none, true),
    (
        "GET",
        "/v1/evaluations?namespace=*&reverse=true",
        none,
        true,
    ),
    ("GET", "/v1/allocations?namespace=*", none, true),
    (
        "GET",
        "/v1/allocations?namespace=*&resources=true",
        none,
        true,
    ),
    ("GET", "/v1/deployments?namespace=*", none, true),
    ("GET", "/v1/services?namespace=*", none, true),
    ("GET", "/v1/scaling/policies?namespace=*", none, true),
    ("GET", "/v1/vars?namespace=*", none, true),
    ("GET", "/v1/volumes?type=csi&namespace=*", none, true),
    ("GET", "/v1/volumes?type=host&namespace=*", none, true),
    ("GET", "/v1/volumes/claims?namespace=*", none, true),
    ("GET", "/v1/namespaces", none, true),
    ("GET", "/v1/node/pools", none, true),
    ("GET", "/v1/acl/policies", none, false),
    ("GET", "/v1/acl/roles", none, false),
    (
        "POST",
        "/v1/jobs/statuses",
        || {
            let job = |name: &str| json!({"ID": format!("job-{name}"), "Namespace": name});
            json!({"Jobs": [job("blue"), job("red")]})
        },
        true,
    ),
    ("PUT", "/v1/search", || all_contexts("job", ""), true),
    ("PUT", "/v1/search", || all_contexts("", "vars"), true),
    (
        "PUT",
        "/v1/search",
        || all_contexts("data", "volumes"),
        true,
    ),
    (
        "PUT",
        "/v1/search",
        || json!({"Prefix": "b", "Context": "namespaces"}),
        false,
    ),
    ("PUT", "/v1/search/fuzzy", || all_contexts("job", ""), true),
    (
        "PUT",
        "/v1/search/fuzzy",
        || all_contexts("blue", ""),
        false,
    ),
    (
        "PUT",
        "/v1/search/fuzzy",
        || all_contexts("secret", "vars"),
        true,
    ),
];

/// Routes that name nothing either and are not in the table, and why.
const OTHERS: &[(&str, &str)] = &[
    ("GET /v1/acl/policy/self", "what the caller holds itself"),
    ("GET /v1/acl/token/self", "what the caller holds itself"),
    ("PUT /v1/acl/token/onetime", "what the caller holds itself"),
    ("GET /v1/audit", "past_rights_test"),
    ("PUT /v1/audit", "past_rights_test"),
    ("GET /v1/audit/trace", "past_rights_test"),
    ("GET /v1/state/diff", "past_rights_test"),
    (
        "GET /v1/event/stream",
        "the_stream_tells_of_no_other_namespace",
    ),
    (
        "GET /v1/evaluations/count",
        "eval_10_a_wildcard_counts_what_the_caller_may_read_and_nothing_else",
    ),
    ("GET /v1/plugins", "what is in no namespace"),
    (
        "GET /v1/volumes/external",
        "what a provider has, which is in no namespace",
    ),
    (
        "GET /v1/volumes/snapshot",
        "what a provider has, which is in no namespace",
    ),
    (
        "PUT /v1/volumes/snapshot",
        "a write in the namespace of the request",
    ),
    (
        "DELETE /v1/volumes/snapshot",
        "a write in the namespace of the request",
    ),
    ("PUT /v1/jobs", "a write, by what is in the body"),
    ("PUT /v1/jobs/parse", "it answers what it is given"),
    ("PUT /v1/validate/job", "it answers what it is given"),
    ("PUT /v1/node/pools", "a write, by what is in the body"),
    ("PUT /v1/volumes", "a write, by what is in the body"),
    (
        "PUT /v1/volume/host/create",
        "a write, by what is in the body",
    ),
    (
        "PUT /v1/volume/host/register",
        "a write, by what is in the body",
    ),
];

/// Routes whose paths name nothing and that let in a caller with a right to some rows of theirs:
/// each is in [`LISTS`], or in [`OTHERS`] with the reason.
fn registered() -> BTreeSet<String> {
    let of_rows = |access: &str| {
        let of_none = ["agent:", "operator", "node:"].iter();
        let mut of_none = of_none.chain(&["public", "management", "anyone; refused"]);
        !of_none.any(|begin| access.starts_with(begin))
    };
    let lines = router::lines().into_iter();
    let lines = lines.filter(|line| !line.path.contains('{') && of_rows(&line.access));
    let route = |line: router::RouteLine| {
        let method = line.methods.split(", ").next().expect("a method");
        format!("{method} {}", line.path)
    };
    lines.map(route).collect()
}

#[test]
fn auth_12_every_list_is_tried_by_who_may_see_some_of_it() {
    let tried = LISTS.iter().map(|(method, target, ..)| {
        let path = target.split('?').next().expect("a path");
        format!("{method} {path}")
    });
    let others = OTHERS.iter().map(|(route, _)| (*route).to_owned());
    let known: BTreeSet<String> = tried.chain(others).collect();
    assert_eq!(known, registered());
}

/// What is in no namespace, and what no caller but a manager is shown unless it holds it.
async fn policy_and_role(both: &Both) {
    let policies = vec![AclPolicy {
        name: "policy-blue".into(),
        rules: "agent { policy = \"read\" }".into(),
        ..AclPolicy::default()
    }];
    both.world.h.submit(UpsertAclPolicies { policies }).await;
    let link = AclRolePolicyLink {
        name: "policy-blue".into(),
    };
    let roles = vec![AclRole {
        name: "role-blue".into(),
        policies: vec![link].into(),
        ..AclRole::default()
    }];
    let allow_missing_policies = false;
    let command = UpsertAclRoles {
        roles,
        allow_missing_policies,
    };
    both.world.h.submit(command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_search_or_page_shows_another_namespace() {
    let both = Both::start().await;
    policy_and_role(&both).await;
    let server = &both.world.h;
    let index = both.world.index();
    for (method, target, body, has_red) in LISTS {
        let body = match body() {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let what = format!("{method} {target} {body}");
        let all = server.by("root", method, target, &body).await;
        assert!(
            all.text().contains("blue"),
            "it is there: {what}: {}",
            all.text()
        );
        let own = server.by("all:red", method, target, &body).await;
        let text = own.text() + own.header("x-nomad-nexttoken");
        assert_eq!(own.status, 200, "{what}: {text}");
        assert_eq!(text.contains("red"), *has_red, "{what}: {text}");
        assert!(!text.contains("blue"), "{what}: {text}");
        if *method == "GET" {
            // Nor is anything of it shown of a moment that is past.
            let sign = if target.contains('?') { '&' } else { '?' };
            let target = format!("{target}{sign}as_of={index}");
            let all = server.seen("root", &target).await;
            assert!(all.text().contains("blue"), "{target}: {}", all.text());
            let own = server.seen("all:red", &target).await;
            assert_eq!(own.status, 200, "{target}: {}", own.text());
            assert_eq!(
                own.text().contains("red"),
                *has_red,
                "{target}: {}",
                own.text()
            );
            assert!(!own.text().contains("blue"), "{target}: {}", own.text());
        }
        // A caller with a right somewhere else only is shown nothing.
        let nothing = server.by("nothing", method, target, &body).await;
        let text = nothing.text();
        assert!(matches!(nothing.status, 200 | 403), "{what}: {text}");
        assert!(
            !text.contains("blue") && !text.contains("-red"),
            "{what}: {text}"
        );
    }
    both.world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_volumes_and_their_claims_are_listed_by_what_they_are_of() {
    let both = Both::start().await;
    let claims = "/v1/volumes/claims?namespace=*";
    let volumes = "/v1/volumes?type=host&namespace=*";
    let (of_claim, of_volume) = (&both.red.claim, &both.red.host_volume);
    for (list, query, count) in [
        (claims, String::new(), 2),
        (claims, format!("&prefix={of_claim}"), 1),
        (claims, format!("&prefix={of_claim}&job_id=job-blue"), 0),
        (claims, "&job_id=job-red".to_owned(), 1),
        (claims, "&task_group=g".to_owned(), 2),
        (claims, "&task_group=h".to_owned(), 0),
        (claims, "&volume_name=disk-red".to_owned(), 1),
        (
            claims,
            "&job_id=job-red&volume_name=disk-blue".to_owned(),
            0,
        ),
        (volumes, String::new(), 2),
        (volumes, format!("&prefix={of_volume}"), 1),
        (volumes, "&node_pool=default".to_owned(), 2),
        (volumes, "&node_pool=pool-red".to_owned(), 0),
    ] {
        let target = format!("{list}{query}");
        let found = both.world.h.seen("root", &target).await.json();
        assert_eq!(found.as_array().map(Vec::len), Some(count), "{target}");
    }
    both.world.h.stop().await;
}
