//! The feature levels: every change of the language, in order, for ever.

/// Each level and what it brought. Lines are only added at the end; the last one is the level of
/// this binary. Whatever a level brings is written only once a raised barrier says that every
/// server reads it.
pub const EVENT_CHANGE_LOG: &[(u32, &str)] = &[
    (1, "every kind of the first registry, each in version 1"),
    (
        2,
        "EvalsDeleted v2: the filter names the version of its language; NextToken is PageToken; \
         UserInitiated is a rule of apply",
    ),
    (
        3,
        "CsiVolumesRegistered v2, CsiVolumeDeregistered v2, CsiVolumeClaimed v2, \
         CsiVolumeClaimsApplied v2: Namespace is never empty, a volume of one pair of modes has \
         RequestedCapabilities, a claim always has AccessMode and AttachmentMode",
    ),
    (
        4,
        "PublisherLagged, PublisherCaughtUp: a publisher of events fell behind the log, and caught \
         up",
    ),
    (
        5,
        "AllocsUpdatedByClient: Nodes, whose indexes do not move with it, and a Cause for each \
         update",
    ),
    (
        6,
        "VariableApplied.Quota: a namespace's variables may take so many bytes; \
         DeploymentStatusUpdated.RequireProgressBy, DeploymentPromoted.SaysPaused, \
         JobDeregistered.KeepScalingPolicies, JobsDeregistered.KeepScalingPolicies: what follows \
         is stated by the event; DeploymentStatusUpdated.Submission, \
         DeploymentAllocHealthUpdated.Submission: the source of the version a job goes back to; \
         EvalsDeleted.RowLimit: how many rows a page looks at",
    ),
    (
        7,
        "AclPoliciesUpserted, AclPoliciesDeleted, AclTokensUpserted, AclTokensDeleted, \
         AclBootstrapped, AclRolesUpserted, AclRolesDeleted, OneTimeTokensUpserted, \
         OneTimeTokensDeleted, OneTimeTokensExpired: are applied",
    ),
    (
        8,
        "CsiVolumesRegistered, CsiVolumeDeregistered, CsiVolumeClaimed, CsiPluginDeleted, \
         HostVolumeRegistered, HostVolumeDeleted, HostVolumeClaimReleased: are applied; plugins \
         follow from NodeRegistered, NodesDeregistered, JobRegistered, JobDeregistered, \
         JobsDeregistered, PlanApplied, AllocsUpdatedByClient and EvalsDeleted",
    ),
    (
        9,
        "CsiVolumeClaimed: the access mode of every claim counts, not of the last one only; one \
         that is attached keeps ExternalNodeID; NodeRegistered: a plugin is described by reports \
         that count",
    ),
    (
        10,
        "NodeRegistered, NodeStatusUpdated, NodesDeregistered: host volumes of the node become \
         unavailable and ready again, lie where it says, and go with it where it says so",
    ),
    (
        11,
        "CsiVolumeClaimed: State 5, a claim that is free while a call of it may be under way; \
         Claim 3, a volume that is being deleted and given to nobody",
    ),
    (
        12,
        "CsiVolumeClaimed: Claim 4, a volume that has grown and that a node has still to make \
         larger",
    ),
];

/// The level of this binary: the last line of the change log.
pub const FEATURE_LEVEL: u32 = EVENT_CHANGE_LOG[EVENT_CHANGE_LOG.len() - 1].0;

#[cfg(test)]
mod tests {
    use drover_events::EventKind;

    use super::*;

    #[test]
    fn levels_are_contiguous_from_one() {
        for (position, (level, what)) in EVENT_CHANGE_LOG.iter().enumerate() {
            assert_eq!(*level as usize, position + 1);
            assert!(!what.is_empty());
        }
    }

    #[test]
    fn levels_that_commands_ask_for_are_those_of_their_lines() {
        let line = EVENT_CHANGE_LOG[drover_events::alloc::REPORT_LEVEL as usize - 1].1;
        assert!(line.starts_with("AllocsUpdatedByClient: "), "{line}");
        let line = EVENT_CHANGE_LOG[drover_events::acl::ACL_LEVEL as usize - 1].1;
        assert!(line.starts_with("AclPoliciesUpserted, "), "{line}");
        let line = EVENT_CHANGE_LOG[drover_events::csi::CSI_LEVEL as usize - 1].1;
        assert!(line.starts_with("CsiVolumesRegistered, "), "{line}");
        let line = EVENT_CHANGE_LOG[drover_events::host_volume::HOST_VOLUME_LEVEL as usize - 1].1;
        assert!(line.starts_with("NodeRegistered, "), "{line}");
        let line = EVENT_CHANGE_LOG[drover_events::csi::UNCONFIRMED_DETACH_LEVEL as usize - 1].1;
        assert!(line.starts_with("CsiVolumeClaimed: State 5"), "{line}");
        let line = EVENT_CHANGE_LOG[drover_events::csi::GROWN_LEVEL as usize - 1].1;
        assert!(line.starts_with("CsiVolumeClaimed: Claim 4"), "{line}");
    }

    #[test]
    fn every_version_now_written_has_its_line() {
        for kind in EventKind::ALL {
            assert!((1..=FEATURE_LEVEL).contains(&kind.since()), "{kind}");
            if kind.version() > 1 {
                let line = EVENT_CHANGE_LOG[kind.since() as usize - 1].1;
                let name = format!("{kind} v{}", kind.version());
                assert!(line.contains(&name), "{name} is not in: {line}");
            }
        }
    }
}
