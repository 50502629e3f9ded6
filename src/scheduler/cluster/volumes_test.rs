//! Which claims of a volume go together.

use super::*;

fn key(id: &str) -> VolumeKey {
    VolumeKey::Csi("default".to_owned(), id.to_owned())
}

fn one(job: &str, mode: &str, writes: bool) -> VolumeUse {
    VolumeUse {
        key: key("data"),
        job: ("default".to_owned(), job.to_owned()),
        writes,
        access_mode: mode.to_owned(),
        attachment_mode: "file-system".to_owned(),
    }
}

fn volumes(held_as: &str, held: &[(&str, bool)]) -> Volumes {
    let holder = |(job, writes): &(&str, bool)| Holder {
        alloc_id: format!("of-{job}"),
        job: Some(("default".to_owned(), (*job).to_owned())),
        node_id: "n1".to_owned(),
        writes: *writes,
        access_mode: String::new(),
        attachment_mode: String::new(),
    };
    let facts = CsiFacts {
        plugin_id: "p".to_owned(),
        access_mode: held_as.to_owned(),
        holders: held.iter().map(holder).collect(),
        ..CsiFacts::default()
    };
    let mut volumes = Volumes::default();
    volumes.set_csi(key("data"), Some(facts));
    let plugin = PluginFacts {
        nodes: 1,
        ..PluginFacts::default()
    };
    volumes.set_plugin("p", Some(plugin));
    volumes
}

#[test]
fn modes_say_who_may_be_beside_whom() {
    use access_mode::{
        MULTI_NODE_MULTI_WRITER as WRITERS, MULTI_NODE_READER as READERS,
        MULTI_NODE_SINGLE_WRITER as WRITER_AND_READERS, SINGLE_NODE_READER as ONE_READER,
        SINGLE_NODE_WRITER as ONE_WRITER,
    };
    let other = [("other", true)];
    let reader = [("other", false)];
    for (held_as, held, mode, writes, may) in [
        ("", &[][..], ONE_WRITER, true, true),
        ("", &[][..], ONE_READER, false, true),
        ("", &[][..], ONE_READER, true, false),
        (ONE_WRITER, &other[..], ONE_WRITER, true, false),
        (ONE_WRITER, &other[..], ONE_WRITER, false, false),
        (ONE_READER, &reader[..], ONE_READER, false, false),
        (READERS, &reader[..], READERS, false, true),
        (READERS, &reader[..], WRITERS, true, false),
        (
            WRITER_AND_READERS,
            &other[..],
            WRITER_AND_READERS,
            false,
            true,
        ),
        (
            WRITER_AND_READERS,
            &other[..],
            WRITER_AND_READERS,
            true,
            false,
        ),
        (
            WRITER_AND_READERS,
            &reader[..],
            WRITER_AND_READERS,
            true,
            true,
        ),
        (WRITERS, &other[..], WRITERS, true, true),
        (WRITERS, &other[..], ONE_WRITER, true, false),
    ] {
        let volumes = volumes(held_as, held);
        let answer = volumes.claimable(&one("j", mode, writes), std::iter::empty());
        assert_eq!(answer.is_ok(), may, "{held_as} {held:?} {mode} {writes}");
    }
}

#[test]
fn plans_and_allocations_count_before_anything_is_claimed() {
    let mode = access_mode::SINGLE_NODE_WRITER;
    let (own, other) = (one("j", mode, true), one("other", mode, true));
    let mut volumes = volumes("", &[]);
    let in_flight = |volumes: &Volumes, uses: &[VolumeUse]| volumes.claimable(&own, uses.iter());
    assert_eq!(
        in_flight(&volumes, std::slice::from_ref(&other)),
        Err(Denied::InUse)
    );
    assert_eq!(
        in_flight(&volumes, std::slice::from_ref(&own)),
        Ok(()),
        "its own"
    );
    volumes.add_user("a1", "n1", std::slice::from_ref(&other));
    volumes.add_user("a1", "n1", std::slice::from_ref(&other));
    assert_eq!(in_flight(&volumes, &[]), Err(Denied::InUse));
    assert_eq!(volumes.writers(&key("data")).count(), 1);
    assert_eq!(volumes.of_plugin_on("n1", "p"), [&key("data")]);
    volumes.remove_user("a1", "n1", std::slice::from_ref(&other));
    volumes.remove_user("a1", "n1", std::slice::from_ref(&other));
    assert_eq!(in_flight(&volumes, &[]), Ok(()));
    assert!(volumes.of_plugin_on("n1", "p").is_empty());
}

#[test]
fn what_is_held_counts_on_its_node_until_it_is_released() {
    let mut volumes = volumes(access_mode::SINGLE_NODE_WRITER, &[("other", true)]);
    assert_eq!(volumes.of_plugin_on("n1", "p").len(), 1);
    assert!(volumes.of_plugin_on("n1", "q").is_empty());
    assert!(volumes.of_plugin_on("n0", "p").is_empty());
    let mut free = CsiFacts::clone(volumes.csi(&key("data")).unwrap());
    free.holders.clear();
    volumes.set_csi(key("data"), Some(free));
    assert!(volumes.of_plugin_on("n1", "p").is_empty());
}

#[test]
fn every_holder_is_asked_and_not_only_what_was_claimed_last() {
    let (one_writer, any) = ("multi-node-single-writer", "multi-node-multi-writer");
    let mut volumes = volumes(any, &[("first", true), ("second", false)]);
    let mut facts = CsiFacts::clone(volumes.csi(&key("data")).unwrap());
    facts.holders[0].access_mode = one_writer.to_owned();
    facts.holders[1].access_mode = any.to_owned();
    volumes.set_csi(key("data"), Some(facts.clone()));
    let none = std::iter::empty;
    let third = volumes.claimable(&one("third", any, true), none());
    assert_eq!(third, Err(Denied::InUse), "the first one writes alone");
    assert_eq!(volumes.claimable(&one("third", any, false), none()), Ok(()));
    // And who only read as one that lets one write does not shut out a writer.
    facts.access_mode = one_writer.to_owned();
    facts.holders[0].access_mode = any.to_owned();
    volumes.set_csi(key("data"), Some(facts));
    assert_eq!(volumes.claimable(&one("third", any, true), none()), Ok(()));
}

#[test]
fn an_allocation_that_asks_twice_writes_if_it_writes_once() {
    let mut volumes = volumes("", &[]);
    let twice = |first, second| {
        let mode = "multi-node-single-writer";
        [one("other", mode, first), one("other", mode, second)]
    };
    for uses in [twice(true, false), twice(false, true)] {
        volumes.add_user("a1", "n1", &uses);
        assert_eq!(volumes.writers(&key("data")).collect::<Vec<_>>(), ["a1"]);
        volumes.remove_user("a1", "n1", &uses);
        assert_eq!(volumes.writers(&key("data")).count(), 0);
        assert!(volumes.of_plugin_on("n1", "p").is_empty());
    }
}

#[test]
fn a_volume_is_attached_in_one_way_at_a_time_and_only_as_it_is_offered() {
    let any = access_mode::MULTI_NODE_MULTI_WRITER;
    let file = one("j", any, true);
    let block = VolumeUse {
        attachment_mode: "block-device".to_owned(),
        ..file.clone()
    };
    let none = std::iter::empty;
    let mut volumes = volumes(any, &[]);
    let mut facts = CsiFacts::clone(volumes.csi(&key("data")).unwrap());
    let pair = |access: &str, attachment: &str| (access.to_owned(), attachment.to_owned());
    // Each half of it is offered, and not both together.
    facts.modes = [
        pair(any, "file-system"),
        pair(access_mode::SINGLE_NODE_WRITER, "block-device"),
    ]
    .into();
    volumes.set_csi(key("data"), Some(facts.clone()));
    assert_eq!(volumes.claimable(&file, none()), Ok(()));
    assert_eq!(volumes.claimable(&block, none()), Err(Denied::Unusable));
    facts.modes.insert(pair(any, "block-device"));
    volumes.set_csi(key("data"), Some(facts.clone()));
    assert_eq!(volumes.claimable(&block, none()), Ok(()));
    // A holder, a job that has claimed nothing yet, or one in flight, has it in one way.
    let other = |wanted: &VolumeUse| VolumeUse {
        job: ("default".to_owned(), "other".to_owned()),
        ..wanted.clone()
    };
    let flying = [other(&file)];
    assert_eq!(volumes.claimable(&file, flying.iter()), Ok(()));
    assert_eq!(volumes.claimable(&block, flying.iter()), Err(Denied::InUse));
    volumes.add_user("a1", "n1", &flying);
    assert_eq!(volumes.claimable(&block, none()), Err(Denied::InUse));
    volumes.remove_user("a1", "n1", &flying);
    facts.holders = vec![Holder {
        alloc_id: "a1".to_owned(),
        job: Some(("default".to_owned(), "other".to_owned())),
        node_id: "n1".to_owned(),
        writes: true,
        access_mode: any.to_owned(),
        attachment_mode: "block-device".to_owned(),
    }];
    volumes.set_csi(key("data"), Some(facts.clone()));
    assert_eq!(volumes.claimable(&file, none()), Err(Denied::InUse));
    assert_eq!(volumes.claimable(&block, none()), Ok(()));
    // Its own job lets go of it for the new version.
    facts.holders[0].job = Some(("default".to_owned(), "j".to_owned()));
    volumes.set_csi(key("data"), Some(facts));
    assert_eq!(volumes.claimable(&file, none()), Ok(()));
}

#[test]
fn a_plugin_that_serves_again_says_which_volumes_can_be_used() {
    let mut volumes = volumes("", &[]);
    let mut facts = CsiFacts::clone(volumes.csi(&key("data")).unwrap());
    volumes.set_csi(key("plain"), Some(facts.clone()));
    facts.controller_required = true;
    volumes.set_csi(key("data"), Some(facts.clone()));
    facts.exhausted = true;
    volumes.set_csi(key("full"), Some(facts.clone()));
    facts.plugin_id = "q".to_owned();
    facts.exhausted = false;
    volumes.set_csi(key("of-another"), Some(facts));
    let plugin = |nodes, controllers| {
        Some(PluginFacts {
            nodes,
            controllers,
            controller_required: None,
        })
    };
    assert_eq!(volumes.set_plugin("p", plugin(1, 1)), [key("data")]);
    assert!(volumes.set_plugin("p", plugin(2, 2)).is_empty());
    assert!(volumes.set_plugin("p", None).is_empty());
    assert_eq!(volumes.set_plugin("p", plugin(1, 0)), [key("plain")]);
    assert_eq!(volumes.set_plugin("p", plugin(1, 1)), [key("data")]);
}
