//! What follows from a deployment by itself.

use crate::model::Deployment;
use crate::model::status::{DeploymentStatus, deployment};

impl Deployment {
    /// Still going on: everything but failed, successful and cancelled.
    #[must_use]
    pub fn active(&self) -> bool {
        self.status().is_some_and(DeploymentStatus::is_active)
    }

    /// Some group has canaries that wait for promotion.
    #[must_use]
    pub fn requires_promotion(&self) -> bool {
        self.status == deployment::RUNNING
            && self
                .task_groups
                .values()
                .any(|g| g.desired_canaries > 0 && !g.promoted)
    }

    /// Every group with canaries promotes itself.
    #[must_use]
    pub fn has_auto_promote(&self) -> bool {
        self.status == deployment::RUNNING
            && !self.task_groups.is_empty()
            && self
                .task_groups
                .values()
                .all(|g| g.desired_canaries == 0 || g.auto_promote)
    }

    /// Some group goes back to the last stable version when this one fails.
    #[must_use]
    pub fn has_auto_revert(&self) -> bool {
        self.task_groups.values().any(|g| g.auto_revert)
    }
}
