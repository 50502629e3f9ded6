//! The hooks that run before a task starts, in their order.

use std::collections::BTreeSet;
use std::fs;

use drover_events::model::{Allocation, Job, Task};

use super::machine::{HookError, Prepared};
use crate::client::alloc::dir::AllocDir;
use crate::client::drivers::Registry;

/// The task can be run here at all.
pub const VALIDATE: &str = "validate";
/// Its directories.
pub const TASK_DIR: &str = "task_dir";
/// What a dispatch brought.
pub const DISPATCH_PAYLOAD: &str = "dispatch_payload";

/// What a hook gets (CL-18: nothing of it can be changed).
#[derive(Clone, Copy)]
pub struct HookInput<'a> {
    /// The allocation.
    pub alloc: &'a Allocation,
    /// Its job.
    pub job: &'a Job,
    /// The task.
    pub task: &'a Task,
    /// The allocation's directories.
    pub dir: &'a AllocDir,
    /// The drivers of this client.
    pub drivers: &'a Registry,
}

/// Whether a hook has to run again when the task is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Every time.
    Again,
    /// Never again.
    Done,
}

type Hook = fn(&HookInput<'_>) -> Result<Answer, String>;

/// The order is the meaning: each may rely on those before it.
const HOOKS: &[(&str, Hook)] = &[
    (VALIDATE, validate),
    (TASK_DIR, task_dir),
    (DISPATCH_PAYLOAD, dispatch_payload),
];

/// Runs all hooks that are not done.
///
/// # Errors
/// The first that failed.
pub fn prestart(input: &HookInput<'_>, done: &BTreeSet<String>) -> Result<Prepared, HookError> {
    let mut out = Prepared::default();
    for (name, hook) in HOOKS {
        if done.contains(*name) {
            continue;
        }
        match hook(input) {
            Ok(Answer::Done) => {
                out.done.insert((*name).to_owned());
            }
            Ok(Answer::Again) => {}
            Err(message) => {
                let recoverable = *name != VALIDATE;
                return Err(HookError {
                    hook: (*name).to_owned(),
                    message,
                    recoverable,
                });
            }
        }
    }
    Ok(out)
}

/// Blocks of a job that this client has no hook for: refused in words, never left out in silence.
fn unsupported(input: &HookInput<'_>) -> Vec<&'static str> {
    let task = input.task;
    [
        (!task.templates.is_empty(), "template"),
        (!task.artifacts.is_empty(), "artifact"),
        (task.vault.is_some(), "vault"),
        (!task.secrets.is_empty(), "secret"),
        (task.csi_plugin_config.is_some(), "csi_plugin"),
        (!task.volume_mounts.is_empty(), "volume_mount"),
    ]
    .into_iter()
    .filter_map(|(used, name)| used.then_some(name))
    .collect()
}

fn validate(input: &HookInput<'_>) -> Result<Answer, String> {
    let task = input.task;
    let mut problems = Vec::new();
    match input.drivers.get(&task.driver) {
        None => problems.push(format!(
            "driver {:?} is not available on this client",
            task.driver
        )),
        Some(driver) => problems.extend(driver.validate(&task.config).err()),
    }
    problems.extend(
        unsupported(input)
            .iter()
            .map(|b| format!("this client does not support {b} blocks yet")),
    );
    if problems.is_empty() {
        Ok(Answer::Again)
    } else {
        Err(problems.join("; "))
    }
}

fn task_dir(input: &HookInput<'_>) -> Result<Answer, String> {
    input
        .dir
        .build_task(&input.task.name)
        .map_err(|e| e.to_string())?;
    Ok(Answer::Done)
}

fn dispatch_payload(input: &HookInput<'_>) -> Result<Answer, String> {
    let Some(config) = &input.task.dispatch_payload else {
        return Ok(Answer::Done);
    };
    if config.file.is_empty() || input.job.payload.is_empty() {
        return Ok(Answer::Done);
    }
    let local = input.dir.paths(&input.task.name).local;
    let path = local.join(&config.file);
    let inside = path
        .components()
        .all(|c| !matches!(c, std::path::Component::ParentDir));
    if !inside || !path.starts_with(&local) {
        return Err(format!(
            "file {:?} is outside of the task's directory",
            config.file
        ));
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|e| e.to_string())?;
    }
    fs::write(path, &*input.job.payload).map_err(|e| e.to_string())?;
    Ok(Answer::Done)
}
