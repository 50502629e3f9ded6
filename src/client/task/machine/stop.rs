//! Ends of a task that was requested to end: for good, or to be started again.

use drover_events::gojson::Time;
use drover_events::model::status::task as status;

use super::{
    Phase, STOP_RETRY, STOP_RETRY_MAX, STOP_TRIES, TaskAction, TaskMachine, TaskSpec, Why, events,
};

impl TaskMachine {
    /// Reports the kill, and what in its group was the reason.
    pub(super) fn report_kill(&mut self, spec: &TaskSpec, now: i64) {
        let reason = events::kill_reason(&self.state.events);
        self.emit(events::killing(now, spec.kill_timeout, reason));
    }

    pub(super) fn stop(&mut self, why: Why, out: &mut Vec<TaskAction>) {
        if let Phase::Running(h) | Phase::Delaying(h, _) | Phase::Stopping(h, _) = &self.phase {
            self.phase = Phase::Stopping(h.clone(), why);
            out.push(TaskAction::Stop);
        }
    }

    pub(super) fn stop_failed(&mut self, error: &str, now: i64) {
        if !matches!(self.phase, Phase::Stopping(..)) {
            return;
        }
        self.stop_tries += 1;
        if self.stop_tries >= STOP_TRIES {
            self.emit(events::killed(now, error));
            self.state.failed = true;
            self.dead(now);
            self.phase = Phase::Ended;
            return;
        }
        let wait = STOP_RETRY.saturating_mul(4_i64.saturating_pow(self.stop_tries - 1));
        self.stop_retry_at = Some(now + wait.min(STOP_RETRY_MAX));
    }

    pub(super) fn restart(
        &mut self,
        force: bool,
        reason: &str,
        now: i64,
        out: &mut Vec<TaskAction>,
    ) {
        if self.killed {
            return;
        }
        match &self.phase {
            Phase::Running(_) => {
                self.emit(events::restart_signal(now, reason));
                self.stop(Why::Restart, out);
            }
            Phase::Dead if force => {
                self.emit(events::restart_signal(now, reason));
                self.state.state = status::PENDING.to_owned();
                self.state.failed = false;
                self.state.restarts += 1;
                self.state.last_restart = Time(now);
                self.phase = Phase::Waiting;
                self.allowed = false;
            }
            _ => {}
        }
    }

    /// It runs and is of no use: its end counts as a failure.
    pub(super) fn unhealthy(&mut self, reason: &str, now: i64, out: &mut Vec<TaskAction>) {
        if !self.killed && matches!(self.phase, Phase::Running(_)) {
            self.emit(events::restart_signal(now, reason));
            self.stop(Why::Unhealthy, out);
        }
    }

    pub(super) fn tick(&mut self, now: i64, out: &mut Vec<TaskAction>) {
        match &self.phase {
            Phase::Backoff(at) if *at <= now => {
                self.phase = Phase::Waiting;
                self.go(out);
            }
            Phase::Delaying(_, at) if *at <= now => self.stop(Why::Kill, out),
            Phase::Stopping(..) if self.stop_retry_at.is_some_and(|at| at <= now) => {
                self.stop_retry_at = None;
                out.push(TaskAction::Stop);
            }
            _ => {}
        }
    }
}
