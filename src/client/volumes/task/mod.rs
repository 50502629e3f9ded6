//! What a task mounts of the volumes of its group.
//!
//! A driver with files of its own mounts them where the task wants them; `raw_exec` as root does so
//! below the task's directory. Where nothing can be mounted, the task finds the directory of the
//! host by its environment, and what must not be written is refused.

#[cfg(test)]
mod task_test;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_events::model::status::{VolumeType, volume_type};
use drover_events::model::{Task, TaskGroup, VolumeMount, VolumeRequest};
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::drivers::{Device, Mount, Propagation, isolates_files};
use crate::env::{TaskEnv, clean};
use crate::executor::labels;
use crate::hooks::task::list::MakeTaskHook;
use crate::hooks::task::{HookFailure, Prestart, TaskAnswer, TaskGiven, TaskHook};
use crate::task_events as events;
use crate::volumes::csi::claim::{MountedVolume, MountedVolumes as Claimed};
use crate::volumes::look::look;

/// What the variable begins with that says where a volume is.
const VARIABLE: &str = "NOMAD_VOLUME_";
/// The hook's name.
const NAME: &str = "volumes";
/// What it keeps once it has reported that labels are not set.
const UNLABELLED: &str = "unlabelled";

/// Mounts the volumes of hosts, and those that the allocation claimed.
pub struct VolumeHook;

impl VolumeHook {
    /// Makes it, for every task.
    pub fn maker() -> MakeTaskHook {
        Arc::new(|_, _| Some(Box::new(Self)))
    }
}

impl TaskHook for VolumeHook {
    fn name(&self) -> &'static str {
        NAME
    }

    fn repeatable(&self) -> bool {
        true
    }

    // A volume of the node's may be another one when the task starts again: it is never done.
    fn prestart<'a>(&'a self, given: &'a TaskGiven, kept: &'a Value) -> Prestart<'a> {
        async move {
            are_there(given).await?;
            let (mut answer, unlabelled) = mounted(given, Host::here())?;
            if !unlabelled.is_empty() {
                say_once(given, kept, &unlabelled);
                answer.kept = json!(UNLABELLED);
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// Reports which labels are not set, unless that was reported before an earlier start.
fn say_once(given: &TaskGiven, kept: &Value, unlabelled: &[String]) {
    if kept != UNLABELLED {
        let (now, text) = (given.clock.now(), unlabelled.join("; "));
        (given.emit)(events::hook_message(now, NAME, &text));
    }
}

/// What can be done on this host.
#[derive(Clone, Copy, Debug)]
struct Host {
    /// The agent is root.
    is_root: bool,
    /// Files have labels of SELinux.
    has_labels: bool,
}

impl Host {
    fn here() -> Self {
        Self {
            is_root: rustix::process::geteuid().is_root(),
            has_labels: labels::is_on(),
        }
    }
}

/// A volume as a task mounts it.
struct VolumeMountSpec<'a> {
    name: &'a str,
    mount: &'a VolumeMount,
    request: &'a VolumeRequest,
}

/// What the task mounts, and which labels of the job are not set.
fn mounted(given: &TaskGiven, host: Host) -> Result<(TaskAnswer, Vec<String>), HookFailure> {
    let (_, task) = given.task()?;
    let (mut answer, mut unlabelled) = (TaskAnswer::nothing(), Vec::new());
    if task.volume_mounts.is_empty() {
        return Ok((answer, unlabelled));
    }
    let gone = || HookFailure::fatal("the job has no such group");
    let group = given.alloc.group().ok_or_else(gone)?;
    let apart = isolates_files(&task.driver);
    let mounts = apart || task.driver == "raw_exec" && host.is_root;
    let env = given.env()?;
    let root = given.dir.paths(&given.name).root;
    for wanted in wanted(group, task)? {
        let held = match wanted.request.kind() {
            Some(VolumeType::Csi) => claimed(given, &wanted)?,
            Some(VolumeType::Host) | None => MountedVolume {
                path: offered(given, &wanted)?,
                ..MountedVolume::default()
            },
        };
        let is_device = held.is_device;
        if is_device && !apart && (wanted.request.read_only || wanted.mount.read_only) {
            let text = format!(
                "volume {:?} is a device, which driver {:?} cannot keep a task from writing to",
                wanted.name, task.driver
            );
            return Err(HookFailure::fatal(text));
        }
        let mut mount = mount(held, &wanted, &env).map_err(HookFailure::fatal)?;
        unlabelled.extend(not_labelled(
            &mount,
            (wanted.name, mounts && !is_device),
            host,
        ));
        let seen = match (mounts, apart) {
            (false, _) if mount.read_only => {
                let text = format!(
                    "volume {:?} cannot be mounted read-only by driver {:?} without root",
                    wanted.name, task.driver
                );
                return Err(HookFailure::fatal(text));
            }
            (false, _) => mount.host_path.clone(),
            (true, true) => Path::new("/").join(&mount.task_path),
            (true, false) => {
                // Without a root of its own, its directory is the root of what is mounted for it.
                let path = mount.task_path.strip_prefix(&root);
                let path = path.unwrap_or(&mount.task_path);
                mount.task_path = path.strip_prefix("/").unwrap_or(path).to_owned();
                root.join(&mount.task_path)
            }
        };
        let variable = format!("{VARIABLE}{}", clean(wanted.name));
        answer.env.insert(variable, seen.display().to_string());
        match (mounts, is_device && apart) {
            (true, true) => answer.devices.push(device(mount)),
            (true, false) => answer.mounts.push(mount),
            (false, _) => {}
        }
    }
    Ok((answer, unlabelled))
}

/// Why the label of a mount is not set, in words; `None` where it is, or none is requested.
fn not_labelled(mount: &Mount, (name, is_mounted): (&str, bool), host: Host) -> Option<String> {
    let label = &mount.selinux_label;
    let why = match (label.is_empty(), host.has_labels, is_mounted) {
        (true, ..) | (false, true, true) => return None,
        (false, false, _) => "this host has no SELinux",
        (false, true, false) => "no directory is mounted that could have it",
    };
    Some(format!(
        "SELinux label {label:?} of volume {name:?} is not set: {why}"
    ))
}

/// What a task mounts of volumes, in its order.
fn wanted<'a>(
    group: &'a TaskGroup,
    task: &'a Task,
) -> Result<Vec<VolumeMountSpec<'a>>, HookFailure> {
    let mut found = Vec::new();
    for mount in task.volume_mounts.iter() {
        let name = mount.volume.as_str();
        let request = group.volumes.get(name).ok_or_else(|| {
            HookFailure::fatal(format!("volume mount references undefined volume {name:?}"))
        })?;
        found.push(VolumeMountSpec {
            name,
            mount,
            request,
        });
    }
    Ok(found)
}

/// Where a volume lies that the node offers.
fn offered(given: &TaskGiven, wanted: &VolumeMountSpec<'_>) -> Result<PathBuf, HookFailure> {
    let request = wanted.request;
    let source = request.source_for(&given.alloc.name);
    let fatal = |text: String| Err(HookFailure::fatal(text));
    let Some(offered) = given.node.host_volumes.get(&*source) else {
        return fatal(format!("host volume {source:?} is not on this node"));
    };
    if offered.read_only && !request.read_only {
        return fatal(format!("host volume {source:?} is read-only on this node"));
    }
    Ok(PathBuf::from(&offered.path))
}

/// Whether all volumes of the host are there that the task mounts.
async fn are_there(given: &TaskGiven) -> Result<(), HookFailure> {
    let (_, task) = given.task()?;
    let Some(group) = given.alloc.group() else {
        return Ok(());
    };
    let wanted = wanted(group, task)?;
    let of_host = wanted
        .iter()
        .filter(|one| one.request.r#type != volume_type::CSI);
    let looks = of_host.map(|wanted| async {
        let path = offered(given, wanted)?;
        look(&path).await.map_err(|error| {
            let source = wanted.request.source_for(&given.alloc.name);
            let path = path.display();
            let message = format!("host volume {source:?} at {path} is not there: {error}");
            HookFailure {
                message,
                // Storage that is lost may come back.
                recoverable: error.kind() == ErrorKind::TimedOut,
            }
        })
    });
    try_join_all(looks).await.map(drop)
}

/// A volume that the allocation claimed.
fn claimed(given: &TaskGiven, wanted: &VolumeMountSpec<'_>) -> Result<MountedVolume, HookFailure> {
    let held = given
        .resources
        .with(|volumes: &Claimed| volumes.0.get(wanted.name).cloned());
    let missing = || HookFailure::from(format!("volume {:?} is not mounted", wanted.name));
    held.flatten().ok_or_else(missing)
}

/// A device instead of a mount.
fn device(mount: Mount) -> Device {
    Device {
        host_path: mount.host_path,
        task_path: mount.task_path,
        permissions: if mount.read_only { "r" } else { "rw" }.to_owned(),
        require_mount_point: mount.require_mount_point,
    }
}

fn mount(
    held: MountedVolume,
    wanted: &VolumeMountSpec<'_>,
    env: &TaskEnv,
) -> Result<Mount, String> {
    let VolumeMountSpec {
        name,
        mount,
        request,
    } = wanted;
    let destination = env.replace(&mount.destination);
    if destination.is_empty() {
        return Err(format!("volume {name:?} has no destination"));
    }
    let propagation = Propagation::named(&mount.propagation_mode);
    let label = mount.se_linux_label.as_str();
    if !matches!(label, "" | "z" | "Z") {
        return Err(format!("no SELinux label {label:?}"));
    }
    Ok(Mount {
        host_path: held.path,
        task_path: destination.into(),
        read_only: request.read_only || mount.read_only,
        require_mount_point: held.is_mount,
        propagation: propagation
            .ok_or_else(|| format!("no propagation mode {:?}", mount.propagation_mode))?,
        selinux_label: label.to_owned(),
    })
}
