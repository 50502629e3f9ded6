//! Ports for an allocation: fixed ones if they are free, dynamic ones by chance.

use drover_events::model::{AllocatedPortMapping, NetworkResource, Port};

use super::ask::host_network;
use crate::cluster::{Address, NodeInfo, PortKey, Usage};
use crate::feasible::resolve;
use crate::rng::Rng;

/// How often a random dynamic port is tried before all are looked through.
const RANDOM_ATTEMPTS: usize = 20;

/// What was found for one network.
#[derive(Debug, Default)]
pub(super) struct PortOffer {
    /// The network as the allocation shows it.
    pub network: NetworkResource,
    pub mappings: Vec<AllocatedPortMapping>,
}

fn addresses<'a>(
    info: &'a NodeInfo,
    port: &'a Port,
) -> Result<impl Iterator<Item = &'a Address>, String> {
    let wanted = resolve(host_network(port), &info.node).unwrap_or_default();
    let mut matching = info
        .addresses
        .iter()
        .filter(move |a| a.alias == wanted)
        .peekable();
    if matching.peek().is_none() {
        return Err(format!(
            "network: no addresses available for \"{wanted}\" network"
        ));
    }
    Ok(matching)
}

fn free(used: &Usage, address: &Address, port: u16) -> bool {
    !address.is_reserved(port) && !used.ports.contains(PortKey::new(&address.ip, port))
}

/// Whether the ports a network requests can be had, without choosing dynamic ones.
pub(super) fn possible(info: &NodeInfo, used: &Usage, ask: &NetworkResource) -> Result<(), String> {
    for port in &ask.reserved_ports {
        fixed(info, used, port)?;
    }
    for port in &ask.dynamic_ports {
        let (low, high) = (info.min_port, info.max_port);
        let range = usize::from(high.saturating_sub(low)) + 1;
        let enough = addresses(info, port)?.any(|address| {
            let gone = used.ports.count_between(&address.ip, low, high)
                + address.reserved_between(low, high);
            gone + ask.dynamic_ports.len() <= range
        });
        if !enough {
            return Err(FAILED_DYNAMIC.to_owned());
        }
    }
    Ok(())
}

const FAILED_DYNAMIC: &str = "network: dynamic port selection failed";

fn fixed<'a>(info: &'a NodeInfo, used: &Usage, port: &'a Port) -> Result<&'a Address, String> {
    let number = u16::try_from(port.value).unwrap_or(0);
    // The first address of the network is the one: a static port is the same everywhere.
    let found = addresses(info, port)?
        .next()
        .filter(|address| port.ignore_collision || free(used, address, number));
    found.ok_or_else(|| {
        format!(
            "network: reserved port collision {}={}",
            port.label, port.value
        )
    })
}

/// Takes the ports of a network; `used` then has them.
pub(super) fn assign(
    info: &NodeInfo,
    used: &mut Usage,
    ask: &NetworkResource,
    rng: &mut Rng,
) -> Result<PortOffer, String> {
    let mut offer = PortOffer {
        network: ask.clone(),
        mappings: Vec::new(),
    };
    for (i, port) in ask.reserved_ports.iter().enumerate() {
        let address = fixed(info, used, port)?;
        let number = u16::try_from(port.value).unwrap_or(0);
        offer.take(used, address, port, number);
        let shown = &mut offer.network.reserved_ports[i];
        shown.to = to_port(port, number);
    }
    for (i, port) in ask.dynamic_ports.iter().enumerate() {
        let mut found = None;
        for address in addresses(info, port)? {
            if let Some(number) = dynamic(info, used, address, rng) {
                found = Some((address, number));
                break;
            }
        }
        let (address, number) = found.ok_or(FAILED_DYNAMIC)?;
        offer.take(used, address, port, number);
        let shown = &mut offer.network.dynamic_ports[i];
        shown.value = i64::from(number);
        shown.to = to_port(port, number);
    }
    Ok(offer)
}

impl PortOffer {
    fn take(&mut self, used: &mut Usage, address: &Address, port: &Port, number: u16) {
        used.ports.insert(PortKey::new(&address.ip, number));
        if self.network.ip.is_empty() {
            self.network.ip.clone_from(&address.ip);
        }
        self.mappings.push(AllocatedPortMapping {
            label: port.label.clone(),
            value: i64::from(number),
            to: to_port(port, number),
            host_ip: address.ip.clone(),
            ignore_collision: port.ignore_collision,
        });
    }
}

/// `to = -1` means the same number inside as outside.
fn to_port(port: &Port, number: u16) -> i64 {
    if port.to == -1 {
        i64::from(number)
    } else {
        port.to
    }
}

fn dynamic(info: &NodeInfo, used: &Usage, address: &Address, rng: &mut Rng) -> Option<u16> {
    let (low, high) = (info.min_port, info.max_port);
    let range = u64::from(high.checked_sub(low)?) + 1;
    for _ in 0..RANDOM_ATTEMPTS {
        let port = low + rng.below(range) as u16;
        if free(used, address, port) {
            return Some(port);
        }
    }
    (low..=high).find(|port| free(used, address, *port))
}
