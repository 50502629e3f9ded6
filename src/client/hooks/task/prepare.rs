//! The hooks that every task has before its start: it can run here, its directories are made, and
//! it finds what a dispatch brought.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use drover_events::model::Task;
use futures_util::FutureExt;
use serde_json::Value;

use super::{HookFailure, Prestart, TaskAnswer, TaskGiven, TaskHook};
use crate::drivers::runs_as;
use crate::task_events as events;
use drover_config::option;

/// The task can be run here at all.
pub const VALIDATE: &str = "validate";

/// Refuses what cannot run here.
pub(super) struct Validate;

impl TaskHook for Validate {
    fn name(&self) -> &'static str {
        VALIDATE
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn prestart<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        let checked = validate(given).map(|()| TaskAnswer::nothing());
        std::future::ready(checked).boxed()
    }
}

/// Makes the task's directories.
pub(super) struct TaskDir;

impl TaskHook for TaskDir {
    fn name(&self) -> &'static str {
        "task_dir"
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn prestart<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        async move {
            (given.emit)(events::setup(given.clock.now()));
            let (dir, name) = (given.dir.clone(), given.name.clone());
            let task = given.task()?.1;
            let user = runs_as(&task.driver, &task.user).to_owned();
            offload(move || dir.build_task(&name, &user)).await?;
            Ok(TaskAnswer::done())
        }
        .boxed()
    }
}

/// Writes what a dispatch brought where the task reads it.
pub(super) struct DispatchPayload;

impl TaskHook for DispatchPayload {
    fn name(&self) -> &'static str {
        "dispatch_payload"
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn prestart<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        async move {
            let (job, task) = given.task()?;
            let file = task.dispatch_payload.as_ref().map(|d| d.file.clone());
            let file = file.filter(|file| !file.is_empty() && !job.payload.is_empty());
            let Some(file) = file else {
                return Ok(TaskAnswer::nothing());
            };
            let inside = Path::new(&file)
                .components()
                .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
            if !inside {
                let text = format!("file {file:?} is outside of the task's directory");
                return Err(text.into());
            }
            let (dir, alloc) = (given.dir.clone(), given.alloc.clone());
            let user = runs_as(&task.driver, &task.user).to_owned();
            let name = given.name.clone();
            offload(move || {
                let payload = alloc.job.as_ref().map(|job| &job.payload[..]);
                dir.write_local(&name, &user, Path::new(&file), payload.unwrap_or_default())
            })
            .await?;
            Ok(TaskAnswer::done())
        }
        .boxed()
    }
}

/// Runs what may wait for the disk.
async fn offload(
    work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(std::io::Error::other(e)))
        .map_err(|e| e.to_string())
}

/// Blocks of a job that this client has no hook for: refused in words, never left out in silence.
fn unsupported(task: &Task) -> Vec<&'static str> {
    [
        (!task.templates.is_empty(), "template"),
        (!task.artifacts.is_empty(), "artifact"),
        (task.vault.is_some(), "vault"),
        (!task.secrets.is_empty(), "secret"),
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
fn denied_user(task: &Task, options: &BTreeMap<String, String>) -> Option<String> {
    let lists = |key: &str, default: &str, name: &str| {
        let list = options.get(key).map_or(default, String::as_str);
        list.split(',').any(|one| one.trim() == name)
    };
    let denied = lists(option::USER_CHECKED_DRIVERS, USER_CHECKED, &task.driver)
        && lists(option::USER_DENYLIST, USER_DENYLIST, &task.user);
    let denied = denied && !task.user.is_empty();
    denied.then(|| format!("running as user {:?} is disallowed", task.user))
}

fn validate(given: &TaskGiven) -> Result<(), HookFailure> {
    let (_, task) = given.task()?;
    let mut problems = Vec::new();
    match given.drivers.get(&task.driver) {
        None => problems.push(format!(
            "driver {:?} is not available on this client",
            task.driver
        )),
        Some(driver) => problems.extend(driver.validate(&task.config).err()),
    }
    problems.extend(
        unsupported(task)
            .iter()
            .map(|b| format!("this client does not support {b} blocks yet")),
    );
    problems.extend(denied_user(task, &given.settings.client.options));
    if problems.is_empty() {
        Ok(())
    } else {
        Err(HookFailure::fatal(problems.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use drover_events::model::{Allocation, Job, Node, TaskGroup};
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::alloc_dir::AllocDir;
    use crate::clock::Clock;
    use crate::config::ClientSettings;
    use crate::drivers::mock::Mock;
    use crate::drivers::{Driver, Registry};
    use crate::hooks::notes::Keep;
    use crate::hooks::task::chain;
    use crate::hooks::task::list::TaskHooks;
    use crate::hooks::task::{HookError, PreparedTask, TaskHookReport};

    fn given(dir: &Path, task: Task, settings: ClientSettings) -> TaskGiven {
        let name = task.name.clone();
        let group = TaskGroup {
            name: "g".into(),
            tasks: vec![task].into(),
            ..TaskGroup::default()
        };
        let job = Job {
            task_groups: vec![group].into(),
            ..Job::default()
        };
        let alloc = Allocation {
            task_group: "g".into(),
            job: Some(Arc::new(job)),
            ..Allocation::default()
        };
        let mock: Arc<dyn Driver> = Arc::new(Mock);
        TaskGiven {
            alloc: Arc::new(alloc),
            name,
            dir: AllocDir::new(dir, "a1"),
            drivers: Registry::new([mock], &BTreeMap::new()),
            node: Arc::new(Node::default()),
            settings: Arc::new(settings),
            resources: Arc::default(),
            clock: Clock::System,
            emit: Arc::new(|_| {}),
            hook_env: BTreeMap::new(),
        }
    }

    /// Nothing of these hooks needs to be written on its own.
    struct Nowhere;

    impl Keep<TaskHookReport> for Nowhere {
        fn write(&self, _: TaskHookReport) -> BoxFuture<'static, Result<(), String>> {
            panic!("neither needs to be written on its own")
        }

        fn report(&self, _: TaskHookReport) {
            panic!("none is left behind")
        }
    }

    #[tokio::test]
    async fn cl_18_what_a_hook_is_given_cannot_be_changed_and_what_it_answers_is_another_type() {
        // What it is given is shared and what it answers is new: where this no longer compiles, a
        // hook could set its state on the request by mistake.
        let _: for<'a> fn(&'a TaskDir, &'a TaskGiven, &'a Value) -> Prestart<'a> =
            <TaskDir as TaskHook>::prestart;

        let tmp = tempfile::tempdir().unwrap();
        let task = Task {
            name: "web".into(),
            driver: "mock_driver".into(),
            ..Task::default()
        };
        let given = given(tmp.path(), task, ClientSettings::default());
        given.dir.build().unwrap();
        let hooks: TaskHooks = [Box::new(Validate) as Box<dyn TaskHook>, Box::new(TaskDir)]
            .into_iter()
            .collect();
        let before = BTreeSet::from(["another".to_owned()]);
        let run = |done| chain::prestart(&hooks, given.clone(), (&[], done), &Nowhere);
        let answer: Result<PreparedTask, HookError> = run(&before).await;
        // Only what is new is answered; what was given is as it was.
        let answer = answer.unwrap();
        let done: BTreeSet<_> = answer.notes.iter().map(|note| note.hook.clone()).collect();
        assert_eq!(done, BTreeSet::from(["task_dir".to_owned()]));
        assert!(answer.notes[0].answer.done && !answer.notes[0].answer.leaves_something());
        assert_eq!(before.len(), 1);
        assert_eq!(run(&done).await.unwrap(), PreparedTask::default());
    }

    #[test]
    fn users_that_tasks_may_not_run_as_are_refused_for_the_drivers_that_are_named() {
        let denied = |driver: &str, user: &str, options: &[(&str, &str)]| {
            let task = Task {
                driver: driver.into(),
                user: user.into(),
                ..Task::default()
            };
            let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            denied_user(&task, &options.collect())
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
        let checked = |driver: &str, config: &[(&str, &str)], user: &str| {
            let config = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).into()));
            let task = Task {
                driver: driver.into(),
                user: user.into(),
                config: config.collect::<BTreeMap<_, _>>().into(),
                ..Task::default()
            };
            let checked = ("user.checked_drivers", "mock_driver,other");
            let mut settings = ClientSettings::default();
            let options = &mut settings.client.options;
            options.insert(checked.0.into(), checked.1.into());
            let refused = validate(&given(tmp.path(), task, settings)).err();
            assert!(refused.as_ref().is_none_or(|why| !why.recoverable));
            refused.map(|why| why.message).unwrap_or_default()
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
