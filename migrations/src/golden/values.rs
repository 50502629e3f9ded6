//! The payloads of the samples.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::gojson::{Base64, Time};
use drover_events::model::*;
use drover_events::{Event, EventKind};

use drover_events::acl::*;
use drover_events::alloc::*;
use drover_events::cluster::*;
use drover_events::csi::*;
use drover_events::deployment::*;
use drover_events::eval::*;
use drover_events::host_volume::*;
use drover_events::job::*;
use drover_events::keyring::*;
use drover_events::namespace::*;
use drover_events::node::*;
use drover_events::node_pool::*;
use drover_events::plan::*;
use drover_events::scaling::*;
use drover_events::service::*;
use drover_events::variable::*;

use super::samples::TIME;

/// The payload to freeze of a kind. None for Raft's own.
pub(crate) fn event(kind: EventKind) -> Option<Event> {
    use EventKind as K;
    Some(match kind {
        K::RaftBlank | K::RaftMembership => return None,
        K::LeaderElected
        | K::VersionBarrierRaised
        | K::ClusterIdSet
        | K::ClusterRestored
        | K::DigestRecorded
        | K::SchedulerConfigured
        | K::AutopilotConfigured => cluster(kind)?,
        K::NodeRegistered
        | K::NodesDeregistered
        | K::NodeStatusUpdated
        | K::NodeDrainUpdated
        | K::NodeEligibilityUpdated
        | K::NodeEventsUpserted => node_event(kind)?,
        K::JobRegistered
        | K::JobDeregistered
        | K::JobsDeregistered
        | K::JobStabilityUpdated
        | K::JobVersionTagged
        | K::JobSummariesReconciled
        | K::PeriodicJobLaunched => job_event(kind)?,
        K::EvalsUpserted
        | K::EvalsDeleted
        | K::PlanApplied
        | K::AllocsUpdatedByClient
        | K::AllocsDesiredTransitionUpdated
        | K::DeploymentStatusUpdated
        | K::DeploymentPromoted
        | K::DeploymentAllocHealthUpdated
        | K::DeploymentsDeleted => scheduling(kind)?,
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
        | K::OneTimeTokensExpired => acl(kind)?,
        K::CsiVolumesRegistered
        | K::CsiVolumeDeregistered
        | K::CsiVolumeClaimed
        | K::CsiVolumeClaimsApplied
        | K::CsiPluginDeleted
        | K::HostVolumeRegistered
        | K::HostVolumeDeleted
        | K::HostVolumeClaimReleased => volumes(kind)?,
        K::NodePoolsUpserted
        | K::NodePoolsDeleted
        | K::NamespacesUpserted
        | K::NamespacesDeleted
        | K::ServiceRegistrationsUpserted
        | K::ServiceRegistrationsDeleted
        | K::VariableApplied
        | K::RootKeyUpserted
        | K::RootKeyDeleted
        | K::ScalingEventRecorded => small(kind)?,
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

fn cluster(kind: EventKind) -> Option<Event> {
    Some(match kind {
        EventKind::LeaderElected => LeaderElected {
            server_id: id(1),
            name: "s1.global".into(),
            addr: "192.0.2.1:4647".into(),
            level: 1,
            version: "0.1.0".into(),
        }
        .into(),
        EventKind::VersionBarrierRaised => VersionBarrierRaised {
            level: 2,
            servers: [(id(1), 2)].into(),
        }
        .into(),
        EventKind::ClusterIdSet => ClusterIdSet {
            cluster_id: id(2),
            create_time: TIME,
        }
        .into(),
        EventKind::ClusterRestored => ClusterRestored {
            former_epoch: "e1".into(),
            former_size: 99,
            former_root: vec![0xab; 32],
            base_index: 4711,
            epoch: "e2".into(),
        }
        .into(),
        EventKind::DigestRecorded => DigestRecorded {
            at: 4096,
            digests: [(3, serde_bytes::ByteBuf::from(vec![0xcd; 32]))].into(),
            servers: vec![id(1)],
        }
        .into(),
        EventKind::SchedulerConfigured => {
            let config = SchedulerConfiguration {
                scheduler_algorithm: "spread".into(),
                pause_eval_broker: true,
                modify_index: 12,
                ..Default::default()
            };
            SchedulerConfigured { config, cas: true }.into()
        }
        EventKind::AutopilotConfigured => {
            let config = AutopilotConfiguration {
                cleanup_dead_servers: true,
                max_trailing_logs: 250,
                ..Default::default()
            };
            AutopilotConfigured { config, cas: false }.into()
        }
        _ => return None,
    })
}

fn node() -> Node {
    Node {
        id: id(10),
        name: "n1".into(),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        status: "initializing".into(),
        scheduling_eligibility: "eligible".into(),
        computed_class: "v1:42".into(),
        attributes: texts([("kernel.name", "linux")]).into(),
        secret_id: "sha256:00".into(),
        ..Default::default()
    }
}

fn node_note() -> NodeEvent {
    NodeEvent {
        message: "Node registered".into(),
        subsystem: "Cluster".into(),
        timestamp: Time(TIME),
        ..Default::default()
    }
}

fn eval() -> Evaluation {
    Evaluation {
        id: id(20),
        namespace: "default".into(),
        priority: 50,
        r#type: "service".into(),
        triggered_by: "job-register".into(),
        job_id: "web".into(),
        job_modify_index: 4700,
        status: "pending".into(),
        create_time: TIME,
        modify_time: TIME,
        ..Default::default()
    }
}

fn node_event(kind: EventKind) -> Option<Event> {
    let evals = vec![eval()];
    Some(match kind {
        EventKind::NodeRegistered => NodeRegistered {
            node: Box::new(node()),
            event: Some(node_note()),
            create_node_pool: true,
            evals,
        }
        .into(),
        EventKind::NodesDeregistered => NodesDeregistered {
            node_ids: vec![id(10)],
            evals,
        }
        .into(),
        EventKind::NodeStatusUpdated => NodeStatusUpdated {
            node_id: id(10),
            status: "down".into(),
            event: Some(node_note()),
            updated_at: TIME / 1_000_000_000,
            identity_signing_key_id: id(3),
            evals,
        }
        .into(),
        EventKind::NodeDrainUpdated => {
            let drain = DrainUpdate {
                drain_strategy: Some(DrainStrategy {
                    deadline: 3_600_000_000_000,
                    ignore_system_jobs: true,
                    started_at: Time(TIME),
                    ..Default::default()
                }),
                event: Some(node_note()),
                ..Default::default()
            };
            NodeDrainUpdated {
                updates: [(id(10), drain)].into(),
                updated_at: TIME,
                updated_by: id(4),
                meta: texts([("reason", "disk")]),
                evals,
            }
            .into()
        }
        EventKind::NodeEligibilityUpdated => NodeEligibilityUpdated {
            node_id: id(10),
            eligibility: "ineligible".into(),
            event: Some(node_note()),
            updated_at: TIME,
            evals,
        }
        .into(),
        EventKind::NodeEventsUpserted => NodeEventsUpserted {
            events: [(id(10), vec![node_note()])].into(),
        }
        .into(),
        _ => return None,
    })
}

fn job() -> Arc<Job> {
    Arc::new(Job {
        id: "web".into(),
        name: "web".into(),
        namespace: "default".into(),
        region: "global".into(),
        r#type: "service".into(),
        priority: 50,
        datacenters: vec!["*".to_owned()].into(),
        meta: texts([("owner", "ops")]).into(),
        submit_time: TIME,
        ..Default::default()
    })
}

fn scaling_event() -> ScalingEvent {
    ScalingEvent {
        time: TIME,
        count: Some(3),
        previous_count: 2,
        message: "more".into(),
        eval_id: Some(id(20)),
        ..Default::default()
    }
}

fn job_event(kind: EventKind) -> Option<Event> {
    let (namespace, job_id) = ("default".to_owned(), "web".to_owned());
    Some(match kind {
        EventKind::JobRegistered => JobRegistered {
            job: job(),
            submission: Some(JobSubmission {
                source: "job \"web\" {}".into(),
                format: "hcl2".into(),
                ..Default::default()
            }),
            eval: Some(eval()),
            deployment: Some(deployment()),
            launch: TIME,
            scaling: Some(GroupScaling {
                task_group: "g".into(),
                event: scaling_event(),
            }),
            tracked_versions: 6,
        }
        .into(),
        EventKind::JobDeregistered => JobDeregistered {
            namespace,
            job_id,
            purge: true,
            no_shutdown_delay: true,
            eval: Some(eval()),
            submit_time: TIME,
            tracked_versions: 6,
        }
        .into(),
        EventKind::JobsDeregistered => JobsDeregistered {
            jobs: vec![DeregisteredJob {
                namespace,
                job_id,
                purge: true,
            }],
            evals: vec![eval()],
            submit_time: TIME,
            tracked_versions: 6,
        }
        .into(),
        EventKind::JobStabilityUpdated => JobStabilityUpdated {
            namespace,
            job_id,
            job_version: 2,
            stable: true,
        }
        .into(),
        EventKind::JobVersionTagged => JobVersionTagged {
            namespace,
            job_id,
            name: "golden".into(),
            version: 2,
            tag: Some(JobVersionTag {
                name: "golden".into(),
                description: "keep".into(),
                tagged_time: TIME,
            }),
        }
        .into(),
        EventKind::JobSummariesReconciled => JobSummariesReconciled {
            page_token: "default.web".into(),
            per_page: 100,
        }
        .into(),
        EventKind::PeriodicJobLaunched => PeriodicJobLaunched {
            namespace,
            job_id,
            launch: TIME,
        }
        .into(),
        _ => return None,
    })
}

fn deployment() -> Deployment {
    let group = DeploymentState {
        desired_total: 3,
        auto_revert: true,
        ..Default::default()
    };
    Deployment {
        id: id(30),
        namespace: "default".into(),
        job_id: "web".into(),
        status: "running".into(),
        task_groups: BTreeMap::from([("g".to_owned(), group)]).into(),
        create_time: TIME,
        ..Default::default()
    }
}

fn status_update() -> DeploymentStatusUpdate {
    DeploymentStatusUpdate {
        deployment_id: id(30),
        status: "successful".into(),
        status_description: "Deployment completed successfully".into(),
        updated_at: TIME,
    }
}

fn plan() -> PlanApplied {
    let alloc = Allocation {
        id: id(40),
        namespace: "default".into(),
        eval_id: id(20),
        name: "web.g[0]".into(),
        node_id: id(10),
        node_name: "n1".into(),
        job_id: "web".into(),
        task_group: "g".into(),
        desired_status: "run".into(),
        client_status: "pending".into(),
        signing_key_id: id(3),
        ..Default::default()
    };
    let state = AllocState {
        field: 0,
        value: "unknown".into(),
        time: Time(TIME),
    };
    PlanApplied {
        plan_id: id(50),
        eval_id: id(20),
        decision: DecisionInputs {
            snapshot_index: 4710,
            now: TIME,
            seed: 7,
            scheduler_version: 1,
        },
        stopped: vec![StoppedAlloc {
            id: id(41),
            desired_description: "alloc not needed due to job update".into(),
            client_status: "lost".into(),
            followup_eval_id: id(21),
            alloc_states: Some(vec![state]),
            reschedule_tracker: Some(RescheduleTracker::default()),
        }],
        placed: vec![PlacedAlloc {
            alloc: Box::new(alloc),
            job_modify_index: 4700,
        }],
        preempted: vec![PreemptedAlloc {
            id: id(42),
            preempted_by: id(40),
        }],
        deployment: Some(deployment()),
        deployment_updates: vec![status_update()],
        evals: vec![eval()],
        ineligible_nodes: vec![id(11)],
        updated_at: TIME,
    }
}

fn client_update() -> ClientAllocUpdate {
    let state = TaskState {
        state: "running".into(),
        restarts: 1,
        ..Default::default()
    };
    ClientAllocUpdate {
        id: id(40),
        client_status: "running".into(),
        client_description: "Tasks are running".into(),
        task_states: [("t".to_owned(), state)].into(),
        network_status: Some(AllocNetworkStatus {
            interface_name: "eth0".into(),
            ..Default::default()
        }),
        deployment_status: Some(AllocDeploymentStatus {
            healthy: Some(true),
            ..Default::default()
        }),
    }
}

fn scheduling(kind: EventKind) -> Option<Event> {
    let evals = vec![eval()];
    Some(match kind {
        EventKind::EvalsUpserted => {
            let decision = Some(DecisionInputs {
                snapshot_index: 1,
                ..Default::default()
            });
            EvalsUpserted { evals, decision }.into()
        }
        EventKind::EvalsDeleted => EvalsDeleted {
            filter: "Status == \"complete\"".into(),
            filter_version: 1,
            page_token: format!("12.{}", id(20)),
            per_page: 7281,
            user_initiated: true,
            ..Default::default()
        }
        .into(),
        EventKind::PlanApplied => plan().into(),
        EventKind::AllocsUpdatedByClient => AllocsUpdatedByClient {
            updates: vec![client_update()],
            evals,
            updated_at: TIME,
        }
        .into(),
        EventKind::AllocsDesiredTransitionUpdated => {
            let transition = DesiredTransition {
                migrate: Some(true),
                ..Default::default()
            };
            AllocsDesiredTransitionUpdated {
                transitions: [(id(40), transition)].into(),
                evals,
                updated_at: TIME,
            }
            .into()
        }
        EventKind::DeploymentStatusUpdated => DeploymentStatusUpdated {
            update: status_update(),
            job: Some(job()),
            eval: Some(eval()),
        }
        .into(),
        EventKind::DeploymentPromoted => DeploymentPromoted {
            deployment_id: id(30),
            all: false,
            groups: vec!["g".into()],
            promoted_at: TIME,
            eval: Some(eval()),
        }
        .into(),
        EventKind::DeploymentAllocHealthUpdated => DeploymentAllocHealthUpdated {
            deployment_id: id(30),
            healthy: vec![id(40)],
            unhealthy: vec![id(41)],
            timestamp: TIME,
            update: Some(status_update()),
            job: Some(job()),
            eval: Some(eval()),
        }
        .into(),
        EventKind::DeploymentsDeleted => DeploymentsDeleted { ids: vec![id(30)] }.into(),
        _ => return None,
    })
}

fn secret() -> SealedSecret {
    SealedSecret {
        hash: "00ff".into(),
        ciphertext: "AAEC".into(),
        key_id: id(3),
    }
}

fn acl(kind: EventKind) -> Option<Event> {
    let ids = || vec![id(60), id(61)];
    let token = SealedToken {
        token: AclToken {
            accessor_id: id(60),
            name: "ci".into(),
            r#type: "client".into(),
            policies: vec!["read".to_owned()].into(),
            ..Default::default()
        },
        secret: secret(),
    };
    Some(match kind {
        EventKind::AclPoliciesUpserted => {
            let policy = AclPolicy {
                name: "read".into(),
                rules: "namespace \"*\" { policy = \"read\" }".into(),
                ..Default::default()
            };
            AclPoliciesUpserted {
                policies: vec![policy],
            }
            .into()
        }
        EventKind::AclPoliciesDeleted => AclPoliciesDeleted {
            names: vec!["read".into()],
        }
        .into(),
        EventKind::AclTokensUpserted => AclTokensUpserted {
            tokens: vec![token],
        }
        .into(),
        EventKind::AclTokensDeleted => AclTokensDeleted {
            accessor_ids: ids(),
        }
        .into(),
        EventKind::AclBootstrapped => AclBootstrapped {
            token,
            reset_index: 9,
        }
        .into(),
        EventKind::AclRolesUpserted => {
            let role = AclRole {
                id: id(62),
                name: "deployers".into(),
                ..Default::default()
            };
            AclRolesUpserted {
                roles: vec![role],
                allow_missing_policies: true,
            }
            .into()
        }
        EventKind::AclRolesDeleted => AclRolesDeleted { ids: ids() }.into(),
        EventKind::AclAuthMethodsUpserted => {
            let method = AclAuthMethod {
                name: "sso".into(),
                r#type: "OIDC".into(),
                ..Default::default()
            };
            AclAuthMethodsUpserted {
                auth_methods: vec![method],
            }
            .into()
        }
        EventKind::AclAuthMethodsDeleted => AclAuthMethodsDeleted {
            names: vec!["sso".into()],
        }
        .into(),
        EventKind::AclBindingRulesUpserted => {
            let rule = AclBindingRule {
                id: id(63),
                auth_method: "sso".into(),
                bind_type: "role".into(),
                ..Default::default()
            };
            AclBindingRulesUpserted {
                binding_rules: vec![rule],
                allow_missing_auth_methods: true,
            }
            .into()
        }
        EventKind::AclBindingRulesDeleted => AclBindingRulesDeleted { ids: ids() }.into(),
        EventKind::OneTimeTokensUpserted => {
            let token = OneTimeToken {
                accessor_id: id(60),
                expires_at: Time(TIME),
                ..Default::default()
            };
            OneTimeTokensUpserted {
                token,
                secret: secret(),
            }
            .into()
        }
        EventKind::OneTimeTokensDeleted => OneTimeTokensDeleted {
            accessor_ids: ids(),
        }
        .into(),
        EventKind::OneTimeTokensExpired => OneTimeTokensExpired { timestamp: TIME }.into(),
        _ => return None,
    })
}

fn volumes(kind: EventKind) -> Option<Event> {
    let namespace = || "default".to_owned();
    let claim = CsiVolumeClaimed {
        namespace: namespace(),
        volume_id: "data".into(),
        allocation_id: id(40),
        node_id: id(10),
        external_node_id: "i-1".into(),
        claim: 1,
        access_mode: "single-node-writer".into(),
        attachment_mode: "file-system".into(),
        state: 0,
        timestamp: TIME,
    };
    Some(match kind {
        EventKind::CsiVolumesRegistered => {
            let volume = CsiVolume {
                id: "data".into(),
                namespace: namespace(),
                ..Default::default()
            };
            CsiVolumesRegistered {
                volumes: vec![volume],
                timestamp: TIME,
            }
            .into()
        }
        EventKind::CsiVolumeDeregistered => CsiVolumeDeregistered {
            namespace: namespace(),
            volume_ids: vec!["data".into()],
            force: true,
        }
        .into(),
        EventKind::CsiVolumeClaimed => claim.into(),
        EventKind::CsiVolumeClaimsApplied => CsiVolumeClaimsApplied {
            claims: vec![claim],
        }
        .into(),
        EventKind::CsiPluginDeleted => CsiPluginDeleted { id: "ebs".into() }.into(),
        EventKind::HostVolumeRegistered => {
            let volume = HostVolume {
                id: id(70),
                name: "data".into(),
                ..Default::default()
            };
            HostVolumeRegistered { volume }.into()
        }
        EventKind::HostVolumeDeleted => HostVolumeDeleted {
            namespace: namespace(),
            volume_id: id(70),
            force: true,
        }
        .into(),
        EventKind::HostVolumeClaimReleased => HostVolumeClaimReleased { claim_id: id(71) }.into(),
        _ => return None,
    })
}

fn small(kind: EventKind) -> Option<Event> {
    let names = || vec!["gpu".to_owned()];
    Some(match kind {
        EventKind::NodePoolsUpserted => {
            let pool = NodePool {
                name: "gpu".into(),
                description: "cards".into(),
                ..Default::default()
            };
            NodePoolsUpserted {
                node_pools: vec![pool],
            }
            .into()
        }
        EventKind::NodePoolsDeleted => NodePoolsDeleted { names: names() }.into(),
        EventKind::NamespacesUpserted => {
            let namespace = Namespace {
                name: "prod".into(),
                quota: "q".into(),
                ..Default::default()
            };
            NamespacesUpserted {
                namespaces: vec![namespace],
            }
            .into()
        }
        EventKind::NamespacesDeleted => NamespacesDeleted { names: names() }.into(),
        EventKind::ServiceRegistrationsUpserted => {
            let service = ServiceRegistration {
                id: "_svc".into(),
                service_name: "web".into(),
                namespace: "default".into(),
                port: 8080,
                ..Default::default()
            };
            ServiceRegistrationsUpserted {
                services: vec![service],
            }
            .into()
        }
        EventKind::ServiceRegistrationsDeleted => ServiceRegistrationsDeleted {
            services: vec![ServiceKey {
                namespace: "default".into(),
                id: "_svc".into(),
            }],
            node_id: id(10),
        }
        .into(),
        EventKind::VariableApplied => {
            let var = VariableEncrypted {
                namespace: "default".into(),
                path: "app/db".into(),
                data: Base64::from(vec![1, 2, 3]),
                key_id: id(3),
                modify_index: 12,
                ..Default::default()
            };
            VariableApplied {
                op: VarOp::Cas,
                var,
            }
            .into()
        }
        EventKind::RootKeyUpserted => {
            let key = RootKeyMeta {
                key_id: id(3),
                algorithm: "aes256-gcm".into(),
                state: "active".into(),
                create_time: TIME,
                ..Default::default()
            };
            RootKeyUpserted {
                key,
                public_key: Base64::from(vec![4; 32]),
                rekey: true,
            }
            .into()
        }
        EventKind::RootKeyDeleted => RootKeyDeleted {
            key_id: id(3),
            force: true,
        }
        .into(),
        EventKind::ScalingEventRecorded => ScalingEventRecorded {
            namespace: "default".into(),
            job_id: "web".into(),
            task_group: "g".into(),
            event: scaling_event(),
        }
        .into(),
        _ => return None,
    })
}
