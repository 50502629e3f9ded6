//! The check of a plan against what is committed and what is in flight, and the events it becomes.
//!
//! The rule that says what fits is the scheduler's own ([`fit::check`]). A node that does not fit
//! any more loses its part of the plan; the rest continues. A plan of more than 256 allocations is
//! several events under one plan id; each is guarded by the one before, so that what is committed
//! is always a beginning of the plan.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::status::{NodeStatus, client};
use drover_events::model::{Allocation, Evaluation};
use drover_events::plan::{DecisionInputs, PlacedAlloc, PlanApplied, PreemptedAlloc};
use drover_events::{EventId, Guard};

use super::core::{Core, InFlight};
use crate::proposer::decided::Decided;
use crate::scheduler::cluster::{Cluster, NodeInfo, Usage, takes_resources};
use crate::scheduler::{Inputs, Outcome, Placement, Plan, Stop, fit};
use crate::scheduling_view::cache::Effect;

/// How many allocations one event has at most.
const ALLOCS_PER_EVENT: usize = 256;
/// Bytes of an allocation without its parts, roughly and from above.
const ALLOC_BYTES: usize = 2 << 10;
/// Bytes of a stop or a preemption.
const STOP_BYTES: usize = 1 << 10;
/// Bytes of a port, a task's resources, or an attempt to reschedule.
const PART_BYTES: usize = 512;
/// Bytes of one number in its metrics, with its name.
const NUMBER_BYTES: usize = 128;
/// Bytes of a task's state with its events.
const STATE_BYTES: usize = 2 << 10;
/// How large one event becomes, roughly: an event has 4 MiB at most.
const BYTES_PER_EVENT: usize = 3 << 20;

/// A plan that wants to be committed.
pub struct PlanRequest {
    /// The evaluation it belongs to.
    pub eval: Evaluation,
    /// Under which token it is worked on.
    pub token: u64,
    /// The evaluation's row as the decision saw it.
    pub guard: Guard,
    /// What was decided.
    pub outcome: Outcome,
    /// From what.
    pub inputs: Inputs,
    /// The key that signs new identities; empty if there is none.
    pub signing_key: String,
}

/// A plan as it is proposed.
#[derive(Default)]
pub struct Prepared {
    /// The events, in order.
    pub events: Vec<Decided>,
    /// Nodes whose part of the plan does not fit any more.
    pub rejected_nodes: BTreeSet<String>,
    /// The allocations it says something about.
    pub allocs: Vec<String>,
    /// The slots it is noted on as in flight.
    pub slots: BTreeSet<u32>,
    /// Whether a part of the plan is left for the next decision.
    pub cut_short: bool,
}

/// What a plan does on one node.
#[derive(Default)]
struct OnNode<'a> {
    stops: Vec<&'a str>,
    placements: Vec<&'a Placement>,
}

/// Checks a plan and makes events of it; what it takes is noted as in flight.
pub fn prepare(core: &mut Core, mut request: PlanRequest, now: i64) -> Prepared {
    request.outcome.plan.drop_overwritten_stops();
    let mut prepared = Prepared::default();
    let mut after: BTreeMap<u32, Usage> = BTreeMap::new();
    {
        let plan = &request.outcome.plan;
        let mut nodes: BTreeMap<&str, OnNode<'_>> = BTreeMap::new();
        for stop in &plan.stops {
            nodes
                .entry(&stop.alloc.node_id)
                .or_default()
                .stops
                .push(&stop.alloc.id);
        }
        for (victim, _) in &plan.preemptions {
            nodes
                .entry(&victim.node_id)
                .or_default()
                .stops
                .push(&victim.id);
        }
        for placement in &plan.placements {
            nodes
                .entry(&placement.alloc.node_id)
                .or_default()
                .placements
                .push(placement);
        }
        for (node, on_node) in nodes {
            match check_node(core, node, &on_node) {
                Ok(Some((slot, used))) => {
                    after.insert(slot, used);
                }
                Ok(None) => {}
                Err(why) => {
                    tracing::debug!(node, why, eval = %request.eval.id, "plan rejected for node");
                    prepared.rejected_nodes.insert(node.to_owned());
                }
            }
        }
    }
    if request.outcome.plan.all_at_once && !prepared.rejected_nodes.is_empty() {
        return prepared;
    }
    make_events(core, request, after, now, &mut prepared);
    prepared
}

fn used_of(core: &Core, slot: u32) -> &Usage {
    match core.in_flight.get(&slot) {
        Some(in_flight) => &in_flight.used,
        None => &core.cache.cluster().slot(slot).used,
    }
}

fn mark_of(core: &Core, slot: u32) -> EventId {
    match core.in_flight.get(&slot) {
        Some(in_flight) => in_flight.mark,
        None => core.cache.cluster().slot(slot).mark,
    }
}

/// What is used of a node after its part of the plan, or why that does not fit. A node that is gone
/// takes stops only.
fn check_node(
    core: &Core,
    node: &str,
    on_node: &OnNode<'_>,
) -> Result<Option<(u32, Usage)>, &'static str> {
    let cluster = core.cache.cluster();
    let Some(slot) = cluster.find(node) else {
        return if on_node.placements.is_empty() {
            Ok(None)
        } else {
            Err("node is gone")
        };
    };
    let mut used = used_of(core, slot).clone();
    // Each once: what stops may be named as preempted, too.
    let written = on_node.placements.iter().map(|one| one.alloc.id.as_str());
    let gives: BTreeSet<&str> = on_node.stops.iter().copied().chain(written).collect();
    for id in gives {
        if let Some((_, demand)) = core.cache.demand(id) {
            used.sub(demand);
        }
    }
    let Some(info) = &cluster.slot(slot).info else {
        return Err("node is gone");
    };
    for placement in &on_node.placements {
        may_take(info, placement)?;
        if !takes_resources(&placement.alloc) {
            continue;
        }
        // What is there already and only changes its attributes always fits.
        let unchanged = placement.replaces.as_ref() == Some(&placement.demand);
        if !unchanged {
            fit::check(info, &used, &placement.demand)?;
        }
        // What is there already has its volumes.
        if placement.replaces.is_none() {
            for one in &placement.demand.volumes {
                core.cache.check_volume(node, one, &on_node.stops)?;
            }
        }
        used.add(&placement.demand);
    }
    Ok(Some((slot, used)))
}

/// Whether a node in its state takes such an allocation.
fn may_take(info: &NodeInfo, placement: &Placement) -> Result<(), &'static str> {
    let unknown = placement.alloc.client_status == client::UNKNOWN;
    let exists = placement.replaces.is_some() || placement.alloc.create_index > 0;
    match info.node.status() {
        Some(NodeStatus::Ready) if info.ready || exists => Ok(()),
        Some(NodeStatus::Ready) => Err("node is not eligible"),
        Some(NodeStatus::Disconnected) if unknown => Ok(()),
        Some(NodeStatus::Down) if unknown || placement.alloc.client_status == client::LOST => {
            Ok(())
        }
        Some(NodeStatus::Init) if exists => Ok(()),
        Some(NodeStatus::Disconnected | NodeStatus::Down | NodeStatus::Init) | None => {
            Err("node is not ready")
        }
    }
}

/// One of the things an event can hold.
enum Item {
    Stop(Box<Stop>),
    Preempt(PreemptedAlloc, String),
    Place(Box<Placement>),
}

impl Item {
    /// The node it is on.
    fn node(&self) -> &str {
        match self {
            Self::Stop(stop) => &stop.alloc.node_id,
            Self::Preempt(_, node) => node,
            Self::Place(placement) => &placement.alloc.node_id,
        }
    }

    /// Bytes it takes in an event, rather too many than too few.
    fn weight(&self) -> usize {
        let Self::Place(placement) = self else {
            return STOP_BYTES;
        };
        let alloc = &placement.alloc;
        let tasks = alloc.allocated_resources.as_ref().map_or(0, |r| {
            let ports = r.shared.ports.len() + r.shared.networks.len();
            let of_tasks = r
                .tasks
                .values()
                .map(|t| 1 + t.networks.len() + t.devices.len());
            ports + of_tasks.sum::<usize>()
        });
        let shown = alloc.metrics.as_ref().map_or(0, |m| {
            let reasons = m.class_filtered.len() + m.constraint_filtered.len();
            let short = m.class_exhausted.len() + m.dimension_exhausted.len();
            m.score_meta_data.len() * 2 + m.nodes_available.len() + reasons + short
        });
        let tracked = alloc
            .reschedule_tracker
            .as_ref()
            .map_or(0, |t| t.events.len());
        let states = alloc.task_states.len();
        ALLOC_BYTES
            + names(alloc)
            + (tasks + tracked) * PART_BYTES
            + shown * NUMBER_BYTES
            + states * STATE_BYTES
    }
}

/// Bytes of an allocation's names, which logs may hold at any length.
fn names(alloc: &Allocation) -> usize {
    let own = [
        &alloc.namespace,
        &alloc.job_id,
        &alloc.name,
        &alloc.task_group,
        &alloc.node_name,
    ];
    let own: usize = own.iter().map(|name| name.len()).sum();
    let resources = alloc.allocated_resources.as_ref();
    let tasks = resources.into_iter().flat_map(|r| r.tasks.keys());
    let tasks = tasks.map(|name| 2 * name.len()).sum::<usize>();
    let ports = resources.into_iter().flat_map(|r| r.shared.ports.iter());
    own + tasks + ports.map(|port| 2 * port.label.len()).sum::<usize>()
}

/// What continues of a plan: nothing on nodes whose part was rejected.
fn items_of(plan: &mut Plan, rejected_nodes: &BTreeSet<String>) -> Vec<Item> {
    let fits = |node: &str| !rejected_nodes.contains(node);
    let stops = std::mem::take(&mut plan.stops).into_iter();
    let stops = stops.filter(|stop| fits(&stop.alloc.node_id));
    let victims = std::mem::take(&mut plan.preemptions).into_iter();
    let victims = victims.filter(|(victim, _)| fits(&victim.node_id));
    let placements = std::mem::take(&mut plan.placements).into_iter();
    let placements = placements.filter(|placement| fits(&placement.alloc.node_id));
    let mut items: Vec<Item> = stops.map(|stop| Item::Stop(Box::new(stop))).collect();
    items.extend(victims.map(|(victim, by)| {
        let preempted = PreemptedAlloc {
            id: victim.id.clone(),
            preempted_by: by,
        };
        Item::Preempt(preempted, victim.node_id.clone())
    }));
    items.extend(placements.map(|placement| Item::Place(Box::new(placement))));
    items
}

fn make_events(
    core: &mut Core,
    request: PlanRequest,
    after: BTreeMap<u32, Usage>,
    now: i64,
    prepared: &mut Prepared,
) {
    let PlanRequest {
        eval,
        guard,
        outcome,
        inputs,
        signing_key,
        ..
    } = request;
    let mut plan = outcome.plan;
    let items = items_of(&mut plan, &prepared.rejected_nodes);
    if items.is_empty() && !prepared.rejected_nodes.is_empty() {
        return;
    }
    let parts = parts_of(core.cache.cluster(), items, plan.all_at_once, prepared);
    let full = prepared.rejected_nodes.is_empty() && !prepared.cut_short;
    let plan_id = uuid::Uuid::new_v4().to_string();
    let decision = DecisionInputs::from(inputs);
    let mut first = Some((
        guard,
        plan.deployment,
        plan.deployment_updates,
        outcome.follow_ups,
    ));
    let mut link: Option<Guard> = None;
    let mut left = parts.len();
    for items in parts {
        left -= 1;
        let mut event = PlanApplied {
            plan_id: plan_id.clone(),
            eval_id: eval.id.clone(),
            decision: decision.clone(),
            updated_at: now,
            ..PlanApplied::default()
        };
        let mut decided = Decided::new("scheduling", PlanApplied::default());
        decided = decided.caused_by(eval.modify_index);
        if let Some((guard, deployment, updates, follow_ups)) = first.take() {
            decided.guards.push(guard);
            event.deployment = deployment;
            event.deployment_updates = updates;
            event.evals = follow_ups;
        }
        decided.guards.extend(link.clone());
        let mut batch = PlanBatch {
            core,
            id: decided.id,
            prepared,
        };
        let mut guarded: BTreeSet<u32> = BTreeSet::new();
        let mut touched: BTreeSet<u32> = BTreeSet::new();
        for item in items {
            batch.add(item, &mut event, &signing_key, &mut guarded, &mut touched);
        }
        link = hold(core, &mut decided, &after, guarded, &touched).or(link);
        prepared.slots.extend(touched);
        if full && left == 0 {
            let ended = std::iter::once(&outcome.finished).chain(&outcome.blocked);
            event.evals.extend(ended.chain(&outcome.next).cloned());
        }
        decided.event = event.into();
        prepared.events.push(decided);
    }
}

/// The parts of a plan, one event each. What is on nodes that are gone marks none, so it comes
/// last: then each part can be guarded by the one before. If nothing marks a node, the plan ends
/// with its first part, and the evaluation is decided again for the rest.
fn parts_of(
    cluster: &Cluster,
    mut items: Vec<Item>,
    all_at_once: bool,
    prepared: &mut Prepared,
) -> Vec<Vec<Item>> {
    items.sort_by_key(|item| cluster.find(item.node()).is_none());
    let gone = items
        .first()
        .is_some_and(|item| cluster.find(item.node()).is_none());
    let mut parts = cut(items, all_at_once);
    if gone && parts.len() > 1 {
        parts.truncate(1);
        prepared.cut_short = true;
    }
    parts
}

/// Guards an event by the marks of the nodes it places on, and notes it as in flight on every node
/// it touches. Answers the guard of the event that follows it; one that marks no node leaves the
/// guard that it had itself.
fn hold(
    core: &mut Core,
    decided: &mut Decided,
    after: &BTreeMap<u32, Usage>,
    guarded: BTreeSet<u32>,
    touched: &BTreeSet<u32>,
) -> Option<Guard> {
    for slot in guarded {
        let node = node_id(core.cache.cluster(), slot);
        let mark = mark_of(core, slot);
        decided.guards.push(Guard::NodeMark { node, mark });
    }
    let mark = decided.id;
    for slot in touched {
        let used = after.get(slot).unwrap_or_else(|| used_of(core, *slot));
        let used = used.clone();
        core.in_flight.insert(*slot, InFlight { used, mark });
    }
    let slot = touched.first()?;
    let node = node_id(core.cache.cluster(), *slot);
    Some(Guard::NodeMark { node, mark })
}

/// Cuts a plan into events of at most [`ALLOCS_PER_EVENT`] allocations and about
/// [`BYTES_PER_EVENT`]; on a node, stops come before placements. A plan that is all or nothing is
/// one event whatever its size, and one that only ends an evaluation is one without items.
fn cut(items: Vec<Item>, all_at_once: bool) -> Vec<Vec<Item>> {
    let mut parts = vec![Vec::with_capacity(items.len().min(ALLOCS_PER_EVENT))];
    if all_at_once {
        parts[0].extend(items);
        return parts;
    }
    let mut bytes = 0;
    for item in items {
        let weight = item.weight();
        let part = parts.last_mut().filter(|part| {
            part.is_empty() || (part.len() < ALLOCS_PER_EVENT && bytes + weight <= BYTES_PER_EVENT)
        });
        match part {
            Some(part) => {
                part.push(item);
                bytes += weight;
            }
            None => {
                parts.push(vec![item]);
                bytes = weight;
            }
        }
    }
    parts
}

fn node_id(cluster: &Cluster, slot: u32) -> String {
    cluster
        .slot(slot)
        .info
        .as_ref()
        .map(|info| info.node.id.clone())
        .unwrap_or_default()
}

/// One event in the making.
struct PlanBatch<'a> {
    core: &'a mut Core,
    id: EventId,
    prepared: &'a mut Prepared,
}

impl PlanBatch<'_> {
    fn add(
        &mut self,
        item: Item,
        event: &mut PlanApplied,
        signing_key: &str,
        guarded: &mut BTreeSet<u32>,
        touched: &mut BTreeSet<u32>,
    ) {
        match item {
            Item::Stop(stop) => {
                self.goes(&stop.alloc.id, &stop.alloc.node_id, touched);
                event.stopped.push((*stop).into());
            }
            Item::Preempt(preempted, node) => {
                self.goes(&preempted.id, &node, touched);
                event.preempted.push(preempted);
            }
            Item::Place(placement) => {
                let Placement {
                    mut alloc,
                    job_modify_index,
                    demand,
                    ..
                } = *placement;
                if let Some(slot) = self.core.cache.cluster().find(&alloc.node_id) {
                    guarded.insert(slot);
                    touched.insert(slot);
                    // For an allocation that exists already, its client may report an end before
                    // this is committed: what it takes then is read from its row.
                    if takes_resources(&alloc) && alloc.create_index == 0 {
                        let unknown = alloc.client_status == client::UNKNOWN;
                        let effect = Effect::Takes {
                            slot,
                            demand,
                            unknown,
                        };
                        self.expect(&alloc.id, effect);
                    }
                }
                if alloc.create_index == 0 {
                    alloc.signing_key_id = signing_key.to_owned();
                }
                event.placed.push(PlacedAlloc {
                    alloc: Box::new(alloc),
                    job_modify_index,
                });
            }
        }
    }

    fn goes(&mut self, alloc: &str, node: &str, touched: &mut BTreeSet<u32>) {
        touched.extend(self.core.cache.cluster().find(node));
        if let Some((slot, _)) = self.core.cache.demand(alloc) {
            self.expect(alloc, Effect::Gone { slot });
        }
    }

    fn expect(&mut self, alloc: &str, effect: Effect) {
        self.core.cache.expect(alloc.to_owned(), self.id, effect);
        self.prepared.allocs.push(alloc.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use drover_events::codec::encoded_len;
    use drover_events::model::{AllocatedResources, AllocatedTaskResources};

    use super::*;

    /// Which of these a node in its state takes: a new allocation, one that is there already, one
    /// that is out of contact, one that is lost.
    #[test]
    fn a_plan_finds_a_node_that_changed_since_it_was_made() {
        let placement = |client_status: &str, exists: bool| Placement {
            alloc: Allocation {
                client_status: client_status.into(),
                create_index: u64::from(exists),
                ..Allocation::default()
            },
            job_modify_index: 1,
            demand: Default::default(),
            replaces: None,
        };
        let offered = [
            placement("pending", false),
            placement("running", true),
            placement("unknown", true),
            placement("lost", true),
        ];
        let not_eligible = Err("node is not eligible");
        let not_ready = Err("node is not ready");
        for (status, eligible, wanted) in [
            ("ready", true, [Ok(()); 4]),
            ("ready", false, [not_eligible, Ok(()), Ok(()), Ok(())]),
            ("initializing", true, [not_ready, Ok(()), Ok(()), Ok(())]),
            (
                "disconnected",
                true,
                [not_ready, not_ready, Ok(()), not_ready],
            ),
            ("down", true, [not_ready, not_ready, Ok(()), Ok(())]),
        ] {
            let mut node = drover_testkit::fixtures::node(1);
            node.status = status.into();
            if !eligible {
                node.scheduling_eligibility = "ineligible".into();
            }
            let info = NodeInfo::new(node, &mut Default::default());
            let taken = offered.each_ref().map(|one| may_take(&info, one));
            assert_eq!(taken, wanted, "{status}, eligible: {eligible}");
        }
    }

    #[test]
    fn an_allocation_weighs_no_less_than_it_takes_however_long_its_names_are() {
        for bytes in [1, 1_000, 100_000] {
            let name = "n".repeat(bytes);
            let mut resources = AllocatedResources::default();
            let task = AllocatedTaskResources::default();
            let _ = resources.tasks.insert(name.as_str(), task);
            let alloc = Allocation {
                job_id: name.clone(),
                name: format!("{name}.{name}[0]"),
                task_group: name.clone(),
                node_name: name.clone(),
                allocated_resources: Some(resources),
                ..Allocation::default()
            };
            let size = encoded_len(&alloc);
            let placement = Placement {
                alloc,
                job_modify_index: 1,
                demand: Default::default(),
                replaces: None,
            };
            assert!(Item::Place(Box::new(placement)).weight() >= size, "{bytes}");
        }
    }
}
