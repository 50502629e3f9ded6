//! Bodies that are no JSON, not the JSON that the route takes, too deep, too long or absurd.

use serde_json::json;

use super::{Bad, with};

/// The longest body that is read, bytes.
const LIMIT: usize = 16 << 20;

#[test]
fn a_body_that_is_no_json_says_where() {
    let mut bad = Bad::start();
    let bodies: [(&[u8], &str); 9] = [
        (b"", "Request body is empty"),
        (b"{", "EOF while parsing"),
        (b"{\"Job\": {\"ID\": \"x\"", "EOF while parsing"),
        (b"\xff\xfe\x00", "expected value"),
        (b"{\"Job\": {\"ID\": \"a\xffb\"}}", "invalid unicode"),
        (b"{\"Job\": {\"ID\": \"\\ud800\"}}", "hex escape"),
        (b"{\"Job\": {\"ID\": \"a\x01b\"}}", "control character"),
        (b"{\"Job\": null} {}", "trailing characters"),
        (b"{\"Job\": nul}", "expected ident"),
    ];
    for (body, text) in bodies {
        bad.refused(400, &[text], ("PUT", "/v1/jobs", body));
    }
    bad.end();
}

#[test]
fn a_wrong_type_is_named_by_its_field() {
    let mut bad = Bad::start();
    for body in ["null", "{}"] {
        let wrong = ("PUT", "/v1/jobs", body.as_bytes());
        bad.refused(400, &["Job must be specified"], wrong);
    }
    for body in ["[]", "7", "\"x\"", "true"] {
        bad.refused(
            400,
            &["expected an object"],
            ("PUT", "/v1/jobs", body.as_bytes()),
        );
    }
    bad.refused(
        400,
        &["field Job:", "object"],
        ("PUT", "/v1/jobs", b"{\"Job\": 7}"),
    );
    for (pointer, value, words) in [
        ("/ID", json!(7), ["field Job.ID:", "expected a string"]),
        ("/ID", json!(["x"]), ["field Job.ID:", "expected a string"]),
        (
            "/Priority",
            json!("high"),
            ["field Job.Priority:", "whole number"],
        ),
        (
            "/Priority",
            json!(1.5),
            ["field Job.Priority:", "whole number"],
        ),
        ("/AllAtOnce", json!("yes"), ["field Job.AllAtOnce:", "bool"]),
        (
            "/Datacenters",
            json!("dc1"),
            ["field Job.Datacenters:", "list"],
        ),
        ("/Meta", json!([]), ["field Job.Meta:", "map"]),
        ("/TaskGroups", json!({}), ["field Job.TaskGroups:", "list"]),
        (
            "/TaskGroups/0/Count",
            json!("3"),
            ["TaskGroups[0].Count:", "whole number"],
        ),
        (
            "/TaskGroups/0/Tasks",
            json!("x"),
            ["TaskGroups[0].Tasks:", "list"],
        ),
        (
            "/TaskGroups/0/Tasks/0/KillTimeout",
            json!("5 y"),
            ["Tasks[0].KillTimeout:", "duration"],
        ),
        (
            "/TaskGroups/0/Tasks/0/Config",
            json!([1]),
            ["Tasks[0].Config:", "map"],
        ),
    ] {
        let body = with(pointer, value);
        bad.refused(400, &words, ("PUT", "/v1/jobs", &body));
    }
    bad.end();
}

#[test]
fn absurd_numbers_are_refused_before_they_are_counted_with() {
    let mut bad = Bad::start();
    let beyond = json!(9_223_372_036_854_775_808_u64);
    for (pointer, value, status, text) in [
        (
            "/TaskGroups/0/Count",
            beyond.clone(),
            400,
            "TaskGroups[0].Count",
        ),
        (
            "/TaskGroups/0/Count",
            json!(i64::MAX),
            500,
            "greater than configured job_max_count",
        ),
        (
            "/TaskGroups/0/Count",
            json!(i64::MIN),
            500,
            "count can't be negative",
        ),
        (
            "/TaskGroups/0/Count",
            json!(-1),
            500,
            "count can't be negative",
        ),
        ("/Priority", beyond.clone(), 400, "field Job.Priority"),
        ("/Priority", json!(-1), 500, "job priority must be between"),
        ("/Priority", json!(1e99), 400, "field Job.Priority"),
        (
            "/TaskGroups/0/Tasks/0/KillTimeout",
            json!(-5),
            500,
            "KillTimeout",
        ),
        (
            "/TaskGroups/0/Tasks/0/Resources/CPU",
            json!(-5),
            500,
            "minimum CPU value",
        ),
        (
            "/TaskGroups/0/Tasks/0/Resources/CPU",
            beyond,
            400,
            "Resources.CPU",
        ),
    ] {
        let body = with(pointer, value);
        bad.refused(status, &[text], ("PUT", "/v1/jobs", &body));
    }
    let digits = format!("{{\"Job\": {{\"Priority\": {}}}}}", "9".repeat(5000));
    bad.refused(
        400,
        &["number out of range"],
        ("PUT", "/v1/jobs", digits.as_bytes()),
    );
    bad.end();
}

#[test]
fn the_greatest_number_there_is_may_be_asked_for() {
    let mut bad = Bad::start();
    // Nothing has so much, and adding to it in the scheduler must not overflow.
    for field in ["CPU", "MemoryMB"] {
        let pointer = format!("/TaskGroups/0/Tasks/0/Resources/{field}");
        let (status, text) = bad.reported("PUT", "/v1/jobs", &with(&pointer, json!(i64::MAX)));
        assert!(
            matches!(status, 200 | 400 | 500) && !text.is_empty(),
            "{status} {text}"
        );
    }
    bad.end();
}

#[test]
fn nesting_ends_before_the_stack_does() {
    let mut bad = Bad::start();
    for depth in [1_000, 100_000, 1_000_000] {
        let lists = "[".repeat(depth);
        let objects = "{\"a\":".repeat(depth);
        let closed = format!("{lists}{}", "]".repeat(depth));
        let bodies = [
            lists.clone(),
            objects.clone(),
            format!("{{\"Job\": {{\"ID\": \"x\", \"NoSuchField\": {objects}}}}}"),
            format!("{{\"Job\": {{\"Meta\": {closed}}}}}"),
        ];
        // What jobs do not have is skipped, however deep it is.
        let skipped = format!("{{\"Job\": {{\"ID\": \"x\", \"NoSuchField\": {closed}}}}}");
        for (method, path, code) in [
            ("PUT", "/v1/jobs", 500),
            ("PUT", "/v1/job/x/plan", 500),
            ("DELETE", "/v1/evaluations", 400),
        ] {
            bad.refused(code, &[], (method, path, skipped.as_bytes()));
        }
        for body in bodies {
            bad.refused(400, &[], ("PUT", "/v1/jobs", body.as_bytes()));
            bad.refused(400, &[], ("PUT", "/v1/job/x/plan", body.as_bytes()));
            bad.refused(400, &[], ("DELETE", "/v1/evaluations", body.as_bytes()));
        }
    }
    bad.end();
}

#[test]
fn unknown_fields_are_ignored() {
    let mut bad = Bad::start();
    for value in [
        json!(null),
        json!({"deep": [1, {"a": 2}]}),
        json!("x"),
        json!(1e300),
    ] {
        let mut body = serde_json::from_slice::<serde_json::Value>(&with("/ID", json!("y")));
        let body = body.as_mut().expect("JSON");
        body["NoSuchField"] = value.clone();
        body["Job"]["NoSuchField"] = value.clone();
        body["Job"]["TaskGroups"][0]["NoSuchField"] = value;
        let (status, text) = bad.reported("PUT", "/v1/jobs", body.to_string().as_bytes());
        assert_eq!(status, 200, "{text}");
    }
    bad.end();
}

#[test]
fn a_body_over_the_limit_is_413_and_heard() {
    let mut bad = Bad::start();
    let long = |length: usize| {
        let mut body = b"{\"Job\": {\"ID\": \"".to_vec();
        body.resize(length, b'x');
        body
    };
    let text = format!("at most {LIMIT} bytes are allowed");
    for length in [LIMIT + 1, 2 * LIMIT, 4 * LIMIT] {
        for path in ["/v1/jobs", "/v1/jobs/parse", "/v1/var/a"] {
            bad.refused(413, &[&text], ("PUT", path, &long(length)));
        }
    }
    bad.refused(400, &["EOF"], ("PUT", "/v1/jobs", &long(LIMIT)));
    bad.end();
}
