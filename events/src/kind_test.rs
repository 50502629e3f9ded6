use super::*;

/// Number, name and version of every kind ever registered. A line is added, never changed
/// (but for the version, together with frozen bytes of the old one).
const PINNED: &[(u16, &str, u16)] = &[
    (1, "RaftBlank", 1),
    (2, "RaftMembership", 1),
    (3, "LeaderElected", 1),
    (4, "VersionBarrierRaised", 1),
    (5, "ClusterIdSet", 1),
    (6, "ClusterRestored", 1),
    (7, "DigestRecorded", 1),
    (8, "SchedulerConfigured", 1),
    (9, "AutopilotConfigured", 1),
    (10, "NodeRegistered", 1),
    (11, "NodesDeregistered", 1),
    (12, "NodeStatusUpdated", 1),
    (13, "NodeDrainUpdated", 1),
    (14, "NodeEligibilityUpdated", 1),
    (15, "NodeEventsUpserted", 1),
    (16, "NodePoolsUpserted", 1),
    (17, "NodePoolsDeleted", 1),
    (18, "NamespacesUpserted", 1),
    (19, "NamespacesDeleted", 1),
    (20, "JobRegistered", 1),
    (21, "JobDeregistered", 1),
    (22, "JobsDeregistered", 1),
    (23, "JobStabilityUpdated", 1),
    (24, "JobVersionTagged", 1),
    (25, "JobSummariesReconciled", 1),
    (26, "PeriodicJobLaunched", 1),
    (27, "EvalsUpserted", 1),
    (28, "EvalsDeleted", 2),
    (29, "PlanApplied", 1),
    (30, "AllocsUpdatedByClient", 1),
    (31, "AllocsDesiredTransitionUpdated", 1),
    (32, "DeploymentStatusUpdated", 1),
    (33, "DeploymentPromoted", 1),
    (34, "DeploymentAllocHealthUpdated", 1),
    (35, "DeploymentsDeleted", 1),
    (36, "ServiceRegistrationsUpserted", 1),
    (37, "ServiceRegistrationsDeleted", 1),
    (38, "VariableApplied", 1),
    (39, "RootKeyUpserted", 1),
    (40, "RootKeyDeleted", 1),
    (41, "ScalingEventRecorded", 1),
    (42, "AclPoliciesUpserted", 1),
    (43, "AclPoliciesDeleted", 1),
    (44, "AclTokensUpserted", 1),
    (45, "AclTokensDeleted", 1),
    (46, "AclBootstrapped", 1),
    (47, "AclRolesUpserted", 1),
    (48, "AclRolesDeleted", 1),
    (49, "AclAuthMethodsUpserted", 1),
    (50, "AclAuthMethodsDeleted", 1),
    (51, "AclBindingRulesUpserted", 1),
    (52, "AclBindingRulesDeleted", 1),
    (53, "OneTimeTokensUpserted", 1),
    (54, "OneTimeTokensDeleted", 1),
    (55, "OneTimeTokensExpired", 1),
    (56, "CsiVolumesRegistered", 2),
    (57, "CsiVolumeDeregistered", 2),
    (58, "CsiVolumeClaimed", 2),
    (59, "CsiVolumeClaimsApplied", 2),
    (60, "CsiPluginDeleted", 1),
    (61, "HostVolumeRegistered", 1),
    (62, "HostVolumeDeleted", 1),
    (63, "HostVolumeClaimReleased", 1),
    (64, "PublisherLagged", 1),
    (65, "PublisherCaughtUp", 1),
];

/// The kinds that the stream does not publish.
const SILENT: &[&str] = &[
    "RaftBlank",
    "RaftMembership",
    "LeaderElected",
    "VersionBarrierRaised",
    "ClusterIdSet",
    "ClusterRestored",
    "DigestRecorded",
    "SchedulerConfigured",
    "AutopilotConfigured",
    "NamespacesUpserted",
    "NamespacesDeleted",
    "JobStabilityUpdated",
    "JobVersionTagged",
    "JobSummariesReconciled",
    "PeriodicJobLaunched",
    "EvalsDeleted",
    "DeploymentsDeleted",
    "RootKeyUpserted",
    "RootKeyDeleted",
    "ScalingEventRecorded",
    "AclBootstrapped",
    "OneTimeTokensUpserted",
    "OneTimeTokensDeleted",
    "OneTimeTokensExpired",
    "CsiPluginDeleted",
    "HostVolumeClaimReleased",
    "PublisherLagged",
    "PublisherCaughtUp",
];

/// The peer's message types and what stands for each of them; those with no kind say why.
const MESSAGES: &[(u16, &str, Result<EventKind, &str>)] = &[
    (0, "NodeRegister", Ok(EventKind::NodeRegistered)),
    (1, "NodeDeregister", Ok(EventKind::NodesDeregistered)),
    (2, "NodeUpdateStatus", Ok(EventKind::NodeStatusUpdated)),
    (3, "NodeUpdateDrain", Ok(EventKind::NodeDrainUpdated)),
    (4, "JobRegister", Ok(EventKind::JobRegistered)),
    (5, "JobDeregister", Ok(EventKind::JobDeregistered)),
    (6, "EvalUpdate", Ok(EventKind::EvalsUpserted)),
    (7, "EvalDelete", Ok(EventKind::EvalsDeleted)),
    (
        8,
        "AllocUpdate",
        Err("removed by the peer: plans and client updates took its place"),
    ),
    (9, "AllocClientUpdate", Ok(EventKind::AllocsUpdatedByClient)),
    (
        10,
        "ReconcileJobSummaries",
        Ok(EventKind::JobSummariesReconciled),
    ),
    (11, "VaultAccessorRegister", Err("ignored by the peer")),
    (12, "VaultAccessorDeregister", Err("ignored by the peer")),
    (13, "ApplyPlanResults", Ok(EventKind::PlanApplied)),
    (
        14,
        "DeploymentStatusUpdate",
        Ok(EventKind::DeploymentStatusUpdated),
    ),
    (15, "DeploymentPromote", Ok(EventKind::DeploymentPromoted)),
    (
        16,
        "DeploymentAllocHealth",
        Ok(EventKind::DeploymentAllocHealthUpdated),
    ),
    (17, "DeploymentDelete", Ok(EventKind::DeploymentsDeleted)),
    (18, "JobStability", Ok(EventKind::JobStabilityUpdated)),
    (19, "ACLPolicyUpsert", Ok(EventKind::AclPoliciesUpserted)),
    (20, "ACLPolicyDelete", Ok(EventKind::AclPoliciesDeleted)),
    (21, "ACLTokenUpsert", Ok(EventKind::AclTokensUpserted)),
    (22, "ACLTokenDelete", Ok(EventKind::AclTokensDeleted)),
    (23, "ACLTokenBootstrap", Ok(EventKind::AclBootstrapped)),
    (24, "Autopilot", Ok(EventKind::AutopilotConfigured)),
    (25, "UpsertNodeEvents", Ok(EventKind::NodeEventsUpserted)),
    (26, "JobBatchDeregister", Ok(EventKind::JobsDeregistered)),
    (
        27,
        "AllocUpdateDesiredTransition",
        Ok(EventKind::AllocsDesiredTransitionUpdated),
    ),
    (
        28,
        "NodeUpdateEligibility",
        Ok(EventKind::NodeEligibilityUpdated),
    ),
    (29, "BatchNodeUpdateDrain", Ok(EventKind::NodeDrainUpdated)),
    (30, "SchedulerConfig", Ok(EventKind::SchedulerConfigured)),
    (31, "NodeBatchDeregister", Ok(EventKind::NodesDeregistered)),
    (32, "ClusterMetadata", Ok(EventKind::ClusterIdSet)),
    (
        33,
        "ServiceIdentityAccessorRegister",
        Err("ignored by the peer"),
    ),
    (
        34,
        "ServiceIdentityAccessorDeregister",
        Err("ignored by the peer"),
    ),
    (35, "CSIVolumeRegister", Ok(EventKind::CsiVolumesRegistered)),
    (
        36,
        "CSIVolumeDeregister",
        Ok(EventKind::CsiVolumeDeregistered),
    ),
    (37, "CSIVolumeClaim", Ok(EventKind::CsiVolumeClaimed)),
    (
        38,
        "ScalingEventRegister",
        Ok(EventKind::ScalingEventRecorded),
    ),
    (
        39,
        "CSIVolumeClaimBatch",
        Ok(EventKind::CsiVolumeClaimsApplied),
    ),
    (40, "CSIPluginDelete", Ok(EventKind::CsiPluginDeleted)),
    (41, "EventSinkUpsert", Err("ignored by the peer")),
    (42, "EventSinkDelete", Err("ignored by the peer")),
    (
        43,
        "BatchEventSinkUpdateProgress",
        Err("ignored by the peer"),
    ),
    (
        44,
        "OneTimeTokenUpsert",
        Ok(EventKind::OneTimeTokensUpserted),
    ),
    (
        45,
        "OneTimeTokenDelete",
        Ok(EventKind::OneTimeTokensDeleted),
    ),
    (
        46,
        "OneTimeTokenExpire",
        Ok(EventKind::OneTimeTokensExpired),
    ),
    (
        47,
        "ServiceRegistrationUpsert",
        Ok(EventKind::ServiceRegistrationsUpserted),
    ),
    (
        48,
        "ServiceRegistrationDeleteByID",
        Ok(EventKind::ServiceRegistrationsDeleted),
    ),
    (
        49,
        "ServiceRegistrationDeleteByNodeID",
        Ok(EventKind::ServiceRegistrationsDeleted),
    ),
    (50, "VarApplyState", Ok(EventKind::VariableApplied)),
    (51, "RootKeyMetaUpsert", Ok(EventKind::RootKeyUpserted)),
    (52, "WrappedRootKeysDelete", Ok(EventKind::RootKeyDeleted)),
    (53, "ACLRolesUpsert", Ok(EventKind::AclRolesUpserted)),
    (54, "ACLRolesDeleteByID", Ok(EventKind::AclRolesDeleted)),
    (
        55,
        "ACLAuthMethodsUpsert",
        Ok(EventKind::AclAuthMethodsUpserted),
    ),
    (
        56,
        "ACLAuthMethodsDelete",
        Ok(EventKind::AclAuthMethodsDeleted),
    ),
    (
        57,
        "ACLBindingRulesUpsert",
        Ok(EventKind::AclBindingRulesUpserted),
    ),
    (
        58,
        "ACLBindingRulesDelete",
        Ok(EventKind::AclBindingRulesDeleted),
    ),
    (59, "NodePoolUpsert", Ok(EventKind::NodePoolsUpserted)),
    (60, "NodePoolDelete", Ok(EventKind::NodePoolsDeleted)),
    (61, "JobVersionTag", Ok(EventKind::JobVersionTagged)),
    (62, "WrappedRootKeysUpsert", Ok(EventKind::RootKeyUpserted)),
    (64, "NamespaceUpsert", Ok(EventKind::NamespacesUpserted)),
    (65, "NamespaceDelete", Ok(EventKind::NamespacesDeleted)),
    (
        75,
        "HostVolumeRegister",
        Ok(EventKind::HostVolumeRegistered),
    ),
    (76, "HostVolumeDelete", Ok(EventKind::HostVolumeDeleted)),
    (
        77,
        "TaskGroupHostVolumeClaimDelete",
        Ok(EventKind::HostVolumeClaimReleased),
    ),
    (
        127,
        "SystemInitialization",
        Err("a flag of the peer, no change of ours"),
    ),
];

#[test]
fn ev_02_the_registry_is_pinned() {
    let now: Vec<_> = EventKind::ALL
        .iter()
        .map(|kind| (kind.number(), kind.name(), kind.version()))
        .collect();
    assert_eq!(now, PINNED);
    assert!(
        PINNED.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0),
        "numbers are contiguous"
    );
}

#[test]
fn ev_02_zero_is_never_a_kind() {
    assert_eq!(EventKind::from_number(0), None);
    assert_eq!(EventKind::from_number(u16::MAX), None);
    for kind in EventKind::ALL {
        assert_eq!(EventKind::from_number(kind.number()), Some(*kind));
        assert_eq!(EventKind::from_name(kind.name()), Some(*kind));
    }
}

#[test]
fn ev_02_silent_kinds_are_listed() {
    let silent: Vec<_> = EventKind::ALL
        .iter()
        .filter(|kind| kind.publication() == Publication::Nothing)
        .map(|kind| kind.name())
        .collect();
    assert_eq!(silent, SILENT);
}

#[test]
fn ev_01_a_kind_has_one_type_and_at_least_one_topic() {
    for kind in EventKind::ALL {
        if let Publication::Event { event_type, topics } = kind.publication() {
            assert!(!event_type.is_empty() && !topics.is_empty(), "{kind}");
        }
    }
}

#[test]
fn ev_02_every_message_type_of_the_peer_has_a_kind_or_a_reason() {
    for (number, message, answer) in MESSAGES {
        match answer {
            Ok(kind) => assert!(!kind.is_raft_own(), "{number} {message}"),
            Err(reason) => assert!(!reason.is_empty(), "{number} {message}"),
        }
    }
}
