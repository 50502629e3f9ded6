//! The machine as its agent sees it: system, addresses, names, environment, disks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::redact;

/// The agent whose machine is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRequest {
    /// The client.
    #[serde(rename = "NodeID")]
    pub node_id: String,
    #[serde(rename = "ServerID")]
    pub server_id: String,
}

/// What an agent reports of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostResponse {
    /// The reporting agent.
    #[serde(rename = "AgentID")]
    pub agent_id: String,
    /// What.
    #[serde(rename = "HostData")]
    pub host_data: HostData,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct HostData {
    /// The system's name and version.
    #[serde(rename = "OS")]
    pub os: String,
    /// The interfaces, one entry for each address.
    pub network: Vec<BTreeMap<String, String>>,
    /// `/etc/resolv.conf`.
    pub resolv_conf: String,
    /// `/etc/hosts`.
    pub hosts: String,
    /// The agent's environment without what may be a secret.
    pub environment: BTreeMap<String, String>,
    /// Disks by where they are mounted.
    pub disk: BTreeMap<String, DiskUsage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskUsage {
    /// All of it, MiB.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    /// What is used, MiB.
    #[serde(rename = "UsedMB")]
    pub used_mb: i64,
}

/// The longest file that is shown, bytes.
const MOST: usize = 256 << 10;

/// Looks at the machine. It reads files and queries disks: not for a thread that serves others.
pub fn look() -> HostData {
    HostData {
        os: system(),
        network: addresses(),
        resolv_conf: file("/etc/resolv.conf"),
        hosts: file("/etc/hosts"),
        environment: environment(std::env::vars_os()),
        disk: disks(&fs::read_to_string("/proc/self/mounts").unwrap_or_default()),
    }
}

fn file(path: &str) -> String {
    let mut bytes = fs::read(path).unwrap_or_default();
    bytes.truncate(MOST);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn system() -> String {
    let uname = rustix::system::uname();
    let parts = [
        uname.sysname(),
        uname.nodename(),
        uname.release(),
        uname.version(),
        uname.machine(),
    ];
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    let uname: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
    match pretty {
        Some(name) => format!("{} ({})", uname.join(" "), name.trim_matches('"')),
        None => uname.join(" "),
    }
}

fn environment(
    all: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> BTreeMap<String, String> {
    all.map(|(name, value)| {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let reported = redact::value(&name, &value);
        (name.into_owned(), reported)
    })
    .collect()
}

/// Interfaces and their addresses.
fn addresses() -> Vec<BTreeMap<String, String>> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let mut out = Vec::new();
    for one in all {
        let address = one.address.and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|a| a.ip().to_string());
            v4.or_else(|| address.as_sockaddr_in6().map(|a| a.ip().to_string()))
        });
        let Some(address) = address else { continue };
        let of = |file: &str| {
            let path = format!("/sys/class/net/{}/{file}", one.interface_name);
            let text = fs::read_to_string(path).unwrap_or_default();
            (file.to_owned(), text.trim().to_owned())
        };
        let mut entry: BTreeMap<String, String> = ["mtu", "operstate"].map(of).into();
        let (_, mac) = of("address");
        entry.insert("mac".to_owned(), mac);
        entry.insert("name".to_owned(), one.interface_name);
        entry.insert("address".to_owned(), address);
        entry.retain(|_, value| !value.is_empty());
        out.push(entry);
    }
    out
}

/// Disks of this machine: remote ones may hang, and are not queried.
fn disks(mounts: &str) -> BTreeMap<String, DiskUsage> {
    let mut seen = std::collections::BTreeSet::new();
    let mut out = BTreeMap::new();
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(device), Some(point)) = (fields.next(), fields.next()) else {
            continue;
        };
        if !device.starts_with("/dev/") || !seen.insert(device.to_owned()) {
            continue;
        }
        let Ok(stat) = rustix::fs::statvfs(Path::new(point)) else {
            continue;
        };
        let mb = |blocks: u64| i64::try_from((blocks * stat.f_frsize) >> 20).unwrap_or(i64::MAX);
        let usage = DiskUsage {
            disk_mb: mb(stat.f_blocks),
            used_mb: mb(stat.f_blocks.saturating_sub(stat.f_bfree)),
        };
        out.insert(point.to_owned(), usage);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_23_the_machine_is_told_and_no_secret_of_its_environment() {
        let data = look();
        assert!(data.os.starts_with("Linux "), "{}", data.os);
        let local = |entry: &BTreeMap<String, String>| entry["address"] == "127.0.0.1";
        let lo = data.network.iter().find(|entry| local(entry));
        assert_eq!(lo.expect("a loopback")["name"], "lo");
        assert!(data.environment.contains_key("PATH"));
        for usage in data.disk.values() {
            assert!(usage.used_mb <= usage.disk_mb, "{usage:?}");
        }
        let env = |name: &str, value: &str| (name.into(), value.into());
        let reported = environment([env("A_TOKEN", "canary"), env("B", "b")].into_iter());
        assert_eq!(reported["A_TOKEN"], redact::REDACTED);
        assert_eq!(reported["B"], "b");
    }

    #[test]
    fn mod_23_a_machine_is_told_as_nomads_client_reads_it() {
        let answer = HostResponse {
            agent_id: "a".to_owned(),
            host_data: HostData {
                os: "Linux".to_owned(),
                disk: [(
                    "/".to_owned(),
                    DiskUsage {
                        disk_mb: 2,
                        used_mb: 1,
                    },
                )]
                .into(),
                ..HostData::default()
            },
        };
        assert_eq!(
            serde_json::to_string(&answer).expect("encodes"),
            "{\"AgentID\":\"a\",\"HostData\":{\"OS\":\"Linux\",\"Network\":[],\"ResolvConf\":\"\",\
             \"Hosts\":\"\",\"Environment\":{},\"Disk\":{\"/\":{\"DiskMB\":2,\"UsedMB\":1}}}}"
        );
    }

    #[test]
    fn mod_23_a_disk_is_told_once_and_one_of_another_machine_never() {
        let mounts = "/dev/root / ext4 rw 0 0\n/dev/root /again ext4 rw 0 0\n\
                      proc /proc proc rw 0 0\nhost:/x / nfs rw 0 0\n";
        let reported = disks(mounts);
        assert_eq!(reported.keys().collect::<Vec<_>>(), ["/"]);
    }
}
