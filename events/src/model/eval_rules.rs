//! What follows from an evaluation by itself, and how evaluations are made.

use crate::model::status::{EvalStatus, eval, trigger};
use crate::model::{Evaluation, EvaluationStub, Job};

impl Evaluation {
    /// A pending evaluation of a job; times and indexes are set when it is applied.
    #[must_use]
    pub fn for_job(id: impl Into<String>, job: &Job, triggered_by: &str) -> Self {
        Self {
            id: id.into(),
            namespace: job.namespace.clone(),
            priority: job.priority,
            r#type: job.r#type.clone(),
            triggered_by: triggered_by.to_owned(),
            job_id: job.id.clone(),
            job_modify_index: job.modify_index,
            status: eval::PENDING.to_owned(),
            ..Self::default()
        }
    }

    /// A pending evaluation of a job because of a node.
    #[must_use]
    pub fn for_node(id: impl Into<String>, job: &Job, node_id: &str, node_index: u64) -> Self {
        Self {
            node_id: node_id.to_owned(),
            node_modify_index: node_index,
            ..Self::for_job(id, job, trigger::NODE_UPDATE)
        }
    }

    /// Complete, failed or canceled.
    #[must_use]
    pub fn terminal_status(&self) -> bool {
        self.status().is_some_and(EvalStatus::is_terminal)
    }

    /// Waits for capacity in the cluster.
    #[must_use]
    pub fn should_block(&self) -> bool {
        self.status == eval::BLOCKED
    }

    /// What others show of it.
    #[must_use]
    pub fn stub(&self) -> EvaluationStub {
        EvaluationStub {
            id: self.id.clone(),
            namespace: self.namespace.clone(),
            priority: self.priority,
            r#type: self.r#type.clone(),
            triggered_by: self.triggered_by.clone(),
            job_id: self.job_id.clone(),
            node_id: self.node_id.clone(),
            deployment_id: self.deployment_id.clone(),
            status: self.status.clone(),
            status_description: self.status_description.clone(),
            wait_until: self.wait_until,
            next_eval: self.next_eval.clone(),
            previous_eval: self.previous_eval.clone(),
            blocked_eval: self.blocked_eval.clone(),
            create_index: self.create_index,
            modify_index: self.modify_index,
            create_time: self.create_time,
            modify_time: self.modify_time,
        }
    }
}
