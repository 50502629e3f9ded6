//! A picture of the state held in memory, for tests: jobs, nodes and what plans made of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::EventId;
use drover_events::gojson::Time;
use drover_events::model::{
    Allocation, Deployment, DriverInfo, EphemeralDisk, Evaluation, Job, Node, NodePool,
    NodeResources, ReschedulePolicy, Resources, SchedulerConfiguration, Task, TaskGroup, TaskState,
    UpdateStrategy,
};

use super::cluster::{Cluster, demand_of, takes_room};
use super::rng::{Rng, seed_of};
use super::{Inputs, Outcome, ReadError, SCHEDULER_VERSION, StateView, schedule};

pub(crate) const SECOND: i64 = 1_000_000_000;

/// The state, and how plans change it.
#[derive(Default)]
pub(crate) struct World {
    pub index: u64,
    pub now: i64,
    pub cluster: Cluster,
    pub job: Option<Arc<Job>>,
    pub allocs: BTreeMap<String, Arc<Allocation>>,
    pub deployments: Vec<Deployment>,
    pub config: SchedulerConfiguration,
    pub evals: u64,
}

impl StateView for World {
    fn index(&self) -> u64 {
        self.index
    }
    fn cluster(&self) -> &Cluster {
        &self.cluster
    }
    fn job(&self, _: &str, id: &str) -> Result<Option<Arc<Job>>, ReadError> {
        Ok(self.job.clone().filter(|job| job.id == id))
    }
    fn allocs_of_job(&self, _: &str, _: &str) -> Result<Vec<Arc<Allocation>>, ReadError> {
        Ok(self.allocs.values().cloned().collect())
    }
    fn latest_deployment(&self, _: &str, _: &str) -> Result<Option<Deployment>, ReadError> {
        Ok(self.deployments.last().cloned())
    }
    fn config(&self) -> Result<SchedulerConfiguration, ReadError> {
        Ok(self.config.clone())
    }
    fn node_pool(&self, _: &str) -> Result<Option<NodePool>, ReadError> {
        Ok(None)
    }
}

/// A ready node of 4,000 MHz, 8,192 MiB and 100 GiB, as simulated nodes are.
pub(crate) fn node(number: usize) -> Node {
    let mut node = Node {
        id: format!("{number:08x}-0000-0000-0000-000000000000"),
        name: format!("node-{number}"),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        computed_class: "v1:1".into(),
        status: "ready".into(),
        scheduling_eligibility: "eligible".into(),
        ..Node::default()
    };
    node.attributes.insert("kernel.name", "linux".to_owned());
    let driver = DriverInfo {
        detected: true,
        healthy: true,
        ..DriverInfo::default()
    };
    node.drivers.insert("mock_driver", driver);
    let mut resources = NodeResources::default();
    resources.cpu.cpu_shares = 4000;
    resources.memory.memory_mb = 8192;
    resources.disk.disk_mb = 100 * 1024;
    let address = drover_events::model::NodeNetworkAddress {
        family: "ipv4".into(),
        alias: "default".into(),
        address: format!("10.0.{}.{}", number / 250, number % 250),
        ..Default::default()
    };
    resources.node_networks = vec![drover_events::model::NodeNetworkResource {
        mode: "host".into(),
        device: "eth0".into(),
        addresses: vec![address].into(),
        ..Default::default()
    }]
    .into();
    node.node_resources = Some(resources);
    node
}

/// A job with one group `g` of one task `t`.
pub(crate) fn job(kind: &str, count: i64) -> Job {
    let task = Task {
        name: "t".into(),
        driver: "mock_driver".into(),
        resources: Some(Resources {
            cpu: 20,
            memory_mb: 20,
            ..Resources::default()
        }),
        ..Task::default()
    };
    let reschedule = if kind == "batch" {
        ReschedulePolicy {
            attempts: 1,
            interval: 24 * 3600 * SECOND,
            delay: 5 * SECOND,
            delay_function: "constant".into(),
            ..Default::default()
        }
    } else {
        ReschedulePolicy {
            unlimited: true,
            delay: 30 * SECOND,
            delay_function: "exponential".into(),
            max_delay: 3600 * SECOND,
            ..Default::default()
        }
    };
    let group = TaskGroup {
        name: "g".into(),
        count,
        tasks: vec![task].into(),
        ephemeral_disk: Some(EphemeralDisk {
            size_mb: 10,
            ..Default::default()
        }),
        reschedule_policy: Some(reschedule),
        ..TaskGroup::default()
    };
    Job {
        id: "j".into(),
        name: "j".into(),
        namespace: "default".into(),
        r#type: kind.into(),
        priority: 50,
        datacenters: vec!["*".to_owned()].into(),
        node_pool: "default".into(),
        task_groups: vec![group].into(),
        create_index: 1,
        ..Job::default()
    }
}

/// An update strategy that replaces so many at a time.
pub(crate) fn update(max_parallel: i64, canary: i64) -> UpdateStrategy {
    UpdateStrategy {
        max_parallel,
        canary,
        progress_deadline: 600 * SECOND,
        ..Default::default()
    }
}

impl World {
    pub(crate) fn new(nodes: usize, job: Job) -> Self {
        let mut world = Self {
            index: 10,
            now: 1_000 * SECOND,
            ..Self::default()
        };
        for number in 0..nodes {
            world.cluster.upsert_node(node(number));
        }
        world.register(job);
        world
    }

    pub(crate) fn register(&mut self, mut job: Job) {
        self.index += 1;
        if let Some(before) = &self.job {
            job.version = before.version + 1;
        }
        job.modify_index = self.index;
        job.job_modify_index = self.index;
        self.job = Some(Arc::new(job));
    }

    /// Registers the job again with a change.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Job)) {
        let mut job = Job::clone(self.job.as_ref().unwrap());
        change(&mut job);
        self.register(job);
    }

    pub(crate) fn eval(&mut self, trigger: &str) -> Evaluation {
        self.evals += 1;
        let kind = self.job.as_ref().unwrap().r#type.clone();
        Evaluation {
            id: Rng::new(self.evals).uuid(),
            namespace: "default".into(),
            r#type: kind,
            priority: 50,
            triggered_by: trigger.into(),
            job_id: "j".into(),
            status: "pending".into(),
            ..Evaluation::default()
        }
    }

    pub(crate) fn decide(&self, eval: &Evaluation) -> Outcome {
        let inputs = Inputs {
            snapshot_index: self.index,
            now: self.now,
            seed: seed_of(&eval.id, self.index),
            scheduler_version: SCHEDULER_VERSION,
        };
        schedule(self, eval, &inputs).unwrap()
    }

    /// Decides an evaluation and does what its plan says.
    pub(crate) fn run(&mut self, trigger: &str) -> Outcome {
        let eval = self.eval(trigger);
        self.run_eval(&eval)
    }

    pub(crate) fn run_eval(&mut self, eval: &Evaluation) -> Outcome {
        let outcome = self.decide(eval);
        self.commit(&outcome);
        outcome
    }

    pub(crate) fn commit(&mut self, outcome: &Outcome) {
        self.index += 1;
        let mark = EventId([self.index as u8; 16]);
        let job = self.job.clone();
        for stop in &outcome.plan.stops {
            let mut alloc = Allocation::clone(&self.allocs[&stop.alloc.id]);
            if takes_room(&alloc) {
                self.use_node(&alloc, false, mark);
            }
            alloc.desired_status = "stop".into();
            alloc.desired_description = stop.description.into();
            if !stop.client_status.is_empty() {
                alloc.client_status = stop.client_status.into();
            }
            if let Some(states) = &stop.alloc_states {
                alloc.alloc_states = states.clone().into();
            }
            self.allocs.insert(alloc.id.clone(), Arc::new(alloc));
        }
        for placed in &outcome.plan.placements {
            let mut alloc = placed.alloc.clone();
            let before = self.allocs.get(&alloc.id).cloned();
            if let Some(before) = before.filter(|b| takes_room(b)) {
                self.use_node(&before, false, mark);
            }
            let version = |job: &&Arc<Job>| job.job_modify_index == placed.job_modify_index;
            alloc.job = job.as_ref().filter(version).cloned().or_else(|| {
                self.allocs
                    .values()
                    .filter_map(|a| a.job.as_ref())
                    .find(version)
                    .cloned()
            });
            if alloc.create_index == 0 {
                alloc.create_index = self.index;
                alloc.create_time = self.now;
            }
            alloc.modify_time = self.now;
            if takes_room(&alloc) {
                self.use_node(&alloc, true, mark);
            }
            if let Some(previous) = self.allocs.get(&alloc.previous_allocation) {
                let mut previous = Allocation::clone(previous);
                previous.next_allocation = alloc.id.clone();
                self.allocs.insert(previous.id.clone(), Arc::new(previous));
            }
            self.allocs.insert(alloc.id.clone(), Arc::new(alloc));
        }
        if let Some(deployment) = &outcome.plan.deployment {
            self.deployments.retain(|d| d.id != deployment.id);
            self.deployments.push(deployment.clone());
        }
        for update in &outcome.plan.deployment_updates {
            let known = self
                .deployments
                .iter_mut()
                .find(|d| d.id == update.deployment_id);
            known.unwrap().status = update.status.clone();
        }
    }

    fn use_node(&mut self, alloc: &Allocation, add: bool, mark: EventId) {
        let Some(slot) = self.cluster.find(&alloc.node_id) else {
            return;
        };
        let slot = self.cluster.slot_mut(slot);
        if add {
            slot.used.add(&demand_of(alloc));
        } else {
            slot.used.sub(&demand_of(alloc));
        }
        slot.mark = mark;
    }

    /// The client says something of an allocation.
    pub(crate) fn client(&mut self, id: &str, change: impl FnOnce(&mut Allocation)) {
        let mut alloc = Allocation::clone(&self.allocs[id]);
        let before = takes_room(&alloc);
        change(&mut alloc);
        self.index += 1;
        if before && !takes_room(&alloc) {
            self.use_node(&alloc, false, EventId::ZERO);
        }
        self.allocs.insert(id.to_owned(), Arc::new(alloc));
    }

    /// Every live allocation gets this client status.
    pub(crate) fn all_are(&mut self, status: &str) {
        for id in self.live() {
            self.client(&id, |alloc| alloc.client_status = status.into());
        }
    }

    pub(crate) fn fail(&mut self, id: &str) {
        let now = self.now;
        self.client(id, |alloc| {
            alloc.client_status = "failed".into();
            let state = TaskState {
                state: "dead".into(),
                failed: true,
                finished_at: Time(now),
                ..TaskState::default()
            };
            alloc.task_states.insert("t", state);
        });
    }

    pub(crate) fn node_status(&mut self, id: &str, status: &str) {
        let info = self.cluster.node(id).unwrap();
        let mut node = Node::clone(&info.node);
        node.status = status.into();
        self.cluster.upsert_node(node);
        self.index += 1;
    }

    /// Ids of allocations that should run, in the order of their names.
    pub(crate) fn live(&self) -> Vec<String> {
        let mut live: Vec<&Arc<Allocation>> = self
            .allocs
            .values()
            .filter(|a| a.desired_status == "run")
            .filter(|a| matches!(a.client_status.as_str(), "pending" | "running" | "unknown"))
            .collect();
        live.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        live.iter().map(|a| a.id.clone()).collect()
    }

    pub(crate) fn alloc(&self, id: &str) -> &Allocation {
        &self.allocs[id]
    }
}
