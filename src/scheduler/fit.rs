//! Whether an allocation fits on a node: the one rule, used by the scheduler when it looks for a
//! place and by the plan queue when it checks a plan against what is in flight.

use super::cluster::{Demand, NodeInfo, Usage};

/// What a node has too little of, in the words of Nomad's metrics.
pub type Dimension = &'static str;

/// Checks what a node has against what is used and requested. The first dimension that does not fit
/// is the answer: cores, amounts, ports, devices, as Nomad looks at them.
pub fn check(info: &NodeInfo, used: &Usage, ask: &Demand) -> Result<(), Dimension> {
    if ask
        .cores
        .iter()
        .any(|core| used.cores().contains(core) || !info.cores.contains(core))
    {
        return Err("cores");
    }
    check_amounts(info, used, ask.cpu, ask.memory, ask.disk)?;
    if ask.ports.iter().any(|port| used.ports.contains(*port)) {
        return Err("reserved port collision");
    }
    if ask
        .devices
        .iter()
        .any(|device| used.devices().contains(device))
    {
        return Err("device oversubscribed");
    }
    Ok(())
}

/// The part of the check that needs no assignment of ports, cores or devices.
pub fn check_amounts(
    info: &NodeInfo,
    used: &Usage,
    cpu: i64,
    memory: i64,
    disk: i64,
) -> Result<(), Dimension> {
    if used.cpu.saturating_add(cpu) > info.cpu {
        return Err("cpu");
    }
    if used.memory.saturating_add(memory) > info.memory {
        return Err("memory");
    }
    if used.disk.saturating_add(disk) > info.disk {
        return Err("disk");
    }
    if info.max_allocs > 0 && used.allocs >= info.max_allocs {
        return Err("max allocation exceeded");
    }
    Ok(())
}
