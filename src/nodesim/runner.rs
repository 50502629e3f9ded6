//! The smallest runner there can be (SIM-02): its allocation runs until the servers want its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use drover_events::gojson::{Map, Time};
use drover_events::model::status::{client, job_type, task};
use drover_events::model::{AllocDeploymentStatus, Allocation, TaskState};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::base::clock::unix_nanos;
use crate::client::alloc_runner::{AllocRunner, AllocRunnerFactory, Report};

/// What all simulated nodes did.
#[derive(Debug, Default)]
pub struct Counters {
    /// Allocations that were started.
    pub started: AtomicU64,
    /// Allocations that were stopped.
    pub stopped: AtomicU64,
}

/// Makes `SimRunner`s.
#[derive(Debug)]
pub struct SimFactory {
    counters: Arc<Counters>,
}

impl SimFactory {
    /// Counts into `counters`.
    pub fn new(counters: Arc<Counters>) -> Self {
        Self { counters }
    }
}

impl AllocRunnerFactory for SimFactory {
    fn start(
        &self,
        alloc: Arc<Allocation>,
        _state: Option<Bytes>,
        _previous: Vec<Arc<dyn AllocRunner>>,
        report: Report,
    ) -> Result<Arc<dyn AllocRunner>, String> {
        self.counters.started.fetch_add(1, Ordering::Relaxed);
        let runner = SimRunner {
            counters: self.counters.clone(),
            started_at: unix_nanos(),
            alloc: Mutex::new(thin(&alloc)),
            done: watch::Sender::new(false),
            report,
        };
        runner.report(&alloc, client::RUNNING);
        Ok(Arc::new(runner))
    }
}

/// Keeps no job: thousands of nodes would hold thousands of copies.
fn thin(alloc: &Allocation) -> Arc<Allocation> {
    Arc::new(Allocation {
        job: None,
        metrics: None,
        ..alloc.clone()
    })
}

/// An allocation that runs in name only.
struct SimRunner {
    counters: Arc<Counters>,
    started_at: i64,
    alloc: Mutex<Arc<Allocation>>,
    done: watch::Sender<bool>,
    report: Report,
}

impl SimRunner {
    fn report(&self, alloc: &Allocation, status: &str) {
        let running = status == client::RUNNING;
        let now = unix_nanos();
        let state = TaskState {
            state: if running { task::RUNNING } else { task::DEAD }.to_owned(),
            started_at: Time(self.started_at),
            finished_at: if running { Time::ZERO } else { Time(now) },
            ..TaskState::default()
        };
        let service = alloc
            .job
            .as_ref()
            .is_some_and(|j| j.r#type == job_type::SERVICE);
        let healthy = running && service && !alloc.deployment_id.is_empty();
        let tasks: Map<TaskState> = task_names(alloc)
            .map(|name| (name.clone(), state.clone()))
            .collect();
        (self.report)(Allocation {
            id: alloc.id.clone(),
            node_id: alloc.node_id.clone(),
            client_status: status.to_owned(),
            task_states: tasks,
            deployment_status: healthy.then(|| AllocDeploymentStatus {
                healthy: Some(true),
                timestamp: Time(now),
                canary: alloc.is_canary(),
                ..AllocDeploymentStatus::default()
            }),
            ..Allocation::default()
        });
    }
}

/// The names of an allocation's tasks, with or without its job.
fn task_names(alloc: &Allocation) -> impl Iterator<Item = &String> {
    let resources = alloc.allocated_resources.iter();
    resources.flat_map(|all| all.tasks.keys())
}

impl AllocRunner for SimRunner {
    fn update(&self, alloc: Arc<Allocation>) {
        *self.alloc.lock() = thin(&alloc);
        if !alloc.server_terminal() {
            return self.report(&alloc, client::RUNNING);
        }
        if !self.done.send_replace(true) {
            self.counters.stopped.fetch_add(1, Ordering::Relaxed);
            self.report(&alloc, client::COMPLETE);
        }
    }

    fn alloc(&self) -> Arc<Allocation> {
        self.alloc.lock().clone()
    }

    fn done(&self) -> watch::Receiver<bool> {
        self.done.subscribe()
    }

    fn destroy(&self) -> BoxFuture<'static, ()> {
        self.done.send_replace(true);
        std::future::ready(()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sim_02_cl_24_a_runner_tells_that_it_runs_and_that_it_stopped_and_nothing_more() {
        let counters = Arc::new(Counters::default());
        let reported = Arc::new(Mutex::new(Vec::new()));
        let keep = reported.clone();
        let report: Report = Arc::new(move |a: Allocation| keep.lock().push(a.client_status));
        let alloc = Allocation {
            id: "a".into(),
            alloc_modify_index: 7,
            ..Allocation::default()
        };
        let factory = SimFactory::new(counters.clone());
        let runner = factory
            .start(Arc::new(alloc.clone()), None, Vec::new(), report)
            .unwrap();
        assert_eq!(runner.alloc().alloc_modify_index, 7);
        assert!(!*runner.done().borrow());
        let stop = Allocation {
            desired_status: "stop".into(),
            ..alloc
        };
        for _ in 0..2 {
            runner.update(Arc::new(stop.clone()));
            assert_eq!(*reported.lock(), ["running", "complete"]);
        }
        assert!(*runner.done().borrow());
        assert_eq!(counters.stopped.load(Ordering::Relaxed), 1);
        assert!(runner.control().is_none());
    }
}
