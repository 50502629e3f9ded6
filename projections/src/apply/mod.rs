//! Apply: from an event to rows. The dispatcher has one arm per kind and no logic.
//!
//! An apply function is total and deterministic: it reads `state` tables through the transaction,
//! writes rows, and returns a reply, or refuses and leaves nothing behind (EV-20). It knows no
//! clock, no randomness and no rule that may change with the code: times, ids and choices are in
//! the event. Guards (`guards`) were checked before it runs. Start reading at [`dispatch`], then
//! `job.rs` and `plan.rs`.
//!
//! It must not know its callers, nor the past, nor readers: it imports the engine's transaction,
//! the tables, the queries that it shares with decisions (`query`), and the pager (`read`).

mod acl;
pub mod alloc;
mod cluster;
mod csi_plugin;
mod csi_volume;
mod deployment;
mod effects;
pub mod eval;
pub(crate) mod guards;
mod host_volume;
mod job;
mod keyring;
mod namespace;
mod node;
mod node_pool;
mod plan;
mod scaling;
mod service;
mod unimplemented;
mod usage;
mod variable;

#[cfg(test)]
mod tests;

use drover_events::Event;

use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};

pub use acl::EXPIRED_PAGE;
pub use eval::DELETE_SCAN_LIMIT;
pub use host_volume::{
    check_immutable_fields as check_host_volume_immutable_fields, in_use as host_volume_in_use,
};
pub use unimplemented::UNIMPLEMENTED;
pub use variable::{check_quota, size as variable_size};

/// What an apply function returns.
type ApplyResult = Result<Reply, Refused>;

/// Applies an event: one arm per kind.
pub fn dispatch(txn: &mut Txn<'_>, ctx: &Ctx, event: &Event) -> Result<Reply, Refused> {
    match event {
        Event::LeaderElected(ev) => cluster::leader_elected(txn, ctx, ev),
        Event::VersionBarrierRaised(ev) => cluster::feature_level_raised(txn, ctx, ev),
        Event::ClusterIdSet(ev) => cluster::id_set(txn, ctx, ev),
        Event::ClusterRestored(ev) => cluster::restored(txn, ctx, ev),
        Event::DigestRecorded(ev) => cluster::digest_recorded(txn, ctx, ev),
        Event::PublisherLagged(ev) => cluster::publisher_lagged(txn, ctx, ev),
        Event::PublisherCaughtUp(ev) => cluster::publisher_caught_up(txn, ctx, ev),
        Event::SchedulerConfigured(ev) => cluster::scheduler_configured(txn, ctx, ev),
        Event::AutopilotConfigured(ev) => cluster::autopilot_configured(txn, ctx, ev),
        Event::NodeRegistered(ev) => node::registered(txn, ctx, ev),
        Event::NodesDeregistered(ev) => node::deregistered(txn, ctx, ev),
        Event::NodeStatusUpdated(ev) => node::status_updated(txn, ctx, ev),
        Event::NodeDrainUpdated(ev) => node::drain_updated(txn, ctx, ev),
        Event::NodeEligibilityUpdated(ev) => node::eligibility_updated(txn, ctx, ev),
        Event::NodeEventsUpserted(ev) => node::events_upserted(txn, ctx, ev),
        Event::NodePoolsUpserted(ev) => node_pool::upserted(txn, ctx, ev),
        Event::NodePoolsDeleted(ev) => node_pool::deleted(txn, ctx, ev),
        Event::NamespacesUpserted(ev) => namespace::upserted(txn, ctx, ev),
        Event::NamespacesDeleted(ev) => namespace::deleted(txn, ctx, ev),
        Event::JobRegistered(ev) => job::registered(txn, ctx, ev),
        Event::JobDeregistered(ev) => job::deregistered(txn, ctx, ev),
        Event::JobsDeregistered(ev) => job::all_deregistered(txn, ctx, ev),
        Event::JobStabilityUpdated(ev) => job::stability_updated(txn, ctx, ev),
        Event::JobVersionTagged(ev) => job::version_tagged(txn, ctx, ev),
        Event::JobSummariesReconciled(ev) => job::summaries_reconciled(txn, ctx, ev),
        Event::PeriodicJobLaunched(ev) => job::launched(txn, ctx, ev),
        Event::EvalsUpserted(ev) => eval::upserted(txn, ctx, ev),
        Event::EvalsDeleted(ev) => eval::deleted(txn, ctx, ev),
        Event::PlanApplied(ev) => plan::applied(txn, ctx, ev),
        Event::AllocsUpdatedByClient(ev) => alloc::updated_by_client(txn, ctx, ev),
        Event::AllocsDesiredTransitionUpdated(ev) => {
            alloc::desired_transition_updated(txn, ctx, ev)
        }
        Event::DeploymentStatusUpdated(ev) => deployment::status_updated(txn, ctx, ev),
        Event::DeploymentPromoted(ev) => deployment::promoted(txn, ctx, ev),
        Event::DeploymentAllocHealthUpdated(ev) => deployment::alloc_health_updated(txn, ctx, ev),
        Event::DeploymentsDeleted(ev) => deployment::deleted(txn, ctx, ev),
        Event::ServiceRegistrationsUpserted(ev) => service::upserted(txn, ctx, ev),
        Event::ServiceRegistrationsDeleted(ev) => service::deleted(txn, ctx, ev),
        Event::VariableApplied(ev) => variable::applied(txn, ctx, ev),
        Event::RootKeyUpserted(ev) => keyring::upserted(txn, ctx, ev),
        Event::RootKeyDeleted(ev) => keyring::deleted(txn, ctx, ev),
        Event::ScalingEventRecorded(ev) => scaling::recorded(txn, ctx, ev),
        Event::AclPoliciesUpserted(ev) => acl::policies_upserted(txn, ctx, ev),
        Event::AclPoliciesDeleted(ev) => acl::policies_deleted(txn, ctx, ev),
        Event::AclTokensUpserted(ev) => acl::tokens_upserted(txn, ctx, ev),
        Event::AclTokensDeleted(ev) => acl::tokens_deleted(txn, ctx, ev),
        Event::AclBootstrapped(ev) => acl::bootstrapped(txn, ctx, ev),
        Event::AclRolesUpserted(ev) => acl::roles_upserted(txn, ctx, ev),
        Event::AclRolesDeleted(ev) => acl::roles_deleted(txn, ctx, ev),
        Event::AclAuthMethodsUpserted(_) => unimplemented::refuse(event.kind()),
        Event::AclAuthMethodsDeleted(_) => unimplemented::refuse(event.kind()),
        Event::AclBindingRulesUpserted(_) => unimplemented::refuse(event.kind()),
        Event::AclBindingRulesDeleted(_) => unimplemented::refuse(event.kind()),
        Event::OneTimeTokensUpserted(ev) => acl::one_time_upserted(txn, ctx, ev),
        Event::OneTimeTokensDeleted(ev) => acl::one_time_deleted(txn, ctx, ev),
        Event::OneTimeTokensExpired(ev) => acl::one_time_expired(txn, ctx, ev),
        Event::CsiVolumesRegistered(ev) => csi_volume::registered(txn, ctx, ev),
        Event::CsiVolumeDeregistered(ev) => csi_volume::deregistered(txn, ctx, ev),
        Event::CsiVolumeClaimed(ev) => csi_volume::claimed(txn, ctx, ev),
        Event::CsiVolumeClaimsApplied(ev) => csi_volume::claims_applied(txn, ctx, ev),
        Event::CsiPluginDeleted(ev) => csi_plugin::deleted(txn, ctx, ev),
        Event::HostVolumeRegistered(ev) => host_volume::registered(txn, ctx, ev),
        Event::HostVolumeDeleted(ev) => host_volume::deleted(txn, ctx, ev),
        Event::HostVolumeClaimReleased(ev) => host_volume::claim_released(txn, ctx, ev),
    }
}
