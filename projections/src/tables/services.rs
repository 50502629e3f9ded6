//! `services`: services registered with the cluster itself.

use drover_events::Topic;
use drover_events::model::ServiceRegistration;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

/// The table; its key is (namespace, id).
pub struct Services;

impl Table for Services {
    const ID: u16 = 27;
    const NAME: &'static str = "services";
    type Key = (String, String);
    type Row = ServiceRegistration;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<ServicesByName>(),
        IndexDef::of::<ServicesByJob>(),
        IndexDef::of::<ServicesByNode>(),
        IndexDef::of::<ServicesByAlloc>(),
    ];

    fn key(row: &ServiceRegistration) -> (String, String) {
        (row.namespace.clone(), row.id.clone())
    }

    fn stream(row: &ServiceRegistration) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::Service,
            &row.namespace,
            &row.id,
            &[&row.job_id, &row.service_name],
        ))
    }
}

/// The registrations of a service (namespace, name).
pub struct ServicesByName;

impl Index for ServicesByName {
    type Table = Services;
    const NO: u8 = 1;
    const NAME: &'static str = "service_name";
    type Group = (String, String);
    type Order = ();

    fn entries(row: &ServiceRegistration, out: &mut Entries) {
        out.add::<Self>((&row.namespace, &row.service_name), ());
    }
}

/// The registrations of a job (namespace, id).
pub struct ServicesByJob;

impl Index for ServicesByJob {
    type Table = Services;
    const NO: u8 = 2;
    const NAME: &'static str = "job";
    type Group = (String, String);
    type Order = ();
    const WATCHED: bool = true;

    fn entries(row: &ServiceRegistration, out: &mut Entries) {
        out.add::<Self>((&row.namespace, &row.job_id), ());
    }
}

/// The registrations on a node.
pub struct ServicesByNode;

impl Index for ServicesByNode {
    type Table = Services;
    const NO: u8 = 3;
    const NAME: &'static str = "node_id";
    type Group = Id;
    type Order = ();

    fn entries(row: &ServiceRegistration, out: &mut Entries) {
        out.add::<Self>(&row.node_id, ());
    }
}

/// The registrations of an allocation.
pub struct ServicesByAlloc;

impl Index for ServicesByAlloc {
    type Table = Services;
    const NO: u8 = 4;
    const NAME: &'static str = "alloc_id";
    type Group = Id;
    type Order = ();

    fn entries(row: &ServiceRegistration, out: &mut Entries) {
        out.add::<Self>(&row.alloc_id, ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_found_by_name_job_node_and_allocation() {
        let row = ServiceRegistration {
            namespace: "default".into(),
            service_name: "web".into(),
            job_id: "shop".into(),
            node_id: "n1".into(),
            alloc_id: "a1".into(),
            ..ServiceRegistration::default()
        };
        let mut wanted = Entries::default();
        wanted.add::<ServicesByName>(("default", "web"), ());
        wanted.add::<ServicesByJob>(("default", "shop"), ());
        wanted.add::<ServicesByNode>("n1", ());
        wanted.add::<ServicesByAlloc>("a1", ());
        assert_eq!(Entries::of::<Services>(&row, b"").list, wanted.list);
    }
}
