//! What `tools/install` requests of a machine's packages: programs that are none stand in for all
//! that a machine has.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testing::program;

/// What is on every Debian, and does nothing outside of the directory.
const ESSENTIAL: [&str; 9] = [
    "dirname", "head", "mkdir", "mktemp", "mv", "rm", "sed", "sort", "uname",
];
/// Programs of packages that building needs, and those packages in the order of their requests.
const BUILDS: [(&str, &str); 10] = [
    ("cc", "gcc"),
    ("c++", "g++"),
    ("make", "make"),
    ("clang", "clang"),
    ("cmake", "cmake"),
    ("pkg-config", "pkg-config"),
    ("git", "git"),
    ("curl", "curl"),
    ("unzip", "unzip"),
    ("pgrep", "procps"),
];
/// What is looked for in the machine's own directories.
const HEADERS: [(&str, &str); 2] = [
    ("/usr/include/zlib.h", "zlib1g-dev"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
];
const FETCHES: [(&str, &str); 2] = [("java", "default-jre-headless"), ("mvn", "maven")];
const TESTS: [(&str, &str); 6] = [
    ("kcat", "kcat"),
    ("openssl", "openssl"),
    ("jq", "jq"),
    ("zsh", "zsh"),
    ("ip", "iproute2"),
    ("python3", "python3-venv"),
];

/// A machine in a directory: a Debian with Rust and nothing else.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn bare() -> Self {
        let machine = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in [
            "tools/install",
            "tools/install.d/tests.sh",
            "tests/api/go/go.mod",
        ] {
            let to = machine.at(name);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(root.join(name), to).unwrap();
        }
        for name in ["bin", "home"] {
            fs::create_dir(machine.at(name)).unwrap();
        }
        let path = std::env::var_os("PATH").unwrap();
        for name in ESSENTIAL {
            let mut places = std::env::split_paths(&path).map(|place| place.join(name));
            let place = places.find(|place| place.is_file());
            symlink(place.unwrap(), machine.at("bin").join(name)).unwrap();
        }
        program(&machine.at("tools"), "rocksdb", "echo fetched");
        machine.has("cargo", "exit 0");
        machine.has("id", "echo 0");
        let requests = machine.at("requests");
        let notes = format!("echo \"$*\" >>'{}'", requests.display());
        machine.has("apt-get", &notes);
        machine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn has(&self, name: &str, does: &str) {
        program(&self.at("bin"), name, does);
    }

    /// Runs the script: whether it succeeds, its errors, and which packages each call requested.
    fn install(&self, part: Option<&str>, set: &[(&str, &str)]) -> (bool, String, Vec<String>) {
        let requests = self.at("requests");
        fs::write(&requests, "").unwrap();
        let mut command = Command::new("/bin/sh");
        command.arg(self.at("tools/install")).args(part).env_clear();
        command.env("PATH", self.at("bin"));
        command.env("HOME", self.at("home"));
        let ran = command.envs(set.iter().copied()).output().unwrap();
        let requests = fs::read_to_string(requests).unwrap();
        let calls = requests.lines().filter(|call| *call != "update -q");
        let packages = |call: &str| {
            let packages = call.strip_prefix("install -q -y --no-install-recommends ");
            packages.unwrap_or_else(|| panic!("{call}")).to_owned()
        };
        let stderr = String::from_utf8(ran.stderr).unwrap();
        (ran.status.success(), stderr, calls.map(packages).collect())
    }
}

fn packages(of: &[(&str, &str)]) -> Vec<String> {
    of.iter()
        .map(|(_, package)| (*package).to_owned())
        .collect()
}

/// Those of the headers that this machine has not.
fn headers() -> Vec<String> {
    let missing = HEADERS.iter().filter(|(path, _)| !Path::new(path).exists());
    missing.map(|(_, package)| (*package).to_owned()).collect()
}

fn building() -> String {
    let all = [
        packages(&BUILDS),
        headers(),
        vec!["libclang-dev".to_owned()],
    ];
    all.concat().join(" ")
}

#[test]
fn a_bare_machine_is_given_what_building_and_testing_need() {
    let machine = Machine::bare();
    let (done, stderr, requested) = machine.install(None, &[]);
    let wanted = [packages(&FETCHES), packages(&TESTS)].concat().join(" ");
    assert!(done, "{stderr}");
    assert_eq!(requested, [building(), wanted], "{stderr}");
    let (done, stderr, requested) = machine.install(Some("build"), &[]);
    let wanted = packages(&FETCHES).join(" ");
    assert!(done, "{stderr}");
    assert_eq!(requested, [building(), wanted], "{stderr}");
    assert!(!stderr.contains("skipped"), "{stderr}");
}

#[test]
fn what_could_not_be_had_is_an_error_where_nothing_may_be_skipped() {
    let machine = Machine::bare();
    let lacking = "java mvn kcat openssl jq zsh ip moto duckdb go csi-sanity";
    let (done, stderr, _) = machine.install(None, &[]);
    assert!(done, "{stderr}");
    for name in lacking.split(' ') {
        assert!(
            stderr.contains(&format!("install: no {name}: ")),
            "{name}: {stderr}"
        );
    }
    let (done, stderr, _) = machine.install(None, &[("DROVER_NO_SKIP", "1")]);
    assert!(!done, "{stderr}");
    let refused = format!("install: tests need {lacking}, and DROVER_NO_SKIP is set");
    assert!(stderr.lines().any(|line| line == refused), "{stderr}");
}

#[test]
fn who_is_not_root_sees_what_to_install() {
    let machine = Machine::bare();
    machine.has("id", "echo 1000");
    let (done, stderr, requested) = machine.install(None, &[]);
    assert!(!done && requested.is_empty(), "{stderr}");
    let command = format!("install: on Debian: sudo apt-get install {}", building());
    assert!(stderr.lines().any(|line| line == command), "{stderr}");
}

#[test]
fn a_machine_that_has_all_is_left_alone() {
    let machine = Machine::bare();
    for (name, _) in BUILDS.iter().chain(&FETCHES).chain(&TESTS) {
        machine.has(name, "exit 0");
    }
    // Which shows that there is a libclang.
    machine.has("ls", "exit 0");
    machine.has("go", "echo go99.9.9");
    for name in ["moto", "duckdb"] {
        let bin = machine.at("home/.cache/drover").join(name).join("bin");
        fs::create_dir_all(&bin).unwrap();
        program(&bin, "python", "exit 0");
    }
    let (done, stderr, requested) = machine.install(None, &[("DROVER_NO_SKIP", "1")]);
    assert!(done, "{stderr}");
    let missing = Some(headers().join(" ")).filter(|missing| !missing.is_empty());
    assert_eq!(requested, Vec::from_iter(missing), "{stderr}");
}
