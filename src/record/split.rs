//! An event that holds many objects, as events that hold one each.
//!
//! A piece is of the same kind as the whole, and valid under its schema: it has all that the event
//! says of itself (times, the plan, the evaluation) and one object of its lists. Of an event that
//! is about one thing and makes evaluations of it, the first piece is the thing without them.

use drover_events::acl::*;
use drover_events::alloc::*;
use drover_events::csi::*;
use drover_events::deployment::DeploymentsDeleted;
use drover_events::eval::*;
use drover_events::job::JobsDeregistered;
use drover_events::model::Evaluation;
use drover_events::namespace::*;
use drover_events::node::*;
use drover_events::node_pool::*;
use drover_events::plan::PlanApplied;
use drover_events::service::*;
use drover_events::{Event, Topic};

/// One object of an event, as an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The topic that tells of such objects.
    pub topic: Topic,
    /// The object's id or name: its key on the stream.
    pub id: String,
    /// The event with this object alone.
    pub event: Event,
}

/// The pieces of an event, in the order it names them; none of an event about one object.
pub fn split(event: &Event) -> Vec<Piece> {
    let mut out = Pieces(Vec::new());
    out.of_allocs(event);
    out.of_nodes(event);
    out.of_rest(event);
    out.of_access(event);
    match out.0.len() {
        1 => Vec::new(),
        _ => out.0,
    }
}

struct Pieces(Vec<Piece>);

impl Pieces {
    fn each<'a, T: Clone + 'a, E: Into<Event>>(
        &mut self,
        topic: Topic,
        list: impl IntoIterator<Item = &'a T>,
        id: impl Fn(&T) -> &str,
        make: impl Fn(T) -> E,
    ) {
        for item in list {
            self.0.push(Piece {
                topic,
                id: id(item).to_owned(),
                event: make(item.clone()).into(),
            });
        }
    }

    fn names<E: Into<Event>>(
        &mut self,
        topic: Topic,
        names: &[String],
        make: impl Fn(String) -> E,
    ) {
        self.each(topic, names, String::as_str, make);
    }

    fn evals<E: Into<Event>>(&mut self, evals: &[Evaluation], make: impl Fn(Evaluation) -> E) {
        self.each(Topic::Evaluation, evals, |eval| &eval.id, make);
    }

    /// The thing an event with evaluations is about.
    fn main<E: Into<Event>>(&mut self, topic: Topic, id: &str, whole: E) {
        self.0.push(Piece {
            topic,
            id: id.to_owned(),
            event: whole.into(),
        });
    }

    fn of_allocs(&mut self, event: &Event) {
        match event {
            Event::AllocsUpdatedByClient(e) => {
                let base = || AllocsUpdatedByClient {
                    updated_at: e.updated_at,
                    ..Default::default()
                };
                self.each(
                    Topic::Allocation,
                    &e.updates,
                    |one| &one.id,
                    |one| AllocsUpdatedByClient {
                        updates: vec![one],
                        ..base()
                    },
                );
                self.evals(&e.evals, |eval| AllocsUpdatedByClient {
                    evals: vec![eval],
                    ..base()
                });
                self.names(Topic::Node, &e.nodes, |id| AllocsUpdatedByClient {
                    nodes: vec![id],
                    ..base()
                });
            }
            Event::AllocsDesiredTransitionUpdated(e) => {
                let base = || AllocsDesiredTransitionUpdated {
                    updated_at: e.updated_at,
                    ..Default::default()
                };
                for (id, transition) in &e.transitions {
                    let transitions = [(id.clone(), transition.clone())].into();
                    let one = AllocsDesiredTransitionUpdated {
                        transitions,
                        ..base()
                    };
                    self.main(Topic::Allocation, id, one);
                }
                self.evals(&e.evals, |eval| AllocsDesiredTransitionUpdated {
                    evals: vec![eval],
                    ..base()
                });
            }
            Event::PlanApplied(e) => self.of_plan(e),
            _ => {}
        }
    }

    fn of_plan(&mut self, e: &PlanApplied) {
        let base = || PlanApplied {
            plan_id: e.plan_id.clone(),
            eval_id: e.eval_id.clone(),
            decision: e.decision.clone(),
            updated_at: e.updated_at,
            ..Default::default()
        };
        self.each(
            Topic::Allocation,
            &e.stopped,
            |one| &one.id,
            |one| PlanApplied {
                stopped: vec![one],
                ..base()
            },
        );
        self.each(
            Topic::Allocation,
            &e.placed,
            |one| &one.alloc.id,
            |one| PlanApplied {
                placed: vec![one],
                ..base()
            },
        );
        self.each(
            Topic::Allocation,
            &e.preempted,
            |one| &one.id,
            |one| PlanApplied {
                preempted: vec![one],
                ..base()
            },
        );
        self.each(
            Topic::Deployment,
            &e.deployment,
            |one| &one.id,
            |one| PlanApplied {
                deployment: Some(one),
                ..base()
            },
        );
        let updates = &e.deployment_updates;
        self.each(
            Topic::Deployment,
            updates,
            |one| &one.deployment_id,
            |one| PlanApplied {
                deployment_updates: vec![one],
                ..base()
            },
        );
        self.evals(&e.evals, |eval| PlanApplied {
            evals: vec![eval],
            ..base()
        });
        self.names(Topic::Node, &e.ineligible_nodes, |id| PlanApplied {
            ineligible_nodes: vec![id],
            ..base()
        });
    }

    fn of_nodes(&mut self, event: &Event) {
        match event {
            Event::NodeRegistered(e) => {
                let base = || NodeRegistered {
                    node: e.node.clone(),
                    event: e.event.clone(),
                    create_node_pool: e.create_node_pool,
                    evals: Vec::new(),
                };
                self.main(Topic::Node, &e.node.id, base());
                self.evals(&e.evals, |eval| NodeRegistered {
                    evals: vec![eval],
                    ..base()
                });
            }
            Event::NodesDeregistered(e) => {
                self.names(Topic::Node, &e.node_ids, |id| NodesDeregistered {
                    node_ids: vec![id],
                    evals: Vec::new(),
                });
                self.evals(&e.evals, |eval| NodesDeregistered {
                    node_ids: Vec::new(),
                    evals: vec![eval],
                });
            }
            Event::NodeStatusUpdated(e) => {
                let base = || NodeStatusUpdated {
                    node_id: e.node_id.clone(),
                    status: e.status.clone(),
                    event: e.event.clone(),
                    updated_at: e.updated_at,
                    identity_signing_key_id: e.identity_signing_key_id.clone(),
                    evals: Vec::new(),
                };
                self.main(Topic::Node, &e.node_id, base());
                self.evals(&e.evals, |eval| NodeStatusUpdated {
                    evals: vec![eval],
                    ..base()
                });
            }
            Event::NodeDrainUpdated(e) => self.of_drains(e),
            Event::NodeEligibilityUpdated(e) => {
                let base = || NodeEligibilityUpdated {
                    node_id: e.node_id.clone(),
                    eligibility: e.eligibility.clone(),
                    event: e.event.clone(),
                    updated_at: e.updated_at,
                    evals: Vec::new(),
                };
                self.main(Topic::Node, &e.node_id, base());
                self.evals(&e.evals, |eval| NodeEligibilityUpdated {
                    evals: vec![eval],
                    ..base()
                });
            }
            Event::NodeEventsUpserted(e) => {
                for (id, events) in &e.events {
                    let events = [(id.clone(), events.clone())].into();
                    self.main(Topic::Node, id, NodeEventsUpserted { events });
                }
            }
            _ => {}
        }
    }

    fn of_drains(&mut self, e: &NodeDrainUpdated) {
        let base = || NodeDrainUpdated {
            updated_at: e.updated_at,
            updated_by: e.updated_by.clone(),
            meta: e.meta.clone(),
            ..Default::default()
        };
        for (id, update) in &e.updates {
            let updates = [(id.clone(), update.clone())].into();
            let one = NodeDrainUpdated { updates, ..base() };
            self.main(Topic::Node, id, one);
        }
        self.evals(&e.evals, |eval| NodeDrainUpdated {
            evals: vec![eval],
            ..base()
        });
    }

    fn of_rest(&mut self, event: &Event) {
        match event {
            Event::EvalsUpserted(e) => self.evals(&e.evals, |eval| EvalsUpserted {
                evals: vec![eval],
                decision: e.decision.clone(),
            }),
            Event::EvalsDeleted(e) => {
                let base = || EvalsDeleted {
                    user_initiated: e.user_initiated,
                    filter_version: e.filter_version,
                    ..Default::default()
                };
                self.names(Topic::Evaluation, &e.eval_ids, |id| EvalsDeleted {
                    eval_ids: vec![id],
                    ..base()
                });
                self.names(Topic::Allocation, &e.alloc_ids, |id| EvalsDeleted {
                    alloc_ids: vec![id],
                    ..base()
                });
            }
            Event::JobsDeregistered(e) => {
                let base = || JobsDeregistered {
                    submit_time: e.submit_time,
                    tracked_versions: e.tracked_versions,
                    ..Default::default()
                };
                self.each(
                    Topic::Job,
                    &e.jobs,
                    |job| &job.job_id,
                    |job| JobsDeregistered {
                        jobs: vec![job],
                        ..base()
                    },
                );
                self.evals(&e.evals, |eval| JobsDeregistered {
                    evals: vec![eval],
                    ..base()
                });
            }
            Event::DeploymentsDeleted(e) => self.names(Topic::Deployment, &e.ids, |id| {
                DeploymentsDeleted { ids: vec![id] }
            }),
            Event::NamespacesUpserted(e) => {
                self.each(
                    Topic::Namespace,
                    &e.namespaces,
                    |one| &one.name,
                    |one| NamespacesUpserted {
                        namespaces: vec![one],
                    },
                );
            }
            Event::NamespacesDeleted(e) => self.names(Topic::Namespace, &e.names, |name| {
                NamespacesDeleted { names: vec![name] }
            }),
            Event::NodePoolsUpserted(e) => {
                self.each(
                    Topic::NodePool,
                    &e.node_pools,
                    |one| &one.name,
                    |one| NodePoolsUpserted {
                        node_pools: vec![one],
                    },
                );
            }
            Event::NodePoolsDeleted(e) => self.names(Topic::NodePool, &e.names, |name| {
                NodePoolsDeleted { names: vec![name] }
            }),
            Event::ServiceRegistrationsUpserted(e) => {
                self.each(
                    Topic::Service,
                    &e.services,
                    |one| &one.id,
                    |one| ServiceRegistrationsUpserted {
                        services: vec![one],
                    },
                );
            }
            // With a node it is a rule: which services those are is not in the event.
            Event::ServiceRegistrationsDeleted(e) if e.node_id.is_empty() => {
                self.each(
                    Topic::Service,
                    &e.services,
                    |one| &one.id,
                    |one| ServiceRegistrationsDeleted {
                        services: vec![one],
                        ..Default::default()
                    },
                );
            }
            Event::CsiVolumesRegistered(e) => {
                self.each(
                    Topic::CsiVolume,
                    &e.volumes,
                    |one| &one.id,
                    |one| CsiVolumesRegistered {
                        volumes: vec![one],
                        timestamp: e.timestamp,
                    },
                );
            }
            Event::CsiVolumeDeregistered(e) => {
                self.names(Topic::CsiVolume, &e.volume_ids, |id| {
                    CsiVolumeDeregistered {
                        namespace: e.namespace.clone(),
                        volume_ids: vec![id],
                        force: e.force,
                    }
                });
            }
            Event::CsiVolumeClaimsApplied(e) => {
                self.each(
                    Topic::CsiVolume,
                    &e.claims,
                    |one| &one.volume_id,
                    |one| CsiVolumeClaimsApplied { claims: vec![one] },
                );
            }
            _ => {}
        }
    }

    fn of_access(&mut self, event: &Event) {
        match event {
            Event::AclPoliciesUpserted(e) => {
                self.each(
                    Topic::AclPolicy,
                    &e.policies,
                    |one| &one.name,
                    |one| AclPoliciesUpserted {
                        policies: vec![one],
                    },
                );
            }
            Event::AclPoliciesDeleted(e) => self.names(Topic::AclPolicy, &e.names, |name| {
                AclPoliciesDeleted { names: vec![name] }
            }),
            Event::AclTokensUpserted(e) => {
                let id = |one: &SealedToken| one.token.accessor_id.clone();
                for token in &e.tokens {
                    let tokens = vec![token.clone()];
                    self.main(Topic::AclToken, &id(token), AclTokensUpserted { tokens });
                }
            }
            Event::AclTokensDeleted(e) => {
                self.names(Topic::AclToken, &e.accessor_ids, |id| AclTokensDeleted {
                    accessor_ids: vec![id],
                })
            }
            Event::AclRolesUpserted(e) => {
                self.each(
                    Topic::AclRole,
                    &e.roles,
                    |one| &one.id,
                    |one| AclRolesUpserted {
                        roles: vec![one],
                        allow_missing_policies: e.allow_missing_policies,
                    },
                );
            }
            Event::AclRolesDeleted(e) => self.names(Topic::AclRole, &e.ids, |id| AclRolesDeleted {
                ids: vec![id],
            }),
            Event::AclAuthMethodsUpserted(e) => {
                self.each(
                    Topic::AclAuthMethod,
                    &e.auth_methods,
                    |one| &one.name,
                    |one| AclAuthMethodsUpserted {
                        auth_methods: vec![one],
                    },
                );
            }
            Event::AclAuthMethodsDeleted(e) => {
                self.names(Topic::AclAuthMethod, &e.names, |name| {
                    AclAuthMethodsDeleted { names: vec![name] }
                });
            }
            Event::AclBindingRulesUpserted(e) => {
                self.each(
                    Topic::AclBindingRule,
                    &e.binding_rules,
                    |one| &one.id,
                    |one| AclBindingRulesUpserted {
                        binding_rules: vec![one],
                        allow_missing_auth_methods: e.allow_missing_auth_methods,
                    },
                );
            }
            Event::AclBindingRulesDeleted(e) => {
                self.names(Topic::AclBindingRule, &e.ids, |id| AclBindingRulesDeleted {
                    ids: vec![id],
                });
            }
            Event::OneTimeTokensDeleted(e) => {
                self.names(Topic::OneTimeToken, &e.accessor_ids, |id| {
                    OneTimeTokensDeleted {
                        accessor_ids: vec![id],
                    }
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_events::EventKind;
    use drover_migrations::golden::samples;
    use serde_json::Value;

    use super::*;
    use crate::record::Payload;

    fn json(event: &Event) -> Value {
        serde_json::to_value(Payload(event)).expect("JSON")
    }

    /// How many objects the lists and maps at the top of a payload hold, by field.
    fn held(payload: &Value) -> Vec<(String, usize)> {
        let fields = payload.as_object().expect("an object");
        let count = |(name, value): (&String, &Value)| {
            let count = match value {
                Value::Array(items) => items.len(),
                Value::Object(fields) if ["Allocs", "Updates"].contains(&name.as_str()) => {
                    fields.len()
                }
                Value::Object(fields) if name == "NodeEvents" => fields.len(),
                _ => return None,
            };
            Some((name.clone(), count))
        };
        fields.iter().filter_map(count).collect()
    }

    /// Doubles what the lists hold, so that every kind that can hold many does.
    fn doubled(kind: EventKind) -> Option<Event> {
        let body = samples::body(kind, kind.version()).expect("a sample");
        let event = drover_migrations::decode(&body).expect("it decodes");
        let mut payload = json(&event.envelope?.event);
        if kind == EventKind::ServiceRegistrationsDeleted {
            payload["NodeID"] = "".into();
        }
        for (_, value) in payload.as_object_mut()?.iter_mut() {
            if let Value::Array(items) = value {
                let again = items.clone();
                items.extend(again);
            }
        }
        Some(Event::deserialize_payload(kind, payload).expect("a payload"))
    }

    /// Lists at the top of an event that is about one object all the same.
    const WHOLE: [&str; 4] = [
        "DeploymentPromoted",
        "DeploymentAllocHealthUpdated",
        "DigestRecorded",
        "ClusterRestored",
    ];

    #[test]
    fn every_event_that_can_hold_many_objects_is_split_and_nothing_is_lost() {
        let mut split_kinds = 0;
        for kind in EventKind::ALL {
            let Some(event) = doubled(*kind) else {
                continue;
            };
            let all = held(&json(&event));
            let wanted: usize = all.iter().map(|(_, count)| count).sum();
            let pieces = split(&event);
            if WHOLE.contains(&kind.name()) || wanted < 2 {
                assert!(pieces.is_empty(), "{kind}");
                continue;
            }
            assert!(
                !pieces.is_empty(),
                "{kind} holds {wanted} objects and is told whole"
            );
            split_kinds += 1;
            let shown: Vec<Value> = pieces.iter().map(|piece| json(&piece.event)).collect();
            for (name, count) in all {
                let lists = shown.iter().flat_map(held);
                let found: usize = lists
                    .filter(|(other, _)| *other == name)
                    .map(|(_, n)| n)
                    .sum();
                let everywhere = found == count * pieces.len();
                assert!(
                    found == count || everywhere,
                    "{kind} {name}: {found} of {count}"
                );
            }
            for piece in &pieces {
                assert_eq!(piece.event.kind(), *kind);
                assert!(
                    !piece.id.is_empty() || piece.topic != Topic::Allocation,
                    "{kind}"
                );
            }
        }
        assert!(split_kinds >= 20, "{split_kinds}");
    }

    #[test]
    fn a_plan_of_one_allocation_stays_whole_and_one_of_two_jobs_does_not() {
        let placed = |id: &str| {
            let mut placed = drover_events::plan::PlacedAlloc::default();
            placed.alloc.id = id.to_owned();
            placed
        };
        let mut plan = PlanApplied {
            eval_id: "e".to_owned(),
            placed: vec![placed("a")],
            ..PlanApplied::default()
        };
        assert!(split(&plan.clone().into()).is_empty());
        plan.placed.push(placed("b"));
        let ids: Vec<String> = split(&plan.into()).into_iter().map(|one| one.id).collect();
        assert_eq!(ids, ["a", "b"]);
    }
}
