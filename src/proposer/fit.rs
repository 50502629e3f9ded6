//! How what is too large for one event is cut.
//!
//! The proposer has every event cut here, whatever command it is from. Lists are cut into parts,
//! which follow one another in the log; evaluations come behind what they follow from. An event
//! that is too large and has no list is refused with the limit it exceeds. Rules that touch many
//! rows of the state are paged by their commands
//! ([`Decision::Page`](crate::commands::Decision::Page)), within the same limits
//! ([`crate::commands::limits`]).

use std::collections::BTreeMap;

use drover_events::alloc::{AllocsDesiredTransitionUpdated, AllocsUpdatedByClient};
use drover_events::eval::{EvalsDeleted, EvalsUpserted};
use drover_events::model::Evaluation;
use drover_events::node::NodesDeregistered;
use drover_events::{Event, Guard};

use crate::commands::limits::{MAX_ROWS, NODE, PAGE_ROWS};
use crate::error::{Code, Refusal};

/// Rows of an evaluation: itself, its job's status and summary, its parent's summary.
const EVAL: usize = 4;
/// Rows of a client's report: the allocation and the rows that count it.
const REPORT: usize = 6;
/// Rows of an allocation that is removed: itself, its specification's count, its job's status.
const REMOVED: usize = 3;
/// Rows beside those of lists: more than any kind needs.
const FIXED: usize = 16;

/// An upper bound of the rows that the event's lists name. A plan is cut by the plan queue; one
/// that is all or nothing has no such limit. Every kind is named: a new one says what it writes.
pub(super) fn rows(event: &Event) -> usize {
    FIXED
        + match event {
            Event::NodeRegistered(ev) => ev.evals.len() * EVAL,
            Event::NodesDeregistered(ev) => ev.node_ids.len() * NODE + ev.evals.len() * EVAL,
            Event::NodeStatusUpdated(ev) => ev.evals.len() * EVAL,
            Event::NodeDrainUpdated(ev) => ev.updates.len() * NODE + ev.evals.len() * EVAL,
            Event::NodeEligibilityUpdated(ev) => ev.evals.len() * EVAL,
            Event::NodeEventsUpserted(ev) => ev.events.len(),
            Event::NodePoolsUpserted(ev) => ev.node_pools.len(),
            Event::NodePoolsDeleted(ev) => ev.names.len(),
            Event::NamespacesUpserted(ev) => ev.namespaces.len(),
            Event::NamespacesDeleted(ev) => ev.names.len(),
            Event::JobRegistered(ev) => {
                let groups = ev.job.task_groups.iter();
                groups.filter(|group| group.scaling.is_some()).count()
            }
            Event::JobsDeregistered(ev) => ev.jobs.len() * 4 + ev.evals.len() * EVAL,
            Event::EvalsUpserted(ev) => ev.evals.len() * EVAL,
            Event::EvalsDeleted(ev) => {
                let evals = ev.eval_ids.len().max(ev.per_page as usize);
                evals * REMOVED + ev.alloc_ids.len() * REMOVED
            }
            Event::AllocsUpdatedByClient(ev) => {
                ev.updates.len() * REPORT + ev.evals.len() * EVAL + ev.nodes.len()
            }
            Event::AllocsDesiredTransitionUpdated(ev) => {
                ev.transitions.len() + ev.evals.len() * EVAL
            }
            Event::DeploymentAllocHealthUpdated(ev) => ev.healthy.len() + ev.unhealthy.len(),
            Event::DeploymentsDeleted(ev) => ev.ids.len(),
            Event::ServiceRegistrationsUpserted(ev) => ev.services.len(),
            Event::ServiceRegistrationsDeleted(ev) => ev.services.len(),
            Event::JobSummariesReconciled(ev) => ev.per_page as usize,
            Event::AclPoliciesUpserted(ev) => ev.policies.len(),
            Event::AclPoliciesDeleted(ev) => ev.names.len(),
            Event::AclTokensUpserted(ev) => ev.tokens.len(),
            Event::AclTokensDeleted(ev) => ev.accessor_ids.len(),
            Event::AclRolesUpserted(ev) => ev.roles.len(),
            Event::AclRolesDeleted(ev) => ev.ids.len(),
            Event::AclAuthMethodsUpserted(ev) => ev.auth_methods.len(),
            Event::AclAuthMethodsDeleted(ev) => ev.names.len(),
            Event::AclBindingRulesUpserted(ev) => ev.binding_rules.len(),
            Event::AclBindingRulesDeleted(ev) => ev.ids.len(),
            Event::OneTimeTokensDeleted(ev) => ev.accessor_ids.len(),
            Event::CsiVolumesRegistered(ev) => ev.volumes.len(),
            Event::CsiVolumeDeregistered(ev) => ev.volume_ids.len(),
            Event::CsiVolumeClaimsApplied(ev) => ev.claims.len(),
            // Cut by the plan queue.
            Event::PlanApplied(_) => 0,
            // One row, or a few.
            Event::LeaderElected(_)
            | Event::VersionBarrierRaised(_)
            | Event::ClusterIdSet(_)
            | Event::ClusterRestored(_)
            | Event::DigestRecorded(_)
            | Event::SchedulerConfigured(_)
            | Event::AutopilotConfigured(_)
            | Event::JobStabilityUpdated(_)
            | Event::JobVersionTagged(_)
            | Event::PeriodicJobLaunched(_)
            | Event::DeploymentStatusUpdated(_)
            | Event::VariableApplied(_)
            | Event::RootKeyUpserted(_)
            | Event::RootKeyDeleted(_)
            | Event::ScalingEventRecorded(_)
            | Event::AclBootstrapped(_)
            | Event::OneTimeTokensUpserted(_)
            | Event::OneTimeTokensExpired(_)
            | Event::CsiVolumeClaimed(_)
            | Event::CsiPluginDeleted(_)
            | Event::HostVolumeRegistered(_)
            | Event::HostVolumeDeleted(_)
            | Event::HostVolumeClaimReleased(_)
            | Event::PublisherLagged(_)
            | Event::PublisherCaughtUp(_) => 0,
            // Its flags, its versions and its policies are bounded where it is decided.
            Event::JobDeregistered(_) => 0,
            // Its canaries are bounded where it is decided.
            Event::DeploymentPromoted(_) => 0,
        }
}

/// An event and what it rests on.
pub(crate) type Part = (Event, Vec<Guard>);

/// Gives the event to `encode`, in parts if it is too large for one; the parts' results in order.
/// `encode` gives back what it refuses. Guards of a list's members go with them, others with the
/// first part.
///
/// # Errors
/// Those of `encode`; 413 or 400 with the limit, for what cannot be cut.
pub(crate) fn fit<T>(
    event: Event,
    guards: Vec<Guard>,
    mut encode: impl FnMut(Event, Vec<Guard>) -> Result<T, (Refusal, Box<Part>)>,
) -> Result<Vec<T>, Refusal> {
    let most = if rows(&event) > MAX_ROWS {
        PAGE_ROWS
    } else {
        MAX_ROWS
    };
    let mut parts = Vec::with_capacity(1);
    let mut todo = vec![(event, guards)];
    while let Some((event, guards)) = todo.pop() {
        let count = rows(&event);
        let (refusal, part) = if count > most {
            (too_many(&event, count), Box::new((event, guards)))
        } else {
            match encode(event, guards) {
                Ok(part) => {
                    parts.push(part);
                    continue;
                }
                Err((error, part)) if error.code == Code::PayloadTooLarge => (error, part),
                Err((error, _)) => return Err(error),
            }
        };
        let (event, guards) = *part;
        let (first, second) = halve(event, guards).ok_or(refusal)?;
        todo.extend([second, first]);
    }
    Ok(parts)
}

/// Refuses an event that writes too many rows, where it cannot be cut.
///
/// # Errors
/// 400 with the limit.
pub(super) fn check_rows(event: &Event) -> Result<(), Refusal> {
    match rows(event) {
        count if count > MAX_ROWS => Err(too_many(event, count)),
        _ => Ok(()),
    }
}

fn too_many(event: &Event, rows: usize) -> Refusal {
    Refusal::bad_request(format!(
        "{} would write {rows} rows, more than the {MAX_ROWS} an event may write",
        event.kind()
    ))
}

/// Two parts of an event that is a list, to be applied in this order; none where it cannot be cut.
/// Guards of a list's members go with them, others with the first part.
pub(super) fn halve(event: Event, guards: Vec<Guard>) -> Option<(Part, Part)> {
    let (first, second) = match event {
        Event::NodeRegistered(mut ev) => {
            let rest = evals_behind(&mut ev.evals)?;
            (Event::NodeRegistered(ev), rest)
        }
        Event::NodeStatusUpdated(mut ev) => {
            let rest = evals_behind(&mut ev.evals)?;
            (Event::NodeStatusUpdated(ev), rest)
        }
        Event::NodeEligibilityUpdated(mut ev) => {
            let rest = evals_behind(&mut ev.evals)?;
            (Event::NodeEligibilityUpdated(ev), rest)
        }
        Event::NodeDrainUpdated(mut ev) => {
            let rest = evals_behind(&mut ev.evals)?;
            (Event::NodeDrainUpdated(ev), rest)
        }
        Event::NodesDeregistered(ev) => return halve_nodes(ev, guards),
        Event::EvalsUpserted(mut ev) => {
            let evals = half(&mut ev.evals)?;
            let decision = ev.decision.clone();
            (
                Event::EvalsUpserted(ev),
                EvalsUpserted { evals, decision }.into(),
            )
        }
        Event::EvalsDeleted(ev) => halve_deleted(*ev)?,
        Event::AllocsUpdatedByClient(ev) => halve_reports(*ev)?,
        Event::AllocsDesiredTransitionUpdated(ev) => return halve_guarded(*ev, guards),
        Event::DeploymentsDeleted(mut ev) => {
            let mut rest = ev.clone();
            rest.ids = half(&mut ev.ids)?;
            (
                Event::DeploymentsDeleted(ev),
                Event::DeploymentsDeleted(rest),
            )
        }
        Event::NodeEventsUpserted(mut ev) => {
            let mut rest = ev.clone();
            rest.events = half_map(&mut ev.events)?;
            (
                Event::NodeEventsUpserted(ev),
                Event::NodeEventsUpserted(rest),
            )
        }
        Event::ServiceRegistrationsUpserted(mut ev) => {
            let mut rest = ev.clone();
            rest.services = half(&mut ev.services)?;
            (
                Event::ServiceRegistrationsUpserted(ev),
                Event::ServiceRegistrationsUpserted(rest),
            )
        }
        Event::ServiceRegistrationsDeleted(mut ev) => {
            let mut rest = ev.clone();
            rest.services = half(&mut ev.services)?;
            ev.node_id.clear();
            (
                Event::ServiceRegistrationsDeleted(ev),
                Event::ServiceRegistrationsDeleted(rest),
            )
        }
        _ => return None,
    };
    Some(((first, guards), (second, Vec::new())))
}

/// The guards of requests, on the drain of a node, hold for all of the requests, or for none.
fn halve_guarded(ev: AllocsDesiredTransitionUpdated, guards: Vec<Guard>) -> Option<(Part, Part)> {
    let (first, second) = halve_requests(ev)?;
    Some(((first, guards.clone()), (second, guards)))
}

/// Each node's guards go with it; evaluations come behind every node.
fn halve_nodes(mut ev: Box<NodesDeregistered>, mut guards: Vec<Guard>) -> Option<(Part, Part)> {
    let whole = guards.len().checked_rem(ev.node_ids.len()) == Some(0);
    let each = guards.len().checked_div(ev.node_ids.len()).unwrap_or(0);
    let mut theirs = Vec::new();
    let rest = match half(&mut ev.node_ids) {
        None => evals_behind(&mut ev.evals)?,
        Some(node_ids) => {
            if whole {
                theirs = guards.split_off(each * ev.node_ids.len());
            }
            let evals = std::mem::take(&mut ev.evals);
            NodesDeregistered { node_ids, evals }.into()
        }
    };
    Some(((Event::NodesDeregistered(ev), guards), (rest, theirs)))
}

/// Allocations go before the evaluations they belong to.
fn halve_deleted(mut ev: EvalsDeleted) -> Option<(Event, Event)> {
    let mut rest = EvalsDeleted {
        eval_ids: Vec::new(),
        alloc_ids: Vec::new(),
        ..ev.clone()
    };
    if !ev.alloc_ids.is_empty() && !ev.eval_ids.is_empty() {
        rest.eval_ids = std::mem::take(&mut ev.eval_ids);
    } else if ev.eval_ids.is_empty() {
        rest.alloc_ids = half(&mut ev.alloc_ids)?;
    } else {
        rest.eval_ids = half(&mut ev.eval_ids)?;
    }
    Some((ev.into(), rest.into()))
}

/// Evaluations come behind every report.
fn halve_reports(mut ev: AllocsUpdatedByClient) -> Option<(Event, Event)> {
    let Some(updates) = half(&mut ev.updates) else {
        let rest = evals_behind(&mut ev.evals)?;
        return Some((ev.into(), rest));
    };
    let rest = AllocsUpdatedByClient {
        updates,
        evals: std::mem::take(&mut ev.evals),
        updated_at: ev.updated_at,
        nodes: ev.nodes.clone(),
    };
    Some((ev.into(), rest.into()))
}

/// Evaluations come behind every request.
fn halve_requests(mut ev: AllocsDesiredTransitionUpdated) -> Option<(Event, Event)> {
    let Some(transitions) = half_map(&mut ev.transitions) else {
        let rest = evals_behind(&mut ev.evals)?;
        return Some((ev.into(), rest));
    };
    let rest = AllocsDesiredTransitionUpdated {
        transitions,
        evals: std::mem::take(&mut ev.evals),
        updated_at: ev.updated_at,
    };
    Some((ev.into(), rest.into()))
}

/// The second half of the evaluations as an event of their own.
fn evals_behind(evals: &mut Vec<Evaluation>) -> Option<Event> {
    let rest = evals.split_off(evals.len() / 2);
    (!rest.is_empty()).then(|| {
        EvalsUpserted {
            evals: rest,
            decision: None,
        }
        .into()
    })
}

fn half<T>(list: &mut Vec<T>) -> Option<Vec<T>> {
    (list.len() > 1).then(|| list.split_off(list.len() / 2))
}

fn half_map<V>(map: &mut BTreeMap<String, V>) -> Option<BTreeMap<String, V>> {
    let middle = map
        .keys()
        .nth(map.len() / 2)
        .filter(|_| map.len() > 1)?
        .clone();
    Some(map.split_off(&middle))
}

#[cfg(test)]
#[path = "fit_test.rs"]
mod tests;
