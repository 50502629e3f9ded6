//! Sends allocation updates in batches.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::agent::Core;
use super::sync::TICK_MS;
use crate::rpc::methods::{AllocUpdateRequest, NodeUpdateAlloc};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait after a failed batch; a heartbeat that is answered ends it (HB-09).
const RETRY: Duration = Duration::from_secs(5);
/// What servers answer to a node that they take for lost: its heartbeat changes that.
const OUT_OF_CONTACT: &str = "is not allowed to update allocs while in status";
const TICK: Duration = Duration::from_millis(TICK_MS);

/// Sends until the task is aborted; begins when the servers were heard of.
pub(super) async fn keep(core: Arc<Core>) {
    let mut contact = core.contact.subscribe();
    // An error means that the client is gone, and this task with it.
    let _ = contact
        .wait_for(|c| c.allocs_known && c.last_heartbeat > 0)
        .await;
    let mut last = Instant::now();
    loop {
        if core.updates.buffer.lock().waiting() == 0 {
            core.updates.some.notified().await;
        }
        // Ticks that nobody needed are counted when somebody does: an idle client sleeps.
        let next = last + TICK;
        sleep_until(next).await;
        let passed = last.elapsed().as_millis() as u64 / TICK_MS;
        last = Instant::now();
        let batch = {
            let mut buffer = core.updates.buffer.lock();
            buffer.idle(u32::try_from(passed.saturating_sub(1)).unwrap_or(u32::MAX));
            buffer.tick()
        };
        let Some(batch) = batch else { continue };
        let request = AllocUpdateRequest {
            alloc: batch,
            ..AllocUpdateRequest::default()
        };
        let answer = core
            .caller
            .once::<NodeUpdateAlloc>(&request, CALL_TIMEOUT)
            .await;
        match answer {
            Ok(_) => core.updates.buffer.lock().sent(request.alloc),
            Err(e) => {
                tracing::warn!("allocation update: {e}");
                core.updates.buffer.lock().failed(request.alloc);
                contact.mark_unchanged();
                if e.to_string().contains(OUT_OF_CONTACT) {
                    core.hurry.notify_one();
                }
                tokio::select! {
                    () = sleep(RETRY) => {}
                    _ = contact.changed() => {}
                }
            }
        }
    }
}
