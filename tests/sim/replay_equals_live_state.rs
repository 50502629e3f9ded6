//! The log alone gives the state: whatever database a life began with, the digests are those of
//! a replay from zero.

use crate::story;

#[test]
fn replay_equals_live_state() {
    story::run("replay_equals_live_state", |story| {
        if story.live.is_empty() {
            return Err("no table has a digest".to_owned());
        }
        let differs = story
            .live
            .iter()
            .zip(&story.replayed)
            .find(|(live, replayed)| live != replayed);
        match differs {
            Some((live, replayed)) => Err(format!("live {live:?}, replayed {replayed:?}")),
            None if story.live.len() != story.replayed.len() => Err("tables differ".to_owned()),
            None => Ok(()),
        }
    });
}
