use drover_events::cluster::*;
use drover_events::gojson::Base64;
use drover_events::keyring::*;
use drover_events::model::*;
use drover_events::namespace::*;
use drover_events::node_pool::*;
use drover_events::variable::*;

use super::*;
use crate::VarOutcome;
use crate::tables::cluster_meta::ClusterMetaTable;
use crate::tables::namespaces::Namespaces;
use crate::tables::node_pools::NodePools;
use crate::tables::root_keys::RootKeys;
use crate::tables::scheduler_config::SchedulerConfigTable;
use crate::tables::variable_quotas::VariableQuotas;
use crate::tables::variables::Variables;

fn var(op: VarOp, path: &str, size: usize, index: u64) -> VariableApplied {
    let var = VariableEncrypted {
        namespace: "default".into(),
        path: path.into(),
        data: Base64::from(vec![7; size]),
        key_id: id(3),
        modify_index: index,
        ..Default::default()
    };
    VariableApplied { op, var, quota: 0 }
}

fn outcome(reply: Reply) -> VarOutcome {
    match reply {
        Reply::Variable(outcome) => *outcome,
        other => panic!("not about a variable: {other:?}"),
    }
}

#[test]
fn var_01_one_event_does_every_operation() {
    let mut world = World::new();
    let written = outcome(world.given(var(VarOp::Set, "a", 3, 0)));
    let VarOutcome::Written(meta) = written else {
        panic!("{written:?}")
    };
    assert_eq!((meta.create_index, meta.modify_index), (1, 1));
    let written = outcome(world.given(var(VarOp::Cas, "a", 4, 1)));
    let VarOutcome::Written(meta) = written else {
        panic!("{written:?}")
    };
    assert_eq!((meta.create_index, meta.modify_index), (1, 2));
    let deleted = outcome(world.given(var(VarOp::DeleteCas, "a", 0, 2)));
    assert!(matches!(deleted, VarOutcome::Deleted(Some(meta)) if meta.modify_index == 2));
    let deleted = outcome(world.given(var(VarOp::Delete, "a", 0, 0)));
    assert_eq!(deleted, VarOutcome::Deleted(None));
    let text = "variable operation \"lock-acquire\" is not known";
    assert_eq!(world.refused(var(VarOp::LockAcquire, "a", 0, 0)), text);
}

#[test]
fn var_02_of_two_with_the_same_index_exactly_one_wins() {
    let mut world = World::new();
    world.given(var(VarOp::Set, "a", 1, 0));
    // Both were decided on the same view; both are in the log.
    let first = outcome(world.given(var(VarOp::Cas, "a", 2, 1)));
    let second = outcome(world.given(var(VarOp::Cas, "a", 3, 1)));
    assert!(matches!(first, VarOutcome::Written(_)));
    assert!(matches!(second, VarOutcome::Conflict(row) if row.data.len() == 2));
}

#[test]
fn var_03_a_conflict_is_a_result_that_carries_what_is_there() {
    let mut world = World::new();
    world.given(var(VarOp::Set, "a", 5, 0));
    let before = world.digests();
    let conflict = outcome(world.given(var(VarOp::DeleteCas, "a", 0, 77)));
    let VarOutcome::Conflict(row) = conflict else {
        panic!("{conflict:?}")
    };
    assert_eq!((row.modify_index, row.data.len()), (1, 5));
    assert_eq!(world.digests(), before);
    assert_eq!(
        world
            .view()
            .get::<Variables>(("default", "a"))
            .unwrap()
            .unwrap()
            .modify_index,
        1
    );
}

#[test]
fn var_04_index_0_means_only_if_absent() {
    let mut world = World::new();
    let conflicts = |world: &mut World, path: &str, index| {
        matches!(
            outcome(world.given(var(VarOp::Cas, path, 1, index))),
            VarOutcome::Conflict(_)
        )
    };
    assert!(conflicts(&mut world, "a", 9), "absent, another index");
    assert!(!conflicts(&mut world, "a", 0), "absent, 0");
    assert!(conflicts(&mut world, "a", 0), "there, 0");
    assert!(conflicts(&mut world, "a", 1), "there, another index");
    assert!(!conflicts(&mut world, "a", 2), "there, its index");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4))]
    #[test]
    fn var_05_the_quota_row_is_the_sum_of_the_sizes(
        steps in proptest::collection::vec((0_u8..4, 0_u8..5, 1_usize..40), 1..40),
    ) {
        let mut world = World::new();
        for (op, path, size) in steps {
            let op = [VarOp::Set, VarOp::Delete, VarOp::Cas, VarOp::DeleteCas][usize::from(op)];
            world.given(var(op, &format!("p{path}"), size, world.index));
        }
        let view = world.view();
        let sum: usize = view
            .scan::<Variables>(crate::Scan::all())
            .map(|row| row.unwrap().data.len())
            .sum();
        let quota = view.get::<VariableQuotas>("default").unwrap();
        proptest::prop_assert_eq!(quota.map_or(0, |row| row.size), sum as i64);
    }
}

#[test]
fn var_09_what_a_snapshot_brings_is_as_large_as_its_quota_says() {
    let mut world = World::new();
    for (path, size) in [("a", 5), ("b", 70), ("c", 900), ("b", 30)] {
        world.given(var(VarOp::Set, path, size, 0));
    }
    world.given(var(VarOp::Delete, "c", 0, 0));
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("snapshot");
    world
        .view()
        .write_snapshot(&files, 512, &|_| Ok(()))
        .unwrap();
    let place = dir.path().join("other");
    let (other, mut writer) =
        crate::Projections::open(place, crate::DatabaseOptions::dev()).unwrap();
    writer.install(&files).unwrap();
    let counted = |view: &crate::View| -> usize {
        let rows = view.scan::<Variables>(crate::Scan::all());
        rows.map(|row| row.unwrap().data.len()).sum()
    };
    let quota_size = |view: &crate::View| {
        let row = view.get::<VariableQuotas>("default").unwrap();
        row.map(|row| row.size)
    };
    assert_eq!(
        (counted(&other.view()), quota_size(&other.view())),
        (35, Some(35))
    );
    // It goes on from there.
    let index = world.view().index() + 1;
    let event = var(VarOp::Delete, "b", 0, 0);
    writer
        .apply(&[recorded(index, event.into(), Vec::new())])
        .unwrap();
    assert_eq!(
        (counted(&other.view()), quota_size(&other.view())),
        (5, Some(5))
    );
}

#[test]
fn var_06_a_deletion_answers_with_what_was_there_and_an_unknown_operation_is_refused() {
    let mut world = World::new();
    world.given(var(VarOp::Set, "a", 5, 0));
    for op in [VarOp::LockAcquire, VarOp::LockRelease] {
        let refused = world.refused(var(op, "a", 5, 0));
        assert!(refused.contains("is not known"), "{refused}");
        assert!(refused.contains(op.name()), "{refused}");
    }
    let gone = outcome(world.given(var(VarOp::DeleteCas, "a", 0, 1)));
    let VarOutcome::Deleted(Some(reported)) = gone else {
        panic!("{gone:?}");
    };
    assert_eq!(
        (
            reported.path.as_str(),
            reported.create_index,
            reported.modify_index
        ),
        ("a", 1, 1)
    );
    let nothing = outcome(world.given(var(VarOp::Delete, "a", 0, 0)));
    assert!(matches!(nothing, VarOutcome::Deleted(None)), "{nothing:?}");
}

#[test]
fn var_05_what_passes_the_quota_is_refused_and_writes_nothing() {
    let mut world = World::new();
    let limited = |path: &str, size: usize, quota| VariableApplied {
        quota,
        ..var(VarOp::Set, path, size, 0)
    };
    world.given(limited("a", 60, 100));
    let refused = world.refused(limited("b", 41, 100));
    assert!(refused.contains("variables quota exceeded"), "{refused}");
    let view = world.view();
    assert!(view.get::<Variables>(("default", "b")).unwrap().is_none());
    let used = view.get::<VariableQuotas>("default").unwrap().unwrap();
    assert_eq!(used.size, 60);
    // To the last byte, and below a quota that was lowered whatever is less than before.
    world.given(limited("b", 40, 100));
    world.given(limited("a", 59, 10));
    world.given(limited("b", 4_000, 0));
    let view = world.view();
    let used = view.get::<VariableQuotas>("default").unwrap().unwrap();
    assert_eq!(used.size, 4_059);
}

fn key(number: u32, state: &str) -> RootKeyUpserted {
    let key = RootKeyMeta {
        key_id: id(number),
        state: state.into(),
        ..Default::default()
    };
    RootKeyUpserted {
        key,
        public_key: Base64::from(vec![1; 32]),
        rekey: false,
    }
}

fn drop_key(number: u32, force: bool) -> RootKeyDeleted {
    RootKeyDeleted {
        key_id: id(number),
        force,
    }
}

#[test]
fn kr_08_the_active_key_stays_and_a_key_in_use_too() {
    let mut world = running_job();
    world.given(key(3, "active"));
    let text = "active root key cannot be deleted - call rotate first";
    assert_eq!(world.refused(drop_key(3, true)), text);
    world.given(var(VarOp::Set, "a", 1, 0));
    world.given(key(4, "active"));
    let state = |world: &World, n| {
        world
            .view()
            .get::<RootKeys>(&id(n))
            .unwrap()
            .map(|key| key.meta.state)
    };
    assert_eq!(
        state(&world, 3).as_deref(),
        Some("inactive"),
        "one active key"
    );
    let text = "root key in use, cannot delete";
    assert_eq!(world.refused(drop_key(3, false)), text);
    world.given(var(VarOp::Delete, "a", 0, 0));
    let signed = Allocation {
        signing_key_id: id(3),
        ..alloc(42, "web", 10)
    };
    world.given(placed(vec![signed], 2));
    assert_eq!(world.refused(drop_key(3, false)), text);
    world.given(super::allocs::update(42, "complete"));
    world.given(drop_key(3, false));
    assert_eq!(state(&world, 3), None);
    assert_eq!(world.refused(drop_key(3, false)), "root key not found");
}

#[test]
fn the_cluster_knows_who_leads_it_and_since_when() {
    let mut world = World::new();
    for number in [1, 2] {
        world.given(LeaderElected {
            server_id: format!("s{number}"),
            name: format!("server-{number}"),
            addr: format!("10.0.0.{number}:4647"),
            ..Default::default()
        });
    }
    let row = world.view().get::<ClusterMetaTable>(()).unwrap().unwrap();
    assert_eq!(
        (row.leader_id.as_str(), row.leader_name.as_str()),
        ("s2", "server-2")
    );
    assert_eq!(
        (row.leader_addr.as_str(), row.leader_since),
        ("10.0.0.2:4647", world.index)
    );
}

#[test]
fn a_cluster_gets_its_identity_and_what_is_built_in_once() {
    let mut world = World::new();
    world.given(ClusterIdSet {
        cluster_id: id(1),
        create_time: START,
    });
    let view = world.view();
    let meta = view.get::<ClusterMetaTable>(()).unwrap().unwrap();
    assert_eq!((meta.cluster_id, meta.create_time), (id(1), START));
    assert_eq!(
        view.get::<Namespaces>("default")
            .unwrap()
            .unwrap()
            .create_index,
        1
    );
    assert!(view.get::<NodePools>("all").unwrap().is_some());
    let again = ClusterIdSet {
        cluster_id: id(2),
        create_time: START,
    };
    assert!(world.refused(again).contains(&id(1)));
    world.given(VersionBarrierRaised {
        level: 2,
        ..Default::default()
    });
    world.given(VersionBarrierRaised {
        level: 1,
        ..Default::default()
    });
    assert_eq!(
        world
            .view()
            .get::<ClusterMetaTable>(())
            .unwrap()
            .unwrap()
            .feature_level,
        2
    );
}

#[test]
fn a_lag_of_the_publisher_is_known_from_its_beginning_to_its_end() {
    let mut world = World::new();
    let known = |world: &World| {
        let meta = world.view().get::<ClusterMetaTable>(()).unwrap();
        let meta = meta.unwrap_or_default();
        (meta.publisher_lagging_since, meta.publisher_position)
    };
    let lagged = |published| PublisherLagged {
        published,
        ..PublisherLagged::default()
    };
    world.given(lagged(0));
    world.given(lagged(7));
    assert_eq!(known(&world), (1, 0), "told once");
    world.given(PublisherCaughtUp::default());
    assert_eq!(known(&world), (0, 0));
    world.given(lagged(3));
    assert_eq!(known(&world), (4, 3));
}

#[test]
fn the_scheduler_configuration_is_set_if_unchanged() {
    let mut world = World::new();
    let set = |index, cas| {
        let config = SchedulerConfiguration {
            modify_index: index,
            ..Default::default()
        };
        SchedulerConfigured { config, cas }
    };
    assert_eq!(world.given(set(0, false)), Reply::Cas(true));
    assert_eq!(world.given(set(9, true)), Reply::Cas(false));
    assert_eq!(world.given(set(1, true)), Reply::Cas(true));
    let row = world
        .view()
        .get::<SchedulerConfigTable>(())
        .unwrap()
        .unwrap();
    assert_eq!((row.create_index, row.modify_index), (1, 3));
}

#[test]
fn namespaces_and_pools_go_only_when_empty() {
    let mut world = World::new();
    let named = |name: &str| Namespace {
        name: name.into(),
        ..Default::default()
    };
    world.given(NamespacesUpserted {
        namespaces: vec![named("prod")],
    });
    let mut inside = job("web");
    inside.namespace = "prod".into();
    world.given(submitted(inside));
    let gone = |name: &str| NamespacesDeleted {
        names: vec![name.into()],
    };
    assert!(
        world
            .refused(gone("prod"))
            .contains("non-terminal job \"web\"")
    );
    assert_eq!(
        world.refused(gone("default")),
        "default namespace can not be deleted"
    );
    assert_eq!(world.refused(gone("x")), "namespace \"x\" not found");

    let pool = NodePool {
        name: "gpu".into(),
        ..Default::default()
    };
    world.given(NodePoolsUpserted {
        node_pools: vec![pool],
    });
    let mut member = node(10);
    member.node_pool = "gpu".into();
    world.given(registered(member));
    let gone = |name: &str| NodePoolsDeleted {
        names: vec![name.into()],
    };
    assert_eq!(world.refused(gone("gpu")), "node pool \"gpu\" has nodes");
    assert_eq!(
        world.refused(gone("all")),
        "deleting node pool \"all\" is not allowed"
    );
}
