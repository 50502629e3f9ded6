use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::invent::invent;
use super::*;
use crate::gojson::{self, List, Map};

fn binary<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let bytes = rmp_serde::to_vec_named(value).unwrap();
    rmp_serde::from_slice(&bytes).unwrap()
}

fn json<T: Serialize + DeserializeOwned>(value: &T) -> T {
    gojson::from_slice(&gojson::to_vec(value).unwrap()).unwrap()
}

macro_rules! copies {
    ($($name:ident: $t:ty),* $(,)?) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(
                #[test]
                fn $name(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
                    let value: $t = invent(&bytes, false);
                    prop_assert_eq!(&binary(&value), &value);
                    let once = json(&value);
                    prop_assert_eq!(&json(&once), &once);
                }
            )*
        }
    };
}

copies! {
    ev_16_a_job_copies_to_itself: Job,
    ev_16_an_allocation_copies_to_itself: Allocation,
    ev_16_an_evaluation_copies_to_itself: Evaluation,
    ev_16_a_deployment_copies_to_itself: Deployment,
    ev_16_a_node_copies_to_itself: Node,
    ev_16_a_namespace_copies_to_itself: Namespace,
    ev_16_a_node_pool_copies_to_itself: NodePool,
    ev_16_a_variable_copies_to_itself: VariableEncrypted,
    ev_16_a_token_copies_to_itself: AclToken,
    ev_16_an_auth_method_copies_to_itself: AclAuthMethod,
    ev_16_a_volume_copies_to_itself: CsiVolume,
    ev_16_a_plugin_copies_to_itself: CsiPlugin,
    ev_16_a_host_volume_copies_to_itself: HostVolume,
    ev_16_a_service_copies_to_itself: ServiceRegistration,
    ev_16_a_scaling_policy_copies_to_itself: ScalingPolicy,
}

proptest! {
    /// Full structs print every field, so JSON keeps absent and empty apart as well.
    #[test]
    fn ev_16_json_of_full_structs_loses_nothing(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
    ) {
        let check: ServiceCheck = invent(&bytes, false);
        prop_assert_eq!(json(&check), check);
        let namespace: Namespace = invent(&bytes, false);
        prop_assert_eq!(json(&namespace), namespace);
        let volume: CsiMountOptions = invent(&bytes, false);
        prop_assert_eq!(json(&volume), volume);
    }
}

#[test]
fn ev_16_absent_and_empty_stay_apart() {
    let empty = Job {
        datacenters: List::empty(),
        ..Job::default()
    };
    assert_eq!(binary(&empty), empty);
    assert_eq!(json(&empty), empty);
    assert_ne!(binary(&empty), Job::default());
    assert_eq!(binary(&Job::default()), Job::default());
}

/// The copies there are: in memory, through the log's bytes, and through JSON.
fn copies<T: Clone + Serialize + DeserializeOwned>(value: &T) -> [T; 3] {
    [value.clone(), binary(value), json(value)]
}

proptest! {
    #[test]
    fn sim_05_copies_of_lists_and_maps_keep_absent_and_empty(
        list in proptest::option::of(proptest::collection::vec("[a-z]{0,3}", 0..3)),
        map in proptest::option::of(proptest::collection::btree_map("[a-z]{0,3}", 0..9_i64, 0..3)),
        lists in proptest::option::of(proptest::collection::btree_map(
            "[a-z]{0,3}",
            proptest::option::of(proptest::collection::vec(0..9_i64, 0..3)),
            0..3,
        )),
    ) {
        let list = list.map_or_else(List::nil, List::<String>::from);
        let map = map.map_or_else(Map::nil, |map| map.into_iter().collect::<Map<i64>>());
        let lists = lists.map_or_else(Map::nil, |map| {
            let list = |values: Option<Vec<i64>>| values.map_or_else(List::nil, List::from);
            map.into_iter().map(|(key, values)| (key, list(values))).collect::<Map<List<i64>>>()
        });
        for mut copy in copies(&list) {
            prop_assert_eq!((&copy, copy.is_nil()), (&list, list.is_nil()));
            copy.push("more".to_owned());
            prop_assert_ne!(&copy, &list, "a change of the copy is the copy's own");
        }
        for mut copy in copies(&map) {
            prop_assert_eq!((&copy, copy.is_nil()), (&map, map.is_nil()));
            copy.insert("more", 1);
            prop_assert_ne!(&copy, &map);
        }
        for mut copy in copies(&lists) {
            prop_assert_eq!((&copy, copy.is_nil()), (&lists, lists.is_nil()));
            for (key, values) in lists.iter() {
                prop_assert_eq!(copy[key].is_nil(), values.is_nil());
            }
            for (_, values) in copy.iter_mut() {
                values.push(10);
            }
            prop_assert!(lists.values().all(|values| !values.contains(&10)));
        }
    }
}

#[test]
fn binary_leaves_out_defaults() {
    assert_eq!(rmp_serde::to_vec_named(&Job::default()).unwrap(), [0x80]);
}
