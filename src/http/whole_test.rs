//! Lists that have no pages: what belongs to one object, services, statuses, versions. Each comes
//! in parts that no caller sees, in every form, and says what it said when it came at once.

use axum::body::Body;
use drover_events::model::ServiceRegistration;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Settings;
use super::gzip::Gzip;
use super::harness::{Harness, Reply, job};
use crate::commands::service::UpsertServices;

const COUNT: u64 = 12;

/// A server whose lists are sent in parts of this many bytes.
async fn started(part: usize) -> Harness {
    let settings = Settings {
        gzip: Gzip::Always,
        list_part: Some(part),
        ..Settings::default()
    };
    Harness::with(settings, None).await
}

fn rows(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

/// Registers a job with many small allocations, several times; the ids of node, an evaluation and
/// the deployment of the allocations.
async fn filled(h: &Harness) -> [String; 3] {
    let node = h.register_node().await;
    let mut body = job("web");
    body["Job"]["TaskGroups"][0]["Count"] = json!(COUNT);
    let done = h.put("/v1/jobs", &body).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let placed = |list: &Value| rows(list) as u64 == COUNT;
    let allocs = h.until("/v1/job/web/allocations", placed).await.json();
    for priority in 51..55 {
        body["Job"]["Priority"] = json!(priority);
        assert_eq!(h.put("/v1/jobs", &body).await.status, 200);
    }
    let of = |n: usize| allocs[n % 12]["ID"].as_str().expect("an id");
    let services = (0..20).map(|n| service(&node, of(n), n)).collect();
    h.submit(UpsertServices { services }).await;
    quiet(h).await;
    let deployment = fullest(
        h,
        "/v1/job/web/deployments?all=true",
        "/v1/deployment/allocations/{}",
    );
    let eval = fullest(
        h,
        "/v1/job/web/evaluations",
        "/v1/evaluation/{}/allocations",
    );
    [node, eval.await, deployment.await]
}

/// Of the things in a list the one with the most allocations.
async fn fullest(h: &Harness, list: &str, path: &str) -> String {
    let mut fullest = (0, String::new());
    let all = h.get(list).await.json();
    for one in all.as_array().expect("a list") {
        let allocs = h.get(&path.replace("{}", &id(one))).await.json();
        fullest = fullest.max((rows(&allocs), id(one)));
    }
    assert!(fullest.0 > 1, "{all}");
    fullest.1
}

/// Nothing is to happen any more while lists are compared.
async fn quiet(h: &Harness) {
    let pending = "/v1/evaluations?filter=Status==pending";
    h.until(pending, |list| rows(list) == 0).await;
}

fn service(node: &str, alloc: &str, n: usize) -> ServiceRegistration {
    ServiceRegistration {
        id: format!("_nomad-task-{n:02}"),
        service_name: format!("service-{:02}", n / 2),
        namespace: if n < 12 { "default" } else { "other" }.to_owned(),
        node_id: node.to_owned(),
        job_id: "web".to_owned(),
        alloc_id: alloc.to_owned(),
        tags: vec![format!("tag-{n}"), "all".to_owned()].into(),
        address: "127.0.0.1".to_owned(),
        port: 80,
        ..ServiceRegistration::default()
    }
}

async fn packed(h: &Harness, target: &str) -> (Reply, Value) {
    let request = hyper::Request::get(target).header("accept-encoding", "gzip");
    let reply = h.send(request.body(Default::default()).unwrap()).await;
    let unpacked = flate2::read::GzDecoder::new(&reply.body[..]);
    let value = serde_json::from_reader(unpacked).unwrap_or_else(|e| panic!("{target}: {e}"));
    (reply, value)
}

/// The same API, sending every list at once.
fn at_once(h: &Harness) -> axum::Router {
    h.rather(Settings {
        list_part: Some(usize::MAX),
        ..Settings::default()
    })
}

async fn whole(router: &axum::Router, target: &str) -> (String, Value) {
    let request = hyper::Request::get(target).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let index = response.headers()["x-nomad-index"].to_str().unwrap();
    let index = index.to_owned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (index, serde_json::from_slice(&body).unwrap())
}

fn targets([node, eval, deployment]: &[String; 3]) -> Vec<String> {
    vec![
        "/v1/job/web/allocations".to_owned(),
        "/v1/job/web/allocations?all=true&filter=TaskGroup==g".to_owned(),
        "/v1/job/web/evaluations".to_owned(),
        "/v1/job/web/deployments?all=true".to_owned(),
        "/v1/job/web/versions".to_owned(),
        "/v1/job/web/versions?diffs=true".to_owned(),
        "/v1/job/web/versions?diffs=true&diff_version=2".to_owned(),
        "/v1/job/web/services".to_owned(),
        format!("/v1/node/{node}/allocations"),
        format!("/v1/node/{node}/allocations?filter=JobID==web"),
        format!("/v1/deployment/allocations/{deployment}"),
        format!("/v1/evaluation/{eval}/allocations"),
        "/v1/services".to_owned(),
        "/v1/services?namespace=*&filter=ServiceName!=%22service-03%22".to_owned(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_without_pages_come_in_parts_in_every_form() {
    let h = started(200).await;
    let ids = filled(&h).await;
    let at_once = at_once(&h);
    for target in targets(&ids) {
        let (index, wanted) = whole(&at_once, &target).await;
        assert_ne!(index, "0", "{target}");
        let plain = h.get(&target).await;
        assert_eq!(plain.json(), wanted, "{target}");
        assert_eq!(plain.header("x-nomad-index"), index, "{target}");
        let length = plain.header("content-length");
        assert_eq!(length, "", "{target} comes in parts");
        let join = if target.contains('?') { '&' } else { '?' };
        let pretty = h.get(&format!("{target}{join}pretty")).await;
        assert_eq!(pretty.json(), wanted, "{target}");
        assert!(pretty.text().contains("\n    "), "{target}");
        assert_eq!(pretty.header("content-length"), "", "{target}");
        let (reply, unpacked) = packed(&h, &target).await;
        assert_eq!(reply.header("content-encoding"), "gzip", "{target}");
        assert_eq!(reply.header("content-length"), "", "{target}");
        assert_eq!(unpacked, wanted, "{target}");
        let past = h
            .get(&format!("{target}{join}as_of={}", plain.index()))
            .await;
        assert_eq!(past.json().is_null(), wanted.is_null(), "{target}");
        // Who waits for a change that does not come is answered the same when time is over.
        let waited = h
            .get(&format!("{target}{join}index={index}&wait=1ms"))
            .await;
        assert_eq!(waited.json(), wanted, "{target}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_come_in_parts_and_by_pages() {
    let h = started(200).await;
    filled(&h).await;
    for number in 0..30 {
        h.register(&format!("job-{number:02}")).await;
    }
    quiet(&h).await;
    let at_once = at_once(&h);
    for target in ["/v1/jobs/statuses", "/v1/jobs/statuses?reverse=true"] {
        let (index, wanted) = whole(&at_once, target).await;
        assert_eq!(rows(&wanted), 31, "{target}");
        let plain = h.get(target).await;
        assert_eq!(plain.json(), wanted, "{target}");
        assert_eq!(plain.header("x-nomad-index"), index, "{target}");
        assert_eq!(plain.header("content-length"), "", "{target}");
        let (_, unpacked) = packed(&h, target).await;
        assert_eq!(unpacked, wanted, "{target}");
        let (mut found, mut pages) = (Vec::new(), 0);
        let join = if target.contains('?') { '&' } else { '?' };
        let mut next = format!("{target}{join}per_page=7");
        loop {
            pages += 1;
            assert!(pages < 100, "{next}");
            let page = h.get(&next).await;
            found.extend(page.json().as_array().unwrap().clone());
            match page.header("x-nomad-nexttoken") {
                "" => break,
                token => next = format!("{target}{join}per_page=7&next_token={token}"),
            }
        }
        assert_eq!(Value::from(found), wanted, "{target}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_by_prefix_goes_on_where_it_stood() {
    let h = started(200).await;
    filled(&h).await;
    let all = h.get("/v1/evaluations?prefix=").await.json();
    let mut ids: Vec<String> = all.as_array().unwrap().iter().map(id).collect();
    ids.sort();
    let digits: Vec<char> = "0123456789abcdef".chars().collect();
    let mut found = Vec::new();
    for (high, low) in digits
        .iter()
        .flat_map(|h| digits.iter().map(move |l| (h, l)))
    {
        let target = format!("/v1/evaluations?prefix={high}{low}");
        let list = h.get(&target).await.json();
        found.extend(list.as_array().unwrap().iter().map(id));
        let back = h.get(&format!("{target}&reverse=true")).await.json();
        let back = back.as_array().unwrap().iter().rev().map(id);
        assert!(back.eq(list.as_array().unwrap().iter().map(id)), "{target}");
    }
    assert_eq!(found, ids);
    h.stop().await;
}

fn id(row: &Value) -> String {
    row["ID"].as_str().expect("an id").to_owned()
}
