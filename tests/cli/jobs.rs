//! Jobs: lists, versions, changes.

use crate::support::{Session, service};

const BATCH: &str = r#"job "nightly" {
  type     = "batch"
  priority = 70
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
"#;

#[test]
fn what_is_empty_says_so() {
    let mut session = Session::new("empty");
    for line in [
        "job status",
        "deployment list",
        "eval list",
        "service list",
        "scaling policy list",
        "var list -out table",
        "job status web",
        "service info web",
        "audit -request none",
        "node pool info nope",
    ] {
        session.run(line);
    }
    session.check();
}

#[test]
fn jobs_are_listed_and_shown() {
    let mut session = Session::new("jobs");
    session.file("web.hcl", &service("web", "1", ""));
    session.file("nightly.hcl", BATCH);
    session.run("job validate web.hcl");
    session.run("job run -detach web.hcl");
    session.done("job run -detach nightly.hcl");
    session.wait_allocs("web", "running", 1);
    session.wait_allocs("nightly", "complete", 1);
    session.wait("/v1/job/nightly", |job| job["Status"] == "dead");
    session.wait("/v1/job/web/deployment", |one| {
        one["Status"] == "successful"
    });
    session.run("job status");
    session.run("job status -t '{{range .}}{{.ID}} {{end}}'");
    session.run("job status -json -t '{{.}}'");
    session.run("job status web");
    session.run("job status -short nightly");
    session.run("job allocs web");
    session.run("job allocs -verbose nightly");
    session.run("job stop -detach web");
    session.wait("/v1/job/web", |job| job["Status"] == "dead");
    session.run("job status");
    session.done("job stop -purge -detach web");
    session.done("job stop -purge -detach nightly");
    session.check();
}

#[test]
fn a_jobs_history_tells_what_changed_and_when() {
    let mut session = Session::new("history");
    session.file("web.hcl", &service("web", "1", ""));
    session.done("job run web.hcl");
    session.file("web.hcl", &service("web", "2", ""));
    session.done("job run web.hcl");
    session.run("job history -p web");
    session.run("job history -p -version 1 web");
    session.run("job tag apply -name golden -version 0 -description first web");
    session.run("job revert golden");
    let reverted = session.quiet("job revert web golden");
    assert_eq!(reverted.code, 0, "{}", reverted.all());
    session.run("job revert web golden-goose");
    session.run("job revert web 2");
    session.run("job revert web 7");
    session.run("job history -p web");
    session.run("job tag unset -name golden web");
    let evaluated = session.quiet("job eval web");
    assert_eq!(evaluated.code, 0, "{}", evaluated.all());
    session.run("job eval -detach web");
    session.done("job stop -purge -detach web");
    session.check();
}

#[test]
fn a_job_without_room_is_run_and_stopped() {
    let session = Session::new("no-room");
    let wide = service("web", "1", "").replace("memory = 16", "memory = 900000");
    session.file("web.hcl", &wide);
    let run = session.quiet("job run web.hcl");
    assert_eq!(run.code, 2, "{}", run.all());
    let why = "Dimension \"memory\" exhausted on 1 node";
    assert!(run.stdout.contains(why), "{}", run.stdout);
    // Its deployment ends with it, and was no success.
    let stop = session.quiet("job stop web");
    assert_eq!(stop.code, 1, "{}", stop.all());
    for part in ["Monitoring deployment", "\" cancelled\n"] {
        assert!(stop.stdout.contains(part), "{part}: {}", stop.all());
    }
    session.done("job stop -purge -detach web");
}

#[test]
fn what_an_agent_ignores_is_told_beside_what_is_asked_for() {
    let session = Session::new("ignored");
    session.file("web.hcl", &service("web", "1", ""));
    let reported = "Warning: the agent does not act on ";
    let run = session.quiet("job run -detach web.hcl");
    assert!((run.code, run.stderr.as_str()) == (0, ""), "{}", run.all());
    // A plan says so in its own warnings.
    let plan = session.quiet("job plan -policy-override web.hcl");
    let warned = plan.stdout.contains("PolicyOverride");
    assert!(warned && !plan.stderr.contains(reported), "{}", plan.all());
    let stop = session.quiet("job stop -detach -global web");
    let named = stop.stderr.starts_with(&format!("{reported}global"));
    assert!(stop.code == 0 && named, "{}", stop.all());
    assert!(!stop.stdout.contains(reported), "{}", stop.stdout);
    let purged = session.quiet("job stop -detach -purge web");
    assert!(
        (purged.code, purged.stderr.as_str()) == (0, ""),
        "{}",
        purged.all()
    );
}

#[test]
fn instances_are_dispatched() {
    let mut session = Session::new("dispatched");
    let text = BATCH.replace(
        "group \"g\"",
        "parameterized {\n    payload       = \"optional\"\n    \
         meta_required = [\"user\"]\n  }\n  group \"g\"",
    );
    session.file("nightly.hcl", &text);
    session.run("job run nightly.hcl");
    session.run("job dispatch nightly");
    session.run("job dispatch -meta user nightly");
    session.file("input", "the payload");
    let dispatched = session.quiet("job dispatch -meta user=ann nightly input");
    assert_eq!(dispatched.code, 0, "{}", dispatched.all());
    assert!(
        dispatched
            .stdout
            .starts_with("Dispatched Job ID = nightly/dispatch-"),
        "{dispatched:?}"
    );
    let waited = session.quiet("job dispatch -wait -meta user=eve nightly input");
    assert_eq!(waited.code, 0, "{}", waited.all());
    let over = " is over: 1 complete, 0 failed";
    assert!(waited.stdout.contains(over), "{}", waited.stdout);
    let again = |session: &Session| {
        session.answered(
            "job dispatch -detach -idempotency-token once -meta user=bob nightly -",
            "from a pipe",
        )
    };
    let (first, second) = (again(&session), again(&session));
    let child =
        |ran: &crate::support::Ran| ran.stdout.lines().next().unwrap_or_default().to_owned();
    assert_eq!((first.code, second.code), (0, 0), "{}", second.all());
    assert_eq!(
        child(&first).replace("  ", ""),
        child(&second).replace("  ", ""),
        "one token, one instance"
    );
    let child = child(&first);
    let id = child.rsplit(' ').next().expect("an id");
    let job = session
        .json(&format!("/v1/job/{}", id.replace('/', "%2F")))
        .expect("the child");
    assert_eq!(job["Payload"], "ZnJvbSBhIHBpcGU=");
    assert_eq!(job["Meta"]["user"], "bob");
    session.done("job stop -purge -detach nightly");
}

#[test]
fn groups_are_scaled() {
    let mut session = Session::new("scaled");
    let text = service("web", "1", "").replace(
        "group \"app\" {",
        "group \"app\" {\n    count = 1\n    scaling {\n      min = 0\n      max = 3\n      \
         policy {\n        step = 2\n      }\n    }",
    );
    session.file("web.hcl", &text);
    session.done("job run web.hcl");
    session.run("scaling policy list");
    let policies = session.json("/v1/scaling/policies").expect("policies");
    let id = policies[0]["ID"].as_str().expect("an id").to_owned();
    session.run(&format!("scaling policy info {}", &id[..8]));
    let scaled = session.quiet("job scale web 2");
    assert_eq!(scaled.code, 0, "{}", scaled.all());
    session.wait_allocs("web", "running", 2);
    session.wait("/v1/job/web/deployment", |one| {
        one["Status"] == "successful"
    });
    session.run("job scale web 9");
    session.run("job scale web app many");
    session.run("job scale web nope 1");
    session.run("job scale -check-index 1 web app 1");
    session.run("job scaling-events web");
    session.run("job scaling-events -verbose web");
    session.done("job stop -purge -detach web");
    session.check();
}

#[test]
fn the_allocations_of_a_job_are_restarted() {
    let session = Session::new("restarted");
    let text = service("web", "1", "").replace("group \"app\" {", "group \"app\" {\n    count = 2");
    session.file("web.hcl", &text);
    session.done("job run web.hcl");
    let before = session.wait_allocs("web", "running", 2);
    let requested = session.answered("job restart web", "n\n");
    assert!(
        requested.stdout.ends_with("Job restart canceled\n"),
        "{}",
        requested.stdout
    );
    let restarts = |alloc: &serde_json::Value| {
        alloc["TaskStates"]["main"]["Restarts"]
            .as_u64()
            .unwrap_or(0)
    };
    session.done("job restart -yes web");
    for id in &before {
        session.wait(&format!("/v1/allocation/{id}"), |alloc| {
            restarts(alloc) == 1
        });
    }
    session.wait_allocs("web", "running", 2);
    let wrong = session.quiet("job restart -yes -task nope web");
    assert_eq!(
        (wrong.code, wrong.stderr.trim()),
        (1, "Job \"web\" has no task \"nope\"")
    );
    let replaced = session.quiet("job restart -yes -reschedule -batch-size 50% web");
    assert_eq!(replaced.code, 0, "{}", replaced.all());
    assert_eq!(
        replaced.stdout.matches("takes its place").count(),
        2,
        "{}",
        replaced.stdout
    );
    let after = session.wait_allocs("web", "running", 2);
    assert!(
        before.iter().all(|id| !after.contains(id)),
        "{before:?} {after:?}"
    );
    session.done("job stop -purge -detach web");
}

#[test]
fn an_id_is_shown_as_what_it_names() {
    let session = Session::new("named");
    session.file("web.hcl", &service("named-web", "1", ""));
    session.done("job run web.hcl");
    let alloc = session.wait_allocs("named-web", "running", 1).remove(0);
    let deployment = session.json("/v1/job/named-web/deployment").expect("one");
    let deployment = deployment["ID"].as_str().expect("an id");
    for (id, row) in [
        ("named-w", "Name          = named-web"),
        (alloc.as_str(), "Job ID              = named-web"),
        (deployment, "Job Version = 0"),
    ] {
        let reported = session.done(&format!("status {id}"));
        assert!(
            reported.lines().any(|line| line == row),
            "no {row:?} in {reported}"
        );
    }
    session.done("job stop -purge -detach named-web");
}
