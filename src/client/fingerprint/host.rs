//! The host: architecture, kernel, distribution, control groups, signals.

use std::fs;
use std::path::Path;

use super::Facts;
use crate::client::config::Settings;
use crate::client::drivers::signals as names;

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

pub(super) fn arch(facts: &mut Facts, _settings: &Settings) {
    facts.set("cpu.arch", go_arch(std::env::consts::ARCH));
}

pub(super) fn probe(facts: &mut Facts, _settings: &Settings) {
    let uname = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    facts.set("kernel.name", "linux");
    facts.set("kernel.version", text(uname.release()));
    facts.set("kernel.arch", text(uname.machine()));
    facts.set("unique.hostname", text(uname.nodename()));
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |key: &str| {
        release
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix('='))
            .map(|v| v.trim_matches('"').to_owned())
            .unwrap_or_default()
    };
    let id = field("ID");
    facts.set("os.name", if id.is_empty() { "linux" } else { &id });
    let debian = fs::read_to_string("/etc/debian_version").unwrap_or_default();
    let version = match debian.trim() {
        exact if id == "debian" && exact.starts_with(|c: char| c.is_ascii_digit()) => {
            exact.to_owned()
        }
        _ => field("VERSION_ID"),
    };
    facts.set("os.version", version);
}

pub(super) fn cgroup(facts: &mut Facts, _settings: &Settings) {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        facts.set("os.cgroups.version", "2");
    } else if Path::new("/sys/fs/cgroup").exists() {
        facts.set("os.cgroups.version", "1");
    }
}

pub(super) fn signals(facts: &mut Facts, _settings: &Settings) {
    facts.set("os.signals", names::names().join(","));
}
