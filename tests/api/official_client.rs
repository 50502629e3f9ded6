//! The official Go client of Nomad's API drives an agent: the module in `go/`.

use std::process::Command;

use drover_testkit::skip;

use crate::support::{Running, dev};

/// The version of Go that the module requires, as (major, minor).
fn wanted() -> (u32, u32) {
    let line = include_str!("go/go.mod")
        .lines()
        .find_map(|line| line.strip_prefix("go "));
    version(line.expect("go.mod names a version")).expect("a version")
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches("go").split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn installed() -> Option<(u32, u32)> {
    let output = Command::new("go")
        .args(["env", "GOVERSION"])
        .output()
        .ok()?;
    version(String::from_utf8(output.stdout).ok()?.trim())
}

/// The module's folder; none, and a word on it, where it cannot be run.
pub(crate) fn go_works() -> Option<&'static str> {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/go");
    let (wanted, found) = (wanted(), installed());
    if found.is_none_or(|found| found < wanted) {
        skip(
            "official Go client",
            &format!("needs Go {}.{}", wanted.0, wanted.1),
        );
        return None;
    }
    let fetched = Command::new("go")
        .args(["mod", "download"])
        .current_dir(module)
        .status();
    if !fetched.is_ok_and(|status| status.success()) {
        skip("official Go client", "its modules cannot be fetched");
        return None;
    }
    Some(module)
}

/// Runs the tests of a package of the module against an agent, where they can be run.
pub(crate) fn go_test(package: &str, running: &Running) {
    let Some(module) = go_works() else { return };
    let output = Command::new("go")
        .args(["test", "-count=1", "-mod=readonly", package])
        .current_dir(module)
        .env("NOMAD_ADDR", format!("http://{}", running.agent.addr()))
        .env_remove("NOMAD_TOKEN")
        .output()
        .expect("go runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        running.agent.log_tail(30)
    );
}

#[test]
fn official_go_client_works_against_an_agent() {
    go_test(".", &dev());
}
