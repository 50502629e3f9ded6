//! Agents of another release than the command's: what it does not know is no reason to say nothing.

use crate::pretended::Pretended;
use crate::support::Session;

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
        let told = session.done(line);
        for part in wanted {
            assert!(told.contains(part), "{line}: {part}: {told}");
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
    let told = session.done("job history -p -changes web");
    for part in [
        "Version = 2\nunreadable: Priority: invalid type",
        "Diff:\nunreadable: Type: invalid type",
        "Version     = 1",
        "unreadable: Kind: invalid type",
        "robot",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let told = session.done("job history -json -version 2 web");
    assert!(told.contains(r#""Priority": "high""#), "{told}");
    let told = session.done("job inspect -version 2 web");
    assert!(told.contains(r#""Priority": "high""#), "{told}");
    let told = session.done("job inspect -version 1 web");
    assert!(told.contains(r#""Colour": "red""#), "{told}");
    session.quiet("job revert -detach web golden");
    let asked = agent.asked();
    let put = asked.iter().find(|(line, _)| line.starts_with("PUT "));
    let (_, body) = put.expect("the tag is found");
    assert!(body.contains(r#""JobVersion":2"#), "{body}");
}
