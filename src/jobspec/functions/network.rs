//! CIDR arithmetic.

use super::super::value::Value;
use super::Outcome;
use super::args::Args;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "cidrhost" => cidrhost(args),
        "cidrnetmask" => cidrnetmask(args),
        "cidrsubnet" => cidrsubnet(args),
        "cidrsubnets" => cidrsubnets(args),
        _ => return None,
    })
}

fn network(args: &mut Args) -> Result<IpNet, String> {
    let text = args.text()?;
    let network: Result<IpNet, _> = text.parse();
    let network = network.map_err(|_| format!("invalid CIDR expression: {text:?}"))?;
    Ok(network.trunc())
}

/// The addresses of a network as numbers, the first and the last.
fn ends(network: &IpNet) -> (u128, u128) {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    };
    (number(network.network()), number(network.broadcast()))
}

/// The address that a number is in a network, if it is one there.
fn address(network: &IpNet, number: u128) -> Option<IpAddr> {
    let (first, last) = ends(network);
    if !(first..=last).contains(&number) {
        return None;
    }
    match network {
        IpNet::V4(_) => u32::try_from(number)
            .ok()
            .map(|number| IpAddr::V4(Ipv4Addr::from(number))),
        IpNet::V6(_) => Some(IpAddr::V6(Ipv6Addr::from(number))),
    }
}

/// The length of a network's prefix with so many bits more, if they fit.
fn longer(network: &IpNet, bits: i64) -> Option<u8> {
    let bits = u8::try_from(bits).ok()?;
    let prefix = network.prefix_len().checked_add(bits)?;
    (prefix <= network.max_prefix_len()).then_some(prefix)
}

/// The subnet of a network that begins at an address, as it is written.
fn subnet(network: &IpNet, begin: u128, prefix: u8) -> Option<Value> {
    let subnet = IpNet::new(address(network, begin)?, prefix).ok()?;
    Some(Value::Str(subnet.to_string()))
}

fn cidrhost(args: &mut Args) -> Outcome {
    let (network, host) = (network(args)?, args.whole()?);
    args.end()?;
    let (first, last) = ends(&network);
    let distance = u128::from(host.unsigned_abs());
    // Numbers below zero count from the end: -1 is the last.
    let number = match host < 0 {
        true => last.checked_sub(distance - 1),
        false => first.checked_add(distance),
    };
    match number.and_then(|number| address(&network, number)) {
        Some(address) => Ok(Value::Str(address.to_string())),
        None => Err(format!(
            "prefix of {} does not accommodate a host numbered {host}",
            network.prefix_len()
        )),
    }
}

fn cidrnetmask(args: &mut Args) -> Outcome {
    let network = network(args)?;
    args.end()?;
    match network {
        IpNet::V4(network) => Ok(Value::Str(network.netmask().to_string())),
        IpNet::V6(_) => Err("IPv6 addresses cannot have a netmask".into()),
    }
}

fn cidrsubnet(args: &mut Args) -> Outcome {
    let (network, bits, number) = (network(args)?, args.whole()?, args.whole()?);
    args.end()?;
    let number = u128::try_from(number).map_err(|_| "the subnet's number may not be negative")?;
    let prefix = longer(&network, bits).ok_or_else(|| {
        format!(
            "insufficient address space to extend prefix of {} by that much",
            network.prefix_len()
        )
    })?;
    let extended = u32::from(prefix - network.prefix_len());
    let is_there = number.checked_shr(extended).is_none_or(|over| over == 0);
    // Nothing is moved by all 128 bits but zero.
    let free = u32::from(network.max_prefix_len() - prefix);
    let begin = ends(&network).0 | number.checked_shl(free).unwrap_or(0);
    let subnet = subnet(&network, begin, prefix).filter(|_| is_there);
    subnet.ok_or_else(|| {
        format!("prefix extension of {extended} does not accommodate a subnet numbered {number}")
    })
}

/// Consecutive subnets, each beginning where the one before ends, aligned to its own size.
fn cidrsubnets(args: &mut Args) -> Outcome {
    const FULL: &str = "not enough remaining address space";
    let network = network(args)?;
    let (first, last_of_all) = ends(&network);
    let mut out = Vec::new();
    // The last addresses are counted with: what comes after the very last has no number.
    let mut next = Some(first);
    while args.left() > 0 {
        let bits = args.whole()?;
        let prefix = longer(&network, bits).filter(|_| bits > 0);
        let prefix =
            prefix.ok_or("must extend prefix by at least one bit, within the address space")?;
        let size = 1u128 << (network.max_prefix_len() - prefix);
        let start = next.and_then(|next| next.checked_next_multiple_of(size));
        let start = start.ok_or(FULL)?;
        let last = start.checked_add(size - 1).ok_or(FULL)?;
        let subnet = subnet(&network, start, prefix).filter(|_| last <= last_of_all);
        out.push(
            subnet.ok_or_else(|| format!("{FULL} for a subnet with a prefix of {prefix} bits"))?,
        );
        next = last.checked_add(1);
    }
    Ok(Value::List(out))
}
