//! The set of each table's live keys, kept at every mark; a historical list query starts from the
//! nearest one.
//!
//! At every 65,536th index each table's set is made from the one before it
//! ([`drover_projections::Projections::build_due_live_sets`]). Every server does it for its own
//! database; a database that was built again gets them all anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_projections::{Interest, StorageError, unreadable};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};

/// The pause after a look that found no set due; without it every applied event would cause a look.
const MIN_PAUSE: Duration = Duration::from_secs(2);
/// When it looks again if no event wakes it.
const IDLE: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct LiveKeySets {
    seen: Mutex<Seen>,
}

/// What is known from one activation to the next.
#[derive(Default)]
struct Seen {
    /// The newest mark at which sets were made.
    newest: Option<u64>,
    /// The tables that get no set, and why. It does not pass before the tables are made again, and
    /// finding it costs a walk.
    left_out: BTreeMap<&'static str, StorageError>,
    /// How often the tables had been made again then.
    made: u64,
}

impl Seen {
    /// Takes the tables that get no set: none where all were made again meanwhile.
    fn take_left_out(&mut self, made: u64) -> BTreeMap<&'static str, StorageError> {
        if self.made != made {
            self.made = made;
            self.left_out.clear();
        }
        std::mem::take(&mut self.left_out)
    }
}

impl Reactor for LiveKeySets {
    fn name(&self) -> &'static str {
        "alive_sets"
    }

    fn scope(&self) -> Scope {
        Scope::EveryServer
    }

    fn interests(&self) -> &'static [Interest] {
        &[Interest::Progress]
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            let projections = Arc::clone(&context.projections);
            let mut left_out = self.seen.lock().take_left_out(unreadable::made());
            let built = tokio::task::spawn_blocking(move || {
                let made = projections.build_due_live_sets(&mut left_out);
                (made, left_out)
            });
            let (made, left_out) = built.await?;
            let mut each = Each::default();
            left_out.values().for_each(|error| each.leave_out(error));
            // Those are known, whatever became of the others.
            self.seen.lock().left_out = left_out;
            let made = made?;
            let mut status = {
                let mut seen = self.seen.lock();
                seen.newest = made.or(seen.newest);
                json!({ "Newest": seen.newest })
            };
            each.report(&mut status);
            // After one that was made there may be more to make at the next mark.
            if made.is_none() {
                tokio::time::sleep(MIN_PAUSE).await;
            }
            Ok(Activation {
                sleep: made.map_or(IDLE, |_| Duration::ZERO),
                status,
            })
        })
    }
}
