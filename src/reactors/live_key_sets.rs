//! The set of each table's live keys, kept at every mark; a historical list query starts from the
//! nearest one.
//!
//! At every 65,536th index each table's set is made from the one before it
//! ([`drover_projections::Projections::build_due_live_sets`]). Every server does it for its own
//! database; a database that was built again gets them all anew.

use std::sync::Arc;
use std::time::Duration;

use drover_projections::Interest;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::runner::{Activation, Context, Failure, Reactor, Scope};

/// The pause after a look that found no set due; without it every applied event would cause a look.
const MIN_PAUSE: Duration = Duration::from_secs(2);
/// When it looks again if no event wakes it.
const IDLE: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct LiveKeySets {
    /// The newest mark at which sets were made.
    newest: Mutex<Option<u64>>,
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
            let made =
                tokio::task::spawn_blocking(move || projections.build_due_live_sets()).await??;
            match made {
                // There may be more to make at the next mark.
                Some(mark) => *self.newest.lock() = Some(mark),
                None => tokio::time::sleep(MIN_PAUSE).await,
            }
            Ok(Activation {
                sleep: made.map_or(IDLE, |_| Duration::ZERO),
                status: json!({ "Newest": *self.newest.lock() }),
            })
        })
    }
}
