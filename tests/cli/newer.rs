//! Agents of another release than the command's: what it does not know is no reason to say nothing.

use crate::pretended::Pretended;
use crate::support::{Session, service};
use serde_json::{Value, json};

/// A session against an agent that answers so.
fn before(answers: &[(&str, &str)]) -> (Session, Pretended) {
    let agent = Pretended::with(answers);
    let session = Session::to("default", &agent.address);
    (session, agent)
}

#[test]
fn an_entry_that_cannot_be_read_does_not_end_a_list() {
    let entries = r#"[
        {"Index": 7, "Kind": "JobRegistered", "Actor": {"kind": "robot", "name": "r2"}},
        {"Index": 8, "Kind": "JobRegistered", "Time": "soon"},
        {"Index": 9, "Kind": "JobDeregistered", "Actor": {"kind": "token", "name": "ci"}}
    ]"#;
    let requests = r#"[
        {"Index": 3, "Class": "secret", "Actor": {"kind": "robot"}},
        {"Index": 4, "Class": 5},
        {"Index": 5, "Class": "exec", "Actor": null}
    ]"#;
    let tree = r#"{"Type": "event", "ID": "7", "Roots": [
        {"Index": 7, "Kind": "JobRegistered", "Actor": {"kind": "robot"}, "Children": [
            {"Index": 8, "Kind": [], "Children": [{"Index": 9, "Kind": "JobEvaluated"}]}
        ]}
    ]}"#;
    let (session, _agent) = before(&[
        ("GET /v1/audit", entries),
        ("GET /v1/audit/requests", requests),
        ("GET /v1/audit/trace", tree),
    ]);
    for (line, wanted) in [
        (
            "audit",
            [
                "by robot r2",
                "8  unreadable: Time: invalid type",
                "by token ci",
            ],
        ),
        (
            "audit requests",
            ["by robot", "4  unreadable: Class: invalid type", "5  "],
        ),
        (
            "trace 7",
            ["by robot", "unreadable: Kind: invalid type", "JobEvaluated"],
        ),
    ] {
        let reported = session.done(line);
        for part in wanted {
            assert!(reported.contains(part), "{line}: {part}: {reported}");
        }
    }
}

#[test]
fn versions_that_cannot_be_read_are_listed_and_passed_on() {
    let versions = r#"{"Versions": [
        {"ID": "web", "Version": 2, "Priority": "high", "VersionTag": {"Name": "golden"}},
        {"ID": "web", "Version": 1, "Meta": {"a": "b"}, "Colour": "red"}
    ], "Diffs": [{"Type": 7}]}"#;
    let audit = r#"[{"Index": 7, "Kind": [], "Time": 1},
        {"Index": 9, "Kind": "JobRegistered", "Actor": {"kind": "robot"}}]"#;
    let (session, agent) = before(&[
        ("GET /v1/jobs", r#"[{"ID": "web", "Namespace": "default"}]"#),
        ("GET /v1/job/web", r#"{"ID": "web", "Version": 2}"#),
        ("GET /v1/job/web/versions", versions),
        ("GET /v1/audit", audit),
        ("PUT /v1/job/web/revert", r#"{"EvalID": ""}"#),
    ]);
    let reported = session.done("job history -p -changes web");
    for part in [
        "Version = 2\nunreadable: Priority: invalid type",
        "Diff:\nunreadable: Type: invalid type",
        "Version     = 1",
        "unreadable: Kind: invalid type",
        "robot",
    ] {
        assert!(reported.contains(part), "{part}: {reported}");
    }
    let reported = session.done("job history -json -version 2 web");
    assert!(reported.contains(r#""Priority": "high""#), "{reported}");
    let reported = session.done("job inspect -version 2 web");
    assert!(reported.contains(r#""Priority": "high""#), "{reported}");
    let reported = session.done("job inspect -version 1 web");
    assert!(reported.contains(r#""Colour": "red""#), "{reported}");
    session.quiet("job revert -detach web golden");
    let requested = agent.requested();
    let put = requested.iter().find(|(line, _)| line.starts_with("PUT "));
    let (_, body) = put.expect("the tag is found");
    assert!(body.contains(r#""JobVersion":2"#), "{body}");
}

/// The body of the only change that was requested.
fn changed(agent: &Pretended, line: &str) -> Value {
    let requested = agent.requested();
    let mut puts = requested
        .iter()
        .filter(|(line, _)| line.starts_with("PUT "));
    let (Some((_, body)), None) = (puts.next(), puts.next()) else {
        panic!("{line}: {requested:?}")
    };
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn settings_that_the_command_does_not_know_stay() {
    let role = r#"{"ID": "r", "Name": "a", "New": [1],
        "Policies": [{"Name": "p", "Scope": "x"}]}"#;
    let token = r#"{"AccessorID": "t", "Name": "a", "Type": "client", "New": [1]}"#;
    for (line, answers, wanted) in [
        (
            "operator scheduler set-config -pause-eval-broker true -preempt-batch-scheduler true",
            vec![
                (
                    "GET /v1/operator/scheduler/configuration",
                    r#"{"SchedulerConfig": {"SchedulerAlgorithm": "spread", "New": 7,
                        "PreemptionConfig": {"ServiceSchedulerEnabled": true, "New": 8}}}"#,
                ),
                (
                    "PUT /v1/operator/scheduler/configuration",
                    r#"{"Updated": true}"#,
                ),
            ],
            json!({"SchedulerAlgorithm": "spread", "New": 7, "PauseEvalBroker": true,
                "PreemptionConfig": {"ServiceSchedulerEnabled": true, "New": 8,
                    "BatchSchedulerEnabled": true}}),
        ),
        (
            "operator autopilot set-config -min-quorum 3",
            vec![
                (
                    "GET /v1/operator/autopilot/configuration",
                    r#"{"MinQuorum": 1, "MaxTrailingLogs": "many", "ModifyIndex": 9}"#,
                ),
                ("PUT /v1/operator/autopilot/configuration", "true"),
            ],
            json!({"MinQuorum": 3, "MaxTrailingLogs": "many", "ModifyIndex": 9}),
        ),
        (
            "acl role update -policy p -policy q r",
            vec![("GET /v1/acl/role/r", role), ("PUT /v1/acl/role/r", role)],
            json!({"ID": "r", "Name": "a", "New": [1],
                "Policies": [{"Name": "p", "Scope": "x"}, {"Name": "q"}]}),
        ),
        (
            "acl token update -name b t",
            vec![
                ("GET /v1/acl/token/t", token),
                ("PUT /v1/acl/token/t", token),
            ],
            json!({"AccessorID": "t", "Name": "b", "Type": "client", "New": [1]}),
        ),
        (
            "namespace apply -description d shops",
            vec![
                ("GET /v1/namespace/shops", r#"{"Name": "shops", "New": 1}"#),
                ("PUT /v1/namespace", ""),
            ],
            json!({"Name": "shops", "New": 1, "Description": "d"}),
        ),
    ] {
        let (session, agent) = before(&answers);
        session.done(line);
        assert_eq!(changed(&agent, line), wanted, "{line}");
    }
}

#[test]
fn what_cannot_be_read_is_not_written_over() {
    for (line, path) in [
        (
            "operator scheduler set-config -pause-eval-broker true",
            "GET /v1/operator/scheduler/configuration",
        ),
        (
            "operator autopilot set-config -min-quorum 3",
            "GET /v1/operator/autopilot/configuration",
        ),
        ("acl role update -name b r", "GET /v1/acl/role/r"),
        ("acl token update -name b t", "GET /v1/acl/token/t"),
        (
            "namespace apply -description d shops",
            "GET /v1/namespace/shops",
        ),
    ] {
        for answer in ["null", "[]", ""] {
            let (session, agent) = before(&[(path, answer)]);
            let ran = session.quiet(line);
            assert_eq!(ran.code, 1, "{line} {answer:?}: {}", ran.all());
            let requested = agent.requested();
            assert!(
                requested.iter().all(|(line, _)| !line.starts_with("PUT ")),
                "{requested:?}"
            );
        }
    }
    // A namespace that is not there is new.
    let (session, agent) = before(&[("PUT /v1/namespace", "")]);
    session.done("namespace apply shops");
    assert_eq!(changed(&agent, "namespace apply"), json!({"Name": "shops"}));
}

#[test]
fn an_empty_answer_does_not_say_that_there_is_nothing() {
    let (session, _agent) = before(&[("GET /v1/jobs", ""), ("GET /v1/audit", "")]);
    for line in ["job status", "job status -json", "audit"] {
        let ran = session.quiet(line);
        assert_eq!(ran.code, 1, "{line}: {}", ran.all());
        let reported = "the agent's answer is empty";
        assert!(ran.stderr.contains(reported), "{line}: {}", ran.all());
    }
}

#[test]
fn what_is_passed_on_as_it_came_need_not_be_known() {
    let eval = "8ba85cef-0000-0000-0000-000000000000";
    let found = format!(r#"[{{"ID": "{eval}", "Namespace": "default"}}]"#);
    let explain = format!("GET /v1/evaluation/{eval}/explain");
    let (session, _agent) = before(&[
        ("PUT /v1/var/nomad/a", r#"{"ModifyIndex": "odd"}"#),
        (
            "PUT /v1/job/web/plan",
            r#"{"Warnings": ["odd"], "Annotations": {"PreemptedAllocs": "odd",
                "DesiredTGUpdates": {"app": {"Place": 1}}}}"#,
        ),
        ("GET /v1/evaluations", found.as_str()),
        (
            explain.as_str(),
            r#"{"Groups": "odd", "Comparison": {"Identical": false}}"#,
        ),
        (
            "GET /v1/operator/projections/rebuild",
            r#"{"Stage": "failed", "At": "odd"}"#,
        ),
        (
            "DELETE /v1/operator/projections/rebuild",
            r#"{"Stage": "cancelled", "At": "odd"}"#,
        ),
        ("PUT /v1/operator/projections/verify", ""),
        (
            "GET /v1/operator/projections/verify",
            r#"{"Stage": "done", "Result": {"Verified": false, "Entries": "odd"}}"#,
        ),
    ]);
    session.file("web.hcl", &service("web", "1", ""));
    for (line, code) in [
        ("var put -out json nomad/a k=v", 0),
        ("job plan -json-output web.hcl", 1),
        ("eval explain -json 8ba85cef", 2),
        ("projection status -json", 1),
        ("projection cancel -json", 0),
        ("projection verify -json", 1),
    ] {
        let ran = session.quiet(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.all());
        assert!(ran.stdout.contains("\"odd\""), "{line}: {}", ran.all());
    }
}

#[test]
fn a_form_that_there_is_not_is_refused_before_anything_changes() {
    let token = r#"{"AccessorID": "t"}"#;
    let (session, agent) = before(&[
        ("GET /v1/acl/token/t", token),
        ("GET /v1/acl/role/r", r#"{"ID": "r"}"#),
    ]);
    for line in [
        "acl bootstrap -t '{{'",
        "acl token create -json -t '{{.ID}}'",
        "acl token update -name b -t '{{' t",
        "acl role create -name a -policy p -t '{{'",
        "acl role update -name b -json -t '{{.ID}}' r",
        "var put -out go-template nomad/a k=v",
        "var put -out go-template -template '{{' nomad/a k=v",
    ] {
        let ran = session.quiet(line);
        assert_eq!(ran.code, 1, "{line}: {}", ran.all());
    }
    let requested = agent.requested();
    assert!(requested.is_empty(), "{requested:?}");
}

#[test]
fn lists_keep_what_the_command_does_not_know() {
    let members = r#"{"ServerName": "b", "Members": [
        {"Name": "b", "New": 1, "Tags": {"region": "z"}, "Port": "odd"},
        {"Name": "c", "New": 2, "Tags": {"region": "a"}},
        {"Name": "a", "New": 3, "Tags": {"region": "z"}}
    ]}"#;
    let services = r#"[
        {"Namespace": "default", "New": 4, "Services": [
            {"ServiceName": "web", "New": 5, "Tags": "odd"}, {"ServiceName": "db"}]},
        {"Namespace": "other", "Services": [{"ServiceName": "db"}]}
    ]"#;
    let (session, _agent) = before(&[
        ("GET /v1/agent/members", members),
        ("GET /v1/services", services),
    ]);
    let json = |line: &str| -> Value { serde_json::from_str(&session.done(line)).expect("JSON") };
    let wanted = json!([
        {"Name": "c", "New": 2, "Tags": {"region": "a"}},
        {"Name": "a", "New": 3, "Tags": {"region": "z"}},
        {"Name": "b", "New": 1, "Tags": {"region": "z"}, "Port": "odd"},
    ]);
    assert_eq!(json("server members -json"), wanted);
    let web = json!([{"Namespace": "default", "New": 4, "Services": [
        {"ServiceName": "web", "New": 5, "Tags": "odd"}]}]);
    assert_eq!(json("service list -json -name web"), web);
    let all = json("service list -json");
    assert_eq!(all[1]["Namespace"], "other", "{all}");
}
