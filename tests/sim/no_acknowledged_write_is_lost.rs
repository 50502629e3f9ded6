//! What was acknowledged is there at the end, as it was written and where it was said to be.

use crate::story;

#[test]
fn no_acknowledged_write_is_lost() {
    story::run("no_acknowledged_write_is_lost", |story| {
        for (number, life) in story.lives.iter().enumerate() {
            for write in &life.acked {
                let wanted = (write.index, write.description.clone());
                let found = story.rows.get(&write.name);
                if found != Some(&wanted) {
                    return Err(format!("life {number}: {write:?} is now {found:?}"));
                }
            }
        }
        Ok(())
    });
}
