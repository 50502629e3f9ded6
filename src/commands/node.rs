//! Commands about nodes.

use std::collections::{BTreeMap, HashSet};

use drover_events::gojson::Time;
use drover_events::model::status::{
    NodeStatus, client, desired, eligibility, node as status, node_subsystem,
};
use drover_events::model::{DrainSpec, DrainStrategy, Node, NodeEvent};
use drover_events::node::*;
use drover_events::{EventId, Guard};
use drover_projections::tables::alloc_jobs::AllocJobs;
use drover_projections::tables::allocs::AllocsByNode;
use drover_projections::tables::host_volumes::HostVolumesByNode;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::node_use::NodeUses;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::{Prefix, ReadRows, Reply, Scan, View};

use super::limits::{MAX_ROWS, NODE};
use super::support::{check_names, evals_of_node, node_event};
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// A client describes its node. The secret is a hash already.
#[derive(Clone, Debug)]
pub struct RegisterNode {
    /// The description; its status counts only for a node that is new (SCH-14).
    pub node: Node,
    /// Whether a missing pool that the node names is created now.
    pub create_node_pool: bool,
}

impl Command for RegisterNode {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let mut node = self.node.clone();
        for (what, value) in [
            ("node ID", &node.id),
            ("datacenter", &node.datacenter),
            ("node name", &node.name),
        ] {
            if value.is_empty() {
                let text = format!("missing {what} for client registration");
                return Err(Refusal::by_rule(text));
            }
        }
        check_names([
            ("node ID", node.id.as_str()),
            ("datacenter", &node.datacenter),
            ("node name", &node.name),
            ("node class", &node.node_class),
            ("node pool", &node.node_pool),
        ])?;
        if !node.status.is_empty() && !status::ALL.contains(&node.status.as_str()) {
            return Err(Refusal::by_rule("invalid status for node"));
        }
        if node.node_pool.is_empty() {
            node.node_pool = drover_events::model::status::DEFAULT_NODE_POOL.to_owned();
        }
        let known = nodes::get(view, &node.id)?;
        let mut evals = Vec::new();
        let event = match &known {
            Some(known) if known.secret_id != node.secret_id => {
                let text = "node secret ID does not match. Not registering node.";
                return Err(Refusal::by_rule(text));
            }
            Some(known) if same_description(known, &node) => {
                return Ok(Decision::Nothing(Reply::None));
            }
            Some(known) if known.status == status::DOWN => Some("Node re-registered"),
            Some(_) => None,
            None => {
                if node.status.is_empty() {
                    node.status = status::INIT.to_owned();
                }
                node.status_updated_at = stamp.now / 1_000_000_000;
                if node.status == status::READY {
                    evals = evals_of_node(view, &node, stamp)?;
                }
                Some("Node registered")
            }
        };
        let guards = vec![view.guard::<Nodes>(node.id.as_str())?];
        let event = event.map(|text| node_event(node_subsystem::CLUSTER, text, stamp.now));
        let create_node_pool = self.create_node_pool;
        Ok(Decision::guarded(
            NodeRegistered {
                node: Box::new(node),
                event,
                create_node_pool,
                evals,
            },
            guards,
        ))
    }
}

/// Whether registering again would change nothing.
fn same_description(known: &Node, node: &Node) -> bool {
    let plain = |node: &Node| {
        let (mut node, _) = nodes::split(node.clone());
        node.create_index = 0;
        node.modify_index = 0;
        node.drain_strategy = None;
        node.last_drain = None;
        node.scheduling_eligibility.clear();
        node.identity_signing_key_id.clear();
        node
    };
    plain(known) == plain(node)
}

/// A node's heartbeat, or a server's word on the node's status.
#[derive(Clone, Debug)]
pub struct UpdateNodeStatus {
    pub node_id: String,
    /// The requested status; what it becomes follows SCH-11 and SCH-13.
    pub status: String,
    /// What is added to the node's events; by default what the transition says.
    pub event: Option<NodeEvent>,
}

impl Command for UpdateNodeStatus {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if !status::ALL.contains(&self.status.as_str()) {
            return Err(Refusal::by_rule("invalid status for node"));
        }
        let node = known(view, &self.node_id)?;
        let becomes = next_status(view, &node, &self.status)?;
        if becomes == node.status && self.event.is_none() {
            return Ok(Decision::Nothing(Reply::None));
        }
        let back = matches!(
            node.status(),
            Some(NodeStatus::Down | NodeStatus::Disconnected)
        ) && matches!(becomes, status::READY | status::INIT);
        let event = self.event.clone().or_else(|| {
            let text = "Node reregistered by heartbeat";
            back.then(|| node_event(node_subsystem::CLUSTER, text, stamp.now))
        });
        let evals = if needs_evals(&node.status, becomes) {
            evals_of_node(view, &node, stamp)?
        } else {
            Vec::new()
        };
        let mut guards = vec![view.guard::<NodeStates>(self.node_id.as_str())?];
        if !evals.is_empty() {
            guards.push(as_used(view, &self.node_id)?);
        }
        let updated = NodeStatusUpdated {
            node_id: self.node_id.clone(),
            status: becomes.to_owned(),
            event,
            updated_at: stamp.now / 1_000_000_000,
            evals,
            ..NodeStatusUpdated::default()
        };
        Ok(Decision::guarded(updated, guards))
    }
}

/// What a status becomes: a node that was disconnected stays `initializing` until it has updated
/// its allocations since (SCH-11, SCH-12), or has none to update (SCH-13).
fn next_status<'a>(view: &View, node: &Node, requested: &'a str) -> Result<&'a str, Refusal> {
    if requested != status::READY {
        return Ok(requested);
    }
    Ok(match node.status() {
        Some(NodeStatus::Disconnected) => status::INIT,
        Some(NodeStatus::Init)
            if node.last_alloc_update_index <= node.last_missed_heartbeat_index
                && has_live_alloc(view, &node.id)? =>
        {
            status::INIT
        }
        Some(NodeStatus::Init | NodeStatus::Ready | NodeStatus::Down) | None => requested,
    })
}

/// Whether anything on the node is not terminal.
fn has_live_alloc(view: &View, node: &str) -> Result<bool, Refusal> {
    let scan = Scan::prefix(Prefix::of::<(drover_projections::Id, bool)>((node, false)));
    Ok(view
        .rows_by::<AllocsByNode>(scan)
        .next()
        .transpose()?
        .is_some())
}

/// Transitions after which jobs are looked at again.
fn needs_evals(from: &str, to: &str) -> bool {
    from != to
        && match NodeStatus::of(to) {
            Some(NodeStatus::Down | NodeStatus::Disconnected) => true,
            Some(NodeStatus::Ready) => true,
            Some(NodeStatus::Init) | None => from == status::DISCONNECTED,
        }
}

/// A node's heartbeat did not come in time: it is down, or disconnected if something on it may wait
/// for its return (SCH-01).
#[derive(Clone, Debug)]
pub struct MissHeartbeat {
    pub node_id: String,
}

impl Command for MissHeartbeat {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let node = known(view, &self.node_id)?;
        let waits = may_wait(view, &node.id, stamp.now)?;
        let is_done = match node.status() {
            Some(NodeStatus::Down) => true,
            Some(NodeStatus::Disconnected) => waits,
            Some(NodeStatus::Init | NodeStatus::Ready) | None => false,
        };
        if is_done {
            return Ok(Decision::Nothing(Reply::None));
        }
        let event = node_event(node_subsystem::CLUSTER, "Node heartbeat missed", stamp.now);
        let command = UpdateNodeStatus {
            node_id: self.node_id.clone(),
            status: if waits {
                status::DISCONNECTED
            } else {
                status::DOWN
            }
            .to_owned(),
            event: Some(event),
        };
        command.decide(view, stamp)
    }

    /// Nothing came from the node since the last thing that happened to it.
    fn cause(&self, view: &View) -> Option<u64> {
        let node = nodes::get(view, &self.node_id).ok()??;
        Some(node.modify_index).filter(|index| *index > 0)
    }
}

/// Whether an allocation that should run there has a window for disconnection that is still open.
fn may_wait(view: &View, node: &str, now: i64) -> Result<bool, Refusal> {
    for row in view.rows_by::<AllocsByNode>(Scan::with_key_prefix::<drover_projections::Id>(node)) {
        let row = row?;
        if row.desired_status != desired::RUN || row.client_terminal() {
            continue;
        }
        let Some(job) = view.get::<AllocJobs>(&row.job_key())? else {
            continue;
        };
        let window = job
            .task_group(&row.task_group)
            .and_then(|g| g.disconnect_lost_after());
        let Some(window) = window.filter(|window| *window > 0) else {
            continue;
        };
        let since = row
            .alloc_states
            .iter()
            .rev()
            .find(|state| state.value == client::UNKNOWN);
        let since = match since {
            Some(state) if row.client_status == client::UNKNOWN => state.time.0,
            _ => now,
        };
        if now < since.saturating_add(window) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An operator sets, changes or ends a node's drain.
#[derive(Clone, Debug, Default)]
pub struct UpdateNodeDrain {
    pub node_id: String,
    /// How to drain; none ends it.
    pub spec: Option<DrainSpec>,
    /// When it ends: whether the node is eligible again.
    pub mark_eligible: bool,
    /// Kept with the drain.
    pub meta: BTreeMap<String, String>,
    /// The caller: the accessor id of the token.
    pub updated_by: String,
}

impl Command for UpdateNodeDrain {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let node = known(view, &self.node_id)?;
        let text = match (&self.spec, &node.drain_strategy) {
            (Some(_), Some(_)) => "Node drain strategy updated",
            (Some(_), None) => "Node drain strategy set",
            (None, _) => "Node drain disabled",
        };
        let started = node
            .drain_strategy
            .as_ref()
            .map_or(Time(stamp.now), |old| old.started_at);
        let drain_strategy = self.spec.as_ref().map(|spec| DrainStrategy {
            deadline: spec.deadline,
            ignore_system_jobs: spec.ignore_system_jobs,
            started_at: started,
            force_deadline: match spec.deadline {
                deadline if deadline > 0 => Time(stamp.now.saturating_add(deadline)),
                _ => Time::default(),
            },
        });
        let returns = self.spec.is_none()
            && self.mark_eligible
            && node.scheduling_eligibility == eligibility::INELIGIBLE;
        let evals = if returns {
            evals_of_node(view, &node, stamp)?
        } else {
            Vec::new()
        };
        let update = DrainUpdate {
            drain_strategy,
            mark_eligible: self.mark_eligible,
            complete: false,
            event: Some(node_event(node_subsystem::DRAIN, text, stamp.now)),
        };
        let updated = NodeDrainUpdated {
            updates: BTreeMap::from([(self.node_id.clone(), update)]),
            updated_at: stamp.now,
            updated_by: self.updated_by.clone(),
            meta: self.kept_meta(&node),
            evals,
        };
        Ok(Decision::guarded(
            updated,
            vec![view.guard::<Nodes>(self.node_id.as_str())?],
        ))
    }
}

impl UpdateNodeDrain {
    /// What is kept with the drain: the notes on a drain that continues, or is called off, are
    /// added to those made when it began.
    fn kept_meta(&self, node: &Node) -> BTreeMap<String, String> {
        let known = node.last_drain.as_ref();
        let known = known.filter(|_| node.drain_strategy.is_some() && !self.meta.is_empty());
        let mut meta = known.map_or_else(BTreeMap::new, |drain| (*drain.meta).clone());
        meta.extend(self.meta.clone());
        meta
    }
}

/// The drainer found nothing left to drain on these nodes.
#[derive(Clone, Debug)]
pub struct CompleteDrains {
    /// The nodes; those that changed since, or are gone, are passed over.
    pub nodes: Vec<DrainedNode>,
}

/// A node on which nothing is left to drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainedNode {
    pub id: String,
    /// The modify index of its description (`nodes`) at which that was found.
    pub modify_index: u64,
    /// Whether its deadline had come.
    pub deadline_reached: bool,
}

impl Command for CompleteDrains {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let mut updates = BTreeMap::new();
        let mut guards = Vec::new();
        for DrainedNode {
            id,
            modify_index,
            deadline_reached,
        } in &self.nodes
        {
            let key = id.as_str();
            let Some(node) = view.get::<Nodes>(key)? else {
                continue;
            };
            if node.drain_strategy.is_none()
                || view.modify_index::<Nodes>(key)? != Some(*modify_index)
            {
                continue;
            }
            let mut event = node_event(node_subsystem::DRAIN, "Node drain complete", stamp.now);
            if *deadline_reached {
                event.details.insert("deadline_reached", "true".to_owned());
            }
            let update = DrainUpdate {
                complete: true,
                event: Some(event),
                ..Default::default()
            };
            updates.insert(id.clone(), update);
            guards.push(view.guard::<Nodes>(key)?);
        }
        if updates.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        let updated = NodeDrainUpdated {
            updates,
            updated_at: stamp.now,
            ..NodeDrainUpdated::default()
        };
        Ok(Decision::guarded(updated, guards))
    }

    /// What ends began with the drains; with several drains, with the first.
    fn cause(&self, _: &View) -> Option<u64> {
        self.nodes.iter().map(|node| node.modify_index).min()
    }
}

/// An operator makes a node eligible or ineligible.
#[derive(Clone, Debug)]
pub struct UpdateNodeEligibility {
    pub node_id: String,
    /// `eligible` or `ineligible`.
    pub eligibility: String,
}

impl Command for UpdateNodeEligibility {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if !eligibility::ALL.contains(&self.eligibility.as_str()) {
            let text = format!("invalid scheduling eligibility \"{}\"", self.eligibility);
            return Err(Refusal::by_rule(text));
        }
        let node = known(view, &self.node_id)?;
        let becomes_eligible = self.eligibility == eligibility::ELIGIBLE;
        if node.drain_strategy.is_some() && becomes_eligible {
            return Err(Refusal::by_rule(
                "can not set node's scheduling eligibility to eligible while it is draining",
            ));
        }
        if node.scheduling_eligibility == self.eligibility {
            return Ok(Decision::Nothing(Reply::None));
        }
        let text = format!("Node marked as {} for scheduling", self.eligibility);
        let evals = if becomes_eligible {
            evals_of_node(view, &node, stamp)?
        } else {
            Vec::new()
        };
        let updated = NodeEligibilityUpdated {
            node_id: self.node_id.clone(),
            eligibility: self.eligibility.clone(),
            event: Some(node_event(node_subsystem::CLUSTER, &text, stamp.now)),
            updated_at: stamp.now,
            evals,
        };
        Ok(Decision::guarded(
            updated,
            vec![view.guard::<Nodes>(self.node_id.as_str())?],
        ))
    }
}

/// Nodes are removed, with evaluations of what ran there; in pages, where more goes with them than
/// one event may write.
#[derive(Clone, Debug)]
pub struct DeregisterNodes {
    pub node_ids: Vec<String>,
}

impl Command for DeregisterNodes {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.node_ids.is_empty() {
            return Err(Refusal::by_rule(
                "missing node IDs for client deregistration",
            ));
        }
        let mut evals: Vec<drover_events::model::Evaluation> = Vec::new();
        let mut jobs = HashSet::new();
        let (mut guards, mut node_ids) = (Vec::new(), Vec::new());
        let (mut rows, mut more) = (0, false);
        for id in &self.node_ids {
            if node_ids.contains(id) {
                continue;
            }
            // With several nodes, those of the page before are gone.
            if self.node_ids.len() > 1 && !view.contains::<Nodes>(id.as_str())? {
                continue;
            }
            let node = known(view, id)?;
            rows += NODE + host_volumes(view, id)?;
            if rows > MAX_ROWS && !node_ids.is_empty() {
                more = true;
                break;
            }
            node_ids.push(id.clone());
            guards.push(view.guard::<Nodes>(id.as_str())?);
            guards.push(as_used(view, id)?);
            for mut made in evals_of_node(view, &node, stamp)? {
                if jobs.insert((made.namespace.clone(), made.job_id.clone())) {
                    made.id = stamp.uuid(evals.len() as u64);
                    evals.push(made);
                }
            }
        }
        if node_ids.is_empty() {
            return Err(Refusal::by_rule("node not found"));
        }
        let event = NodesDeregistered { node_ids, evals };
        Ok(match more {
            true => Decision::Page {
                event: event.into(),
                guards,
            },
            false => Decision::guarded(event, guards),
        })
    }

    fn is_tried(&self) -> bool {
        true
    }
}

/// How many host volumes go with a node, or become unavailable: each is a row more.
fn host_volumes(view: &View, node: &str) -> Result<usize, Refusal> {
    let mut many = 0;
    for row in view.by_index::<HostVolumesByNode>(node) {
        row?;
        many += 1;
    }
    Ok(many)
}

/// A node reports something about itself.
#[derive(Clone, Debug)]
pub struct AddNodeEvents {
    /// By node.
    pub events: BTreeMap<String, Vec<NodeEvent>>,
}

impl Command for AddNodeEvents {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.events.is_empty() {
            return Err(Refusal::by_rule("no node events given"));
        }
        for id in self.events.keys() {
            known(view, id)?;
        }
        Ok(Decision::unguarded(NodeEventsUpserted {
            events: self.events.clone(),
        }))
    }
}

/// What is on the node is what the decision saw there: a plan that places one more in the meantime
/// would have its job left out of the evaluations.
fn as_used(view: &View, id: &str) -> Result<Guard, Refusal> {
    let used = view.get::<NodeUses>(id)?;
    Ok(Guard::NodeMark {
        node: id.to_owned(),
        mark: used.map_or(EventId::ZERO, |used| used.mark),
    })
}

fn known(view: &View, id: &str) -> Result<Node, Refusal> {
    if id.is_empty() {
        return Err(Refusal::by_rule("missing node ID"));
    }
    nodes::get(view, id)?.ok_or_else(|| Refusal::by_rule("node not found"))
}

#[cfg(test)]
#[path = "node_registration_test.rs"]
mod registration_tests;
#[cfg(test)]
#[path = "node_test.rs"]
mod tests;
