//! A task that is a plugin: it is given a socket and a folder, taken into the registry when it
//! answers, looked after while it runs, and taken out when it ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_csi::{CallError, Plugin};
use drover_events::model::{Allocation, Task, TaskCsiPluginConfig};
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::Csi;
use super::registry::{Found, Instance, Kind, Part};
use crate::client::clock::nanos;
use crate::client::drivers::{ExitResult, Mount, Propagation, isolates_files};
use crate::client::task::events;
use crate::client::task::hooks::{
    Emit, HookFailure, Hooked, Prestart, Running, TaskAnswer, TaskGiven, TaskHook,
};

/// The longest path of a socket, bytes.
const LONGEST_SOCKET: usize = 107;
/// Between two looks at a plugin that has not answered yet.
const IMPATIENT: Duration = Duration::from_millis(100);
/// Between two looks at one that did.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a plugin that never answered may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// The hook of a task that is a plugin.
pub(super) struct Supervisor {
    csi: Arc<Csi>,
    instance: Instance,
    /// What the task is told of its socket.
    endpoint: String,
    /// Folders that it has to see: on this node, and as it sees them.
    mounts: Vec<(PathBuf, PathBuf)>,
    patience: Duration,
    follows: Mutex<Option<JoinHandle<()>>>,
}

impl Supervisor {
    /// Of a task that is a plugin; none of any other.
    pub(super) fn of(csi: &Arc<Csi>, alloc: &Allocation, task: &Task) -> Option<Self> {
        let config: &TaskCsiPluginConfig = task.csi_plugin_config.as_ref()?;
        let kind = Kind::parse(&config.r#type)?;
        let mut sockets = csi.folder.join("plugins").join(&alloc.id);
        let plugins = alloc
            .group()
            .into_iter()
            .flat_map(|group| group.tasks.iter());
        if plugins
            .filter(|task| task.csi_plugin_config.is_some())
            .count()
            > 1
        {
            sockets.push(&task.name);
        }
        let host = csi.folder.join(kind.word()).join(&config.id);
        let apart = isolates_files(&task.driver);
        let (endpoint, seen, mounts) = match apart {
            true => {
                let (socket, base) = (
                    PathBuf::from(&config.mount_dir),
                    &config.stage_publish_base_dir,
                );
                let seen = PathBuf::from(base);
                let mounts = vec![
                    (sockets.clone(), socket.clone()),
                    (host.clone(), seen.clone()),
                ];
                (socket.join("csi.sock"), seen, mounts)
            }
            // It sees this node's files, and no others.
            false => (sockets.join("csi.sock"), host.clone(), Vec::new()),
        };
        Some(Self {
            csi: Arc::clone(csi),
            instance: Instance {
                plugin: config.id.clone(),
                kind,
                alloc: alloc.id.clone(),
                task: task.name.clone(),
                socket: sockets.join("csi.sock"),
                host,
                seen,
            },
            endpoint: format!("unix://{}", endpoint.display()),
            mounts,
            patience: nanos(config.health_timeout),
            follows: Mutex::default(),
        })
    }

    fn folders(&self) -> Result<(), HookFailure> {
        let socket = &self.instance.socket;
        if socket.as_os_str().len() > LONGEST_SOCKET {
            let text = format!(
                "the path of the plugin's socket is longer than {LONGEST_SOCKET} bytes, which no \
                 socket may have: {}; a shorter state_dir helps",
                socket.display()
            );
            return Err(HookFailure::fatal(text));
        }
        let above = socket.parent().unwrap_or(socket);
        for folder in [above, &self.instance.host] {
            let made = std::fs::create_dir_all(folder);
            made.map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        }
        // The one that an earlier run left would be taken for this one's.
        match std::fs::remove_file(socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("cannot remove {}: {error}", socket.display()).into())
            }
            _ => Ok(()),
        }
    }

    fn leave(&self) {
        if let Some(follows) = self.follows.lock().take() {
            follows.abort();
        }
    }

    async fn take_out(&self) {
        self.leave();
        let (alloc, task) = (&self.instance.alloc, &self.instance.task);
        self.csi.registry.deregister(alloc, task).await;
        self.csi.describe();
    }
}

impl TaskHook for Supervisor {
    fn name(&self) -> &'static str {
        "csi_plugin_supervisor"
    }

    fn prestart<'a>(&'a self, _: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        async move {
            self.folders()?;
            let mounts = self.mounts.iter().map(|(host, task)| Mount {
                host_path: host.clone(),
                task_path: task.clone(),
                propagation: Propagation::Bidirectional,
                ..Mount::default()
            });
            Ok(TaskAnswer {
                env: [("CSI_ENDPOINT".to_owned(), self.endpoint.clone())].into(),
                mounts: mounts.collect(),
                ..TaskAnswer::default()
            })
        }
        .boxed()
    }

    fn poststart<'a>(
        &'a self,
        given: &'a TaskGiven,
        _: &'a Value,
        running: &'a Running,
    ) -> Hooked<'a> {
        let follower = Follower {
            csi: Arc::clone(&self.csi),
            instance: self.instance.clone(),
            emit: Arc::clone(&given.emit),
            patience: self.patience,
        };
        let running = running.clone();
        let follows = tokio::spawn(follower.follow(running));
        if let Some(older) = self.follows.lock().replace(follows) {
            older.abort();
        }
        std::future::ready(Ok(())).boxed()
    }

    fn exited<'a>(&'a self, _: &'a TaskGiven, _: &'a Value, _: &'a ExitResult) -> Hooked<'a> {
        self.take_out().map(Ok).boxed()
    }

    fn stop<'a>(&'a self, _: &'a TaskGiven, _: &'a Value) -> Hooked<'a> {
        async move {
            self.take_out().await;
            let socket = &self.instance.socket;
            // What is left of it is nobody's.
            let _ = std::fs::remove_file(socket);
            for folder in socket.ancestors().skip(1).take(2) {
                let _ = std::fs::remove_dir(folder);
            }
            Ok(())
        }
        .boxed()
    }

    fn shutdown(&self) {
        self.leave();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Follows a plugin while its task runs.
struct Follower {
    csi: Arc<Csi>,
    instance: Instance,
    emit: Emit,
    patience: Duration,
}

impl Follower {
    async fn follow(self, running: Running) {
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
                    self.tell("Plugin became unhealthy", &text);
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
        self.tell(
            "Plugin became healthy",
            &format!("plugin: {}", self.instance.plugin),
        );
        loop {
            sleep(PERIOD).await;
            let now = self.look(&plugin).await;
            let mut next = match now {
                Ok(next) => next,
                Err(trouble) => Found {
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
                    true => self.tell("Plugin became healthy", &self.instance.plugin),
                    false => self.tell("Plugin became unhealthy", &next.trouble),
                }
            }
            if next != found {
                let key = (&*self.instance.alloc, &*self.instance.task);
                self.csi.registry.update(key, next.clone());
                self.csi.describe();
                found = next;
            }
        }
    }

    async fn look(&self, plugin: &Plugin) -> Result<Found, String> {
        look(plugin, self.instance.kind, self.csi.clock.now()).await
    }

    fn tell(&self, kind: &str, text: &str) {
        (self.emit)(events::message(kind, self.csi.clock.now(), text));
    }
}

/// Asks a plugin how it is, who it is and what it can.
pub(super) async fn look(plugin: &Plugin, kind: Kind, now: i64) -> Result<Found, String> {
    let (controller, node) = (kind.has(Part::Controller), kind.has(Part::Node));
    let asked = async {
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
    let answered = asked.await.map_err(|error| error.to_string())?;
    let (identity, features, node) = answered.ok_or("the plugin says that it is not ready")?;
    Ok(Found {
        identity: Some(identity),
        features,
        node,
        healthy: true,
        trouble: String::new(),
        since: now,
    })
}
