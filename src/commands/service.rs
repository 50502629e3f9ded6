//! Commands about service registrations.

use std::collections::BTreeSet;

use drover_events::model::ServiceRegistration;
use drover_events::model::names::{MAX_NAME, tags_too_long};
use drover_events::service::*;
use drover_projections::tables::allocs;
use drover_projections::tables::services::Services;
use drover_projections::{Reply, View};

use super::limits::PAGE_ROWS;
use super::support::check_names;
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// The longest id of a registration, of the names of a group or task, a service and a port; and of
/// a job that was dispatched.
const MAX_ID: usize = 4 * MAX_NAME;

/// A client registers services of its allocations.
#[derive(Clone, Debug)]
pub struct UpsertServices {
    pub services: Vec<ServiceRegistration>,
}

impl Command for UpsertServices {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.services.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        for service in &self.services {
            if service.id.is_empty() || service.namespace.is_empty() {
                return Err(Refusal::bad_request(
                    "a service registration needs id and namespace",
                ));
            }
            check_sizes(service)?;
        }
        let mut services = Vec::new();
        for service in &self.services {
            if is_news(view, service)? {
                services.push(service.clone());
            }
        }
        if services.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        Ok(Decision::unguarded(ServiceRegistrationsUpserted {
            services,
        }))
    }
}

/// Refuses a registration of which a part is longer than it may be.
fn check_sizes(service: &ServiceRegistration) -> Result<(), Refusal> {
    for (what, text) in [
        ("the id of a service registration", &service.id),
        ("the job of a service registration", &service.job_id),
    ] {
        if text.len() > MAX_ID {
            return Err(Refusal::bad_request(format!(
                "{what} is {} bytes long; at most {MAX_ID} are accepted",
                text.len()
            )));
        }
    }
    if let Some(text) = tags_too_long(&service.tags) {
        return Err(Refusal::bad_request(format!(
            "service registration: {text}"
        )));
    }
    check_names([
        ("service name", service.service_name.as_str()),
        ("datacenter", &service.datacenter),
        (
            "the namespace of a service registration",
            &service.namespace,
        ),
        ("the node of a service registration", &service.node_id),
        (
            "the allocation of a service registration",
            &service.alloc_id,
        ),
        ("the address of a service registration", &service.address),
    ])
}

/// Not registered like that, and of an allocation that did not end: an end takes its services with
/// it, and what comes late would stay for good.
fn is_news(view: &View, service: &ServiceRegistration) -> Result<bool, Refusal> {
    let alloc = allocs::get(view, &service.alloc_id)?;
    if alloc.is_none_or(|alloc| alloc.client_terminal()) {
        return Ok(false);
    }
    let known = view.get::<Services>((service.namespace.as_str(), service.id.as_str()))?;
    Ok(known.is_none_or(|known| {
        let same = ServiceRegistration {
            create_index: known.create_index,
            modify_index: known.modify_index,
            ..service.clone()
        };
        same != known
    }))
}

/// A client has named every service of some of its allocations: its other services are removed.
/// They belong to tasks whose end was not reported, or to a state that was restored.
#[derive(Clone, Debug)]
pub struct KeepServices {
    /// The client's node; what is of another's stays.
    pub node_id: String,
    pub allocs: Vec<String>,
    /// The ids of their services.
    pub kept: BTreeSet<String>,
}

impl Command for KeepServices {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        let mut services = Vec::new();
        for alloc in &self.allocs {
            for known in drover_projections::query::services_of_alloc(view, alloc)? {
                if known.node_id == self.node_id && !self.kept.contains(&known.id) {
                    services.push(ServiceKey {
                        namespace: known.namespace.clone(),
                        id: known.id.clone(),
                    });
                }
            }
        }
        if services.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        Ok(Decision::unguarded(ServiceRegistrationsDeleted {
            services,
            ..ServiceRegistrationsDeleted::default()
        }))
    }
}

/// A service is removed.
#[derive(Clone, Debug)]
pub struct DeleteService {
    pub namespace: String,
    /// The registration.
    pub id: String,
}

impl Command for DeleteService {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        let key = (self.namespace.as_str(), self.id.as_str());
        if !view.contains::<Services>(key)? {
            return Err(Refusal::not_found("service registration not found"));
        }
        let key = ServiceKey {
            namespace: self.namespace.clone(),
            id: self.id.clone(),
        };
        Ok(Decision::unguarded(ServiceRegistrationsDeleted {
            services: vec![key],
            ..ServiceRegistrationsDeleted::default()
        }))
    }
}

/// All services of a node that is gone are removed.
#[derive(Clone, Debug)]
pub struct DeleteServicesOfNode {
    pub node_id: String,
}

impl Command for DeleteServicesOfNode {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        let services = drover_projections::query::services_of_node(view, &self.node_id)?;
        if services.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        if services.len() > PAGE_ROWS {
            let page = services.iter().take(PAGE_ROWS).map(|service| ServiceKey {
                namespace: service.namespace.clone(),
                id: service.id.clone(),
            });
            let event = ServiceRegistrationsDeleted {
                services: page.collect(),
                ..ServiceRegistrationsDeleted::default()
            };
            return Ok(Decision::Page {
                event: event.into(),
                guards: Vec::new(),
            });
        }
        Ok(Decision::unguarded(ServiceRegistrationsDeleted {
            node_id: self.node_id.clone(),
            ..ServiceRegistrationsDeleted::default()
        }))
    }
}
