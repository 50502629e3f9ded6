//! What reads may not do: change what they read, cost what a list costs, or page in two ways.

use std::sync::Arc;

use drover_events::Event;
use drover_events::model::Evaluation;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::{
    allocs::Allocs, deployments::Deployments, evals::Evals, job_summaries::JobSummaries,
    jobs::Jobs, node_states::NodeStates, nodes::Nodes,
};
use drover_projections::view::View;
use drover_projections::{Scan, StorageError, Table};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::Answer;
use super::front::Read;
use super::gate::READ_JOB;
use super::harness::{Harness, is_filled, job};
use super::query::{Query, ReadOptions};
use super::request::Request;
use super::rows::{self, Created};
use super::sight::{Rows, Sight};
use super::{evaluations, list};
use crate::commands::eval::{UPSERT_PAGE, UpsertEvals};
use crate::commands::node::UpdateNodeStatus;
use crate::error::Refusal;
use crate::identity::Identity;
use crate::keyring::Keyring;
use crate::reactors::testing::Direct;
use drover_fake_disk::{FakeDisk, Op};
use drover_testkit::counting::taken;
use drover_testkit::{LONG, until};

/// How often each read is repeated.
const READS: usize = 100;

pub(super) fn raw<T: Table>(view: &View) -> Vec<Vec<u8>>
where
    T::Row: Serialize,
{
    let rows = view.scan::<T>(Scan::all());
    rows.map(|row| rmp_serde::to_vec_named(&row.unwrap()).unwrap())
        .collect()
}

/// Every stored row that reads join others to, as bytes, and the digests computed again from them.
fn stored(view: &View) -> Vec<Vec<Vec<u8>>> {
    let sums = vec![
        format!("{:?}", view.digest_of_rows(Jobs::ID).unwrap()).into_bytes(),
        format!("{:?}", view.digest_of_rows(Nodes::ID).unwrap()).into_bytes(),
        format!("{:?}", view.digest_of_rows(Allocs::ID).unwrap()).into_bytes(),
        format!("{:?}", view.digest_of_rows(Deployments::ID).unwrap()).into_bytes(),
    ];
    vec![
        raw::<Jobs>(view),
        raw::<JobSummaries>(view),
        raw::<Nodes>(view),
        raw::<NodeStates>(view),
        raw::<Allocs>(view),
        raw::<Evals>(view),
        raw::<Deployments>(view),
        sums,
    ]
}

/// A service that is placed on one node by the scheduler; its deployment goes on.
pub(super) async fn placed() -> (Harness, String) {
    placed_on(Harness::start().await).await
}

/// The same on this server.
pub(super) async fn placed_on(h: Harness) -> (Harness, String) {
    let id = h.register_node().await;
    web_placed(&h).await;
    (h, id)
}

/// Registers job web, and waits until it is placed.
pub(super) async fn web_placed(h: &Harness) {
    let reply = h.register("web").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    h.until("/v1/job/web/allocations", is_filled).await;
    // The evaluation ends after its plan; nothing follows then.
    let eval = reply.json()["EvalID"].as_str().unwrap().to_owned();
    let path = format!("/v1/evaluation/{eval}");
    h.until(&path, |row| row["Status"] == "complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_06_ev_07_reading_with_joins_leaves_rows_alone_and_lists_as_long_as_they_were() {
    let (h, node) = placed().await;
    let stubs = h.get("/v1/job/web/allocations").await.json();
    let alloc = stubs[0]["ID"].as_str().unwrap().to_owned();
    let deployments = h.get("/v1/job/web/deployments").await.json();
    let deployment = deployments[0]["ID"].as_str().unwrap().to_owned();
    let before = (
        h.server.projections.view().index(),
        stored(&h.server.projections.view()),
    );
    assert!(
        before.1[..7].iter().all(|rows| !rows.is_empty()),
        "each table has rows"
    );
    // Each joins rows of several tables, or hands the same row to several places.
    let joined = [
        "/v1/jobs?meta=true".to_owned(),
        "/v1/job/web".to_owned(),
        "/v1/job/web/summary".to_owned(),
        "/v1/job/web/versions?diffs=true".to_owned(),
        "/v1/job/web/allocations?all=true".to_owned(),
        "/v1/job/web/scale".to_owned(),
        "/v1/nodes?resources=true&os=true".to_owned(),
        format!("/v1/node/{node}"),
        format!("/v1/node/{node}/allocations"),
        format!("/v1/allocation/{alloc}"),
        "/v1/allocations?resources=true&task_states=true".to_owned(),
        format!("/v1/deployment/{deployment}"),
        format!("/v1/deployment/allocations/{deployment}"),
        "/v1/evaluations".to_owned(),
    ];
    let mut first = Vec::new();
    for round in 0..READS {
        for (at, target) in joined.iter().enumerate() {
            let reply = h.get(target).await;
            assert_eq!(reply.status, 200, "{target}: {}", reply.text());
            if round == 0 {
                first.push(reply.body);
            } else {
                assert_eq!(reply.body, first[at], "{target}, read {round} times");
            }
        }
        let body = json!({"Job": job("web")["Job"], "Diff": true});
        assert_eq!(h.put("/v1/job/web/plan", &body).await.status, 200);
    }
    let view = h.server.projections.view();
    assert_eq!((view.index(), stored(&view)), before);
    h.stop().await;
}

fn eval(number: usize) -> Evaluation {
    Evaluation {
        id: format!("{number:08x}-0000-4000-8000-000000000000"),
        namespace: "default".into(),
        job_id: format!("job-{}", number % 7),
        priority: 50,
        r#type: "service".into(),
        triggered_by: "job-register".into(),
        status: "complete".into(),
        status_description: "made for a test of counting, with words as real ones have".into(),
        ..Evaluation::default()
    }
}

type Handler = fn(&Read<'_>) -> Result<Answer, Refusal>;

/// By the memory that each takes, which is no matter of how busy the machine is.
#[tokio::test(flavor = "multi_thread")]
async fn eval_12_a_count_costs_a_fraction_of_the_list() {
    const EVALS: usize = 4 * UPSERT_PAGE;
    let h = Harness::start().await;
    for page in 0..EVALS / UPSERT_PAGE {
        let numbers = page * UPSERT_PAGE..(page + 1) * UPSERT_PAGE;
        let (evals, decision) = (numbers.map(eval).collect(), None);
        h.submit(UpsertEvals { evals, decision }).await;
    }
    let count = h.get("/v1/evaluations/count").await.json();
    assert_eq!(count["Count"], json!(EVALS));
    let cost = |handler: Handler, query: &str| {
        let target = format!("/v1/evaluations?per_page=100000&{query}");
        let (parts, ()) = hyper::Request::get(target).body(()).unwrap().into_parts();
        let request = Request::head(parts).unwrap();
        let who = Arc::new(Identity::open(""));
        let read = Read {
            api: &h.api,
            request: &request,
            identity: Arc::clone(&who),
            options: &ReadOptions::read(&request.query).unwrap(),
            view: Sight::new(h.server.projections.view(), who, true),
        };
        taken(|| drop(handler(&read).unwrap()))
    };
    // A list renders its rows; a count with a filter reads them all the same, one without does not.
    let filtered = "filter=JobID+==+%22job-1%22+or+Priority+!=+1";
    for (query, times) in [(filtered, 1), ("", 50)] {
        let list = cost(evaluations::list, query);
        let count = cost(evaluations::count, query);
        assert!(count * times < list, "{query}: {count} bytes, list {list}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eval_11_eval_10_the_list_stays_a_list_and_the_count_knows_no_older_parameters() {
    let h = Harness::start().await;
    let (evals, decision) = ((0..10).map(eval).collect(), None);
    h.submit(UpsertEvals { evals, decision }).await;
    let list = h.get("/v1/evaluations").await;
    assert_eq!(list.json().as_array().map(Vec::len), Some(10));
    let keys = |value: &Value| -> Vec<String> {
        let keys = value.as_object().unwrap().keys();
        keys.cloned().collect()
    };
    let count = h.get("/v1/evaluations/count").await.json();
    let wanted = ["Count", "Index", "KnownLeader", "LastContact", "NextToken"];
    assert_eq!(keys(&count), wanted);
    // No parameter turns the list into a count.
    for query in ["count=true", "count", "list=false"] {
        let reply = h.get(&format!("/v1/evaluations?{query}")).await;
        assert_eq!(reply.body, list.body, "{query}");
    }
    // The list's older parameters work there and mean nothing here.
    let of_job = h.get("/v1/evaluations?job=job-1").await.json();
    assert_eq!(of_job.as_array().map(Vec::len), Some(2));
    for query in [
        "job=job-1",
        "status=pending",
        "job=none&filter=Priority+!=+1",
    ] {
        let reply = h.get(&format!("/v1/evaluations/count?{query}")).await;
        assert_eq!(reply.json()["Count"], 10, "{query}");
    }
    // Nor do pages.
    for query in ["per_page=3", "next_token=5.x", "reverse=true"] {
        let reply = h.get(&format!("/v1/evaluations/count?{query}")).await;
        assert_eq!(reply.json()["Count"], 10, "{query}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_from_memory_begins_where_one_from_rows_does() {
    let (h, _) = placed().await;
    let allocs = h.get("/v1/allocations").await.json();
    let index = &allocs[0]["CreateIndex"];
    let ids = |list: &Value| -> Vec<Value> {
        let rows = list.as_array().unwrap().iter();
        rows.map(|row| row["ID"].clone()).collect()
    };
    for (list, tokens) in [
        ("nodes", ["0", "x", "0.x"].map(str::to_owned)),
        (
            "allocations",
            ["0", "x", ""].map(|id| format!("{index}.{id}")),
        ),
    ] {
        for token in tokens {
            for reverse in [false, true] {
                let target = format!("/v1/{list}?next_token={token}&reverse={reverse}");
                let plain = h.get(&target).await.json();
                let walked = h.get(&format!("{target}&filter=ID!=none")).await.json();
                assert_eq!(ids(&plain), ids(&walked), "{target}");
            }
        }
    }
    let nodes = h.get("/v1/nodes?next_token=0").await.json();
    assert_eq!(ids(&nodes).len(), 1);
    h.stop().await;
}

/// Which rows a list is made from.
#[derive(Clone, Copy, PartialEq)]
enum Origins {
    Index,
    Memory,
}

/// The ids of all pages, and where each begins.
fn pages(
    view: &Sight,
    memory: &[Evaluation],
    origin: Origins,
    (per_page, reverse, filter, start): (u32, bool, &str, &str),
) -> Vec<(Vec<u8>, String)> {
    let mut pages = Vec::new();
    let mut next_token = start.to_owned();
    loop {
        assert!(pages.len() < 100, "{pages:?}");
        let filter = filter.replace('=', "%3D").replace(' ', "+");
        let query = format!(
            "namespace=default&per_page={per_page}&reverse={reverse}&filter={filter}\
             &next_token={next_token}"
        );
        let options = ReadOptions::read(&Query::parse(Some(&query)).unwrap()).unwrap();
        let (kind, rows) = match origin {
            Origins::Index => {
                use drover_projections::tables::evals::EvalsByNamespace;
                rows::created::<EvalsByNamespace>(view, &options, READ_JOB).unwrap()
            }
            Origins::Memory => {
                let mut rows = memory.to_vec();
                rows.sort_by_key(|eval| eval.token(TokenKind::IndexId));
                if reverse {
                    rows.reverse();
                }
                let rows = rows.into_iter().map(Ok::<_, StorageError>);
                (TokenKind::IndexId, Box::new(rows) as Rows<'_, _>)
            }
        };
        let token = |eval: &Evaluation| -> PageToken { eval.token(kind) };
        let answer = list::render(&options, kind, rows, token, Ok).unwrap();
        let body = answer.body.into_pieces().unwrap().concat();
        pages.push((body, next_token));
        match answer.next_token {
            Some(next) => next_token = next,
            None => return pages,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A list kept in memory pages and filters as a table's index does, row by row.
    #[test]
    fn ev_19_a_list_in_memory_pages_and_filters_like_an_index(
        sizes in proptest::collection::vec(1_usize..9, 1..8),
        per_page in 0_u32..7,
        reverse: bool,
        filter in prop_oneof![
            Just(""),
            Just("JobID == \"job-1\""),
            Just("JobID != \"job-2\" and Priority != 1"),
            Just("Status == \"none\""),
        ],
        start in prop_oneof![Just(""), Just("2.00000003-0000-4000-8000-000000000000"), Just("3.")],
    ) {
        let server = Direct::new();
        let mut number = 0;
        for size in sizes {
            let evals: Vec<_> = (number..number + size).map(eval).collect();
            number += size;
            let event = drover_events::eval::EvalsUpserted { evals, decision: None };
            server.apply(Event::from(event));
        }
        let view = server.projections.view();
        let memory: Vec<_> = view.scan::<Evals>(Scan::all()).map(Result::unwrap).collect();
        let what = (per_page, reverse, filter, start);
        let view = Sight::new(view, Arc::new(Identity::open("")), true);
        let by_index = pages(&view, &memory, Origins::Index, what);
        let in_memory = pages(&view, &memory, Origins::Memory, what);
        prop_assert_eq!(&by_index, &in_memory);
        if per_page == 0 {
            prop_assert_eq!(by_index.len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_10_an_answer_of_several_tables_mixes_no_two_indexes() {
    let h = Arc::new(Harness::start().await);
    let id = h.register_node().await;
    let writing = {
        let (h, id) = (Arc::clone(&h), id.clone());
        tokio::spawn(async move {
            for turn in 0..200 {
                let status = if turn % 2 == 0 { "down" } else { "ready" };
                let command = UpdateNodeStatus {
                    node_id: id.clone(),
                    status: status.to_owned(),
                    event: None,
                };
                h.submit(command).await;
            }
        })
    };
    // The status and the index of its change are written by one event and joined on each read.
    let mut seen = 0;
    while !writing.is_finished() {
        let node = h.get(&format!("/v1/node/{id}")).await;
        let list = h.get("/v1/nodes").await;
        let (node, list) = (node.json(), list.json());
        for row in [&node, &list[0]] {
            let index = row["ModifyIndex"].as_u64().unwrap();
            let earlier = h
                .server
                .projections
                .view()
                .get_at::<NodeStates>(id.as_str(), index);
            let earlier = earlier.unwrap().expect("it was there");
            assert_eq!(row["Status"], json!(earlier.status), "at {index}");
        }
        seen += 1;
    }
    writing.await.unwrap();
    assert!(seen > 0);
    Arc::into_inner(h)
        .expect("nobody else holds it")
        .stop()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kr_03_a_server_leads_and_answers_while_its_keystore_takes_no_key() {
    let disk = FakeDisk::default();
    // The key that wraps the others is renamed into its place; no root key is.
    disk.fail(Op::Rename, 1, u64::MAX);
    let h = Harness::keystore_on(Arc::new(disk.clone())).await;
    until("a key to be refused", || disk.failed() > 0).await;
    assert!(h.server.leads());
    for target in ["/v1/jobs", "/v1/vars", "/v1/nodes", "/v1/status/leader"] {
        assert_eq!(h.get(target).await.status, 200, "{target}");
    }
    assert_eq!(h.register("web").await.status, 200);
    let keys = h.get("/v1/operator/keyring/keys").await.json();
    assert!(!is_filled(&keys), "{keys}");
    assert!(h.server.keyring.active().is_err());
    disk.fail(Op::Rename, 0, 0);
    let key = tokio::time::timeout(LONG, h.server.keyring.wait_active());
    key.await.expect("the key is made once its file can be");
    let written = h.put("/v1/var/app", &json!({"Items": {"a": "b"}})).await;
    assert_eq!(written.status, 200, "{}", written.text());
    assert_eq!(h.get("/v1/var/app").await.json()["Items"]["a"], "b");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kr_03_reads_are_served_and_a_write_waits_until_there_is_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let (keyring, _) = Keyring::open(dir.path()).unwrap();
    let keyring = Arc::new(keyring);
    let h = Arc::new(Harness::with(super::Settings::default(), Some(Arc::clone(&keyring))).await);
    let writing = {
        let h = Arc::clone(&h);
        let body = json!({"Items": {"a": "b"}});
        tokio::spawn(async move { h.put("/v1/var/app", &body).await })
    };
    for target in ["/v1/jobs", "/v1/vars", "/v1/nodes", "/v1/status/leader"] {
        assert_eq!(h.get(target).await.status, 200, "{target}");
    }
    assert_eq!(h.register("web").await.status, 200);
    assert!(!writing.is_finished(), "there is no key to write with");
    keyring.generate("key-1".to_owned(), 1).unwrap();
    keyring.activate("key-1").unwrap();
    let written = writing.await.unwrap();
    assert_eq!(written.status, 200, "{}", written.text());
    assert_eq!(h.get("/v1/var/app").await.json()["Items"]["a"], "b");
    Arc::into_inner(h)
        .expect("nobody else holds it")
        .stop()
        .await;
}
