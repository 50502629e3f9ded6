//! Whatever a client sends, it gets an answer in time, and the agent lives on.
//!
//! One file per way to be wrong. Every test ends with [`Bad::end`]: the agent still answers and its
//! log reports no panic.

mod bodies;
mod hcl;
mod methods;
mod names;
pub(crate) mod protocol;
mod queries;
mod routes;

use std::time::Instant;

use drover_testkit::{Http, LONG, Response};
use serde_json::{Value, json};

use crate::support::{Running, json_of, server};

/// An agent for bad requests.
struct Bad {
    running: Running,
    http: Http,
}

impl Bad {
    fn start() -> Bad {
        let running = server();
        let http = running.http().timeout(LONG);
        Bad { running, http }
    }

    /// An answer in time, whatever it is.
    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Response {
        let begun = Instant::now();
        let shown: String = path.chars().take(80).collect();
        let answer = self.http.send(method, path, body);
        let answer = answer.unwrap_or_else(|error| panic!("{method} {shown}: {error:#}"));
        assert!(begun.elapsed() < LONG, "{method} {shown} took too long");
        answer
    }

    /// Status and text of an answer.
    fn reported(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        let answer = self.ask(method, path, body);
        (answer.status, answer.text())
    }

    /// A refusal with this status whose text holds all these words.
    fn refused(&mut self, status: u16, words: &[&str], (method, path, body): (&str, &str, &[u8])) {
        let (found, text) = self.reported(method, path, body);
        let what = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        let path: String = path.chars().take(80).collect();
        assert_eq!(found, status, "{method} {path} {what}: {text}");
        for word in words {
            assert!(
                text.contains(word),
                "{method} {path} {what}: no {word:?} in {text:?}"
            );
        }
    }

    /// The agent still answers, and nothing has panicked.
    fn end(mut self) {
        let leader: Value = json_of(&mut self.http, "/v1/status/leader");
        assert!(leader.is_string());
        let log = self.running.agent.log_tail(usize::MAX);
        assert!(!log.contains("panic"), "{log}");
    }
}

/// A batch job with a part of it replaced: `/TaskGroups/0/Count`, for instance.
fn with(pointer: &str, value: Value) -> Vec<u8> {
    let mut job = json!({
        "ID": "x", "Name": "x", "Type": "batch", "Datacenters": ["*"], "Meta": {"a": "b"},
        "AllAtOnce": false, "Priority": 50, "Namespace": "default",
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
            "Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/true"},
            "KillTimeout": 0, "Resources": {"CPU": 20, "MemoryMB": 20},
        }]}],
    });
    *job.pointer_mut(pointer).expect("the job has it") = value;
    serde_json::to_vec(&json!({"Job": job})).expect("JSON")
}
