//! What the rows of services, variables, keys and use say after each event.

use drover_events::gojson::Base64;
use drover_events::keyring::RootKeyUpserted;
use drover_events::model::{
    AllocatedSharedResources, RootKeyMeta, ServiceRegistration, VariableEncrypted, VariableLock,
};
use drover_events::service::*;
use drover_events::variable::*;

use super::*;
use crate::tables::node_use::NodeUses;
use crate::tables::root_keys::{RootKey, RootKeys};
use crate::tables::services::Services;
use crate::tables::variable_quotas::VariableQuotas;
use crate::tables::variables::Variables;

fn service(name: &str, port: i64) -> ServiceRegistration {
    ServiceRegistration {
        id: name.into(),
        namespace: "default".into(),
        node_id: id(10),
        port,
        ..Default::default()
    }
}

#[test]
fn a_service_is_written_where_it_changed_and_goes_with_its_node() {
    let mut world = World::new();
    let reported = |services| ServiceRegistrationsUpserted { services };
    let indexes = |world: &World, name: &str| {
        let row = world.view().get::<Services>(("default", name)).unwrap();
        row.map(|row| (row.port, row.create_index, row.modify_index))
    };
    world.given(reported(vec![service("a", 1), service("b", 1)]));
    world.given(reported(vec![service("a", 1), service("b", 2)]));
    assert_eq!(indexes(&world, "a"), Some((1, 1, 1)));
    assert_eq!(indexes(&world, "b"), Some((2, 1, 2)));
    let key = |id: &str| ServiceKey {
        namespace: "default".into(),
        id: id.into(),
    };
    let named = |id: &str| ServiceRegistrationsDeleted {
        services: vec![key(id)],
        ..Default::default()
    };
    world.given(named("a"));
    assert_eq!(indexes(&world, "a"), None);
    assert!(indexes(&world, "b").is_some());
    assert!(
        world
            .refused(named("a"))
            .contains("registration a not found")
    );
    let mut elsewhere = service("c", 1);
    elsewhere.node_id = id(11);
    world.given(reported(vec![elsewhere]));
    world.given(ServiceRegistrationsDeleted {
        node_id: id(10),
        ..Default::default()
    });
    assert_eq!(indexes(&world, "b"), None);
    assert!(indexes(&world, "c").is_some());
}

#[test]
fn the_use_of_a_node_counts_every_resource() {
    let mut world = running_job();
    let mut large = alloc(42, "web", 10);
    let mut resources = large.allocated_resources.clone().unwrap();
    let task = resources.tasks.get_mut("t").unwrap();
    task.memory.memory_max_mb = 512;
    resources.shared = AllocatedSharedResources {
        disk_mb: 150,
        ..Default::default()
    };
    large.allocated_resources = Some(resources);
    let used = |world: &World| {
        let row = world.view().get::<NodeUses>(&id(10)).unwrap().unwrap();
        (row.memory_mb, row.memory_max_mb, row.disk_mb)
    };
    let before = used(&world);
    world.given(placed(vec![large], 2));
    let after = used(&world);
    assert_eq!(after.0 - before.0, 256);
    assert_eq!((after.1 - before.1, after.2 - before.2), (512, 150));
    world.given(super::allocs::update(42, "complete"));
    assert_eq!(used(&world), before);
}

#[test]
fn a_variable_tells_when_it_was_made_and_changed_and_nobody_forges_its_lock() {
    let mut world = World::new();
    let set = |size| {
        let lock = VariableLock {
            id: id(9),
            ..Default::default()
        };
        let var = VariableEncrypted {
            namespace: "default".into(),
            path: "a".into(),
            data: Base64::from(vec![7; size]),
            key_id: id(3),
            lock: Some(lock),
            create_time: 1,
            modify_time: 1,
            ..Default::default()
        };
        VariableApplied {
            op: VarOp::Set,
            var,
            quota: 0,
        }
    };
    world.given(set(3));
    let made = now(&world);
    let get = |world: &World| {
        let row = world.view().get::<Variables>(("default", "a")).unwrap();
        row.unwrap()
    };
    let row = get(&world);
    assert_eq!(
        (row.create_time, row.modify_time, row.lock),
        (made, made, None)
    );
    world.given(set(5));
    let row = get(&world);
    assert_eq!((row.create_time, row.modify_time), (made, now(&world)));
    assert_eq!((row.create_index, row.modify_index, row.lock), (1, 2, None));
    let quota = world.view().get::<VariableQuotas>("default").unwrap();
    let quota = quota.unwrap();
    assert_eq!(
        (quota.size, quota.create_index, quota.modify_index),
        (5, 1, 2)
    );
    // Above a quota that was lowered, what is no larger than before is allowed.
    world.given(VariableApplied { quota: 2, ..set(5) });
    assert_eq!(get(&world).modify_index, 3);
}

#[test]
fn one_key_is_active_and_the_others_are_as_they_were() {
    let mut world = World::new();
    let key = |number: u32, state: &str, public: u8| RootKeyUpserted {
        key: RootKeyMeta {
            key_id: id(number),
            state: state.into(),
            ..Default::default()
        },
        public_key: Base64::from(vec![public; usize::from(public > 0) * 32]),
        rekey: false,
    };
    let get = |world: &World, number: u32| -> RootKey {
        world.view().get::<RootKeys>(&id(number)).unwrap().unwrap()
    };
    let reported = |world: &World, number| {
        let key = get(world, number);
        let meta = &key.meta;
        (meta.state.clone(), meta.create_index, meta.modify_index)
    };
    let key_state = |state: &str, created, modified| (state.to_owned(), created, modified);
    world.given(key(1, "active", 1));
    world.given(key(2, "inactive", 2));
    world.given(key(3, "rekeying", 3));
    assert_eq!(reported(&world, 1), key_state("active", 1, 1));
    world.given(key(2, "active", 0));
    assert_eq!(reported(&world, 2), key_state("active", 2, 4));
    assert_eq!(get(&world, 2).public_key, Base64::from(vec![2; 32]), "kept");
    assert_eq!(reported(&world, 1), key_state("inactive", 1, 4));
    assert_eq!(reported(&world, 3), key_state("rekeying", 3, 3));
    world.given(RootKeyUpserted {
        rekey: true,
        ..key(4, "active", 4)
    });
    assert_eq!(reported(&world, 2), key_state("rekeying", 2, 5));
    assert_eq!(reported(&world, 1), key_state("inactive", 1, 4));
}
