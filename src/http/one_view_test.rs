//! Answers that need several queries, and what is said when the state refuses.

use std::sync::Arc;

use drover_events::model::{Evaluation, Namespace};
use drover_projections::tables::evals::Evals;
use drover_projections::{Scan, View};
use drover_testkit::{LONG, eventually_async};
use serde_json::{Value, json};

use super::gate_test::who;
use super::harness::{Harness, job};
use super::reads_test::placed;
use crate::client::clock::Jitter;
use crate::commands::eval::UpsertEvals;
use crate::commands::namespace::UpsertNamespaces;
use crate::commands::node::UpdateNodeStatus;
use crate::gate::Gate;

/// What each target answers, and the index that it is of.
pub(super) async fn answers(h: &Harness, targets: &[String]) -> (u64, Vec<String>) {
    let of_one_index = async || {
        let index = h.server.projections.view().index();
        let mut bodies = Vec::new();
        for target in targets {
            let reply = h.get(target).await;
            assert_eq!(reply.status, 200, "{target}: {}", reply.text());
            bodies.push(reply.text());
        }
        match h.server.projections.view().index() == index {
            true => Ok((index, bodies)),
            false => Err("something was written meanwhile"),
        }
    };
    eventually_async("answers of one index", LONG, of_one_index)
        .await
        .unwrap()
}

/// A read of an earlier state is the same handler on an older view: a query that it makes on any
/// other view shows the present, where everything has changed since.
#[tokio::test(flavor = "multi_thread")]
async fn ev_10_every_query_of_an_answer_is_made_on_the_view_it_was_begun_with() {
    let (h, node) = placed().await;
    let stubs = h.get("/v1/job/web/allocations").await.json();
    let alloc = stubs[0]["ID"].as_str().unwrap().to_owned();
    let eval = stubs[0]["EvalID"].as_str().unwrap().to_owned();
    let deployment = h.get("/v1/job/web/deployment").await.json();
    let deployment = deployment["ID"].as_str().unwrap().to_owned();
    let targets = [
        "/v1/jobs?meta=true".to_owned(),
        "/v1/jobs/statuses".to_owned(),
        "/v1/job/web".to_owned(),
        "/v1/job/web/summary".to_owned(),
        "/v1/job/web/versions".to_owned(),
        "/v1/job/web/allocations".to_owned(),
        "/v1/job/web/evaluations".to_owned(),
        "/v1/job/web/deployments".to_owned(),
        "/v1/job/web/scale".to_owned(),
        "/v1/nodes?resources=true&os=true".to_owned(),
        format!("/v1/node/{node}"),
        format!("/v1/node/{node}/allocations"),
        "/v1/allocations?resources=true&task_states=true".to_owned(),
        format!("/v1/allocation/{alloc}"),
        format!("/v1/deployment/{deployment}"),
        format!("/v1/deployment/allocations/{deployment}"),
        "/v1/evaluations".to_owned(),
        "/v1/evaluations/count".to_owned(),
        format!("/v1/evaluation/{eval}/allocations"),
        "/v1/namespaces".to_owned(),
    ];
    let (index, then) = answers(&h, &targets).await;

    let health = json!({"DeploymentID": deployment, "HealthyAllocationIDs": [alloc]});
    let target = format!("/v1/deployment/allocation-health/{deployment}");
    assert_eq!(h.put(&target, &health).await.status, 200);
    let namespaces = vec![Namespace {
        name: "prod".into(),
        ..Namespace::default()
    }];
    h.submit(UpsertNamespaces { namespaces }).await;
    let mut changed = job("web");
    changed["Job"]["Meta"] = json!({"team": "another"});
    changed["Job"]["TaskGroups"][0]["Count"] = json!(2);
    assert_eq!(h.put("/v1/jobs", &changed).await.status, 200);
    let down = UpdateNodeStatus {
        node_id: node,
        status: "down".to_owned(),
        event: None,
    };
    h.submit(down).await;
    assert_eq!(h.ask("DELETE", "/v1/job/web", "").await.status, 200);
    let stopped = |alloc: &Value| alloc["DesiredStatus"] == "stop";
    h.until(&format!("/v1/allocation/{alloc}"), stopped).await;

    for (target, then) in targets.iter().zip(&then) {
        let and = if target.contains('?') { '&' } else { '?' };
        let now = h.get(target).await.text();
        assert_ne!(
            &now, then,
            "{target} must have changed, or nothing is shown"
        );
        let past = h.get(&format!("{target}{and}as_of={index}")).await;
        assert_eq!(past.status, 200, "{target}: {}", past.text());
        assert_eq!(&past.text(), then, "{target}");
    }
    h.stop().await;
}

const NAMESPACES: [&str; 2] = ["default", "prod"];
/// None that the scheduler takes up.
const STATUSES: [&str; 3] = ["canceled", "complete", "failed"];

fn random_eval(chance: &mut Jitter) -> Evaluation {
    let mut below = |n: i64| usize::try_from(chance.below(n)).unwrap();
    let id = format!(
        "{:08x}-{:04x}-4000-8000-{:012x}",
        below(1 << 32),
        below(1 << 16),
        below(1 << 40)
    );
    Evaluation {
        id,
        namespace: NAMESPACES[below(2)].into(),
        job_id: format!("job-{}", below(4)),
        priority: 50 + below(3) as i64,
        r#type: "service".into(),
        triggered_by: "job-register".into(),
        status: STATUSES[below(3)].into(),
        ..Evaluation::default()
    }
}

fn all_evals(view: &View) -> Vec<Evaluation> {
    view.scan::<Evals>(Scan::all())
        .map(Result::unwrap)
        .collect()
}

type Matches = fn(&Evaluation) -> bool;

/// A list and its count are as long for the caller, or refused both.
async fn agree(h: &Harness, token: &str, query: &str, wanted: Option<usize>) {
    let list = h.seen(token, &format!("/v1/evaluations?{query}")).await;
    let count = h
        .seen(token, &format!("/v1/evaluations/count?{query}"))
        .await;
    let Some(wanted) = wanted else {
        let refused = (list.status, count.status);
        assert_eq!(refused, (403, 403), "{token} {query}");
        return;
    };
    let list = list.json().as_array().map(Vec::len);
    assert_eq!(list, Some(wanted), "{token} {query}");
    assert_eq!(count.json()["Count"], wanted, "{token} {query}");
}

#[tokio::test(flavor = "multi_thread")]
async fn eval_10_a_count_is_the_length_of_the_list_for_random_data_and_queries() {
    let h = Harness::asking(Gate::fixed(who)).await;
    let namespaces = vec![Namespace {
        name: "prod".into(),
        ..Namespace::default()
    }];
    h.submit(UpsertNamespaces { namespaces }).await;
    let mut chance = Jitter(11);
    let (evals, decision) = ((0..400).map(|_| random_eval(&mut chance)).collect(), None);
    h.submit(UpsertEvals { evals, decision }).await;
    let all = all_evals(&h.server.projections.view());
    assert_eq!(all.len(), 400);
    let filters: [(&str, Matches); 4] = [
        ("", |_| true),
        ("JobID == \"job-1\"", |e| e.job_id == "job-1"),
        ("Status == \"failed\" and Priority != 50", |e| {
            e.status == "failed" && e.priority != 50
        }),
        ("Namespace == \"prod\" or JobID == \"job-2\"", |e| {
            e.namespace == "prod" || e.job_id == "job-2"
        }),
    ];
    let mut lengths = std::collections::BTreeSet::new();
    for (filter, matches) in filters {
        for namespace in ["", "default", "prod", "*", "nowhere"] {
            for prefix in ["", "0a", &all[7].id[..2], &all[9].id[..8], "ffffff"] {
                let query = format!(
                    "filter={}&namespace={namespace}&prefix={prefix}",
                    filter.replace(' ', "+").replace('"', "%22")
                );
                let of = if namespace.is_empty() {
                    "default"
                } else {
                    namespace
                };
                let wanted = all.iter().filter(|eval| {
                    matches(eval)
                        && (of == "*" || eval.namespace == of)
                        && eval.id.starts_with(prefix)
                });
                let wanted: Vec<_> = wanted.collect();
                agree(&h, "root", &query, Some(wanted.len())).await;
                // A caller that may read one namespace counts what is there, also where it requests
                // all.
                let own = wanted.iter().filter(|eval| eval.namespace == "prod");
                let own = ["prod", "*"].contains(&of).then(|| own.count());
                agree(&h, "all:prod", &query, own).await;
                lengths.insert(wanted.len());
            }
        }
    }
    assert!(lengths.len() > 10, "each parameter matters: {lengths:?}");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eval_07_a_deletion_that_loses_its_leader_fails_and_keeps_its_pages() {
    const EVALS: usize = 4_096;
    let h = Arc::new(Harness::start().await);
    let config = json!({"SchedulerAlgorithm": "binpack", "PauseEvalBroker": true});
    let target = "/v1/operator/scheduler/configuration";
    assert_eq!(h.put(target, &config).await.status, 200);
    let mut chance = Jitter(7);
    let mut evals: Vec<_> = (0..EVALS).map(|_| random_eval(&mut chance)).collect();
    for eval in &mut evals {
        eval.namespace = "default".into();
    }
    for page in evals.chunks(512) {
        let (evals, decision) = (page.to_vec(), None);
        h.submit(UpsertEvals { evals, decision }).await;
    }
    // The more a row costs to look at, the shorter the pages.
    let costly: Vec<_> = (0..250).map(|n| format!("JobID == \"no-{n}\"")).collect();
    let filter = format!("{} or Priority != 1", costly.join(" or "));
    let body = json!({"Filter": filter}).to_string();
    let deleting = {
        let h = Arc::clone(&h);
        tokio::spawn(async move { h.ask("DELETE", "/v1/evaluations", body).await })
    };
    let left = || all_evals(&h.server.projections.view()).len();
    // It is over soon: every pass of it is looked for.
    let (begun, over) = (|| left() < EVALS, || deleting.is_finished());
    let begun = tokio::task::block_in_place(|| drover_testkit::moment(begun, over));
    assert!(begun, "nothing was deleted");
    h.server.raft.shutdown().await;
    let answer = deleting.await.unwrap();
    let left = left();
    assert!(0 < left && left < EVALS, "{left} are left");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (500, "No cluster leader")
    );
    Arc::into_inner(h)
        .expect("nobody else holds it")
        .stop()
        .await;
}

/// What the state refuses: method, target and body.
fn refused(none: &str) -> Vec<(&'static str, String, Value)> {
    let with = |key: &str, value: &str| {
        let mut changed = job("web");
        changed["Job"][key] = json!(value);
        changed
    };
    let stable = json!({"JobID": "web", "JobVersion": 9, "Stable": true});
    let ineligible = json!({"NodeID": none, "Eligibility": "ineligible"});
    let of = |method, target: &str, body| (method, target.replace("{none}", none), body);
    vec![
        of("PUT", "/v1/jobs", with("Namespace", "nope")),
        of("PUT", "/v1/jobs", with("NodePool", "gpu")),
        of("PUT", "/v1/job/ghost/evaluate", json!({"JobID": "ghost"})),
        of("PUT", "/v1/job/web/stable", stable),
        of(
            "PUT",
            "/v1/job/web/revert",
            json!({"JobID": "web", "JobVersion": 9}),
        ),
        of("PUT", "/v1/node/{none}/eligibility", ineligible),
        of(
            "PUT",
            "/v1/deployment/fail/{none}",
            json!({"DeploymentID": none}),
        ),
        of("PUT", "/v1/allocation/{none}/stop", json!({})),
        of("DELETE", "/v1/namespace/default", json!({})),
        of("DELETE", "/v1/namespace/ghost", json!({})),
        of("DELETE", "/v1/node/pool/ghost", json!({})),
        of("DELETE", "/v1/evaluations", json!({"EvalIDs": [none]})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_18_what_the_state_refuses_names_its_object_and_says_each_thing_once() {
    let h = Harness::start().await;
    h.register("web").await;
    let none = "0b156e3e-bb39-cc04-5170-80b70d217ba2";
    let mut found = Vec::new();
    for (method, target, body) in refused(none) {
        let reply = h.ask(method, &target, body.to_string()).await;
        let text = reply.text();
        let mut parts: Vec<_> = text.split(": ").map(str::trim).collect();
        let all = parts.len();
        parts.sort_unstable();
        parts.dedup();
        assert_eq!(parts.len(), all, "{target} says something twice: {text}");
        found.push(format!("{method} {target} {} {text}", reply.status));
    }
    let wanted = [
        "PUT /v1/jobs 500 nonexistent namespace \"nope\"",
        "PUT /v1/jobs 500 job \"web\" is in nonexistent node pool \"gpu\"",
        "PUT /v1/job/ghost/evaluate 500 job not found",
        "PUT /v1/job/web/stable 500 job \"web\" in namespace \"default\" at version 9 not found",
        "PUT /v1/job/web/revert 500 job \"web\" in namespace \"default\" at version 9 not found",
        "PUT /v1/node/{none}/eligibility 500 node not found",
        "PUT /v1/deployment/fail/{none} 500 deployment not found",
        "PUT /v1/allocation/{none}/stop 404 allocation not found",
        "DELETE /v1/namespace/default 500 can not delete default namespace",
        "DELETE /v1/namespace/ghost 500 namespace not found",
        "DELETE /v1/node/pool/ghost 404 node pool ghost not found",
        "DELETE /v1/evaluations 500 eval broker is enabled; eval broker must be paused to \
         delete evals",
    ];
    let wanted = wanted.map(|line| line.replace("{none}", none));
    assert_eq!(found, wanted);
    h.stop().await;
}
