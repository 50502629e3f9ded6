//! Who may claim a volume beside whom.

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
    }
}

fn volumes(held_as: &str, held: &[(&str, bool)]) -> Volumes {
    let holder = |(job, writes): &(&str, bool)| Holder {
        alloc_id: format!("of-{job}"),
        job: Some(("default".to_owned(), (*job).to_owned())),
        node_id: "n1".to_owned(),
        writes: *writes,
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
    volumes.set_plugin("p".to_owned(), Some(plugin));
    volumes
}

#[test]
fn modes_say_who_may_be_beside_whom() {
    use access::{ONE_READER, ONE_WRITER, READERS, WRITER_AND_READERS, WRITERS};
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
    let mode = access::ONE_WRITER;
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
    let mut volumes = volumes(access::ONE_WRITER, &[("other", true)]);
    assert_eq!(volumes.of_plugin_on("n1", "p").len(), 1);
    assert!(volumes.of_plugin_on("n1", "q").is_empty());
    assert!(volumes.of_plugin_on("n0", "p").is_empty());
    let mut free = CsiFacts::clone(volumes.csi(&key("data")).unwrap());
    free.holders.clear();
    volumes.set_csi(key("data"), Some(free));
    assert!(volumes.of_plugin_on("n1", "p").is_empty());
}
