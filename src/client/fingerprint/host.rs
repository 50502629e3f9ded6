//! The host: architecture, kernel, distribution, control groups, signals.

use std::fs;
use std::path::Path;

use super::Facts;
use crate::config::ClientSettings;
use crate::drivers::signals as names;

/// An architecture as Go names it.
fn go_arch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64",
        other => other,
    }
}

pub(super) fn arch(facts: &mut Facts, _settings: &ClientSettings) {
    facts.set("cpu.arch", go_arch(std::env::consts::ARCH));
}

pub(super) fn probe(facts: &mut Facts, _settings: &ClientSettings) {
    let uname = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    facts.set("kernel.name", "linux");
    facts.set("kernel.version", text(uname.release()));
    facts.set("kernel.arch", text(uname.machine()));
    facts.set("unique.hostname", text(uname.nodename()));
    distribution_in(Path::new("/"), facts);
}

/// What the files of a system say whose root this is.
fn distribution_in(root: &Path, facts: &mut Facts) {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let release = text("etc/os-release");
    let field = |key: &str| {
        release
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix('='))
            .map(|v| v.trim_matches('"').to_owned())
            .unwrap_or_default()
    };
    let id = field("ID");
    facts.set("os.name", if id.is_empty() { "linux" } else { &id });
    let debian = text("etc/debian_version");
    let version = match debian.trim() {
        exact if id == "debian" && exact.starts_with(|c: char| c.is_ascii_digit()) => {
            exact.to_owned()
        }
        _ => field("VERSION_ID"),
    };
    facts.set("os.version", version);
}

pub(super) fn cgroup(facts: &mut Facts, _settings: &ClientSettings) {
    cgroup_in(Path::new("/"), facts);
}

fn cgroup_in(root: &Path, facts: &mut Facts) {
    if root.join("sys/fs/cgroup/cgroup.controllers").exists() {
        facts.set("os.cgroups.version", "2");
    } else if root.join("sys/fs/cgroup").exists() {
        facts.set("os.cgroups.version", "1");
    }
}

pub(super) fn signals(facts: &mut Facts, _settings: &ClientSettings) {
    facts.set("os.signals", names::names().join(","));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(facts: &Facts, name: &str) -> String {
        facts.attributes.get(name).cloned().unwrap_or_default()
    }

    #[test]
    fn mod_09_the_distribution_is_what_its_files_say() {
        for (release, debian, wanted) in [
            (
                "ID=debian\nVERSION_ID=\"13\"\n",
                "13.1\n",
                ("debian", "13.1"),
            ),
            (
                "ID=debian\nVERSION_ID=\"13\"\n",
                "trixie/sid\n",
                ("debian", "13"),
            ),
            ("ID=debian\nVERSION_ID=\"13\"\n", "", ("debian", "13")),
            (
                "ID=ubuntu\nVERSION_ID=\"24.04\"\n",
                "13.1\n",
                ("ubuntu", "24.04"),
            ),
            ("VERSION_ID=9\nID=\"rocky\"\n", "", ("rocky", "9")),
            ("ID_LIKE=debian\n", "13.1\n", ("linux", "")),
            ("", "", ("linux", "")),
        ] {
            let tmp = tempfile::tempdir().unwrap();
            fs::create_dir(tmp.path().join("etc")).unwrap();
            for (name, text) in [("os-release", release), ("debian_version", debian)] {
                if !text.is_empty() {
                    fs::write(tmp.path().join("etc").join(name), text).unwrap();
                }
            }
            let mut facts = Facts::default();
            distribution_in(tmp.path(), &mut facts);
            let found = (is(&facts, "os.name"), is(&facts, "os.version"));
            assert_eq!((&*found.0, &*found.1), wanted, "{release} {debian}");
        }
    }

    #[test]
    fn mod_09_control_groups_are_of_the_version_that_is_mounted() {
        let tmp = tempfile::tempdir().unwrap();
        let found = || {
            let mut facts = Facts::default();
            cgroup_in(tmp.path(), &mut facts);
            is(&facts, "os.cgroups.version")
        };
        assert_eq!(found(), "", "none");
        let place = tmp.path().join("sys/fs/cgroup");
        fs::create_dir_all(&place).unwrap();
        assert_eq!(found(), "1");
        fs::write(place.join("cgroup.controllers"), "cpu memory\n").unwrap();
        assert_eq!(found(), "2");
    }
}
