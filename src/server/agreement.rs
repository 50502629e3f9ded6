//! Whether this server's tables are what the cluster recorded ([`DigestRecorded`]).
//!
//! Every server meets the record while it applies the log, when it stands behind the index that was
//! recorded. One that differs says so wherever it is looked at, and leaves a mark: the next start
//! builds the tables again from the log, and so does `drover projection rebuild` at once.
//!
//! [`DigestRecorded`]: drover_events::cluster::DigestRecorded

use std::sync::Arc;

use drover_events::{Event, EventKind, Recorded};
use drover_projections::Projections;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::history::rebuild;
use crate::raft::Observer;

/// The state of the agreement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Agreed {
    /// The last index whose digests were recorded and compared here.
    pub at: Option<u64>,
    /// The tables that are different at the first index at which this server differs.
    pub different: Vec<String>,
    /// That index; none while it does not differ.
    pub differs_at: Option<u64>,
}

/// Compares while the applier applies.
#[derive(Default)]
pub(super) struct Agreement(Mutex<Agreed>);

impl Agreement {
    pub(super) fn status(&self) -> Agreed {
        self.0.lock().clone()
    }

    /// What is wrong with this server, in words.
    pub(super) fn fault(&self) -> Option<String> {
        let agreed = self.0.lock();
        let at = agreed.differs_at?;
        Some(format!(
            "at index {at} the tables {} are not what the cluster recorded: `drover projection \
             rebuild` builds them again from the log",
            agreed.different.join(", ")
        ))
    }

    /// What looks at all that is applied.
    pub(super) fn observer(self: &Arc<Self>) -> Observer {
        let own = Arc::clone(self);
        Box::new(move |events, projections| own.observe(events, projections))
    }

    /// Looks at events that are applied now.
    fn observe(&self, events: &[Recorded], projections: &Projections) {
        for event in events {
            if event.kind == EventKind::DigestRecorded {
                self.compare(event, projections);
            }
        }
    }

    fn compare(&self, event: &Recorded, projections: &Projections) {
        let Some(Event::DigestRecorded(recorded)) =
            event.envelope.as_ref().map(|envelope| &envelope.event)
        else {
            return;
        };
        let unlike = match rebuild::unlike(&projections.view(), recorded) {
            Ok(Some(unlike)) => unlike,
            // Nothing is kept of that index here: it is behind a snapshot that was taken in.
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "recorded digests cannot be compared");
                return;
            }
        };
        let mut agreed = self.0.lock();
        agreed.at = Some(recorded.at);
        if unlike.is_empty() || agreed.differs_at.is_some() {
            return;
        }
        agreed.differs_at = Some(recorded.at);
        agreed.different = unlike.into_iter().map(str::to_owned).collect();
        drop(agreed);
        let fault = self.fault().unwrap_or_default();
        tracing::error!(fault, "this server differs");
        projections.mark_damaged(&fault);
    }
}
