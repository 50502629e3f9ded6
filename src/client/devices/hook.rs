//! Gives devices to a task before it starts.
//!
//! A task with files of its own finds mounts and device nodes where the plugin wants them; any
//! other sees those of the node, and gets the plugin's variables.

use std::sync::Arc;

use drover_events::model::AllocatedDeviceResource;
use drover_plugins::proto::device::ContainerReservation;
use futures_util::FutureExt;
use serde_json::Value;

use super::Devices;
use crate::drivers::{Device, Mount, isolates_files};
use crate::hooks::task::{Prestart, TaskAnswer, TaskGiven, TaskHook};

/// Reserves what was given to the task.
pub(super) struct Reserve(pub(super) Arc<Devices>);

impl TaskHook for Reserve {
    fn name(&self) -> &'static str {
        "devices"
    }

    fn prestart<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        async move {
            let (_, task) = given.task()?;
            let apart = isolates_files(&task.driver);
            let mut answer = TaskAnswer::done();
            for wanted in given_to(given) {
                let reserved = self.0.reserve(wanted).await?;
                add(&mut answer, reserved, apart);
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// The devices that a task was given.
fn given_to(given: &TaskGiven) -> impl Iterator<Item = &AllocatedDeviceResource> {
    let allocated = given.alloc.allocated_resources.as_ref();
    let task = allocated.and_then(|allocated| allocated.tasks.get(&given.name));
    task.into_iter().flat_map(|task| task.devices.iter())
}

fn add(answer: &mut TaskAnswer, reserved: ContainerReservation, apart: bool) {
    answer.env.extend(reserved.envs);
    if !apart {
        return;
    }
    answer
        .mounts
        .extend(reserved.mounts.into_iter().map(|mount| Mount {
            host_path: mount.host_path.into(),
            task_path: mount.task_path.into(),
            read_only: mount.read_only,
            ..Mount::default()
        }));
    answer
        .devices
        .extend(reserved.devices.into_iter().map(|device| Device {
            host_path: device.host_path.into(),
            task_path: device.task_path.into(),
            permissions: device.permissions,
            require_mount_point: false,
        }));
}
