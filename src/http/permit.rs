//! Which events a caller may see: the one place, used for every event of the stream, and for every
//! change that the audit trail, a cause chain or a comparison of states would show.

use std::sync::Arc;

use drover_events::Topic;
use drover_projections::changes::Change;

use super::gate::{READ_JOB, in_namespace};
use crate::acl::{Acl, NamespaceCapability as Ns, VariableCapability};

/// What a caller may see of what happened.
#[derive(Clone, Debug)]
pub(super) struct Permit(Arc<Acl>);

impl Permit {
    /// What this caller may see.
    pub(super) const fn of(acl: Arc<Acl>) -> Self {
        Self(acl)
    }

    /// Whether no event needs to be checked.
    pub(super) fn sees_all(&self) -> bool {
        self.0.is_management()
    }

    /// Whether the caller may see a change; of what is published under no topic only managers hear.
    pub(super) fn sees_change(&self, change: &Change) -> bool {
        let may = |topic| self.may_see(topic, &change.namespace, Some(&change.stream_keys));
        self.sees_all() || change.topic.is_some_and(may)
    }

    /// Whether the caller may see anything at all, somewhere.
    pub(super) fn sees_something(&self) -> bool {
        let may = |topic: &Topic| self.may_see(*topic, "*", None) && *topic != Topic::Namespace;
        self.sees_all() || Topic::ALL.iter().any(may)
    }

    /// Whether a caller that does not see all may see what has these keys of a topic; without keys,
    /// whether anything of it.
    pub(super) fn may_see(&self, topic: Topic, namespace: &str, keys: Option<&[String]>) -> bool {
        let acl = &self.0;
        // What is in no namespace, though others of its topic are, concerns all of them.
        let within = |any_of: &[Ns]| !namespace.is_empty() && in_namespace(acl, namespace, any_of);
        match topic {
            Topic::Job
            | Topic::Evaluation
            | Topic::Allocation
            | Topic::Deployment
            | Topic::Service
            | Topic::CsiPlugin
            | Topic::JobVersion
            | Topic::JobSummary
            | Topic::PeriodicLaunch => within(READ_JOB),
            Topic::HostVolume | Topic::HostVolumeClaim => within(&[Ns::HostVolumeRead]),
            Topic::CsiVolume => within(&[Ns::CsiReadVolume]),
            Topic::Node => acl.node_read(),
            Topic::Operator | Topic::Cluster | Topic::Configuration => acl.operator_read(),
            Topic::Variable => match keys {
                Some(keys) => keys.first().is_some_and(|path| {
                    acl.variable_allows(namespace, path, VariableCapability::List)
                }),
                None if namespace == "*" => acl.variable_anywhere(),
                None => acl.variable_any(namespace),
            },
            Topic::Namespace => keys.is_none_or(|keys| {
                !keys.is_empty() && keys.iter().all(|name| acl.namespace_visible(name))
            }),
            Topic::NodePool
            | Topic::AclToken
            | Topic::AclPolicy
            | Topic::AclRole
            | Topic::AclAuthMethod
            | Topic::AclBindingRule
            | Topic::AclBootstrap
            | Topic::OneTimeToken
            | Topic::RootKey
            | Topic::Removal
            | Topic::Scaling => false,
        }
    }
}
