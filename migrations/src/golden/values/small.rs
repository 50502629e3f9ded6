//! Samples about pools, namespaces, services, variables, keys and scaling.

use drover_events::gojson::Base64;
use drover_events::keyring::*;
use drover_events::model::*;
use drover_events::namespace::*;
use drover_events::node_pool::*;
use drover_events::scaling::*;
use drover_events::service::*;
use drover_events::variable::*;
use drover_events::{Event, EventKind};

use super::super::samples::TIME;
use super::id;
use super::job::scaling_event;

pub(super) fn event(kind: EventKind) -> Option<Event> {
    places(kind).or_else(|| secrets(kind))
}

fn places(kind: EventKind) -> Option<Event> {
    let names = || vec!["gpu".to_owned()];
    Some(match kind {
        EventKind::NodePoolsUpserted => {
            let pool = NodePool {
                name: "gpu".into(),
                description: "cards".into(),
                ..Default::default()
            };
            NodePoolsUpserted {
                node_pools: vec![pool],
            }
            .into()
        }
        EventKind::NodePoolsDeleted => NodePoolsDeleted { names: names() }.into(),
        EventKind::NamespacesUpserted => {
            let namespace = Namespace {
                name: "prod".into(),
                quota: "q".into(),
                ..Default::default()
            };
            NamespacesUpserted {
                namespaces: vec![namespace],
            }
            .into()
        }
        EventKind::NamespacesDeleted => NamespacesDeleted { names: names() }.into(),
        EventKind::ServiceRegistrationsUpserted => {
            let service = ServiceRegistration {
                id: "_svc".into(),
                service_name: "web".into(),
                namespace: "default".into(),
                port: 8080,
                ..Default::default()
            };
            ServiceRegistrationsUpserted {
                services: vec![service],
            }
            .into()
        }
        EventKind::ServiceRegistrationsDeleted => ServiceRegistrationsDeleted {
            services: vec![ServiceKey {
                namespace: "default".into(),
                id: "_svc".into(),
            }],
            node_id: id(10),
        }
        .into(),
        _ => return None,
    })
}

fn secrets(kind: EventKind) -> Option<Event> {
    Some(match kind {
        EventKind::VariableApplied => {
            let var = VariableEncrypted {
                namespace: "default".into(),
                path: "app/db".into(),
                data: Base64::from(vec![1, 2, 3]),
                key_id: id(3),
                modify_index: 12,
                ..Default::default()
            };
            VariableApplied {
                op: VarOp::Cas,
                var,
                ..VariableApplied::default()
            }
            .into()
        }
        EventKind::RootKeyUpserted => {
            let key = RootKeyMeta {
                key_id: id(3),
                algorithm: "aes256-gcm".into(),
                state: "active".into(),
                create_time: TIME,
                ..Default::default()
            };
            RootKeyUpserted {
                key,
                public_key: Base64::from(vec![4; 32]),
                rekey: true,
            }
            .into()
        }
        EventKind::RootKeyDeleted => RootKeyDeleted {
            key_id: id(3),
            force: true,
        }
        .into(),
        EventKind::ScalingEventRecorded => ScalingEventRecorded {
            namespace: "default".into(),
            job_id: "web".into(),
            task_group: "g".into(),
            event: scaling_event(),
        }
        .into(),
        _ => return None,
    })
}
