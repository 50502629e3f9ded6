//! What runs only while this server leads: started with leadership, stopped with it, nothing lost.

use std::sync::Arc;

use super::Server;
use crate::reactors::propose::RaftPropose;
use crate::reactors::scheduling::{Scheduling, SchedulingSettings};

/// Starts and stops the leader's reactors as leadership comes and goes. Ends with Raft.
pub(super) async fn follow_leadership(server: Arc<Server>) {
    let mut ready = server.proposer.ready();
    loop {
        let leads = ready.borrow_and_update().is_some();
        let running = server.scheduling.lock().is_some();
        match (leads, running) {
            (true, false) => begin(&server),
            (false, true) => end(&server).await,
            _ => {}
        }
        if ready.changed().await.is_err() {
            return end(&server).await;
        }
    }
}

fn begin(server: &Arc<Server>) {
    let mut settings = SchedulingSettings::default();
    if let Some(workers) = server.config.server.num_schedulers {
        settings.workers = workers as usize;
    }
    let proposer = Arc::new(RaftPropose::new(server.proposer.clone(), &server.me.id));
    match Scheduling::start(Arc::clone(&server.projections), proposer, settings) {
        Ok(scheduling) => *server.scheduling.lock() = Some(scheduling),
        Err(error) => tracing::error!(%error, "scheduling does not start"),
    }
}

/// Stops them and waits for their threads.
pub(super) async fn end(server: &Server) {
    let scheduling = server.scheduling.lock().take();
    if let Some(scheduling) = scheduling {
        let _ = tokio::task::spawn_blocking(move || scheduling.stop()).await;
    }
}
