//! Reads of the tables, off the threads that serve: a read may wait for the disk, and what is
//! served by the same thread would wait with it. What is in memory is read where it is wanted: to
//! hand it over would take longer than to read it.

use std::time::Duration;

use drover_projections::{at_hand, serving};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::Refusal;
use crate::net::{PATIENCE, busy};

/// Reads at a time: enough to keep a disk busy, few enough that they do not crowd one another out.
const AT_A_TIME: usize = 64;
/// Rows that a thread which serves looks at for one caller: well below a millisecond.
const GLANCE: u32 = 128;
/// Reads of the API.
static READS: Semaphore = Semaphore::const_new(AT_A_TIME);
/// Reads apart from those of the API: for a decision or for a node.
static APART: Semaphore = Semaphore::const_new(AT_A_TIME);
/// Look-ups of callers who proved nothing yet.
static ADMISSIONS: Semaphore = Semaphore::const_new(8);

/// Does the work on a thread of its own and answers what it made. A panic in it goes on here. For
/// what may take long even where nothing waits for the disk.
///
/// # Errors
/// The runtime ends.
pub async fn reading<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    elsewhere(&READS, work).await
}

/// The same for few rows: read here where they are in memory, and only then on another thread.
///
/// # Errors
/// The runtime ends.
pub async fn glancing<T: Send + 'static>(
    work: impl Fn() -> T + Send + 'static,
) -> Result<T, Refusal> {
    quickly(&READS, work).await
}

/// The same for what a command is decided by and for what nodes request: such reads have permits of
/// their own, so however much is read over the API, they do not stand in that line.
///
/// # Errors
/// The runtime ends.
pub async fn read_apart_from_api<T: Send + 'static>(
    work: impl Fn() -> T + Send + 'static,
) -> Result<T, Refusal> {
    quickly(&APART, work).await
}

/// The same for what takes long to decide, whatever is in memory.
///
/// # Errors
/// The runtime ends.
pub async fn read_long_for_decision<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    elsewhere(&APART, work).await
}

/// The same for who a caller is, which anybody may have looked up: they wait for one another only.
/// Every new caller is looked up, so what is not in memory is read [`offload`]: to be woken by
/// another thread takes longer than the read.
///
/// # Errors
/// The runtime ends.
pub async fn admitting<T: Send + 'static>(
    work: impl Fn() -> T + Send + 'static,
) -> Result<T, Refusal> {
    if let Some(made) = at_hand(GLANCE, &work) {
        return Ok(made);
    }
    let turn = ADMISSIONS.acquire().await;
    let _turn = turn.map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(offload(work))
}

/// The turns of all reads of the API, while this is held.
#[cfg(test)]
pub async fn every_read() -> SemaphorePermit<'static> {
    let all = u32::try_from(AT_A_TIME).expect("they are few");
    READS.acquire_many(all).await.expect("it is never closed")
}

async fn quickly<T: Send + 'static>(
    turns: &'static Semaphore,
    work: impl Fn() -> T + Send + 'static,
) -> Result<T, Refusal> {
    match at_hand(GLANCE, &work) {
        Some(made) => Ok(made),
        None => elsewhere(turns, work).await,
    }
}

async fn elsewhere<T: Send + 'static>(
    turns: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let turn = turns
        .acquire()
        .await
        .map_err(|error| Refusal::internal(error.to_string()))?;
    holding(turn, work).await
}

/// Does work of which so much is done at a time, because it takes long or much memory.
///
/// A caller that waited in vain is answered 503: others hold the turns, and another server, or this
/// one a little later, has one. 429 would blame the caller; it is the answer to an address that has
/// too much under way itself. Nomad's clients try both again, and proxies pass on the former only.
///
/// # Errors
/// 503: the turn did not come in time. The runtime ends.
pub async fn in_turn<T: Send + 'static>(
    turns: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    within(PATIENCE, turns, work).await
}

async fn within<T: Send + 'static>(
    patience: Duration,
    turns: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let turn = tokio::time::timeout(patience, turns.acquire()).await;
    let turn = turn.map_err(|_| busy())?;
    holding(
        turn.map_err(|error| Refusal::internal(error.to_string()))?,
        work,
    )
    .await
}

async fn holding<T: Send + 'static>(
    turn: SemaphorePermit<'static>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(move || {
        // Held until the work is done, also when no caller waits for it any more.
        let _turn = turn;
        work()
    });
    match done.await {
        Ok(made) => Ok(made),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(Refusal::internal(error.to_string())),
    }
}

/// A look at few rows between two awaits: made here where they are in memory, else as [`offload`]
/// does it.
pub fn glance<T>(work: impl Fn() -> T) -> T {
    at_hand(GLANCE, &work).unwrap_or_else(|| offload(work))
}

/// Does the work while another thread goes on with what this one served; on a runtime of one
/// thread there is no other, and it is just done. For work between two awaits that would be more
/// trouble than it is worth to move elsewhere.
pub fn offload<T>(work: impl FnOnce() -> T) -> T {
    let many = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    match many {
        true => tokio::task::block_in_place(|| serving::relieved(work)),
        false => serving::relieved(work),
    }
}

/// Spawns work that both waits and reads, off the threads that serve, and waits for its result. The
/// work goes on to its end also where its caller is gone.
///
/// # Errors
/// It panicked, or the runtime ends.
pub async fn spawn_detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Refusal> {
    let task = tokio::spawn(offload_all(work));
    task.await
        .map_err(|error| Refusal::internal(format!("the work ended: {error}")))
}

/// Work that both waits and reads: however long it reads between two awaits, [`offload`] reads.
pub async fn offload_all<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|turn| offload(|| work.as_mut().poll(turn))).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_projections::tables::nodes;

    use super::*;
    use crate::commands::node::RegisterNode;
    use crate::reactors::testing::Direct;
    use drover_testkit::fixtures as testing;

    #[tokio::test]
    async fn a_read_runs_elsewhere_and_its_panic_comes_back() {
        let here = std::thread::current().id();
        let there = reading(|| std::thread::current().id()).await.unwrap();
        assert_ne!(here, there, "the thread that serves is left alone");
        let panicked = tokio::spawn(reading(|| panic!("broken row"))).await;
        assert!(panicked.unwrap_err().is_panic());
        // All the turns of reads taken, a decision has its own.
        let _taken = every_read().await;
        assert_eq!(read_apart_from_api(|| 7).await.unwrap(), 7);
        // So has a caller that is not known yet, and no other waits for it.
        let _strangers = ADMISSIONS.acquire_many(8).await.unwrap();
        assert_eq!(read_apart_from_api(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_is_in_memory_is_read_here_and_the_rest_elsewhere() {
        let direct = Direct::new();
        for number in 1..=200 {
            let command = RegisterNode {
                node: testing::node(number),
                create_node_pool: true,
            };
            direct.command(&command).unwrap();
        }
        let here = std::thread::current().id();
        let read = |direct: &Arc<Direct>, number| {
            let (view, id) = (direct.projections.view(), testing::node(number).id);
            move || {
                let found = nodes::get(&view, &id).is_ok_and(|node| node.is_some());
                (found, std::thread::current().id() == here)
            }
        };
        // It was written just now.
        // Then it is in memory, unless the little cache of a test has no space just there.
        let mut here = false;
        for number in [1, 40, 80, 120, 160] {
            read_apart_from_api(read(&direct, number)).await.unwrap();
            here |= read_apart_from_api(read(&direct, number)).await.unwrap() == (true, true);
        }
        assert!(here);
        assert_eq!(
            read_long_for_decision(read(&direct, 150)).await.unwrap(),
            (true, false)
        );

        let direct = direct.reopened(|_| ());
        for ask in 0..3 {
            let look = read(&direct, [100, 150, 200][ask]);
            let first = match ask {
                0 => read_apart_from_api(look).await,
                1 => glancing(look).await,
                _ => admitting(look).await,
            };
            // On a runtime of one thread there is no other to go on with what this one serves.
            assert_eq!(first.unwrap(), (true, ask == 2), "{ask}: after a start");
        }
        assert_eq!(
            read_apart_from_api(read(&direct, 150)).await.unwrap(),
            (true, true)
        );
        assert!(glance(read(&direct, 50)).0);
    }

    #[tokio::test]
    async fn a_read_that_gets_no_turn_in_time_is_told_so() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        let taken = TURNS.acquire().await.unwrap();
        let soon = Duration::from_millis(20);
        let refused = within(soon, &TURNS, || 7).await.unwrap_err();
        assert_eq!(refused.code, crate::error::Code::Unavailable);
        drop(taken);
        assert_eq!(in_turn(&TURNS, || 7).await.unwrap(), 7);
    }
}
