//! The search for a node for one allocation of a group, and the state of the plan it works on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::model::status::ALL_NODE_POOL;
use drover_events::model::{AllocMetric, AllocatedResources, Job};

use super::explain::{SearchRecord, Went};
use super::group::{GroupState, is_distinct_hosts};
use super::ports;
use super::score::{Best, Score, ScorePart, fit_score};
use super::tally::Tally;
use crate::cluster::{Cluster, Demand, NodeInfo, Usage};
use crate::feasible::{ClassVerdict, Level, OperandCache, PlanVolumes, Verdict, glob_matches};
use crate::fit;
use crate::rng::Rng;

/// How many candidates with a score of 0 or less are passed over, in hope of a better one.
const MAX_SKIP: usize = 3;

/// What the search depends on beside the cluster and the job.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// Fill nodes up, or spread over them.
    pub spread: bool,
    /// Whether `memory_max` counts.
    pub oversubscription: bool,
    /// The least number of candidates where affinities or spreads are to be weighed.
    pub wide_limit: usize,
    /// Two candidates are enough.
    pub batch: bool,
    /// Where chance begins.
    pub seed: u64,
}

/// The allocation that a node is looked for.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    pub group: &'a str,
    /// Its name, with the index that its own volumes are known by.
    pub name: &'a str,
}

/// A node that was found.
#[derive(Debug)]
pub struct Choice {
    pub slot: u32,
    /// What the allocation is given.
    pub resources: AllocatedResources,
    /// What it takes.
    pub demand: Demand,
}

/// The end of one search.
#[derive(Debug)]
pub struct Selection {
    /// The node, if there is one.
    pub choice: Option<Choice>,
    /// What was looked at.
    pub metric: AllocMetric,
}

#[derive(Clone, Copy)]
struct Candidate {
    slot: u32,
    score: f64,
}

/// The search of one evaluation over one cluster, with what its plan changes so far.
///
/// It is made ready when it is first used, since most evaluations find nothing to place.
pub struct Stack<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) options: StackOptions,
    pub(super) job: Arc<Job>,
    pub(super) ready: bool,
    /// Live allocations, until it is ready: node and group.
    pub(super) live: Vec<(String, String)>,
    pub(super) nodes: Vec<u32>,
    pub(super) offset: usize,
    pub(super) limit: usize,
    pub(super) in_pool: i64,
    pub(super) available: BTreeMap<String, i64>,
    pub(super) pool: String,
    pub(super) changed: BTreeMap<u32, Usage>,
    pub(super) is_changed: Vec<bool>,
    pub(super) of_job: Vec<u16>,
    /// What the plan changes of what volumes are used.
    pub(super) volumes: PlanVolumes,
    pub(super) distinct_hosts: bool,
    pub(super) job_level: Level,
    pub(super) groups: BTreeMap<String, GroupState>,
    pub(super) operands: OperandCache,
    pub(super) rng: Rng,
    /// What is recorded of each search, for an explanation only.
    pub(super) record: Option<Box<SearchRecord>>,
}

impl<'a> Stack<'a> {
    /// The search for a job.
    pub fn new(cluster: &'a Cluster, job: Arc<Job>, options: StackOptions) -> Self {
        Self {
            cluster,
            nodes: Vec::new(),
            offset: 0,
            limit: 2,
            in_pool: 0,
            available: BTreeMap::new(),
            pool: job.node_pool.clone(),
            changed: BTreeMap::new(),
            is_changed: Vec::new(),
            of_job: Vec::new(),
            volumes: PlanVolumes::default(),
            distinct_hosts: job.constraints.iter().any(is_distinct_hosts),
            job_level: Level::of_job(&job),
            groups: BTreeMap::new(),
            operands: OperandCache::default(),
            rng: Rng::new(options.seed),
            options,
            job,
            ready: false,
            live: Vec::new(),
            record: None,
        }
    }

    /// Finds the nodes that are ready in the job's datacenters and its pool.
    pub(super) fn prepare(&mut self) {
        if self.ready {
            return;
        }
        self.ready = true;
        let slots = self.cluster.slots();
        self.is_changed = vec![false; slots];
        self.of_job = vec![0; slots];
        let job = Arc::clone(&self.job);
        for group in &job.task_groups {
            let state = GroupState::new(&job, group, slots, self.options.oversubscription);
            self.groups.insert(group.name.clone(), state);
        }
        self.find_nodes(&job);
        for (node, group) in std::mem::take(&mut self.live) {
            self.count(&node, &group, 1);
        }
    }

    fn find_nodes(&mut self, job: &Job) {
        let names = self.cluster.names();
        let mut wanted: Vec<Option<bool>> = vec![None; names.len()];
        let mut counts = vec![0_i64; names.len()];
        let any_pool = job.node_pool == ALL_NODE_POOL;
        let pool = names.get(&job.node_pool);
        for slot in self.cluster.by_node_id() {
            let Some(info) = &self.cluster.slot(*slot).info else {
                continue;
            };
            if !info.ready || !(any_pool || Some(info.pool) == pool) {
                continue;
            }
            self.in_pool += 1;
            let datacenter = info.datacenter as usize;
            let suits = *wanted[datacenter].get_or_insert_with(|| {
                let name = names.name(info.datacenter);
                job.datacenters
                    .iter()
                    .any(|pattern| glob_matches(pattern, name))
            });
            if suits {
                counts[datacenter] += 1;
                self.nodes.push(*slot);
            }
        }
        for (id, count) in counts
            .into_iter()
            .enumerate()
            .filter(|(_, count)| *count > 0)
        {
            self.available
                .insert(names.name(id as u32).to_owned(), count);
        }
        self.rng.shuffle(&mut self.nodes);
        if !self.options.batch {
            let bits = usize::BITS - self.nodes.len().saturating_sub(1).leading_zeros();
            self.limit = 2.max(bits as usize);
        }
    }

    /// The nodes the job may be placed on, in the order of the search.
    pub fn nodes(&mut self) -> &[u32] {
        self.prepare();
        &self.nodes
    }

    /// The generator, for ids.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// The cluster that is searched.
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// What is used of a node, the plan included.
    pub fn used(&self, slot: u32) -> &Usage {
        if self.is_changed[slot as usize]
            && let Some(used) = self.changed.get(&slot)
        {
            return used;
        }
        &self.cluster.slot(slot).used
    }

    fn change(&mut self, slot: u32) -> &mut Usage {
        self.is_changed[slot as usize] = true;
        for group in self.groups.values_mut() {
            group.fit[slot as usize] = f64::NAN;
        }
        let cluster = self.cluster;
        self.changed
            .entry(slot)
            .or_insert_with(|| cluster.slot(slot).used.clone())
    }

    /// A live allocation of the job is there already.
    pub fn is_live(&mut self, node_id: &str, group: &str) {
        if self.ready {
            self.count(node_id, group, 1);
        } else {
            self.live.push((node_id.to_owned(), group.to_owned()));
        }
    }

    fn count(&mut self, node_id: &str, group: &str, by: i64) {
        let Some(slot) = self.cluster.find(node_id) else {
            return;
        };
        let of_job = &mut self.of_job[slot as usize];
        *of_job = of_job.saturating_add_signed(by as i16);
        for (name, state) in &mut self.groups {
            let same = name == group;
            if same {
                state.count(self.cluster, slot, by);
            }
            for distinct in &mut state.distinct {
                if same || distinct.of_job {
                    distinct.property.count(self.cluster, slot, by);
                }
            }
        }
    }

    /// The plan stops a live allocation of the job: its resources are free, and it no longer
    /// counts.
    pub fn stop(&mut self, node_id: &str, group: &str, demand: &Demand) {
        self.prepare();
        if let Some(slot) = self.cluster.find(node_id) {
            self.change(slot).sub(demand);
            self.volumes.change(node_id, &demand.volumes, false);
            self.count(node_id, group, -1);
        }
    }

    /// The plan adds an allocation of the job, or takes a stop back.
    pub fn add(&mut self, node_id: &str, group: &str, demand: &Demand) {
        self.prepare();
        if let Some(slot) = self.cluster.find(node_id) {
            self.change(slot).add(demand);
            self.volumes.change(node_id, &demand.volumes, true);
            self.count(node_id, group, 1);
        }
    }

    /// Looks for a node for one allocation of a group. `penalty` are nodes where it failed before;
    /// `preferred` is tried alone first.
    pub fn select(
        &mut self,
        wanted: PlacementRequest<'_>,
        penalty: &BTreeSet<u32>,
        preferred: Option<u32>,
    ) -> Selection {
        if let Some(slot) = preferred {
            let selection = self.search(wanted, penalty, Some(slot));
            if selection.choice.is_some() {
                return selection;
            }
        }
        self.search(wanted, penalty, None)
    }

    /// Looks whether one allocation of a group fits on this node.
    pub fn select_only(&mut self, wanted: PlacementRequest<'_>, slot: u32) -> Selection {
        self.search(wanted, &BTreeSet::new(), Some(slot))
    }

    fn search(
        &mut self,
        wanted: PlacementRequest<'_>,
        penalty: &BTreeSet<u32>,
        only: Option<u32>,
    ) -> Selection {
        self.prepare();
        let name = wanted.group;
        let Some(mut group) = self.groups.remove(name) else {
            return Selection {
                choice: None,
                metric: AllocMetric::default(),
            };
        };
        group.volumes.seek(wanted.name, self.cluster.volumes());
        let mut tally = Tally::default();
        let mut best = Best::default();
        // Nodes that could not give what fits there: they would be the best again and again.
        let mut unable = BTreeSet::new();
        let from = self.offset;
        let choice = loop {
            let (tally, best) = (&mut tally, &mut best);
            let found = self.best_of(&mut group, penalty, only, &unable, tally, best);
            let Some(slot) = found else { break None };
            match self.give(&group, slot) {
                Ok(choice) => break Some(choice),
                Err(dimension) => {
                    if let Some(info) = &self.cluster.slot(slot).info {
                        tally.exhaust(info, &dimension);
                    }
                    unable.insert(slot);
                }
            }
        };
        let mut metric = tally.metric();
        if self.record.is_some() {
            let went = Went {
                penalty,
                only,
                chosen: choice.as_ref().map(|choice| choice.slot),
                from,
                evaluated: metric.nodes_evaluated,
                best: &best,
            };
            self.note(&group, &went);
        }
        self.groups.insert(name.to_owned(), group);
        best.write(self.cluster, &mut metric);
        metric.nodes_in_pool = self.in_pool;
        metric.node_pool.clone_from(&self.pool);
        metric.nodes_available = self.available.clone().into();
        Selection { choice, metric }
    }

    fn limit_of(&self, group: &GroupState) -> usize {
        if group.affinities.is_empty() && group.spreads.is_empty() {
            return self.limit;
        }
        self.options
            .wide_limit
            .max(usize::try_from(group.group.count).unwrap_or(0))
    }

    /// Goes round the nodes until enough candidates were met, and takes the best of them. Nodes
    /// that are `unable` are passed over.
    fn best_of(
        &mut self,
        group: &mut GroupState,
        penalty: &BTreeSet<u32>,
        only: Option<u32>,
        unable: &BTreeSet<u32>,
        tally: &mut Tally,
        best: &mut Best,
    ) -> Option<u32> {
        let limit = self.limit_of(group);
        let mut skipped: [Option<Candidate>; MAX_SKIP] = [None; MAX_SKIP];
        let (mut skips, mut met, mut seen) = (0, 0, 0);
        let mut winner: Option<Candidate> = None;
        let total = if only.is_some() { 1 } else { self.nodes.len() };
        while met < limit && seen < total {
            let slot = only.unwrap_or_else(|| self.next_node());
            seen += 1;
            if unable.contains(&slot) {
                continue;
            }
            tally.evaluate();
            let Some(score) = self.candidate(group, slot, penalty, tally) else {
                continue;
            };
            best.note(slot, score);
            let candidate = Candidate {
                slot,
                score: score.normal(),
            };
            if candidate.score <= 0.0 && skips < MAX_SKIP {
                skipped[skips] = Some(candidate);
                skips += 1;
                continue;
            }
            met += 1;
            prefer(&mut winner, candidate);
        }
        for candidate in skipped.into_iter().flatten() {
            if met >= limit {
                break;
            }
            met += 1;
            prefer(&mut winner, candidate);
        }
        winner.map(|w| w.slot)
    }

    fn next_node(&mut self) -> u32 {
        if self.offset >= self.nodes.len() {
            self.offset = 0;
        }
        self.offset += 1;
        self.nodes[self.offset - 1]
    }

    pub(super) fn feasible(
        &mut self,
        group: &mut GroupState,
        info: &NodeInfo,
        tally: &mut Tally,
    ) -> bool {
        for level in [&mut self.job_level, &mut group.level] {
            if let Verdict::Filter(reason) = level.check(info, &mut self.operands) {
                tally.filter(info, &reason);
                return false;
            }
        }
        true
    }

    /// Whether a node has the volumes that are requested.
    pub(super) fn mounts(&self, group: &GroupState, info: &NodeInfo, tally: &mut Tally) -> bool {
        let volumes = self.cluster.volumes();
        match group.volumes.missing(&info.node, volumes, &self.volumes) {
            Some(missing) => tally.filter_for(info, &missing),
            None => return true,
        }
        false
    }

    pub(super) fn candidate(
        &mut self,
        group: &mut GroupState,
        slot: u32,
        penalty: &BTreeSet<u32>,
        tally: &mut Tally,
    ) -> Option<Score> {
        let at = slot as usize;
        // The node itself is looked at only where it is not known to suit and to fit: nodes lie far
        // apart in memory, and this is done for hundreds of them for each allocation.
        let cluster = self.cluster;
        let info = || cluster.slot(slot).info.as_deref();
        if !group.suits[at] {
            if !self.feasible(group, info()?, tally) {
                return None;
            }
            group.suits[at] = true;
        }
        if !group.volumes.is_empty() && !self.mounts(group, info()?, tally) {
            return None;
        }
        if (self.distinct_hosts && self.of_job[at] > 0)
            || (group.distinct_hosts && group.here[at] > 0)
        {
            tally.filter(info()?, "distinct_hosts");
            return None;
        }
        if !group.distinct.is_empty()
            && let Some(reason) = group.distinct_reason(cluster, slot)
        {
            tally.filter(info()?, &reason);
            return None;
        }
        if group.fit[at].is_nan() {
            let info = info()?;
            match self.fit_of(group, slot, info) {
                Ok(fit) => group.fit[at] = fit,
                Err(dimension) => {
                    tally.exhaust(info, &dimension);
                    return None;
                }
            }
        }
        let mut score = Score::default();
        score.add(ScorePart::Binpack, group.fit[at]);
        self.add_parts(group, slot, penalty, &mut score);
        Some(score)
    }

    fn add_parts(
        &mut self,
        group: &mut GroupState,
        slot: u32,
        penalty: &BTreeSet<u32>,
        score: &mut Score,
    ) {
        let here = group.here[slot as usize];
        if here > 0 {
            let count = group.group.count.max(1) as f64;
            score.add(ScorePart::AntiAffinity, -(f64::from(here) + 1.0) / count);
        } else {
            score.show(ScorePart::AntiAffinity, 0.0);
        }
        if penalty.contains(&slot) {
            score.add(ScorePart::ReschedulePenalty, -1.0);
        } else {
            score.show(ScorePart::ReschedulePenalty, 0.0);
        }
        let affinity = if group.affinities.is_empty() {
            Some(0.0)
        } else {
            Some(
                group
                    .affinities
                    .score(self.cluster, slot, &mut self.operands),
            )
        };
        match affinity {
            Some(value) if value != 0.0 => score.add(ScorePart::Affinity, value),
            _ if group.affinities.is_empty() => score.show(ScorePart::Affinity, 0.0),
            _ => {}
        }
        if !group.spreads.is_empty() {
            // Where one more meets its target it scores 0, and that counts: left out of the mean,
            // the other parts of a node that is just right would weigh more than those of one that
            // is too many already.
            let spread = group.spreads.score(self.cluster, slot);
            score.add(ScorePart::Spread, spread);
        }
    }

    /// Whether one more allocation fits, and how well.
    fn fit_of(&mut self, group: &GroupState, slot: u32, info: &NodeInfo) -> Result<f64, String> {
        let (cpu, memory, disk) = group.ask.amounts(info);
        if group.ask.wants_ports() {
            for network in group.ask.networks() {
                ports::possible(info, self.used(slot), network)?;
            }
        }
        if group.ask.wants_devices() {
            self.devices(group, slot, info)?;
        }
        let used = self.used(slot);
        if group.ask.cores > 0 {
            let free = info
                .cores
                .iter()
                .filter(|core| !used.cores().contains(core))
                .count();
            if free < group.ask.cores {
                return Err("cores".to_owned());
            }
        }
        fit::check_amounts(info, used, cpu, memory, disk)?;
        Ok(fit_score(info, used, cpu, memory, self.options.spread))
    }

    /// What every allocation of a group is given before ports, cores and devices.
    pub fn given(&self, group: &str) -> Option<&AllocatedResources> {
        self.groups.get(group).map(|g| &g.ask.given)
    }

    /// Which classes of nodes may run the job, as far as was looked at.
    pub fn class_eligibility(&self) -> BTreeMap<String, bool> {
        let names = self.cluster.names();
        let mut classes = BTreeMap::new();
        for group in self.groups.values() {
            for (class, known) in group.level.classes() {
                let eligible = known == ClassVerdict::Eligible;
                let entry = classes.entry(names.name(class).to_owned()).or_insert(false);
                *entry |= eligible;
            }
        }
        for (class, known) in self.job_level.classes() {
            if known == ClassVerdict::Ineligible {
                classes.insert(names.name(class).to_owned(), false);
            }
        }
        classes
    }

    /// Whether some constraint depends on more than the class.
    pub fn escaped(&self) -> bool {
        self.job_level.escaped() || self.groups.values().any(|g| g.level.escaped())
    }
}

fn prefer(winner: &mut Option<Candidate>, candidate: Candidate) {
    if winner.is_none_or(|w| candidate.score > w.score) {
        *winner = Some(candidate);
    }
}
