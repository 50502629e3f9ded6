//! Hooks for tests: they write down every call, and a test holds them up or kills their agent.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::alloc::{AllocAnswer, AllocGiven, AllocHook, Hooked};
use crate::alloc::runner::RunnerFactory;
use crate::drivers::{Device, ExitResult, Mount};
use crate::hooks::task;
use crate::hooks::task::{Prestart, RunningHooks, TaskAnswer, TaskGiven, TaskHook};

/// What the hooks of the allocation leave for those of its tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Board(pub BTreeMap<String, String>);

/// What is to happen, and what did, in a directory that outlives an agent.
#[derive(Clone)]
pub(crate) struct Script(pub PathBuf);

impl Script {
    /// Two hooks more of the allocation, `A1` and `A2`, and two of each task, `T1` and `T2`.
    pub(crate) fn install(dir: &Path, factory: &mut RunnerFactory) -> Self {
        let script = Self(dir.to_owned());
        for name in ["A1", "A2"] {
            let script = script.clone();
            factory.alloc_hooks.0.push(Arc::new(move |_, _| {
                let script = script.clone();
                Some(Box::new(Recorded { name, script }))
            }));
        }
        for name in ["T1", "T2"] {
            let script = script.clone();
            factory.task_hooks.0.push(Arc::new(move |_, _| {
                let script = script.clone();
                Some(Box::new(Recorded { name, script }))
            }));
        }
        script
    }

    /// A call is not over before it is let go.
    pub(crate) fn hold(&self, call: &str) {
        fs::write(self.0.join(format!("hold.{call}")), b"").unwrap();
    }

    pub(crate) fn let_go(&self, call: &str) {
        fs::remove_file(self.0.join(format!("hold.{call}"))).unwrap();
    }

    /// The agent that comes to this call is killed before it begins.
    pub(crate) fn die_at(&self, call: &str) {
        fs::write(self.0.join("die"), call).unwrap();
    }

    /// The calls that began, and those that were dropped, in their order.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn has(&self, call: &str) -> bool {
        self.calls().iter().any(|one| one == call)
    }

    fn note(&self, line: &str) {
        let path = self.0.join("calls");
        let mut file = OpenOptions::new().create(true).append(true).open(path);
        // In one piece: hooks that run at once do not write into one another's lines.
        let line = format!("{line}\n");
        file.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    async fn call(&self, hook: &str, call: &str) {
        let label = format!("{hook}.{call}");
        let die = self.0.join("die");
        if fs::read_to_string(&die).is_ok_and(|wanted| wanted == label) {
            fs::remove_file(&die).unwrap();
            kill(nix::unistd::getpid(), Signal::SIGKILL).unwrap();
            std::future::pending().await
        }
        self.note(&label);
        let mut over = Over(self, format!("{label} dropped"), false);
        let hold = self.0.join(format!("hold.{label}"));
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        while hold.exists() {
            looks.tick().await;
        }
        over.2 = true;
    }
}

/// Notes a call that is dropped before its end.
struct Over<'a>(&'a Script, String, bool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if !self.2 {
            self.0.note(&self.1);
        }
    }
}

struct Recorded {
    name: &'static str,
    script: Script,
}

impl AllocHook for Recorded {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prerun<'a>(&'a self, given: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            self.script.call(self.name, "prerun").await;
            let put = |board: &mut Board| board.0.insert(self.name.into(), "made".into());
            given.resources.change(put);
            Ok(AllocAnswer::keeping(json!({"by": self.name})))
        }
        .boxed()
    }

    fn restore<'a>(&'a self, given: &'a AllocGiven, kept: &'a Value) -> Hooked<'a, ()> {
        async move {
            self.script.call(self.name, "restore").await;
            let by = kept["by"].as_str().unwrap_or("nobody").to_owned();
            let put = |board: &mut Board| board.0.insert(by, "made".into());
            given.resources.change(put);
            Ok(())
        }
        .boxed()
    }

    fn task_restarted<'a>(&'a self, _: &'a AllocGiven, task: &'a str) -> Hooked<'a, ()> {
        async move {
            self.script
                .call(self.name, &format!("restarted-{task}"))
                .await;
            Ok(())
        }
        .boxed()
    }

    fn update<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, ()> {
        async move {
            self.script.call(self.name, "update").await;
            Ok(())
        }
        .boxed()
    }

    fn pre_kill<'a>(&'a self, _: &'a AllocGiven) -> Hooked<'a, ()> {
        async move {
            self.script.call(self.name, "pre_kill").await;
            Ok(())
        }
        .boxed()
    }

    fn postrun<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            self.script.call(self.name, "postrun").await;
            Ok(AllocAnswer::done())
        }
        .boxed()
    }

    fn destroy<'a>(&'a self, _: &'a AllocGiven) -> Hooked<'a, ()> {
        async move {
            self.script.call(self.name, "destroy").await;
            Ok(())
        }
        .boxed()
    }
}

impl TaskHook for Recorded {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prestart<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        async move {
            self.script.call(self.name, "prestart").await;
            let all = |board: &Board| board.0.keys().cloned().collect::<Vec<_>>().join("+");
            let made = given.resources.with(all).unwrap_or_default();
            let seen = given.env()?.replace("${T1}");
            Ok(TaskAnswer {
                env: [(self.name.to_owned(), format!("{made}{}", seen.len()))].into(),
                mounts: vec![Mount {
                    // It is there: raw_exec mounts it where the tests are root.
                    host_path: self.script.0.clone(),
                    task_path: self.name.into(),
                    ..Mount::default()
                }],
                devices: vec![Device {
                    host_path: "/dev/null".into(),
                    task_path: self.name.into(),
                    permissions: "rw".into(),
                    ..Device::default()
                }],
                ..TaskAnswer::done()
            })
        }
        .boxed()
    }

    fn poststart<'a>(
        &'a self,
        _: &'a TaskGiven,
        _: &'a Value,
        running: &'a RunningHooks,
    ) -> task::Hooked<'a> {
        async move {
            let found = if running.recovered {
                "refound"
            } else {
                "poststart"
            };
            self.script.call(self.name, found).await;
            fs::write(self.script.0.join(format!("up.{}", self.name)), b"").unwrap();
            Ok(())
        }
        .boxed()
    }

    fn update<'a>(&'a self, _: &'a TaskGiven, _: &'a Value) -> task::Hooked<'a> {
        async move {
            self.script.call(self.name, "update").await;
            Ok(())
        }
        .boxed()
    }

    fn exited<'a>(&'a self, _: &'a TaskGiven, _: &'a Value, _: &'a ExitResult) -> task::Hooked<'a> {
        async move {
            self.script.call(self.name, "exited").await;
            Ok(())
        }
        .boxed()
    }

    fn stop<'a>(&'a self, _: &'a TaskGiven, _: &'a Value) -> task::Hooked<'a> {
        async move {
            self.script.call(self.name, "stop").await;
            Ok(())
        }
        .boxed()
    }
}
