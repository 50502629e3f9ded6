//! A run from its beginning to its end, of a crate that is small.

use std::io::Write;
use std::process::Stdio;

use super::jail::NO_JAIL;
use super::*;

/// Its tests are in its own module and so the first that are run.
const DEEP: &str = "
pub fn twice(a: u8) -> u8 {
    a + a
}

#[cfg(test)]
mod tests {
    #[test]
    fn it() {
        assert_eq!(super::twice(2), 4);
    }
}
";

const CODE: &str = "
pub mod deep;

pub struct Thing;

pub fn loose(a: u8) -> bool {
    a < 7
}

pub fn never(a: u8) -> bool {
    a == 7
}

pub fn ends(mut a: u8) -> u8 {
    while a > 0 {
        a -= 1;
    }
    a
}

pub fn made() -> Thing {
    Thing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it() {
        assert!(loose(3));
        made();
    }

    #[test]
    fn it_ends() {
        assert_eq!(ends(3), 0);
    }
}
";

const CAME: [&str; 13] = [
    "caught src/hcl1/deep.rs: twice: -> 0",
    "caught src/hcl1/deep.rs: twice: -> 1",
    "caught src/hcl1/deep.rs: twice: a + a -> -",
    "caught src/hcl1/mod.rs: ends: -> 1",
    "caught src/hcl1/mod.rs: ends: a > 0 -> >=",
    "caught src/hcl1/mod.rs: loose: -> false",
    "late src/hcl1/mod.rs: ends: without a -= 1;",
    "survives src/hcl1/mod.rs: ends: -> 0",
    "survives src/hcl1/mod.rs: loose: -> true",
    "survives src/hcl1/mod.rs: loose: a < 7 -> <=",
    "unreached src/hcl1/mod.rs: never: -> false",
    "unreached src/hcl1/mod.rs: never: -> true",
    "unreached src/hcl1/mod.rs: never: a == 7 -> !=",
];

/// Whether this machine lets changed code run at all; says so where it does not, as suites do.
fn can_jail() -> bool {
    let unshared = Command::new("unshare")
        .args(["--pid", "--fork", "--mount", "--propagation", "private"])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    let can = unshared.is_ok_and(|status| status.success());
    if !can {
        let strict = std::env::var("DROVER_NO_SKIP").unwrap_or_default();
        let may_skip = matches!(strict.as_str(), "" | "0");
        assert!(may_skip, "{NO_JAIL} (DROVER_NO_SKIP is set)");
        // The harness keeps to itself what is printed.
        let line = "\nskipped: mutants: `unshare` (1) needs root\n";
        std::io::stderr().write_all(line.as_bytes()).expect("told");
    }
    can
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    let folder = path.parent().expect("a file is in a folder");
    fs::create_dir_all(folder).expect("made");
    fs::write(path, text).expect("written");
}

#[test]
fn a_run_by_portions_ends_goes_on_and_counts() {
    if !can_jail() {
        return;
    }
    // What runs there has a /tmp of its own.
    let dir = tempfile::tempdir_in("/var/tmp").expect("dir");
    let (root, target) = (dir.path().join("root"), dir.path().join("target"));
    write(
        &root,
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\nmembers = [\"src/hcl1\"]\n",
    );
    let manifest = "[package]\nname = \"drover-hcl1\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
                    [lib]\npath = \"mod.rs\"\n";
    write(&root, "src/hcl1/Cargo.toml", manifest);
    write(&root, "src/hcl1/mod.rs", CODE);
    write(&root, "src/hcl1/deep.rs", DEEP);
    write(&root, "src/docs/behaviours.md", "");
    let known = CAME.iter().filter_map(|line| {
        let (word, name) = line.split_once(' ')?;
        matches!(word, "survives" | "unreached").then_some(name)
    });
    let known: Vec<&str> = known.collect();
    write(&root, KNOWN, &known.join("\n"));
    let git = Command::new("git")
        .args(["init", "--quiet"])
        .current_dir(&root)
        .status();
    assert!(git.expect("git runs").success());
    let request = |go_on: bool, only: &[&str]| RunOptions {
        go_on,
        only: only.iter().map(|name| (*name).to_owned()).collect(),
        jobs: 2,
        portion: 6,
        limit: Duration::from_secs(3),
        ..RunOptions::default()
    };
    let tried = || {
        let text = fs::read_to_string(target.join("mutants/tried.txt")).expect("written");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let first = ["src/hcl1/deep.rs: twice", "src/hcl1/mod.rs: loose"];
    within(&root, &target, &request(false, &first)).expect("survivors are known");
    assert_eq!(tried().len(), 1 + 6, "{:?}", tried());
    within(&root, &target, &request(true, &[])).expect("survivors are known");
    let came: Vec<&str> = std::iter::once("begun").chain(CAME).collect();
    assert_eq!(tried(), came, "each was tried once");
    let refused = read_lines(&target.join("mutants").join(REFUSED));
    let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
    assert_eq!(refused, ["src/hcl1/mod.rs: made: -> Default::default()"]);
    // What was built is not looked at again where nothing is left.
    fs::remove_dir_all(target.join("debug")).expect("removed");
    within(&root, &target, &request(true, &[])).expect("survivors are known");
    assert!(!target.join("debug").exists(), "there was nothing to build");
    write(&root, KNOWN, &known[1..].join("\n"));
    let error = within(&root, &target, &request(true, &[])).expect_err("one is not listed");
    assert!(error.to_string().contains(KNOWN), "{error}");
}
