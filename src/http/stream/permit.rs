//! Which events a caller may see: the one place, used for every event of the stream, and for every
//! change that the audit trail, a cause chain or a comparison of states would show.

use std::sync::Arc;

use drover_events::Topic;
use drover_projections::changes::Change;

use super::selection::{Headline, Selection};
use crate::acl::{Acl, NamespaceCapability as Ns, VariableCapability};
use crate::error::Refusal;
use crate::http::gate::{READ_JOB, demand, in_namespace};

/// What a caller may see of the stream.
#[derive(Clone, Debug)]
pub(in crate::http) struct Permit(Arc<Acl>);

impl Permit {
    /// What this caller may see.
    pub(in crate::http) const fn of(acl: Arc<Acl>) -> Self {
        Self(acl)
    }

    /// Whether a caller may see something of every topic that is requested, in the requested
    /// namespace.
    ///
    /// # Errors
    /// 403.
    pub(super) fn admit(&self, wanted: &Selection) -> Result<(), Refusal> {
        let namespace = wanted.namespace().unwrap_or("*");
        let topics = Topic::ALL.iter().filter(|topic| {
            let bit = topic.bit();
            wanted.topics() & bit != 0
        });
        let mut topics = topics.map(|topic| self.may_see(*topic, namespace, None));
        demand(self.sees_all() || topics.all(|may| may))
    }

    /// Whether no event needs to be checked.
    pub(in crate::http) fn sees_all(&self) -> bool {
        self.0.is_management()
    }

    /// Whether the caller may see this event.
    pub(super) fn sees(&self, event: &Headline<'_>) -> bool {
        self.sees_all() || self.may_see(event.topic, event.namespace, Some(event.keys))
    }

    /// Whether the caller may see a change; of what is published under no topic only managers hear.
    pub(in crate::http) fn sees_change(&self, change: &Change) -> bool {
        let may = |topic| self.may_see(topic, &change.namespace, Some(&change.stream_keys));
        self.sees_all() || change.topic.is_some_and(may)
    }

    /// Whether the caller may see anything at all, somewhere.
    pub(in crate::http) fn sees_something(&self) -> bool {
        let may = |topic: &Topic| self.may_see(*topic, "*", None) && *topic != Topic::Namespace;
        self.sees_all() || Topic::ALL.iter().any(may)
    }

    /// Whether what has these keys of a topic may be seen; without keys, whether anything may.
    fn may_see(&self, topic: Topic, namespace: &str, keys: Option<&[String]>) -> bool {
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
