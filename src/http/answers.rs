//! What answers hold that is no row of the model, for callers: the command line reads an answer as
//! the type that it was written from.

pub(crate) use super::allocations::write::StopResponse;
pub(crate) use super::autopilot::HealthReply;
pub(crate) use super::deployments::write::DeploymentUpdateResponse;
pub(crate) use super::evaluations::EvalCountResponse;
pub(crate) use super::evaluations::write::EvalDeleteResponse;
pub(crate) use super::jobs::children::{DispatchResponse, ForceResponse};
pub(crate) use super::jobs::shapes::{
    JobDeregisterResponse, JobListStub, JobPlanResponse, JobRegisterResponse, JobScaleStatus,
    JobValidateResponse,
};
pub(crate) use super::log::ConsistencyResponse;
pub(crate) use super::nodes::shapes::{NodeDrainUpdateResponse, NodeListStub};
pub(crate) use super::operator::{
    DigestsResponse, HeldDigest, SchedulerConfigurationResponse, SchedulerSetResponse,
};
pub(crate) use super::projections::Discarded;
pub(crate) use super::search::SearchResponse;
pub(crate) use super::snapshot::RestoreResponse;
pub(crate) use super::volumes::csi::RegisterResponse;
pub(crate) use super::volumes::explain::{Claim, Explained};
pub(crate) use super::volumes::host::HostVolumeResponse;
pub(crate) use super::volumes::provision::{CreateResponse, SnapshotsCreated, SnapshotsResponse};

#[cfg(test)]
pub(crate) use super::stream::testing as stream_lines;
