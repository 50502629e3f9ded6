//! Whether an allocation is healthy in its deployment or migration (client facts, health tracking).

use drover_events::gojson::format_duration;
use drover_events::model::status::{job_type, task as status};
use drover_events::model::{Allocation, TaskState};
use serde::{Deserialize, Serialize};

use crate::clock::SECOND;
use crate::service::describe::expected_checks;
use crate::task::lifecycle::Kind;

/// `min_healthy_time` of groups that name none, nanoseconds.
const MIN_HEALTHY_TIME: i64 = 10 * SECOND;
/// `healthy_deadline` of groups that name none, nanoseconds.
const HEALTHY_DEADLINE: i64 = 300 * SECOND;

/// What health requires; times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthSpec {
    /// All tasks run uninterrupted for so long.
    pub min_healthy_time: i64,
    /// And that must be so within this time.
    pub healthy_deadline: i64,
    /// In a deployment; its failure is shown in the events of the tasks.
    pub deployment: bool,
    /// This many checks of its services are good for as long (CHK-06).
    pub checks: usize,
}

impl HealthSpec {
    /// Services are watched; those of a deployment with its group's `update` block unless health is
    /// set by hand, others with the `migrate` block.
    pub fn of(alloc: &Allocation) -> Option<Self> {
        let job = alloc.job.as_ref()?;
        let group = alloc.group()?;
        if job.r#type != job_type::SERVICE {
            return None;
        }
        let needed = |mode: &str| match mode {
            "task_states" => 0,
            _ => expected_checks(group),
        };
        let positive = |value: i64, default: i64| if value > 0 { value } else { default };
        if alloc.deployment_id.is_empty() {
            let migrate = group.migrate.clone().unwrap_or_default();
            return Some(Self {
                min_healthy_time: positive(migrate.min_healthy_time, MIN_HEALTHY_TIME),
                healthy_deadline: positive(migrate.healthy_deadline, HEALTHY_DEADLINE),
                deployment: false,
                checks: needed(&migrate.health_check),
            });
        }
        let update = group.update.clone().unwrap_or_default();
        (update.health_check != "manual").then(|| Self {
            min_healthy_time: if group.update.is_some() {
                update.min_healthy_time.max(0)
            } else {
                MIN_HEALTHY_TIME
            },
            healthy_deadline: positive(update.healthy_deadline, HEALTHY_DEADLINE),
            deployment: true,
            checks: needed(&update.health_check),
        })
    }
}

/// What is known so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing; look again then (unix nanoseconds).
    Pending(i64),
    /// It is.
    Healthy,
    /// It is not; why, by task.
    Unhealthy(Vec<(String, String)>),
}

/// Since when the tasks run and the checks that count are good. What was so before health was
/// watched does not count: an allocation that a new version changes in place has to prove itself
/// again.
fn good_since(spec: &HealthSpec, checks_since: Option<i64>, last_start: i64) -> Option<i64> {
    match spec.checks {
        0 => Some(last_start),
        _ => checks_since.map(|at| at.max(last_start)),
    }
}

/// Judges the tasks at `now`; watching began at `since`; all checks are good since `checks_since`.
pub fn judge<'a>(
    spec: &HealthSpec,
    since: i64,
    checks_since: Option<i64>,
    tasks: impl Iterator<Item = (&'a str, Kind, &'a TaskState)> + Clone,
    now: i64,
) -> Verdict {
    let watched = || tasks.clone().filter(|(_, kind, _)| *kind != Kind::Poststop);
    let dead = |state: &TaskState| state.state == status::DEAD;
    let report =
        |name: &str, why: &str| Verdict::Unhealthy(vec![(name.to_owned(), why.to_owned())]);
    for (name, kind, state) in watched() {
        if dead(state) && state.failed {
            return report(name, "Unhealthy because of failed task");
        }
        if dead(state) && kind == Kind::Main {
            return report(name, "Unhealthy because of dead task");
        }
    }
    let up = |kind: Kind, state: &TaskState| {
        if kind.is_once() {
            dead(state)
        } else {
            state.state == status::RUNNING
        }
    };
    let all_up = watched().all(|(_, kind, state)| up(kind, state));
    let deadline = since.saturating_add(spec.healthy_deadline);
    let last_start = watched()
        .filter(|(_, kind, _)| !kind.is_once())
        .map(|(_, _, state)| state.started_at.nanos())
        .max()
        .unwrap_or(since)
        .max(since);
    let good_since = good_since(spec, checks_since, last_start);
    let healthy_at = good_since.map_or(i64::MAX, |at| at.saturating_add(spec.min_healthy_time));
    if all_up && healthy_at <= now && healthy_at <= deadline {
        return Verdict::Healthy;
    }
    if now < deadline {
        return Verdict::Pending(if all_up {
            healthy_at.min(deadline)
        } else {
            deadline
        });
    }
    let limit = format_duration(spec.healthy_deadline);
    let why = |kind: Kind, state: &TaskState| {
        if up(kind, state) {
            let least = format_duration(spec.min_healthy_time);
            format!(
                "Task not running for min_healthy_time of {least} by healthy_deadline of {limit}"
            )
        } else {
            format!("Task not running by healthy_deadline of {limit}")
        }
    };
    if all_up && good_since.is_none() {
        let text = format!("Services not healthy by deadline of {limit}");
        let all = watched().map(|(name, _, _)| (name.to_owned(), text.clone()));
        return Verdict::Unhealthy(all.collect());
    }
    let late = |kind: Kind, state: &TaskState| !up(kind, state) || (!kind.is_once() && all_up);
    Verdict::Unhealthy(
        watched()
            .filter(|(_, kind, state)| late(*kind, state))
            .map(|(name, kind, state)| (name.to_owned(), why(kind, state)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use drover_events::gojson::Time;
    use drover_events::model::{Job, Service, ServiceCheck, TaskGroup, UpdateStrategy};

    use super::*;

    const SPEC: HealthSpec = HealthSpec {
        min_healthy_time: 10 * SECOND,
        healthy_deadline: 60 * SECOND,
        deployment: true,
        checks: 0,
    };

    fn state(word: &str, started: i64) -> TaskState {
        TaskState {
            state: word.into(),
            started_at: Time(started * SECOND),
            ..TaskState::default()
        }
    }

    fn at(tasks: &[(&str, Kind, TaskState)], now: i64) -> Verdict {
        let tasks = tasks.iter().map(|(n, k, s)| (*n, *k, s));
        judge(&SPEC, 100 * SECOND, None, tasks, now * SECOND)
    }

    #[test]
    fn mod_02_healthy_after_the_least_time_uninterrupted() {
        let web = |started| {
            [
                ("web", Kind::Main, state("running", started)),
                ("prep", Kind::PrestartOnce, state("dead", 100)),
                ("last", Kind::Poststop, state("pending", 0)),
            ]
        };
        assert_eq!(at(&web(105), 106), Verdict::Pending(115 * SECOND));
        // A restart begins the time anew.
        assert_eq!(at(&web(112), 116), Verdict::Pending(122 * SECOND));
        assert_eq!(at(&web(112), 122), Verdict::Healthy);
        assert_eq!(at(&web(155), 156), Verdict::Pending(160 * SECOND));
        // What ran long before health was watched is good from then on only.
        assert_eq!(at(&web(7), 101), Verdict::Pending(110 * SECOND));
        assert_eq!(at(&web(7), 110), Verdict::Healthy);
    }

    #[test]
    fn mod_02_unhealthy_at_once_or_at_the_deadline() {
        let mut failed = state("dead", 101);
        failed.failed = true;
        let why = |v: Verdict| match v {
            Verdict::Unhealthy(list) => list.into_iter().map(|(_, w)| w).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            why(at(&[("w", Kind::Main, failed)], 102)),
            ["Unhealthy because of failed task"]
        );
        assert_eq!(
            why(at(&[("w", Kind::Main, state("dead", 101))], 102)),
            ["Unhealthy because of dead task"]
        );
        assert_eq!(
            why(at(&[("w", Kind::Main, state("pending", 0))], 160)),
            ["Task not running by healthy_deadline of 1m0s"]
        );
        assert_eq!(
            why(at(&[("w", Kind::Main, state("running", 155))], 160)),
            ["Task not running for min_healthy_time of 10s by healthy_deadline of 1m0s"]
        );
    }

    #[test]
    fn chk_04_chk_06_checks_that_count_are_good_for_the_least_time_too() {
        let spec = HealthSpec { checks: 1, ..SPEC };
        let web = state("running", 105);
        let at = |good: Option<i64>, now: i64| {
            let tasks = std::iter::once(("web", Kind::Main, &web));
            let good = good.map(|s| s * SECOND);
            judge(&spec, 100 * SECOND, good, tasks, now * SECOND)
        };
        assert_eq!(at(None, 130), Verdict::Pending(160 * SECOND));
        assert_eq!(at(Some(120), 125), Verdict::Pending(130 * SECOND));
        assert_eq!(at(Some(120), 130), Verdict::Healthy);
        assert_eq!(at(Some(101), 115), Verdict::Healthy);
        let Verdict::Unhealthy(why) = at(None, 160) else {
            panic!("late")
        };
        assert_eq!(why[0].1, "Services not healthy by deadline of 1m0s");
    }

    fn of(kind: &str, deployment: &str, group: TaskGroup) -> Option<HealthSpec> {
        let job = Job {
            r#type: kind.into(),
            task_groups: vec![group].into(),
            ..Job::default()
        };
        HealthSpec::of(&Allocation {
            deployment_id: deployment.into(),
            task_group: "g".into(),
            job: Some(std::sync::Arc::new(job)),
            ..Allocation::default()
        })
    }

    fn group() -> TaskGroup {
        TaskGroup {
            name: "g".into(),
            ..TaskGroup::default()
        }
    }

    #[test]
    fn dep_08_services_are_watched_as_their_group_says() {
        assert_eq!(of("batch", "", group()), None);
        assert_eq!(of("batch", "d", group()), None);
        let plain = HealthSpec {
            min_healthy_time: MIN_HEALTHY_TIME,
            healthy_deadline: HEALTHY_DEADLINE,
            deployment: true,
            checks: 0,
        };
        assert_eq!(of("service", "d", group()), Some(plain.clone()));
        let moving = HealthSpec {
            deployment: false,
            ..plain.clone()
        };
        assert_eq!(of("service", "", group()), Some(moving));
        let update = |health_check: &str| TaskGroup {
            update: Some(UpdateStrategy {
                min_healthy_time: 0,
                healthy_deadline: 7,
                health_check: health_check.into(),
                ..UpdateStrategy::default()
            }),
            ..group()
        };
        let stated = HealthSpec {
            min_healthy_time: 0,
            healthy_deadline: 7,
            ..plain
        };
        assert_eq!(of("service", "d", update("checks")), Some(stated));
        assert_eq!(of("service", "d", update("manual")), None, "set by hand");
    }

    #[test]
    fn chk_06_checks_count_unless_the_states_of_tasks_alone_do() {
        let service = Service {
            provider: "nomad".into(),
            checks: vec![ServiceCheck::default()].into(),
            ..Service::default()
        };
        for (health_check, checks) in [("checks", 1), ("task_states", 0)] {
            let group = TaskGroup {
                services: vec![service.clone()].into(),
                update: Some(UpdateStrategy {
                    health_check: health_check.into(),
                    ..UpdateStrategy::default()
                }),
                ..group()
            };
            let spec = of("service", "d", group).expect("it is watched");
            assert_eq!(spec.checks, checks, "{health_check}");
        }
    }

    #[test]
    fn mod_02_what_is_healthy_at_its_deadline_is_in_time() {
        let web = [("web", Kind::Main, state("running", 150))];
        assert_eq!(at(&web, 160), Verdict::Healthy);
    }
}
