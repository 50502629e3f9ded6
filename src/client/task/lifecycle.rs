//! A task's part in the life of its group.

use drover_events::model::Task;
use drover_events::model::status::Hook;
use serde::{Deserialize, Serialize};

/// A task's part in its group's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Runs to its end before the main tasks.
    PrestartOnce,
    /// Starts before the main tasks and stays.
    PrestartSidecar,
    /// What the group is for.
    Main,
    /// Runs to its end once the main tasks run.
    PoststartOnce,
    /// Starts once the main tasks run and stays.
    PoststartSidecar,
    /// Runs when everything else is over.
    Poststop,
}

impl Kind {
    /// The part a task's lifecycle gives it.
    pub fn of(task: &Task) -> Self {
        match task.lifecycle.as_ref().map(|l| (l.hook(), l.sidecar)) {
            Some((Some(Hook::Prestart), false)) => Self::PrestartOnce,
            Some((Some(Hook::Prestart), true)) => Self::PrestartSidecar,
            Some((Some(Hook::Poststart), false)) => Self::PoststartOnce,
            Some((Some(Hook::Poststart), true)) => Self::PoststartSidecar,
            Some((Some(Hook::Poststop), _)) => Self::Poststop,
            Some((None, _)) | None => Self::Main,
        }
    }

    /// Runs beside the main tasks for as long as they do.
    pub fn is_sidecar(self) -> bool {
        matches!(self, Self::PrestartSidecar | Self::PoststartSidecar)
    }

    /// Ends by itself.
    pub fn is_once(self) -> bool {
        matches!(self, Self::PrestartOnce | Self::PoststartOnce)
    }
}
