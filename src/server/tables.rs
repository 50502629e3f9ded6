//! The tables of a running server: what they hold, compared with the log and built again.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use drover_migrations::schema::LATEST;
use serde_json::Value;

use super::{Server, projection_options};
use crate::history::rebuild::{
    self, LiveCheck, Online, OnlineSettings, RebuildError, RebuildStatus,
};

impl Server {
    /// Where the database is at home, whatever directory it is in.
    fn home(&self) -> PathBuf {
        self.dir.join("projections")
    }

    /// What the tables hold. Every row is passed over.
    ///
    /// # Errors
    /// Those of the database.
    pub fn tables(&self) -> Result<Value, RebuildError> {
        let (view, flushed) = (self.projections.view(), self.projections.flushed()?.index);
        let (home, live) = (self.home(), self.projections.path());
        rebuild::tables(&view, (&home, &live), (flushed, LATEST.0))
    }

    /// Begins to build the tables again from the log, to put them in the place of those in use;
    /// false while a rebuild or verification runs.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin_rebuild(&self, settings: OnlineSettings) -> io::Result<bool> {
        let (home, options) = (self.home(), projection_options(&self.config));
        let (node, projections) = (Arc::clone(&self.raft), Arc::clone(&self.projections));
        let restart = self.restart.clone();
        let run = Box::new(move |cancelled: &_, progress: &mut (dyn FnMut(_) + Send)| {
            let online = Online {
                home,
                node: &node,
                projections: &projections,
                options,
                settings,
                cancelled,
            };
            let done = online.run(progress)?;
            if done.is_another() {
                // What the reactors hold in memory was learned from the old tables.
                tracing::warn!("the tables were not what the log gives: starting anew on new ones");
                restart.cancel();
            }
            Ok(done.to_json())
        });
        self.rebuild.begin("rebuild", run)
    }

    /// Begins to compare the tables with what the log gives; false while a rebuild or verification
    /// runs.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin_check(&self, settings: OnlineSettings) -> io::Result<bool> {
        let (home, options) = (self.home(), projection_options(&self.config));
        let (node, projections) = (Arc::clone(&self.raft), Arc::clone(&self.projections));
        let run = Box::new(move |cancelled: &_, progress: &mut (dyn FnMut(_) + Send)| {
            let check = LiveCheck {
                home,
                log: node.log(),
                projections: &projections,
                options,
                settings,
                cancelled,
            };
            Ok(check.run(progress)?.to_json())
        });
        self.rebuild.begin("verify", run)
    }

    /// Progress of the running or last rebuild or verification.
    pub fn rebuild_status(&self) -> RebuildStatus {
        self.rebuild.status()
    }

    /// Requests that a running rebuild or verification stops.
    pub fn cancel_rebuild(&self) {
        self.rebuild.cancel();
    }

    /// Removes the retired databases; answers how many there were.
    ///
    /// # Errors
    /// One cannot be removed.
    pub fn discard_tables(&self) -> Result<usize, RebuildError> {
        rebuild::discard(&self.home())
    }
}
