//! What becomes of jobs: their statuses, and the allocations of their groups.
//!
//! Kept from one look to the next: only what changed is read, however many jobs and callers there
//! are.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use drover_events::model::status::job as status;
use drover_events::model::{JobSummary, TaskGroupSummary};
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{ChangedRow, Follow, Followed, Scan, StorageError, Table, View};
use metrics::{Label, gauge};

use crate::server::Server;

/// What stands between a parent's id and a child's own, by its kind, and the label for the latter.
const CHILDREN: [(&str, &str); 2] = [("/dispatch-", "dispatch_id"), ("/periodic-", "periodic_id")];
/// The numbers of a group.
const FIGURES: [&str; 7] = [
    "nomad.nomad.job_summary.queued",
    "nomad.nomad.job_summary.complete",
    "nomad.nomad.job_summary.failed",
    "nomad.nomad.job_summary.running",
    "nomad.nomad.job_summary.starting",
    "nomad.nomad.job_summary.lost",
    "nomad.nomad.job_summary.unknown",
];

/// Namespace and id.
type Name = (String, String);

/// What is known of all jobs.
#[derive(Debug, Default)]
pub(in crate::server) struct JobGauges {
    followed: Option<Followed>,
    /// The place of each job's status in [`status::ALL`].
    statuses: HashMap<Name, usize>,
    /// How many jobs have each status.
    counts: [u64; status::ALL.len()],
    groups: HashMap<Name, Vec<Group>>,
    /// When all groups were last reported: a level that is not set again vanishes.
    reported: Option<Instant>,
    /// Rows that were read.
    #[cfg(test)]
    read: usize,
}

/// A group of a job.
#[derive(Debug)]
struct Group {
    labels: Vec<Label>,
    figures: [i64; FIGURES.len()],
    /// Whether its figures differ from those last reported.
    is_new: bool,
}

impl Server {
    pub(super) fn observe_jobs(&self) {
        let config = self.configured();
        let telemetry = &config.telemetry;
        let kept = telemetry.in_memory_retention_period;
        let again = kept.max(telemetry.in_memory_collection_interval) / 2;
        let mut jobs = self.job_gauges.lock();
        let view = self.projections.view();
        if let Err(error) = jobs.refresh(&self.projections, &view, &mut ()) {
            tracing::warn!(%error, "jobs cannot be counted");
            return;
        }
        drop(view);
        jobs.report(again, telemetry.disable_dispatched_job_summary_metrics);
    }
}

impl Follow for JobGauges {
    const TABLES: &'static [u16] = &[Jobs::ID, JobSummaries::ID];
    type With = ();

    fn followed(&mut self) -> &mut Option<Followed> {
        &mut self.followed
    }

    fn all(&mut self, view: &View, (): &mut ()) -> Result<(), StorageError> {
        *self = Self {
            followed: self.followed.take(),
            ..Self::default()
        };
        for job in view.scan::<Jobs>(Scan::all()) {
            let Some(job) = readable(job)? else { continue };
            self.job((job.namespace, job.id), Some(&job.status));
        }
        for summary in view.scan::<JobSummaries>(Scan::all()) {
            let Some(summary) = readable(summary)? else {
                continue;
            };
            let name = (summary.namespace.clone(), summary.job_id.clone());
            self.summary(name, Some(&summary));
        }
        Ok(())
    }

    fn row(&mut self, view: &View, row: &ChangedRow, (): &mut ()) -> Result<(), StorageError> {
        if let Some(name) = row.key_of::<Jobs>() {
            let job = readable(view.get::<Jobs>((name.0.as_str(), name.1.as_str())))?;
            self.job(name, job.flatten().as_ref().map(|job| job.status.as_str()));
        } else if let Some(name) = row.key_of::<JobSummaries>() {
            let key = (name.0.as_str(), name.1.as_str());
            let summary = readable(view.get::<JobSummaries>(key))?;
            self.summary(name, summary.flatten().as_ref());
        }
        Ok(())
    }
}

/// What was read; none where the row is damaged: it is left out, and ends no other's figures.
fn readable<R>(read: Result<R, StorageError>) -> Result<Option<R>, StorageError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_single_entry() => {
            let error = crate::error::chain(&error);
            tracing::warn!(error, "a job is not counted");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl JobGauges {
    /// A job has this status now; none: it is gone.
    fn job(&mut self, name: Name, now: Option<&str>) {
        #[cfg(test)]
        {
            self.read += 1;
        }
        let at = now.and_then(|now| status::ALL.iter().position(|known| *known == now));
        let before = match at {
            Some(at) => {
                self.counts[at] += 1;
                self.statuses.insert(name, at)
            }
            None => self.statuses.remove(&name),
        };
        if let Some(before) = before {
            self.counts[before] -= 1;
        }
    }

    fn summary(&mut self, name: Name, summary: Option<&JobSummary>) {
        #[cfg(test)]
        {
            self.read += 1;
        }
        let Some(summary) = summary else {
            self.groups.remove(&name);
            return;
        };
        let groups = summary.summary.iter().map(|(group, counts)| Group {
            labels: labels(summary, group),
            figures: figures(counts),
            is_new: true,
        });
        self.groups.insert(name, groups.collect());
    }

    /// Reports what changed, and everything where that was not done for a while.
    fn report(&mut self, again: Duration, without_dispatched: bool) {
        for (name, count) in status::ALL.iter().zip(self.counts) {
            gauge!(format!("nomad.nomad.job_status.{name}")).set(count as f64);
        }
        let all = self
            .reported
            .is_none_or(|reported| reported.elapsed() >= again);
        if all {
            self.reported = Some(Instant::now());
        }
        for ((_, id), groups) in &mut self.groups {
            if without_dispatched && id.contains(CHILDREN[0].0) {
                continue;
            }
            for group in groups {
                if std::mem::take(&mut group.is_new) || all {
                    for (name, count) in FIGURES.into_iter().zip(group.figures) {
                        gauge!(name, group.labels.clone()).set(count as f64);
                    }
                }
            }
        }
    }
}

fn labels(summary: &JobSummary, group: &str) -> Vec<Label> {
    let label = |name: &'static str, value: &str| Label::new(name, value.to_owned());
    let mut labels = vec![
        label("job", &summary.job_id),
        label("task_group", group),
        label("namespace", &summary.namespace),
    ];
    for (between, name) in CHILDREN {
        if let Some((parent, own)) = summary.job_id.split_once(between) {
            labels.push(label("exported_job", parent));
            labels.push(label(name, own));
        }
    }
    labels
}

fn figures(counts: &TaskGroupSummary) -> [i64; FIGURES.len()] {
    [
        counts.queued,
        counts.complete,
        counts.failed,
        counts.running,
        counts.starting,
        counts.lost,
        counts.unknown,
    ]
}

#[cfg(test)]
mod tests {
    use drover_events::job::JobDeregistered;

    use super::*;
    use crate::commands::job::RegisterJob;
    use crate::reactors::testing::{Direct, spoil};
    use drover_testkit::fixtures::job;

    #[test]
    fn children_are_labelled_with_their_parents() {
        let summary = |id: &str| JobSummary {
            job_id: id.into(),
            namespace: "default".into(),
            ..JobSummary::default()
        };
        let reported = |id: &str| -> Vec<String> {
            let labels = labels(&summary(id), "g");
            let text = |label: &Label| format!("{}={}", label.key(), label.value());
            labels.iter().map(text).collect()
        };
        assert_eq!(
            reported("web"),
            ["job=web", "task_group=g", "namespace=default"]
        );
        assert_eq!(
            reported("etl/dispatch-17-ab")[3..],
            ["exported_job=etl", "dispatch_id=17-ab"]
        );
        assert_eq!(
            reported("nightly/periodic-1700000000")[3..],
            ["exported_job=nightly", "periodic_id=1700000000"]
        );
    }

    #[test]
    fn each_figure_of_jobs_has_its_own_name() {
        let (telemetry, recorder) =
            crate::telemetry::build(&crate::telemetry::TelemetryOptions::default());
        let counts = TaskGroupSummary {
            queued: 1,
            complete: 2,
            failed: 3,
            running: 4,
            starting: 5,
            lost: 6,
            unknown: 7,
        };
        let summary = JobSummary {
            job_id: "web".into(),
            namespace: "default".into(),
            summary: [("g".to_owned(), counts)].into_iter().collect(),
            ..JobSummary::default()
        };
        let mut jobs = JobGauges::default();
        jobs.summary(("default".into(), "web".into()), Some(&summary));
        let all = ["pending", "running", "running", "dead", "dead", "dead"];
        for (number, status) in all.into_iter().enumerate() {
            jobs.job(("default".into(), format!("job-{number}")), Some(status));
        }
        metrics::with_local_recorder(&recorder, || jobs.report(Duration::ZERO, false));
        let text = telemetry.prometheus();
        for (name, wanted) in [
            ("job_summary_queued", 1),
            ("job_summary_complete", 2),
            ("job_summary_failed", 3),
            ("job_summary_running", 4),
            ("job_summary_starting", 5),
            ("job_summary_lost", 6),
            ("job_summary_unknown", 7),
            ("job_status_pending", 1),
            ("job_status_running", 2),
            ("job_status_dead", 3),
        ] {
            let name = format!("nomad_nomad_{name}");
            let figures: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix(name.as_str()))
                .filter(|rest| rest.starts_with(['{', ' ']))
                .filter_map(|rest| Some(rest.rsplit_once(' ')?.1))
                .collect();
            assert_eq!(figures, [wanted.to_string()], "{name}: {text}");
        }
    }

    #[test]
    fn dispatched_jobs_are_left_out_where_the_configuration_says_so() {
        let shown = |without: bool| {
            let (telemetry, recorder) =
                crate::telemetry::build(&crate::telemetry::TelemetryOptions::default());
            let mut jobs = JobGauges::default();
            for id in ["etl", "etl/dispatch-17-ab"] {
                let summary = JobSummary {
                    job_id: id.into(),
                    namespace: "default".into(),
                    summary: [("g".to_owned(), TaskGroupSummary::default())]
                        .into_iter()
                        .collect(),
                    ..JobSummary::default()
                };
                jobs.summary(("default".into(), id.into()), Some(&summary));
            }
            metrics::with_local_recorder(&recorder, || jobs.report(Duration::ZERO, without));
            let shown = serde_json::to_string(&telemetry.summary()).expect("serialises");
            assert!(shown.contains("\"etl\""), "{shown}");
            shown.contains("17-ab")
        };
        assert!(shown(false));
        assert!(!shown(true));
    }

    #[test]
    fn a_row_that_cannot_be_read_ends_no_other_jobs_figures() {
        type Spoil = fn(&std::path::Path, &(String, String));
        let cases: [(Spoil, u64, usize); 2] =
            [(spoil::<Jobs>, 2, 3), (spoil::<JobSummaries>, 3, 2)];
        for (spoil, pending, groups) in cases {
            let direct = Direct::new();
            let register = |direct: &Direct, id: &str| {
                let mut spec = job("batch", 1);
                (spec.id, spec.name) = (id.to_owned(), id.to_owned());
                let register = RegisterJob {
                    job: spec,
                    eval_id: uuid::Uuid::new_v4().to_string(),
                    ..RegisterJob::default()
                };
                direct.command(&register).unwrap();
            };
            for id in ["after", "damaged", "zebra"] {
                register(&direct, id);
            }
            let direct = direct.reopened(|database| {
                spoil(database, &("default".to_owned(), "damaged".to_owned()));
            });
            let mut jobs = JobGauges::default();
            let mut counted = || {
                let view = direct.projections.view();
                jobs.refresh(&direct.projections, &view, &mut ()).unwrap();
                (jobs.counts.iter().sum::<u64>(), jobs.groups.len())
            };
            assert_eq!(counted(), (pending, groups), "all are read");
            register(&direct, "new");
            assert_eq!(counted(), (pending + 1, groups + 1), "one is read");
        }
    }

    #[test]
    fn only_what_changed_is_read_again() {
        let direct = Direct::new();
        let register = |id: &str, count: i64| {
            let mut spec = job("batch", count);
            (spec.id, spec.name) = (id.to_owned(), id.to_owned());
            let register = RegisterJob {
                job: spec,
                eval_id: uuid::Uuid::new_v4().to_string(),
                ..RegisterJob::default()
            };
            direct.command(&register).unwrap();
        };
        for number in 0..40 {
            register(&format!("job-{number}"), 1);
        }
        let mut jobs = JobGauges::default();
        let mut read = || {
            let view = direct.projections.view();
            jobs.refresh(&direct.projections, &view, &mut ()).unwrap();
            let pending = jobs.counts.iter().sum::<u64>();
            (std::mem::take(&mut jobs.read), pending, jobs.groups.len())
        };
        assert_eq!(read(), (80, 40, 40), "all, at first");
        assert_eq!(read(), (0, 40, 40));
        register("job-7", 2);
        register("job-new", 2);
        let (rows, total, groups) = read();
        assert!(rows <= 4, "{rows} rows were read");
        assert_eq!((total, groups), (41, 41));
        direct.apply(JobDeregistered {
            namespace: "default".into(),
            job_id: "job-7".into(),
            purge: true,
            ..JobDeregistered::default()
        });
        let (rows, total, groups) = read();
        assert!(rows <= 2, "{rows} rows were read");
        assert_eq!((total, groups), (40, 40));
    }
}
