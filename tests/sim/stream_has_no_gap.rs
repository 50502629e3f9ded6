//! A subscriber that goes on where it was, life after life, is told everything once and in order.

use crate::story;

#[test]
fn stream_has_no_gap() {
    story::run("stream_has_no_gap", |story| {
        if story.told.is_empty() {
            return Err("nothing was told".to_owned());
        }
        // The log says what there was to tell: every event of these stories changes something.
        if story.told != story.logged {
            let mut both = story.told.iter().zip(&story.logged);
            let at = both.position(|(told, logged)| told != logged);
            return Err(format!(
                "told {} indexes, the log has {} events; they part at {at:?}",
                story.told.len(),
                story.logged.len()
            ));
        }
        Ok(())
    });
}
