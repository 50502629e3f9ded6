//! Commands that are a few lines each.

use drover_events::cluster::LeaderElected;
use drover_events::gojson::{Base64, from_value};
use drover_events::model::{
    Allocation, Deployment, DeploymentState, Namespace, NodePool, PreemptionConfig, RootKeyMeta,
    SchedulerConfiguration, VariableEncrypted,
};
use drover_events::plan::PlanApplied;
use drover_events::variable::VarOp;
use drover_events::{EventId, EventKind};
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::variable_quotas::VariableQuotas;
use drover_projections::{Outcome, Reply, VarOutcome};
use serde_json::json;

use super::cluster::*;
use super::deployment::*;
use super::job::{RegisterJob, SetJobStability};
use super::keyring::*;
use super::namespace::*;
use super::node::RegisterNode;
use super::node_pool::*;
use super::testing::{World, alloc, id, job, node, placed};
use super::variable::ApplyVariable;
use super::*;

fn key(number: u32) -> UpsertRootKey {
    let key = RootKeyMeta {
        key_id: id(number),
        state: "active".into(),
        ..Default::default()
    };
    UpsertRootKey {
        key,
        public_key: Base64::from(vec![1; 32]),
        rekey: false,
    }
}

fn variable(op: VarOp, index: u64) -> ApplyVariable {
    let var = VariableEncrypted {
        namespace: "default".into(),
        path: "a".into(),
        data: Base64::from(vec![1, 2]),
        key_id: id(3),
        modify_index: index,
        ..Default::default()
    };
    ApplyVariable { op, var, quota: 0 }
}

#[test]
fn kr_08_a_command_leaves_the_active_key_and_keys_in_use() {
    let mut world = World::new();
    world.done(&key(3));
    let delete = |force| DeleteRootKey {
        key_id: id(3),
        force,
    };
    let text = "active root key cannot be deleted - call rotate first";
    for force in [false, true] {
        assert_eq!(world.refusal(&delete(force)).1, text, "force: {force}");
    }
    let in_use = "root key in use, cannot delete";
    world.done(&variable(VarOp::Set, 0));
    world.done(&key(4));
    assert_eq!(world.refusal(&delete(false)).1, in_use, "by a variable");
    world.done(&variable(VarOp::Delete, 0));
    world.done(&RegisterNode {
        node: node(10),
        create_node_pool: false,
    });
    world.done(&RegisterJob {
        job: job("web"),
        eval_id: id(1),
        ..Default::default()
    });
    let signed = Allocation {
        signing_key_id: id(3),
        ..alloc(42, "web", 10)
    };
    world.given(placed(signed, world.index));
    assert_eq!(world.refusal(&delete(false)).1, in_use, "by an allocation");
    world.done(&delete(true));
    assert_eq!(world.refusal(&delete(true)).1, "root key not found");
    // One that nothing needs goes without force.
    world.done(&key(5));
    let unused = DeleteRootKey {
        key_id: id(4),
        force: false,
    };
    world.done(&unused);
    assert_eq!(world.refusal(&unused).1, "root key not found");
}

#[test]
fn var_02_concurrent_checks_are_settled_in_apply() {
    let mut world = World::new();
    world.done(&variable(VarOp::Set, 0));
    let cas = variable(VarOp::Cas, 1);
    let decisions = [world.decide(&cas).unwrap(), world.decide(&cas).unwrap()];
    let outcomes = decisions.map(|decision| {
        let Decision::Event { event, guards } = decision else {
            panic!()
        };
        assert!(guards.is_empty(), "no read-then-write: apply compares");
        world.append(event, guards)
    });
    let written = |outcome: &Outcome| matches!(outcome, Outcome::Applied(Reply::Variable(v)) if matches!(**v, VarOutcome::Written(_)));
    assert_eq!(
        outcomes.iter().filter(|outcome| written(outcome)).count(),
        1
    );
}

#[test]
fn var_05_a_quota_that_is_passed_refuses_before_and_in_apply() {
    let mut world = World::new();
    let sized = |path: &str, size: usize, quota| {
        let mut command = variable(VarOp::Set, 0);
        command.var.path = path.into();
        command.var.data = Base64::from(vec![1; size]);
        command.quota = quota;
        command
    };
    world.done(&sized("a", 60, 10));
    assert!(
        matches!(world.event(&sized("b", 1, 10)), Event::VariableApplied(_)),
        "before every server reads it there is none"
    );
    world.raise();
    let (code, text) = world.refusal(&sized("b", 41, 100));
    assert_eq!(code, Code::Refused);
    assert!(text.contains("variables quota exceeded"), "{text}");
    // Two that are decided on one view: the second one is refused where it is applied.
    let decided = ["b", "c"].map(|path| world.decide(&sized(path, 40, 100)).unwrap());
    let outcomes = decided.map(|decision| match decision {
        Decision::Event { event, guards } => world.append(event, guards),
        other => panic!("{other:?}"),
    });
    assert!(matches!(outcomes[0], Outcome::Applied(_)));
    assert!(
        matches!(outcomes[1], Outcome::Rejected(_)),
        "{:?}",
        outcomes[1]
    );
    let used = |world: &World| world.row::<VariableQuotas>("default").unwrap().size;
    assert_eq!(used(&world), 100, "what was refused is not counted");
    // What becomes smaller is written, also where the quota was lowered below what is there.
    world.done(&sized("a", 50, 70));
    assert_eq!(used(&world), 90);
    let delete = ApplyVariable {
        op: VarOp::Delete,
        ..sized("a", 0, 70)
    };
    world.done(&delete);
    assert_eq!(used(&world), 40);
    world.done(&sized("c", 60, 100));
    assert_eq!(used(&world), 100);
}

#[test]
fn var_07_a_variable_that_is_not_encrypted_never_becomes_an_event() {
    let world = World::new();
    let mut plain = variable(VarOp::Set, 0);
    plain.var.key_id.clear();
    assert!(world.decide(&plain).is_err());
    assert_eq!(
        world.refusal(&variable(VarOp::LockAcquire, 0)).0,
        Code::BadRequest
    );
}

#[test]
fn names_are_checked() {
    let mut world = World::new();
    for (name, good) in [
        ("prod-1", true),
        ("", false),
        ("a b", false),
        ("日本", false),
    ] {
        let namespace = Namespace {
            name: name.into(),
            ..Default::default()
        };
        let command = UpsertNamespaces {
            namespaces: vec![namespace],
        };
        assert_eq!(world.decide(&command).is_ok(), good, "{name}");
        let pool = NodePool {
            name: name.into(),
            ..Default::default()
        };
        let command = UpsertNodePools {
            node_pools: vec![pool],
        };
        assert_eq!(world.decide(&command).is_ok(), good, "{name}");
    }
    let pool = NodePool {
        name: "all".into(),
        ..Default::default()
    };
    let text = "modifying node pool \"all\" is not allowed";
    assert_eq!(
        world
            .refusal(&UpsertNodePools {
                node_pools: vec![pool]
            })
            .1,
        text
    );
    let gone = DeleteNamespaces {
        names: vec!["x".into()],
    };
    let text = "namespace not found".to_owned();
    assert_eq!(world.refusal(&gone), (Code::Refused, text));
    let namespace = Namespace {
        name: "x".into(),
        ..Default::default()
    };
    world.done(&UpsertNamespaces {
        namespaces: vec![namespace],
    });
    world.done(&gone);
}

#[test]
fn a_failed_deployment_goes_back_to_the_last_stable_version() {
    let mut world = World::new();
    world.done(&RegisterJob {
        job: job("web"),
        eval_id: id(1),
        ..Default::default()
    });
    let stable = SetJobStability {
        namespace: "default".into(),
        job_id: "web".into(),
        version: 0,
        stable: true,
    };
    world.done(&stable);
    let mut broken = job("web");
    broken.priority = 99;
    world.done(&RegisterJob {
        job: broken,
        eval_id: id(2),
        ..Default::default()
    });
    let group = DeploymentState {
        auto_revert: true,
        ..Default::default()
    };
    let deployment = Deployment {
        id: id(30),
        namespace: "default".into(),
        job_id: "web".into(),
        job_version: 1,
        status: "running".into(),
        task_groups: std::collections::BTreeMap::from([("g".to_owned(), group)]).into(),
        ..Default::default()
    };
    world.given(PlanApplied {
        deployment: Some(deployment),
        ..Default::default()
    });
    let fail = |change| SetDeploymentStatus {
        deployment_id: id(30),
        change,
        eval_id: id(3),
        reverted: Default::default(),
    };
    let submitted = world.now();
    world.done(&fail(DeploymentChange::UnhealthyAllocations));
    let row = world.row::<Deployments>(&id(30)).unwrap();
    assert_eq!(
        row.status_description,
        "Failed due to unhealthy allocations - rolling back to job version 0"
    );
    let now = world.row::<Jobs>(("default", "web")).unwrap();
    assert_eq!((now.version, now.priority, now.stable), (2, 50, true));
    assert_eq!(
        now.submit_time, submitted,
        "it is submitted when it is made"
    );
    assert_eq!(
        world.refusal(&fail(DeploymentChange::Pause)).1,
        "can't pause terminal deployment"
    );
    let unknown = SetDeploymentStatus {
        deployment_id: id(31),
        ..fail(DeploymentChange::Fail)
    };
    assert_eq!(world.refusal(&unknown).1, "deployment not found");
}

#[test]
fn a_cluster_is_named_once_and_its_level_only_rises() {
    let mut world = World::new();
    world.done(&ElectLeader {
        leader: LeaderElected::default(),
    });
    world.done(&SetClusterId { cluster_id: id(1) });
    let again = world.decide(&SetClusterId { cluster_id: id(2) }).unwrap();
    assert_eq!(again, Decision::Nothing(Reply::None));
    let raise = |level| RaiseBarrier {
        level,
        servers: [("s1".to_owned(), 2)].into(),
    };
    world.done(&raise(2));
    assert!(matches!(
        world.decide(&raise(1)).unwrap(),
        Decision::Nothing(_)
    ));
    assert!(
        world
            .refusal(&raise(3))
            .1
            .contains("reads only up to level 2")
    );
}

#[test]
fn ev_02_kinds_whose_apply_comes_later_are_refused_by_decide() {
    assert!(refuse_later(EventKind::JobRegistered).is_ok());
    for kind in drover_projections::apply::UNIMPLEMENTED {
        assert_eq!(refuse_later(*kind).unwrap_err().code, Code::NotImplemented);
    }
}

#[test]
fn ids_of_a_decision_follow_from_its_stamp() {
    let stamp = |byte| Stamp {
        id: EventId([byte; 16]),
        now: 0,
    };
    assert_eq!(stamp(1).uuid(0), stamp(1).uuid(0));
    assert_ne!(stamp(1).uuid(0), stamp(1).uuid(1));
    assert_ne!(stamp(1).uuid(0), stamp(2).uuid(0));
    assert_eq!(stamp(1).uuid(0).len(), 36);
}

#[test]
fn preemption_is_refused_for_each_kind_of_job_unless_it_is_set_already() {
    type Switch = fn(&mut PreemptionConfig);
    let kinds: [(&str, Switch); 4] = [
        ("SystemScheduler", |set| set.system_scheduler_enabled = true),
        ("SysBatchScheduler", |set| {
            set.sys_batch_scheduler_enabled = true;
        }),
        ("BatchScheduler", |set| set.batch_scheduler_enabled = true),
        ("ServiceScheduler", |set| {
            set.service_scheduler_enabled = true;
        }),
    ];
    let set = |switches: &[Switch]| {
        let mut config = SchedulerConfiguration::default();
        for switch in switches {
            switch(&mut config.preemption_config);
        }
        SetSchedulerConfig {
            config,
            cas: false,
            initial: false,
        }
    };
    let refused = |kind: &str| {
        let text = format!(
            "PreemptionConfig.{kind}Enabled: preemption is not supported by this version of \
             drover; set it to false"
        );
        (Code::BadRequest, text)
    };
    for (kind, switch) in kinds {
        let mut world = World::new();
        assert!(world.decide(&set(&[])).is_ok());
        assert_eq!(world.refusal(&set(&[switch])), refused(kind));
        world.done(&SetSchedulerConfig {
            initial: true,
            ..set(&[switch])
        });
        let again = world.decide(&set(&[switch]));
        assert!(again.is_ok(), "{kind}: what is set already stays");
        for (other, more) in kinds.into_iter().filter(|(other, _)| *other != kind) {
            let both = set(&[switch, more]);
            assert_eq!(world.refusal(&both), refused(other), "beside {kind}");
        }
    }
}

#[test]
fn limits_of_namespaces_that_would_have_no_effect_are_refused_in_words() {
    let world = World::new();
    let upsert = |limits: serde_json::Value| {
        let namespace: Namespace = from_value(limits).unwrap();
        UpsertNamespaces {
            namespaces: vec![Namespace {
                name: "team".into(),
                ..namespace
            }],
        }
    };
    let empty = json!({
        "Capabilities": {},
        "NodePoolConfiguration": {},
        "VaultConfiguration": {},
        "ConsulConfiguration": {},
    });
    let empty = world.decide(&upsert(empty));
    assert!(empty.is_ok(), "what says nothing is taken");
    let (drivers, modes) = ("limits on task drivers", "limits on network modes");
    let mut limits = vec![
        ("quotas", json!({"Quota": "small"})),
        (
            drivers,
            json!({"Capabilities": {"EnabledTaskDrivers": ["one"]}}),
        ),
        (
            drivers,
            json!({"Capabilities": {"DisabledTaskDrivers": ["one"]}}),
        ),
        (
            modes,
            json!({"Capabilities": {"EnabledNetworkModes": ["one"]}}),
        ),
        (
            modes,
            json!({"Capabilities": {"DisabledNetworkModes": ["one"]}}),
        ),
    ];
    for kind in ["RequiredExtraClaims", "OptionalExtraClaims"] {
        limits.push(("extra claims of identities", json!({kind: {"team": "web"}})));
    }
    for (what, block) in [
        ("limits on node pools", "NodePoolConfiguration"),
        ("limits on Vault clusters", "VaultConfiguration"),
        ("limits on Consul clusters", "ConsulConfiguration"),
    ] {
        limits.push((what, json!({block: {"Default": "one"}})));
        limits.push((what, json!({block: {"Allowed": ["one"]}})));
        limits.push((what, json!({block: {"Denied": ["one"]}})));
    }
    for (what, limit) in limits {
        let shown = limit.to_string();
        let text = world.refusal(&upsert(limit)).1;
        let expected = format!(
            "Invalid namespace \"team\": 1 error occurred:\n\t* {what} are not supported by this \
             version of drover\n\n"
        );
        assert_eq!(text, expected, "{shown}");
    }
}
