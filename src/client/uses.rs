//! Which allocations of this node use a volume of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use drover_events::model::Allocation;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{sleep, timeout};

use super::agent::Core;
use super::volumes::host::{Users, named};
use super::{contact, pull};
use drover_rpc::RpcError;
use drover_rpc::methods::{NodeGetClientAllocs, NodeSpecificRequest};

/// How long servers may take to say what they sent here.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two questions to a server that is behind.
const PAUSE: Duration = Duration::from_millis(100);

/// The users of volumes.
pub(super) struct Uses(Weak<Core>);

impl Uses {
    pub(super) fn of(core: &Arc<Core>) -> Self {
        Self(Arc::downgrade(core))
    }
}

impl Users for Uses {
    fn here(&self, namespace: &str, name: &str) -> Vec<String> {
        let core = self.0.upgrade();
        core.map_or_else(Vec::new, |core| core.users(namespace, name))
    }

    fn anew(&self, namespace: &str, name: &str) -> BoxFuture<'static, Result<Vec<String>, String>> {
        let (core, of) = (self.0.upgrade(), (namespace.to_owned(), name.to_owned()));
        async move {
            let core = core.ok_or("the client ends")?;
            if !contact::describe(&core).await {
                return Err(core.contact.borrow().trouble.clone());
            }
            let sent = timeout(PATIENCE, core.sent(&of.0, &of.1)).await;
            let sent = sent.map_err(|_| "servers do not say what is to run here".to_owned())?;
            let mut users = sent.map_err(|error| error.to_string())?;
            // Looked at last: what came here meanwhile is in one of the two.
            users.extend(core.users(&of.0, &of.1));
            users.sort_unstable();
            users.dedup();
            Ok(users)
        }
        .boxed()
    }
}

impl Core {
    /// The allocations of which something runs that uses a host volume: also of those that are
    /// being removed, until they are.
    pub(super) fn users(&self, namespace: &str, name: &str) -> Vec<String> {
        let (allocs, leaving) = (self.allocs.lock(), self.leaving.lock());
        let all = allocs.values().chain(leaving.values());
        let live = all.filter(|runner| !*runner.done().borrow());
        let live = live.map(|runner| runner.alloc());
        live.filter(|alloc| uses(alloc, (namespace, name)))
            .map(|alloc| alloc.id.clone())
            .collect()
    }

    /// The allocations that are to run here and did not come yet, which use a host volume. The
    /// request goes to a server that knows how this node was reported to be.
    async fn sent(&self, namespace: &str, name: &str) -> Result<Vec<String>, RpcError> {
        let reported = self.contact.borrow().node_index;
        let request = NodeSpecificRequest {
            node_id: self.id(),
            ..NodeSpecificRequest::default()
        };
        let sent = loop {
            let answer = self.caller.once::<NodeGetClientAllocs>(&request, PATIENCE);
            let answer = answer.await?;
            if answer.index >= reported {
                break answer.allocs;
            }
            sleep(PAUSE).await;
        };
        let missing: BTreeMap<String, u64> = {
            let allocs = self.allocs.lock();
            let is_here = |id: &String| allocs.contains_key(id);
            sent.into_iter().filter(|(id, _)| !is_here(id)).collect()
        };
        let fetched = pull::fetched(self, &missing).await?;
        let live = fetched.into_iter().filter(|alloc| !alloc.terminal_status());
        let using = live.filter(|alloc| uses(alloc, (namespace, name)));
        Ok(using.map(|alloc| alloc.id).collect())
    }
}

fn uses(alloc: &Allocation, (namespace, name): (&str, &str)) -> bool {
    alloc.namespace == namespace && named(alloc).iter().any(|one| one == name)
}
