//! Which of a group's tasks may run: a finite state machine (CL-01 to CL-04). It only advances; a
//! restart of all tasks begins again at [`Stage::Init`], which the allocation's machine sets.

use serde::{Deserialize, Serialize};

use crate::task::lifecycle::Kind;

/// How far a task is, as the coordinator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskProgress {
    /// Not started, or between two starts.
    Pending,
    /// Runs.
    Running,
    /// Ran, and ended successfully.
    Succeeded,
    /// It is over, and its last run failed.
    Failed,
    /// Can never run again, and did not fail. It counts as over, and as whatever is waited for: it
    /// blocks no other (CL-04).
    Terminal,
}

/// The lifecycle stage of the allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Nothing may run.
    #[default]
    Init,
    /// What comes before the main tasks.
    Prestart,
    /// The main tasks start.
    Main,
    /// What comes when they run.
    Poststart,
    /// Everything was started.
    WaitAlloc,
    /// What comes at the end.
    Poststop,
}

impl Stage {
    /// The stage that follows from the tasks, as far on as they allow.
    #[must_use]
    pub fn advance(self, tasks: &[(Kind, TaskProgress)]) -> Self {
        let mut stage = self;
        loop {
            let next = stage.next(tasks);
            if next == stage {
                return stage;
            }
            stage = next;
        }
    }

    fn next(self, tasks: &[(Kind, TaskProgress)]) -> Self {
        let over = |p: TaskProgress| {
            matches!(
                p,
                TaskProgress::Succeeded | TaskProgress::Failed | TaskProgress::Terminal
            )
        };
        let mut others = tasks
            .iter()
            .filter(|(k, _)| *k != Kind::Poststop)
            .peekable();
        if others.peek().is_some() && others.all(|(_, p)| over(*p)) {
            return Self::Poststop;
        }
        let satisfied = |once: Kind, sidecar: Kind| {
            tasks.iter().all(|(kind, p)| match *kind {
                k if k == once => matches!(p, TaskProgress::Succeeded | TaskProgress::Terminal),
                k if k == sidecar => matches!(p, TaskProgress::Running | TaskProgress::Terminal),
                _ => true,
            })
        };
        match self {
            Self::Init => Self::Prestart,
            Self::Prestart if satisfied(Kind::PrestartOnce, Kind::PrestartSidecar) => Self::Main,
            Self::Main
                if tasks
                    .iter()
                    .all(|(k, p)| *k != Kind::Main || *p != TaskProgress::Pending) =>
            {
                Self::Poststart
            }
            Self::Poststart if satisfied(Kind::PoststartOnce, Kind::PoststartSidecar) => {
                Self::WaitAlloc
            }
            stage => stage,
        }
    }

    /// Whether tasks of a kind may start at this stage.
    pub fn allows(self, kind: Kind) -> bool {
        match kind {
            Kind::PrestartOnce => self == Self::Prestart,
            Kind::PrestartSidecar => (Self::Prestart..=Self::WaitAlloc).contains(&self),
            Kind::Main => (Self::Main..=Self::WaitAlloc).contains(&self),
            Kind::PoststartOnce => self == Self::Poststart,
            Kind::PoststartSidecar => (Self::Poststart..=Self::WaitAlloc).contains(&self),
            Kind::Poststop => self == Self::Poststop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Kind::*;
    use super::TaskProgress::*;
    use super::*;

    #[test]
    fn cl_02_first_run_order() {
        let kinds = [
            PrestartOnce,
            PrestartSidecar,
            Main,
            PoststartOnce,
            PoststartSidecar,
            Poststop,
        ];
        let mut tasks = kinds.map(|k| (k, Pending));
        let mut set = |i: usize, p: TaskProgress, stage: Stage| {
            tasks[i].1 = p;
            let next = stage.advance(&tasks);
            let allowed: Vec<_> = kinds.iter().filter(|k| next.allows(**k)).copied().collect();
            (next, allowed)
        };
        let (s, allowed) = set(0, Pending, Stage::Init);
        assert_eq!(
            (s, allowed),
            (Stage::Prestart, vec![PrestartOnce, PrestartSidecar])
        );
        let (s, _) = set(0, Succeeded, s);
        assert_eq!(s, Stage::Prestart);
        let (s, allowed) = set(1, Running, s);
        assert_eq!((s, allowed), (Stage::Main, vec![PrestartSidecar, Main]));
        let (s, allowed) = set(2, Running, s);
        let expected = vec![PrestartSidecar, Main, PoststartOnce, PoststartSidecar];
        assert_eq!((s, allowed), (Stage::Poststart, expected));
        let (s, _) = set(3, Succeeded, s);
        let (s, _) = set(4, Running, s);
        assert_eq!(s, Stage::WaitAlloc);
        for i in [1, 2] {
            assert_eq!(set(i, Succeeded, s).0, Stage::WaitAlloc);
        }
        assert_eq!(set(4, Succeeded, s), (Stage::Poststop, vec![Poststop]));
    }

    #[test]
    fn cl_03_from_any_stage_the_end_of_all_leads_to_poststop() {
        let tasks = [
            (PrestartOnce, Failed),
            (Main, Terminal),
            (Poststop, Pending),
        ];
        for stage in [
            Stage::Init,
            Stage::Prestart,
            Stage::Main,
            Stage::Poststart,
            Stage::WaitAlloc,
        ] {
            assert_eq!(stage.advance(&tasks), Stage::Poststop);
        }
    }

    #[test]
    fn cl_01_the_machine_goes_back_and_forward_again() {
        let mut stage = Stage::Init;
        let mut go = |from: Option<Stage>, prestart, main| {
            stage = from.unwrap_or(stage);
            stage = stage.advance(&[(PrestartOnce, prestart), (Main, main)]);
            (stage, stage.allows(PrestartOnce), stage.allows(Main))
        };
        for round in 0..3 {
            let of = |text: &str| format!("{text}, round {round}");
            let back = Some(Stage::Init);
            let begun = (Stage::Prestart, true, false);
            assert_eq!(go(back, Pending, Pending), begun, "{}", of("blocked"));
            assert_eq!(go(None, Running, Pending), begun, "{}", of("still blocked"));
            let main = (Stage::Main, false, true);
            assert_eq!(go(None, Succeeded, Pending), main, "{}", of("let go"));
            let all = (Stage::WaitAlloc, false, true);
            assert_eq!(go(None, Succeeded, Running), all, "{}", of("all started"));
            // A main task between two starts blocks no other again.
            assert_eq!(go(None, Succeeded, Pending), all, "{}", of("restarted"));
        }
    }

    #[test]
    fn cl_04_tasks_that_can_never_run_again_do_not_block() {
        let tasks = [
            (PrestartOnce, Terminal),
            (PrestartSidecar, Terminal),
            (Main, Pending),
        ];
        assert_eq!(Stage::Init.advance(&tasks), Stage::Main);
    }
}
