//! What must hold of a configuration as a whole before an agent starts with it.

use super::retention::archive_problem;
use super::tls::{cipher_suites, min_version};
use super::{ClientConfig, Config, ConfigError, TlsConfig};
use drover_events::model::status::{ALL_NODE_POOL, job_type};
use ipnet::IpNet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// How long checkpoints may be apart.
const CHECKPOINT_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);

/// The smallest limit for the bodies that are held at once, bytes: a quarter of it is for one
/// address, and holds a job of the greatest size and what is made of it.
const LEAST_IN_FLIGHT: u64 = 128_000_000;

/// Of how long a time requests may come at once.
const BURSTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Checks a complete configuration.
///
/// # Errors
/// Every reason why the agent cannot start with it, in the words users of the format know.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    let mut wrong = Vec::new();
    if !config.server.enabled && !config.client.enabled {
        wrong.push("Must specify either server, client or dev mode for the agent.".to_owned());
    }
    if config.region.contains(|c: char| c.is_control() || c == '/') || config.region.is_empty() {
        wrong.push("Region contains invalid characters".to_owned());
    }
    if config.datacenter.contains(['\0', '*']) || config.datacenter.is_empty() {
        wrong.push("Datacenter contains invalid characters (null or '*')".to_owned());
    }
    paths(config, &mut wrong);
    levels(config, &mut wrong);
    server(config, &mut wrong);
    client(config, &mut wrong);
    tls(&config.tls, &mut wrong);
    limits(config, &mut wrong);
    config.event_publisher.check(&mut wrong);
    for (what, found) in [
        ("addresses.http", config.http_listen().map(|_| ())),
        ("addresses.rpc", config.rpc_listen().map(|_| ())),
    ] {
        if let Err(err) = found {
            wrong.push(format!("Failed to parse {what}: {err}"));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(ConfigError::Invalid(wrong))
    }
}

fn paths(config: &Config, wrong: &mut Vec<String>) {
    let named = [
        ("data-dir", &config.data_dir),
        ("plugin-dir", &config.plugin_dir),
        ("state-dir", &config.client.state_dir),
        ("alloc-dir", &config.client.alloc_dir),
        ("alloc-mounts-dir", &config.client.alloc_mounts_dir),
        ("host-volumes-dir", &config.client.host_volumes_dir),
        (
            "host-volume-plugin-dir",
            &config.client.host_volume_plugin_dir,
        ),
        ("server data_dir", &config.server.data_dir),
    ];
    for (name, path) in named {
        if let Some(path) = path.as_deref().filter(|p| !Path::is_absolute(p)) {
            wrong.push(format!(
                "{name} must be given as an absolute path: got {}",
                path.display()
            ));
        }
    }
    if config.data_dir.is_none() && !config.dev {
        wrong.push("Must specify \"data_dir\" config option or \"data-dir\" CLI flag".to_owned());
    }
}

fn levels(config: &Config, wrong: &mut Vec<String>) {
    let level = config.log.level.to_ascii_uppercase();
    if !["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF"].contains(&level.as_str()) {
        let valid = "valid levels: TRACE, DEBUG, INFO, WARN, ERROR, OFF";
        wrong.push(format!(
            "Invalid log level {:?} ({valid})",
            config.log.level
        ));
    }
}

fn server(config: &Config, wrong: &mut Vec<String>) {
    let server = &config.server;
    if server.bootstrap_expect > 0 && !server.enabled {
        wrong.push("Bootstrap requires server mode to be enabled".to_owned());
    }
    if server.raft_protocol != 3 {
        let got = server.raft_protocol;
        wrong.push(format!(
            "raft_protocol must be 3 in Nomad v1.4 and later, got {got}"
        ));
    }
    if server.raft_multiplier > 10 {
        let got = server.raft_multiplier;
        wrong.push(format!(
            "raft_multiplier cannot be {got}. Must be between 1 and 10"
        ));
    }
    if !(100..=32_766).contains(&server.job_max_priority) {
        let got = server.job_max_priority;
        wrong.push(format!(
            "job_max_priority cannot be {got}. Must be between 100 and 32766"
        ));
    }
    if !(50..=server.job_max_priority).contains(&server.job_default_priority) {
        let (got, max) = (server.job_default_priority, server.job_max_priority);
        wrong.push(format!(
            "job_default_priority cannot be {got}. Must be between 50 and {max}"
        ));
    }
    if !(1..=100_000).contains(&server.checkpoint_events) {
        let got = server.checkpoint_events;
        wrong.push(format!(
            "server.checkpoint_events cannot be {got}. Must be between 1 and 100000"
        ));
    }
    if !CHECKPOINT_INTERVALS.contains(&server.checkpoint_interval) {
        let got = server.checkpoint_interval;
        wrong.push(format!(
            "server.checkpoint_interval cannot be {got:?}. Must be between 100ms and 1h"
        ));
    }
    wrong.extend(server.retention.problems());
    wrong.extend(server.archive.as_ref().and_then(archive_problem));
    if server.bootstrap_expect > 1 {
        wrong.push(
            "server.bootstrap_expect above 1 is not supported by this version: there is one server"
                .to_owned(),
        );
    }
    for name in &server.enabled_schedulers {
        if !job_type::ALL.contains(&name.as_str()) {
            wrong.push(format!(
                "invalid configuration: scheduler {name:?} not registered"
            ));
        }
    }
}

fn client(config: &Config, wrong: &mut Vec<String>) {
    let client = &config.client;
    if client.min_dynamic_port > client.max_dynamic_port || client.min_dynamic_port == 0 {
        let (min, max) = (client.min_dynamic_port, client.max_dynamic_port);
        wrong.push(format!(
            "Invalid dynamic port range: min_dynamic_port={min} max_dynamic_port={max}"
        ));
    }
    for key in client.meta.keys() {
        if key.is_empty() || key.contains(|c: char| c.is_whitespace() || c.is_control()) {
            wrong.push(format!("Invalid Client.Meta key: {key:?}"));
        }
    }
    host_volumes(client, wrong);
    if client.enabled && client.network_interface.contains("{{") {
        let got = &client.network_interface;
        wrong.push(format!(
            "client.network_interface {got:?}: templates are not evaluated: name the interface \
             itself"
        ));
    }
    if !["", "ipv4", "ipv6"].contains(&client.preferred_address_family.as_str()) {
        let got = &client.preferred_address_family;
        wrong.push(format!(
            "Invalid preferred-address-family value: {got} (valid values: ipv4, ipv6)"
        ));
    }
    let pool = &client.node_pool;
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if pool == ALL_NODE_POOL || pool.is_empty() || pool.len() > 128 || !pool.chars().all(word) {
        wrong.push(format!("Invalid node pool: {pool:?}"));
    }
    if let Err(text) = ports(&client.reserved.reserved_ports) {
        wrong.push(format!(
            "reserved.reserved_ports {:?} invalid: {text}",
            client.reserved.reserved_ports
        ));
    }
    if let Err(text) = core_list(&client.reserved.cores) {
        let got = &client.reserved.cores;
        wrong.push(format!("reserved.cores {got:?} invalid: {text}"));
    }
    for (name, network) in &client.host_networks {
        if let Err(text) = ports(&network.reserved_ports) {
            let got = &network.reserved_ports;
            wrong.push(format!(
                "host_network[{name:?}].reserved_ports {got:?} invalid: {text}"
            ));
        }
    }
}

/// A volume that is offered must be there: jobs would be placed here for it and fail.
fn host_volumes(client: &ClientConfig, wrong: &mut Vec<String>) {
    for (name, volume) in &client.host_volumes {
        let path = Path::new(&volume.path);
        if volume.path.is_empty() {
            wrong.push(format!("Missing path in host_volume config: {name:?}"));
        } else if !path.is_absolute() {
            let got = &volume.path;
            wrong.push(format!(
                "host_volume {name:?} path must be given as an absolute path: got {got}"
            ));
        } else if let (true, Err(error)) = (client.enabled, path.metadata()) {
            let path = &volume.path;
            wrong.push(format!(
                "failed to validate volume {name}, err: stat {path}: {error}"
            ));
        }
    }
}

fn tls(tls: &TlsConfig, wrong: &mut Vec<String>) {
    wrong.extend(cipher_suites(&tls.tls_cipher_suites).err());
    wrong.extend(min_version(&tls.tls_min_version).err());
    let needs = [
        ("tls.cert_file", &tls.cert_file, tls.http || tls.rpc),
        ("tls.key_file", &tls.key_file, tls.http || tls.rpc),
        (
            "tls.ca_file",
            &tls.ca_file,
            tls.rpc || tls.verify_https_client,
        ),
    ];
    for (setting, _, _) in needs
        .into_iter()
        .filter(|(_, file, need)| *need && file.is_none())
    {
        wrong.push(format!(
            "{setting} is not set, and tls {{ http, rpc }} need it: make files with drover tls ca \
             create and drover tls cert create"
        ));
    }
    // A setting that is meant to close something must not be without effect.
    let idle = [
        (
            "tls.verify_https_client",
            tls.verify_https_client,
            "tls.http",
            tls.http,
        ),
        (
            "tls.verify_server_hostname",
            tls.verify_server_hostname,
            "tls.rpc",
            tls.rpc,
        ),
        (
            "tls.rpc_upgrade_mode",
            tls.rpc_upgrade_mode,
            "tls.rpc",
            tls.rpc,
        ),
    ];
    for (setting, on, of, there) in idle {
        if on && !there {
            wrong.push(format!("{setting} has no effect without {of} = true"));
        }
    }
}

fn limits(config: &Config, wrong: &mut Vec<String>) {
    wrong.extend(trusted_proxies(&config.http_trusted_proxies).err());
    let burst = config.limits.request_burst;
    if !BURSTS.contains(&burst) {
        wrong.push(format!(
            "limits.request_burst cannot be {burst:?}. Must be between 1s and 1h"
        ));
    }
    let bytes = config.limits.max_body_bytes_in_flight;
    if bytes < LEAST_IN_FLIGHT {
        wrong.push(format!(
            "limits.max_body_bytes_in_flight cannot be {bytes}. Must be at least {LEAST_IN_FLIGHT}"
        ));
    }
}

/// Reads addresses (`10.0.0.5`) and prefixes (`10.0.0.0/24`).
///
/// # Errors
/// The one that is neither.
pub fn trusted_proxies(texts: &[String]) -> Result<Vec<IpNet>, String> {
    let read = |text: &String| {
        let one = text.parse::<IpAddr>().map(IpNet::from);
        one.map(|net| IpNet::from(net.addr().to_canonical()))
            .or_else(|_| text.parse::<IpNet>())
            .map_err(|_| format!("http_trusted_proxies: {text:?} is no address or prefix"))
    };
    texts.iter().map(read).collect()
}

/// Reads cores as the kernel lists them: `0-2,7`.
///
/// # Errors
/// The part that names no cores.
pub fn core_list(text: &str) -> Result<Vec<u16>, String> {
    Ok(ranges(text, "core")?.into_iter().flatten().collect())
}

/// Reads `22,80,8500-8600`.
fn ports(text: &str) -> Result<(), String> {
    ranges(text, "port").map(|_| ())
}

/// Numbers and what is from one to another, parted by commas; `kind` is what a number is of.
fn ranges(text: &str, kind: &str) -> Result<Vec<RangeInclusive<u16>>, String> {
    let number = |text: &str| {
        let number = text.trim().parse::<u16>();
        number.map_err(|_| format!("{text:?} is not a {kind}"))
    };
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (number(low)?, number(high)?);
        if low > high {
            return Err(format!("{part:?} ends before it begins"));
        }
        found.push(low..=high);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reasons_are_given_at_once() {
        let mut config = Config {
            region: "a/b".into(),
            data_dir: Some("relative".into()),
            ..Config::default()
        };
        config.server.raft_multiplier = 11;
        config.client.reserved.reserved_ports = "22,90-80".into();
        config.client.reserved.cores = "0-2,x".into();
        let text = check(&config).expect_err("refused").to_string();
        for part in [
            "Must specify either server, client or dev mode",
            "Region contains invalid characters",
            "data-dir must be given as an absolute path: got relative",
            "raft_multiplier cannot be 11",
            "reserved.reserved_ports \"22,90-80\" invalid",
            "reserved.cores \"0-2,x\" invalid: \"x\" is not a core",
        ] {
            assert!(text.contains(part), "{part} missing in:\n{text}");
        }
    }

    #[test]
    fn cores_are_listed_as_the_kernel_does() {
        for (text, cores) in [
            ("", &[][..]),
            ("0", &[0]),
            ("0-2,7", &[0, 1, 2, 7]),
            (" 3 , 5 - 6 ,", &[3, 5, 6]),
        ] {
            assert_eq!(core_list(text).as_deref(), Ok(cores), "{text}");
        }
        for (text, why) in [
            ("0-2,x", "\"x\" is not a core"),
            ("-1", "\"\" is not a core"),
            ("1-", "\"\" is not a core"),
            ("65536", "\"65536\" is not a core"),
            ("3-1", "\"3-1\" ends before it begins"),
        ] {
            assert_eq!(core_list(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_host_volume_is_a_path_that_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let there = dir.path().to_str().expect("a path").to_owned();
        let gone = format!("{there}/gone");
        let text_of = |path: &str, client: bool| {
            let mut config = Config::dev();
            config.client.enabled = client;
            let volume = crate::HostVolume {
                path: path.to_owned(),
                read_only: false,
            };
            config.client.host_volumes.insert("data".into(), volume);
            check(&config).err().map(|error| error.to_string())
        };
        assert_eq!(text_of(&there, true), None);
        assert_eq!(text_of(&gone, false), None, "no client looks at it");
        let stat = format!("failed to validate volume data, err: stat {gone}: ");
        for (path, part) in [
            ("", "Missing path in host_volume config: \"data\""),
            (
                "srv/data",
                "host_volume \"data\" path must be given as an absolute path: got srv/data",
            ),
            (&gone, &stat),
        ] {
            let text = text_of(path, true).expect("refused");
            assert!(text.contains(part), "{part} missing in:\n{text}");
        }
    }

    #[test]
    fn an_interface_is_named_and_not_worked_out() {
        let text_of = |named: &str, client: bool| {
            let mut config = Config::dev();
            config.client.enabled = client;
            config.client.network_interface = named.to_owned();
            check(&config).err().map(|error| error.to_string())
        };
        let template = "{{ GetPrivateInterfaces | attr \"name\" }}";
        assert_eq!(text_of("eth0", true), None);
        assert_eq!(text_of(template, false), None, "no client looks at it");
        let text = text_of(template, true).expect("refused");
        for part in ["client.network_interface", "name the interface itself"] {
            assert!(text.contains(part), "{part} missing in:\n{text}");
        }
    }

    #[test]
    fn no_agent_starts_alone_that_was_told_to_be_one_of_three() {
        let mut config = Config::dev();
        config.server.bootstrap_expect = 3;
        let text = check(&config).expect_err("refused").to_string();
        assert!(text.contains("bootstrap_expect above 1"), "{text}");
    }

    #[test]
    fn bodies_have_room_for_the_longest() {
        let mut config = Config::dev();
        config.limits.max_body_bytes_in_flight = 128_000_000;
        check(&config).expect("enough");
        config.limits.max_body_bytes_in_flight -= 1;
        let text = check(&config).expect_err("refused").to_string();
        let part = "limits.max_body_bytes_in_flight cannot be 127999999. Must be at least";
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn tls_that_cannot_work_is_refused_in_words() {
        let mut config = Config::dev();
        config.tls.rpc = true;
        config.tls.verify_https_client = true;
        config.tls.tls_min_version = "tls10".into();
        config.tls.tls_cipher_suites = "TLS_RSA_WITH_RC4_128_SHA".into();
        let text = check(&config).expect_err("refused").to_string();
        for part in [
            "tls.cert_file is not set",
            "tls.key_file is not set",
            "tls.ca_file is not set",
            "tls.verify_https_client has no effect without tls.http",
            "tls.tls_min_version: \"tls10\" is not supported, use one of tls12, tls13",
            "\"TLS_RSA_WITH_RC4_128_SHA\" is not supported, use some of TLS_AES_256_GCM_SHA384",
        ] {
            assert!(text.contains(part), "{part} missing in:\n{text}");
        }
        config.tls = super::super::TlsConfig {
            http: true,
            cert_file: Some("/c".into()),
            key_file: Some("/k".into()),
            ..Default::default()
        };
        check(&config).expect("valid");
    }

    #[test]
    fn clear_text_beyond_this_machine_is_told_and_sockets_are_apart() {
        let mut config = Config::dev();
        assert!(config.clear_text().is_empty());
        config.addresses.http = Some("127.0.0.1 0.0.0.0 unix:///run/drover.sock".into());
        config.addresses.rpc = Some("10.0.0.1".into());
        assert_eq!(
            config.clear_text(),
            ["HTTP on 0.0.0.0:4646", "RPC on 10.0.0.1:4647"]
        );
        assert_eq!(config.http_sockets(), [Path::new("/run/drover.sock")]);
        // A client serves the same API, tokens and all, and no RPC.
        let mut client = config.clone();
        client.server.enabled = false;
        client.client.enabled = true;
        assert_eq!(client.clear_text(), ["HTTP on 0.0.0.0:4646"]);
        config.tls.http = true;
        assert_eq!(config.clear_text(), ["RPC on 10.0.0.1:4647"]);
        config.tls.rpc = true;
        assert!(config.clear_text().is_empty());
    }

    #[test]
    fn checkpoints_come_neither_all_the_time_nor_never() {
        let mut config = Config::dev();
        for (events, interval) in [(1, 100), (100_000, 3_600_000)] {
            config.server.checkpoint_events = events;
            config.server.checkpoint_interval = Duration::from_millis(interval);
            check(&config).expect("valid");
        }
        for (events, interval) in [(0, 99), (100_001, 3_600_001)] {
            config.server.checkpoint_events = events;
            config.server.checkpoint_interval = Duration::from_millis(interval);
            let text = check(&config).expect_err("refused").to_string();
            for part in [
                format!("server.checkpoint_events cannot be {events}. Must be").as_str(),
                "server.checkpoint_interval cannot be",
                "Must be between 100ms and 1h",
            ] {
                assert!(text.contains(part), "{part} missing in:\n{text}");
            }
        }
    }

    #[test]
    fn dev_mode_needs_no_file() {
        let config = Config::dev();
        check(&config).expect("valid");
        assert_eq!(config.http_advertise().expect("addr"), "127.0.0.1:4646");
        assert_eq!(config.rpc_listen().expect("addr").port(), 4647);
    }

    #[test]
    fn addresses_may_be_several_and_carry_ports() {
        let mut config = Config::dev();
        config.addresses.http = Some("127.0.0.1 [::1]:80 localhost".into());
        let listen = config.http_listen().expect("addresses");
        assert_eq!(
            listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["127.0.0.1:4646", "[::1]:80", "127.0.0.1:4646"]
        );
        config.advertise.http = Some("10.1.2.3".into());
        assert_eq!(config.http_advertise().expect("addr"), "10.1.2.3:4646");
    }
}
