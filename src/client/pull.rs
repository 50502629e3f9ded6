//! Which allocations this node should have: fetched, compared, followed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::Allocation;
use tokio::time::sleep;

use super::agent::Core;
use super::clock::{Jitter, SECOND, nanos};
use drover_rpc::RpcError;
use drover_rpc::methods::{
    AllocGetAllocs, AllocsGetRequest, NodeGetClientAllocs, NodeSpecificRequest,
};

/// How long one question may wait for a change.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// A little more than that: the answer has to travel.
const CALL_TIMEOUT: Duration = Duration::from_secs(320);
/// How long fetching may wait for a server that is behind.
const FETCH_WAIT: Duration = Duration::from_secs(10);
/// How many allocations are fetched with one call: they carry their jobs.
const FETCH_CHUNK: usize = 200;
/// The wait after a failure, nanoseconds, and its random part.
const RETRY: i64 = 30 * SECOND;
/// The same in development mode.
const RETRY_DEV: i64 = SECOND;
/// The wait when a wanted allocation was not among the fetched ones.
const MISSING_RETRY: Duration = Duration::from_secs(2);

/// What has to happen so that what runs is what should run (MOD-31).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Ids to fetch: new here, or changed.
    pub fetch: Vec<String>,
    /// Ids that the servers no longer know.
    pub removed: Vec<String>,
}

/// Compares what the servers say (id to index) with what is here. `anew` after a restore: the
/// servers may be at an earlier state than what is here then, and theirs counts.
pub fn diff(wanted: &BTreeMap<String, u64>, here: &BTreeMap<String, u64>, anew: bool) -> Diff {
    let newer = |(id, index): (&String, &u64)| {
        here.get(id)
            .is_none_or(|have| have < index || (anew && have != index))
            .then(|| id.clone())
    };
    Diff {
        fetch: wanted.iter().filter_map(newer).collect(),
        removed: here
            .keys()
            .filter(|id| !wanted.contains_key(*id))
            .cloned()
            .collect(),
    }
}

/// What is known of the servers' state.
#[derive(Debug, Default)]
struct ServerState {
    index: u64,
    /// The epoch of their log; empty before the first answer that was followed whole.
    epoch: String,
    /// Allocations that were looked at and not run: they ended before they came here.
    ignored: BTreeMap<String, u64>,
}

/// Follows the servers until the task is aborted.
pub(super) async fn keep(core: Arc<Core>) {
    let mut chance = Jitter::random();
    let mut contact = core.contact.subscribe();
    // An error means that the client is gone, and this task with it.
    let _ = contact.wait_for(|c| c.registered).await;
    let mut known = ServerState::default();
    loop {
        match round(&core, &mut known).await {
            Ok(true) => {}
            Ok(false) => sleep(MISSING_RETRY).await,
            Err(e) => {
                tracing::debug!("allocations: {e}");
                let dev = core.settings.get().dev;
                let retry = if dev { RETRY_DEV } else { RETRY };
                let wait = if e.is_transient() { SECOND } else { retry };
                let wait = nanos(wait / 2 + chance.below(wait));
                sleep(e.retry_after_or(wait)).await;
            }
        }
    }
}

/// One query and what follows from its answer; false when something wanted did not come.
async fn round(core: &Core, known: &mut ServerState) -> Result<bool, RpcError> {
    let request = NodeSpecificRequest {
        node_id: core.node.lock().id.clone(),
        min_query_index: known.index,
        max_query_time: i64::try_from(MAX_WAIT.as_nanos()).unwrap_or(i64::MAX),
        epoch: known.epoch.clone(),
    };
    let answer = core
        .caller
        .once::<NodeGetClientAllocs>(&request, CALL_TIMEOUT)
        .await?;
    // What was restored before the first answer may be of a former epoch too.
    let anew = known.epoch != answer.epoch;
    known
        .ignored
        .retain(|id, _| !anew && answer.allocs.contains_key(id));
    let mut here: BTreeMap<String, u64> = core
        .allocs
        .lock()
        .iter()
        .map(|(id, runner)| (id.clone(), runner.alloc().alloc_modify_index))
        .collect();
    here.extend(known.ignored.clone());
    let diff = diff(&answer.allocs, &here, anew);
    let of = |id: &String| Some((id.clone(), *answer.allocs.get(id)?));
    let fetched = fetched(core, &diff.fetch.iter().filter_map(of).collect()).await?;
    let all_came = fetched.len() == diff.fetch.len();
    for id in &diff.removed {
        core.remove(id);
    }
    let complete = follow(core, fetched, &mut known.ignored) && all_came;
    let is_known = |id: &str| answer.allocs.contains_key(id) || here.contains_key(id);
    core.updates.buffer.lock().forget_unless(is_known);
    if complete {
        (known.index, known.epoch) = (answer.index, answer.epoch);
    }
    if !core.contact.borrow().allocs_known {
        core.contact.send_modify(|c| c.allocs_known = true);
        let runners: Vec<_> = core.allocs.lock().values().cloned().collect();
        for runner in runners {
            runner.server_contacted();
        }
    }
    Ok(complete)
}

/// Fetches allocations, each as it is at its index or later.
pub(super) async fn fetched(
    core: &Core,
    wanted: &BTreeMap<String, u64>,
) -> Result<Vec<Allocation>, RpcError> {
    let mut fetched = Vec::new();
    let all: Vec<_> = wanted.iter().collect();
    for some in all.chunks(FETCH_CHUNK) {
        let newest = some.iter().map(|(_, index)| **index).max();
        let request = AllocsGetRequest {
            alloc_ids: some.iter().map(|(id, _)| (*id).clone()).collect(),
            min_query_index: newest.unwrap_or(0),
            max_query_time: i64::try_from(FETCH_WAIT.as_nanos()).unwrap_or(i64::MAX),
        };
        let answer = core.caller.once::<AllocGetAllocs>(&request, CALL_TIMEOUT);
        fetched.extend(answer.await?.allocs);
    }
    Ok(fetched)
}

/// Updates first, then additions; false when some have to wait for others to be gone.
fn follow(core: &Core, fetched: Vec<Allocation>, ignored: &mut BTreeMap<String, u64>) -> bool {
    let (mut additions, mut complete) = (Vec::new(), true);
    for alloc in fetched {
        let runner = core.allocs.lock().get(&alloc.id).cloned();
        match runner {
            // It was to end and is wanted again, after a restore: it begins from its start,
            // and nothing of its former end counts.
            Some(runner) if !alloc.terminal_status() && runner.alloc().server_terminal() => {
                core.remove(&alloc.id);
                complete = false;
            }
            Some(runner) => runner.update(Arc::new(alloc)),
            None if core.updates.buffer.lock().is_leaving(&alloc.id) => complete = false,
            // CL-26: what ended before it came here is not started.
            None if alloc.terminal_status() => {
                ignored.insert(alloc.id.clone(), alloc.alloc_modify_index);
                if !alloc.client_terminal() {
                    core.updates.buffer.lock().put_absent(&alloc);
                    core.updates.some.notify_one();
                }
            }
            None => additions.push(Arc::new(alloc)),
        }
    }
    for alloc in additions {
        core.add(alloc, None);
    }
    complete
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;
    use tokio::sync::watch;

    use super::*;
    use crate::alloc::runner_test;
    use crate::alloc_runner::AllocRunner;
    use crate::testing::{EPOCH, INDEX, Pretended};
    use drover_testkit::until;

    fn maps() -> impl Strategy<Value = BTreeMap<String, u64>> {
        proptest::collection::btree_map("[a-f]", 0_u64..4, 0..6)
    }

    proptest! {
        #[test]
        fn mod_31_following_a_diff_gives_what_is_wanted(wanted in maps(), mut here in maps()) {
            let diff = diff(&wanted, &here, false);
            for id in &diff.fetch {
                here.insert(id.clone(), wanted[id]);
            }
            for id in &diff.removed {
                prop_assert!(!wanted.contains_key(id));
                here.remove(id);
            }
            prop_assert!(here.keys().eq(wanted.keys()));
            prop_assert!(here.iter().all(|(id, index)| *index >= wanted[id]));
        }

        #[test]
        fn after_a_restore_what_is_here_becomes_what_the_servers_have(
            wanted in maps(),
            mut here in maps(),
        ) {
            let diff = diff(&wanted, &here, true);
            for id in &diff.fetch {
                prop_assert_ne!(here.insert(id.clone(), wanted[id]), Some(wanted[id]));
            }
            for id in &diff.removed {
                here.remove(id);
            }
            prop_assert_eq!(here, wanted);
        }
    }

    #[test]
    fn hb_14_the_index_alone_says_what_is_fetched() {
        let of = |index: u64| BTreeMap::from([("a".to_owned(), index)]);
        for (wanted, here, fetched) in [(5, 7, false), (7, 7, false), (8, 7, true)] {
            let diff = diff(&of(wanted), &of(here), false);
            assert_eq!(diff.fetch == ["a"], fetched, "{wanted} and {here} here");
            assert!(diff.removed.is_empty());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_did_not_come_is_asked_for_again_and_nothing_is_waited_for_before_it_came() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
        let client = servers.client(tmp.path());
        let given = Allocation {
            alloc_modify_index: 7,
            ..runner_test::alloc("batch", "mock_driver", serde_json::json!({}))
        };
        servers.wanted.lock().insert(given.id.clone(), 7);
        let mut known = ServerState::default();
        let complete = round(&client.core, &mut known).await;
        assert!(!complete.expect("an answer"));
        assert_eq!((known.index, known.epoch.as_str()), (0, ""));
        assert_eq!(client.alloc_ids(), [""; 0]);
        servers.there.lock().push(given.clone());
        let complete = round(&client.core, &mut known).await;
        assert!(complete.expect("an answer"));
        assert_eq!((known.index, known.epoch.as_str()), (INDEX, EPOCH));
        assert_eq!(client.alloc_ids(), [given.id]);
    }

    /// An allocation, and how often it was notified that the servers answered.
    struct ServerReport(Arc<Allocation>, AtomicUsize);

    impl AllocRunner for ServerReport {
        fn update(&self, _: Arc<Allocation>) {}

        fn alloc(&self) -> Arc<Allocation> {
            Arc::clone(&self.0)
        }

        fn done(&self) -> watch::Receiver<bool> {
            watch::Sender::new(false).subscribe()
        }

        fn destroy(&self) -> BoxFuture<'static, ()> {
            std::future::ready(()).boxed()
        }

        fn server_contacted(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn allocations_that_are_here_are_told_of_the_servers_first_answer_and_of_no_other() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
        let client = servers.client(tmp.path());
        let given = Allocation {
            id: "a".into(),
            alloc_modify_index: 7,
            ..Allocation::default()
        };
        servers.wanted.lock().insert("a".to_owned(), 7);
        let runner = Arc::new(ServerReport(Arc::new(given), AtomicUsize::new(0)));
        let mine = runner.clone();
        client.core.allocs.lock().insert("a".to_owned(), mine);
        for _ in 0..2 {
            let answered = round(&client.core, &mut ServerState::default()).await;
            assert!(answered.expect("an answer"));
            assert_eq!(runner.1.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_reported_is_forgotten_when_the_servers_know_no_more_of_it() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
        let client = servers.client(tmp.path());
        servers.wanted.lock().insert("known".to_owned(), 7);
        for id in ["gone", "known"] {
            let reported = Allocation {
                id: id.into(),
                client_status: "failed".into(),
                ..Allocation::default()
            };
            client.core.updates.buffer.lock().acknowledge(reported);
        }
        let answered = round(&client.core, &mut ServerState::default()).await;
        answered.expect("an answer");
        let mut buffer = client.core.updates.buffer.lock();
        buffer.report_all();
        let again = (0..100).find_map(|_| buffer.tick()).expect("a batch");
        let ids: Vec<&str> = again.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["known"]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn cl_26_what_ended_before_it_came_here_is_not_started() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::new());
        let one = Allocation {
            node_id: "n".into(),
            alloc_modify_index: 7,
            ..runner_test::alloc(
                "service",
                "mock_driver",
                serde_json::json!({"run_for": "1h"}),
            )
        };
        servers.wanted.lock().insert(one.id.clone(), 7);
        servers.there.lock().push(one.clone());
        let client = servers.client(tmp.path());
        let core = &client.core;
        let reported = |status: &str| {
            let updates = servers.updates.lock();
            let of = |row: &&Allocation| row.id == one.id && row.client_status == status;
            updates.iter().rev().find(of).cloned()
        };
        until("it runs", || reported("running").is_some()).await;

        let mut ignored = BTreeMap::new();
        for (n, (desired, status)) in [("stop", "pending"), ("evict", "unknown"), ("run", "failed")]
            .into_iter()
            .enumerate()
        {
            let over = Allocation {
                id: format!("00000000-0000-0000-0000-00000000000{n}"),
                desired_status: desired.into(),
                client_status: status.into(),
                ..one.clone()
            };
            follow(core, vec![over.clone()], &mut ignored);
            assert!(client.runner(&over.id).is_none(), "{desired} {status}");
            assert_eq!(ignored.get(&over.id), Some(&7));
            assert!(!core.settings.get().alloc_dir.join(&over.id).exists());
        }

        // One that is stopped while the servers could not see it ends, and is not reconnected.
        let stopped = Allocation {
            desired_status: "stop".into(),
            client_status: "unknown".into(),
            alloc_modify_index: one.alloc_modify_index + 1,
            ..one.clone()
        };
        follow(core, vec![stopped], &mut ignored);
        until("it ends", || reported("complete").is_some()).await;
        let row = reported("complete").unwrap();
        let events: Vec<&str> = row.task_states["web"]
            .events
            .iter()
            .map(|e| e.r#type.as_str())
            .collect();
        let expected = [
            "Received",
            "Task Setup",
            "Started",
            "Killing",
            "Terminated",
            "Killed",
        ];
        assert_eq!(events, expected);
    }
}
