//! The hooks that run before a task starts, in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::time::Instant;

use drover_events::model::{Allocation, Job, Task};

use super::machine::{HookError, Prepared};
use crate::client::alloc::dir::AllocDir;
use crate::client::drivers::Registry;
use crate::client::hook_metrics::Hooks;

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
    /// `client.options` of this client.
    pub options: &'a BTreeMap<String, String>,
    /// Whether it is measured how long they take.
    pub measured: bool,
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
        let began = Instant::now();
        let answer = hook(input);
        if input.measured {
            Hooks::TaskPrestart.ended(name, began, answer.is_ok());
        }
        match answer {
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

/// Users that tasks may not run as, and the drivers for which that counts, where `user.denylist`
/// and `user.checked_drivers` of `client.options` say nothing else.
const USER_DENYLIST: &str = "root,Administrator";
const USER_CHECKED: &str = "exec,qemu,java";

/// Why the task may not run as its user here.
fn denied_user(input: &HookInput<'_>) -> Option<String> {
    let task = input.task;
    let lists = |key: &str, default: &str, name: &str| {
        let list = input.options.get(key).map_or(default, String::as_str);
        list.split(',').any(|one| one.trim() == name)
    };
    let denied = lists("user.checked_drivers", USER_CHECKED, &task.driver)
        && lists("user.denylist", USER_DENYLIST, &task.user);
    let denied = denied && !task.user.is_empty();
    denied.then(|| format!("running as user {:?} is disallowed", task.user))
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
    problems.extend(denied_user(input));
    if problems.is_empty() {
        Ok(Answer::Again)
    } else {
        Err(problems.join("; "))
    }
}

fn task_dir(input: &HookInput<'_>) -> Result<Answer, String> {
    input
        .dir
        .build_task(&input.task.name, &input.task.user)
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
    let (task, path) = (input.task, Path::new(&config.file));
    let inside = path
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !inside {
        return Err(format!(
            "file {:?} is outside of the task's directory",
            config.file
        ));
    }
    input
        .dir
        .write_local(&task.name, &task.user, path, &input.job.payload)
        .map_err(|e| e.to_string())?;
    Ok(Answer::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cl_18_what_a_hook_is_given_cannot_be_changed_and_what_it_answers_is_another_type() {
        // The input is borrowed and shared, the answer is new: where this no longer compiles, a
        // hook could set its state on the request by mistake.
        let run: fn(&HookInput<'_>, &BTreeSet<String>) -> Result<Prepared, HookError> = prestart;
        fn shared<T: Copy>() {}
        shared::<HookInput<'static>>();

        let tmp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(tmp.path(), "a1");
        dir.build().unwrap();
        let (alloc, job) = (Allocation::default(), Job::default());
        let drivers = Registry::new(
            [std::sync::Arc::new(crate::client::drivers::mock::Mock)
                as std::sync::Arc<dyn crate::client::drivers::Driver>],
            &BTreeMap::new(),
        );
        let task = Task {
            name: "web".into(),
            driver: "mock_driver".into(),
            ..Task::default()
        };
        let input = HookInput {
            alloc: &alloc,
            job: &job,
            task: &task,
            dir: &dir,
            drivers: &drivers,
            options: &BTreeMap::new(),
            measured: false,
        };
        let before = BTreeSet::from([DISPATCH_PAYLOAD.to_owned()]);
        let answer = run(&input, &before).unwrap();
        // Only what is new is answered; what was given is as it was.
        assert_eq!(answer.done, BTreeSet::from([TASK_DIR.to_owned()]));
        assert_eq!(before.len(), 1);
        let all = before.union(&answer.done).cloned().collect();
        assert_eq!(run(&input, &all).unwrap(), Prepared::default());
    }

    #[test]
    fn users_that_tasks_may_not_run_as_are_refused_for_the_drivers_that_are_named() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(tmp.path(), "a1");
        let (alloc, job) = (Allocation::default(), Job::default());
        let drivers = Registry::default();
        let denied = |driver: &str, user: &str, options: &[(&str, &str)]| {
            let task = Task {
                driver: driver.into(),
                user: user.into(),
                ..Task::default()
            };
            let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            denied_user(&HookInput {
                alloc: &alloc,
                job: &job,
                task: &task,
                dir: &dir,
                drivers: &drivers,
                options: &options.collect(),
                measured: false,
            })
        };
        assert!(denied("exec", "root", &[]).is_some_and(|text| text.contains("root")));
        assert_eq!(denied("raw_exec", "root", &[]), None);
        assert_eq!(denied("exec", "nobody", &[]), None);
        assert_eq!(denied("exec", "", &[("user.denylist", "")]), None);
        let options = [
            ("user.checked_drivers", "raw_exec"),
            ("user.denylist", "bin, nobody"),
        ];
        assert!(denied("raw_exec", "nobody", &options).is_some());
        assert_eq!(denied("exec", "nobody", &options), None);
    }

    #[test]
    fn a_task_is_refused_before_anything_is_made_and_all_reasons_are_told() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(tmp.path(), "a1");
        let (alloc, job) = (Allocation::default(), Job::default());
        let mock = std::sync::Arc::new(crate::client::drivers::mock::Mock);
        let drivers = Registry::new([mock as _], &BTreeMap::new());
        let checked = |driver: &str, config: &[(&str, &str)], user: &str| {
            let config = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).into()));
            let task = Task {
                driver: driver.into(),
                user: user.into(),
                config: config.collect::<BTreeMap<_, _>>().into(),
                ..Task::default()
            };
            let options = [("user.checked_drivers", "mock_driver,other")];
            let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            let input = HookInput {
                alloc: &alloc,
                job: &job,
                task: &task,
                dir: &dir,
                drivers: &drivers,
                options: &options.collect(),
                measured: false,
            };
            validate(&input).err().unwrap_or_default()
        };
        let no_driver = "driver \"other\" is not available on this client";
        let no_user = "running as user \"root\" is disallowed";
        for (driver, config, user, why) in [
            ("mock_driver", &[][..], "", String::new()),
            ("mock_driver", &[], "nobody", String::new()),
            ("mock_driver", &[], "root", no_user.to_owned()),
            ("other", &[], "root", format!("{no_driver}; {no_user}")),
            (
                "mock_driver",
                &[("colour", "red")],
                "root",
                format!("colour: unknown key; {no_user}"),
            ),
        ] {
            assert_eq!(checked(driver, config, user), why);
        }
    }
}
