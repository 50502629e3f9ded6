//! Methods and paths that do not exist.

use super::Bad;

#[test]
fn a_wrong_method_is_405_and_an_unknown_path_404() {
    let mut bad = Bad::start();
    let known = [
        "/v1/jobs",
        "/v1/status/leader",
        "/v1/job/x",
        "/v1/job/x/summary",
        "/v1/jobs/parse",
        "/v1/event/stream",
        "/v1/client/stats",
        "/v1/nodes",
        "/v1/operator/digests",
        "/",
    ];
    for method in ["PATCH", "TRACE", "FOO", "x", "PROPFIND"] {
        for path in known {
            bad.refused(405, &["Invalid method"], (method, path, b"{}"));
        }
    }
    for (method, path) in [
        ("PUT", "/v1/status/leader"),
        ("DELETE", "/v1/jobs"),
        ("GET", "/v1/jobs/parse"),
        ("PUT", "/v1/event/stream"),
        ("DELETE", "/v1/nodes"),
        ("PUT", "/v1/allocations"),
        ("PUT", "/v1/job/x/versions"),
    ] {
        bad.refused(405, &["Invalid method"], (method, path, b""));
    }
    for path in [
        "/v1",
        "/v1/",
        "/v2/jobs",
        "//v1/jobs",
        "/v1/jobs/",
        "/v1/nope",
        "/v1/job",
        "/v1/node/",
        "/V1/JOBS",
        "/v1/../v1/jobs",
        "/v1/nodes/x",
        "/favicon.ico",
        "/.env",
        "*",
    ] {
        for method in ["GET", "PUT", "DELETE", "PATCH"] {
            bad.refused(404, &[], (method, path, b""));
        }
    }
    bad.end();
}

#[test]
fn head_answers_as_get_without_a_body() {
    let mut bad = Bad::start();
    for (path, status) in [("/v1/jobs", 200), ("/v1/job/none", 404), ("/v1/nope", 404)] {
        let answer = bad.ask("HEAD", path, &[]);
        assert_eq!((answer.status, answer.body.len()), (status, 0), "{path}");
    }
    bad.end();
}
