//! A driver for tests: the mock driver, but that a test says what becomes of a start.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::model::DriverInfo;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::mock::{Mock, NAME};
use super::{Driver, Handle, Recovered, Registry, RunningTask, StartError, TaskConfig};

/// What becomes of a start.
pub(crate) type Starting = BoxFuture<'static, Result<Arc<dyn RunningTask>, StartError>>;

struct Staged<F>(F);

/// Such a driver, the only one there is.
pub(crate) fn staged(start: impl Fn(TaskConfig) -> Starting + Send + Sync + 'static) -> Registry {
    let driver: Arc<dyn Driver> = Arc::new(Staged(start));
    Registry::new([driver], &BTreeMap::new())
}

impl<F: Fn(TaskConfig) -> Starting + Send + Sync> Driver for Staged<F> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fingerprint(&self, now: i64) -> DriverInfo {
        Mock.fingerprint(now)
    }

    fn validate(&self, config: &BTreeMap<String, Value>) -> Result<(), String> {
        Mock.validate(config)
    }

    fn start(&self, config: TaskConfig) -> Starting {
        (self.0)(config)
    }

    fn recover(
        &self,
        config: TaskConfig,
        handle: Option<Handle>,
    ) -> BoxFuture<'static, Result<Recovered, StartError>> {
        Mock.recover(config, handle)
    }

    fn destroy(&self, alloc_id: &str, task: &str, run: u64) {
        Mock.destroy(alloc_id, task, run);
    }
}
