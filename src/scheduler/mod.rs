//! The scheduler: what an evaluation changes, worked out from one picture of the state.
//!
//! [`schedule`] is a pure function: the same state and the same [`Inputs`] give the same
//! [`Outcome`], to the last bit, on every machine. So a decision can be made again at any past
//! index, to explain it or to show what would happen.
//!
//! It must not know: Raft, events, commands, clocks, threads, other evaluations.
//!
//! Start reading at [`schedule`]: `reconcile` says what should run, `rank` finds places for it
//! (with `feasible` saying where it may run at all, and `fit` whether its resources suffice),
//! `cluster` is the picture of the nodes.

pub mod cluster;
pub mod diff;
mod dry_run;
mod evals;
pub mod feasible;
pub mod fit;
mod generic;
pub mod host_volume;
mod outcome;
pub mod rank;
pub mod reconcile;
pub mod rng;
mod searches;
mod state;
mod system;

pub use dry_run::dry_run;
pub use evals::give_up;
pub use outcome::{Inputs, Outcome, Placement, Plan, SCHEDULER_VERSION, Stop};
pub use state::{ReadError, StateView};

use drover_events::model::Evaluation;
use drover_events::model::status::{JobType, Trigger};

/// Whether a cause is one for system jobs too: they are not rescheduled and have no canaries to
/// wait for. One of a later release is let through.
fn is_for_system(trigger: Option<Trigger>) -> bool {
    match trigger {
        Some(
            Trigger::MaxDisconnectTimeout
            | Trigger::Reconnect
            | Trigger::AllocReschedule
            | Trigger::Preemption,
        ) => false,
        Some(
            Trigger::JobRegister
            | Trigger::JobDeregister
            | Trigger::PeriodicJob
            | Trigger::NodeDrain
            | Trigger::NodeUpdate
            | Trigger::AllocStop
            | Trigger::Scheduled
            | Trigger::RollingUpdate
            | Trigger::DeploymentWatcher
            | Trigger::FailedFollowUp
            | Trigger::MaxPlanAttempts
            | Trigger::AllocFailure
            | Trigger::QueuedAllocs
            | Trigger::Scaling,
        )
        | None => true,
    }
}

/// How often a plan is tried without any progress before an evaluation is given up.
pub fn attempts(kind: &str) -> u32 {
    match JobType::of(kind) {
        Some(JobType::Batch) => 2,
        Some(JobType::Service | JobType::System | JobType::Sysbatch | JobType::Core) | None => 5,
    }
}

/// Works out what an evaluation changes. An evaluation that cannot be worked on is answered with an
/// empty plan and its failure.
pub fn schedule(
    view: &dyn StateView,
    eval: &Evaluation,
    inputs: &Inputs,
) -> Result<Outcome, ReadError> {
    decide(view, eval, inputs, false)
}

/// Makes a decision again, and records a verdict on every node in every search. The outcome is
/// otherwise that of [`schedule`].
pub fn explain(
    view: &dyn StateView,
    eval: &Evaluation,
    inputs: &Inputs,
) -> Result<Outcome, ReadError> {
    decide(view, eval, inputs, true)
}

fn decide(
    view: &dyn StateView,
    eval: &Evaluation,
    inputs: &Inputs,
    explained: bool,
) -> Result<Outcome, ReadError> {
    let refuse = |why: String| {
        Ok(Outcome {
            finished: evals::failed(eval, inputs, why),
            ..Outcome::default()
        })
    };
    match eval.kind() {
        Some(JobType::Service | JobType::Batch) => {
            // Every cause there is may be one for these.
            if eval.trigger().is_none() {
                let trigger = &eval.triggered_by;
                return refuse(format!(
                    "scheduler cannot handle '{trigger}' evaluation reason"
                ));
            }
            generic::schedule(view, eval, inputs, explained)
        }
        Some(JobType::System | JobType::Sysbatch) => {
            if !is_for_system(eval.trigger()) {
                let trigger = &eval.triggered_by;
                return refuse(format!(
                    "scheduler cannot handle '{trigger}' evaluation reason"
                ));
            }
            system::schedule(view, eval, inputs, explained)
        }
        Some(JobType::Core) | None => {
            let kind = &eval.r#type;
            refuse(format!("there is no scheduler for jobs of type '{kind}'"))
        }
    }
}
