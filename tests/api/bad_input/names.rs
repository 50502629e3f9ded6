//! Names with slashes, colons, quotes, other alphabets, escapes and NUL.

use serde_json::json;

use super::{Bad, with};
use crate::support::escaped;

const ODD: [&str; 16] = [
    "a/b",
    "a:b",
    "with\"quotes\"",
    "it's",
    "日本",
    "a.b*c",
    "a%2Fb",
    "a%00b",
    "a%zz",
    "%",
    "a+b",
    "a?b",
    "a#b",
    "a;b&c=d",
    "../../etc",
    ".",
];

#[test]
fn a_job_with_an_odd_name_is_found_again_under_it() {
    let mut bad = Bad::start();
    for id in ODD {
        let (status, text) = bad.reported("PUT", "/v1/jobs", &with("/ID", json!(id)));
        assert_eq!(status, 200, "{id}: {text}");
        let path = format!("/v1/job/{}", escaped(id));
        let found = bad.ask("GET", &path, &[]).json().expect("a job");
        assert_eq!(found["ID"], id);
        for part in ["summary", "versions", "evaluations", "allocations"] {
            let (status, text) = bad.reported("GET", &format!("{path}/{part}"), &[]);
            assert_eq!(status, 200, "{id} {part}: {text}");
        }
        let listed = bad.ask("GET", &format!("/v1/jobs?prefix={}", escaped(id)), &[]);
        let listed = listed.json().expect("a list");
        assert!(
            listed
                .as_array()
                .is_some_and(|l| l.iter().any(|job| job["ID"] == id)),
            "{id}"
        );
        assert_eq!(
            bad.reported("DELETE", &format!("{path}?purge=true"), &[]).0,
            200,
            "{id}"
        );
        assert_eq!(bad.reported("GET", &path, &[]).0, 404, "{id} is gone");
    }
    bad.end();
}

#[test]
fn a_name_that_cannot_be_is_refused_with_a_reason() {
    let mut bad = Bad::start();
    for (pointer, value, status, text) in [
        ("/ID", "", 400, "Job ID hasn't been provided"),
        ("/ID", "a b", 500, "Job ID contains a space"),
        ("/ID", "a\0b", 500, "Job ID contains a null character"),
        ("/Name", "a\0b", 500, "Job Name contains a null character"),
        (
            "/TaskGroups/0/Name",
            "a\0b",
            500,
            "name contains null character",
        ),
        (
            "/TaskGroups/0/Tasks/0/Name",
            "../x",
            500,
            "Task name cannot include slashes",
        ),
        ("/Namespace", "日本/x", 500, "nonexistent namespace"),
        ("/Type", "nope", 500, "Invalid job type"),
    ] {
        let body = with(pointer, json!(value));
        bad.refused(status, &[text], ("PUT", "/v1/jobs", &body));
    }
    for path in ["a:b", "日本", "a%2Fb%25", "a\"b", "a%00b", ".."] {
        let path = format!("/v1/var/{}", escaped(path));
        bad.refused(
            400,
            &["invalid path"],
            ("PUT", &path, br#"{"Items": {"a": "b"}}"#),
        );
    }
    for name in ["a/b", "日本", "a\0b", "", "with space"] {
        let body = json!({"Name": name}).to_string();
        for path in ["/v1/namespace", "/v1/node/pools"] {
            let pool = path.ends_with("pools");
            let what = if pool { "node pool" } else { "namespace" };
            let status = if pool { 400 } else { 500 };
            let words = [&format!("nvalid {what} \"{name}\"")[..], "name"];
            bad.refused(status, &words, ("PUT", path, body.as_bytes()));
        }
    }
    bad.end();
}

#[test]
fn broken_escapes_in_a_path_are_refused_by_name() {
    let mut bad = Bad::start();
    for path in ["%", "%z1", "a%2", "%ff", "%c3%28", "a%ed%a0%80"] {
        for route in [
            "job",
            "var",
            "node",
            "allocation",
            "evaluation",
            "namespace",
        ] {
            let path = format!("/v1/{route}/{path}");
            bad.refused(400, &["URL escape"], ("GET", &path, &[]));
        }
    }
    bad.end();
}
