//! The background thread of a log: it allocates the next file ahead of need, seals full segments
//! and keeps the files of sealed ones for use again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::LogError;
use super::file::LogFile;
use super::sealed;
use super::segment::Segment;
use super::state::{DiskSpace, LogShared};

/// Files kept for use again.
const SPARES: usize = 1;
/// When something that failed is first tried again.
const RETRY: Duration = Duration::from_millis(250);
/// The longest time between two tries of sealing: each writes a whole file, or what fits of it.
const RETRY_SEALING: Duration = Duration::from_secs(10);

pub(super) struct PreparedFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn LogFile>,
    /// Bytes that were written before.
    pub(super) zeroed: u64,
}

#[derive(Default)]
pub(super) struct HousekeeperState {
    /// The next file is wanted.
    pub(super) want: bool,
    pub(super) prepared: Option<PreparedFile>,
    /// A segment may be ready to be sealed.
    pub(super) seal: bool,
    pub(super) closed: bool,
    spares: Vec<PathBuf>,
    names: u64,
}

impl HousekeeperState {
    pub(super) fn new(spares: Vec<PathBuf>) -> HousekeeperState {
        HousekeeperState {
            spares,
            seal: true,
            ..HousekeeperState::default()
        }
    }
}

/// When something that failed is tried again: later each time.
#[derive(Clone, Copy, Debug, Default)]
struct Retry {
    at: Option<Instant>,
    wait: Duration,
}

impl Retry {
    fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| at <= now)
    }

    /// Notes how it went; the next try after a failure is no later than `most` from `now`.
    fn note(&mut self, failed: bool, now: Instant, most: Duration) {
        *self = match failed {
            false => Self::default(),
            true => {
                let wait = (self.wait * 2).clamp(RETRY, most);
                let at = Some(now + wait);
                Self { at, wait }
            }
        };
    }
}

pub(super) fn run(shared: &Arc<LogShared>) {
    let (mut preparing, mut sealing) = (Retry::default(), Retry::default());
    while let Some((prepare_now, seal_now)) = wait(shared, &preparing, &sealing) {
        if prepare_now {
            let done = prepare(shared);
            if let Err(e) = &done {
                tracing::warn!(error = %e, "cannot allocate the next log segment");
                if e.is_full() {
                    shared.set_space(DiskSpace::Low);
                }
            }
            preparing.note(done.is_err(), Instant::now(), RETRY);
        }
        if seal_now {
            let done = seal_all(shared);
            if let Err(e) = &done {
                tracing::warn!(error = %e, "cannot seal a log segment");
                shared.housekeeper.lock().seal = true;
            }
            sealing.note(done.is_err(), Instant::now(), RETRY_SEALING);
        }
    }
}

/// Waits until the next file is to be allocated, segments to be sealed, or both; none once the log
/// is closed.
fn wait(shared: &LogShared, preparing: &Retry, sealing: &Retry) -> Option<(bool, bool)> {
    let mut state = shared.housekeeper.lock();
    loop {
        if state.closed {
            return None;
        }
        let (want, seal) = (state.want && state.prepared.is_none(), state.seal);
        let now = Instant::now();
        let due = (want && preparing.is_due(now), seal && sealing.is_due(now));
        if due.0 || due.1 {
            state.seal = seal && !due.1;
            return Some(due);
        }
        let later = [(want, preparing.at), (seal, sealing.at)];
        let later = later.into_iter().filter(|(wanted, _)| *wanted);
        match later.filter_map(|(_, at)| at).min() {
            Some(at) => {
                shared.housekeeper_wake.wait_until(&mut state, at);
            }
            None => shared.housekeeper_wake.wait(&mut state),
        }
    }
}

fn prepare(shared: &LogShared) -> Result<(), LogError> {
    let size = shared.options.segment_bytes;
    let (spare, path) = {
        let mut state = shared.housekeeper.lock();
        state.names += 1;
        let path = shared.dir.join(format!("next-{}.tmp", state.names));
        (state.spares.pop(), path)
    };
    let recycled = spare.and_then(|from| recycle(shared, &from, &path, size));
    let prepared = match recycled {
        Some(p) => p,
        None => {
            let file = shared
                .files
                .create(&path, size)
                .map_err(|e| LogError::io("create", &path, e))?;
            PreparedFile {
                path,
                file,
                zeroed: 0,
            }
        }
    };
    let mut state = shared.housekeeper.lock();
    state.prepared = Some(prepared);
    state.want = false;
    drop(state);
    shared.set_space(DiskSpace::Enough);
    Ok(())
}

/// A used file under a new name; `None` if it is not fit.
fn recycle(shared: &LogShared, from: &Path, to: &Path, size: u64) -> Option<PreparedFile> {
    let file = shared.files.open(from, true).ok()?;
    if file.size().ok()? < size || shared.files.rename(from, to).is_err() {
        let _ = shared.files.remove(from);
        return None;
    }
    Some(PreparedFile {
        path: to.to_owned(),
        file,
        zeroed: size,
    })
}

/// Seals every full segment whose entries are all committed.
fn seal_all(shared: &Arc<LogShared>) -> Result<(), LogError> {
    let committed = shared.state.lock().committed_index();
    let Some(committed) = committed else {
        return Ok(());
    };
    let all = shared.segments.all();
    let full = all.len().saturating_sub(1);
    for segment in all.into_iter().take(full) {
        let ready = segment.next() > segment.first() && segment.next() - 1 <= committed;
        let Some(source) = segment.open().filter(|_| ready) else {
            continue;
        };
        if shared.housekeeper.lock().closed {
            return Ok(());
        }
        let (files, dir) = (&*shared.files, &shared.dir);
        let (sealed, tmp) = sealed::seal(files, dir, &segment, source)?;
        let path = sealed.path.clone();
        let replaced = shared
            .segments
            .replace(&segment, Segment::Sealed(sealed), || {
                files
                    .rename(&tmp, &path)
                    .map_err(|e| LogError::io("rename", &path, e))?;
                files
                    .sync_dir(dir)
                    .map_err(|e| LogError::io("sync", dir, e))
            })?;
        if replaced {
            discard(shared, segment)?;
        } else {
            files
                .remove(&tmp)
                .map_err(|e| LogError::io("remove", &tmp, e))?;
        }
    }
    Ok(())
}

/// Keeps the file of a segment that is no longer read, or removes it.
fn discard(shared: &LogShared, segment: Arc<Segment>) -> Result<(), LogError> {
    let path = segment.path().clone();
    let unused = Arc::try_unwrap(segment).is_ok();
    let spare = path.with_extension("spare");
    let space = shared.options.prepare && shared.housekeeper.lock().spares.len() < SPARES;
    if unused && space && shared.files.rename(&path, &spare).is_ok() {
        shared.housekeeper.lock().spares.push(spare);
        return Ok(());
    }
    shared
        .files
        .remove(&path)
        .map_err(|e| LogError::io("remove", &path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_again_later_each_time_and_what_works_at_once() {
        let now = Instant::now();
        let mut retry = Retry::default();
        assert!(retry.is_due(now));
        let mut waits = Vec::new();
        for _ in 0..8 {
            retry.note(true, now, RETRY_SEALING);
            assert!(!retry.is_due(now) && retry.is_due(now + retry.wait));
            waits.push(retry.wait.as_millis());
        }
        assert_eq!(
            waits,
            [250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]
        );
        retry.note(false, now, RETRY_SEALING);
        assert!(retry.is_due(now));
        for _ in 0..3 {
            retry.note(true, now, RETRY);
            assert_eq!(retry.wait, RETRY);
        }
    }
}
