//! Services: nodes register and remove those of their own allocations.

use std::sync::Arc;

use drover_events::model::ServiceRegistration;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::services::Services;
use drover_projections::{StorageError, View};

use super::ClientEndpoints;
use crate::commands::service::{DeleteService, KeepServices, UpsertServices};
use crate::error::Refusal;
use crate::rpc::methods::{ServiceDeleteRequest, ServiceUpsertRequest, WriteResponse};
use crate::rpc::service::Call;
use crate::table_reads::read_apart_from_api;

/// Services, and allocations, of one call: more than a node has.
const MOST: usize = 8_192;

fn few(field: &str, count: usize) -> Result<(), Refusal> {
    if count > MOST {
        let text = format!("{field} has {count} elements; at most {MOST} are accepted at once");
        return Err(Refusal::bad_request(text));
    }
    Ok(())
}

/// Whether these are of allocations on the node that each names, in their namespaces and of their
/// jobs, and none of them is another node's: a node reports what runs on it and nothing else.
fn all_own(view: &View, services: &[ServiceRegistration]) -> Result<bool, StorageError> {
    for service in services {
        let alloc = view.get::<Allocs>(service.alloc_id.as_str())?;
        let own = alloc.is_none_or(|alloc| {
            alloc.node_id == service.node_id
                && alloc.job_id == service.job_id
                && alloc.namespace == service.namespace
        });
        let key = (service.namespace.as_str(), service.id.as_str());
        let known = view.get::<Services>(key)?;
        if !own || known.is_some_and(|known| known.node_id != service.node_id) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `ServiceRegistration.Upsert`.
pub(super) async fn upsert(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: ServiceUpsertRequest,
) -> Result<WriteResponse, Refusal> {
    let first = request.services.first().map(|s| s.node_id.clone());
    let named =
        Some(request.node_id.clone()).filter(|id| !id.is_empty() && !request.allocs.is_empty());
    let Some(node) = first.or(named) else {
        return Err(Refusal::bad_request("no services given"));
    };
    let allowed = endpoints.authorize_node(&call, &node).await?;
    if request.services.iter().any(|s| s.node_id != node) {
        return Err(Refusal::permission_denied());
    }
    few("Services", request.services.len())?;
    let (view, services) = (
        endpoints.server.projections.view(),
        request.services.clone(),
    );
    if !read_apart_from_api(move || all_own(&view, &services)).await?? {
        return Err(Refusal::permission_denied());
    }
    few("Allocs", request.allocs.len())?;
    let keep = KeepServices {
        node_id: node.clone(),
        kept: request.services.iter().map(|s| s.id.clone()).collect(),
        allocs: request.allocs,
    };
    let command = UpsertServices {
        services: request.services,
    };
    let upserted = endpoints.server.submit(&allowed, command).await?;
    let kept = endpoints.server.submit(&allowed, keep).await?;
    Ok(WriteResponse {
        index: upserted.max(kept),
    })
}

/// `ServiceRegistration.DeleteByID`.
pub(super) async fn delete(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: ServiceDeleteRequest,
) -> Result<WriteResponse, Refusal> {
    // A caller that is no node does not learn either whether there is such a registration.
    endpoints.authorize_node(&call, &call.node).await?;
    let (view, key) = (
        endpoints.server.projections.view(),
        (request.namespace.clone(), request.id.clone()),
    );
    let known = read_apart_from_api(move || view.get::<Services>((key.0.as_str(), key.1.as_str())))
        .await??;
    let Some(known) = known else {
        return Err(Refusal::not_found("service registration not found"));
    };
    let command = DeleteService {
        namespace: request.namespace,
        id: request.id,
    };
    let allowed = endpoints.authorize_node(&call, &known.node_id).await?;
    let index = endpoints.server.submit(&allowed, command).await?;
    Ok(WriteResponse { index })
}
