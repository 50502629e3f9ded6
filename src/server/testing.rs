//! Servers in tests.

use std::ops::Deref;
use std::sync::Arc;

use super::Server;

/// A server that is stopped where it is dropped, also by a test that fails: none of its threads is
/// left to close its tables while the process ends, which RocksDB answers with an abort.
pub struct Stopping(pub Arc<Server>);

impl Deref for Stopping {
    type Target = Arc<Server>;

    fn deref(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        let server = Arc::clone(&self.0);
        // The test's own runtime does nothing while this waits, and is not needed.
        let stopped = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build();
            runtime.expect("a runtime").block_on(server.shutdown());
        });
        let _ = stopped.join();
    }
}
