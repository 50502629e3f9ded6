//! What happened: one variant per kind, each with the payload that apply needs.

use schemars::{Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::{CodecError, decode_payload, encode_map};
use crate::kind::EventKind;

use crate::acl::*;
use crate::alloc::{AllocsDesiredTransitionUpdated, AllocsUpdatedByClient};
use crate::cluster::*;
use crate::csi::*;
use crate::deployment::*;
use crate::eval::*;
use crate::host_volume::*;
use crate::job::*;
use crate::keyring::*;
use crate::namespace::*;
use crate::node::*;
use crate::node_pool::*;
use crate::plan::PlanApplied;
use crate::scaling::ScalingEventRecorded;
use crate::service::{ServiceRegistrationsDeleted, ServiceRegistrationsUpserted};
use crate::variable::VariableApplied;

macro_rules! events {
    ($($name:ident,)*) => {
        /// An event: the fact that is replicated. Its payload is named as its kind.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event {
            $(
                #[doc = concat!("[`", stringify!($name), "`].")]
                $name(Box<$name>),
            )*
        }

        impl Event {
            /// The registered kind.
            pub const fn kind(&self) -> EventKind {
                match self {
                    $(Self::$name(_) => EventKind::$name,)*
                }
            }

            /// Appends the payload, encoded in the version now written.
            pub fn encode_payload(&self, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
                match self {
                    $(Self::$name(payload) => encode_map(bytes, &**payload, EventKind::$name),)*
                }
            }

            /// Serialises the payload with the names of the API, into any format.
            ///
            /// # Errors
            /// Those of the serializer.
            pub fn serialize_payload<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$name(payload) => payload.serialize(to),)*
                }
            }

            /// Deserialises a payload of the version now written, with the names of the API, from
            /// any format.
            ///
            /// # Errors
            /// Those of the deserializer; Raft's own kinds have no payload.
            pub fn deserialize_payload<'de, D: Deserializer<'de>>(
                kind: EventKind,
                from: D,
            ) -> Result<Self, D::Error> {
                match kind {
                    $(EventKind::$name => {
                        $name::deserialize(from).map(|payload| Self::$name(Box::new(payload)))
                    })*
                    EventKind::RaftBlank | EventKind::RaftMembership => {
                        Err(D::Error::custom(format_args!("{kind} carries no envelope")))
                    }
                }
            }

            /// The JSON Schema of the payload of a kind; Raft's own have none.
            pub fn payload_schema(
                kind: EventKind,
                generator: &mut SchemaGenerator,
            ) -> Option<Schema> {
                match kind {
                    $(EventKind::$name => Some(generator.subschema_for::<$name>()),)*
                    EventKind::RaftBlank | EventKind::RaftMembership => None,
                }
            }

            /// Decodes a payload of the version now written; older ones are upcast in
            /// `drover-migrations`.
            pub fn decode_payload(kind: EventKind, bytes: &[u8]) -> Result<Self, CodecError> {
                match kind {
                    $(EventKind::$name => Ok(Self::$name(Box::new(decode_payload(bytes)?))),)*
                    EventKind::RaftBlank | EventKind::RaftMembership => {
                        Err(CodecError::NoEnvelope(kind))
                    }
                }
            }
        }

        $(
            impl From<$name> for Event {
                fn from(payload: $name) -> Self {
                    Self::$name(Box::new(payload))
                }
            }
        )*
    };
}

events! {
    LeaderElected,
    VersionBarrierRaised,
    ClusterIdSet,
    ClusterRestored,
    DigestRecorded,
    SchedulerConfigured,
    AutopilotConfigured,
    NodeRegistered,
    NodesDeregistered,
    NodeStatusUpdated,
    NodeDrainUpdated,
    NodeEligibilityUpdated,
    NodeEventsUpserted,
    NodePoolsUpserted,
    NodePoolsDeleted,
    NamespacesUpserted,
    NamespacesDeleted,
    JobRegistered,
    JobDeregistered,
    JobsDeregistered,
    JobStabilityUpdated,
    JobVersionTagged,
    JobSummariesReconciled,
    PeriodicJobLaunched,
    EvalsUpserted,
    EvalsDeleted,
    PlanApplied,
    AllocsUpdatedByClient,
    AllocsDesiredTransitionUpdated,
    DeploymentStatusUpdated,
    DeploymentPromoted,
    DeploymentAllocHealthUpdated,
    DeploymentsDeleted,
    ServiceRegistrationsUpserted,
    ServiceRegistrationsDeleted,
    VariableApplied,
    RootKeyUpserted,
    RootKeyDeleted,
    ScalingEventRecorded,
    AclPoliciesUpserted,
    AclPoliciesDeleted,
    AclTokensUpserted,
    AclTokensDeleted,
    AclBootstrapped,
    AclRolesUpserted,
    AclRolesDeleted,
    AclAuthMethodsUpserted,
    AclAuthMethodsDeleted,
    AclBindingRulesUpserted,
    AclBindingRulesDeleted,
    OneTimeTokensUpserted,
    OneTimeTokensDeleted,
    OneTimeTokensExpired,
    CsiVolumesRegistered,
    CsiVolumeDeregistered,
    CsiVolumeClaimed,
    CsiVolumeClaimsApplied,
    CsiPluginDeleted,
    HostVolumeRegistered,
    HostVolumeDeleted,
    HostVolumeClaimReleased,
    PublisherLagged,
    PublisherCaughtUp,
}
