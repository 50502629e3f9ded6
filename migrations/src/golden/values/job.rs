//! Samples about jobs.

use std::sync::Arc;

use drover_events::job::*;
use drover_events::model::*;
use drover_events::{Event, EventKind};

use super::super::samples::TIME;
use super::scheduling::{deployment, eval};
use super::{id, texts};

pub(super) fn job() -> Arc<Job> {
    Arc::new(Job {
        id: "web".into(),
        name: "web".into(),
        namespace: "default".into(),
        region: "global".into(),
        r#type: "service".into(),
        priority: 50,
        datacenters: vec!["*".to_owned()].into(),
        meta: texts([("owner", "ops")]).into(),
        submit_time: TIME,
        ..Default::default()
    })
}

pub(super) fn scaling_event() -> ScalingEvent {
    ScalingEvent {
        time: TIME,
        count: Some(3),
        previous_count: 2,
        message: "more".into(),
        eval_id: Some(id(20)),
        ..Default::default()
    }
}

pub(super) fn event(kind: EventKind) -> Option<Event> {
    registrations(kind).or_else(|| details(kind))
}

fn registrations(kind: EventKind) -> Option<Event> {
    let (namespace, job_id) = ("default".to_owned(), "web".to_owned());
    Some(match kind {
        EventKind::JobRegistered => JobRegistered {
            job: job(),
            submission: Some(JobSubmission {
                source: "job \"web\" {}".into(),
                format: "hcl2".into(),
                ..Default::default()
            }),
            eval: Some(eval()),
            deployment: Some(deployment()),
            launch: TIME,
            scaling: Some(GroupScaling {
                task_group: "g".into(),
                event: scaling_event(),
            }),
            tracked_versions: 6,
        }
        .into(),
        EventKind::JobDeregistered => JobDeregistered {
            namespace,
            job_id,
            purge: true,
            no_shutdown_delay: true,
            eval: Some(eval()),
            submit_time: TIME,
            tracked_versions: 6,
            ..JobDeregistered::default()
        }
        .into(),
        EventKind::JobsDeregistered => JobsDeregistered {
            jobs: vec![DeregisteredJob {
                namespace,
                job_id,
                purge: true,
            }],
            evals: vec![eval()],
            submit_time: TIME,
            tracked_versions: 6,
            ..JobsDeregistered::default()
        }
        .into(),
        _ => return None,
    })
}

fn details(kind: EventKind) -> Option<Event> {
    let (namespace, job_id) = ("default".to_owned(), "web".to_owned());
    Some(match kind {
        EventKind::JobStabilityUpdated => JobStabilityUpdated {
            namespace,
            job_id,
            job_version: 2,
            stable: true,
        }
        .into(),
        EventKind::JobVersionTagged => JobVersionTagged {
            namespace,
            job_id,
            name: "golden".into(),
            version: 2,
            tag: Some(JobVersionTag {
                name: "golden".into(),
                description: "keep".into(),
                tagged_time: TIME,
            }),
        }
        .into(),
        EventKind::JobSummariesReconciled => JobSummariesReconciled {
            page_token: "default.web".into(),
            per_page: 100,
        }
        .into(),
        EventKind::PeriodicJobLaunched => PeriodicJobLaunched {
            namespace,
            job_id,
            launch: TIME,
        }
        .into(),
        _ => return None,
    })
}
