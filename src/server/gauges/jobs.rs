//! What becomes of jobs: their statuses, and the allocations of their groups.

use drover_events::model::status::job as status;
use drover_events::model::{JobSummary, TaskGroupSummary};
use drover_projections::Scan;
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use metrics::{Label, gauge};

use crate::server::Server;

/// What stands between a parent's id and a child's own, by its kind, and the label for the latter.
const CHILDREN: [(&str, &str); 2] = [("/dispatch-", "dispatch_id"), ("/periodic-", "periodic_id")];

impl Server {
    pub(super) fn observe_jobs(&self) {
        let view = self.projections.view();
        let without_dispatched = self.config.telemetry.disable_dispatched_job_summary_metrics;
        for summary in view.scan::<JobSummaries>(Scan::all()).flatten() {
            let is_dispatched = summary.job_id.contains(CHILDREN[0].0);
            if !(without_dispatched && is_dispatched) {
                observe_summary(&summary);
            }
        }
        let mut counts = status::ALL
            .iter()
            .map(|name| (*name, 0_u64))
            .collect::<Vec<_>>();
        for job in view.scan::<Jobs>(Scan::all()).flatten() {
            if let Some((_, count)) = counts.iter_mut().find(|(name, _)| *name == job.status) {
                *count += 1;
            }
        }
        for (name, count) in counts {
            gauge!(format!("nomad.nomad.job_status.{name}")).set(count as f64);
        }
    }
}

fn observe_summary(summary: &JobSummary) {
    for (group, counts) in summary.summary.iter() {
        let labels = labels(summary, group);
        for (name, count) in figures(counts) {
            let name = format!("nomad.nomad.job_summary.{name}");
            gauge!(name, labels.clone()).set(count as f64);
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

fn figures(counts: &TaskGroupSummary) -> [(&'static str, i64); 7] {
    [
        ("queued", counts.queued),
        ("complete", counts.complete),
        ("failed", counts.failed),
        ("running", counts.running),
        ("starting", counts.starting),
        ("lost", counts.lost),
        ("unknown", counts.unknown),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_labelled_with_their_parents() {
        let summary = |id: &str| JobSummary {
            job_id: id.into(),
            namespace: "default".into(),
            ..JobSummary::default()
        };
        let told = |id: &str| -> Vec<String> {
            let labels = labels(&summary(id), "g");
            let text = |label: &Label| format!("{}={}", label.key(), label.value());
            labels.iter().map(text).collect()
        };
        assert_eq!(
            told("web"),
            ["job=web", "task_group=g", "namespace=default"]
        );
        assert_eq!(
            told("etl/dispatch-17-ab")[3..],
            ["exported_job=etl", "dispatch_id=17-ab"]
        );
        assert_eq!(
            told("nightly/periodic-1700000000")[3..],
            ["exported_job=nightly", "periodic_id=1700000000"]
        );
    }
}
