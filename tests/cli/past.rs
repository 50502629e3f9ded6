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
    let aged = |told: &str| {
        let row = told
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
        let told = session.done(&format!("{noun} -at {created} {argument}"));
        assert!(
            told.starts_with(&format!("As of index {created}, 20")),
            "{line}: {told}"
        );
    }
    let json = session.done(&format!("job status -json -at {created} web"));
    assert!(json.starts_with('{'), "{json}");
    let now = session.done("job status web");
    assert!(now.starts_with("ID "), "{now}");
    session.done("job stop -purge -detach web");
}
