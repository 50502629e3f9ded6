//! Saying that a suite could not run here, and finding what suites need.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Where it is set to something, what would be skipped fails.
const NO_SKIP: &str = "DROVER_NO_SKIP";

/// Says that `what` did not run and why, on a line of its own that the test harness does not keep
/// to itself; `tools/test` counts it as skipped instead of passed.
///
/// # Panics
/// Where `DROVER_NO_SKIP` is set: there everything runs, and what cannot is a failure.
pub fn skip(what: &str, why: &str) {
    let strict = is_strict(std::env::var_os(NO_SKIP).as_deref());
    assert!(!strict, "{what} cannot run here: {why} ({NO_SKIP} is set)");
    let line = format!("\nskipped: {what}: {why}\n");
    // When even this fails, it cannot be reported.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn is_strict(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

/// The environment of Python with a name that `tools/install` makes, where it has these modules.
///
/// # Errors
/// What is missing.
pub fn python(name: &str, modules: &[&str]) -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set")?;
    let python = PathBuf::from(home)
        .join(".cache/drover")
        .join(name)
        .join("bin/python");
    if !python.exists() {
        return Err(format!("needs {name}: tools/install fetches it with pip"));
    }
    let import = format!("import {}", modules.join(", "));
    let output = Command::new(&python).args(["-c", &import]).output();
    let output = output.map_err(|error| format!("{}: {error}", python.display()))?;
    match output.status.success() {
        true => Ok(python),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Whether a program is there to be run.
pub fn has_program(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|dir| dir.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::is_strict;

    #[test]
    fn what_is_skipped_fails_only_where_that_is_asked_for() {
        assert!(!is_strict(None));
        for (value, wanted) in [("", false), ("0", false), ("1", true), ("yes", true)] {
            assert_eq!(is_strict(Some(OsStr::new(value))), wanted, "{value:?}");
        }
    }
}
