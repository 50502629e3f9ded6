//! What was acknowledged is there at the end, as it was written and where it was said to be.

use crate::story::{self, Story};

/// Every acknowledged write is a row at its index, and there are such writes.
pub(crate) fn holds(story: &Story) -> Result<(), String> {
    let mut writes = 0;
    for (number, life) in story.lives.iter().enumerate() {
        for write in &life.acked {
            let wanted = (write.index, write.description.clone());
            let found = story.rows.get(&write.name);
            if found != Some(&wanted) {
                return Err(format!("life {number}: {write:?} is now {found:?}"));
            }
            writes += 1;
        }
    }
    (writes > 0)
        .then_some(())
        .ok_or_else(|| "nothing was acknowledged".to_owned())
}

#[test]
fn no_acknowledged_write_is_lost() {
    story::run("no_acknowledged_write_is_lost", holds);
}
