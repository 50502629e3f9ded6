//! What becomes of the evaluation itself, and which ones it leaves behind.

use std::collections::BTreeMap;

use drover_events::gojson::{Map, Time};
use drover_events::model::status::{eval, trigger};
use drover_events::model::{AllocMetric, Evaluation, PlanAnnotations};

use super::outcome::Inputs;
use super::rng::Rng;

const REMAINING: &str = "created to place remaining allocations";
const CONFLICTS: &str = "created due to placement conflicts";

/// The results of an evaluation so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Why groups could not be placed in full.
    pub failed: BTreeMap<String, AllocMetric>,
    /// How many allocations of each group wait for a place.
    pub queued: BTreeMap<String, i64>,
    /// What the plan means.
    pub annotations: Option<PlanAnnotations>,
    /// Which classes of nodes could run the job.
    pub classes: BTreeMap<String, bool>,
    /// Some constraint depends on more than the class.
    pub escaped: bool,
    /// The deployment the allocations belong to.
    pub deployment_id: String,
}

/// The evaluation as it is once its plan is committed, and a new blocked one if something found no
/// place. One that was blocked itself is blocked again instead.
pub(super) fn finish(
    eval: &Evaluation,
    inputs: &Inputs,
    progress: &Progress,
    rng: &mut Rng,
) -> (Evaluation, Option<Evaluation>) {
    let mut done = eval.clone();
    done.snapshot_index = inputs.snapshot_index;
    done.modify_time = inputs.now;
    done.failed_tg_allocs = nil_if_empty(progress.failed.clone());
    done.queued_allocations = progress.queued.clone().into();
    done.plan_annotations.clone_from(&progress.annotations);
    done.deployment_id.clone_from(&progress.deployment_id);
    if progress.failed.is_empty() {
        done.status = eval::COMPLETE.to_owned();
        done.status_description = String::new();
        return (done, None);
    }
    if eval.status == eval::BLOCKED {
        reblock(&mut done, progress);
        return (done, None);
    }
    done.status = eval::COMPLETE.to_owned();
    let blocked = blocked_of(eval, inputs, progress, rng, false);
    done.blocked_eval.clone_from(&blocked.id);
    (done, Some(blocked))
}

/// The evaluation that continues an update, of which no more may be replaced before `wait` is over.
pub(super) fn rolling(eval: &Evaluation, inputs: &Inputs, wait: i64, rng: &mut Rng) -> Evaluation {
    Evaluation {
        id: rng.uuid(),
        namespace: eval.namespace.clone(),
        priority: eval.priority,
        r#type: eval.r#type.clone(),
        triggered_by: trigger::ROLLING_UPDATE.to_owned(),
        job_id: eval.job_id.clone(),
        job_modify_index: eval.job_modify_index,
        status: eval::PENDING.to_owned(),
        wait,
        wait_until: Time(inputs.now.saturating_add(wait)),
        previous_eval: eval.id.clone(),
        create_time: inputs.now,
        modify_time: inputs.now,
        ..Evaluation::default()
    }
}

fn reblock(done: &mut Evaluation, progress: &Progress) {
    done.status = eval::BLOCKED.to_owned();
    done.class_eligibility = nil_if_empty(progress.classes.clone());
    done.escaped_computed_class = progress.escaped;
}

fn blocked_of(
    eval: &Evaluation,
    inputs: &Inputs,
    progress: &Progress,
    rng: &mut Rng,
    gave_up: bool,
) -> Evaluation {
    let (trigger, description) = if gave_up {
        (trigger::MAX_PLAN_ATTEMPTS, CONFLICTS)
    } else {
        (trigger::QUEUED_ALLOCS, REMAINING)
    };
    Evaluation {
        id: rng.uuid(),
        namespace: eval.namespace.clone(),
        priority: eval.priority,
        r#type: eval.r#type.clone(),
        triggered_by: trigger.to_owned(),
        job_id: eval.job_id.clone(),
        job_modify_index: eval.job_modify_index,
        status: eval::BLOCKED.to_owned(),
        status_description: description.to_owned(),
        previous_eval: eval.id.clone(),
        failed_tg_allocs: nil_if_empty(progress.failed.clone()),
        class_eligibility: nil_if_empty(progress.classes.clone()),
        escaped_computed_class: progress.escaped,
        snapshot_index: inputs.snapshot_index,
        create_time: inputs.now,
        modify_time: inputs.now,
        ..Evaluation::default()
    }
}

/// The end of an evaluation whose plans were refused too often: it fails, and a blocked one tries
/// again when something changes.
pub fn give_up(
    eval: &Evaluation,
    finished: &Evaluation,
    inputs: &Inputs,
    attempts: u32,
) -> Vec<Evaluation> {
    let mut rng = Rng::new(inputs.seed ^ 0x5bd1_e995);
    let progress = Progress {
        failed: finished.failed_tg_allocs.clone().into_map(),
        escaped: true,
        ..Progress::default()
    };
    let mut failed = eval.clone();
    failed.status = eval::FAILED.to_owned();
    failed.status_description = format!("maximum attempts reached ({attempts})");
    failed.snapshot_index = inputs.snapshot_index;
    failed.modify_time = inputs.now;
    failed
        .failed_tg_allocs
        .clone_from(&finished.failed_tg_allocs);
    failed
        .queued_allocations
        .clone_from(&finished.queued_allocations);
    let blocked = blocked_of(eval, inputs, &progress, &mut rng, true);
    failed.blocked_eval.clone_from(&blocked.id);
    vec![failed, blocked]
}

/// The end of an evaluation that cannot be worked on at all.
pub(super) fn failed(eval: &Evaluation, inputs: &Inputs, why: String) -> Evaluation {
    let mut failed = eval.clone();
    failed.status = eval::FAILED.to_owned();
    failed.status_description = why;
    failed.snapshot_index = inputs.snapshot_index;
    failed.modify_time = inputs.now;
    failed
}

fn nil_if_empty<V>(map: BTreeMap<String, V>) -> Map<V> {
    if map.is_empty() {
        Map::nil()
    } else {
        map.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: &str, failed: bool) -> (Evaluation, Option<Evaluation>) {
        let eval = Evaluation {
            id: "e".into(),
            job_id: "j".into(),
            status: status.into(),
            status_description: "of before".into(),
            failed_tg_allocs: BTreeMap::from([("old".to_owned(), AllocMetric::default())]).into(),
            ..Evaluation::default()
        };
        let mut progress = Progress {
            classes: BTreeMap::from([("v1:1".to_owned(), true)]),
            escaped: true,
            annotations: Some(PlanAnnotations::default()),
            deployment_id: "d".into(),
            ..Progress::default()
        };
        if failed {
            progress.failed.insert("g".into(), AllocMetric::default());
        }
        let inputs = Inputs {
            snapshot_index: 7,
            now: 8,
            seed: 1,
            scheduler_version: 1,
        };
        finish(&eval, &inputs, &progress, &mut Rng::new(1))
    }

    #[test]
    fn an_evaluation_that_placed_all_is_complete_and_says_nothing_more() {
        let (done, blocked) = ended("pending", false);
        assert_eq!((done.status.as_str(), blocked), ("complete", None));
        assert_eq!(done.status_description, "");
        assert!(done.failed_tg_allocs.is_nil(), "what failed once does not");
        assert_eq!((done.snapshot_index, done.modify_time), (7, 8));
        assert!(done.plan_annotations.is_some());
        assert_eq!(done.deployment_id, "d");
    }

    #[test]
    fn what_found_no_place_waits_in_a_blocked_evaluation_that_names_it() {
        let (done, blocked) = ended("pending", true);
        let blocked = blocked.expect("it waits");
        assert_eq!(
            (done.status.as_str(), &done.blocked_eval),
            ("complete", &blocked.id)
        );
        assert_eq!(blocked.previous_eval, "e");
        for eval in [&done, &blocked] {
            assert!(eval.failed_tg_allocs.get("g").is_some());
        }
        // What was blocked is blocked again, by what it has learned of the nodes.
        let (done, other) = ended("blocked", true);
        assert_eq!((done.status.as_str(), other), ("blocked", None));
        for eval in [&done, &blocked] {
            assert_eq!(eval.class_eligibility.get("v1:1"), Some(&true));
            assert!(eval.escaped_computed_class);
        }
    }
}
