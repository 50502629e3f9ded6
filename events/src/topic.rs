//! What the event stream is divided into, and what each kind says there.

use std::fmt;

use crate::kind::EventKind;

/// A topic of the event stream; the text is what subscribers name (`Job:example`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Topic {
    Job = 1,
    Evaluation = 2,
    Allocation = 3,
    Deployment = 4,
    /// Node rows, without their secret.
    Node = 5,
    NodePool = 6,
    /// Service registrations.
    Service = 7,
    /// ACL tokens, without their secret.
    AclToken = 8,
    AclPolicy = 9,
    AclRole = 10,
    /// Sign-in methods, without their secrets.
    AclAuthMethod = 11,
    /// Binding rules of sign-in methods.
    AclBindingRule = 12,
    HostVolume = 13,
    CsiVolume = 14,
    CsiPlugin = 15,
    /// Variables: their metadata, never their items.
    Variable = 16,
    /// What operators do to the cluster itself.
    Operator = 17,
    /// Raft's own entries, leaders, the cluster's identity, barriers and digests. As all that
    /// follow, it is drover's own: Nomad says nothing of these.
    Cluster = 18,
    /// Settings of the scheduler and of autopilot.
    Configuration = 19,
    Namespace = 20,
    /// Marks and names of a job's versions.
    JobVersion = 21,
    /// Summaries that were counted again.
    JobSummary = 22,
    /// Launches of periodic jobs.
    PeriodicLaunch = 23,
    /// Evaluations, deployments and plugins that were removed.
    Removal = 24,
    /// Root keys: their metadata.
    RootKey = 25,
    /// What was recorded about the count of a group.
    Scaling = 26,
    /// The first management token.
    AclBootstrap = 27,
    /// One-time tokens, without their secret.
    OneTimeToken = 28,
    /// Claims on host volumes.
    HostVolumeClaim = 29,
}

impl Topic {
    /// Every topic, in the order of its number.
    pub const ALL: &'static [Topic] = &[
        Topic::Job,
        Topic::Evaluation,
        Topic::Allocation,
        Topic::Deployment,
        Topic::Node,
        Topic::NodePool,
        Topic::Service,
        Topic::AclToken,
        Topic::AclPolicy,
        Topic::AclRole,
        Topic::AclAuthMethod,
        Topic::AclBindingRule,
        Topic::HostVolume,
        Topic::CsiVolume,
        Topic::CsiPlugin,
        Topic::Variable,
        Topic::Operator,
        Topic::Cluster,
        Topic::Configuration,
        Topic::Namespace,
        Topic::JobVersion,
        Topic::JobSummary,
        Topic::PeriodicLaunch,
        Topic::Removal,
        Topic::RootKey,
        Topic::Scaling,
        Topic::AclBootstrap,
        Topic::OneTimeToken,
        Topic::HostVolumeClaim,
    ];

    /// The stored number; never reused.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The topic with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|topic| topic.number() == number)
    }

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::Evaluation => "Evaluation",
            Self::Allocation => "Allocation",
            Self::Deployment => "Deployment",
            Self::Node => "Node",
            Self::NodePool => "NodePool",
            Self::Service => "Service",
            Self::AclToken => "ACLToken",
            Self::AclPolicy => "ACLPolicy",
            Self::AclRole => "ACLRole",
            Self::AclAuthMethod => "ACLAuthMethod",
            Self::AclBindingRule => "ACLBindingRule",
            Self::HostVolume => "HostVolume",
            Self::CsiVolume => "CSIVolume",
            Self::CsiPlugin => "CSIPlugin",
            Self::Variable => "Variable",
            Self::Operator => "Operator",
            Self::Cluster => "Cluster",
            Self::Configuration => "Configuration",
            Self::Namespace => "Namespace",
            Self::JobVersion => "JobVersion",
            Self::JobSummary => "JobSummary",
            Self::PeriodicLaunch => "PeriodicLaunch",
            Self::Removal => "Removal",
            Self::RootKey => "RootKey",
            Self::Scaling => "Scaling",
            Self::AclBootstrap => "ACLBootstrap",
            Self::OneTimeToken => "OneTimeToken",
            Self::HostVolumeClaim => "HostVolumeClaim",
        }
    }

    /// Whether Nomad has no such topic: its clients hear of it only if they name it.
    pub const fn is_own(self) -> bool {
        self.number() > Self::Operator.number()
    }

    /// The topic as a set of one.
    pub const fn bit(self) -> u64 {
        1 << self.number()
    }

    /// The topic a subscriber names.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|topic| topic.name() == name)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a kind says on the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Each changed row of these topics becomes an event of this type.
    Event {
        /// The type field, the same for every row the event changed (EV-01).
        event_type: &'static str,
        /// The topics whose rows the event may change.
        topics: &'static [Topic],
    },
    /// Nothing is published, on purpose (EV-02).
    Nothing,
}

impl EventKind {
    /// The topic of drover's own under which the event itself is published, for the kinds that
    /// Nomad does not publish; `None` for the others, whose changed rows are published.
    pub const fn own_topic(self) -> Option<Topic> {
        Some(match self {
            Self::RaftBlank
            | Self::RaftMembership
            | Self::LeaderElected
            | Self::VersionBarrierRaised
            | Self::ClusterIdSet
            | Self::ClusterRestored
            | Self::DigestRecorded
            | Self::PublisherLagged
            | Self::PublisherCaughtUp => Topic::Cluster,
            Self::SchedulerConfigured | Self::AutopilotConfigured => Topic::Configuration,
            Self::NamespacesUpserted | Self::NamespacesDeleted => Topic::Namespace,
            Self::JobStabilityUpdated | Self::JobVersionTagged => Topic::JobVersion,
            Self::JobSummariesReconciled => Topic::JobSummary,
            Self::PeriodicJobLaunched => Topic::PeriodicLaunch,
            Self::EvalsDeleted | Self::DeploymentsDeleted | Self::CsiPluginDeleted => {
                Topic::Removal
            }
            Self::RootKeyUpserted | Self::RootKeyDeleted => Topic::RootKey,
            Self::ScalingEventRecorded => Topic::Scaling,
            Self::AclBootstrapped => Topic::AclBootstrap,
            Self::OneTimeTokensUpserted
            | Self::OneTimeTokensDeleted
            | Self::OneTimeTokensExpired => Topic::OneTimeToken,
            Self::HostVolumeClaimReleased => Topic::HostVolumeClaim,
            Self::NodeRegistered
            | Self::NodesDeregistered
            | Self::NodeStatusUpdated
            | Self::NodeDrainUpdated
            | Self::NodeEligibilityUpdated
            | Self::NodeEventsUpserted
            | Self::NodePoolsUpserted
            | Self::NodePoolsDeleted
            | Self::JobRegistered
            | Self::JobDeregistered
            | Self::JobsDeregistered
            | Self::EvalsUpserted
            | Self::PlanApplied
            | Self::AllocsUpdatedByClient
            | Self::AllocsDesiredTransitionUpdated
            | Self::DeploymentStatusUpdated
            | Self::DeploymentPromoted
            | Self::DeploymentAllocHealthUpdated
            | Self::ServiceRegistrationsUpserted
            | Self::ServiceRegistrationsDeleted
            | Self::VariableApplied
            | Self::AclPoliciesUpserted
            | Self::AclPoliciesDeleted
            | Self::AclTokensUpserted
            | Self::AclTokensDeleted
            | Self::AclRolesUpserted
            | Self::AclRolesDeleted
            | Self::AclAuthMethodsUpserted
            | Self::AclAuthMethodsDeleted
            | Self::AclBindingRulesUpserted
            | Self::AclBindingRulesDeleted
            | Self::CsiVolumesRegistered
            | Self::CsiVolumeDeregistered
            | Self::CsiVolumeClaimed
            | Self::CsiVolumeClaimsApplied
            | Self::HostVolumeRegistered
            | Self::HostVolumeDeleted => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ev_02_every_kind_is_told_of_under_a_topic_of_nomads_or_one_of_our_own() {
        for kind in EventKind::ALL {
            let own = kind.own_topic();
            assert_eq!(
                own.is_some(),
                kind.publication() == Publication::Nothing,
                "{kind}"
            );
            assert!(own.is_none_or(Topic::is_own), "{kind}");
            if let Publication::Event { topics, .. } = kind.publication() {
                assert!(topics.iter().all(|topic| !topic.is_own()), "{kind}");
            }
        }
    }

    #[test]
    fn ev_01_topics_keep_their_numbers_and_names() {
        for (position, topic) in Topic::ALL.iter().enumerate() {
            assert_eq!(usize::from(topic.number()), position + 1);
            assert_eq!(Topic::from_number(topic.number()), Some(*topic));
            assert_eq!(Topic::from_name(topic.name()), Some(*topic));
        }
        assert_eq!(Topic::from_number(0), None);
        assert_eq!(
            Topic::from_name("job"),
            None,
            "topics are matched by their exact name"
        );
    }
}
