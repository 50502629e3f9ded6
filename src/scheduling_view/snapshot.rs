//! What the scheduler reads: a view of the projections and the cluster at the same index.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::model::{Allocation, Deployment, Job, NodePool, SchedulerConfiguration};
use drover_projections::tables::alloc_jobs::AllocJobs;
use drover_projections::tables::allocs::AllocsByJob;
use drover_projections::tables::deployments::DeploymentsByJob;
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::tables::scheduler_config::SchedulerConfigTable;
use drover_projections::{ReadRows as _, Scan, StorageError, View};

use super::cache::Cache;
use crate::scheduler::cluster::Cluster;
use crate::scheduler::{ReadError, StateView};

/// A view and the cluster that belongs to it.
pub struct Snapshot {
    view: View,
    cluster: Cluster,
}

impl Snapshot {
    /// Puts the two together; they must be of one index.
    pub fn new(view: View, cluster: Cluster) -> Self {
        Self { view, cluster }
    }

    /// Reads the cluster from a view: for a server that does not lead, or an index of the past.
    ///
    /// # Errors
    /// The projections cannot be read.
    pub fn read(view: View) -> Result<Self, StorageError> {
        let mut cache = Cache::load(&view)?;
        for error in cache.take_left_out() {
            tracing::warn!(%error, "a row cannot be read, and nothing is placed by it");
        }
        let cluster = cache.cluster().clone();
        Ok(Self { view, cluster })
    }

    pub fn view(&self) -> &View {
        &self.view
    }
}

impl StateView for Snapshot {
    fn index(&self) -> u64 {
        self.view.index()
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn job(&self, namespace: &str, id: &str) -> Result<Option<Arc<Job>>, ReadError> {
        let job = self
            .view
            .get::<Jobs>((namespace, id))
            .map_err(ReadError::new)?;
        Ok(job.map(Arc::new))
    }

    fn allocs_of_job(&self, namespace: &str, id: &str) -> Result<Vec<Arc<Allocation>>, ReadError> {
        let mut versions: BTreeMap<u64, Option<Arc<Job>>> = BTreeMap::new();
        let mut allocs = Vec::new();
        for row in self.view.by_index::<AllocsByJob>((namespace, id)) {
            let row = row.map_err(ReadError::new)?;
            let version = row.job_modify_index;
            if let std::collections::btree_map::Entry::Vacant(e) = versions.entry(version) {
                let key = (namespace, id, version);
                let job = self.view.get::<AllocJobs>(key).map_err(ReadError::new)?;
                e.insert(job.map(Arc::new));
            }
            let mut alloc = row.alloc;
            alloc.job = versions.get(&version).cloned().flatten();
            allocs.push(Arc::new(alloc));
        }
        Ok(allocs)
    }

    fn stable_before(
        &self,
        namespace: &str,
        id: &str,
        version: u64,
    ) -> Result<Option<Arc<Job>>, ReadError> {
        let mut newest: Option<Job> = None;
        for job in self
            .view
            .rows::<JobVersions>(Scan::with_key_prefix::<(String, String)>((namespace, id)))
        {
            let job = job.map_err(ReadError::new)?;
            let newer = newest
                .as_ref()
                .is_none_or(|known| known.version < job.version);
            if job.stable && job.version < version && newer {
                newest = Some(Job::clone(&job));
            }
        }
        Ok(newest.map(Arc::new))
    }

    fn latest_deployment(
        &self,
        namespace: &str,
        id: &str,
    ) -> Result<Option<Deployment>, ReadError> {
        let scan = Scan::with_key_prefix::<(String, String)>((namespace, id)).reverse();
        let mut newest = self.view.by_index_scan::<DeploymentsByJob>(scan);
        newest.next().transpose().map_err(ReadError::new)
    }

    fn config(&self) -> Result<SchedulerConfiguration, ReadError> {
        let config = self
            .view
            .get::<SchedulerConfigTable>(())
            .map_err(ReadError::new)?;
        Ok(config.unwrap_or_default())
    }

    fn node_pool(&self, name: &str) -> Result<Option<NodePool>, ReadError> {
        self.view.get::<NodePools>(name).map_err(ReadError::new)
    }
}
