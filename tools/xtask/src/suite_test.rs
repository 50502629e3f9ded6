//! What `tools/suite` says and answers of a program of tests.

use std::path::Path;
use std::process::Command;

/// Runs a shell that does this as if it was such a program: how it ends, and what it prints.
fn run(does: &str, set: &[(&str, &str)]) -> (Option<i32>, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite");
    let mut command = Command::new(script);
    for name in ["DROVER_TEST_LIMIT", "DROVER_SUITE_LIMIT"] {
        command.env_remove(name);
    }
    command.args(["sh", "-c", does]).envs(set.iter().copied());
    let ran = command.output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stdout).unwrap())
}

#[test]
fn a_suite_that_ends_says_what_it_says_and_ends_as_it_does() {
    let does = "echo 'test a ... ok'; echo 'test b ... FAILED' >&2; exit 101";
    let printed = "test a ... ok\ntest b ... FAILED\n".to_owned();
    assert_eq!(run(does, &[]), (Some(101), printed));
}

#[test]
fn a_test_that_hangs_is_named_and_ends_its_suite_and_one_that_came_to_its_end_does_not() {
    let long = |name: &str| format!("echo 'test {name} has been running for over 60 seconds'; ");
    let hangs = long("a::hangs") + "exec tail -f /dev/null";
    let (code, printed) = run(&hangs, &[("DROVER_TEST_LIMIT", "59")]);
    assert_ne!(code, Some(0));
    let named = "test a::hangs has run for more than 59 s: the run is ended";
    assert!(printed.lines().any(|line| line == named), "{printed}");
    let ends = long("a::slow") + "echo 'test a::slow - should panic ... ok'";
    let (code, printed) = run(&ends, &[("DROVER_TEST_LIMIT", "900")]);
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn a_suite_that_takes_too_long_is_ended() {
    let (code, printed) = run("exec tail -f /dev/null", &[("DROVER_SUITE_LIMIT", "1")]);
    assert_eq!(code, Some(124), "{printed}");
}
