//! Evaluations.

use crate::recorder::Recorder;
use crate::support::{Session, alone, service};

#[test]
fn eval_13_delete_by_filter_counts_asks_and_calls_once() {
    let (agent, _dir) = alone();
    let recorder = Recorder::before(agent.addr());
    let session = Session::at("eval-13", &agent)
        .within("default")
        .through(&recorder.address);
    session.done("operator scheduler set-config -pause-eval-broker true");
    for name in ["one", "two", "three"] {
        session.file("job.hcl", &service(name, "1", ""));
        session.done("job run -detach job.hcl");
    }
    let filter = "eval delete -filter 'Status == \"pending\"'";
    let since = recorder.requested().len();
    let calls = || -> Vec<(String, String)> { recorder.requested().split_off(since) };

    let ran = session.answered(filter, "n\n");
    assert!(
        ran.stdout
            .ends_with("Cancelling bulk evaluation deletion\n"),
        "{}",
        ran.stdout
    );
    let count =
        "GET /v1/evaluations/count?filter=Status%20%3D%3D%20%22pending%22&namespace=default";
    assert_eq!(calls().len(), 1, "nothing is deleted without a yes");
    assert_eq!(calls()[0].0, count);

    let ran = session.answered(filter, "y\n");
    assert_eq!(ran.code, 0, "{}", ran.all());
    assert_eq!(
        ran.stdout,
        "3 evaluations match the filter\n\
         Are you sure you want to delete 3 evals? [y/N] Successfully deleted 3 evaluations\n"
    );
    let requested = calls();
    assert_eq!(requested.len(), 3, "{requested:?}");
    assert_eq!(requested[2].0, "DELETE /v1/evaluations?namespace=default");
    assert_eq!(requested[2].1, "{\"Filter\":\"Status == \\\"pending\\\"\"}");

    let ran = session.quiet("eval delete -yes -filter 'Status == \"pending\"'");
    assert_eq!(
        (ran.code, ran.stdout.trim()),
        (1, "failed to find any evals that matched filter criteria")
    );
    assert_eq!(calls().len(), 4, "nothing is deleted where nothing matches");
    let ran = session.quiet("eval delete -filter x abcd");
    assert_eq!((ran.code, calls().len()), (1, 4), "{}", ran.all());
}

#[test]
fn a_run_follows_the_stream_and_does_not_poll() {
    let (agent, _dir) = alone();
    let recorder = Recorder::before(agent.addr());
    let session = Session::at("stream", &agent)
        .within("default")
        .through(&recorder.address);
    session.file("job.hcl", &service("one", "1", ""));
    let ran = session.quiet("job run job.hcl");
    // A lone server has no node.
    assert_eq!(ran.code, 2, "{}", ran.all());
    assert!(
        ran.stdout.contains("No nodes were eligible for evaluation"),
        "{}",
        ran.stdout
    );
    let requested = recorder.requested();
    let count = |part: &str| {
        requested
            .iter()
            .filter(|(line, _)| line.contains(part))
            .count()
    };
    assert!(count("/v1/event/stream") <= 1, "{requested:?}");
    assert!(requested.len() <= 6, "{requested:?}");
    assert!(
        requested[0]
            .1
            .contains("\"Submission\":{\"Format\":\"hcl2\""),
        "{requested:?}"
    );
}

#[test]
fn evaluations_are_listed_and_shown() {
    let (agent, _dir) = alone();
    let mut session = Session::at("evals", &agent).within("default");
    session.file("job.hcl", &service("one", "1", ""));
    assert_eq!(session.quiet("job run job.hcl").code, 2);
    let all = session.wait("/v1/evaluations", |all| {
        all.as_array().is_some_and(|all| all.len() == 2)
    });
    let blocked = all
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["Status"] == "blocked");
    let id = blocked
        .and_then(|one| one["ID"].as_str())
        .expect("one is blocked")
        .to_owned();
    session.run("eval list -status blocked");
    session.run(&format!("eval status {id}"));
    session.run("node status");
    session.run("job stop -detach -purge one");
    session.check();
}
