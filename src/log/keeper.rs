//! The background thread of a log: it allocates the next file ahead of need, seals full segments
//! and keeps the files of sealed ones for use again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::LogError;
use super::file::LogFile;
use super::sealed;
use super::segment::Segment;
use super::state::{Shared, Space};

/// Files kept for use again.
const SPARES: usize = 1;
/// How often something that failed is tried again.
const RETRY: Duration = Duration::from_millis(250);

pub(super) struct Prepared {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn LogFile>,
    /// Bytes that were written before.
    pub(super) zeroed: u64,
}

#[derive(Default)]
pub(super) struct KeeperState {
    /// The next file is wanted.
    pub(super) want: bool,
    pub(super) prepared: Option<Prepared>,
    /// A segment may be ready to be sealed.
    pub(super) seal: bool,
    pub(super) closed: bool,
    spares: Vec<PathBuf>,
    names: u64,
}

impl KeeperState {
    pub(super) fn new(spares: Vec<PathBuf>) -> KeeperState {
        KeeperState {
            spares,
            seal: true,
            ..KeeperState::default()
        }
    }
}

pub(super) fn run(shared: &Arc<Shared>) {
    let mut retry_at: Option<Instant> = None;
    loop {
        let (want, seal) = {
            let mut state = shared.keeper.lock();
            loop {
                if state.closed {
                    return;
                }
                let ready = (state.want && state.prepared.is_none()) || state.seal;
                match retry_at {
                    Some(at) if Instant::now() < at => {
                        shared.keeper_wake.wait_until(&mut state, at);
                    }
                    _ if ready => break,
                    _ => shared.keeper_wake.wait(&mut state),
                }
            }
            (
                state.want && state.prepared.is_none(),
                std::mem::take(&mut state.seal),
            )
        };
        retry_at = None;
        if want && let Err(e) = prepare(shared) {
            tracing::warn!(error = %e, "cannot allocate the next log segment");
            if e.is_full() {
                shared.set_space(Space::Low);
            }
            retry_at = Some(Instant::now() + RETRY);
        }
        if seal && let Err(e) = seal_all(shared) {
            tracing::warn!(error = %e, "cannot seal a log segment");
            shared.keeper.lock().seal = true;
            retry_at = Some(Instant::now() + RETRY);
        }
    }
}

fn prepare(shared: &Shared) -> Result<(), LogError> {
    let size = shared.options.segment_bytes;
    let (spare, path) = {
        let mut state = shared.keeper.lock();
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
            Prepared {
                path,
                file,
                zeroed: 0,
            }
        }
    };
    let mut state = shared.keeper.lock();
    state.prepared = Some(prepared);
    state.want = false;
    drop(state);
    shared.set_space(Space::Enough);
    Ok(())
}

/// A used file under a new name; `None` if it is not fit.
fn recycle(shared: &Shared, from: &Path, to: &Path, size: u64) -> Option<Prepared> {
    let file = shared.files.open(from, true).ok()?;
    if file.size().ok()? < size || shared.files.rename(from, to).is_err() {
        let _ = shared.files.remove(from);
        return None;
    }
    Some(Prepared {
        path: to.to_owned(),
        file,
        zeroed: size,
    })
}

/// Seals every full segment whose entries are all committed.
fn seal_all(shared: &Arc<Shared>) -> Result<(), LogError> {
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
        if shared.keeper.lock().closed {
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

/// Keeps the file of a segment that nobody reads any more, or removes it.
fn discard(shared: &Shared, segment: Arc<Segment>) -> Result<(), LogError> {
    let path = segment.path().clone();
    let unused = Arc::try_unwrap(segment).is_ok();
    let spare = path.with_extension("spare");
    let room = shared.options.prepare && shared.keeper.lock().spares.len() < SPARES;
    if unused && room && shared.files.rename(&path, &spare).is_ok() {
        shared.keeper.lock().spares.push(spare);
        return Ok(());
    }
    shared
        .files
        .remove(&path)
        .map_err(|e| LogError::io("remove", &path, e))
}
