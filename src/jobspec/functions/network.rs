//! CIDR arithmetic.

use super::super::value::Value;
use super::Outcome;
use super::args::Args;
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

/// A network: the address as a number, the prefix's length, and the width of its family.
#[derive(Clone, Copy)]
struct Network {
    base: u128,
    prefix: u32,
    width: u32,
}

impl Network {
    fn parse(text: &str) -> Result<Network, String> {
        let wrong = || format!("invalid CIDR expression: {text:?}");
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let prefix: u32 = prefix.parse().map_err(|_| wrong())?;
        let (number, width) = match address.parse::<IpAddr>().map_err(|_| wrong())? {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
            IpAddr::V6(ip) => (u128::from(ip), 128),
        };
        if prefix > width {
            return Err(wrong());
        }
        Ok(Network {
            base: number & mask(width, prefix),
            prefix,
            width,
        })
    }

    fn address(&self, number: u128) -> String {
        #[allow(clippy::cast_possible_truncation)]
        match self.width {
            32 => Ipv4Addr::from(number as u32).to_string(),
            _ => Ipv6Addr::from(number).to_string(),
        }
    }

    fn hosts(&self) -> u32 {
        self.width - self.prefix
    }
}

fn mask(width: u32, prefix: u32) -> u128 {
    let all = if width == 128 {
        u128::MAX
    } else {
        (1 << width) - 1
    };
    let hosts = width - prefix;
    if hosts >= 128 {
        0
    } else {
        all >> hosts << hosts
    }
}

fn cidrhost(args: &mut Args) -> Outcome {
    let (network, host) = (Network::parse(&args.text()?)?, args.whole()?);
    args.end()?;
    let size = if network.hosts() == 128 {
        u128::MAX
    } else {
        1u128 << network.hosts()
    };
    let offset = if host < 0 {
        size.checked_sub(u128::from(host.unsigned_abs()))
    } else {
        Some(u128::from(host.unsigned_abs()))
    };
    match offset.filter(|o| *o < size) {
        Some(offset) => Ok(Value::Str(network.address(network.base + offset))),
        None => Err(format!(
            "prefix of {} does not accommodate a host numbered {host}",
            network.prefix
        )),
    }
}

fn cidrnetmask(args: &mut Args) -> Outcome {
    let network = Network::parse(&args.text()?)?;
    args.end()?;
    if network.width != 32 {
        return Err("IPv6 addresses cannot have a netmask".into());
    }
    Ok(Value::Str(network.address(mask(32, network.prefix))))
}

fn subnet(network: Network, bits: i64, number: u128) -> Result<String, String> {
    let bits = u32::try_from(bits).ok().filter(|b| *b <= network.hosts());
    let bits = bits.ok_or_else(|| {
        format!(
            "insufficient address space to extend prefix of {} by that much",
            network.prefix
        )
    })?;
    if bits < 128 && number >= 1u128 << bits {
        return Err(format!(
            "prefix extension of {bits} does not accommodate a subnet numbered {number}"
        ));
    }
    let prefix = network.prefix + bits;
    let shift = network.width - prefix;
    let base = if shift >= 128 {
        network.base
    } else {
        network.base | (number << shift)
    };
    Ok(format!("{}/{prefix}", network.address(base)))
}

fn cidrsubnet(args: &mut Args) -> Outcome {
    let (network, bits, number) = (Network::parse(&args.text()?)?, args.whole()?, args.whole()?);
    args.end()?;
    let number = u128::try_from(number).map_err(|_| "the subnet's number may not be negative")?;
    subnet(network, bits, number).map(Value::Str)
}

/// Consecutive subnets, each beginning where the one before ends, aligned to its own size.
fn cidrsubnets(args: &mut Args) -> Outcome {
    const FULL: &str = "not enough remaining address space";
    let network = Network::parse(&args.text()?)?;
    // The last addresses are counted with: what comes after the very last has no number.
    let last_of_all = network.base | !mask(128, 128 - network.hosts());
    let mut out = Vec::new();
    let mut next = Some(network.base);
    while args.left() > 0 {
        let bits = args.whole()?;
        let bits = u32::try_from(bits)
            .ok()
            .filter(|b| (1..=network.hosts()).contains(b));
        let bits =
            bits.ok_or("must extend prefix by at least one bit, within the address space")?;
        let prefix = network.prefix + bits;
        let size = 1u128 << (network.width - prefix).min(127);
        let start = next.and_then(|next| next.checked_next_multiple_of(size));
        let start = start.ok_or(FULL)?;
        let last = start.checked_add(size - 1).ok_or(FULL)?;
        if last > last_of_all {
            return Err(format!(
                "{FULL} for a subnet with a prefix of {prefix} bits"
            ));
        }
        out.push(Value::Str(format!("{}/{prefix}", network.address(start))));
        next = last.checked_add(1);
    }
    Ok(Value::List(out))
}
