//! The calls that stand in line for a plugin, and what they hold up.

use std::sync::atomic::Ordering;

use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_testkit::LONG;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::PageQuery;
use super::harness::{PLUGIN, World, node_id};
use super::testing::{Fault, turns};
use crate::csi_calls::{AT_ONCE, LISTS_AT_ONCE};
use crate::error::Code;
use crate::proposer::Origin;
use crate::rpc::csi::Secrets;

#[tokio::test]
async fn lists_that_hang_hold_up_nobody_who_attaches() {
    let world = World::new(1);
    world.volume("data", ONE);
    let hang = [Fault::Hangs; 2 * AT_ONCE];
    world.strict.fault("ControllerListVolumes", &hang);
    let list = || Box::pin(world.volumes.external(PLUGIN, PageQuery::default()));
    let mut lists: Vec<_> = hang.iter().map(|_| list()).collect();
    let answered = lists.iter_mut().map(|list| list.now_or_never());
    let refused: Vec<_> = answered.flatten().map(Result::unwrap_err).collect();
    assert_eq!(refused.len(), hang.len() - LISTS_AT_ONCE);
    for refused in refused {
        assert_eq!((refused.step, refused.code), ("", Code::Unavailable));
    }
    let alloc = world.alloc(1, 0, "data", ONE);
    let claimed = timeout(LONG, world.claim("data", &alloc)).await;
    claimed.expect("it stands in no line of lists").unwrap();
    // Another plugin has turns of its own, and this one has its back once they are done.
    assert!(world.volumes.plugin_calls.listing_permit("other").is_ok());
    assert!(world.volumes.plugin_calls.listing_permit(PLUGIN).is_err());
    drop(lists);
    let again = join_all((0..LISTS_AT_ONCE).map(|_| list())).now_or_never();
    assert!(again.is_none(), "they are under way");
    assert_eq!(world.volumes.plugin_calls.in_line().1.len(), 0);
}

#[tokio::test]
async fn who_waits_in_line_for_too_long_is_told_that_nothing_was_done() {
    let mut world = World::new(1);
    world.hurry();
    world.volume("data", ONE);
    let (line, _) = world.volumes.plugin_calls.in_line();
    let key = || (node_id(0), PLUGIN.to_owned());
    let _taken = join_all((0..AT_ONCE).map(|_| line.lock(key()))).await;
    let alloc = world.alloc(1, 0, "data", ONE);
    let late = timeout(LONG, world.claim("data", &alloc)).await;
    let late = late.expect("it does not wait for ever").unwrap_err();
    assert_eq!(late.code, Code::Unavailable);
    assert!(late.text.contains("64 other calls"), "{late}");
    // Nor is a volume kept from any claim by a delete that is not made.
    world.volume("other", ONE);
    let (key, index) = (("default".to_owned(), "other".to_owned()), world.index());
    let (secrets, origin) = (Secrets::default(), Origin::default());
    let late = world.volumes.delete(&key, secrets, &origin).await;
    assert!(late.unwrap_err().text.contains("64 other calls"));
    assert_eq!(world.index(), index);
    assert!(world.strict.calls().is_empty());
}

#[tokio::test]
async fn vw_02_what_waits_in_line_for_a_plugin_is_not_asked_in_another_term() {
    let world = World::new(1);
    let (line, _) = world.volumes.plugin_calls.in_line();
    let key = || (node_id(0), PLUGIN.to_owned());
    let attaches = || world.strict.count("ControllerAttachVolume");
    // The first continues in the term in which it came: so it is known where the second waits.
    for (number, terms) in [(1, 0), (2, 1)] {
        let volume = format!("data-{number}");
        world.volume(&volume, ONE);
        let alloc = world.alloc(number, 0, &volume, ONE);
        let before = attaches();
        let taken = join_all((0..AT_ONCE).map(|_| line.lock(key()))).await;
        let lets_go = async {
            turns(10).await;
            assert!(world.row(&volume).in_use(), "it is claimed");
            assert_eq!(attaches(), before, "and waits in line");
            world.leader.term.fetch_add(terms, Ordering::SeqCst);
            drop(taken);
        };
        let (claimed, ()) = tokio::join!(world.claim(&volume, &alloc), lets_go);
        match terms {
            0 => assert!(claimed.is_ok(), "{claimed:?}"),
            _ => assert_eq!(claimed.unwrap_err().code, Code::NoLeader),
        }
    }
    assert_eq!(attaches(), 1);
}
