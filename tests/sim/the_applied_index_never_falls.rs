//! The applied index only rises: within a life, and from what a life acknowledged to the next.

use crate::story;

#[test]
fn the_applied_index_never_falls() {
    story::run("the_applied_index_never_falls", |story| {
        let mut promised = 0;
        for (number, life) in story.lives.iter().enumerate() {
            if !life.applied.is_sorted() {
                return Err(format!("life {number}: {:?}", life.applied));
            }
            for write in &life.acked {
                if write.index <= promised {
                    return Err(format!(
                        "life {number}: {write:?} lies at or below {promised}"
                    ));
                }
            }
            let acked = life.acked.iter().map(|write| write.index).max();
            promised = promised.max(acked.unwrap_or(0));
        }
        Ok(())
    });
}
