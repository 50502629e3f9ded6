//! Views of the past.

use crate::support::{Session, service};

#[test]
fn a_view_of_the_past_counts_from_then_and_says_so() {
    let session = Session::new("past");
    session.file("web.hcl", &service("web", "1", ""));
    session.done("job run web.hcl");
    let id = session.wait_allocs("web", "running", 1).remove(0);
    let allocs = session
        .json("/v1/job/web/allocations")
        .expect("allocations");
    let created = allocs[0]["CreateIndex"].as_u64().expect("an index");
    // Time passes: the age of the allocation, seen from the index that made it, stays what it was.
    let aged = |reported: &str| {
        let row = reported
            .lines()
            .find(|line| line.starts_with(&id[..8]))
            .unwrap_or_default();
        row.split("  ")
            .filter(|cell| cell.contains("ago"))
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    drover_testkit::wait_for("age", drover_testkit::LONG, || {
        let now = session.done("job status web");
        let old = aged(&now)
            .iter()
            .any(|cell| !["0s ago", "1s ago"].contains(&cell.as_str()));
        if old { Ok(()) } else { Err("still young") }
    })
    .expect("it ages");
    let then = session.done(&format!("job status -at {created} web"));
    assert!(
        then.starts_with(&format!("As of index {created}, 20")),
        "{then}"
    );
    assert_eq!(aged(&then), ["0s ago", "0s ago"], "{then}");
    for line in [
        "job status",
        "alloc status ID",
        "node status",
        "deployment list",
        "eval list",
        "status",
    ] {
        let (noun, argument) = line
            .split_once(" ID")
            .map_or((line, ""), |(noun, _)| (noun, id.as_str()));
        let reported = session.done(&format!("{noun} -at {created} {argument}"));
        assert!(
            reported.starts_with(&format!("As of index {created}, 20")),
            "{line}: {reported}"
        );
    }
    let json = session.done(&format!("job status -json -at {created} web"));
    assert!(json.starts_with('{'), "{json}");
    let now = session.done("job status web");
    assert!(now.starts_with("ID "), "{now}");
    session.done("job stop -purge -detach web");
}

#[test]
fn a_moment_is_a_flag_of_what_shows_the_state_and_of_nothing_else() {
    let session = Session::new("moments");
    session.file("web.hcl", &service("moments-web", "1", ""));
    session.done("job run web.hcl");
    let id = session.wait_allocs("moments-web", "running", 1).remove(0);
    let allocs = session.json("/v1/job/moments-web/allocations");
    let alloc = allocs.expect("allocations")[0].clone();
    let eval = alloc["EvalID"].as_str().expect("an evaluation").to_owned();
    let deployment = session.json("/v1/job/moments-web/deployment").expect("one");
    let deployment = deployment["ID"].as_str().expect("an id").to_owned();
    for line in [
        "job history moments-web".to_owned(),
        "job inspect moments-web".to_owned(),
        "job allocs moments-web".to_owned(),
        "job deployments moments-web".to_owned(),
        "job scaling-events moments-web".to_owned(),
        format!("deployment status {deployment}"),
        format!("eval status {eval}"),
        format!("eval explain {eval}"),
        "namespace list".to_owned(),
        "namespace status moments".to_owned(),
        "namespace inspect moments".to_owned(),
        "node pool list".to_owned(),
        "node pool info default".to_owned(),
        "node pool jobs default".to_owned(),
        "node pool nodes default".to_owned(),
        "service list".to_owned(),
        "scaling policy list".to_owned(),
        "var list".to_owned(),
        "operator scheduler get-config".to_owned(),
        "operator autopilot get-config".to_owned(),
        "operator api /v1/jobs".to_owned(),
        "audit job moments-web".to_owned(),
        "trace moments-web".to_owned(),
    ] {
        let ran = session.quiet(&format!("{line} -at -0s"));
        assert_eq!(ran.code, 0, "{line}: {}", ran.all());
    }
    for line in [
        "job run web.hcl".to_owned(),
        "job plan web.hcl".to_owned(),
        "job stop moments-web".to_owned(),
        "job scale moments-web 2".to_owned(),
        format!("alloc stop {id}"),
        format!("alloc logs {id}"),
        format!("alloc checks {id}"),
        format!("alloc stats {id}"),
        "agent-info".to_owned(),
        "event stream".to_owned(),
        "operator autopilot health".to_owned(),
        "operator raft list-peers".to_owned(),
        "operator snapshot save x".to_owned(),
        "server members".to_owned(),
        "system gc".to_owned(),
        "var put nomad/jobs/x a=b".to_owned(),
        "var purge nomad/jobs/x".to_owned(),
    ] {
        let ran = session.quiet(&format!("{line} -at -1s"));
        let reported = ran
            .stderr
            .contains("has no -at: it shows what is now, or changes it");
        assert!(ran.code == 1 && reported, "{line}: {}", ran.all());
    }
    session.done("job stop -purge -detach moments-web");
}
