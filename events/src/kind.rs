//! The one registry of kinds: number, name, version now written, since when, what is published.
//!
//! Numbers are for ever: a kind that is no longer written keeps its line. Adding one is a line here, a payload
//! struct, an arm in the dispatcher of apply, frozen bytes, and a line in the change log of `drover-migrations`.

use std::fmt;

use crate::topic::{Publication, Topic};

macro_rules! registry {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal, version $version:literal, since $since:literal;)*) => {
        /// What happened: the registered number and name of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum EventKind {
            $($(#[doc = $doc])* $name = $number,)*
        }

        impl EventKind {
            /// Every kind, in the order of its number.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name,)*];

            /// The kind with this number. 0 is never valid (EV-02).
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The registered name: past tense, the same in every document.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The payload version that is written now; older ones are upcast at decode.
            pub const fn version(self) -> u16 {
                match self {
                    $(Self::$name => $version,)*
                }
            }

            /// The feature level that brought the version now written.
            pub const fn since(self) -> u32 {
                match self {
                    $(Self::$name => $since,)*
                }
            }
        }
    };
}

registry! {
    /// Raft's own blank entry: a new leader's first. It carries no envelope.
    RaftBlank = 1, version 1, since 1;
    /// Raft's own membership entry, in our canonical encoding. It carries no envelope.
    RaftMembership = 2, version 1, since 1;
    /// A server became leader; the first event it proposes.
    LeaderElected = 3, version 1, since 1;
    /// Every server reads this feature level, so it may be written.
    VersionBarrierRaised = 4, version 1, since 1;
    /// The cluster got its identity.
    ClusterIdSet = 5, version 1, since 1;
    /// A verified backup became the base of a new epoch.
    ClusterRestored = 6, version 1, since 1;
    /// A majority agrees on the digests at an index.
    DigestRecorded = 7, version 1, since 1;
    /// The scheduler configuration was set.
    SchedulerConfigured = 8, version 1, since 1;
    /// The autopilot configuration was set.
    AutopilotConfigured = 9, version 1, since 1;
    /// A node registered, or described itself again.
    NodeRegistered = 10, version 1, since 1;
    /// Nodes were removed.
    NodesDeregistered = 11, version 1, since 1;
    /// A node's status changed: a heartbeat came or was missed.
    NodeStatusUpdated = 12, version 1, since 1;
    /// Drains of nodes were set, changed or ended.
    NodeDrainUpdated = 13, version 1, since 1;
    /// A node was made eligible or ineligible for scheduling.
    NodeEligibilityUpdated = 14, version 1, since 1;
    /// Nodes reported something about themselves.
    NodeEventsUpserted = 15, version 1, since 1;
    /// Node pools were created or changed.
    NodePoolsUpserted = 16, version 1, since 1;
    /// Node pools were removed.
    NodePoolsDeleted = 17, version 1, since 1;
    /// Namespaces were created or changed.
    NamespacesUpserted = 18, version 1, since 1;
    /// Namespaces were removed.
    NamespacesDeleted = 19, version 1, since 1;
    /// A job was registered: a new specification, or its first.
    JobRegistered = 20, version 1, since 1;
    /// A job was stopped or purged.
    JobDeregistered = 21, version 1, since 1;
    /// Jobs were stopped or purged together, as garbage collection does.
    JobsDeregistered = 22, version 1, since 1;
    /// A version of a job was marked stable or unstable.
    JobStabilityUpdated = 23, version 1, since 1;
    /// A version of a job got a tag or lost it.
    JobVersionTagged = 24, version 1, since 1;
    /// Job summaries were counted again from jobs and allocations.
    JobSummariesReconciled = 25, version 1, since 1;
    /// A launch slot of a periodic job was taken.
    PeriodicJobLaunched = 26, version 1, since 1;
    /// Evaluations were created or changed.
    EvalsUpserted = 27, version 1, since 1;
    /// Evaluations, and allocations with them, were removed by ids or by rule.
    EvalsDeleted = 28, version 2, since 2;
    /// A scheduling plan was committed.
    PlanApplied = 29, version 1, since 1;
    /// A client reported what became of its allocations.
    AllocsUpdatedByClient = 30, version 1, since 1;
    /// Allocations are to be moved, replaced or restarted.
    AllocsDesiredTransitionUpdated = 31, version 1, since 1;
    /// A deployment's status changed.
    DeploymentStatusUpdated = 32, version 1, since 1;
    /// Canaries of a deployment were promoted.
    DeploymentPromoted = 33, version 1, since 1;
    /// The health of a deployment's allocations was set.
    DeploymentAllocHealthUpdated = 34, version 1, since 1;
    /// Deployments were removed by garbage collection.
    DeploymentsDeleted = 35, version 1, since 1;
    /// Services were registered.
    ServiceRegistrationsUpserted = 36, version 1, since 1;
    /// Services were removed, by id or with their node.
    ServiceRegistrationsDeleted = 37, version 1, since 1;
    /// One operation on one variable (VAR-01).
    VariableApplied = 38, version 1, since 1;
    /// A root key's metadata was written; never its material.
    RootKeyUpserted = 39, version 1, since 1;
    /// A root key was removed.
    RootKeyDeleted = 40, version 1, since 1;
    /// Something about a group's count was recorded.
    ScalingEventRecorded = 41, version 1, since 1;
    /// ACL policies were created or changed.
    AclPoliciesUpserted = 42, version 1, since 1;
    /// ACL policies were removed.
    AclPoliciesDeleted = 43, version 1, since 1;
    /// ACL tokens were created or changed.
    AclTokensUpserted = 44, version 1, since 1;
    /// ACL tokens were removed.
    AclTokensDeleted = 45, version 1, since 1;
    /// The first management token was made.
    AclBootstrapped = 46, version 1, since 1;
    /// ACL roles were created or changed.
    AclRolesUpserted = 47, version 1, since 1;
    /// ACL roles were removed.
    AclRolesDeleted = 48, version 1, since 1;
    /// Sign-in methods were created or changed.
    AclAuthMethodsUpserted = 49, version 1, since 1;
    /// Sign-in methods were removed, with their binding rules.
    AclAuthMethodsDeleted = 50, version 1, since 1;
    /// Binding rules were created or changed.
    AclBindingRulesUpserted = 51, version 1, since 1;
    /// Binding rules were removed.
    AclBindingRulesDeleted = 52, version 1, since 1;
    /// A one-time token was issued.
    OneTimeTokensUpserted = 53, version 1, since 1;
    /// One-time tokens were used up.
    OneTimeTokensDeleted = 54, version 1, since 1;
    /// One-time tokens that ran out by a given time were removed.
    OneTimeTokensExpired = 55, version 1, since 1;
    /// CSI volumes were registered.
    CsiVolumesRegistered = 56, version 1, since 1;
    /// CSI volumes were removed.
    CsiVolumeDeregistered = 57, version 1, since 1;
    /// A claim on a CSI volume was made, moved on or released.
    CsiVolumeClaimed = 58, version 1, since 1;
    /// Several claims in one event; kept for its number, not written (VW-07).
    CsiVolumeClaimsApplied = 59, version 1, since 1;
    /// A CSI plugin left over was removed.
    CsiPluginDeleted = 60, version 1, since 1;
    /// A host volume was created, registered or changed.
    HostVolumeRegistered = 61, version 1, since 1;
    /// A host volume was removed.
    HostVolumeDeleted = 62, version 1, since 1;
    /// A group's claim on a host volume was released.
    HostVolumeClaimReleased = 63, version 1, since 1;
}

impl EventKind {
    /// The number in the log.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The kind of this name, exactly as registered.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Raft's own entries carry no envelope, change no table and are published to nobody.
    pub const fn is_raft_own(self) -> bool {
        matches!(self, Self::RaftBlank | Self::RaftMembership)
    }

    /// What the stream hears of it. Exhaustive: a new kind says what it publishes, or that it is silent.
    pub const fn publication(self) -> Publication {
        match self {
            Self::NodeRegistered => event(
                "NodeRegistration",
                &[
                    Topic::Node,
                    Topic::NodePool,
                    Topic::CsiPlugin,
                    Topic::HostVolume,
                    Topic::Evaluation,
                    Topic::Job,
                ],
            ),
            Self::NodesDeregistered => {
                event("NodeDeregistration", &[Topic::Node, Topic::CsiPlugin])
            }
            Self::NodeStatusUpdated => event(
                "NodeStreamEvent",
                &[Topic::Node, Topic::Evaluation, Topic::Job],
            ),
            Self::NodeDrainUpdated => {
                event("NodeDrain", &[Topic::Node, Topic::Evaluation, Topic::Job])
            }
            Self::NodeEligibilityUpdated => event(
                "NodeEligibility",
                &[Topic::Node, Topic::Evaluation, Topic::Job],
            ),
            Self::NodeEventsUpserted => event("NodeStreamEvent", &[Topic::Node]),
            Self::NodePoolsUpserted => event("NodePoolUpserted", &[Topic::NodePool]),
            Self::NodePoolsDeleted => event("NodePoolDeleted", &[Topic::NodePool]),
            Self::JobRegistered => event(
                "JobRegistered",
                &[
                    Topic::Job,
                    Topic::Evaluation,
                    Topic::Deployment,
                    Topic::CsiPlugin,
                ],
            ),
            Self::JobDeregistered => event(
                "JobDeregistered",
                &[
                    Topic::Job,
                    Topic::Evaluation,
                    Topic::Allocation,
                    Topic::CsiPlugin,
                ],
            ),
            Self::JobsDeregistered => event(
                "JobBatchDeregistered",
                &[Topic::Job, Topic::Evaluation, Topic::CsiPlugin],
            ),
            Self::EvalsUpserted => event("EvaluationUpdated", &[Topic::Evaluation, Topic::Job]),
            Self::PlanApplied => event(
                "PlanResult",
                &[
                    Topic::Allocation,
                    Topic::Evaluation,
                    Topic::Deployment,
                    Topic::Job,
                    Topic::Node,
                ],
            ),
            Self::AllocsUpdatedByClient => event(
                "AllocationUpdated",
                &[
                    Topic::Allocation,
                    Topic::Node,
                    Topic::Evaluation,
                    Topic::Deployment,
                    Topic::Job,
                    Topic::Service,
                    Topic::CsiVolume,
                    Topic::CsiPlugin,
                ],
            ),
            Self::AllocsDesiredTransitionUpdated => event(
                "AllocationUpdateDesiredStatus",
                &[Topic::Allocation, Topic::Evaluation, Topic::Job],
            ),
            Self::DeploymentStatusUpdated => event(
                "DeploymentStatusUpdate",
                &[Topic::Deployment, Topic::Job, Topic::Evaluation],
            ),
            Self::DeploymentPromoted => event(
                "DeploymentPromotion",
                &[
                    Topic::Deployment,
                    Topic::Allocation,
                    Topic::Evaluation,
                    Topic::Job,
                ],
            ),
            Self::DeploymentAllocHealthUpdated => event(
                "DeploymentAllocHealth",
                &[
                    Topic::Deployment,
                    Topic::Allocation,
                    Topic::Job,
                    Topic::Evaluation,
                ],
            ),
            Self::ServiceRegistrationsUpserted => event("ServiceRegistration", &[Topic::Service]),
            Self::ServiceRegistrationsDeleted => event("ServiceDeregistration", &[Topic::Service]),
            Self::VariableApplied => event("VariableUpdated", &[Topic::Variable]),
            Self::AclPoliciesUpserted => event("ACLPolicyUpserted", &[Topic::AclPolicy]),
            Self::AclPoliciesDeleted => event("ACLPolicyDeleted", &[Topic::AclPolicy]),
            Self::AclTokensUpserted => event("ACLTokenUpserted", &[Topic::AclToken]),
            Self::AclTokensDeleted => event("ACLTokenDeleted", &[Topic::AclToken]),
            Self::AclRolesUpserted => event("ACLRoleUpserted", &[Topic::AclRole]),
            Self::AclRolesDeleted => event("ACLRoleDeleted", &[Topic::AclRole]),
            Self::AclAuthMethodsUpserted => event("ACLAuthMethodUpserted", &[Topic::AclAuthMethod]),
            Self::AclAuthMethodsDeleted => event(
                "ACLAuthMethodDeleted",
                &[Topic::AclAuthMethod, Topic::AclBindingRule],
            ),
            Self::AclBindingRulesUpserted => {
                event("ACLBindingRuleUpserted", &[Topic::AclBindingRule])
            }
            Self::AclBindingRulesDeleted => {
                event("ACLBindingRuleDeleted", &[Topic::AclBindingRule])
            }
            Self::CsiVolumesRegistered => event("CSIVolumeRegistered", &[Topic::CsiVolume]),
            Self::CsiVolumeDeregistered => event("CSIVolumeDeregistered", &[Topic::CsiVolume]),
            Self::CsiVolumeClaimed => event("CSIVolumeClaim", &[Topic::CsiVolume]),
            Self::CsiVolumeClaimsApplied => event("CSIVolumeClaim", &[Topic::CsiVolume]),
            Self::HostVolumeRegistered => event("HostVolumeRegistered", &[Topic::HostVolume]),
            Self::HostVolumeDeleted => event("HostVolumeDeleted", &[Topic::HostVolume]),
            Self::RaftBlank
            | Self::RaftMembership
            | Self::LeaderElected
            | Self::VersionBarrierRaised
            | Self::ClusterIdSet
            | Self::ClusterRestored
            | Self::DigestRecorded
            | Self::SchedulerConfigured
            | Self::AutopilotConfigured
            | Self::NamespacesUpserted
            | Self::NamespacesDeleted
            | Self::JobStabilityUpdated
            | Self::JobVersionTagged
            | Self::JobSummariesReconciled
            | Self::PeriodicJobLaunched
            | Self::EvalsDeleted
            | Self::DeploymentsDeleted
            | Self::RootKeyUpserted
            | Self::RootKeyDeleted
            | Self::ScalingEventRecorded
            | Self::AclBootstrapped
            | Self::OneTimeTokensUpserted
            | Self::OneTimeTokensDeleted
            | Self::OneTimeTokensExpired
            | Self::CsiPluginDeleted
            | Self::HostVolumeClaimReleased => Publication::Nothing,
        }
    }
}

const fn event(event_type: &'static str, topics: &'static [Topic]) -> Publication {
    Publication::Event { event_type, topics }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
#[path = "kind_test.rs"]
mod tests;
