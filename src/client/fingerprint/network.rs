//! The network interface tasks are reached by.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use drover_config::ClientConfig;
use drover_events::gojson::List;
use drover_events::model::{NetworkResource, NodeNetworkAddress, NodeNetworkResource};

use super::Facts;
use crate::config::ClientSettings;

/// Mbit/s of an interface that does not say.
const DEFAULT_SPEED: i64 = 1000;
const LOOPBACK: &str = "lo";
/// The alias of addresses that no `host_network` names.
const DEFAULT_ALIAS: &str = "default";

/// The interface of the default route in `/proc/net/route`.
fn default_interface(routes: &str) -> Option<String> {
    routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let name = fields.next()?;
        (fields.next()? == "00000000").then(|| name.to_owned())
    })
}

/// The address the kernel would send from; nothing is sent.
fn source_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
        _ => None,
    }
}

/// The addresses of each interface, in the kernel's order.
type Table = BTreeMap<String, Vec<IpAddr>>;

/// `None` where the kernel does not say.
fn table() -> Option<Table> {
    let mut table = Table::new();
    for one in nix::ifaddrs::getifaddrs().ok()? {
        // An address with a label (`eth0:1`) is one of the interface.
        let name = one.interface_name.split(':').next().unwrap_or_default();
        let v4 = || Some(IpAddr::V4(one.address.as_ref()?.as_sockaddr_in()?.ip()));
        let v6 = || Some(IpAddr::V6(one.address.as_ref()?.as_sockaddr_in6()?.ip()));
        let addresses = table.entry(name.to_owned()).or_default();
        addresses.extend(v4().or_else(v6));
    }
    Some(table)
}

/// Whether there is the interface that is configured.
///
/// # Errors
/// There is not: the setting, and which interfaces there are.
pub fn check(client: &ClientConfig) -> Result<(), String> {
    let named = client.network_interface.as_str();
    match table() {
        Some(table) if !named.is_empty() => chosen(&table, named, "").map(|_| ()),
        _ => Ok(()),
    }
}

/// Whether an address is reached from its own link only.
fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The addresses by which an interface is reached, those of the preferred family first, which is
/// IPv4 unless stated; link-local ones only where there are no others, and of IPv6 none.
fn chosen(table: &Table, name: &str, family: &str) -> Result<Vec<IpAddr>, String> {
    let all = table.get(name).ok_or_else(|| {
        let there: Vec<&str> = table.keys().map(String::as_str).collect();
        let there = there.join(", ");
        format!("client.network_interface: there is no interface {name:?}, there are {there}")
    })?;
    let (local, mut chosen): (Vec<IpAddr>, Vec<IpAddr>) =
        all.iter().copied().partition(is_link_local);
    if chosen.is_empty() {
        // Those of IPv6 lead nowhere without a scope, and that is each host's own.
        chosen = local.into_iter().filter(IpAddr::is_ipv4).collect();
    }
    let prefers_v6 = family == "ipv6";
    chosen.sort_by_key(|ip| ip.is_ipv6() != prefers_v6);
    Ok(chosen)
}

/// Of several addresses of the default route's interface the kernel sends from one, and from one
/// of another interface where this has none.
fn put_first(all: &mut Vec<IpAddr>, source: IpAddr) {
    let is_reached = |ip: &IpAddr| ip.is_ipv4() && !is_link_local(ip);
    if all.contains(&source) || !all.iter().any(is_reached) {
        all.retain(|ip| *ip != source);
        all.insert(0, source);
    }
}

/// Why the addresses of an interface are no good, where they are not; it may have been looked at
/// before it got others.
fn doubt(device: &str, addresses: &[IpAddr]) -> Option<String> {
    let has = match addresses.first() {
        None => "no address that others reach".to_owned(),
        Some(ip) if is_link_local(ip) => format!("link-local addresses only, {ip}"),
        Some(_) => return None,
    };
    Some(format!(
        "{device} has {has}: addresses of this node are looked up when its agent starts"
    ))
}

/// Device and addresses; the loopback interface where there is nothing else.
fn found(client: &ClientConfig) -> (String, Vec<IpAddr>) {
    let mut table = table().unwrap_or_default();
    let mut device = client.network_interface.clone();
    if device.is_empty() {
        let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
        device = default_interface(&routes).unwrap_or_else(|| LOOPBACK.to_owned());
        if let Some(source) = source_address() {
            put_first(table.entry(device.clone()).or_default(), source.into());
        }
    }
    let family = client.preferred_address_family.as_str();
    // One that is not there was refused when the client began.
    let addresses = chosen(&table, &device, family).unwrap_or_default();
    if let Some(why) = doubt(&device, &addresses) {
        tracing::warn!("{why}");
    }
    (device, addresses)
}

/// Mbit/s: what is configured, or else what the interface says, unless it does not know.
fn speed(configured: u64, device_speed: Option<&str>) -> i64 {
    let configured = i64::try_from(configured).unwrap_or(0);
    let device_speed = device_speed.and_then(|text| text.trim().parse::<i64>().ok());
    let device_speed = device_speed.filter(|speed| *speed > 0);
    if configured > 0 {
        configured
    } else {
        device_speed.unwrap_or(DEFAULT_SPEED)
    }
}

pub(super) fn probe(facts: &mut Facts, settings: &ClientSettings) {
    let (device, addresses) = found(&settings.client);
    let file = |name: &str| fs::read_to_string(format!("/sys/class/net/{device}/{name}")).ok();
    let speed = speed(settings.client.network_speed, file("speed").as_deref());
    let mac = file("address")
        .map(|t| t.trim().to_owned())
        .filter(|m| m != "00:00:00:00:00:00");
    if let Some(first) = addresses.first() {
        facts.set("unique.network.ip-address", first.to_string());
    }
    let networks = addresses.iter().map(|ip| NetworkResource {
        mode: "host".to_owned(),
        device: device.clone(),
        cidr: format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }),
        ip: ip.to_string(),
        mbits: speed,
        ..NetworkResource::default()
    });
    facts.resources.networks = networks.collect::<Vec<_>>().into();
    let addresses = addresses.iter().map(|ip| NodeNetworkAddress {
        family: if ip.is_ipv4() { "ipv4" } else { "ipv6" }.to_owned(),
        alias: DEFAULT_ALIAS.to_owned(),
        address: ip.to_string(),
        ..NodeNetworkAddress::default()
    });
    facts.resources.node_networks = List::from(vec![NodeNetworkResource {
        mode: "host".to_owned(),
        device,
        mac_address: mac.unwrap_or_default(),
        speed,
        addresses: addresses.collect::<Vec<_>>().into(),
    }]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_as_fast_as_it_is_said_to_be() {
        for (configured, device_speed, expected) in [
            (0, None, DEFAULT_SPEED),
            (0, Some(""), DEFAULT_SPEED),
            (0, Some("-1\n"), DEFAULT_SPEED),
            (0, Some("0\n"), DEFAULT_SPEED),
            (0, Some("1\n"), 1),
            (0, Some("25000\n"), 25_000),
            (1, Some("25000\n"), 1),
            (u64::MAX, Some("25000\n"), 25_000),
        ] {
            assert_eq!(
                speed(configured, device_speed),
                expected,
                "{configured}, {device_speed:?}"
            );
        }
    }

    #[test]
    fn mod_09_tables_of_the_kernel_are_read() {
        let routes = "Iface\tDestination\tGateway\neth1\t000011AC\t0\neth0\t00000000\t0101A8C0\n";
        assert_eq!(default_interface(routes).as_deref(), Some("eth0"));
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn an_interface_is_reached_by_its_own_addresses_those_of_the_preferred_family_first() {
        let table: Table = [
            ("eth0", &["10.0.0.1", "2001:db8::1", "fe80::1"][..]),
            ("eth1", &["fe80::2", "2001:db8::2", "10.0.1.3", "10.0.1.2"]),
            ("eth2", &["169.254.2.1", "10.0.2.1", "fe80::3"]),
            ("eth3", &["fe80::4", "169.254.3.1"]),
            ("eth4", &["fe80::5"]),
            ("lo", &["127.0.0.1", "::1"]),
            ("wg0", &[]),
        ]
        .map(|(name, all)| (name.to_owned(), ips(all)))
        .into();
        for (name, family, expected) in [
            ("eth0", "", &["10.0.0.1", "2001:db8::1"][..]),
            ("eth0", "ipv6", &["2001:db8::1", "10.0.0.1"]),
            ("eth1", "", &["10.0.1.3", "10.0.1.2", "2001:db8::2"]),
            ("eth1", "ipv4", &["10.0.1.3", "10.0.1.2", "2001:db8::2"]),
            ("eth1", "ipv6", &["2001:db8::2", "10.0.1.3", "10.0.1.2"]),
            ("eth2", "", &["10.0.2.1"]),
            ("eth2", "ipv6", &["10.0.2.1"]),
            ("eth3", "", &["169.254.3.1"]),
            ("eth3", "ipv6", &["169.254.3.1"]),
            ("eth4", "ipv6", &[]),
            ("lo", "", &["127.0.0.1", "::1"]),
            ("wg0", "ipv4", &[]),
        ] {
            let found = chosen(&table, name, family);
            assert_eq!(found, Ok(ips(expected)), "{name} {family}");
        }
        for name in ["eth7", "eth", "eth0:1"] {
            let refused = chosen(&table, name, "").unwrap_err();
            let wanted = format!(
                "client.network_interface: there is no interface {name:?}, \
                 there are eth0, eth1, eth2, eth3, eth4, lo, wg0"
            );
            assert_eq!(refused, wanted);
        }
    }

    #[test]
    fn the_address_that_the_kernel_sends_from_goes_first_at_the_default_route() {
        for (all, source, expected) in [
            (
                &["10.0.0.1", "10.0.0.2"][..],
                "10.0.0.2",
                &["10.0.0.2", "10.0.0.1"][..],
            ),
            (&["::1", "10.0.0.1"], "10.0.0.1", &["10.0.0.1", "::1"]),
            (&["10.0.0.1"], "10.9.9.9", &["10.0.0.1"]),
            (&["::1"], "10.9.9.9", &["10.9.9.9", "::1"]),
            (&[], "10.9.9.9", &["10.9.9.9"]),
            (&["169.254.1.1"], "10.9.9.9", &["10.9.9.9", "169.254.1.1"]),
        ] {
            let mut all = ips(all);
            put_first(&mut all, source.parse().unwrap());
            assert_eq!(all, ips(expected));
        }
    }

    #[test]
    fn a_node_that_others_do_not_reach_is_warned_of() {
        for (addresses, has) in [
            (&[][..], Some("no address that others reach")),
            (
                &["169.254.3.1"],
                Some("link-local addresses only, 169.254.3.1"),
            ),
            (&["10.0.0.1", "::1"], None),
        ] {
            let why = doubt("eth0", &ips(addresses));
            let begin = has.map(|has| format!("eth0 has {has}: "));
            assert_eq!(why.is_some(), begin.is_some(), "{why:?}");
            if let (Some(why), Some(begin)) = (why, begin) {
                assert!(why.starts_with(&begin), "{why}");
            }
        }
    }

    #[test]
    fn an_interface_that_is_configured_is_there() {
        let mut client = ClientConfig::default();
        assert_eq!(check(&client), Ok(()));
        client.network_interface = LOOPBACK.to_owned();
        assert_eq!(check(&client), Ok(()));
        let (device, addresses) = found(&client);
        assert_eq!(device, LOOPBACK);
        assert!(
            addresses.contains(&Ipv4Addr::LOCALHOST.into()),
            "{addresses:?}"
        );
        client.network_interface = "no-such-0".to_owned();
        let refused = check(&client).unwrap_err();
        for part in ["client.network_interface", "\"no-such-0\"", LOOPBACK] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
