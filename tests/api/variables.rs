//! Variables: operations, conflicts, and that no value lies about in clear.

use std::fs;
use std::path::Path;

use drover_testkit::Setup;
use serde_json::{Value, json};

use crate::support::{json_of, server};

fn items(user: &str) -> Value {
    json!({"Items": {"user": user}})
}

#[test]
fn var_01_one_call_for_each_operation() {
    let running = server();
    let mut http = running.http();
    let set = http.put("/v1/var/app/db", &items("a")).expect("an answer");
    assert_eq!(set.status, 200, "{}", set.text());
    let index = set.json().expect("JSON")["ModifyIndex"]
        .as_u64()
        .expect("an index");
    let cas = http
        .put(&format!("/v1/var/app/db?cas={index}"), &items("b"))
        .expect("an answer");
    assert_eq!(cas.status, 200, "{}", cas.text());
    let index = cas.json().expect("JSON")["ModifyIndex"]
        .as_u64()
        .expect("an index");
    assert_eq!(json_of(&mut http, "/v1/var/app/db")["Items"]["user"], "b");
    let gone = http
        .send("DELETE", &format!("/v1/var/app/db?cas={index}"), &[])
        .expect("an answer");
    assert_eq!(gone.status, 204, "{}", gone.text());
    let missing = http.get("/v1/var/app/db").expect("an answer");
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "variable not found")
    );
    assert_eq!(
        http.put("/v1/var/app/db", &items("c"))
            .expect("an answer")
            .status,
        200
    );
    let gone = http
        .send("DELETE", "/v1/var/app/db", &[])
        .expect("an answer");
    assert_eq!(gone.status, 204, "{}", gone.text());
}

#[test]
fn var_02_of_two_equal_swaps_one_wins() {
    let running = server();
    for round in 0..20 {
        let path = format!("/v1/var/race/{round}?cas=0");
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let put = |user: &'static str| {
                let (running, path) = (&running, &path);
                scope.spawn(move || {
                    running
                        .http()
                        .put(path, &items(user))
                        .expect("an answer")
                        .status
                })
            };
            let racers = [put("a"), put("b"), put("c"), put("d")];
            racers
                .into_iter()
                .map(|racer| racer.join().expect("no panic"))
                .collect()
        });
        let won = statuses.iter().filter(|status| **status == 200).count();
        let lost = statuses.iter().filter(|status| **status == 409).count();
        assert_eq!((won, lost), (1, 3), "round {round}: {statuses:?}");
    }
}

#[test]
fn var_03_a_conflict_answers_the_variable_it_met() {
    let running = server();
    let mut http = running.http();
    http.put("/v1/var/app/db", &items("a")).expect("an answer");
    let conflict = http
        .put("/v1/var/app/db?cas=1", &items("b"))
        .expect("an answer");
    assert_eq!(conflict.status, 409);
    let met: Value = serde_json::from_slice(&conflict.body).expect("JSON");
    assert_eq!(
        (met["Path"].as_str(), met["Items"]["user"].as_str()),
        (Some("app/db"), Some("a"))
    );
    assert_eq!(json_of(&mut http, "/v1/var/app/db")["Items"]["user"], "a");
}

#[test]
fn var_04_zero_means_only_if_absent() {
    let running = server();
    let mut http = running.http();
    let put = |http: &mut drover_testkit::Http, cas: u64| {
        http.put(&format!("/v1/var/app/db?cas={cas}"), &items("a"))
            .expect("an answer")
            .status
    };
    assert_eq!(
        put(&mut http, 7),
        409,
        "another index on an absent variable"
    );
    assert_eq!(put(&mut http, 0), 200, "absent");
    assert_eq!(put(&mut http, 0), 409, "present");
}

/// Whether a file below `dir` holds `needle`; its path.
fn find(dir: &Path, needle: &[u8]) -> Option<String> {
    for entry in fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, needle) {
                return Some(found);
            }
        } else if fs::read(&path)
            .is_ok_and(|bytes| bytes.windows(needle.len()).any(|w| w == needle))
        {
            return Some(path.display().to_string());
        }
    }
    None
}

#[test]
fn var_07_no_value_lies_in_clear_below_the_data_directory() {
    let canary = "canary-c2f7b1d94e";
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
    let agent = setup.start().expect("the agent starts");
    let mut lines = agent
        .http()
        .lines("/v1/event/stream?topic=*")
        .expect("a stream");
    let put = agent
        .http()
        .put("/v1/var/app/db", &items(canary))
        .expect("an answer");
    assert_eq!(put.status, 200, "{}", put.text());
    // Whatever the stream says of it, it says before the next variable's event.
    agent
        .http()
        .put("/v1/var/app/end", &items("plain"))
        .expect("an answer");
    let end = lines.find("the last variable", |line| {
        assert!(!line.contains(canary), "{line}");
        line.contains("app/end").then_some(())
    });
    end.expect("a line");
    let read = json_of(&mut agent.http(), "/v1/var/app/db");
    assert_eq!(read["Items"]["user"], canary);
    agent.stop(drover_testkit::LONG).expect("it stops");
    assert_eq!(find(&data, canary.as_bytes()), None);
    assert!(
        find(&data, b"app/db").is_some(),
        "the search itself must find what is there"
    );
}
