//! A subscriber that continues where it was, life after life, gets everything once and in order.

use crate::story;

#[test]
fn stream_has_no_gap() {
    story::run("stream_has_no_gap", |story| {
        if story.reported.is_empty() {
            return Err("nothing was told".to_owned());
        }
        // The log says which events there were: every event of these stories changes something.
        if story.reported != story.logged {
            let mut both = story.reported.iter().zip(&story.logged);
            let at = both.position(|(reported, logged)| reported != logged);
            return Err(format!(
                "told {} indexes, the log has {} events; they part at {at:?}",
                story.reported.len(),
                story.logged.len()
            ));
        }
        Ok(())
    });
}
