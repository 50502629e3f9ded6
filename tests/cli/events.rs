//! The event stream and the audit trail on the command line.

use anyhow::{Context as _, Result, ensure};
use drover_testkit::{LONG, wait_for};

use crate::support::{Session, alone, service};

/// A session whose job was placed three times at one index.
fn placed(name: &str) -> Session {
    let session = Session::new(name);
    let text = service("web", "1", "").replace("group \"app\" {", "group \"app\" {\n    count = 3");
    session.file("web.hcl", &text);
    session.done("job run -detach web.hcl");
    session.wait_allocs("web", "running", 3);
    session
}

#[test]
fn a_stream_is_resumed_at_the_very_event() {
    let session = placed("resumed");
    // The plan placed three allocations, which are three events of one index.
    let all = "event stream -json -topic Allocation:web -index 1";
    let at_once = session.done(&format!("{all} -limit 5"));
    let wanted: Vec<&str> = at_once.lines().collect();
    assert_eq!(wanted.len(), 5, "{at_once}");
    let index = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        event["Index"].as_u64().expect("an index")
    };
    assert_eq!(index(wanted[0]), index(wanted[2]), "{at_once}");
    let mut reported = String::new();
    for limit in [1, 1, 2, 1] {
        reported += &session.done(&format!("{all} -resume position -limit {limit}"));
        let kept = std::fs::read_to_string(session.path("position")).expect("a position");
        assert!(!kept.trim().is_empty());
    }
    assert_eq!(reported, at_once);
    session.done("job stop -purge -detach web");
}

#[test]
fn values_of_variables_are_not_searched_and_it_says_so() {
    let mut session = Session::new("values");
    session.done("var put -out none nomad/jobs/web password=hunter2");
    let ran = session.run("audit -value hunter2");
    assert!(
        ran.stdout.contains("Variables are encrypted in the log"),
        "{}",
        ran.stdout
    );
    session.run("audit -since 1h");
    session.run("event stream -since 1h -limit 1");
    session.run("state diff -from 1h");
    session.run("job status -at 5m");
    session.done("var purge nomad/jobs/web");
    session.check();
}

/// What is said of the log below a directory, once its tables were compared at all checkpoints.
fn verified(session: &Session, data: &str) -> Result<String> {
    let printed = session.done(&format!("log verify -data-dir {data}"));
    let line = |name: &str| {
        let begin = format!("{name} = ");
        let mut lines = printed.lines();
        lines.find_map(|line| line.strip_prefix(begin.as_str()))
    };
    let signed = line("Signed").and_then(|signed| signed.split_once(", signed to "));
    let (checkpoints, _) = signed.with_context(|| printed.clone())?;
    let wanted = format!("tables equal at {checkpoints}");
    ensure!(line("Tables") == Some(wanted.as_str()), "{printed}");
    Ok(printed)
}

#[test]
fn a_log_is_read_from_a_moment_and_nothing_is_overwritten() {
    let (agent, dir) = alone();
    let session = Session::at("reading", &agent).within("default");
    let data = dir.path().join("data").display().to_string();
    let all = session.done(&format!("log events -data-dir {data} -from -1h -outcomes"));
    let elected = |line: &&str| line.contains("LeaderElected");
    let elected = all.lines().find(elected).unwrap_or_default();
    assert!(elected.ends_with("  applied"), "{all}");
    let none = session.quiet(&format!("log events -data-dir {data} -to -1h"));
    assert!(
        none.stderr.contains("before the log begins"),
        "{}",
        none.all()
    );
    let made = session.done(&format!("state at -0s -data-dir {data} -out state"));
    assert!(made.contains("The state at index"), "{made}");
    let early = session.quiet(&format!("state at -1h -data-dir {data} -out early"));
    assert!(
        early.stderr.contains("nothing had happened yet at -1h"),
        "{}",
        early.all()
    );
    let verified = wait_for("tables as they were signed", LONG, || {
        verified(&session, &data)
    });
    let verified = verified.expect("something is signed");
    assert!(verified.contains("nothing is wrong"), "{verified}");
    assert!(
        verified.starts_with("verified"),
        "the verdict is first: {verified}"
    );
    assert!(verified.lines().all(|line| line.len() < 160), "{verified}");
    let export = format!("log export -data-dir {data} -out events.ndjson");
    session.done(&export);
    let kept = std::fs::read_to_string(session.path("events.ndjson")).expect("written");
    let again = session.quiet(&export);
    let reported = "events.ndjson exists: go on with it (-resume), or export to another file";
    assert!(
        again.code == 1 && again.stderr.contains(reported),
        "{}",
        again.all()
    );
    let same = std::fs::read_to_string(session.path("events.ndjson")).expect("there");
    assert_eq!(kept, same);
    session.done("audit requests -class audit");
    let requested = session.done("audit requests -class audit");
    let own = requested.lines().next().unwrap_or_default();
    assert!(own.ends_with("no end yet"), "{requested}");
    let streamed = session.done("event stream -all -since 1 -limit 1 -json");
    assert!(streamed.contains("\"Index\":1"), "{streamed}");
    drop(agent);
}

#[test]
fn who_changed_a_job_is_told() {
    let session = placed("audited");
    let reported = session.done("audit job web -oldest");
    let first = reported.lines().next().unwrap_or_default();
    assert!(
        first.contains("JobRegistered  by anonymous 127.0.0.1"),
        "{reported}"
    );
    assert!(
        reported
            .lines()
            .any(|line| line.trim() == "+ jobs audited/web"),
        "{reported}"
    );
    let brief = session.done("audit job web -oldest -brief -limit 1");
    assert_eq!(brief.lines().next(), Some(first));
    let tree = session.done("trace web");
    assert!(tree.starts_with("job "), "{tree}");
    assert!(
        tree.contains("└─ ") && tree.contains("PlanApplied"),
        "{tree}"
    );
    assert!(tree.contains("allocation "), "{tree}");
    session.done("job stop -purge -detach web");
}
