//! Registration and heartbeats.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::status::node as status;
use tokio::time::sleep;

use super::agent::{Contact, Core};
use super::clock::{Jitter, SECOND, nanos};
use drover_error::Code;
use drover_net::Seldom;
use drover_rpc::RpcError;
use drover_rpc::methods::{
    NodeRegister, NodeRegisterRequest, NodeUpdateResponse, NodeUpdateStatus,
    NodeUpdateStatusRequest,
};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait after a failed registration, nanoseconds, and its random part.
const RETRY: i64 = 15 * SECOND;
/// The same in development mode.
const RETRY_DEV: i64 = SECOND;
/// The first heartbeat comes within this time of the registration, nanoseconds.
const FIRST_HEARTBEAT: i64 = 10 * SECOND;
/// The longest wait before another attempt while the time given runs out, nanoseconds.
const RETRY_MAX: i64 = 30 * SECOND;

/// Registers, and then heartbeats, until the task is aborted.
pub(super) async fn keep(core: Arc<Core>) {
    let mut chance = Jitter::random();
    loop {
        register(&core, &mut chance).await;
        if !core.settings.get().dev {
            tokio::select! {
                () = sleep(nanos(chance.below(FIRST_HEARTBEAT))) => {}
                // The description goes out after the heartbeat, which then comes before its time.
                () = core.described.notified() => core.described.notify_one(),
            }
        }
        heartbeats(&core, &mut chance).await;
    }
}

async fn register(core: &Core, chance: &mut Jitter) {
    let mut seldom = Seldom::default();
    loop {
        let reported = {
            let _reporting = core.reporting.lock().await;
            let request = NodeRegisterRequest {
                node: (**core.node.lock()).clone(),
            };
            let reported = core.caller.once::<NodeRegister>(&request, CALL_TIMEOUT);
            reported.await
        };
        match reported {
            Ok(answer) => return heard(core, &answer, None),
            Err(e) => {
                let retry = if core.settings.get().dev {
                    RETRY_DEV
                } else {
                    RETRY
                };
                let wait = match e.is_transient() {
                    // Its own server is about to start: look again soon.
                    true if core.settings.get().dev && is_soon(&e) => SECOND / 20,
                    _ => retry + chance.below(retry),
                };
                trouble(core, &e);
                // Nothing else shows why a node does not come.
                match matches!(e, RpcError::Unreachable(_)) && seldom.is_due() {
                    true => tracing::warn!("registration: {e}"),
                    false => tracing::debug!("registration: {e}"),
                }
                sleep(e.retry_after_or(nanos(wait))).await;
            }
        }
    }
}

/// No server was there to answer; one that is there and slow is not to be pressed.
fn is_soon(error: &RpcError) -> bool {
    matches!(error, RpcError::Api(e) if e.code == Code::NoLeader)
        || matches!(error, RpcError::Unreachable(_))
}

/// Returns when the servers do not know the node (any more).
async fn heartbeats(core: &Core, chance: &mut Jitter) {
    let mut unreported = false;
    loop {
        if unreported {
            unreported = !describe(core).await;
        }
        let request = NodeUpdateStatusRequest {
            node_id: core.node.lock().id.clone(),
            status: status::READY.to_owned(),
            node_event: None,
        };
        let wait = match core
            .caller
            .once::<NodeUpdateStatus>(&request, CALL_TIMEOUT)
            .await
        {
            Ok(answer) => {
                let known = core.contact.borrow().node_index;
                heard(core, &answer, Some(answer.node_modify_index != known));
                answer.heartbeat_ttl.max(SECOND / 10)
            }
            Err(RpcError::Api(e))
                if e.code == Code::NotFound || e.message.contains("not found") =>
            {
                tracing::info!("the servers do not know this node: registering again");
                core.report_all();
                return;
            }
            Err(e) => {
                trouble(core, &e);
                tracing::warn!("heartbeat: {e}");
                retry_wait(core, chance)
            }
        };
        // A description that did not arrive is sent again with the next heartbeat, soon.
        let wait = if unreported { wait.min(RETRY) } else { wait };
        tokio::select! {
            () = sleep(nanos(wait)) => {}
            () = core.described.notified() => unreported = true,
            // The servers took this node for lost, and an update was refused for it (HB-09).
            () = core.hurry.notified() => {}
        }
    }
}

/// Reports to the servers how the node is now; whether they know.
pub(super) async fn describe(core: &Core) -> bool {
    let _reporting = core.reporting.lock().await;
    let request = NodeRegisterRequest {
        node: (**core.node.lock()).clone(),
    };
    let reported = core
        .caller
        .once::<NodeRegister>(&request, CALL_TIMEOUT)
        .await;
    match reported {
        Ok(answer) => {
            heard(core, &answer, None);
            true
        }
        Err(error) => {
            trouble(core, &error);
            tracing::warn!("the servers do not know yet how this node changed: {error}");
            false
        }
    }
}

/// A random part of the time that is left; longer once it is over.
fn retry_wait(core: &Core, chance: &mut Jitter) -> i64 {
    let contact = core.contact.borrow();
    if core.settings.get().dev {
        return RETRY_DEV;
    }
    if contact.last_heartbeat == 0 {
        return RETRY + chance.below(RETRY);
    }
    let left = contact.last_heartbeat + contact.ttl - core.clock.now();
    (SECOND + chance.below(left.abs())).min(RETRY_MAX)
}

/// The servers answered; `changed` says of a heartbeat whether the node is another than it was.
fn heard(core: &Core, answer: &NodeUpdateResponse, changed: Option<bool>) {
    let now = core.clock.now();
    if let Some(servers) = core.caller.servers() {
        let addrs: Vec<String> = answer
            .servers
            .iter()
            .map(|s| s.rpc_advertise_addr.clone())
            .collect();
        servers.refresh(&addrs);
    }
    let mut given_up = false;
    core.contact
        .send_modify(|contact| given_up = note(contact, answer, changed, now));
    if given_up {
        core.report_all();
    }
}

/// Notes an answer, and says whether the servers may know less than was reported to them.
fn note(
    contact: &mut Contact,
    answer: &NodeUpdateResponse,
    changed: Option<bool>,
    now: i64,
) -> bool {
    let restored = !contact.epoch.is_empty() && contact.epoch != answer.epoch;
    let given_up = restored || may_be_given_up(contact, changed, now);
    contact.epoch.clone_from(&answer.epoch);
    contact.node_index = answer.node_modify_index;
    contact
        .eligibility
        .clone_from(&answer.scheduling_eligibility);
    contact.registered = true;
    contact.trouble.clear();
    if changed.is_some() {
        contact.last_heartbeat = now;
        contact.ttl = answer.heartbeat_ttl;
    }
    given_up
}

impl Core {
    /// The servers gave this node up, or may have, or went back to an earlier state: everything is
    /// reported to them anew (HB-10).
    fn report_all(&self) {
        self.updates.buffer.lock().report_all();
        self.updates.some.notify_one();
        self.services.report_all();
    }
}

/// Whether the servers gave this node up since the last heartbeat, or may have. An answered
/// heartbeat says whether the node was changed; the answer of one that did it may be lost.
fn may_be_given_up(contact: &Contact, changed: Option<bool>, now: i64) -> bool {
    let over = now > contact.last_heartbeat + contact.ttl;
    let unsure = over && (changed.is_none() || !contact.trouble.is_empty());
    contact.last_heartbeat > 0 && (changed == Some(true) || unsure)
}

fn trouble(core: &Core, error: &RpcError) {
    core.contact
        .send_modify(|contact| contact.trouble = error.to_string());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use drover_events::model::Allocation;

    use super::*;
    use crate::alloc::runner_test::until;
    use crate::testing::Pretended;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn hb_10_only_a_heartbeat_that_finds_another_node_has_everything_told_again() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::new());
        let client = servers.client(tmp.path());
        let report = |id: &str| {
            client.core.updates.put(Allocation {
                id: id.into(),
                client_status: "running".into(),
                ..Allocation::default()
            });
        };
        report("a");
        until("it is reported", || servers.reported("a") == 1).await;
        let beats = servers.beats();
        until("heartbeats", || servers.beats() > beats + 3).await;
        // With this goes all that waits.
        report("b");
        until("the next is reported", || servers.reported("b") > 0).await;
        assert_eq!(servers.reported("a"), 1, "the node is as it was");
        servers.node_index.fetch_add(1, Ordering::Relaxed);
        until("all is reported again", || servers.reported("a") == 2).await;
    }

    #[test]
    fn hb_10_only_a_node_that_may_have_been_given_up_tells_everything() {
        let contact = |last_heartbeat: i64, trouble: &str| Contact {
            last_heartbeat,
            ttl: 10,
            trouble: trouble.into(),
            ..Contact::default()
        };
        for (what, contact, changed, now, expected) in [
            ("the first heartbeat", contact(0, ""), Some(true), 50, false),
            ("one in time", contact(100, ""), Some(false), 109, false),
            (
                "as usual, when it is due",
                contact(100, ""),
                Some(false),
                111,
                false,
            ),
            (
                "one that made it ready again",
                contact(100, ""),
                Some(true),
                130,
                true,
            ),
            (
                "after a short failure",
                contact(100, "lost"),
                Some(false),
                109,
                false,
            ),
            (
                "after a long failure",
                contact(100, "lost"),
                Some(false),
                130,
                true,
            ),
            ("registered in time", contact(100, ""), None, 105, false),
            ("registered late", contact(100, ""), None, 130, true),
        ] {
            assert_eq!(may_be_given_up(&contact, changed, now), expected, "{what}");
        }
    }

    #[test]
    fn hb_10_servers_that_went_back_are_told_everything_once() {
        let answer = |epoch: &str| NodeUpdateResponse {
            epoch: epoch.into(),
            node_modify_index: 7,
            heartbeat_ttl: 10,
            ..NodeUpdateResponse::default()
        };
        let mut contact = Contact {
            trouble: "lost".into(),
            ..Contact::default()
        };
        let registered = note(&mut contact, &answer("one"), None, 100);
        assert!(!registered, "nothing was reported before");
        assert_eq!(
            (contact.last_heartbeat, contact.node_index),
            (0, 7),
            "it is no heartbeat"
        );
        assert!(contact.registered && contact.trouble.is_empty());
        assert!(!note(&mut contact, &answer("one"), Some(false), 101));
        assert_eq!((contact.last_heartbeat, contact.ttl), (101, 10));
        assert!(note(&mut contact, &answer("two"), Some(false), 102));
        assert!(!note(&mut contact, &answer("two"), Some(false), 103));
    }
}
