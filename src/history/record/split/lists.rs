//! Events that are lists of one sort of thing, or of two.

use drover_events::acl::*;
use drover_events::csi::*;
use drover_events::deployment::DeploymentsDeleted;
use drover_events::eval::*;
use drover_events::job::JobsDeregistered;
use drover_events::namespace::*;
use drover_events::node_pool::*;
use drover_events::service::*;
use drover_events::{Event, Topic};

use super::Pieces;

impl Pieces {
    pub(super) fn of_jobs(&mut self, event: &Event) {
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
            _ => {}
        }
    }

    pub(super) fn of_spaces(&mut self, event: &Event) {
        match event {
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
            _ => {}
        }
    }

    pub(super) fn of_volumes(&mut self, event: &Event) {
        match event {
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

    pub(super) fn of_tokens(&mut self, event: &Event) {
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

    pub(super) fn of_sign_in(&mut self, event: &Event) {
        match event {
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
            _ => {}
        }
    }
}
