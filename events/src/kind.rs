//! The one registry of kinds: number, name, version now written, since when, what is published.
//!
//! Numbers are for ever: a kind that is no longer written keeps its line. Adding one is a line
//! here, a payload struct, an arm in the dispatcher of apply, frozen bytes, and a line in the
//! change log of `drover-migrations`.

use std::fmt;

use crate::topic::{Publication, Topic};

macro_rules! registry {
    (@ silent) => { Publication::Nothing };
    (@ $type:literal: [$($topic:ident),*]) => { event($type, &[$(Topic::$topic),*]) };
    ($(
        $(#[doc = $doc:literal])*
        $name:ident = $number:literal, version $version:literal, since $since:literal,
        $($type:literal: [$($topic:ident),*])? $($silent:ident)?;
    )*) => {
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

            /// What the stream hears of it: every line says so, or says that it is silent.
            pub const fn publication(self) -> Publication {
                match self {
                    $(Self::$name => registry!(@ $($type: [$($topic),*])? $($silent)?),)*
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
    RaftBlank = 1, version 1, since 1, silent;
    /// Raft's own membership entry, in our canonical encoding. It carries no envelope.
    RaftMembership = 2, version 1, since 1, silent;
    /// A server became leader; the first event it proposes.
    LeaderElected = 3, version 1, since 1, silent;
    /// Every server reads this feature level, so it may be written.
    VersionBarrierRaised = 4, version 1, since 1, silent;
    /// The cluster got its identity.
    ClusterIdSet = 5, version 1, since 1, silent;
    /// A verified backup became the base of a new epoch.
    ClusterRestored = 6, version 1, since 1, silent;
    /// A majority agrees on the digests at an index.
    DigestRecorded = 7, version 1, since 1, silent;
    /// The scheduler configuration was set.
    SchedulerConfigured = 8, version 1, since 1, silent;
    /// The autopilot configuration was set.
    AutopilotConfigured = 9, version 1, since 1, silent;
    /// A node registered, or described itself again.
    NodeRegistered = 10, version 1, since 1,
        "NodeRegistration": [Node, NodePool, CsiPlugin, HostVolume, Evaluation, Job];
    /// Nodes were removed.
    NodesDeregistered = 11, version 1, since 1,
        "NodeDeregistration": [Node, CsiPlugin, Evaluation, Job];
    /// A node's status changed: a heartbeat came or was missed.
    NodeStatusUpdated = 12, version 1, since 1, "NodeStreamEvent": [Node, Evaluation, Job];
    /// Drains of nodes were set, changed or ended.
    NodeDrainUpdated = 13, version 1, since 1, "NodeDrain": [Node, Evaluation, Job];
    /// A node was made eligible or ineligible for scheduling.
    NodeEligibilityUpdated = 14, version 1, since 1, "NodeEligibility": [Node, Evaluation, Job];
    /// Nodes reported something about themselves.
    NodeEventsUpserted = 15, version 1, since 1, "NodeStreamEvent": [Node];
    /// Node pools were created or changed.
    NodePoolsUpserted = 16, version 1, since 1, "NodePoolUpserted": [NodePool];
    /// Node pools were removed.
    NodePoolsDeleted = 17, version 1, since 1, "NodePoolDeleted": [NodePool];
    /// Namespaces were created or changed.
    NamespacesUpserted = 18, version 1, since 1, silent;
    /// Namespaces were removed.
    NamespacesDeleted = 19, version 1, since 1, silent;
    /// A job was registered: a new specification, or its first.
    JobRegistered = 20, version 1, since 1,
        "JobRegistered": [Job, Evaluation, Deployment, CsiPlugin];
    /// A job was stopped or purged.
    JobDeregistered = 21, version 1, since 1,
        "JobDeregistered": [Job, Evaluation, Allocation, CsiPlugin];
    /// Jobs were stopped or purged together, as garbage collection does.
    JobsDeregistered = 22, version 1, since 1, "JobBatchDeregistered": [Job, Evaluation, CsiPlugin];
    /// A version of a job was marked stable or unstable.
    JobStabilityUpdated = 23, version 1, since 1, silent;
    /// A version of a job got a tag or lost it.
    JobVersionTagged = 24, version 1, since 1, silent;
    /// Job summaries were counted again from jobs and allocations.
    JobSummariesReconciled = 25, version 1, since 1, silent;
    /// A launch slot of a periodic job was taken.
    PeriodicJobLaunched = 26, version 1, since 1, silent;
    /// Evaluations were created or changed.
    EvalsUpserted = 27, version 1, since 1, "EvaluationUpdated": [Evaluation, Job];
    /// Evaluations, and allocations with them, were removed by ids or by rule.
    EvalsDeleted = 28, version 2, since 2, silent;
    /// A scheduling plan was committed.
    PlanApplied = 29, version 1, since 1,
        "PlanResult": [Allocation, Evaluation, Deployment, Job, Node];
    /// A client reported what became of its allocations.
    AllocsUpdatedByClient = 30, version 1, since 1,
        "AllocationUpdated": [Allocation, Node, Evaluation, Deployment, Job, Service, CsiVolume,
        CsiPlugin];
    /// Allocations are to be moved, replaced or restarted.
    AllocsDesiredTransitionUpdated = 31, version 1, since 1,
        "AllocationUpdateDesiredStatus": [Allocation, Evaluation, Job];
    /// A deployment's status changed.
    DeploymentStatusUpdated = 32, version 1, since 1,
        "DeploymentStatusUpdate": [Deployment, Job, Evaluation];
    /// Canaries of a deployment were promoted.
    DeploymentPromoted = 33, version 1, since 1,
        "DeploymentPromotion": [Deployment, Allocation, Evaluation, Job];
    /// The health of a deployment's allocations was set.
    DeploymentAllocHealthUpdated = 34, version 1, since 1,
        "DeploymentAllocHealth": [Deployment, Allocation, Job, Evaluation];
    /// Deployments were removed by garbage collection.
    DeploymentsDeleted = 35, version 1, since 1, silent;
    /// Services were registered.
    ServiceRegistrationsUpserted = 36, version 1, since 1, "ServiceRegistration": [Service];
    /// Services were removed, by id or with their node.
    ServiceRegistrationsDeleted = 37, version 1, since 1, "ServiceDeregistration": [Service];
    /// One operation on one variable (VAR-01).
    VariableApplied = 38, version 1, since 1, "VariableUpdated": [Variable];
    /// A root key's metadata was written; never its material.
    RootKeyUpserted = 39, version 1, since 1, silent;
    /// A root key was removed.
    RootKeyDeleted = 40, version 1, since 1, silent;
    /// Something about a group's count was recorded.
    ScalingEventRecorded = 41, version 1, since 1, silent;
    /// ACL policies were created or changed.
    AclPoliciesUpserted = 42, version 1, since 1, "ACLPolicyUpserted": [AclPolicy];
    /// ACL policies were removed.
    AclPoliciesDeleted = 43, version 1, since 1, "ACLPolicyDeleted": [AclPolicy];
    /// ACL tokens were created or changed.
    AclTokensUpserted = 44, version 1, since 1, "ACLTokenUpserted": [AclToken];
    /// ACL tokens were removed.
    AclTokensDeleted = 45, version 1, since 1, "ACLTokenDeleted": [AclToken];
    /// The first management token was made.
    AclBootstrapped = 46, version 1, since 1, silent;
    /// ACL roles were created or changed.
    AclRolesUpserted = 47, version 1, since 1, "ACLRoleUpserted": [AclRole];
    /// ACL roles were removed.
    AclRolesDeleted = 48, version 1, since 1, "ACLRoleDeleted": [AclRole];
    /// Sign-in methods were created or changed.
    AclAuthMethodsUpserted = 49, version 1, since 1, "ACLAuthMethodUpserted": [AclAuthMethod];
    /// Sign-in methods were removed, with their binding rules.
    AclAuthMethodsDeleted = 50, version 1, since 1,
        "ACLAuthMethodDeleted": [AclAuthMethod, AclBindingRule];
    /// Binding rules were created or changed.
    AclBindingRulesUpserted = 51, version 1, since 1, "ACLBindingRuleUpserted": [AclBindingRule];
    /// Binding rules were removed.
    AclBindingRulesDeleted = 52, version 1, since 1, "ACLBindingRuleDeleted": [AclBindingRule];
    /// A one-time token was issued.
    OneTimeTokensUpserted = 53, version 1, since 1, silent;
    /// One-time tokens were used up.
    OneTimeTokensDeleted = 54, version 1, since 1, silent;
    /// One-time tokens that ran out by a given time were removed.
    OneTimeTokensExpired = 55, version 1, since 1, silent;
    /// CSI volumes were registered.
    CsiVolumesRegistered = 56, version 2, since 3, "CSIVolumeRegistered": [CsiVolume];
    /// CSI volumes were removed.
    CsiVolumeDeregistered = 57, version 2, since 3, "CSIVolumeDeregistered": [CsiVolume];
    /// A claim on a CSI volume was made, moved on or released.
    CsiVolumeClaimed = 58, version 2, since 3, "CSIVolumeClaim": [CsiVolume];
    /// Several claims in one event; kept for its number, not written (VW-07).
    CsiVolumeClaimsApplied = 59, version 2, since 3, "CSIVolumeClaim": [CsiVolume];
    /// A CSI plugin left over was removed.
    CsiPluginDeleted = 60, version 1, since 1, silent;
    /// A host volume was created, registered or changed.
    HostVolumeRegistered = 61, version 1, since 1, "HostVolumeRegistered": [HostVolume];
    /// A host volume was removed.
    HostVolumeDeleted = 62, version 1, since 1, "HostVolumeDeleted": [HostVolume];
    /// A group's claim on a host volume was released.
    HostVolumeClaimReleased = 63, version 1, since 1, silent;
    /// A publisher of events fell behind the log.
    PublisherLagged = 64, version 1, since 4, silent;
    /// A publisher of events that had fallen behind has caught up.
    PublisherCaughtUp = 65, version 1, since 4, silent;
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

    /// Raft's own entries carry no envelope, change no table and are not published.
    pub const fn is_raft_own(self) -> bool {
        matches!(self, Self::RaftBlank | Self::RaftMembership)
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
