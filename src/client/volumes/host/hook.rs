//! Lets an allocation wait for volumes that this node has and does not offer just now: one that is
//! made again after the machine was off, one that is being deleted and may not go.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::Allocation;
use drover_events::model::status::volume_type;
use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::timeout;

use super::{HostVolumes, NodeVolume};
use crate::hooks::alloc::list::MakeAllocHook;
use crate::hooks::alloc::{AllocAnswer, AllocGiven, AllocHook, Hooked};

/// How long a volume is waited for; its tasks say then that it is not there.
const PATIENCE: Duration = Duration::from_mins(5);

/// The hook.
struct Awaits {
    volumes: Arc<HostVolumes>,
    names: Vec<String>,
}

impl HostVolumes {
    /// The hook of allocations that use volumes of hosts.
    pub fn alloc_hook(self: &Arc<Self>) -> MakeAllocHook {
        let volumes = Arc::clone(self);
        Arc::new(move |_, alloc| {
            let (names, volumes) = (named(alloc), Arc::clone(&volumes));
            if names.is_empty() {
                return None;
            }
            Some(Box::new(Awaits { volumes, names }) as Box<dyn AllocHook>)
        })
    }

    /// Waits while one of these is here and not offered.
    pub(super) async fn offered(&self, names: &[String]) {
        let mut changed = self.changed.subscribe();
        let is_away = || {
            let held = self.held.lock();
            // Nothing waits for one that was never there.
            let is_away = |held: &&NodeVolume| !held.offered && !held.kept.path.is_empty();
            let mut away = held.values().filter(is_away);
            away.any(|held| names.contains(&held.kept.requested.name))
        };
        while is_away() {
            // The sender is part of this very value.
            let _ = changed.changed().await;
        }
    }
}

/// The volumes of hosts that an allocation uses.
pub(crate) fn named(alloc: &Allocation) -> Vec<String> {
    let group = alloc.group();
    let requests = group.into_iter().flat_map(|group| group.volumes.values());
    let of_hosts = requests.filter(|request| request.r#type == volume_type::HOST);
    let names = of_hosts.map(|request| request.source_for(&alloc.name).into_owned());
    names.collect()
}

impl Awaits {
    async fn wait(&self) {
        let waited = timeout(PATIENCE, self.volumes.offered(&self.names)).await;
        if waited.is_err() {
            tracing::warn!("volumes of this host do not come: {:?}", self.names);
        }
    }
}

impl AllocHook for Awaits {
    fn name(&self) -> &'static str {
        "host_volumes"
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn prerun<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            self.wait().await;
            Ok(AllocAnswer::done())
        }
        .boxed()
    }

    fn restore<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, ()> {
        self.wait().map(Ok).boxed()
    }
}
