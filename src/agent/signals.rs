//! The signals an agent answers: SIGINT and SIGTERM stop it, SIGHUP has it read its configuration
//! anew.
//!
//! They are taken by a thread of their own that waits for nothing else, so that an agent ends in
//! time even when everything in it is stuck.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use tokio::sync::{Notify, watch};

use super::{Leaving, STOP_LIMIT};

/// What is left of the time to stop when the process ends itself.
const LAST: Duration = Duration::from_millis(100);

/// Keeps the signals from every thread that is started from now on, for [`Signals::listen`].
///
/// # Errors
/// The kernel refused.
pub(super) fn block() -> io::Result<()> {
    Ok(all().thread_block()?)
}

fn all() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect()
}

/// What SIGINT is called.
pub(super) const INTERRUPT: &str = "interrupt";

/// A signal that requests the agent's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// What it is called.
    pub(super) signal: &'static str,
    /// When it came.
    pub(super) at: Instant,
    /// How long after that the process ends itself, whatever it does by then.
    pub(super) limit: Duration,
}

/// The signals that end the agent, or have it reload.
pub(super) struct Signals {
    stop: watch::Receiver<Vec<Heard>>,
    hangup: Arc<Notify>,
    more: More,
}

/// How much longer an agent that leaves may take than its configuration says, milliseconds: its
/// tasks have their time to end.
type More = Arc<AtomicU64>;

impl Signals {
    /// Starts to listen. Signals that arrive before the first [`Signals::stop`] are kept. `leaving`
    /// says how long the agent may take before it stops.
    pub(super) fn listen(leaving: Leaving) -> io::Result<Self> {
        let (report, stop) = watch::channel(Vec::new());
        let hangup = Arc::new(Notify::new());
        let hung = Arc::clone(&hangup);
        let more = More::default();
        let granted = Arc::clone(&more);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || wait(&report, &hung, leaving, &granted))?;
        Ok(Self { stop, hangup, more })
    }

    /// The process ends itself so much later than was set for the signal by which the agent leaves.
    pub(super) fn grant(&self, more: Duration) {
        let more = u64::try_from(more.as_millis()).unwrap_or(u64::MAX);
        self.more.store(more, Ordering::Release);
    }

    /// Waits for the signal that requests the agent's stop.
    pub(super) async fn stop(&mut self) -> Heard {
        let heard = self.stop.wait_for(|heard| !heard.is_empty()).await;
        let first = heard.ok().and_then(|heard| heard.first().copied());
        match first {
            Some(first) => first,
            // The thread ends only with the process.
            None => std::future::pending().await,
        }
    }

    /// Says when SIGHUP came.
    pub(super) fn hangup(&self) -> Arc<Notify> {
        Arc::clone(&self.hangup)
    }

    /// Waits for a second one.
    pub(super) async fn again(&mut self) {
        if self.stop.wait_for(|heard| heard.len() > 1).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Waits for signals that request the agent's end; each of them starts a wait for that end, which
/// is bounded.
fn wait(report: &watch::Sender<Vec<Heard>>, hangup: &Notify, leaving: Leaving, more: &More) {
    loop {
        let signal = match all().wait() {
            Ok(Signal::SIGHUP) => {
                tracing::info!("Caught signal: hangup");
                hangup.notify_one();
                continue;
            }
            Ok(Signal::SIGINT) => INTERRUPT,
            Ok(_) => "terminated",
            Err(error) => {
                tracing::error!(%error, "cannot wait for signals");
                return;
            }
        };
        let at = Instant::now();
        let first = report.borrow().is_empty();
        let leaves = leaving.limit(signal).filter(|_| first);
        let limit = leaves.unwrap_or_default() + STOP_LIMIT - LAST;
        report.send_modify(|heard| heard.push(Heard { signal, at, limit }));
        end_within(Timer {
            limit,
            more: leaves.map(|_| Arc::clone(more)),
        });
    }
}

/// How long the process has until it ends itself.
struct Timer {
    limit: Duration,
    /// Where the agent leaves before it stops.
    more: Option<More>,
}

impl Timer {
    /// The time that is left.
    fn left(&self, passed: Duration) -> Duration {
        let more = self.more.as_ref();
        let more = more.map_or(0, |more| more.load(Ordering::Acquire));
        let limit = self.limit.saturating_add(Duration::from_millis(more));
        limit.saturating_sub(passed)
    }
}

/// Ends the process after this time, whatever it does by then.
fn end_within(timer: Timer) {
    let began = Instant::now();
    let ends = move || {
        // What is granted meanwhile is waited for as well.
        loop {
            let left = timer.left(began.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left);
        }
        tracing::error!(
            "the agent is stuck and ends at once; what it has acknowledged is on the disk"
        );
        // An orderly exit runs what might be stuck as well.
        let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGKILL);
    };
    let thread = std::thread::Builder::new().name("end".to_owned());
    if let Err(error) = thread.spawn(ends) {
        tracing::error!(%error, "nothing ends the agent should it be stuck");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn who_leaves_has_the_time_of_its_tasks_and_who_just_stops_has_not() {
        let (_report, stop) = watch::channel(Vec::new());
        let signals = Signals {
            stop,
            hangup: Arc::default(),
            more: More::default(),
        };
        let seconds = Duration::from_secs;
        let timer = |more| Timer {
            limit: seconds(10),
            more,
        };
        let (leaves, stops) = (timer(Some(Arc::clone(&signals.more))), timer(None));
        assert_eq!(leaves.left(seconds(4)), seconds(6));
        // It is known only once the signal was received: the timer runs by then.
        signals.grant(seconds(20));
        assert_eq!(leaves.left(seconds(10)), seconds(20));
        assert_eq!(leaves.left(seconds(31)), Duration::ZERO);
        assert_eq!(stops.left(seconds(10)), Duration::ZERO);
    }

    /// Has this test be the process that is stuck.
    const STUCK: &str = "DROVER_TEST_STUCK";

    #[test]
    fn an_agent_in_which_all_is_stuck_ends_itself() {
        if std::env::var_os(STUCK).is_some() {
            // Its threads have the mask of who started it.
            let signals = Signals::listen(Leaving::default());
            eprintln!("{STUCK}: {}", signals.is_ok());
            loop {
                std::thread::park();
            }
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg(concat!(
                "agent::signals::tests::",
                "an_agent_in_which_all_is_stuck_ends_itself"
            ))
            .env(STUCK, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        block().unwrap();
        let child = command.spawn();
        all().thread_unblock().unwrap();
        let mut child = Killed(child.unwrap());
        let mut lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let listens = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(STUCK)));
        assert_eq!(listens.unwrap().unwrap(), format!("{STUCK}: true"));
        let pid = nix::unistd::Pid::from_raw(child.0.id().try_into().unwrap());
        nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
        // Its end closes what it wrote to.
        assert!(lines.all(|line| line.is_ok()));
        let ended = child.0.wait().unwrap();
        assert_eq!(ended.signal(), Some(Signal::SIGKILL as i32), "{ended}");
    }

    /// A process that does not outlive the test.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
