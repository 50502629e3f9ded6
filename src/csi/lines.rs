//! The calls that wait for a turn with a volume of this node, and the allocations that are to get
//! one.
//!
//! A place in line is taken at once, before anything is spawned: a later call is served later,
//! whenever its work first runs. So a call that takes a volume back finds what was begun before it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::OwnedMutexGuard;
use tokio::task::unconstrained;

use crate::mark::{Mark, part};

/// While it is held no other call works at the volume.
pub(crate) type Turn = OwnedMutexGuard<()>;
/// The folder in which users are counted, and the volume.
type LineKey = (PathBuf, String);

/// The lines of all volumes.
#[derive(Default)]
pub(crate) struct Lines {
    /// Those of a volume come one after the other.
    turns: Mutex<HashMap<LineKey, Arc<tokio::sync::Mutex<()>>>>,
    /// The users that are to get a volume, from before they wait until it is there or failed.
    coming: Mutex<Vec<(PathBuf, Mark)>>,
}

/// A place in line.
pub(crate) enum InLine {
    First(Turn),
    Waits(Pin<Box<dyn Future<Output = Turn> + Send>>),
}

impl InLine {
    /// Waits for the turn.
    pub(crate) async fn turn(self) -> Turn {
        match self {
            InLine::First(turn) => turn,
            InLine::Waits(line) => line.await,
        }
    }
}

/// A user for which a volume is to come, until this is dropped.
pub(crate) struct Coming {
    lines: Arc<Lines>,
    of: (PathBuf, Mark),
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut coming = locked(&self.lines.coming);
        if let Some(at) = coming.iter().position(|one| *one == self.of) {
            coming.swap_remove(at);
        }
    }
}

impl Lines {
    /// Takes a place in line, without waiting for anything.
    pub(crate) async fn stand(&self, users: &Path, of: (&str, &str)) -> InLine {
        // A task that has used up its budget would be sent away before it stands in line.
        let turn = unconstrained(self.line(users, of).lock_owned());
        let mut line: Pin<Box<dyn Future<Output = Turn> + Send>> = Box::pin(turn);
        match poll_fn(|context| Poll::Ready(line.as_mut().poll(context))).await {
            Poll::Ready(turn) => InLine::First(turn),
            Poll::Pending => InLine::Waits(line),
        }
    }

    /// The turn, where no other call has it.
    pub(crate) fn now(&self, users: &Path, of: (&str, &str)) -> Option<Turn> {
        self.line(users, of).try_lock_owned().ok()
    }

    /// A user is to get a volume.
    pub(crate) fn comes(self: &Arc<Self>, users: &Path, mark: Mark) -> Coming {
        let of = (users.to_owned(), mark);
        locked(&self.coming).push(of.clone());
        Coming {
            lines: Arc::clone(self),
            of,
        }
    }

    /// The users that are to get volumes: one entry for each volume.
    pub(crate) fn coming(&self, users: &Path) -> Vec<Mark> {
        let mut found = Vec::new();
        for (of, mark) in locked(&self.coming).iter() {
            if of == users && !found.contains(mark) {
                found.push(mark.clone());
            }
        }
        found
    }

    fn line(&self, users: &Path, (namespace, volume): (&str, &str)) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = locked(&self.turns);
        // No call holds or waits for a turn that only this map knows.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let volume = format!("{}/{}", part(namespace), part(volume));
        Arc::clone(turns.entry((users.to_owned(), volume)).or_default())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
