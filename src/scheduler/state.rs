//! What the scheduler reads: one consistent picture of the state, for every caller.

use std::sync::Arc;

use drover_events::model::{Allocation, Deployment, Job, NodePool, SchedulerConfiguration};

use super::cluster::Cluster;

/// Why a picture could not be read.
#[derive(Debug, thiserror::Error)]
#[error("state could not be read")]
pub struct ReadError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl ReadError {
    /// Wraps the error of a store.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// The state at one index. Every method answers as of [`StateView::index`].
pub trait StateView {
    /// The index of the picture.
    fn index(&self) -> u64;
    /// All nodes with their use.
    fn cluster(&self) -> &Cluster;
    /// The current version of a job.
    fn job(&self, namespace: &str, id: &str) -> Result<Option<Arc<Job>>, ReadError>;
    /// Every allocation of a job that there still is, with its own version of the job attached.
    fn allocs_of_job(&self, namespace: &str, id: &str) -> Result<Vec<Arc<Allocation>>, ReadError>;
    /// The newest version of a job below this one that was found stable.
    fn stable_before(
        &self,
        namespace: &str,
        id: &str,
        version: u64,
    ) -> Result<Option<Arc<Job>>, ReadError>;
    /// The newest deployment of a job.
    fn latest_deployment(&self, namespace: &str, id: &str)
    -> Result<Option<Deployment>, ReadError>;
    /// The scheduler's settings.
    fn config(&self) -> Result<SchedulerConfiguration, ReadError>;
    fn node_pool(&self, name: &str) -> Result<Option<NodePool>, ReadError>;
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn why_a_picture_cannot_be_read_is_told_once() {
        let error = ReadError::new("the disk is gone");
        assert_eq!(error.to_string(), "state could not be read");
        let why = error.source().map(ToString::to_string);
        assert_eq!(why.as_deref(), Some("the disk is gone"));
    }
}
