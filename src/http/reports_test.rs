//! What clients report, as it is read afterwards: whose cause it had, and who waits for it.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::eval::EvalsUpserted;
use drover_events::model::Evaluation;
use drover_events::model::status::trigger;
use drover_projections::tables::allocs::{AllocRow, Allocs};
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Interest, Scan, Table, View};
use drover_testkit::{LONG, eventually_async, so};
use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::timeout;

use super::harness::{Given, Harness};
use super::request::Request;

/// What is found in a table, once it is there.
async fn once<T: Table, F>(h: &Harness, what: &str, find: impl Fn(&View) -> Option<F>) -> F {
    let found = async {
        loop {
            let interest = Interest::table::<T>();
            let waiter = h.api.projections.watch().register(&[interest]);
            let found = find(&h.api.projections.view());
            if let Some(found) = found {
                return found;
            }
            waiter.await;
        }
    };
    let in_time = timeout(LONG, found).await;
    in_time.unwrap_or_else(|_| panic!("waited {LONG:?} for {what}"))
}

/// The allocation of a job, once it is placed.
async fn placed(h: &Harness, job: &str) -> AllocRow {
    let of_job = |view: &View| {
        let mut rows = view.scan::<Allocs>(Scan::all()).map(Result::unwrap);
        rows.find(|row| row.job_id == job)
    };
    once::<Allocs, _>(h, "a place", of_job).await
}

fn update(row: &AllocRow, status: &str) -> ClientAllocUpdate {
    ClientAllocUpdate {
        id: row.id.clone(),
        client_status: status.into(),
        client_description: "told".into(),
        cause: row.alloc_modify_index,
        ..ClientAllocUpdate::default()
    }
}

/// Kinds, and ids of things, of every node of a tree, each under the node's index.
fn walk(node: &Value, found: &mut BTreeMap<u64, BTreeSet<String>>) {
    let things = found.entry(node["Index"].as_u64().unwrap()).or_default();
    for thing in node["Things"].as_array().into_iter().flatten() {
        things.insert(thing["ID"].as_str().unwrap().to_owned());
    }
    for child in node["Children"].as_array().into_iter().flatten() {
        walk(child, found);
    }
}

fn tree(seen: &Value) -> BTreeMap<u64, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for root in seen["Roots"].as_array().unwrap() {
        walk(root, &mut found);
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_what_belongs_to_a_job_is_woken_by_that_alone() {
    let h = Harness::start().await;
    h.register_node().await;
    let mut rows = Vec::new();
    for job in ["one", "two"] {
        h.register(job).await;
        rows.push(placed(&h, job).await);
        // Until nothing of its placement is left to be done.
        let is_done = |view: &View| {
            let mut evals = view.scan::<Evals>(Scan::all()).map(Result::unwrap);
            let is_done = evals.all(|eval| eval.status != "pending");
            is_done.then_some(())
        };
        once::<Evals, _>(&h, "the end of evaluations", is_done).await;
    }
    for path in [
        "/v1/job/one/scale",
        "/v1/job/one/allocations",
        "/v1/job/one/deployment",
        "/v1/job/one/evaluations",
    ] {
        let (parts, ()) = hyper::Request::get(path).body(()).unwrap().into_parts();
        let request = Request::head(parts).unwrap();
        let own = super::jobs::watched(&request).unwrap();
        let mut waiter = h.api.projections.watch().register(&own);
        let mut is_woken = || (&mut waiter).now_or_never().is_some();
        let report = |row: &AllocRow, status: &str| {
            let own = ClientAllocUpdate {
                client_description: path.to_owned(),
                ..update(row, status)
            };
            let seen = AllocsUpdatedByClient {
                updates: vec![own],
                nodes: vec![row.node_id.clone()],
                ..AllocsUpdatedByClient::default()
            };
            h.submit(Given(seen.into()))
        };
        report(&rows[1], "running").await;
        assert!(!is_woken(), "{path} by an allocation of another job");
        report(&rows[0], "running").await;
        let about_allocs = path.ends_with("scale") || path.ends_with("allocations");
        assert_eq!(is_woken(), about_allocs, "{path} by its own");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_that_were_gathered_hang_each_under_its_own_cause() {
    let h = Harness::start().await;
    h.register_node().await;
    h.register("one").await;
    let one = placed(&h, "one").await;
    h.register("two").await;
    let two = placed(&h, "two").await;
    assert!(one.alloc_modify_index < two.alloc_modify_index);
    let evals: Vec<Evaluation> = ["one", "two"]
        .into_iter()
        .map(|id| {
            let view = h.api.projections.view();
            let job = view.get::<Jobs>(("default", id)).unwrap().unwrap();
            Evaluation::for_job(
                uuid::Uuid::new_v4().to_string(),
                &job,
                trigger::ALLOC_FAILURE,
            )
        })
        .collect();
    let (eval_one, eval_two) = (evals[0].id.clone(), evals[1].id.clone());
    let seen = AllocsUpdatedByClient {
        updates: vec![update(&one, "failed"), update(&two, "failed")],
        evals,
        nodes: vec![one.node_id.clone()],
        ..AllocsUpdatedByClient::default()
    };
    let batch = h.submit(Given(seen.into())).await;
    for (id_of, own, own_eval, other, other_eval) in [
        (
            format!("alloc:{}", one.id),
            &one,
            &eval_one,
            &two,
            &eval_two,
        ),
        (
            format!("alloc:{}", two.id),
            &two,
            &eval_two,
            &one,
            &eval_one,
        ),
        (
            format!("job:{}", one.job_id),
            &one,
            &eval_one,
            &two,
            &eval_two,
        ),
        (
            format!("job:{}", two.job_id),
            &two,
            &eval_two,
            &one,
            &eval_one,
        ),
        (format!("eval:{eval_two}"), &two, &eval_two, &one, &eval_one),
    ] {
        let seen = h.get(&format!("/v1/audit/trace?id={id_of}")).await.json();
        let found = tree(&seen);
        assert_eq!(
            seen["Roots"].as_array().unwrap().len(),
            1,
            "{id_of}: {seen:#}"
        );
        let all: BTreeSet<&String> = found.values().flatten().collect();
        let of = |id: &str| all.iter().any(|thing| thing.contains(id));
        assert!(of(&own.id) && of(own_eval), "{id_of}: {seen:#}");
        assert!(!of(&other.id) && !of(other_eval), "{id_of}: {seen:#}");
        assert!(found.contains_key(&own.alloc_modify_index), "{id_of}");
        assert!(found.contains_key(&batch), "{id_of}");
        assert!(
            !found.contains_key(&other.alloc_modify_index),
            "{id_of}: {seen:#}"
        );
    }
    // A caller that requests the event itself is shown both chains.
    let seen = h
        .get(&format!("/v1/audit/trace?id=event:{batch}"))
        .await
        .json();
    assert_eq!(seen["Roots"].as_array().unwrap().len(), 2, "{seen:#}");
    let found = tree(&seen);
    for row in [&one, &two] {
        assert!(found.contains_key(&row.alloc_modify_index), "{seen:#}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_beginning_of_an_id_may_be_a_number() {
    let h = Harness::start().await;
    let id = "65374321-0000-4000-8000-000000000000";
    let eval = Evaluation {
        id: id.into(),
        namespace: "default".into(),
        job_id: "one".into(),
        status: "complete".into(),
        ..Evaluation::default()
    };
    let event = EvalsUpserted {
        evals: vec![eval],
        decision: None,
    };
    let index = h.submit(Given(event.into())).await;
    let seen = h.get("/v1/audit/trace?id=65374321").await.json();
    assert!(tree(&seen).contains_key(&index), "{seen:#}");
    for (id_of, expected) in [
        ("6537432", "has not happened yet"),
        ("65374322", "has not happened yet"),
        ("event:65374321", "has not happened yet"),
        ("eval:653743210", "names no"),
    ] {
        let refused = h.get(&format!("/v1/audit/trace?id={id_of}")).await;
        assert!(
            refused.text().contains(expected),
            "{id_of}: {}",
            refused.text()
        );
    }
    h.stop().await;
}

fn nodes(node: &Value) -> usize {
    let below = node["Children"].as_array().into_iter().flatten();
    1 + below.map(nodes).sum::<usize>()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_with_many_ways_through_it_is_told_in_proportion_to_its_events() {
    let h = Harness::start().await;
    h.register_node().await;
    h.register("one").await;
    let row = placed(&h, "one").await;
    // Each follows from the two before it: the ways to the last are as Fibonacci's numbers.
    let mut causes = [row.alloc_modify_index, row.alloc_modify_index];
    for at in 0..60 {
        let updates = causes.map(|cause| ClientAllocUpdate {
            cause,
            ..update(&row, if at % 2 == 0 { "running" } else { "pending" })
        });
        let seen = AllocsUpdatedByClient {
            updates: updates.into(),
            nodes: vec![row.node_id.clone()],
            ..AllocsUpdatedByClient::default()
        };
        causes = [causes[1], h.submit(Given(seen.into())).await];
    }
    let seen = h.get("/v1/audit/trace?id=job:one").await.json();
    let found = tree(&seen);
    assert!(found.contains_key(&causes[1]), "the last is told of");
    let all: usize = seen["Roots"].as_array().unwrap().iter().map(nodes).sum();
    assert!(
        all <= 4 * found.len(),
        "{all} nodes of {} events",
        found.len()
    );
    h.stop().await;
}

/// The scheduler ends what is needed no more in one event for many jobs: none of them is shown
/// under another one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evaluations_that_were_ended_together_hang_each_under_its_own_job() {
    let h = Harness::start().await;
    // Without a node each of them waits for room.
    for id in ["one", "two"] {
        h.register(id).await;
    }
    let blocked = async |job: &str| -> Evaluation {
        let of_job = |view: &View| {
            let mut evals = view.scan::<Evals>(Scan::all()).map(Result::unwrap);
            evals.find(|eval| eval.job_id == job && eval.status == "blocked")
        };
        once::<Evals, _>(&h, "a blocked evaluation", of_job).await
    };
    let mut ended = vec![blocked("one").await, blocked("two").await];
    let ids: Vec<String> = ended.iter().map(|eval| eval.id.clone()).collect();
    for eval in &mut ended {
        eval.status = "canceled".into();
    }
    let event = EvalsUpserted {
        evals: ended,
        decision: None,
    };
    let batch = h.submit(Given(event.into())).await;
    for (own, other) in [(0, 1), (1, 0)] {
        let path = format!("/v1/audit/trace?id=eval:{}", ids[own]);
        let seen = h.get(&path).await.json();
        let found = tree(&seen);
        assert!(found[&batch].contains(&ids[own]), "{seen:#}");
        let all: BTreeSet<&String> = found.values().flatten().collect();
        assert!(!all.contains(&ids[other]), "{seen:#}");
        assert_eq!(seen["Roots"].as_array().unwrap().len(), 1, "{seen:#}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_jobs_scale_hears_of_its_allocations_and_its_deployment() {
    let h = Harness::start().await;
    h.register_node().await;
    h.register("web").await;
    let row = placed(&h, "web").await;
    // Until the evaluation and all that follows from the placement are through.
    let unchanged = async || {
        let before = h.get("/v1/job/web/scale").await;
        let evals = h.get("/v1/job/web/evaluations").await.json();
        let open = evals
            .as_array()
            .unwrap()
            .iter()
            .any(|e| e["Status"] != "complete");
        let same = h.get("/v1/job/web/scale").await.index() == before.index();
        so(!open && same).map(|()| before)
    };
    let unchanged = async || {
        eventually_async("it to settle", LONG, unchanged)
            .await
            .unwrap()
    };
    let before = unchanged().await;
    assert!(before.index() >= row.modify_index, "its allocation counts");
    assert_eq!(before.json()["TaskGroups"]["g"]["Running"], 0);
    let path = format!("/v1/job/web/scale?index={}&wait=60s", before.index());
    let report = |status: &str| AllocsUpdatedByClient {
        updates: vec![update(&row, status)],
        nodes: vec![row.node_id.clone()],
        ..AllocsUpdatedByClient::default()
    };
    let (answer, index) = tokio::join!(h.get(&path), h.submit(Given(report("running").into())));
    assert_eq!(
        answer.json()["TaskGroups"]["g"]["Running"],
        1,
        "{}",
        answer.text()
    );
    assert_eq!(answer.index(), index);
    // Another job's allocations are no news.
    let path = format!("/v1/job/web/scale?index={index}&wait=100ms");
    h.register("other").await;
    placed(&h, "other").await;
    let same = h.get(&path).await;
    assert_eq!(same.index(), index);
    // What is only the deployment's: it fails.
    let path = format!("/v1/job/web/scale?index={index}&wait=60s");
    let deployments = h.get("/v1/job/web/deployments").await.json();
    let id = deployments[0]["ID"].as_str().unwrap();
    let target = format!("/v1/deployment/fail/{id}");
    let (answer, failed) = tokio::join!(h.get(&path), h.ask("PUT", &target, "{}"));
    assert_eq!(failed.status, 200, "{}", failed.text());
    assert!(answer.index() > index);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_evaluated_and_purged_with_what_is_on_it() {
    let h = Harness::start().await;
    h.register_node().await;
    h.register("web").await;
    let row = placed(&h, "web").await;
    let node = row.node_id.clone();
    let evals = |answer: &Value| -> Vec<String> {
        let ids = answer["EvalIDs"].as_array().cloned().unwrap_or_default();
        ids.iter()
            .map(|id| id.as_str().unwrap().to_owned())
            .collect()
    };
    let evaluated = h.ask("PUT", &format!("/v1/node/{node}/evaluate"), "").await;
    assert_eq!(evaluated.status, 200, "{}", evaluated.text());
    let answer = evaluated.json();
    let [eval] = &evals(&answer)[..] else {
        panic!("{answer}")
    };
    assert_eq!(answer["EvalCreateIndex"], evaluated.index());
    let made = h.get(&format!("/v1/evaluation/{eval}")).await.json();
    assert_eq!(made["TriggeredBy"], "node-update", "{made}");
    assert_eq!(
        (&made["JobID"], made["NodeID"].as_str()),
        (&Value::from("web"), Some(&*node))
    );

    let purged = h.ask("PUT", &format!("/v1/node/{node}/purge"), "").await;
    assert_eq!(purged.status, 200, "{}", purged.text());
    let answer = purged.json();
    assert_eq!(answer["NodeModifyIndex"], purged.index());
    assert_eq!(evals(&answer).len(), 1, "{answer}");
    assert_eq!(h.get(&format!("/v1/node/{node}")).await.status, 404);
    assert_eq!(
        h.get("/v1/nodes").await.json().as_array().map(Vec::len),
        Some(0)
    );
    let lost = |allocs: &Value| allocs[0]["ClientStatus"] == "lost";
    h.until("/v1/job/web/allocations", lost).await;
    for verb in ["evaluate", "purge"] {
        let again = h.ask("PUT", &format!("/v1/node/{node}/{verb}"), "").await;
        assert_eq!(again.status, 500, "{verb}: {}", again.text());
        assert!(
            again.text().contains("node not found"),
            "{verb}: {}",
            again.text()
        );
    }
    h.stop().await;
}
