//! What a task mounts of the volumes of its group.
//!
//! A driver with files of its own mounts them where the task wants them; `raw_exec` as root does so
//! below the task's directory.
//! Where nothing can be mounted, the task finds the directory of the host by its environment, and
//! what must not be written is refused.

use std::path::{Path, PathBuf};

use drover_events::model::{Task, TaskGroup, VolumeMount, VolumeRequest};
use futures_util::FutureExt;
use serde_json::Value;

use super::{HookFailure, Prestart, TaskAnswer, TaskGiven, TaskHook};
use crate::client::csi::claim::Volumes as Claimed;
use crate::client::drivers::{Device, Mount, Propagation, isolates_files};
use crate::client::env::{TaskEnv, clean};

/// What the variable begins with that says where a volume is.
const VARIABLE: &str = "NOMAD_VOLUME_";

/// Mounts the volumes of hosts, and those that the allocation claimed.
pub(super) struct Volumes;

impl TaskHook for Volumes {
    fn name(&self) -> &'static str {
        "volumes"
    }

    fn repeatable(&self) -> bool {
        true
    }

    // A volume of the node's may be another one when the task starts again: it is never done.
    fn prestart<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        let is_root = rustix::process::geteuid().is_root();
        std::future::ready(mounted(given, is_root)).boxed()
    }
}

/// A volume as a task mounts it.
struct Wanted<'a> {
    name: &'a str,
    mount: &'a VolumeMount,
    request: &'a VolumeRequest,
}

fn mounted(given: &TaskGiven, is_root: bool) -> Result<TaskAnswer, HookFailure> {
    let (_, task) = given.task()?;
    let mut answer = TaskAnswer::nothing();
    if task.volume_mounts.is_empty() {
        return Ok(answer);
    }
    let gone = || HookFailure::fatal("the job has no such group");
    let group = given.alloc.group().ok_or_else(gone)?;
    let mounts = match task.driver.as_str() {
        "raw_exec" => is_root,
        driver => isolates_files(driver),
    };
    let env = given.env()?;
    let root = given.dir.paths(&given.name).root;
    for wanted in wanted(group, task)? {
        let (host_path, is_device) = match wanted.request.r#type.as_str() {
            "csi" => claimed(given, &wanted)?,
            _ => (offered(given, &wanted)?, false),
        };
        let mut mount = mount(host_path, &wanted, &env).map_err(HookFailure::fatal)?;
        let seen = match (mounts, isolates_files(&task.driver)) {
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
        match (mounts, is_device && isolates_files(&task.driver)) {
            (true, true) => answer.devices.push(device(mount)),
            (true, false) => answer.mounts.push(mount),
            (false, _) => {}
        }
    }
    Ok(answer)
}

/// What a task mounts of volumes, in its order.
fn wanted<'a>(group: &'a TaskGroup, task: &'a Task) -> Result<Vec<Wanted<'a>>, HookFailure> {
    let mut found = Vec::new();
    for mount in task.volume_mounts.iter() {
        let name = mount.volume.as_str();
        let request = group.volumes.get(name).ok_or_else(|| {
            HookFailure::fatal(format!("volume mount references undefined volume {name:?}"))
        })?;
        found.push(Wanted {
            name,
            mount,
            request,
        });
    }
    Ok(found)
}

/// Where a volume lies that the node offers.
fn offered(given: &TaskGiven, wanted: &Wanted<'_>) -> Result<PathBuf, HookFailure> {
    let request = wanted.request;
    let source = request.source_for(&given.alloc.name);
    let fatal = |text: String| Err(HookFailure::fatal(text));
    let Some(offered) = given.node.host_volumes.get(&*source) else {
        return fatal(format!("host volume {source:?} is not on this node"));
    };
    if offered.read_only && !request.read_only {
        return fatal(format!("host volume {source:?} is read-only on this node"));
    }
    let host_path = PathBuf::from(&offered.path);
    if let Err(error) = host_path.metadata() {
        let path = &offered.path;
        return fatal(format!(
            "host volume {source:?} at {path} is not there: {error}"
        ));
    }
    Ok(host_path)
}

/// Where a volume lies that the allocation claimed, and whether it is a device.
fn claimed(given: &TaskGiven, wanted: &Wanted<'_>) -> Result<(PathBuf, bool), HookFailure> {
    let held = given.resources.with(|volumes: &Claimed| {
        let held = volumes.0.get(wanted.name);
        held.map(|held| (held.path.clone(), held.is_device))
    });
    let missing = || HookFailure::from(format!("volume {:?} is not mounted", wanted.name));
    held.flatten().ok_or_else(missing)
}

/// A device instead of a mount.
fn device(mount: Mount) -> Device {
    Device {
        host_path: mount.host_path,
        task_path: mount.task_path,
        permissions: if mount.read_only { "r" } else { "rw" }.to_owned(),
    }
}

fn mount(host_path: PathBuf, wanted: &Wanted<'_>, env: &TaskEnv) -> Result<Mount, String> {
    let Wanted {
        name,
        mount,
        request,
    } = wanted;
    let destination = env.replace(&mount.destination);
    if destination.is_empty() {
        return Err(format!("volume {name:?} has no destination"));
    }
    let propagation = Propagation::named(&mount.propagation_mode);
    Ok(Mount {
        host_path,
        task_path: destination.into(),
        read_only: request.read_only || mount.read_only,
        propagation: propagation
            .ok_or_else(|| format!("no propagation mode {:?}", mount.propagation_mode))?,
        selinux_label: mount.se_linux_label.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use drover_events::gojson::from_value;
    use drover_events::model::{Allocation, ClientHostVolumeConfig, Node};
    use serde_json::json;

    use super::*;
    use crate::client::alloc::dir::AllocDir;
    use crate::client::clock::Clock;
    use crate::client::config::Settings;
    use crate::client::drivers::Registry;

    fn given(dir: &Path, driver: &str, volume: &Value, mount: &Value) -> TaskGiven {
        let alloc: Allocation = from_value(json!({"ID": "a1", "Name": "j.g[1]", "TaskGroup": "g",
            "Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Volumes": {"my-data": volume},
                "Tasks": [{"Name": "t", "Driver": driver, "VolumeMounts": [mount]}]}]}}))
        .expect("an allocation");
        let mut node = Node::default();
        let path = dir.to_str().expect("a path").to_owned();
        for (name, path, read_only) in [
            ("data", path.clone(), false),
            ("data[1]", path.clone(), false),
            ("certs", path.clone(), true),
            ("lost", format!("{path}/lost"), false),
        ] {
            let offered = ClientHostVolumeConfig {
                name: name.to_owned(),
                path,
                read_only,
                ..ClientHostVolumeConfig::default()
            };
            node.host_volumes.insert(name, offered);
        }
        TaskGiven {
            alloc: Arc::new(alloc),
            name: "t".to_owned(),
            dir: AllocDir::new(Path::new("/allocs"), "a1"),
            drivers: Registry::default(),
            node: Arc::new(node),
            settings: Arc::new(Settings::default()),
            resources: Arc::default(),
            clock: Clock::System,
            emit: Arc::new(|_| {}),
            hook_env: BTreeMap::new(),
        }
    }

    fn host(source: &str, read_only: bool, per_alloc: bool) -> Value {
        json!({"Type": "host", "Source": source, "ReadOnly": read_only, "PerAlloc": per_alloc})
    }

    fn at(destination: &str) -> Value {
        json!({"Volume": "my-data", "Destination": destination})
    }

    #[test]
    fn a_task_gets_its_volume_where_it_wants_it_and_is_told_where_that_is() {
        let tmp = tempfile::tempdir().unwrap();
        let host_path = tmp.path().to_owned();
        let writable = host("data", false, false);
        for (driver, is_root, destination, seen) in [
            ("exec", true, "/srv/data", Some("/srv/data")),
            ("exec", true, "local/data", Some("/local/data")),
            ("raw_exec", true, "/srv/data", Some("/allocs/a1/t/srv/data")),
            (
                "raw_exec",
                true,
                "${NOMAD_TASK_DIR}/data",
                Some("/allocs/a1/t/local/data"),
            ),
            (
                "raw_exec",
                true,
                "local/data",
                Some("/allocs/a1/t/local/data"),
            ),
            (
                "raw_exec",
                true,
                "${NOMAD_ALLOC_INDEX}",
                Some("/allocs/a1/t/1"),
            ),
            ("raw_exec", false, "/srv/data", None),
            ("mock_driver", true, "/srv/data", None),
        ] {
            let given = given(&host_path, driver, &writable, &at(destination));
            let answer = mounted(&given, is_root).expect("mounted");
            let variable = answer.env["NOMAD_VOLUME_my_data"].clone();
            assert!(!answer.done);
            match seen {
                Some(seen) => {
                    assert_eq!(variable, seen, "{driver} {destination}");
                    assert_eq!(answer.mounts.len(), 1);
                    assert_eq!(answer.mounts[0].host_path, host_path);
                    assert!(!answer.mounts[0].read_only);
                }
                None => {
                    assert_eq!(Path::new(&variable), host_path, "{driver}");
                    assert!(answer.mounts.is_empty());
                }
            }
        }
    }

    #[test]
    fn hv_03_the_volume_is_that_of_the_index_and_one_that_is_not_there_is_told() {
        let tmp = tempfile::tempdir().unwrap();
        let answer = |volume: Value, mount: &Value| {
            let given = given(tmp.path(), "raw_exec", &volume, mount);
            mounted(&given, true).map_err(|failure| {
                assert!(!failure.recoverable);
                failure.message
            })
        };
        assert!(answer(host("data", false, true), &at("/d")).is_ok());
        let lost = format!("{}/lost", tmp.path().display());
        let lost = format!("host volume \"lost\" at {lost} is not there: ");
        for (volume, mount, text) in [
            (
                host("certs", true, true),
                at("/d"),
                "host volume \"certs[1]\" is not on this node",
            ),
            (
                host("certs", false, false),
                at("/d"),
                "host volume \"certs\" is read-only on this node",
            ),
            (host("lost", false, false), at("/d"), &lost),
            (
                host("data", false, false),
                at(""),
                "volume \"my-data\" has no destination",
            ),
            (
                host("data", false, false),
                json!({"Volume": "other"}),
                "volume mount references undefined volume \"other\"",
            ),
        ] {
            let why = answer(volume, &mount).expect_err("refused");
            assert!(why.starts_with(text), "{why}");
        }
    }

    #[test]
    fn what_must_not_be_written_is_mounted_so_or_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let mut mount = at("/d");
        for (volume, of_mount, read_only) in [
            (host("data", false, false), false, false),
            (host("data", false, false), true, true),
            (host("data", true, false), false, true),
            (host("certs", true, false), false, true),
        ] {
            mount["ReadOnly"] = of_mount.into();
            let given = given(tmp.path(), "raw_exec", &volume, &mount);
            let answer = mounted(&given, true).expect("mounted");
            assert_eq!(answer.mounts[0].read_only, read_only, "{volume}");
            let without = mounted(&given, false);
            assert_eq!(without.is_err(), read_only, "{without:?}");
        }
    }
}
