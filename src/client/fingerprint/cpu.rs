//! Processors, as facts of their node.

use drover_events::model::{Core, Topology};

use super::Facts;
use crate::config::ClientSettings;
use crate::cpu::{self, CpuInfo};
use crate::env::cpu_set;

/// The cores that the configuration reserves for the machine.
pub(super) fn reserved_cores(settings: &ClientSettings) -> Vec<u16> {
    // A list that makes no sense was refused with the configuration.
    drover_config::core_list(&settings.client.reserved.cores).unwrap_or_default()
}

pub(super) fn probe(facts: &mut Facts, settings: &ClientSettings) {
    let info = cpu::read();
    let mut absent = reserved_cores(settings);
    absent.retain(|core| !info.cores.contains(core));
    if !absent.is_empty() {
        let absent = cpu_set(&absent);
        tracing::warn!("client.reserved.cores names cores that are not there: {absent}");
    }
    if offers_no_core(settings, &info) {
        tracing::warn!(
            "client.reserved.cores names every core, and client.cpu_total_compute offers tasks \
             what they can do all the same"
        );
    }
    add(facts, settings, &info);
}

/// Whether tasks are offered what cores can do of which none is left to them.
fn offers_no_core(settings: &ClientSettings, info: &CpuInfo) -> bool {
    let (reserved, cores) = (reserved_cores(settings), &info.cores);
    let none_left = !cores.is_empty() && cores.iter().all(|core| reserved.contains(core));
    none_left && settings.client.cpu_total_compute > 0
}

fn add(facts: &mut Facts, settings: &ClientSettings, info: &CpuInfo) {
    let reserved = reserved_cores(settings);
    let offered = info.cores.iter().copied();
    let offered: Vec<u16> = offered.filter(|id| !reserved.contains(id)).collect();
    let count = info.cores.len().max(1);
    let reserved_count = info.cores.len() - offered.len();
    let found = info.mhz * count as u64;
    let configured = settings.client.cpu_total_compute;
    let total = if configured > 0 { configured } else { found };
    // Reserved cores and reserved MHz are separate settings: both are taken off. A configured total
    // is that of the cores that are not reserved.
    let allocatable = match configured {
        0 => found - info.mhz * reserved_count as u64,
        configured => configured,
    };
    let usable = allocatable.saturating_sub(settings.client.reserved.cpu);
    facts.set("cpu.modelname", &info.model);
    facts.set("cpu.frequency", info.mhz.to_string());
    facts.set("cpu.numcores", count.to_string());
    facts.set("cpu.reservablecores", (count - reserved_count).to_string());
    facts.set("cpu.totalcompute", total.to_string());
    facts.set("cpu.usablecompute", usable.to_string());
    facts.set("numa.node.count", "1");
    facts.set("numa.node0.cores", cpu_set(&info.cores));
    let cpu = &mut facts.resources.cpu;
    cpu.cpu_shares = i64::try_from(allocatable).unwrap_or(i64::MAX);
    cpu.total_cpu_cores = u16::try_from(count).unwrap_or(u16::MAX);
    cpu.reservable_cpu_cores = offered.into();
    let cores = info.cores.iter().map(|id| Core {
        id: i64::from(*id),
        base_speed: info.mhz,
        disable: reserved.contains(id),
        grade: true,
        ..Core::default()
    });
    facts.resources.processors.topology = Some(Topology {
        cores: cores.collect::<Vec<_>>().into(),
        nodes: vec![0].into(),
        override_total_compute: configured,
        ..Topology::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_09_a_node_has_the_cores_and_the_speed_of_its_machine() {
        let mut facts = Facts::default();
        probe(&mut facts, &ClientSettings::default());
        let number = |name: &str| facts.attributes[name].parse::<u64>().unwrap();
        let cores = number("cpu.numcores");
        assert_eq!(cores, cpu::read().cores.len().max(1) as u64);
        assert_eq!(u64::from(facts.resources.cpu.total_cpu_cores), cores);
        let speed = number("cpu.frequency");
        assert!(speed > 0);
        assert_eq!(number("cpu.totalcompute"), cores * speed);
    }

    #[test]
    fn what_is_offered_of_cores_of_which_none_is_left_is_noticed() {
        let info = CpuInfo {
            cores: vec![0, 1],
            ..CpuInfo::default()
        };
        for (cores, total, noticed) in [
            ("0-1", 4_000, true),
            ("0-7", 4_000, true),
            ("0-1", 0, false),
            ("1", 4_000, false),
            ("", 4_000, false),
        ] {
            let mut settings = ClientSettings::default();
            settings.client.reserved.cores = cores.to_owned();
            settings.client.cpu_total_compute = total;
            assert_eq!(offers_no_core(&settings, &info), noticed, "{cores} {total}");
            let unread = CpuInfo::default();
            assert!(!offers_no_core(&settings, &unread), "nothing is known");
        }
    }

    #[test]
    fn cores_that_are_kept_for_the_machine_are_not_offered_nor_is_what_they_can_do() {
        let info = CpuInfo {
            model: String::new(),
            mhz: 2_000,
            cores: vec![0, 1, 2, 3],
        };
        for (cores, cpu, total, offered, compute) in [
            ("", 0, 0, &[0, 1, 2, 3][..], (8_000, 8_000, 8_000)),
            ("0-1", 0, 0, &[2, 3], (8_000, 4_000, 4_000)),
            ("0", 500, 0, &[1, 2, 3], (8_000, 6_000, 5_500)),
            ("3", 0, 4_000, &[0, 1, 2], (4_000, 4_000, 4_000)),
            ("3", 500, 4_000, &[0, 1, 2], (4_000, 4_000, 3_500)),
            ("0-3", 500, 0, &[], (8_000, 0, 0)),
            ("2,9", 0, 0, &[0, 1, 3], (8_000, 6_000, 6_000)),
        ] {
            let mut settings = ClientSettings::default();
            settings.client.reserved.cores = cores.to_owned();
            settings.client.reserved.cpu = cpu;
            settings.client.cpu_total_compute = total;
            let mut facts = Facts::default();
            add(&mut facts, &settings, &info);
            let number = |name: &str| facts.attributes[name].parse::<i64>().unwrap();
            let found = (
                number("cpu.totalcompute"),
                facts.resources.cpu.cpu_shares,
                number("cpu.usablecompute"),
            );
            assert_eq!(found, compute, "{cores}");
            assert_eq!(*facts.resources.cpu.reservable_cpu_cores, *offered);
            assert_eq!(number("cpu.reservablecores"), offered.len() as i64);
            assert_eq!(number("cpu.numcores"), 4);
            let topology = facts.resources.processors.topology.unwrap();
            let usable = topology.cores.iter().filter(|core| !core.disable);
            let usable: Vec<i64> = usable.map(|core| core.id).collect();
            assert_eq!(
                usable,
                offered.iter().map(|id| i64::from(*id)).collect::<Vec<_>>()
            );
        }
    }
}
