//! Open files of this process: as many as the system lets it have, and connections only so many
//! that the log, the tables and the allocations can still open theirs.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept for all that is no connection.
const RESERVE: u64 = 1_024;
/// Connections of one kind at once, from all addresses together, where files are no matter.
const MOST_CONNECTIONS: u64 = 16_384;
/// How often a fault that repeats is logged.
const SELDOM: Duration = Duration::from_secs(60);

/// The limit this process was started with, where it was raised.
static INHERITED: OnceLock<u64> = OnceLock::new();

/// Raises the limit to the highest that is allowed.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let (Some(current), most) = (limit.current, limit.maximum) else {
        return;
    };
    if most.is_some_and(|most| most <= current) {
        return;
    }
    let raised = Rlimit {
        current: most,
        maximum: most,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => drop(INHERITED.set(current)),
        Err(error) => tracing::warn!(%error, current, "the limit of open files stays as it is"),
    }
}

/// Gives the limit back that this process was started with: what takes its place raises it itself,
/// and knows then what to give to others.
pub fn restore_open_files() {
    let Some(current) = inherited_open_files() else {
        return;
    };
    let former = Rlimit {
        current: Some(current),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, former) {
        tracing::warn!(%error, current, "the limit of open files stays raised");
    }
}

/// The limit that what is started here gets back: programs that were written for few files close
/// each of them, or cannot wait for one above some number.
#[must_use]
pub fn inherited_open_files() -> Option<u64> {
    INHERITED.get().copied()
}

/// Connections of one kind (there are two) at once, from all addresses together.
#[must_use]
pub fn most_connections() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(share(files)).unwrap_or(usize::MAX)
}

fn share(files: u64) -> u64 {
    let left = files - RESERVE.min(files / 2);
    (left / 2).min(MOST_CONNECTIONS)
}

/// Says when a fault that repeats is logged again.
#[derive(Debug, Default)]
pub struct Seldom {
    reported: Option<Instant>,
}

impl Seldom {
    /// Whether it is time.
    pub fn is_due(&mut self) -> bool {
        let due = self
            .reported
            .is_none_or(|reported| reported.elapsed() >= SELDOM);
        if due {
            self.reported = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        for (files, each) in [(256, 64), (1_024, 256), (4_096, 1_536), (1 << 20, 16_384)] {
            assert_eq!(share(files), each);
            assert!(files - 2 * each >= RESERVE.min(files / 2));
        }
        assert_eq!(share(u64::MAX), MOST_CONNECTIONS);
    }

    /// As a process that starts itself anew does, seen from one of its own: the limit is a matter
    /// of the whole process.
    #[test]
    fn whoever_starts_anew_finds_the_limit_that_it_was_started_with() {
        const AGAIN: &str = "DROVER_TEST_OPEN_FILES";
        if std::env::var_os(AGAIN).is_some() {
            let limit = || getrlimit(Resource::Nofile).current;
            for _ in 0..2 {
                assert_eq!(limit(), Some(200));
                raise_open_files();
                assert!(limit() > Some(200), "{:?}", limit());
                assert_eq!(inherited_open_files(), Some(200));
                restore_open_files();
            }
            assert_eq!(limit(), Some(200));
            return;
        }
        let own = std::env::current_exe().unwrap();
        let name = "files::tests::whoever_starts_anew_finds_the_limit_that_it_was_started_with";
        let script = "ulimit -Sn 200 && exec \"$0\" --exact \"$1\"";
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", script])
            .arg(own)
            .arg(name)
            .env(AGAIN, "1");
        let reported = shell.output().unwrap();
        let text = String::from_utf8_lossy(&reported.stdout);
        assert!(
            reported.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }

    #[test]
    fn a_fault_is_told_once_in_a_while() {
        let mut seldom = Seldom::default();
        let reported = (0..1_000).filter(|_| seldom.is_due()).count();
        assert!(reported <= 2, "{reported}");
    }
}
