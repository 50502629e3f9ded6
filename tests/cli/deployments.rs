//! Deployments, and commands that follow one.

use serde_json::Value;

use crate::support::{Session, service, task};

const CANARY: &str = "canary = 1";

/// A session with a job whose first version is deployed and whose second waits with its canary.
fn waiting(name: &str) -> (Session, crate::support::Ran) {
    let session = Session::new(name);
    session.file("web.hcl", &service("web", "1", CANARY));
    let first = session.quiet("job run web.hcl");
    assert_eq!(first.code, 0, "{}", first.all());
    session.file("web.hcl", &service("web", "2", CANARY));
    let second = session.quiet("job run web.hcl");
    (session, second)
}

fn status_is(status: &'static str) -> impl Fn(&Value) -> bool {
    move |deployment| deployment["Status"] == status
}

#[test]
fn a_canary_that_waits_for_its_promotion_is_no_failure() {
    let (mut session, run) = waiting("promoted");
    assert_eq!(run.code, 0, "{}", run.all());
    assert!(
        run.stdout
            .contains("All canaries are healthy and wait for you"),
        "{}",
        run.stdout
    );
    session.run("deployment list");
    let deployment = session.json("/v1/job/web/deployment").expect("one");
    let id = deployment["ID"].as_str().expect("an id").to_owned();
    let reported = session.run(&format!("deployment status {}", &id[..8]));
    assert!(
        reported.stdout.contains("requires manual promotion"),
        "{}",
        reported.stdout
    );
    let promoted = session.quiet(&format!("deployment promote {id}"));
    assert_eq!(promoted.code, 0, "{}", promoted.all());
    session.wait("/v1/job/web/deployment", status_is("successful"));
    session.run("deployment list");
    session.run("job deployments web");
    session.run("job deployments -latest web");
    session.run("deployment list -filter 'JobVersion == 0'");
    session.run("deployment promote ffff");
    session.run("deployment promote nope");
    let again = session.quiet(&format!("deployment status -monitor {id}"));
    assert_eq!(again.code, 0, "{}", again.all());
    assert!(again.stdout.contains("successful"), "{}", again.stdout);
    session.done("job stop -purge web");
    session.check();
}

#[test]
fn a_deployment_is_paused_resumed_and_failed_by_hand() {
    let (mut session, run) = waiting("failed-by-hand");
    assert_eq!(run.code, 0, "{}", run.all());
    let deployment = session.json("/v1/job/web/deployment").expect("one");
    let id = deployment["ID"].as_str().expect("an id").to_owned();
    session.run(&format!("deployment pause {id}"));
    session.wait("/v1/job/web/deployment", status_is("paused"));
    session.run(&format!("deployment resume -detach {id}"));
    session.wait("/v1/job/web/deployment", status_is("running"));
    session.run(&format!("deployment unblock {id}"));
    let failed = session.quiet(&format!("deployment fail {id}"));
    assert_eq!(failed.code, 0, "{}", failed.all());
    assert!(failed.stdout.contains(" failed\n"), "{}", failed.stdout);
    session.wait("/v1/job/web/deployment", status_is("failed"));
    session.run(&format!("deployment fail {id}"));
    session.run(&format!("deployment status {id}"));
    session.done("job stop -purge web");
    session.check();
}

#[test]
fn job_promote_promotes_the_latest_deployment() {
    let (session, run) = waiting("job-promote");
    assert_eq!(run.code, 0, "{}", run.all());
    let promoted = session.quiet("job promote -group app web");
    assert_eq!(promoted.code, 0, "{}", promoted.all());
    session.wait("/v1/job/web/deployment", status_is("successful"));
    let other = session.quiet("job promote -group nope web");
    assert_eq!(other.code, 1, "{}", other.all());
    session.done("job stop -purge web");
}

#[test]
fn a_rollback_is_followed() {
    let session = Session::new("rollback");
    session.file("web.hcl", &service("web", "1", "auto_revert = true"));
    assert_eq!(session.quiet("job run web.hcl").code, 0);
    // It is not healthy before a machine with much to do has seen that it failed.
    let update = "auto_revert = true\n      min_healthy_time = \"20s\"";
    let broken = task("web", "2", update, "command = \"/bin/false\"");
    session.file("web.hcl", &broken);
    let run = session.quiet("job run web.hcl");
    assert_eq!(run.code, 1, "{}", run.all());
    let followed = run.stdout.matches("Monitoring deployment").count();
    assert_eq!(followed, 2, "{}", run.stdout);
    let parts = [
        "rolling back to job version 0",
        "Waiting for the rollback of job \"web\"",
    ];
    for part in parts {
        assert!(run.stdout.contains(part), "no {part:?} in {}", run.stdout);
    }
    let last = run
        .stdout
        .lines()
        .rfind(|line| line.contains("Deployment \""));
    assert!(
        last.is_some_and(|line| line.ends_with("successful")),
        "{}",
        run.stdout
    );
    // The version that was made by the rollback was submitted then, not with the one it repeats.
    let versions = session.json("/v1/job/web/versions").expect("versions");
    let time = |number: u64| {
        let mut all = versions["Versions"].as_array().expect("a list").iter();
        let found = all.rfind(|one| one["Version"] == number);
        found
            .and_then(|one| one["SubmitTime"].as_i64())
            .expect("a time")
    };
    assert!(time(2) > time(1), "{versions:#}");
    session.done("job stop -purge web");
}

#[test]
fn a_deployment_that_is_failed_names_the_version_it_goes_back_to() {
    let session = Session::new("reverted-by-hand");
    let update = "canary = 1\n      auto_revert = true";
    for version in ["1", "2"] {
        session.file("web.hcl", &service("web", version, update));
        let ran = session.quiet("job run web.hcl");
        assert_eq!(ran.code, 0, "{}", ran.all());
    }
    let deployment = session.json("/v1/job/web/deployment").expect("one");
    let id = deployment["ID"].as_str().expect("an id").to_owned();
    let failed = session.quiet(&format!("deployment fail {id}"));
    let end = " failed. Auto-reverted to job version 0.\n";
    assert!(failed.stdout.contains(end), "{}", failed.all());
    session.done("job stop -purge web");
}
