//! Sums of resources, as fit and use are reckoned with them.

use crate::model::status::Hook;
use crate::model::{AllocatedResources, Node};

/// Processor, memory and disk in the units nodes and allocations share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparableResources {
    /// MHz.
    pub cpu_shares: i64,
    /// Cores held alone, sorted.
    pub reserved_cores: Vec<u16>,
    /// MiB.
    pub memory_mb: i64,
    /// MiB at most, where memory may be oversubscribed.
    pub memory_max_mb: i64,
    /// MiB.
    pub disk_mb: i64,
}

impl ComparableResources {
    /// What an allocation takes at its busiest: prestart tasks that end make way for the main
    /// ones, and poststop tasks come when those have gone.
    #[must_use]
    pub fn of_allocated(allocated: &AllocatedResources) -> Self {
        let (mut before, mut main, mut after) = (Self::default(), Self::default(), Self::default());
        let mut throughout = Self::default();
        for (name, task) in &allocated.tasks {
            let lifecycle = allocated.task_lifecycles.get(name).and_then(Option::as_ref);
            let phase = match lifecycle.map(|l| (l.hook(), l.sidecar)) {
                Some((Some(Hook::Prestart), false)) => &mut before,
                Some((Some(Hook::Prestart), true)) => &mut throughout,
                Some((Some(Hook::Poststop), _)) => &mut after,
                Some((Some(Hook::Poststart) | None, _)) | None => &mut main,
            };
            let memory = &task.memory;
            phase.add(&Self {
                cpu_shares: task.cpu.cpu_shares,
                reserved_cores: task.cpu.reserved_cores.to_vec(),
                memory_mb: memory.memory_mb,
                memory_max_mb: memory.memory_max_mb.max(memory.memory_mb),
                disk_mb: 0,
            });
        }
        let mut total = before;
        total.max(&main);
        total.max(&after);
        total.add(&throughout);
        total.disk_mb = allocated.shared.disk_mb;
        total
    }

    /// What a node offers after what it keeps for itself.
    #[must_use]
    pub fn of_node(node: &Node) -> Self {
        let mut out = node
            .node_resources
            .as_ref()
            .map_or_else(Self::default, |r| Self {
                cpu_shares: r.cpu.cpu_shares,
                reserved_cores: r.cpu.reservable_cpu_cores.to_vec(),
                memory_mb: r.memory.memory_mb,
                memory_max_mb: r.memory.memory_mb,
                disk_mb: r.disk.disk_mb,
            });
        if let Some(kept) = &node.reserved_resources {
            out.cpu_shares -= kept.cpu.cpu_shares;
            out.memory_mb -= kept.memory.memory_mb;
            out.memory_max_mb -= kept.memory.memory_mb;
            out.disk_mb -= kept.disk.disk_mb;
            out.reserved_cores
                .retain(|core| !kept.cpu.reserved_cpu_cores.contains(core));
        }
        out
    }

    /// Adds another sum; saturates.
    pub fn add(&mut self, other: &Self) {
        self.cpu_shares = self.cpu_shares.saturating_add(other.cpu_shares);
        self.memory_mb = self.memory_mb.saturating_add(other.memory_mb);
        self.memory_max_mb = self.memory_max_mb.saturating_add(other.memory_max_mb);
        self.disk_mb = self.disk_mb.saturating_add(other.disk_mb);
        self.reserved_cores.extend_from_slice(&other.reserved_cores);
        self.reserved_cores.sort_unstable();
    }

    /// Takes another sum away; saturates.
    pub fn subtract(&mut self, other: &Self) {
        self.cpu_shares = self.cpu_shares.saturating_sub(other.cpu_shares);
        self.memory_mb = self.memory_mb.saturating_sub(other.memory_mb);
        self.memory_max_mb = self.memory_max_mb.saturating_sub(other.memory_max_mb);
        self.disk_mb = self.disk_mb.saturating_sub(other.disk_mb);
        self.reserved_cores
            .retain(|core| !other.reserved_cores.contains(core));
    }

    /// Keeps the larger of each dimension.
    pub fn max(&mut self, other: &Self) {
        self.cpu_shares = self.cpu_shares.max(other.cpu_shares);
        self.memory_mb = self.memory_mb.max(other.memory_mb);
        self.memory_max_mb = self.memory_max_mb.max(other.memory_max_mb);
        self.disk_mb = self.disk_mb.max(other.disk_mb);
        self.reserved_cores.extend_from_slice(&other.reserved_cores);
        self.reserved_cores.sort_unstable();
        self.reserved_cores.dedup();
    }
}
