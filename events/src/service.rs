//! Events about service registrations.

use crate::model::ServiceRegistration;
use crate::wire;

wire! {
    /// Services were registered by a client for its allocations.
    pub struct ServiceRegistrationsUpserted {
        services: Vec<ServiceRegistration> = "Services",
    }

    /// Services were removed: those named, or all of a node.
    pub struct ServiceRegistrationsDeleted {
        services: Vec<ServiceKey> = "Services",
        /// The node whose services go; empty: only those named.
        node_id: String = "NodeID",
    }

    /// The key of a service registration.
    pub struct ServiceKey {
        namespace: String = "Namespace",
        id: String = "ID",
    }
}
