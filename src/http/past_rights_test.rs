//! Who is shown what of the past: the audit trail, cause chains, states compared, decisions made
//! again. A caller that may read one namespace finds nothing of another in any of them, not even
//! that there is something.

use drover_events::model::{Evaluation, Namespace};
use serde_json::Value;

use super::gate_test::two_namespaces;
use super::harness::{Harness, job};
use crate::commands::eval::UpsertEvals;
use crate::commands::namespace::UpsertNamespaces;
use crate::history::audit::RowPosition;
use crate::history::record::redact::HASHED;

/// The id of the first evaluation of a namespace, as a manager is shown.
async fn eval_of(server: &Harness, namespace: &str) -> String {
    let target = format!("/v1/evaluations?namespace={namespace}");
    let evals = server.seen("root", &target).await.json();
    evals[0]["ID"].as_str().expect("an evaluation").to_owned()
}

/// What is shown without a word of the other namespace.
fn of_red_alone(text: &str) {
    for word in ["blue", "BLUE", "Ymx1ZQ"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
}

/// Refused as what never was: the same status, and the same words about another name.
async fn as_if_it_never_was(server: &Harness, target: &str, name: &str, never: &str) {
    let hidden = server.seen("red", &target.replace("NAME", name)).await;
    let none = server.seen("red", &target.replace("NAME", never)).await;
    assert_eq!(hidden.status, none.status, "{target}: {}", hidden.text());
    assert!(
        matches!(hidden.status, 403 | 404),
        "{target}: {}",
        hidden.text()
    );
    assert_eq!(hidden.text().replace(name, never), none.text(), "{target}");
}

const NEVER: &str = "ffffffff-0000-4000-8000-000000000000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_trail_tells_what_concerns_its_reader_and_no_more() {
    let server = two_namespaces().await;
    let target = "/v1/audit?per_page=1000&payload=true&all_changes=true";
    assert_eq!(server.seen("", target).await.status, 403);
    let all = server.seen("root", target).await;
    assert!(all.text().contains("job-blue") && all.text().contains("job-red"));
    let reported = server.seen("red", target).await;
    assert_eq!(reported.status, 200, "{}", reported.text());
    of_red_alone(&reported.text());
    let reported = reported.json();
    let reported = reported.as_array().expect("a list");
    let kinds = |list: &[Value]| -> Vec<String> {
        let kind = |entry: &Value| entry["Kind"].as_str().unwrap_or_default().to_owned();
        list.iter().map(kind).collect()
    };
    assert!(
        kinds(reported).iter().any(|kind| kind == "JobRegistered"),
        "{reported:?}"
    );
    for entry in reported {
        assert!(
            entry["Changes"]
                .as_array()
                .is_some_and(|all| !all.is_empty()),
            "no event is told blank: {entry}"
        );
    }
    // One event changed something of both: each is shown that there was one, and nothing that
    // stands in it.
    let mut evals = Vec::new();
    for namespace in ["red", "blue"] {
        let id = eval_of(&server, namespace).await;
        let target = format!("/v1/evaluation/{id}");
        let eval = server.seen("root", &target).await.json();
        let mut eval: Evaluation = serde_json::from_value(eval).expect("an evaluation");
        eval.status_description = format!("mended in {namespace}");
        evals.push(eval);
    }
    let decision = None;
    let index = server.submit(UpsertEvals { evals, decision }).await;
    let both = format!("{target}&since={index}&until={index}");
    let whole = server.seen("root", &both).await.json();
    assert_eq!(whole[0]["Changes"].as_array().map(Vec::len), Some(2));
    assert!(whole[0].get("Payload").is_some(), "{whole}");
    let both = server.seen("red", &both).await;
    of_red_alone(&both.text());
    let both = &both.json()[0];
    assert_eq!(both["Changes"].as_array().map(Vec::len), Some(1), "{both}");
    assert!(both.get("MoreChanges").is_none() && both.get("Payload").is_none());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_finds_by_asking_what_may_not_be_seen_in_the_audit_trail() {
    let server = two_namespaces().await;
    let target = "/v1/audit?per_page=1000";
    // A caller that may do nothing here finds nothing, by whatever it queries.
    let nothing = server.seen("nothing", target).await;
    assert_eq!((nothing.status, nothing.text().as_str()), (200, "[]"));
    let by = format!("{target}&namespace=blue");
    assert_eq!(server.seen("red", &by).await.text(), "[]");
    for query in [
        "type=job&id=NAME&namespace=blue",
        "type=variable&id=NAME&namespace=blue",
    ] {
        let name = if query.contains("variable") {
            "secret-blue"
        } else {
            "job-blue"
        };
        as_if_it_never_was(&server, &format!("/v1/audit?{query}"), name, "never").await;
    }
    let eval = eval_of(&server, "blue").await;
    for name in [eval.as_str(), &eval[..8]] {
        as_if_it_never_was(&server, "/v1/audit?type=eval&id=NAME", name, NEVER).await;
    }
    let own = eval_of(&server, "red").await;
    for name in [own.as_str(), &own[..8]] {
        let reported = server
            .seen("red", &format!("/v1/audit?type=eval&id={name}"))
            .await;
        assert_eq!(reported.status, 200, "{}", reported.text());
        assert!(reported.text().contains(&own));
    }
    // A value could be found out by queries for it.
    let requested = server.seen("red", "/v1/audit?value=store").await;
    assert_eq!(requested.status, 403, "{}", requested.text());
    let requested = server
        .by("red", "PUT", "/v1/audit", r#"{"Value":"store"}"#)
        .await;
    assert_eq!(requested.status, 403, "{}", requested.text());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cause_chain_is_told_as_far_as_its_reader_may_see() {
    let server = two_namespaces().await;
    let (red, blue) = (
        eval_of(&server, "red").await,
        eval_of(&server, "blue").await,
    );
    let reported = server
        .seen("red", &format!("/v1/audit/trace?id={red}"))
        .await;
    assert_eq!(reported.status, 200, "{}", reported.text());
    of_red_alone(&reported.text());
    let tree = reported.json();
    assert_eq!(tree["Roots"][0]["Kind"], "JobRegistered", "{tree:#}");
    let job = server
        .seen("red", "/v1/audit/trace?id=job:job-red&namespace=red")
        .await;
    assert_eq!(job.status, 200, "{}", job.text());
    for (target, name) in [
        ("/v1/audit/trace?id=NAME", blue.as_str()),
        ("/v1/audit/trace?id=eval:NAME", &blue[..8]),
        ("/v1/audit/trace?id=job:NAME&namespace=blue", "job-blue"),
    ] {
        as_if_it_never_was(&server, target, name, NEVER).await;
    }
    // Neither by what was requested, nor by when it happened.
    let registered = server
        .seen("root", "/v1/job/job-blue?namespace=blue")
        .await
        .json();
    let index = registered["JobModifyIndex"].as_u64().expect("an index");
    let hidden = server
        .seen("red", &format!("/v1/audit/trace?id=event:{index}"))
        .await;
    assert_eq!(hidden.status, 404, "{}", hidden.text());
    of_red_alone(&hidden.text());
    let target = format!("/v1/audit?since={index}&until={index}");
    let entry = server.seen("root", &target).await.json();
    let request = entry[0]["RequestID"]
        .as_str()
        .expect("a request")
        .to_owned();
    as_if_it_never_was(&server, "/v1/audit/trace?id=request:NAME", &request, NEVER).await;
    assert_eq!(server.seen("", "/v1/audit/trace?id=1").await.status, 403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_states_differ_for_their_reader_in_what_it_may_see() {
    let server = two_namespaces().await;
    let target = "/v1/state/diff?from=0&per_page=1000";
    assert_eq!(server.seen("", target).await.status, 403);
    let all = server.seen("root", target).await;
    assert!(all.text().contains("job-blue"), "{}", all.text());
    let reported = server.seen("red", target).await;
    assert_eq!(reported.status, 200, "{}", reported.text());
    of_red_alone(&reported.text());
    let rows = reported.json();
    let tables = rows.as_array().expect("a list").iter();
    let tables: Vec<&str> = tables.filter_map(|row| row["Table"].as_str()).collect();
    for table in ["jobs", "evals", "variables"] {
        assert!(tables.contains(&table), "{table}: {tables:?}");
    }
    for table in ["nodes", "namespaces", "root_keys"] {
        assert!(!tables.contains(&table), "{table}: {tables:?}");
    }
    // What is gone by now is hidden as what is there.
    let gone = server.by(
        "root",
        "DELETE",
        "/v1/job/job-blue?namespace=blue&purge=true",
        "",
    );
    assert_eq!(gone.await.status, 200);
    of_red_alone(&server.seen("red", target).await.text());
    let nothing = server.seen("nothing", target).await;
    assert_eq!((nothing.status, nothing.text().as_str()), (200, "[]"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_is_explained_to_who_may_read_its_job() {
    let server = two_namespaces().await;
    let (red, blue) = (
        eval_of(&server, "red").await,
        eval_of(&server, "blue").await,
    );
    let target = |id: &str| format!("/v1/evaluation/{id}/explain");
    let reported = server.seen("red", &target(&red)).await;
    // It may not be decided yet, which is said to who may know.
    assert!(matches!(reported.status, 200 | 409), "{}", reported.text());
    of_red_alone(&reported.text());
    as_if_it_never_was(&server, "/v1/evaluation/NAME/explain", &blue, NEVER).await;
    for target in [
        "/v1/log/entries?from=1",
        "/v1/log/segments",
        "/v1/log/checkpoint",
        "/v1/audit/requests",
        "/v1/operator/projections",
    ] {
        let reported = server.seen("red", target).await;
        assert_eq!(reported.status, 403, "{target}: {}", reported.text());
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_two_states_name_no_row_that_is_hidden_and_reach_the_end() {
    let server = two_namespaces().await;
    let to = server.seen("root", "/v1/jobs?namespace=*").await.index();
    let target = format!("/v1/state/diff?from=0&to={to}&diff=false");
    let all = server.seen("red", &format!("{target}&per_page=1000")).await;
    assert_eq!(all.header("x-nomad-nexttoken"), "", "it is one page");
    let (mut rows, mut token) = (Vec::new(), String::new());
    for _ in 0..1_000 {
        let page = format!("{target}&per_page=1&next_token={token}");
        let page = server.seen("red", &page).await;
        assert_eq!(page.status, 200, "{}", page.text());
        rows.extend(page.json().as_array().cloned().unwrap_or_default());
        page.header("x-nomad-nexttoken").clone_into(&mut token);
        if token.is_empty() {
            break;
        }
        assert!(RowPosition::parse(&token).is_none(), "{token} names a row");
    }
    assert_eq!(token, "", "pages without end");
    assert_eq!(Value::Array(rows), all.json());
    let forged = format!("{target}&next_token=00000000.forged");
    assert_eq!(server.seen("red", &forged).await.status, 400);
    // Many rows of a few events, none of which the caller may see, end a page and cost no more than
    // that.
    let named = |number| Namespace {
        name: format!("blue-{number}"),
        ..Namespace::default()
    };
    let from = server.seen("root", "/v1/namespaces").await.index();
    for begin in (0..10_500).step_by(3_500) {
        let namespaces = (begin..begin + 3_500).map(named).collect();
        server.submit(UpsertNamespaces { namespaces }).await;
    }
    let target = format!("/v1/state/diff?from={from}&table=namespaces");
    let page = server.seen("red", &target).await;
    assert_eq!((page.status, page.text().as_str()), (200, "[]"));
    let token = page.header("x-nomad-nexttoken");
    assert!(!token.is_empty(), "it goes on elsewhere");
    let last = server
        .seen("red", &format!("{target}&next_token={token}"))
        .await;
    assert_eq!(
        (last.text().as_str(), last.header("x-nomad-nexttoken")),
        ("[]", "")
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hashes_of_values_are_told_to_who_may_see_all_alone() {
    let server = two_namespaces().await;
    let mut body = job("job-red");
    body["Job"]["TaskGroups"][0]["Tasks"][0]["Env"] = serde_json::json!({"X": "guess"});
    let target = "/v1/jobs?namespace=red";
    assert_eq!(server.by("root", "PUT", target, body).await.status, 200);
    for target in [
        "/v1/state/diff?from=0&per_page=1000&table=jobs",
        "/v1/audit?per_page=1000&payload=true&all_changes=true&kind=JobRegistered",
    ] {
        let all = server.seen("root", target).await.text();
        assert!(all.contains(HASHED), "{target}: {all}");
        let reported = server.seen("red", target).await.text();
        assert!(
            reported.contains("job-red") && !reported.contains(HASHED),
            "{reported}"
        );
        assert!(!reported.contains("guess"), "{reported}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_read_a_job_is_told_what_it_says_but_for_what_holds_credentials() {
    let server = two_namespaces().await;
    let mut body = job("job-red");
    body["Job"]["Meta"] = serde_json::json!({"team": "told-job"});
    let group = &mut body["Job"]["TaskGroups"][0];
    group["Meta"] = serde_json::json!({"tier": "told-group"});
    group["Tasks"][0]["Meta"] = serde_json::json!({"owner": "told-task"});
    group["Tasks"][0]["Env"] = serde_json::json!({"X": "guess"});
    group["Services"] = serde_json::json!([{
        "Name": "api", "Provider": "nomad", "PortLabel": "8080", "Meta": {"side": "told-service"},
        "Checks": [{
            "Name": "alive", "Type": "http", "Path": "/", "Method": "POST", "Body": "told-body",
            "Header": {"Accept": ["told/type"], "Authorization": ["guess"]},
            "Interval": 1_000_000_000, "Timeout": 1_000_000_000,
        }],
    }]);
    let target = "/v1/jobs?namespace=red";
    let reply = server.by("root", "PUT", target, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    for target in [
        "/v1/state/diff?from=0&per_page=1000&table=jobs",
        "/v1/audit?per_page=1000&kind=JobRegistered",
    ] {
        let reported = server.seen("red", target).await.text();
        for word in [
            "told-job",
            "told-group",
            "told-task",
            "told-service",
            "told-body",
            "told/type",
        ] {
            assert!(reported.contains(word), "{target}: {word}: {reported}");
        }
        assert!(
            reported.contains("Authorization") && !reported.contains("guess"),
            "{reported}"
        );
    }
    server.stop().await;
}
