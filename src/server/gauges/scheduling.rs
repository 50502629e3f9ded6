//! What scheduling does.

use drover_events::model::status::job_type;
use metrics::gauge;

use crate::reactors::scheduling::SchedulingStatus;

/// Sets every gauge of scheduling to what this status has.
pub(super) fn observe(status: SchedulingStatus) {
    for (name, value) in [
        ("nomad.nomad.broker.total_ready", status.ready),
        ("nomad.nomad.broker.total_unacked", status.unacked),
        ("nomad.nomad.broker.total_pending", status.pending),
        ("nomad.nomad.broker.total_waiting", status.waiting),
        ("nomad.nomad.broker.total_cancelable", status.cancelable),
        ("nomad.nomad.blocked_evals.total_blocked", status.blocked),
        ("nomad.nomad.blocked_evals.total_escaped", status.escaped),
        // There are no quotas yet.
        ("nomad.nomad.blocked_evals.total_quota_limit", 0),
        ("nomad.nomad.plan.queue_depth", status.plans),
    ] {
        gauge!(name).set(value as f64);
    }
    gauge!("nomad.nomad.blocked_evals.cpu").set(status.blocked_cpu as f64);
    gauge!("nomad.nomad.blocked_evals.memory").set(status.blocked_memory as f64);
    for one in status.blocked_jobs {
        let labels = [("job", one.job), ("namespace", one.namespace)];
        gauge!("nomad.nomad.blocked_evals.job.cpu", &labels).set(one.cpu as f64);
        gauge!("nomad.nomad.blocked_evals.job.memory", &labels).set(one.memory as f64);
    }
    gauge!("drover.scheduling.left_out").set(status.failed as f64);
    for kind in job_type::ALL {
        let (ready, unacked) = status.by_type.get(*kind).copied().unwrap_or_default();
        gauge!(format!("nomad.nomad.broker.{kind}.ready")).set(ready as f64);
        gauge!(format!("nomad.nomad.broker.{kind}.unacked")).set(unacked as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactors::scheduling::blocked::Wanted;
    use crate::server::gauges::testing::assert_shown;

    /// A status with another number in each field.
    fn status() -> SchedulingStatus {
        let wanted = |namespace: &str, job: &str, cpu, memory| Wanted {
            namespace: namespace.to_owned(),
            job: job.to_owned(),
            cpu,
            memory,
        };
        let by_type = [
            (job_type::SERVICE, (21, 22)),
            (job_type::BATCH, (23, 24)),
            (job_type::SYSTEM, (25, 26)),
            (job_type::CORE, (27, 28)),
        ];
        SchedulingStatus {
            paused: true,
            ready: 1,
            unacked: 2,
            pending: 3,
            waiting: 4,
            blocked: 5,
            escaped: 6,
            plans: 7,
            in_flight: 8,
            followed: 9,
            cancelable: 10,
            blocked_cpu: 11,
            blocked_memory: 12,
            blocked_jobs: vec![wanted("prod", "web", 13, 14), wanted("dev", "db", 15, 16)],
            failed: 17,
            last_error: Some("18".to_owned()),
            by_type: by_type
                .map(|(kind, counts)| (kind.to_owned(), counts))
                .into(),
        }
    }

    #[test]
    fn each_figure_of_scheduling_has_its_own_name() {
        let shown = [
            ("drover_scheduling_left_out", 17),
            ("nomad_nomad_blocked_evals_cpu", 11),
            (
                "nomad_nomad_blocked_evals_job_cpu{job=\"db\",namespace=\"dev\"}",
                15,
            ),
            (
                "nomad_nomad_blocked_evals_job_cpu{job=\"web\",namespace=\"prod\"}",
                13,
            ),
            (
                "nomad_nomad_blocked_evals_job_memory{job=\"db\",namespace=\"dev\"}",
                16,
            ),
            (
                "nomad_nomad_blocked_evals_job_memory{job=\"web\",namespace=\"prod\"}",
                14,
            ),
            ("nomad_nomad_blocked_evals_memory", 12),
            ("nomad_nomad_blocked_evals_total_blocked", 5),
            ("nomad_nomad_blocked_evals_total_escaped", 6),
            ("nomad_nomad_blocked_evals_total_quota_limit", 0),
            ("nomad_nomad_broker__core_ready", 27),
            ("nomad_nomad_broker__core_unacked", 28),
            ("nomad_nomad_broker_batch_ready", 23),
            ("nomad_nomad_broker_batch_unacked", 24),
            ("nomad_nomad_broker_service_ready", 21),
            ("nomad_nomad_broker_service_unacked", 22),
            // Of these there are none.
            ("nomad_nomad_broker_sysbatch_ready", 0),
            ("nomad_nomad_broker_sysbatch_unacked", 0),
            ("nomad_nomad_broker_system_ready", 25),
            ("nomad_nomad_broker_system_unacked", 26),
            ("nomad_nomad_broker_total_cancelable", 10),
            ("nomad_nomad_broker_total_pending", 3),
            ("nomad_nomad_broker_total_ready", 1),
            ("nomad_nomad_broker_total_unacked", 2),
            ("nomad_nomad_broker_total_waiting", 4),
            ("nomad_nomad_plan_queue_depth", 7),
        ];
        assert_shown(|| observe(status()), &shown);
    }
}
