//! Changes of nodes: drain, eligibility, evaluation, purge.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::gojson::{List, Map};
use drover_events::model::status::job_type;
use drover_events::model::{DrainSpec, Evaluation, Node};
use drover_projections::tables::allocs::AllocsByNode;
use drover_projections::tables::evals::EvalsByNamespace;
use drover_projections::tables::jobs::{Jobs, JobsByType};
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::tables::nodes;
use drover_projections::{Prefix, Scan, View};

use crate::commands::eval::{UPSERT_PAGE, UpsertEvals};
use crate::commands::node::{DeregisterNodes, UpdateNodeDrain, UpdateNodeEligibility};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::Write;
use crate::http::list::storage;
use crate::http::new_id;
use crate::http::nodes::shapes::{NodeDrainUpdateResponse, NodeUpdateResponse};
use crate::table_reads::glance;

drover_events::wire! {
    /// A drain, or its end.
    struct DrainBody {
        node_id: String = "NodeID",
        drain_spec: Option<DrainSpec> = "DrainSpec",
        mark_eligible: bool = "MarkEligible",
        meta: Map<String> = "Meta",
    }

    /// Whether a node takes new allocations.
    struct EligibilityBody {
        node_id: String = "NodeID",
        eligibility: String = "Eligibility",
    }
}

/// The node in the path, which a body may name as well.
fn node_id(write: &Write, named: &str) -> Result<String, Refusal> {
    let id = write.request.segment(2)?;
    if !named.is_empty() && named != id {
        return Err(Refusal::bad_request("Node ID does not match"));
    }
    Ok(id)
}

/// The evaluations that an event created because of a node.
fn evals_of(write: &Write, node_id: &str, index: u64) -> Result<Vec<Evaluation>, Refusal> {
    let view = write.api.projections.view();
    let mut found = Vec::new();
    for namespace in view.scan::<Namespaces>(Scan::all()) {
        let name = namespace.map_err(storage)?.name;
        let scan = Scan::prefix(Prefix::new().str(&name).u64(index));
        for eval in view.by_index_scan::<EvalsByNamespace>(scan) {
            found.extend(Some(eval.map_err(storage)?).filter(|eval| eval.node_id == node_id));
        }
    }
    Ok(found)
}

/// Their ids; null where there are none.
fn ids(evals: &[Evaluation]) -> List<String> {
    if evals.is_empty() {
        return List::nil();
    }
    evals.iter().map(|eval| eval.id.clone()).collect()
}

fn drained(write: &Write, node_id: &str, index: u64) -> Result<Answer, Refusal> {
    let evals = glance(|| evals_of(write, node_id, index))?;
    let answer = NodeDrainUpdateResponse {
        node_modify_index: index,
        eval_create_index: if evals.is_empty() { 0 } else { index },
        eval_ids: ids(&evals),
        index,
    };
    Ok(Answer::json(&answer)?.written(index))
}

/// `PUT /v1/node/:id/drain`.
pub(in crate::http) async fn drain(write: Write) -> Result<Answer, Refusal> {
    let body: DrainBody = write.json().await?;
    let id = node_id(&write, &body.node_id)?;
    let meta: BTreeMap<String, String> = body.meta.into_map();
    let done = write
        .submit(UpdateNodeDrain {
            node_id: id.clone(),
            spec: body.drain_spec,
            mark_eligible: body.mark_eligible,
            meta,
            updated_by: write.request.identity.actor.id.clone(),
        })
        .await?;
    drained(&write, &id, done.index)
}

/// `PUT /v1/node/:id/eligibility`.
pub(in crate::http) async fn eligibility(write: Write) -> Result<Answer, Refusal> {
    let body: EligibilityBody = write.json().await?;
    let id = node_id(&write, &body.node_id)?;
    let command = UpdateNodeEligibility {
        node_id: id.clone(),
        eligibility: body.eligibility,
    };
    let done = write.submit(command).await?;
    drained(&write, &id, done.index)
}

/// `PUT /v1/node/:id/purge`.
pub(in crate::http) async fn purge(write: Write) -> Result<Answer, Refusal> {
    let id = node_id(&write, "")?;
    let view = write.api.projections.view();
    if glance(|| nodes::get(&view, &id))
        .map_err(storage)?
        .is_none()
    {
        return Err(Refusal::by_rule("node not found"));
    }
    drop(view);
    let index = write
        .submit(DeregisterNodes {
            node_ids: vec![id.clone()],
        })
        .await?
        .index;
    let evals = glance(|| evals_of(&write, &id, index))?;
    let answer = NodeUpdateResponse {
        node_modify_index: index,
        eval_create_index: if evals.is_empty() { 0 } else { index },
        eval_ids: ids(&evals),
        index,
        ..NodeUpdateResponse::default()
    };
    Ok(Answer::json(&answer)?.written(index))
}

/// `PUT /v1/node/:id/evaluate`: every job with allocations on the node is looked at again, and
/// every system job.
pub(in crate::http) async fn evaluate(write: Write) -> Result<Answer, Refusal> {
    let id = node_id(&write, "")?;
    let view = write.api.projections.view();
    let node = glance(|| nodes::get(&view, &id)).map_err(storage)?;
    let node = node.ok_or_else(|| Refusal::by_rule("node not found"))?;
    let evals = glance(|| evals_for(&view, &node))?;
    drop(view);
    let mut answer = NodeUpdateResponse {
        node_modify_index: node.modify_index,
        eval_ids: ids(&evals),
        ..NodeUpdateResponse::default()
    };
    for page in evals.chunks(UPSERT_PAGE) {
        let command = UpsertEvals {
            evals: page.to_vec(),
            decision: None,
        };
        answer.index = write.submit(command).await?.index;
        answer.eval_create_index = answer.index;
    }
    Ok(Answer::json(&answer)?.written(answer.index.max(node.modify_index)))
}

fn evals_for(view: &View, node: &Node) -> Result<Vec<Evaluation>, Refusal> {
    let mut keys = BTreeSet::new();
    for alloc in view.by_index::<AllocsByNode>(node.id.as_str()) {
        let alloc = alloc.map_err(storage)?;
        keys.insert((alloc.alloc.namespace, alloc.alloc.job_id));
    }
    for kind in [job_type::SYSTEM, job_type::SYSBATCH] {
        for job in view.by_index::<JobsByType>(kind) {
            let job = job.map_err(storage)?;
            keys.insert((job.namespace, job.id));
        }
    }
    let mut evals = Vec::new();
    for (namespace, id) in keys {
        if let Some(job) = view
            .get::<Jobs>((namespace.as_str(), id.as_str()))
            .map_err(storage)?
        {
            evals.push(Evaluation::for_node(
                new_id(),
                &job,
                &node.id,
                node.modify_index,
            ));
        }
    }
    Ok(evals)
}
