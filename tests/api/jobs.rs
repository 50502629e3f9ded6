//! Jobs: registration, plans, reads.

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};
use serde_json::json;

use crate::support::{job, json_of, pause, register, server};

#[test]
fn ev_03_a_plan_writes_nothing() {
    let running = server();
    let mut http = running.http();
    // The first root key is an event of its own: it is to lie behind.
    wait_for("a root key", LONG, || {
        let keys = json_of(&mut running.http(), "/v1/operator/keyring/keys");
        ensure!(
            keys.as_array().is_some_and(|keys| !keys.is_empty()),
            "{keys}"
        );
        Ok(())
    })
    .expect("a root key");
    // Nothing is scheduled from here on, so only the plan could change something.
    pause(&mut http, true);
    register(&mut http, &job("real", 1));
    let before = json_of(&mut http, "/v1/operator/digests");
    let body = job("planned", 3);
    let plan = json!({"Job": body["Job"], "Diff": true});
    let answer = http.put("/v1/job/planned/plan", &plan).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let after = json_of(&mut http, "/v1/operator/digests");
    assert_eq!(before, after);
    assert_eq!(http.get("/v1/job/planned").expect("an answer").status, 404);
}

#[test]
fn a_job_can_be_read_back_in_every_form() {
    let running = server();
    let mut http = running.http();
    let eval = register(&mut http, &job("app", 2));
    assert_eq!(
        json_of(&mut http, "/v1/job/app")["TaskGroups"][0]["Count"],
        2
    );
    assert_eq!(json_of(&mut http, "/v1/jobs?prefix=ap")[0]["ID"], "app");
    assert_eq!(
        json_of(&mut http, &format!("/v1/evaluation/{eval}"))["JobID"],
        "app"
    );
    // Without nodes there is a blocked one too, and the order is that of random ids.
    let evals = json_of(&mut http, "/v1/job/app/evaluations");
    let evals = evals.as_array().expect("a list");
    assert!(evals.iter().any(|one| one["ID"] == *eval), "{evals:?}");
    assert_eq!(json_of(&mut http, "/v1/job/app/summary")["JobID"], "app");
    assert_eq!(
        json_of(&mut http, "/v1/job/app/versions")["Versions"][0]["Version"],
        0
    );
    register(&mut http, &job("app", 3));
    assert_eq!(
        json_of(&mut http, "/v1/job/app/versions")["Versions"][0]["Version"],
        1
    );
    let stale = json!({"Job": job("app", 4)["Job"], "EnforceIndex": true, "JobModifyIndex": 1});
    let refused = http.put("/v1/jobs", &stale).expect("an answer");
    let text = refused.text();
    assert_eq!(refused.status, 500, "{text}");
    assert!(text.contains("conflicting job modify index"), "{text}");
}
