//! What follows from an allocation by itself.

use std::collections::BTreeMap;

use crate::model::status::{ClientStatus, DesiredStatus, task};
use crate::model::{
    Allocation, ComparableResources, DesiredTransition, Resources, TaskGroup, TaskState,
};

impl Allocation {
    /// Nothing will run any more: the servers want it gone, or the client says it ended.
    #[must_use]
    pub fn terminal_status(&self) -> bool {
        self.server_terminal() || self.client_terminal()
    }

    /// The servers want it stopped or evicted.
    #[must_use]
    pub fn server_terminal(&self) -> bool {
        self.desired().is_some_and(DesiredStatus::is_terminal)
    }

    /// The client (or its loss) ended it: complete, failed or lost.
    #[must_use]
    pub fn client_terminal(&self) -> bool {
        self.client().is_some_and(ClientStatus::is_terminal)
    }

    /// The same allocation with its resources also in the form that older clients read: by task,
    /// shared, and all together. They follow from what it was given and are never stored.
    #[must_use]
    pub fn with_summed_resources(mut self) -> Self {
        let Some(given) = &self.allocated_resources else {
            return self;
        };
        let shared = Resources {
            disk_mb: given.shared.disk_mb,
            networks: given.shared.networks.clone(),
            ..Resources::default()
        };
        let mut all = shared.clone();
        let mut tasks = BTreeMap::new();
        for (name, task) in given.tasks.iter() {
            let (memory, most) = (task.memory.memory_mb, task.memory.memory_max_mb);
            all.cpu += task.cpu.cpu_shares;
            all.memory_mb += memory;
            all.memory_max_mb += if most > 0 { most } else { memory };
            if !task.networks.is_empty() {
                all.networks.extend(task.networks.iter().cloned());
            }
            let own = Resources {
                cpu: task.cpu.cpu_shares,
                memory_mb: memory,
                memory_max_mb: most,
                networks: task.networks.clone(),
                ..Resources::default()
            };
            tasks.insert(name.clone(), own);
        }
        self.resources = Some(all);
        self.shared_resources = Some(shared);
        self.task_resources = tasks.into();
        self
    }

    /// The number in `job.group[7]`; `None` when the name has another form.
    #[must_use]
    pub fn index(&self) -> Option<u64> {
        let (_, number) = self.name.strip_suffix(']')?.rsplit_once('[')?;
        number.parse().ok()
    }

    /// The version of its job, 0 without one.
    #[must_use]
    pub fn job_version(&self) -> u64 {
        self.job.as_ref().map_or(0, |job| job.version)
    }

    /// The group it runs, as its own copy of the job has it.
    #[must_use]
    pub fn group(&self) -> Option<&TaskGroup> {
        self.job.as_ref()?.task_group(&self.task_group)
    }

    /// What it takes from its node.
    #[must_use]
    pub fn comparable_resources(&self) -> ComparableResources {
        self.allocated_resources
            .as_ref()
            .map(ComparableResources::of_allocated)
            .unwrap_or_default()
    }

    /// What its client says of it when it ran longer than its group may.
    pub const RAN_TOO_LONG: &'static str = "allocation exceeded max_run_duration";

    /// It was ended since it ran longer than its group may.
    #[must_use]
    pub fn ran_too_long(&self) -> bool {
        self.client_description == Self::RAN_TOO_LONG
    }

    /// Placed as a canary of its deployment.
    #[must_use]
    pub fn is_canary(&self) -> bool {
        self.deployment_status.as_ref().is_some_and(|s| s.canary)
    }

    /// Its deployment's verdict: healthy, unhealthy or none yet.
    #[must_use]
    pub fn health(&self) -> Option<bool> {
        self.deployment_status.as_ref().and_then(|s| s.healthy)
    }

    /// Every task ended, and none of them failed.
    #[must_use]
    pub fn ran_successfully(&self) -> bool {
        !self.task_states.is_empty() && self.task_states.values().all(TaskState::successful)
    }
}

impl DesiredTransition {
    /// Takes over every flag that the other one sets.
    pub fn merge(&mut self, other: &Self) {
        let pairs = [
            (&mut self.migrate, other.migrate),
            (&mut self.reschedule, other.reschedule),
            (&mut self.force_reschedule, other.force_reschedule),
            (&mut self.no_shutdown_delay, other.no_shutdown_delay),
            (
                &mut self.migrate_disable_placement,
                other.migrate_disable_placement,
            ),
        ];
        for (mine, theirs) in pairs {
            if theirs.is_some() {
                *mine = theirs;
            }
        }
    }
}

impl TaskState {
    /// Ended without failing.
    #[must_use]
    pub fn successful(&self) -> bool {
        self.state == task::DEAD && !self.failed
    }
}
