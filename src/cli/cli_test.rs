use super::fake::{Answer, Call, Fake};
use super::out::{Captured, Out};
use super::{Cli, argv, dispatch};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::sync::{Arc, Mutex};

struct Ran {
    code: u8,
    stdout: String,
    stderr: String,
    calls: Vec<Call>,
}

/// Runs a command line against a stand-in; `answers` are given to its questions.
fn run(line: &[&str], answers: &[&str], answer: Answer) -> Ran {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async {
        let fake = Fake::start(answer).await;
        let mut command = Cli::command();
        command.build();
        let mut args = vec![OsString::from("drover")];
        args.extend(line.iter().map(OsString::from));
        args.push(format!("-address={}", fake.address).into());
        let args = argv::prepare(args, &command);
        let matches = Cli::command()
            .try_get_matches_from(args)
            .unwrap_or_else(|e| panic!("{e}"));
        let cli = Cli::from_arg_matches(&matches).expect("matches");
        let answers = answers.iter().rev().map(|a| (*a).to_owned()).collect();
        let captured = Captured {
            answers,
            ..Captured::default()
        };
        let captured = Arc::new(Mutex::new(captured));
        let code = dispatch(cli.noun, &Out::capture(Arc::clone(&captured))).await;
        let mut captured = captured.lock().expect("not poisoned");
        Ran {
            code,
            stdout: std::mem::take(&mut captured.stdout),
            stderr: std::mem::take(&mut captured.stderr),
            calls: fake.calls(),
        }
    })
}

fn lines(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|(line, _)| line.as_str()).collect()
}

#[test]
fn the_table_of_commands_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn eval_13_delete_by_filter_counts_asks_and_calls_once() {
    let answer: Answer = |line, _| match line.split('?').next().expect("a path") {
        "GET /v1/evaluations/count" => (200, "{\"Count\": 123456}".into()),
        "DELETE /v1/evaluations" => (200, "{\"Count\": 123450}".into()),
        _ => (404, "not expected".into()),
    };
    let filter = "Status == \"blocked\"";
    let ran = run(&["eval", "delete", "-filter", filter], &["y"], answer);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(
        lines(&ran.calls),
        [
            "GET /v1/evaluations/count?filter=Status%20%3D%3D%20%22blocked%22",
            "DELETE /v1/evaluations",
        ]
    );
    assert_eq!(ran.calls[1].1, "{\"Filter\":\"Status == \\\"blocked\\\"\"}");
    assert_eq!(
        ran.stdout,
        "123456 evaluations match the filter\n\
         Are you sure you want to delete 123456 evals? [y/N] \n\
         Successfully deleted 123450 evaluations\n"
    );

    let ran = run(&["eval", "delete", "-filter", filter], &["n"], answer);
    assert_eq!(ran.calls.len(), 1, "nothing is deleted without a yes");
    assert!(
        ran.stdout
            .ends_with("Cancelling bulk evaluation deletion\n")
    );

    let ran = run(&["eval", "delete", "-yes", "-filter", filter], &[], answer);
    assert_eq!(ran.calls.len(), 2);
    assert!(!ran.stdout.contains("Are you sure"));

    let ran = run(&["eval", "delete", "-filter", filter, "abcd"], &[], answer);
    assert_eq!((ran.code, ran.calls.len()), (1, 0));
}

#[test]
fn lists_are_printed_in_columns() {
    let answer: Answer = |line, _| match line {
        "GET /v1/jobs" => (
            200,
            r#"[{"ID":"web","Type":"service","Priority":50,"Status":"running","SubmitTime":0},
                {"ID":"nightly","Type":"batch","Priority":70,"Status":"dead",
                 "Stop":true,"Periodic":true}]"#
                .into(),
        ),
        _ => (404, "not expected".into()),
    };
    let ran = run(&["job", "status"], &[], answer);
    assert_eq!(
        ran.stdout,
        "ID       Type            Priority  Status          Submit Date\n\
         web      service         50        running         <none>\n\
         nightly  batch/periodic  70        dead (stopped)  <none>\n"
    );
    let ran = run(
        &["job", "status", "-t", "{{range .}}{{.ID}} {{end}}"],
        &[],
        answer,
    );
    assert_eq!(ran.stdout, "web nightly \n");
    let ran = run(&["job", "status", "-json", "-t", "{{.}}"], &[], answer);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "Both json and template formatting are not allowed\n")
    );
}

#[test]
fn refusals_are_shown_as_they_came() {
    let answer: Answer = |_, _| (403, "Permission denied\n".into());
    let ran = run(&["node", "status"], &[], answer);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.stderr,
        "Error querying node status: Unexpected response code: 403 (Permission denied)\n"
    );
    let ran = run(&["alloc", "status", "a"], &[], answer);
    assert_eq!(
        ran.stderr,
        "Identifier must contain at least two characters.\n"
    );
    let answer: Answer = |_, _| (200, "[]".into());
    let ran = run(&["alloc", "status", "abcdef"], &[], answer);
    assert_eq!(
        ran.stderr,
        "No allocation(s) with prefix or id \"abcdef\" found\n"
    );
    assert_eq!(lines(&ran.calls), ["GET /v1/allocations?prefix=abcdef"]);
}

const JOB: &str = "job \"web\" \
    {\n  group \"g\" {\n    task \"t\" {\n      driver = \"raw_exec\"\n    }\n  }\n}\n";

fn job_file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("web.nomad.hcl");
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("text").to_owned();
    (dir, path)
}

/// An agent that takes one job and places it.
fn placing(line: &str, body: &str) -> (u16, String) {
    match line.split('?').next().expect("a path") {
        "PUT /v1/jobs" => {
            assert!(
                body.contains("\"Submission\":{\"Format\":\"hcl2\""),
                "{body}"
            );
            (
                200,
                r#"{"EvalID":"e1e1e1e1-0000","EvalCreateIndex":7,
                "Warnings":"1 warning:\n\n* careful"}"#
                    .into(),
            )
        }
        "GET /v1/evaluation/e1e1e1e1-0000" => (
            200,
            r#"{"ID":"e1e1e1e1-0000","JobID":"web","Status":"pending",
                "TriggeredBy":"job-register"}"#
                .into(),
        ),
        "GET /v1/evaluation/e1e1e1e1-0000/allocations" => (200, "[]".into()),
        "GET /v1/event/stream" => (
            200,
            concat!(
                "{}\n",
                r#"{"Index":8,"Events":[{"Topic":"Allocation","Payload":{"Allocation":"#,
                r#"{"ID":"a1a1a1a1-0","EvalID":"e1e1e1e1-0000","NodeID":"n1n1n1n1-0","#,
                r#""TaskGroup":"g","ClientStatus":"pending"}}}]}"#,
                "\n",
                r#"{"Index":9,"Events":[{"Topic":"Evaluation","Payload":{"Evaluation":"#,
                r#"{"ID":"e1e1e1e1-0000","Status":"complete"}}}]}"#,
                "\n"
            )
            .into(),
        ),
        _ => (404, "not expected".into()),
    }
}

#[test]
fn run_registers_and_follows_the_stream() {
    let (_dir, path) = job_file(JOB);
    let ran = run(&["job", "run", &path], &[], placing);
    let told: Vec<&str> = ran
        .stdout
        .lines()
        .map(|l| l.split_once("Z: ").map_or(l, |(_, t)| t))
        .collect();
    assert!(
        ran.stdout
            .starts_with("Job Warnings:\n1 warning:\n\n* careful\n"),
        "{}",
        ran.stdout
    );
    for part in [
        "Monitoring evaluation \"e1e1e1e1\"",
        "Evaluation triggered by job \"web\"",
        "Allocation \"a1a1a1a1\" created: node \"n1n1n1n1\", group \"g\"",
        "Evaluation status changed: \"pending\" -> \"complete\"",
    ] {
        assert!(told.contains(&part), "{part} is missing in {told:?}");
    }
    let streams = lines(&ran.calls)
        .iter()
        .filter(|l| l.contains("/v1/event/stream?index=7&"))
        .count();
    let evals = lines(&ran.calls)
        .iter()
        .filter(|l| l.starts_with("GET /v1/evaluation/e1e1e1e1-0000?"))
        .count();
    assert_eq!(
        (streams, evals),
        (1, 2),
        "one stream, no polling: {:?}",
        lines(&ran.calls)
    );
}

#[test]
fn a_refused_index_is_told_apart() {
    let answer: Answer = |_, _| {
        (
            500,
            "Enforcing job modify index 0: job already exists".into(),
        )
    };
    let (_dir, path) = job_file(JOB);
    let ran = run(&["job", "run", "-check-index", "0", &path], &[], answer);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.stderr,
        "Enforcing job modify index 0: job already exists\nJob not updated\n"
    );
    assert!(ran.calls[0].1.contains("\"EnforceIndex\":true"));
}

#[test]
fn a_broken_file_is_reported_before_anything_is_sent() {
    let answer: Answer = |_, _| (404, "not expected".into());
    let (_dir, path) = job_file("job \"x\" {\n  a = 1\n  b = 2\n}\n");
    let ran = run(&["job", "run", &path], &[], answer);
    assert_eq!((ran.code, ran.calls.len()), (1, 0));
    assert!(
        ran.stderr.contains(":2,3-4: Unsupported argument;"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains(":3,3-4: Unsupported argument;"),
        "{}",
        ran.stderr
    );
    let ran = run(&["job", "validate", &path], &[], answer);
    assert_eq!(ran.code, 255);
}

#[test]
fn variables_are_put_with_a_check() {
    let answer: Answer = |line, _| {
        assert_eq!(line, "PUT /v1/var/nomad/jobs/web?namespace=default&cas=4");
        (409, r#"{"ModifyIndex": 7}"#.into())
    };
    let ran = run(
        &["var", "put", "-check-index", "4", "nomad/jobs/web", "a=b=c"],
        &[],
        answer,
    );
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with("Check-and-Set conflict"));
    assert!(ran.stderr.contains("is 4, and the variable is at index 7"));
    assert!(
        ran.calls[0].1.contains("\"Items\":{\"a\":\"b=c\"}"),
        "{}",
        ran.calls[0].1
    );
}

#[test]
fn a_variable_is_not_overwritten_unless_it_is_said() {
    let first: Answer = |line, _| {
        assert_eq!(line, "PUT /v1/var/a?namespace=default&cas=0");
        (200, r#"{"ModifyIndex": 3}"#.into())
    };
    let ran = run(&["var", "put", "/a/", "k=v", "gone="], &[], first);
    assert_eq!(ran.stdout, "Created variable \"a\" with modify index 3\n");
    assert!(!ran.calls[0].1.contains("gone"), "{}", ran.calls[0].1);
    let force: Answer = |line, _| {
        assert_eq!(line, "PUT /v1/var/a?namespace=default");
        (200, r#"{"ModifyIndex": 4}"#.into())
    };
    assert_eq!(
        run(&["var", "put", "-force", "a", "k=v"], &[], force).code,
        0
    );

    // A specification carries its own namespace and index, unless it is put elsewhere.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("v.hcl");
    let text = "namespace = \"prod\"\npath = \"a\"\nmodify_index = 9\nitems {\n  k = \"v\"\n}\n";
    std::fs::write(&file, text).unwrap();
    let from = format!("@{}", file.display());
    let own: Answer = |line, _| {
        assert_eq!(line, "PUT /v1/var/a?namespace=prod&cas=9");
        (200, "{}".into())
    };
    assert_eq!(run(&["var", "put", &from], &[], own).code, 0);
    let copy: Answer = |line, _| {
        assert_eq!(line, "PUT /v1/var/b?namespace=prod&cas=0");
        (200, "{}".into())
    };
    assert_eq!(run(&["var", "put", "b", &from], &[], copy).code, 0);
}

#[test]
fn scheduler_settings_keep_what_is_not_said() {
    let answer: Answer = |line, _| match line.split(' ').next() {
        Some("GET") => (
            200,
            r#"{"SchedulerConfig":{"SchedulerAlgorithm":"spread",
            "PreemptionConfig":{"SystemSchedulerEnabled":true}}}"#
                .into(),
        ),
        _ => (200, "{\"Updated\":true}".into()),
    };
    let ran = run(
        &[
            "operator",
            "scheduler",
            "set-config",
            "-pause-eval-broker=true",
        ],
        &[],
        answer,
    );
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "Scheduler configuration updated!\n")
    );
    let body: serde_json::Value = serde_json::from_str(&ran.calls[1].1).expect("json");
    assert_eq!(body["SchedulerAlgorithm"], "spread");
    assert_eq!(body["PauseEvalBroker"], true);
    assert_eq!(body["PreemptionConfig"]["SystemSchedulerEnabled"], true);
}

#[test]
fn an_agent_that_is_not_there_is_named() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    let captured = Arc::new(Mutex::new(Captured::default()));
    let matches = Cli::command()
        .try_get_matches_from(["drover", "system", "gc", "--address", "http://127.0.0.1:1"])
        .expect("parses");
    let cli = Cli::from_arg_matches(&matches).expect("matches");
    let code = runtime.block_on(dispatch(cli.noun, &Out::capture(Arc::clone(&captured))));
    assert_eq!(code, 1);
    let told = captured.lock().expect("not poisoned").stderr.clone();
    assert!(
        told.contains("dial tcp 127.0.0.1:1") && told.contains("drover agent -dev"),
        "{told}"
    );
}

#[test]
fn completions_name_the_verbs() {
    let captured = Arc::new(Mutex::new(Captured::default()));
    let args = super::completion::Args {
        shell: clap_complete::Shell::Bash,
    };
    super::completion::run(
        &args,
        &mut Cli::command(),
        &Out::capture(Arc::clone(&captured)),
    )
    .expect("runs");
    let script = captured.lock().expect("not poisoned").stdout.clone();
    for word in ["job", "--data-dir", "replay"] {
        assert!(script.contains(word), "{word}");
    }
}

#[test]
fn a_moment_goes_with_every_question() {
    for at in ["-at=812", "-at=-5m", "--at=2026-01-02T03:04:05Z"] {
        let ran = run(&["job", "inspect", at, "web"], &[], |_, _| {
            (200, "{}".to_owned())
        });
        let value = at
            .split_once('=')
            .map_or("", |(_, value)| value)
            .replace(':', "%3A");
        let wanted = format!("as_of={value}");
        assert!(!ran.calls.is_empty());
        assert!(
            lines(&ran.calls).iter().all(|line| line.ends_with(&wanted)),
            "{:?}",
            ran.calls
        );
    }
}

#[test]
fn audit_pages_by_itself_and_tells_who_why_and_what() {
    let answer: Answer = |line, _| {
        let entry = |index: u32, more: &str| {
            format!(
                "{{\"Index\":{index},\"Time\":1000000000,\"Kind\":\"JobRegistered\",\"Cause\":7,\
                 \"Actor\":{{\"kind\":\"token\",\"name\":\"deploy\"}},\"Outcome\":\"applied\",\
                 \"Changes\":[{{\"Table\":\"jobs\",\"Key\":[\"default\",\"web\"],\
                 \"Operation\":\"update\",\"Fields\":[{{\"Path\":\"Priority\",\"Before\":50,\
                 \"After\":70}}]}}]{more}}}"
            )
        };
        let refused = entry(8, ",\"Reason\":\"too late\"").replacen("applied", "refused", 1);
        let brief = line.ends_with("per_page=1");
        let second = if brief {
            String::new()
        } else {
            format!(",{refused}")
        };
        (200, format!("[{}{second}]", entry(9, "")))
    };
    let ran = run(&["audit", "job", "web", "-since", "-1h"], &[], answer);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(
        lines(&ran.calls),
        ["GET /v1/audit?type=job&id=web&since=-1h&reverse=true&per_page=50"]
    );
    let told: Vec<&str> = ran.stdout.lines().map(str::trim).collect();
    assert!(told[0].starts_with("9  ") && told[0].contains("JobRegistered  by token deploy"));
    assert!(told[0].ends_with("because of 7"), "{}", told[0]);
    assert_eq!(told[1..3], ["~ jobs default/web", "Priority: 50 -> 70"]);
    assert!(told[3].ends_with("REFUSED: too late"), "{}", told[3]);
    let ran = run(&["audit", "-brief", "-limit", "1", "-oldest"], &[], answer);
    assert_eq!(lines(&ran.calls), ["GET /v1/audit?diff=false&per_page=1"]);
    assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
}

#[test]
fn a_trace_is_a_tree_with_timings() {
    let answer: Answer = |_, _| {
        let tree = serde_json::json!({
            "Type": "job", "ID": "web", "Focus": [12], "Truncated": false,
            "Roots": [{
                "Index": 12, "Time": 1_000_000_000_i64, "Elapsed": 0, "Kind": "JobRegistered",
                "Actor": {"kind": "anonymous", "addr": "10.0.0.7"}, "Link": "",
                "Things": [{"Type": "job", "ID": "default/web", "What": "registered, pending"}],
                "Children": [{
                    "Index": 13, "Time": 1_012_000_000_i64, "Elapsed": 12_000_000,
                    "Kind": "PlanApplied", "Actor": {"kind": "server", "name": "scheduling"},
                    "Link": "cause", "Children": [],
                    "Things": [{"Type": "allocation", "ID": "0b156e3e-bb39-cc04",
                        "What": "web.g[0] placed on n1",
                        "Tasks": [{"Task": "t", "Type": "Received", "Time": 1_500_000_000_i64,
                            "Message": "m"}]}],
                }],
            }],
        });
        (200, tree.to_string())
    };
    let ran = run(&["trace", "web"], &[], answer);
    assert_eq!(lines(&ran.calls), ["GET /v1/audit/trace?id=web"]);
    let told: Vec<&str> = ran.stdout.lines().map(str::trim_end).collect();
    assert_eq!(told[0], "job web");
    assert!(
        told[2].starts_with("12*  ") && told[2].ends_with("JobRegistered  by anonymous 10.0.0.7")
    );
    assert_eq!(told[3], "│   job default/web: registered, pending");
    assert_eq!(told[4], "└─ 13  +12ms  PlanApplied  by server scheduling");
    assert_eq!(told[5], "       allocation 0b156e3e: web.g[0] placed on n1");
    assert_eq!(told[6], "          +500ms  task t: Received");
}

fn cluster(line: &str, _body: &str) -> (u16, String) {
    let publisher = r#"{"Running": true, "Status": {
        "Topic": "drover.events", "Brokers": "k1:9092", "Published": 7, "Lag": 12345,
        "LagSeconds": 180.0, "Lagging": true, "Error": "connection refused"}}"#;
    match line.split(['?', ' ']).nth(1).unwrap_or_default() {
        "/v1/jobs" => (
            200,
            r#"[{"ID": "web", "Type": "service", "Status": "running"}]"#.into(),
        ),
        "/v1/operator/reactors" => {
            let body = format!(r#"{{"Reactors": {{"event_publisher": {publisher}}}}}"#);
            (200, body)
        }
        "/v1/search" => {
            let both = r#"{"Matches": {"jobs": ["web-1", "web"], "nodes": ["web-0"]}}"#;
            (200, both.into())
        }
        _ => (404, "not here".into()),
    }
}

#[test]
fn the_status_tells_the_jobs_and_a_lag() {
    let ran = run(&["status"], &[], cluster);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("web"), "{}", ran.stdout);
    let lag = "Kafka: 12,345 events behind for 3m (connection refused);";
    assert!(ran.stdout.contains(lag), "{}", ran.stdout);
    let ran = run(&["status", "-json"], &[], cluster);
    let shown: serde_json::Value = serde_json::from_str(&ran.stdout).expect("json");
    assert_eq!(shown["EventPublisher"]["Lag"], 12345);
    assert_eq!(shown["Jobs"][0]["ID"], "web");
    let ran = run(&["status", "-at=-5m"], &[], cluster);
    assert!(!ran.stdout.contains("Kafka"), "{}", ran.stdout);
    assert_eq!(lines(&ran.calls), ["GET /v1/jobs?as_of=-5m"]);
}

#[test]
fn the_status_of_an_id_is_that_of_the_one_thing_it_names() {
    let ran = run(&["status", "web"], &[], cluster);
    assert!(
        lines(&ran.calls).contains(&"GET /v1/jobs?prefix=web"),
        "{:?}",
        ran.calls
    );
    let ran = run(&["status", "we"], &[], cluster);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("jobs and nodes"), "{}", ran.stderr);
    let ran = run(&["status", "x"], &[], |_, _| {
        (200, r#"{"Matches": {}}"#.into())
    });
    assert!(ran.stderr.contains("drover job status"), "{}", ran.stderr);
}
