use std::time::Duration;

use bytes::Bytes;
use drover_testkit::LONG;
use http_body_util::{BodyExt, Full};
use serde_json::json;

use super::harness::{Harness, job};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_registered_read_listed_and_stopped() {
    let h = Harness::start().await;
    let done = h.register("web/a-b").await;
    let (answer, index) = (done.json(), done.index());
    assert_eq!(
        (&answer["JobModifyIndex"], &answer["Index"]),
        (&json!(index), &json!(index))
    );
    assert_eq!(answer["EvalID"].as_str().unwrap().len(), 36);

    let read = h.get("/v1/job/web%2Fa-b").await;
    assert_eq!(
        (read.status, read.json()["ID"].as_str()),
        (200, Some("web/a-b"))
    );
    assert_eq!(read.header("content-type"), "application/json");
    assert_eq!(read.header("x-nomad-knownleader"), "true");
    assert_eq!(read.header("x-nomad-lastcontact"), "0");
    for (ending, status) in [
        ("summary", 200),
        ("versions", 200),
        ("allocations", 200),
        ("evaluations", 200),
    ] {
        assert_eq!(
            h.get(&format!("/v1/job/web%2Fa-b/{ending}")).await.status,
            status,
            "{ending}"
        );
    }
    let evals = h.get("/v1/job/web%2Fa-b/evaluations").await.json();
    let mut evals = evals.as_array().unwrap().iter();
    assert!(evals.any(|eval| eval["ID"] == answer["EvalID"]));

    for target in [
        "/v1/jobs",
        "/v1/jobs?prefix=web",
        "/v1/jobs?namespace=*&meta=true",
    ] {
        let list = h.get(target).await.json();
        assert_eq!(list[0]["ID"], "web/a-b", "{target}");
        assert_eq!(
            list[0]["Meta"].is_object(),
            target.contains("meta"),
            "{target}"
        );
    }
    assert_eq!(h.get("/v1/jobs?filter=Type==batch").await.text(), "[]");

    let stopped = h.ask("DELETE", "/v1/job/web%2Fa-b", "").await;
    assert!(stopped.index() > index);
    assert_eq!(h.get("/v1/job/web%2Fa-b").await.json()["Stop"], true);
    let nobody = h.ask("DELETE", "/v1/job/nobody", "").await;
    assert_eq!(
        (nobody.status, nobody.json()["EvalID"].as_str()),
        (200, Some(""))
    );
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_nomads_status_and_text() {
    let h = Harness::start().await;
    for (method, target, body, status, text) in [
        ("GET", "/v1/job/none", "", 404, "job not found"),
        ("GET", "/v1/evaluation/none", "", 404, "eval not found"),
        ("GET", "/v1/allocation/none", "", 404, "alloc not found"),
        ("GET", "/v1/node/none", "", 404, "node not found"),
        (
            "GET",
            "/v1/deployment/none",
            "",
            404,
            "deployment not found",
        ),
        ("GET", "/v1/namespace/none", "", 404, "Namespace not found"),
        ("GET", "/v1/var/none", "", 404, "variable not found"),
        ("GET", "/v1/nothing", "", 404, ""),
        ("PATCH", "/v1/jobs", "", 405, "Invalid method"),
        ("GET", "/v1/jobs?index=x", "", 400, "Invalid index"),
        ("GET", "/v1/jobs?wait=x", "", 400, "Invalid wait time"),
        ("PUT", "/v1/jobs", "", 400, "Request body is empty"),
        ("PUT", "/v1/jobs", "{}", 400, "Job must be specified"),
        (
            "PUT",
            "/v1/jobs",
            r#"{"Job":{"Name":"x"}}"#,
            400,
            "Job ID hasn't been provided",
        ),
        (
            "PUT",
            "/v1/job/a",
            r#"{"Job":{"ID":"b"}}"#,
            400,
            "Job ID does not match name",
        ),
        (
            "PUT",
            "/v1/jobs/parse",
            r#"{"JobHCL":""}"#,
            400,
            "Job spec is empty",
        ),
        (
            "DELETE",
            "/v1/evaluations",
            "{}",
            400,
            "evals must be deleted by either ID or filter",
        ),
    ] {
        let reply = h.ask(method, target, body).await;
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (status, text),
            "{method} {target}"
        );
        if !text.is_empty() {
            assert_eq!(
                reply.header("content-type"),
                "text/plain; charset=utf-8",
                "{target}"
            );
        }
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_and_names_the_field() {
    let h = Harness::start().await;
    let huge = "9".repeat(400);
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    for (body, part) in [
        (
            r#"{"Job":{"ID":"a","Priority":"high"}}"#.to_owned(),
            "Priority",
        ),
        (
            format!(r#"{{"Job":{{"ID":"a","Priority":{huge}}}}}"#),
            "number out of range",
        ),
        (
            r#"{"EvalPriority":9223372036854775808}"#.to_owned(),
            "EvalPriority",
        ),
        (format!(r#"{{"Job":{deep}}}"#), "expected an object"),
        (
            format!(r#"{{"Job":{{"Meta":{{"a":{deep}}}}}}}"#),
            "recursion limit",
        ),
        ("{".to_owned(), "EOF"),
        ("{\"Job\":{\"ID\":\"\u{fffd}".to_owned(), "EOF"),
    ] {
        let reply = h.ask("PUT", "/v1/jobs", body).await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().contains(part), "{} lacks {part}", reply.text());
    }
    assert_eq!(h.ask("PUT", "/v1/jobs", vec![0xff, 0xfe]).await.status, 400);
    let long = h
        .ask("PUT", "/v1/jobs", vec![b' '; super::BODY_LIMIT + 1])
        .await;
    assert_eq!(long.status, 413);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_query_answers_once_the_row_changes() {
    let h = Harness::start().await;
    h.register("web").await;
    h.register("other").await;
    // Its evaluation may change the row too; every answer is newer than what was known.
    let waiting = async {
        let mut known = h.get("/v1/job/web").await.index();
        loop {
            let read = h.get(&format!("/v1/job/web?index={known}&wait=60s")).await;
            assert!(read.index() > known);
            known = read.index();
            if read.json()["Stop"] == true {
                return read;
            }
        }
    };
    let change = async {
        h.register("third").await;
        h.ask("DELETE", "/v1/job/web", "").await
    };
    let (read, stopped) = tokio::time::timeout(LONG, async { tokio::join!(waiting, change) })
        .await
        .unwrap();
    assert!(read.index() >= stopped.index());

    let begun = std::time::Instant::now();
    let index = h.get("/v1/jobs").await.index();
    let same = h.get(&format!("/v1/nodes?index={index}&wait=50ms")).await;
    assert_eq!(same.status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(50) && begun.elapsed() < LONG);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_one_another_in_both_directions() {
    let h = Harness::start().await;
    for id in ["a", "b", "c", "d", "e"] {
        h.register(id).await;
    }
    // The scheduler makes further evaluations while this runs; these are the ones that were
    // requested.
    let own = "TriggeredBy==\"job-register\"";
    for (list, extra, want) in [
        ("jobs", String::new(), "abcde"),
        ("jobs", "&reverse=true".to_owned(), "edcba"),
        ("jobs", "&filter=ID!=\"c\"".to_owned(), "abde"),
        ("evaluations", format!("&filter={own}"), "abcde"),
        (
            "evaluations",
            format!("&reverse=true&filter={own}"),
            "edcba",
        ),
        (
            "evaluations",
            format!("&namespace=*&filter={own}+and+JobID!=\"c\""),
            "abde",
        ),
    ] {
        assert_eq!(ids_of_pages(&h, list, &extra).await, want, "{list}{extra}");
    }
    h.stop().await;
}

/// The jobs' ids of all pages of two rows each.
async fn ids_of_pages(h: &Harness, list: &str, extra: &str) -> String {
    let (mut seen, mut token) = (String::new(), String::new());
    for _ in 0..100 {
        let target = format!("/v1/{list}?per_page=2{extra}&next_token={token}");
        let page = h.get(&target.replace('"', "%22")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        for row in page.json().as_array().unwrap() {
            let id = row.get("JobID").unwrap_or(&row["ID"]);
            seen.push_str(id.as_str().unwrap());
        }
        token = page.header("x-nomad-nexttoken").to_owned();
        if token.is_empty() {
            return seen;
        }
    }
    panic!("{list}{extra}: pages without end: {seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_and_indentation_change_the_form_only() {
    use std::io::Read;
    let h = Harness::start().await;
    // Nothing may change between two reads.
    let config = json!({ "SchedulerAlgorithm": "binpack", "PauseEvalBroker": true });
    let paused = h.put("/v1/operator/scheduler/configuration", &config).await;
    assert_eq!(paused.status, 200, "{}", paused.text());
    for n in 0..40 {
        h.register(&format!("job-{n}")).await;
    }
    for target in [
        "/v1/jobs",
        "/v1/jobs?meta=true",
        "/v1/job/job-1",
        "/v1/jobs?per_page=7",
    ] {
        let plain = h.get(target).await;
        let requested = hyper::Request::builder()
            .uri(target)
            .header("accept-encoding", "gzip");
        let packed = h
            .send(requested.body(Full::new(Bytes::new())).unwrap())
            .await;
        assert_eq!(packed.header("content-encoding"), "gzip", "{target}");
        let mut body = Vec::new();
        flate2::read::GzDecoder::new(&packed.body[..])
            .read_to_end(&mut body)
            .unwrap();
        assert_eq!(body, plain.body, "{target}");
        let sign = if target.contains('?') { '&' } else { '?' };
        let pretty = h.get(&format!("{target}{sign}pretty")).await;
        assert_eq!(pretty.json(), plain.json());
        assert!(pretty.text().contains("\n    ") && pretty.text().ends_with('\n'));
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn var_03_a_conflict_shows_what_is_there() {
    let h = Harness::start().await;
    let put = |cas: &str, value: &str| {
        let body = json!({ "Path": "ignored", "Items": { "k": value } });
        (format!("/v1/var/app/db{cas}"), body)
    };
    // The first root key is made beside everything else.
    let first = async || {
        let (target, body) = put("?cas=0", "1");
        let reply = h.put(&target, &body).await;
        match reply.status {
            200 => Ok(reply),
            _ => Err(reply.text()),
        }
    };
    let first = drover_testkit::eventually_async("the first key", LONG, first);
    let first = first.await.unwrap();
    let index = first.json()["ModifyIndex"].as_u64().unwrap();
    let (target, body) = put("?cas=0", "2");
    let lost = h.put(&target, &body).await;
    assert_eq!(
        (lost.status, lost.json()["Items"]["k"].as_str()),
        (409, Some("1"))
    );
    assert_eq!(lost.index(), index);
    let (target, body) = put(&format!("?cas={index}"), "3");
    assert_eq!(h.put(&target, &body).await.status, 200);
    assert_eq!(
        h.get("/v1/var/app/db").await.json()["Items"],
        json!({ "k": "3" })
    );
    assert_eq!(
        h.get("/v1/vars?prefix=app").await.json()[0]["Path"],
        "app/db"
    );
    assert_eq!(h.ask("DELETE", "/v1/var/app/db", "").await.status, 204);
    assert_eq!(h.get("/v1/var/app/db").await.status, 404);
    let (target, _) = put("", "");
    let reply = h.put(&target, &json!({ "Items": {} })).await;
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (400, "empty variables are invalid")
    );
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_tells_everything_in_order() {
    let h = Harness::start().await;
    let stop = tokio_util::sync::CancellationToken::new();
    let publisher = h.publish(stop.clone());
    let first = h.register("before").await.index();

    let request = hyper::Request::builder()
        .uri(format!(
            "/v1/event/stream?index={first}&topic=Job&namespace=*"
        ))
        .body(axum::body::Body::empty())
        .unwrap();
    let router = super::router(h.api.clone(), h.publisher.clone());
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    let mut body = response.into_body();
    for n in 0..20 {
        h.register(&format!("job-{n}")).await;
    }
    let mut text = String::new();
    let all = async {
        while text.matches("\"Type\":\"JobRegistered\"").count() < 21 {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(LONG, all).await.expect("in time");
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0], json!({}));
    let events = lines[1..]
        .iter()
        .flat_map(|l| l["Events"].as_array().unwrap());
    let keys: Vec<_> = events
        .filter(|e| e["Type"] == "JobRegistered")
        .map(|e| e["Key"].as_str().unwrap().to_owned())
        .collect();
    let want: Vec<_> = std::iter::once("before".to_owned())
        .chain((0..20).map(|n| format!("job-{n}")))
        .collect();
    assert_eq!(keys, want);
    let indexes: Vec<_> = lines[1..]
        .iter()
        .map(|l| l["Index"].as_u64().unwrap())
        .collect();
    assert!(indexes.windows(2).all(|w| w[0] < w[1]), "{indexes:?}");
    assert_eq!(lines[1]["Events"][0]["Payload"]["Job"]["ID"], "before");
    assert_eq!(lines[1]["Events"][0]["Payload"]["Deleted"], false);
    drop(body);
    stop.cancel();
    publisher.await.unwrap();
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_answers_about_itself() {
    let h = Harness::start().await;
    for target in [
        "/v1/status/leader",
        "/v1/status/peers",
        "/v1/regions",
        "/v1/agent/self",
        "/v1/agent/members",
        "/v1/agent/health",
        "/v1/metrics",
        "/v1/operator/raft/configuration",
        "/v1/operator/scheduler/configuration",
        "/v1/operator/keyring/keys",
        "/v1/operator/digests",
        "/v1/operator/reactors",
        "/.well-known/jwks.json",
        "/v1/namespaces",
        "/v1/node/pools",
        "/v1/node/pool/default/jobs",
        "/v1/services",
        "/v1/deployments",
    ] {
        let reply = h.get(target).await;
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        reply.json();
    }
    assert_eq!(h.get("/").await.status, 307);
    let found = h
        .put(
            "/v1/search",
            &json!({ "Prefix": "de", "Context": "namespaces" }),
        )
        .await;
    assert_eq!(
        found.json()["Matches"],
        json!({ "namespaces": ["default"] })
    );
    let bad = h.put("/v1/jobs?pretty", &job("")).await;
    assert_eq!(bad.status, 400);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_jobs_in_the_configuration_are_in_force() {
    let settings = super::Settings {
        job_priority: 70,
        job_max_priority: 200,
        job_max_count: 5,
        ..super::Settings::default()
    };
    let h = Harness::with(settings, None).await;
    h.register("plain").await;
    assert_eq!(h.get("/v1/job/plain").await.json()["Priority"], 70);
    let mut body = job("high");
    body["Job"]["Priority"] = json!(150);
    assert_eq!(h.put("/v1/jobs", &body).await.status, 200);
    body["Job"]["Priority"] = json!(201);
    body["Job"]["TaskGroups"][0]["Count"] = json!(6);
    let refused = h.put("/v1/jobs", &body).await;
    let text = refused.text();
    assert!(
        text.contains("job priority must be between [1, 200]"),
        "{text}"
    );
    assert!(text.contains("job_max_count: 6 > 5"), "{text}");
    let mut body = job("mill");
    body["Job"]["Type"] = json!("batch");
    body["Job"]["ParameterizedJob"] = json!({});
    assert_eq!(h.put("/v1/jobs", &body).await.status, 200);
    let target = "/v1/job/mill/dispatch";
    let made = h.put(target, &json!({ "Priority": 150 })).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let refused = h.put(target, &json!({ "Priority": 201 })).await;
    assert_eq!(
        refused.text(),
        "dispatch job priority must be between [1, 200]"
    );
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_of_sources_versions_and_searches_are_in_force() {
    let mut settings = super::Settings {
        job_max_source_size: 10,
        job_tracked_versions: 2,
        ..super::Settings::default()
    };
    settings.search.min_term_length = 3;
    settings.search.limit_results = 1;
    let h = Harness::with(settings, None).await;
    let mut body = job("sourced");
    for (source, kept) in [("0123456789", 200), ("0123456789+", 404)] {
        body["Submission"] = json!({ "Source": source, "Format": "hcl2" });
        body["Job"]["Priority"] = json!(source.len());
        let answer = h.put("/v1/jobs", &body).await.json();
        let warnings = answer["Warnings"].as_str().unwrap_or_default().to_owned();
        assert_eq!(
            warnings.contains("job_max_source_size of 10"),
            kept == 404,
            "{warnings}"
        );
        let version = h.get("/v1/job/sourced").await.json()["Version"].clone();
        let path = format!("/v1/job/sourced/submission?version={version}");
        assert_eq!(h.get(&path).await.status, kept, "{source}");
    }
    body["Job"]["Priority"] = json!(99);
    h.put("/v1/jobs", &body).await;
    let versions = h.get("/v1/job/sourced/versions").await.json();
    assert_eq!(
        versions["Versions"].as_array().map(Vec::len),
        Some(2),
        "of three"
    );

    h.register("sourced-too").await;
    let short = h.put("/v1/search/fuzzy", &json!({ "Text": "so" })).await;
    assert!(
        short.text().contains("at least 3 characters, got 2"),
        "{}",
        short.text()
    );
    let query = json!({ "Text": "sourced", "Context": "jobs" });
    let found = h.put("/v1/search/fuzzy", &query).await.json();
    assert_eq!(
        found["Matches"]["jobs"].as_array().map(Vec::len),
        Some(1),
        "{found}"
    );
    assert_eq!(found["Truncations"]["jobs"], true);
    h.stop().await;

    let mut settings = super::Settings::default();
    settings.search.fuzzy_enabled = false;
    let h = Harness::with(settings, None).await;
    let off = h
        .put("/v1/search/fuzzy", &json!({ "Text": "sourced" }))
        .await;
    assert_eq!(off.text(), "fuzzy search is not enabled");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fuzzy_search_looks_at_as_many_objects_as_the_settings_say() {
    let mut settings = super::Settings::default();
    settings.search.limit_query = 1;
    let h = Harness::with(settings, None).await;
    h.register("looked-at-one").await;
    h.register("looked-at-two").await;
    for (text, found) in [("looked", Some(1)), ("one", Some(1)), ("two", None)] {
        let query = json!({ "Text": text, "Context": "jobs" });
        let answer = h.put("/v1/search/fuzzy", &query).await.json();
        let jobs = answer["Matches"]["jobs"].as_array().map(Vec::len);
        assert_eq!(jobs, found, "{text}: {answer}");
    }
    h.stop().await;
}
