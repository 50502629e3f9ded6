//! The hook of a task that is a plugin: it is given a socket and a folder, looked after while it
//! runs, and taken out of the registry when it ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_csi::mounts::part;
use drover_events::model::{Allocation, Task, TaskCsiPluginConfig};
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::Csi;
use super::follow::Follower;
use super::registry::{CsiPart, Instance, PluginKind};
use crate::beneath::{open_dir, remove_tree};
use crate::clock::nanos;
use crate::drivers::{ExitResult, Mount, Propagation, isolates_files};
use crate::hooks::task::{
    HookFailure, Hooked, Prestart, RunningHooks, TaskAnswer, TaskGiven, TaskHook,
};

/// The longest path of a socket, bytes.
const LONGEST_SOCKET: usize = 107;
/// Why the folder of an allocation's sockets may not be removed.
const FINE: [io::ErrorKind; 2] = [io::ErrorKind::DirectoryNotEmpty, io::ErrorKind::NotFound];

/// The hook of a task that is a plugin.
pub(super) struct Supervisor {
    csi: Arc<Csi>,
    instance: Instance,
    /// How the task gets to know its socket.
    endpoint: String,
    /// Folders that it has to see: on this node, and as it sees them.
    mounts: Vec<(PathBuf, PathBuf)>,
    patience: Duration,
    follows: Mutex<Option<JoinHandle<()>>>,
}

impl Supervisor {
    /// The hook of a task that is a plugin; `None` for any other task.
    pub(super) fn of(csi: &Arc<Csi>, alloc: &Allocation, task: &Task) -> Option<Self> {
        let config: &TaskCsiPluginConfig = task.csi_plugin_config.as_ref()?;
        let kind = PluginKind::parse(&config.r#type)?;
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
            sockets.push(part(&task.name));
        }
        let host = csi.host(kind, &config.id);
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

    /// A plugin that shares the node's files must share its mounts: those of its own are seen by
    /// no other process.
    fn sees_the_node(&self, task: &Task) -> Result<(), HookFailure> {
        let apart = !isolates_files(&task.driver) && !task.volume_mounts.is_empty();
        if apart && self.instance.kind.has(CsiPart::Node) {
            let text = format!(
                "a plugin of driver {:?} cannot have volumes mounted: what it mounts itself would \
                 not be seen by others",
                task.driver
            );
            return Err(HookFailure::fatal(text));
        }
        Ok(())
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

    fn leave(&self) -> Option<JoinHandle<()>> {
        let follows = self.follows.lock().take();
        follows.inspect(JoinHandle::abort)
    }

    async fn take_out(&self) {
        // One that is about to register it does so before it is taken out.
        if let Some(follows) = self.leave() {
            let _ = follows.await;
        }
        let (alloc, task) = (&self.instance.alloc, &self.instance.task);
        self.csi.registry.deregister(alloc, task).await;
        self.csi.describe();
    }
}

impl TaskHook for Supervisor {
    fn name(&self) -> &'static str {
        "csi_plugin_supervisor"
    }

    fn prestart<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        async move {
            self.sees_the_node(given.task()?.1)?;
            // What was known of the plugin belongs to a run that is over.
            self.take_out().await;
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
        running: &'a RunningHooks,
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
            let sockets = self.csi.folder.join("plugins").join(&self.instance.alloc);
            // What is left there has no owner; that of another task of the group stays.
            let own = self.instance.socket.parent().unwrap_or(&sockets).to_owned();
            let removed = tokio::task::spawn_blocking(move || {
                let name = own.file_name().unwrap_or_default().to_string_lossy();
                let above = open_dir(own.parent().unwrap_or(&own));
                let removed = above.and_then(|above| remove_tree(above, &name));
                match removed.and_then(|()| std::fs::remove_dir(sockets)) {
                    Err(error) if FINE.contains(&error.kind()) => Ok(()),
                    removed => removed,
                }
            });
            let removed = removed.await.map_err(|error| error.to_string())?;
            removed.map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn shutdown(&self) {
        drop(self.leave());
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
