//! What of a row an event shows.

use drover_events::gojson;
use drover_projections::changes::{Change, Operation};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::tables::services::Services;
use drover_projections::tables::variables::Variables;
use drover_projections::view::View;
use drover_projections::{Table, key::Id};
use serde::Serialize;

use crate::error::ApiError;
use crate::http::list::storage;
use crate::http::variables::metadata;

/// The payload of a change as JSON; none for rows that say nothing on the stream.
pub(super) fn payload(view: &View, change: &Change) -> Result<Option<String>, ApiError> {
    let gone = match change.operation {
        Operation::Put => false,
        Operation::Delete => true,
        Operation::Rule => return Ok(None),
    };
    let at = if gone {
        change.index.saturating_sub(1)
    } else {
        change.index
    };
    let deleted = if gone {
        ",\"Deleted\":true"
    } else {
        ",\"Deleted\":false"
    };
    match change.table {
        Jobs::ID => shown(row::<Jobs>(view, change, at)?, "Job", deleted),
        Evals::ID => shown(row::<Evals>(view, change, at)?, "Evaluation", ""),
        Deployments::ID => shown(row::<Deployments>(view, change, at)?, "Deployment", ""),
        NodePools::ID => shown(row::<NodePools>(view, change, at)?, "NodePool", ""),
        Services::ID => shown(row::<Services>(view, change, at)?, "Service", ""),
        Variables::ID => shown(
            row::<Variables>(view, change, at)?.map(metadata),
            "Metadata",
            deleted,
        ),
        Allocs::ID => {
            let alloc =
                row::<Allocs>(view, change, at)?.map(|row| row.alloc.with_summed_resources());
            shown(
                alloc,
                "Allocation",
                ",\"Timeout\":false,\"TimeoutReason\":\"\"",
            )
        }
        Nodes::ID | NodeStates::ID => {
            let id = Id::new(change.stream_keys.first().cloned().unwrap_or_default());
            shown(nodes::get_at(view, &id, at).map_err(storage)?, "Node", "")
        }
        _ => Ok(None),
    }
}

fn row<T: Table>(view: &View, change: &Change, at: u64) -> Result<Option<T::Row>, ApiError> {
    view.get_at_encoded::<T>(&change.key, at).map_err(storage)
}

fn shown<R: Serialize>(row: Option<R>, name: &str, more: &str) -> Result<Option<String>, ApiError> {
    let Some(row) = row else { return Ok(None) };
    let json = gojson::to_vec(&row).map_err(|e| ApiError::internal(e.to_string()))?;
    let json = String::from_utf8(json).map_err(|e| ApiError::internal(e.to_string()))?;
    Ok(Some(format!("{{\"{name}\":{json}{more}}}")))
}
