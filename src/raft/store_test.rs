//! openraft's own storage suite over our store.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use std::sync::Arc;

use super::*;
use crate::log::{LogEngine, LogOptions};

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let options = LogOptions {
            segment_bytes: 1 << 20,
            ..LogOptions::default()
        };
        let (log, _) = LogEngine::open(&dir.path().join("log"), options).unwrap();
        let log = Arc::new(log);
        let fold = Box::new(Discard::default());
        let snapshots = dir.path().join("snapshots");
        let machine = StateMachine::new(fold, Arc::clone(&log), snapshots).unwrap();
        Ok((dir, LogStore::new(log), machine))
    }
}

#[test]
fn openrafts_own_suite_passes_on_our_store() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(Suite::test_all(Builder)).unwrap();
}
