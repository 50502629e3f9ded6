//! A subscriber that goes on where it was, life after life, is told everything once and in order.

use crate::story;

#[test]
fn stream_has_no_gap() {
    story::run("stream_has_no_gap", |story| {
        if story.told.is_empty() {
            return Err("nothing was told".to_owned());
        }
        if story.told != story.all {
            let at = story
                .told
                .iter()
                .zip(&story.all)
                .position(|(told, all)| told != all);
            return Err(format!(
                "told {} indexes of {}; they part at {at:?}",
                story.told.len(),
                story.all.len()
            ));
        }
        Ok(())
    });
}
