use std::time::Duration;

use drover_csi::{Cause, Code, RetryDecision};
use serde_json::{Value, json};

use crate::support::{Caller, Running};

/// Calls of this name that were begun, and those that ended with this code.
fn counted(record: &[Value], call: &str, code: &str) -> (usize, usize) {
    let of = |line: &&Value| line["call"] == call;
    let begun = record
        .iter()
        .filter(of)
        .filter(|line| !line["begin"].is_null());
    let ended = record.iter().filter(of).filter(|line| line["code"] == code);
    (begun.count(), ended.count())
}

#[tokio::test]
async fn it_fails_as_often_as_it_is_told_and_then_works() {
    let running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    let fail = json!({"fail": {"code": 13, "text": "on command"}});
    running.faults(&json!([{"call": "CreateVolume", "times": 2, "do": fail}]));
    for _ in 0..2 {
        let error = calls.create("one").await.unwrap_err();
        assert_eq!(error.cause(), Cause::Answered(Code::Internal));
        assert_eq!(error.text(), "on command");
    }
    calls.create("one").await.unwrap();
    let record = running.record();
    assert_eq!(counted(&record, "CreateVolume", "Internal"), (3, 2));
    assert_eq!(counted(&record, "CreateVolume", "Ok"), (3, 1));
}

#[tokio::test]
async fn it_fails_for_one_volume_only_and_after_the_work_was_done() {
    let running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    let (one, two) = (
        calls.create("a").await.unwrap(),
        calls.create("b").await.unwrap(),
    );
    let fail = json!({"fail": {"code": 14, "text": "the answer is lost"}});
    running.faults(&json!([
        {"call": "ControllerPublishVolume", "volume": one, "when": "after", "do": fail}
    ]));
    calls.attach(&two, "one").await.unwrap();
    let lost = calls.attach(&one, "one").await.unwrap_err();
    assert_eq!(lost.retry_decision(), RetryDecision::Retry);
    running.faults(&json!([]));
    let state = std::fs::read_to_string(running.path("state/state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    assert!(
        state["volumes"][one]["attached"]["one"].is_object(),
        "{state}"
    );
}

#[tokio::test]
async fn it_hangs_and_is_slow() {
    let running = Running::start(&["--links"]);
    let calls = Caller::new(running.plugin());
    running.faults(&json!([{"call": "CreateVolume", "times": 1, "do": "hang"}]));
    let error = calls.create("one").await.unwrap_err();
    assert_eq!(error.retry_decision(), RetryDecision::Retry, "{error}");
    // A call that hangs holds up no other.
    calls.create("two").await.unwrap();
    running.faults(&json!([{"call": "*", "do": {"slow": {"ms": 120}}}]));
    let begun = std::time::Instant::now();
    Caller::new(running.patient())
        .create("three")
        .await
        .unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(120));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_until_it_may_go_on_and_says_so() {
    let running = Running::start(&["--links"]);
    let gate = running.path("gate");
    for when in ["before", "after"] {
        running.faults(&json!([
            {"call": "CreateVolume", "when": when, "do": {"hold": {"until": gate}}}
        ]));
        let calls = Caller::new(running.patient());
        let made = tokio::spawn(async move { calls.create(when).await });
        let held = || {
            if !running.path("record").exists() {
                return Err("nobody calls");
            }
            let record = running.record();
            let held = record.iter().any(|line| line["held"] == when);
            held.then_some(record).ok_or("nobody waits")
        };
        let record = drover_testkit::wait_for("a call that waits", drover_testkit::LONG, held);
        let (begun, ended) = record.unwrap().iter().fold((0, 0), |(begun, ended), line| {
            let create = line["call"] == "CreateVolume";
            let is = |field: &str| usize::from(create && !line[field].is_null());
            (begun + is("begin"), ended + is("code"))
        });
        assert_eq!(begun, ended + 1, "{when}");
        std::fs::write(&gate, "").unwrap();
        made.await.unwrap().unwrap();
        std::fs::remove_file(&gate).unwrap();
    }
}

#[tokio::test]
async fn it_names_another() {
    let running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    let lie = json!({"lie": {"id": "another"}});
    running.faults(&json!([{"call": "CreateVolume", "times": 1, "do": lie}]));
    assert_eq!(calls.create("one").await.unwrap(), "another");
    assert_ne!(calls.create("one").await.unwrap(), "another");
}

#[tokio::test]
async fn it_dies_before_and_after_the_work_and_counts_across_its_death() {
    let mut running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    for (when, made) in [("before", 0), ("after", 1)] {
        running.faults(&json!([
            {"call": "CreateVolume", "times": 1, "when": when, "do": "die"}
        ]));
        let error = calls.create(when).await.unwrap_err();
        assert_eq!(error.retry_decision(), RetryDecision::Retry, "{error}");
        running.again();
        let state = std::fs::read_to_string(running.path("state/state.json")).unwrap();
        let state: Value = serde_json::from_str(&state).unwrap();
        assert_eq!(state["volumes"].as_object().unwrap().len(), made, "{when}");
        // The rule was for one call: it is over, though the plugin is a new process.
        running.faults(&json!([
            {"call": "CreateVolume", "times": 0, "when": when, "do": "die"}
        ]));
        if made == 1 {
            calls.create(when).await.unwrap();
        }
    }
    let record = running.record();
    let begun = counted(&record, "CreateVolume", "Ok");
    assert_eq!(begun, (3, 1), "a call in which it died has no end");
}

#[tokio::test]
async fn it_forgets() {
    let running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    let id = calls.create("one").await.unwrap();
    calls.attach(&id, "one").await.unwrap();
    running.faults(&json!([
        {"call": "ControllerUnpublishVolume", "times": 1, "do": {"forget": "volume"}}
    ]));
    calls.detach(&id, "one").await.unwrap();
    let error = calls.attach(&id, "one").await.unwrap_err();
    assert_eq!(error.cause(), Cause::Answered(Code::NotFound));
}

#[tokio::test]
async fn a_file_of_faults_that_cannot_be_read_is_said() {
    let running = Running::start(&["--links"]);
    std::fs::write(running.path("faults"), "[{\"cal\": 1}]").unwrap();
    let calls = Caller::new(running.patient());
    let error = calls.create("one").await.unwrap_err();
    assert!(error.text().contains("the file of faults"), "{error}");
}
