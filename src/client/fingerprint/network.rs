//! The network interface tasks are reached by.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use drover_events::gojson::List;
use drover_events::model::{NetworkResource, NodeNetworkAddress, NodeNetworkResource};

use super::Facts;
use crate::config::ClientSettings;

/// Mbit/s of an interface that does not say.
const DEFAULT_SPEED: i64 = 1000;
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

/// The addresses of an interface in `/proc/net/if_inet6`, link-local ones left out.
fn ipv6_addresses(table: &str, device: &str) -> Vec<Ipv6Addr> {
    table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (hex, name) = (fields.first()?, fields.get(5)?);
            (*name == device).then(|| u128::from_str_radix(hex, 16).ok().map(Ipv6Addr::from))?
        })
        .filter(|ip| !ip.is_unicast_link_local())
        .collect()
}

/// Device and addresses; the loopback interface where there is nothing else.
fn found(settings: &ClientSettings) -> (String, Vec<IpAddr>) {
    let reported = settings.client.network_interface.as_str();
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let device = if reported.is_empty() {
        default_interface(&routes).unwrap_or_else(|| "lo".to_owned())
    } else {
        reported.to_owned()
    };
    let v4 = if device == "lo" {
        Some(Ipv4Addr::LOCALHOST)
    } else {
        source_address()
    };
    let table = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let v6 = ipv6_addresses(&table, &device).into_iter().map(IpAddr::V6);
    let mut all: Vec<IpAddr> = v4.into_iter().map(IpAddr::V4).chain(v6).collect();
    if settings.client.preferred_address_family == "ipv6" {
        all.sort_by_key(IpAddr::is_ipv4);
    }
    (device, all)
}

/// Mbit/s: what is configured, or else what the interface says, unless it does not know.
fn speed(reported: u64, device_speed: Option<&str>) -> i64 {
    let reported = i64::try_from(reported).unwrap_or(0);
    let device_speed = device_speed.and_then(|text| text.trim().parse::<i64>().ok());
    let device_speed = device_speed.filter(|speed| *speed > 0);
    if reported > 0 {
        reported
    } else {
        device_speed.unwrap_or(DEFAULT_SPEED)
    }
}

pub(super) fn probe(facts: &mut Facts, settings: &ClientSettings) {
    let (device, addresses) = found(settings);
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
        for (reported, device_speed, expected) in [
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
                speed(reported, device_speed),
                expected,
                "{reported}, {device_speed:?}"
            );
        }
    }

    #[test]
    fn mod_09_tables_of_the_kernel_are_read() {
        let routes = "Iface\tDestination\tGateway\neth1\t000011AC\t0\neth0\t00000000\t0101A8C0\n";
        assert_eq!(default_interface(routes).as_deref(), Some("eth0"));
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     fe800000000000000000000000000001 02 40 20 80     eth0\n\
                     20010db8000000000000000000000002 02 40 00 80     eth0\n";
        assert_eq!(ipv6_addresses(table, "lo"), [Ipv6Addr::LOCALHOST]);
        assert_eq!(
            ipv6_addresses(table, "eth0"),
            ["2001:db8::2".parse::<Ipv6Addr>().unwrap()]
        );
    }
}
