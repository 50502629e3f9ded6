//! Which events a subscriber may see: the one place, asked for every event.

use std::sync::Arc;

use drover_events::Topic;

use super::selection::{Headline, Selection};
use crate::acl::{Acl, NamespaceCapability as Ns, VariableCapability};
use crate::error::ApiError;
use crate::http::gate::{READ_JOB, demand, in_namespace};

/// What a caller may see of the stream.
#[derive(Clone, Debug)]
pub(super) struct Permit(Arc<Acl>);

impl Permit {
    /// What this caller may see.
    pub(super) const fn of(acl: Arc<Acl>) -> Self {
        Self(acl)
    }

    /// Whether a caller may see something of every topic that is asked for, in the namespace that
    /// is.
    ///
    /// # Errors
    /// 403.
    pub(super) fn admit(&self, wanted: &Selection) -> Result<(), ApiError> {
        let namespace = wanted.namespace().unwrap_or("*");
        let topics = Topic::ALL.iter().filter(|topic| {
            let bit = topic.bit();
            wanted.topics() & bit != 0
        });
        let mut topics = topics.map(|topic| self.may_see(*topic, namespace, None));
        demand(self.sees_all() || topics.all(|may| may))
    }

    /// Whether no event needs to be asked about.
    pub(super) fn sees_all(&self) -> bool {
        self.0.is_management()
    }

    /// Whether the caller may see this event.
    pub(super) fn sees(&self, event: &Headline<'_>) -> bool {
        let key = event.keys.first().map_or("", String::as_str);
        self.sees_all() || self.may_see(event.topic, event.namespace, Some(key))
    }

    /// Whether an object of a topic may be seen; without a key, whether any may.
    fn may_see(&self, topic: Topic, namespace: &str, key: Option<&str>) -> bool {
        let acl = &self.0;
        let within = |any_of: &[Ns]| in_namespace(acl, namespace, any_of);
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
            Topic::Variable => match key {
                Some(path) => acl.variable_allows(namespace, path, VariableCapability::List),
                None if namespace == "*" => acl.variable_anywhere(),
                None => acl.variable_any(namespace),
            },
            Topic::Namespace => key.is_none_or(|name| acl.namespace_visible(name)),
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
