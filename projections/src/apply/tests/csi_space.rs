//! Who may claim a volume beside whom, and what a claim keeps.

use drover_events::csi::*;
use drover_events::model::*;

use super::csi::*;
use super::*;

fn offers_more(world: &mut World) {
    let mut more = volume("data");
    let mut capabilities = more.requested_capabilities.to_vec();
    for access in ["multi-node-single-writer", "multi-node-reader-only"] {
        capabilities.push(CsiVolumeCapability {
            access_mode: access.into(),
            attachment_mode: "file-system".into(),
        });
    }
    more.requested_capabilities = capabilities.into();
    world.given(CsiVolumeDeregistered {
        namespace: "default".into(),
        volume_ids: vec!["data".into()],
        force: false,
    });
    world.given(registers(vec![more]));
}

#[test]
fn csi_24_a_wider_claim_that_came_later_lets_no_second_writer_in() {
    let (one, any) = ("multi-node-single-writer", "multi-node-multi-writer");
    let text = "volume \"data\" in namespace \"default\": volume max claims reached";
    for first in [
        claim(40, claim_mode::WRITE, one),
        claim(40, claim_mode::READ, "multi-node-reader-only"),
    ] {
        let mut world = with_volume();
        offers_more(&mut world);
        world.given(first);
        world.given(claim(41, claim_mode::READ, any));
        assert_eq!(raw(&world).volume.access_mode, any);
        assert_eq!(world.refused(claim(42, claim_mode::WRITE, any)), text);
        world.given(step(40, state::READY_TO_FREE));
        world.given(claim(42, claim_mode::WRITE, any));
    }
    // A level at which the last mode alone counted replays as it was.
    let mut old = with_volume_at(CSI_LEVEL);
    offers_more(&mut old);
    old.given(claim(40, claim_mode::WRITE, one));
    old.given(claim(41, claim_mode::READ, any));
    old.given(claim(42, claim_mode::WRITE, any));
    assert_eq!(raw(&old).write_claims.len(), 2);
}

#[test]
fn what_is_attached_keeps_the_name_of_its_node() {
    let mut world = with_volume();
    let named = |name: &str| CsiVolumeClaimed {
        external_node_id: name.into(),
        ..writes(40)
    };
    world.given(named("old"));
    world.given(named("new"));
    assert_eq!(raw(&world).write_claims[&id(40)].external_node_id, "new");
    world.given(CsiVolumeClaimed {
        published: true,
        ..named("new")
    });
    world.given(named("newest"));
    let held = &raw(&world).write_claims[&id(40)];
    assert!(held.published);
    assert_eq!(held.external_node_id, "new", "there it is to be detached");
}

/// The volume is being deleted at its provider, or not any more.
fn deletes(to: u8) -> CsiVolumeClaimed {
    CsiVolumeClaimed {
        allocation_id: String::new(),
        state: to,
        ..claim(40, claim_mode::DELETE, "")
    }
}

#[test]
fn an_unconfirmed_detach_holds_nobody_up_and_is_remembered() {
    let mut world = with_volume();
    world.given(writes(40));
    world.given(step(40, state::NODE_DETACHED));
    world.given(step(40, state::CONTROLLER_DETACHED));
    assert!(raw(&world).in_use());
    world.given(step(40, state::DETACH_UNCONFIRMED));
    let row = raw(&world);
    assert!(!row.in_use() && !row.is_at_rest());
    assert_eq!((row.holders().count(), row.claims().count()), (0, 0));
    assert_eq!(row.detach_unconfirmed().next().unwrap().0, id(40));
    assert_eq!(row.volume.access_mode, "", "CSI-07");
    // Steps that come again change nothing, and the next one has it.
    world.given(step(40, state::NODE_DETACHED));
    assert_eq!(raw(&world), row);
    world.given(writes(41));
    let text = "volume \"data\" in namespace \"default\": volume max claims reached";
    assert_eq!(world.refused(writes(42)), text);
    world.given(step(40, state::READY_TO_FREE));
    assert_eq!(raw(&world).past_claims.len(), 0);
    // An allocation whose detach is unconfirmed may claim again: the new claim stands for what was
    // not known.
    world.given(step(41, state::DETACH_UNCONFIRMED));
    world.given(writes(41));
    assert_eq!(raw(&world).holders().collect::<Vec<_>>(), [id(41)]);
    assert!(raw(&world).past_claims.is_empty());
}

#[test]
fn a_volume_that_is_being_deleted_is_given_to_nobody() {
    let mut world = with_volume();
    world.given(writes(40));
    assert_eq!(
        world.refused(deletes(state::CLAIMED)),
        "volume in use: data"
    );
    world.given(step(40, state::READY_TO_FREE));
    world.given(deletes(state::CLAIMED));
    assert!(raw(&world).deleting > 0 && !raw(&world).is_at_rest());
    let text = "volume \"data\" in namespace \"default\" is being deleted";
    assert_eq!(world.refused(writes(40)), text);
    world.given(deletes(state::READY_TO_FREE));
    world.given(writes(40));
    world.given(step(40, state::READY_TO_FREE));
    world.given(deletes(state::CLAIMED));
    world.given(CsiVolumeDeregistered {
        namespace: "default".into(),
        volume_ids: vec!["data".into()],
        force: false,
    });
    world.given(registers(vec![volume("data")]));
    world.given(writes(40));
}

/// A node has still to make the volume larger, or not any more.
fn grown(to: u8, at: i64) -> CsiVolumeClaimed {
    CsiVolumeClaimed {
        allocation_id: String::new(),
        state: to,
        timestamp: at,
        ..claim(40, claim_mode::GROWN, "")
    }
}

#[test]
fn csi_05_what_a_node_has_still_to_make_larger_is_known_and_holds_nobody_up() {
    let mut world = with_volume();
    assert_eq!(raw(&world).node_expansion, 0);
    world.given(grown(state::CLAIMED, 7));
    let row = raw(&world);
    assert_eq!(
        (row.node_expansion, row.in_use(), row.is_at_rest()),
        (7, false, true)
    );
    world.given(writes(40));
    // It is no claim: of those there are it says nothing, and they say nothing of it.
    world.given(grown(state::CLAIMED, 9));
    let row = raw(&world);
    assert_eq!((row.node_expansion, row.holders().count()), (9, 1));
    world.given(registers(vec![volume("data")]));
    assert_eq!(raw(&world).node_expansion, 9, "whatever else is said of it");
    world.given(grown(state::READY_TO_FREE, 11));
    let row = raw(&world);
    assert_eq!((row.node_expansion, row.holders().count()), (0, 1));
    let mut old = with_volume_at(UNCONFIRMED_DETACH_LEVEL);
    let text = "claim 4 with state 0 on volume \"data\" is not known";
    assert_eq!(old.refused(grown(state::CLAIMED, 7)), text);
}

#[test]
fn servers_of_before_know_neither_and_all_apply_the_same() {
    let mut old = with_volume_at(CLAIMS_LEVEL);
    old.given(writes(40));
    for event in [
        step(40, state::DETACH_UNCONFIRMED),
        deletes(state::READY_TO_FREE),
    ] {
        let text = format!(
            "claim {} with state {} on volume \"data\" is not known",
            event.mode, event.state
        );
        assert_eq!(old.refused(event), text);
    }
}
