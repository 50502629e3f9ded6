//! Parameters that are no numbers, durations, tokens or filters.

use super::Bad;
use crate::support::{escaped, job, pause, register};

const LISTS: [&str; 8] = [
    "jobs",
    "evaluations",
    "allocations",
    "deployments",
    "nodes",
    "vars",
    "namespaces",
    "services",
];

#[test]
fn parameters_that_every_list_knows_are_checked_by_every_list() {
    let mut bad = Bad::start();
    for list in LISTS {
        for (query, text) in [
            ("index=abc", "Invalid index"),
            ("index=-1", "Invalid index"),
            ("index=1e3", "Invalid index"),
            ("index=18446744073709551616", "Invalid index"),
            ("wait=1y", "Invalid wait time"),
            ("wait=1s1", "Invalid wait time"),
            ("wait=99999999999h", "Invalid wait time"),
            ("per_page=x", "per_page"),
            ("per_page=1.5", "per_page"),
            ("per_page=99999999999999", "per_page"),
            ("stale=maybe", "stale"),
            ("filter=%ff", "URL escape"),
            ("a=%zz", "URL escape"),
            ("%=1", "URL escape"),
        ] {
            let path = format!("/v1/{list}?{query}");
            bad.refused(400, &[text], ("GET", &path, &[]));
        }
        for query in [
            "per_page=-1",
            "per_page=0",
            "wait=",
            "wait=-1s",
            "=",
            "&&&",
            "??",
            "pretty=",
            "reverse=maybe",
            "index=18446744073709551615&wait=1ms",
            "namespace=%00",
        ] {
            let (status, text) = bad.reported("GET", &format!("/v1/{list}?{query}"), &[]);
            assert_eq!(status, 200, "{list} {query}: {text}");
        }
    }
    bad.end();
}

#[test]
fn a_token_of_another_list_is_refused() {
    let mut bad = Bad::start();
    for (list, tokens) in [
        ("jobs", ["garbage", "%00", "0123"]),
        ("vars", ["garbage", "%00", "0123"]),
        (
            "evaluations",
            ["garbage", "default.x", "18446744073709551616.x"],
        ),
        ("allocations", ["garbage", ".", "-1.x"]),
        ("deployments", ["garbage", "1e3.x", "%E6%97%A5.x"]),
    ] {
        for token in tokens {
            let path = format!("/v1/{list}?per_page=1&next_token={token}");
            bad.refused(400, &["invalid next_token"], ("GET", &path, &[]));
        }
    }
    // One that names a row that was never there is a place like any other.
    for path in [
        "jobs?next_token=zz.zz",
        "nodes?next_token=zz",
        "evaluations?next_token=9.zz",
    ] {
        let (status, text) = bad.reported("GET", &format!("/v1/{path}"), &[]);
        assert_eq!((status, text.as_str()), (200, "[]"), "{path}");
    }
    bad.end();
}

#[test]
fn filters_that_are_none_say_why() {
    let mut bad = Bad::start();
    pause(&mut bad.http, true);
    register(&mut bad.http, &job("a", 1));
    let nested = "(".repeat(10_000);
    let long = format!("ID == {}", "a".repeat(30_000));
    for (filter, text) in [
        (nested.as_str(), "nested"),
        (long.as_str(), "bytes"),
        ("==", "failed to read filter expression"),
        ("ID ==", "failed to read filter expression"),
        ("ID matches \"[\"", "regular expression"),
        ("Meta[\"", "unterminated string"),
        ("日本 == 1", "failed to read filter expression"),
        ("ID == \"a\0", "failed to read filter expression"),
    ] {
        for list in [
            "jobs",
            "evaluations",
            "evaluations/count",
            "allocations",
            "nodes",
            "vars",
        ] {
            let path = format!("/v1/{list}?filter={}", escaped(filter));
            bad.refused(400, &[text], ("GET", &path, &[]));
        }
    }
    // A selector that no row has is only met where there is a row.
    let path = format!("/v1/jobs?filter={}", escaped("NoSuchField == 1"));
    bad.refused(400, &["NoSuchField"], ("GET", &path, &[]));
    // A regular expression cannot run away.
    let slow = escaped("ID matches \"((((((a*)*)*)*)*)*)*b$\"");
    let (status, _) = bad.reported("GET", &format!("/v1/jobs?filter={slow}"), &[]);
    assert_eq!(status, 200);
    bad.end();
}

#[test]
fn an_odd_prefix_is_refused_where_ids_are_uuids_and_taken_elsewhere() {
    let mut bad = Bad::start();
    for prefix in ["a", "abc", "zz", "%00", "a-b", "0g"] {
        for list in [
            "evaluations",
            "allocations",
            "deployments",
            "nodes",
            "evaluations/count",
        ] {
            let path = format!("/v1/{list}?prefix={prefix}");
            let (status, text) = bad.reported("GET", &path, &[]);
            let even = prefix == "a-b";
            assert_eq!(status, if even { 200 } else { 500 }, "{path}: {text}");
            assert!(
                even || text.contains("even length") || text.contains("Invalid UUID: "),
                "{path}: {text}"
            );
        }
        for list in ["jobs", "vars", "namespaces"] {
            let (status, text) = bad.reported("GET", &format!("/v1/{list}?prefix={prefix}"), &[]);
            assert_eq!(status, 200, "{list} {prefix}: {text}");
        }
    }
    bad.end();
}
