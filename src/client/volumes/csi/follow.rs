//! What follows a plugin while its task runs: it is taken into the registry when it answers, and
//! looked at from then on.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use drover_csi::{CallError, Plugin};
use tokio::time::{Instant, sleep, timeout};

use super::leftover::UnmountPlan;
use super::registry::{CsiPart, Instance, Live, PluginKind, PluginProbe, PluginReport};
use super::{AllocKnowledge, Csi};
use crate::hooks::task::{Emit, RunningHooks};
use crate::task_events as events;

/// Between two looks at a plugin that has not answered yet.
const IMPATIENT: Duration = Duration::from_millis(100);
/// Between two looks at one that did.
const PERIOD: Duration = Duration::from_secs(5);
/// Between two changes of a plugin's own texts that are reported to servers.
const PACE: Duration = Duration::from_secs(60);
/// How long a plugin that never answered may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// Follows a plugin while its task runs.
pub(super) struct Follower {
    pub(super) csi: Arc<Csi>,
    pub(super) instance: Instance,
    pub(super) emit: Emit,
    /// How long it may take to answer for the first time.
    pub(super) patience: Duration,
}

impl Follower {
    pub(super) async fn follow(self, running: RunningHooks) {
        let plugin = Plugin::at(&self.instance.socket);
        let begun = Instant::now();
        let mut found = loop {
            match self.look(&plugin).await {
                Ok(found) => break found,
                Err(trouble) if begun.elapsed() > self.patience => {
                    let text = format!(
                        "CSI plugin did not become healthy before configured {:?} health timeout: \
                         {trouble}",
                        self.patience
                    );
                    self.report("Plugin became unhealthy", &text);
                    // Whether it is started again is for its restart policy.
                    if let Err(error) = running.task.stop("", GRACE) {
                        tracing::debug!("a plugin that does not answer: {error}");
                    }
                    return;
                }
                Err(_) => sleep(IMPATIENT).await,
            }
        };
        let instance = self.instance.clone();
        let registry = &self.csi.registry;
        registry
            .register(instance, plugin.clone(), found.clone())
            .await;
        self.csi.describe();
        self.report(
            "Plugin became healthy",
            &format!("plugin: {}", self.instance.plugin),
        );
        let (mut reported, mut left) = (Instant::now(), self.instance.kind.has(CsiPart::Node));
        let begun = AtomicUsize::new(0);
        loop {
            if left && found.healthy {
                left = self.clean(&plugin, &found, &begun).await;
            }
            sleep(PERIOD).await;
            let now = self.look(&plugin).await;
            let mut next = match now {
                Ok(next) => next,
                Err(trouble) => PluginProbe {
                    healthy: false,
                    trouble,
                    ..found.clone()
                },
            };
            next.since = match next.healthy == found.healthy {
                true => found.since,
                false => self.csi.clock.now(),
            };
            if next.healthy != found.healthy {
                match next.healthy {
                    true => self.report("Plugin became healthy", &self.instance.plugin),
                    false => self.report("Plugin became unhealthy", &next.trouble),
                }
            }
            // Its texts are its own, and may be others at every look: they alone are no news that
            // is to be reported to every server at once.
            let waits = next.healthy == found.healthy && reported.elapsed() < PACE;
            if next != found && !waits {
                reported = Instant::now();
                let key = (&*self.instance.alloc, &*self.instance.task);
                self.csi.registry.update(key, next.clone()).await;
                self.csi.describe();
                found = next;
            }
        }
    }

    /// Takes back what allocations left of which this node knows nothing any more; whether some of
    /// it is left.
    async fn clean(&self, plugin: &Plugin, found: &PluginProbe, begun: &AtomicUsize) -> bool {
        if self.csi.known("").is_none() {
            // The agent is still beginning.
            return true;
        }
        let live = Live {
            instance: self.instance.clone(),
            plugin: plugin.clone(),
            found: found.clone(),
            former: PluginReport::default(),
        };
        let is_over = |alloc: &str| self.csi.known(alloc) == Some(AllocKnowledge::Not);
        let cleaned = self
            .csi
            .take_rest(&live, UnmountPlan::Passes(begun), is_over);
        // One that is slow is looked after meanwhile.
        timeout(PERIOD, cleaned).await.unwrap_or(true)
    }

    async fn look(&self, plugin: &Plugin) -> Result<PluginProbe, String> {
        look(plugin, self.instance.kind, self.csi.clock.now()).await
    }

    fn report(&self, kind: &str, text: &str) {
        (self.emit)(events::message(kind, self.csi.clock.now(), text));
    }
}

/// Queries a plugin for its health, its identity and its capabilities.
pub(super) async fn look(
    plugin: &Plugin,
    kind: PluginKind,
    now: i64,
) -> Result<PluginProbe, String> {
    let (controller, node) = (kind.has(CsiPart::Controller), kind.has(CsiPart::Node));
    let probing = async {
        if !plugin.is_ready().await? {
            return Ok(None);
        }
        let identity = plugin.identity().await?;
        let features = plugin.features(controller, node).await?;
        let node = match node {
            true => Some(plugin.node_info().await?),
            false => None,
        };
        Ok::<_, CallError>(Some((identity, features, node)))
    };
    let answered = probing.await.map_err(|error| error.to_string())?;
    let (identity, features, node) = answered.ok_or("the plugin says that it is not ready")?;
    Ok(PluginProbe {
        identity: Some(identity),
        features,
        node,
        healthy: true,
        trouble: String::new(),
        since: now,
    })
}
