//! Whatever a client sends, it gets an answer, and the agent lives on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{job, json_of, server};

#[test]
fn malformed_bodies_are_refused_with_a_text() {
    let running = server();
    let mut http = running.http();
    let deep = format!(
        "{{\"Job\":{}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let bodies: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"\xff\xfe".to_vec(),
        b"{\"Job\": 7}".to_vec(),
        b"{\"Job\": {\"ID\": 7}}".to_vec(),
        b"{\"Job\": {\"ID\": \"x\", \"TaskGroups\": [{\"Count\": 9223372036854775808}]}}".to_vec(),
        b"{\"Job\": {\"ID\": \"\\ud800\"}}".to_vec(),
        deep.into_bytes(),
    ];
    for body in bodies {
        let answer = http.send("PUT", "/v1/jobs", &body).expect("an answer");
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert!(
            (400..500).contains(&answer.status),
            "{shown}: {}",
            answer.status
        );
        assert!(!answer.text().is_empty(), "{shown}");
    }
    json_of(&mut http, "/v1/status/leader");
}

#[test]
fn unknown_fields_are_ignored_and_names_may_be_odd() {
    let running = server();
    let mut http = running.http();
    for id in ["a/b", "a:b", "with\"quotes\"", "日本", "a.b*c"] {
        let mut body = job(id, 1);
        body["Job"]["NoSuchField"] = json!({"deep": [1, 2]});
        let answer = http.put("/v1/jobs", &body).expect("an answer");
        assert!(
            matches!(answer.status, 200 | 400),
            "{id}: {} {}",
            answer.status,
            answer.text()
        );
        if answer.status == 200 {
            let list = json_of(&mut http, "/v1/jobs");
            let list = list.as_array().expect("a list");
            assert!(list.iter().any(|row| row["ID"] == id), "{id} is not listed");
        }
    }
    let blank = http
        .put("/v1/jobs", &job("with space", 1))
        .expect("an answer");
    assert!(blank.status >= 400, "{}", blank.text());
}

#[test]
fn query_parameters_are_checked() {
    let running = server();
    let mut http = running.http();
    for (path, text) in [
        ("/v1/jobs?index=x", "Invalid index"),
        ("/v1/jobs?wait=x", "Invalid wait time"),
        ("/v1/jobs?per_page=x", "per_page"),
        ("/v1/jobs?stale=maybe", "stale"),
        ("/v1/jobs?filter=%3D%3D", ""),
        ("/v1/evaluations?filter=Nope+%3D%3D+1", ""),
    ] {
        let answer = http.get(path).expect("an answer");
        // A selector is only looked up where there is a row.
        let fine = answer.status == 400 || (path.contains("Nope") && answer.status == 200);
        assert!(
            fine && answer.text().contains(text),
            "{path}: {} {}",
            answer.status,
            answer.text()
        );
    }
    assert_eq!(http.get("/v1/nothing").expect("an answer").status, 404);
    assert_eq!(
        http.send("POST", "/v1/status/leader", &[])
            .expect("an answer")
            .status,
        405
    );
}

#[test]
fn what_is_not_http_ends_only_its_own_connection() {
    let running = server();
    let noise: [&[u8]; 4] = [
        b"\x16\x03\x01\x02\x00",
        b"GET /v1/jobs",
        b"\r\n\r\n\r\n",
        b"PUT /v1/jobs HTTP/1.1\r\nContent-Length: 999999999999999\r\n\r\n{",
    ];
    for bytes in noise {
        let mut stream = TcpStream::connect(running.agent.addr()).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_millis(300)))
            .expect("a timeout");
        stream.write_all(bytes).expect("it takes bytes");
        let mut answer = [0; 512];
        // An answer, an end or silence: all are fine, as long as others are served.
        let _ = stream.read(&mut answer);
    }
    let leader: Value = json_of(&mut running.http(), "/v1/status/leader");
    assert!(leader.is_string());
}
