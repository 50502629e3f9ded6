//! Evaluations: list, count, delete by filter and by id.

use drover_testkit::{LONG, wait_for};
use serde_json::{Value, json};

use crate::support::{Running, escaped, job, json_of, pause, register, server, wait_length};

/// A server with a paused broker and `count` pending evaluations of each of two jobs.
fn paused(count: usize) -> Running {
    let running = server();
    let mut http = running.http();
    pause(&mut http, true);
    for id in ["web", "db"] {
        for _ in 0..count {
            register(&mut http, &job(id, 1));
        }
    }
    wait_length(&mut http, "/v1/evaluations", 2 * count);
    running
}

fn delete(running: &Running, body: &Value) -> (u16, String) {
    let body = serde_json::to_vec(body).expect("JSON");
    let answer = running
        .http()
        .send("DELETE", "/v1/evaluations", &body)
        .expect("an answer");
    (answer.status, answer.text())
}

#[test]
fn eval_01_delete_takes_ids_or_a_filter() {
    let running = paused(2);
    let id = json_of(&mut running.http(), "/v1/evaluations")[0]["ID"].clone();
    let filter = "JobID == \"web\"";
    let both = delete(&running, &json!({"EvalIDs": [id], "Filter": filter}));
    assert_eq!(
        both,
        (
            400,
            "evals cannot be deleted by both ID and filter".to_owned()
        )
    );
    let neither = delete(&running, &json!({}));
    assert_eq!(
        neither,
        (
            400,
            "evals must be deleted by either ID or filter".to_owned()
        )
    );
    let (status, text) = delete(&running, &json!({"EvalIDs": [id]}));
    assert_eq!(status, 200, "{text}");
    wait_length(&mut running.http(), "/v1/evaluations", 3);
    let (status, text) = delete(&running, &json!({"Filter": filter}));
    assert_eq!(status, 200, "{text}");
    let left = json_of(&mut running.http(), "/v1/evaluations");
    let left = left.as_array().expect("a list");
    assert!(left.iter().all(|eval| eval["JobID"] == "db"), "{left:?}");
}

#[test]
fn eval_08_at_most_7281_ids_in_one_request() {
    let running = paused(1);
    let ids = |count| vec!["0b156e3e-bb39-cc04-5170-80b70d217ba2"; count];
    let (status, text) = delete(&running, &json!({"EvalIDs": ids(7282)}));
    assert_eq!(status, 400, "{text}");
    assert_eq!(
        text,
        "request includes 7282 evaluation IDs, must be 7281 or fewer"
    );
    let (status, text) = delete(&running, &json!({"EvalIDs": ids(7281)}));
    assert_eq!((status, text.as_str()), (500, "eval not found"));
}

#[test]
fn eval_09_delete_needs_a_paused_broker() {
    let running = paused(1);
    let list = json_of(&mut running.http(), "/v1/evaluations");
    let id = list[0]["ID"].clone();
    // Only blocked evaluations are left once the broker continues: there is no node.
    pause(&mut running.http(), false);
    wait_for("the broker to go on", LONG, || {
        let list = json_of(
            &mut running.http(),
            "/v1/evaluations?filter=Status+!=+%22pending%22",
        );
        let done = list.as_array().map_or(0, Vec::len);
        (done >= 2).then_some(()).ok_or(format!("{done} of 2"))
    })
    .expect("what was pending is worked on");
    let bodies = [
        json!({"Filter": "JobID == \"web\""}),
        json!({"EvalIDs": [id]}),
    ];
    let wanted = "eval broker is enabled; eval broker must be paused to delete evals";
    for body in &bodies {
        let (status, text) = delete(&running, body);
        assert_eq!((status, text.as_str()), (500, wanted), "{body}");
    }
    let still = json_of(&mut running.http(), "/v1/evaluations");
    let held = |id: &Value| {
        still
            .as_array()
            .is_some_and(|l| l.iter().any(|e| e["ID"] == *id))
    };
    assert!(held(&id), "nothing is deleted");
    pause(&mut running.http(), true);
    for body in &bodies[1..] {
        let (status, text) = delete(&running, body);
        assert_eq!(status, 200, "{text}");
    }
}

#[test]
fn eval_10_count_equals_the_length_of_the_list() {
    let running = paused(3);
    let mut http = running.http();
    let id = json_of(&mut http, "/v1/evaluations")[0]["ID"].clone();
    let id = id.as_str().expect("an id").to_owned();
    let mut lengths = Vec::new();
    for query in [
        String::new(),
        format!("filter={}", escaped("JobID == \"web\"")),
        format!(
            "filter={}",
            escaped("Status == \"pending\" and Priority != 1")
        ),
        format!("prefix={}", &id[..2]),
        "namespace=*".to_owned(),
        "namespace=nowhere".to_owned(),
        format!("filter={}", escaped("JobID == \"none\"")),
    ] {
        let list = http
            .get(&format!("/v1/evaluations?{query}"))
            .expect("an answer");
        let count = http
            .get(&format!("/v1/evaluations/count?{query}"))
            .expect("an answer");
        let (list, count) = (list.json().expect(&query), count.json().expect(&query));
        let length = list.as_array().map(Vec::len);
        assert_eq!(
            count["Count"].as_u64(),
            length.map(|length| length as u64),
            "{query}"
        );
        lengths.push(length.unwrap_or_default());
    }
    // They are not all the same: each parameter counts.
    assert_eq!(lengths[..3], [6, 3, 6], "{lengths:?}");
    assert!(lengths[3] >= 1, "{lengths:?}");
    assert_eq!(lengths[4..], [6, 0, 0], "{lengths:?}");
}

#[test]
fn eval_06_a_second_run_removes_what_came_later() {
    let running = paused(2);
    let filter = json!({"Filter": "JobID == \"web\""});
    assert_eq!(delete(&running, &filter).0, 200);
    register(&mut running.http(), &job("web", 1));
    wait_length(&mut running.http(), "/v1/evaluations", 3);
    assert_eq!(delete(&running, &filter).0, 200);
    wait_length(&mut running.http(), "/v1/evaluations", 2);
}

#[test]
fn pages_of_evaluations_join_to_the_whole_list() {
    let running = paused(4);
    let mut http = running.http();
    let whole = json_of(&mut http, "/v1/evaluations");
    let (mut joined, mut pages) = (Vec::new(), 0);
    let mut token = String::new();
    loop {
        pages += 1;
        assert!(pages < 100, "{token}");
        let page = http.get(&format!("/v1/evaluations?per_page=3&next_token={token}"));
        let page = page.expect("an answer");
        let rows = page.json().expect("JSON");
        joined.extend(rows.as_array().expect("a list").clone());
        match page.header("x-nomad-nexttoken") {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            _ => break,
        }
    }
    assert_eq!(Value::from(joined), whole);
}
