//! Sends allocation updates in batches.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::Allocation;
use tokio::time::{Instant, sleep, sleep_until};

use super::agent::{Contact, Core};
use super::sync::TICK_MS;
use drover_rpc::methods::{AllocUpdateRequest, NodeUpdateAlloc};
use drover_rpc::updates::{MAX_UPDATE, shrink, size};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait after a failed batch; a heartbeat that is answered ends it (HB-09).
const RETRY: Duration = Duration::from_secs(5);
/// What servers answer to a node that they take for lost: its heartbeat changes that.
const OUT_OF_CONTACT: &str = "is not allowed to update allocs while in status";
const TICK: Duration = Duration::from_millis(TICK_MS);
/// How many bytes of updates one call carries, roughly.
const MAX_CALL: usize = 8 << 20;

/// Sends until the task is aborted; begins at the first contact with the servers.
pub(super) async fn keep(core: Arc<Core>) {
    let mut contact = core.contact.subscribe();
    // An error means that the client is gone, and this task with it.
    let _ = contact.wait_for(may_speak).await;
    let mut last = Instant::now();
    loop {
        if core.updates.buffer.lock().waiting() == 0 {
            core.updates.some.notified().await;
        }
        // Ticks that were not needed are counted when updates come: an idle client sleeps.
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
        let (batch, rest) = one_call(batch);
        core.updates.buffer.lock().failed(rest);
        let mut reported = batch.clone();
        for alloc in &mut reported {
            shrink(alloc);
        }
        let request = AllocUpdateRequest {
            alloc: reported,
            ..AllocUpdateRequest::default()
        };
        let answer = core
            .caller
            .once::<NodeUpdateAlloc>(&request, CALL_TIMEOUT)
            .await;
        match answer {
            Ok(_) => core.updates.buffer.lock().sent(batch),
            Err(e) => {
                tracing::warn!("allocation update: {e}");
                core.updates.buffer.lock().failed(batch);
                contact.mark_unchanged();
                if e.to_string().contains(OUT_OF_CONTACT) {
                    core.hurry.notify_one();
                }
                tokio::select! {
                    () = sleep(e.retry_after_or(RETRY)) => {}
                    _ = contact.changed() => {}
                }
            }
        }
    }
}

/// It is known what the node should run, and the servers know that the node is there.
fn may_speak(contact: &Contact) -> bool {
    contact.allocs_known && contact.last_heartbeat > 0
}

/// The part of a batch that is sent in one call, far below what a call may carry, and the part for
/// the next one.
fn one_call(mut batch: Vec<Allocation>) -> (Vec<Allocation>, Vec<Allocation>) {
    let mut bytes = 0;
    let fits = batch.iter().position(|alloc| {
        bytes += size(alloc).min(MAX_UPDATE);
        bytes > MAX_CALL
    });
    let rest = fits.map_or_else(Vec::new, |at| batch.split_off(at.max(1)));
    (batch, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::runner_test::until;
    use crate::testing::Pretended;

    #[test]
    fn who_knows_what_it_should_run_and_had_a_heartbeat_answered_may_speak() {
        for (allocs_known, last_heartbeat, may) in [
            (false, 0, false),
            (true, 0, false),
            (false, 1, false),
            (true, 1, true),
        ] {
            let contact = Contact {
                allocs_known,
                last_heartbeat,
                ..Contact::default()
            };
            assert_eq!(may_speak(&contact), may, "{contact:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_too_large_is_cut_before_it_is_told() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::new());
        let client = servers.client(tmp.path());
        client.core.updates.put(Allocation {
            id: "a".into(),
            client_status: "failed".into(),
            client_description: "d".repeat(2 * MAX_UPDATE),
            ..Allocation::default()
        });
        until("it is reported", || servers.reported("a") > 0).await;
        let reported = servers.updates.lock()[0].clone();
        assert_eq!(reported.client_status, "failed");
        assert!(size(&reported) <= MAX_UPDATE, "{} bytes", size(&reported));
    }

    #[test]
    fn a_call_carries_what_it_may_and_the_rest_comes_later() {
        let alloc = |number: usize, bytes: usize| Allocation {
            id: number.to_string(),
            client_description: "d".repeat(bytes),
            ..Allocation::default()
        };
        let (reported, rest) = one_call((0..100).map(|n| alloc(n, 10)).collect());
        assert_eq!((reported.len(), rest.len()), (100, 0));
        let mut left: Vec<_> = (0..40).map(|n| alloc(n, 3 << 20)).collect();
        let mut calls = 0;
        let mut ids = Vec::new();
        while !left.is_empty() {
            let (reported, rest) = one_call(left);
            assert!((1..=8).contains(&reported.len()), "{}", reported.len());
            ids.extend(reported.into_iter().map(|alloc| alloc.id));
            calls += 1;
            left = rest;
        }
        assert_eq!((calls, ids.len()), (5, 40));
    }
}
