//! The payloads of the samples, a file per group of kinds.

mod acl;
mod cluster;
mod job;
mod node;
mod scheduling;
mod small;
mod volume;

use std::collections::BTreeMap;

use drover_events::{Event, EventKind};

/// The payload to freeze of a kind. None for Raft's own.
pub(super) fn event(kind: EventKind) -> Option<Event> {
    use EventKind as K;
    Some(match kind {
        K::RaftBlank | K::RaftMembership => return None,
        K::LeaderElected
        | K::VersionBarrierRaised
        | K::ClusterIdSet
        | K::ClusterRestored
        | K::DigestRecorded
        | K::PublisherLagged
        | K::PublisherCaughtUp
        | K::SchedulerConfigured
        | K::AutopilotConfigured => cluster::event(kind)?,
        K::NodeRegistered
        | K::NodesDeregistered
        | K::NodeStatusUpdated
        | K::NodeDrainUpdated
        | K::NodeEligibilityUpdated
        | K::NodeEventsUpserted => node::event(kind)?,
        K::JobRegistered
        | K::JobDeregistered
        | K::JobsDeregistered
        | K::JobStabilityUpdated
        | K::JobVersionTagged
        | K::JobSummariesReconciled
        | K::PeriodicJobLaunched => job::event(kind)?,
        K::EvalsUpserted
        | K::EvalsDeleted
        | K::PlanApplied
        | K::AllocsUpdatedByClient
        | K::AllocsDesiredTransitionUpdated
        | K::DeploymentStatusUpdated
        | K::DeploymentPromoted
        | K::DeploymentAllocHealthUpdated
        | K::DeploymentsDeleted => scheduling::event(kind)?,
        K::AclPoliciesUpserted
        | K::AclPoliciesDeleted
        | K::AclTokensUpserted
        | K::AclTokensDeleted
        | K::AclBootstrapped
        | K::AclRolesUpserted
        | K::AclRolesDeleted
        | K::AclAuthMethodsUpserted
        | K::AclAuthMethodsDeleted
        | K::AclBindingRulesUpserted
        | K::AclBindingRulesDeleted
        | K::OneTimeTokensUpserted
        | K::OneTimeTokensDeleted
        | K::OneTimeTokensExpired => acl::event(kind)?,
        K::CsiVolumesRegistered
        | K::CsiVolumeDeregistered
        | K::CsiVolumeClaimed
        | K::CsiVolumeClaimsApplied
        | K::CsiPluginDeleted
        | K::HostVolumeRegistered
        | K::HostVolumeDeleted
        | K::HostVolumeClaimReleased => volume::event(kind)?,
        K::NodePoolsUpserted
        | K::NodePoolsDeleted
        | K::NamespacesUpserted
        | K::NamespacesDeleted
        | K::ServiceRegistrationsUpserted
        | K::ServiceRegistrationsDeleted
        | K::VariableApplied
        | K::RootKeyUpserted
        | K::RootKeyDeleted
        | K::ScalingEventRecorded => small::event(kind)?,
    })
}

fn id(number: u32) -> String {
    format!("5b0cd2c5-0000-4000-8000-{number:012}")
}

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect()
}
