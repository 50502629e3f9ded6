//! An event that holds many objects, as events that hold one each.
//!
//! A piece is of the same kind as the whole, and valid under its schema: it has all that the event
//! says of itself (times, the plan, the evaluation) and one object of its lists. Of an event that
//! is about one thing and makes evaluations of it, the first piece is the thing without them, and
//! the others name it: together the pieces are about as large as the event, however many they are.

mod lists;

use drover_events::alloc::*;
use drover_events::model::{Evaluation, Node};
use drover_events::node::*;
use drover_events::plan::PlanApplied;
use drover_events::{Event, Topic};

/// One object of an event, as an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The topic of such objects.
    pub topic: Topic,
    /// The object's id or name: its key on the stream.
    pub id: String,
    /// The event with this object alone.
    pub event: Event,
}

/// The pieces of an event, in the order it names them; empty for an event about one object.
pub fn split(event: &Event) -> Vec<Piece> {
    let mut out = Pieces(Vec::new());
    out.of_allocs(event);
    out.of_nodes(event);
    out.of_jobs(event);
    out.of_spaces(event);
    out.of_volumes(event);
    out.of_tokens(event);
    out.of_sign_in(event);
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
            Event::NodeRegistered(e) => self.of_registration(e),
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
                    event: None,
                    updated_at: e.updated_at,
                    identity_signing_key_id: e.identity_signing_key_id.clone(),
                    evals: Vec::new(),
                };
                let node = NodeStatusUpdated {
                    event: e.event.clone(),
                    ..base()
                };
                self.main(Topic::Node, &e.node_id, node);
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
                    event: None,
                    updated_at: e.updated_at,
                    evals: Vec::new(),
                };
                let node = NodeEligibilityUpdated {
                    event: e.event.clone(),
                    ..base()
                };
                self.main(Topic::Node, &e.node_id, node);
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

    fn of_registration(&mut self, e: &NodeRegistered) {
        let node = NodeRegistered {
            node: e.node.clone(),
            event: e.event.clone(),
            create_node_pool: e.create_node_pool,
            evals: Vec::new(),
        };
        self.main(Topic::Node, &e.node.id, node);
        self.evals(&e.evals, |eval| {
            let node = Node {
                id: e.node.id.clone(),
                ..Node::default()
            };
            NodeRegistered {
                node: Box::new(node),
                evals: vec![eval],
                ..Default::default()
            }
        });
    }

    fn of_drains(&mut self, e: &NodeDrainUpdated) {
        let base = || NodeDrainUpdated {
            updated_at: e.updated_at,
            updated_by: e.updated_by.clone(),
            ..Default::default()
        };
        for (id, update) in &e.updates {
            let one = NodeDrainUpdated {
                updates: [(id.clone(), update.clone())].into(),
                meta: e.meta.clone(),
                ..base()
            };
            self.main(Topic::Node, id, one);
        }
        self.evals(&e.evals, |eval| NodeDrainUpdated {
            evals: vec![eval],
            ..base()
        });
    }
}

#[cfg(test)]
#[path = "split_test.rs"]
mod tests;
