//! `raw_exec`: a process of the host, without isolation, under an executor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{DriverInfo, TaskResourceUsage};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use super::config::Reader;
use super::{
    Driver, ExitResult, Handle, Recovered, RunningTask, StartError, TaskConfig, TaskError, signals,
};
use crate::client::executor::files::{ExecSpec, ExitRecord, RunDir};
use crate::client::executor::launch::{Executor, Found, LaunchError, Launcher};
use crate::client::proc::TreeUsage;
use crate::client::stats::task_usage;
use crate::clock::unix_nanos;

/// The driver's name.
pub const NAME: &str = "raw_exec";

/// Runs commands of the host.
pub struct RawExec {
    enabled: bool,
    launcher: Launcher,
    runs: PathBuf,
}

/// The configuration of a task.
#[derive(Debug, Default, PartialEq, Eq)]
struct Config {
    command: String,
    args: Vec<String>,
    oom_score_adj: i32,
    work_dir: String,
    denied_envvars: Vec<String>,
}

impl Config {
    fn read(config: &BTreeMap<String, Value>) -> Result<Self, String> {
        let mut r = Reader::new(config);
        let out = Self {
            command: r.text("command").unwrap_or_default(),
            args: r.texts("args"),
            oom_score_adj: i32::try_from(r.number("oom_score_adj").unwrap_or(0)).unwrap_or(-1),
            work_dir: r.text("work_dir").unwrap_or_default(),
            denied_envvars: r.texts("denied_envvars"),
        };
        r.ignore("cgroup_v2_override");
        r.ignore("cgroup_v1_override");
        if out.command.is_empty() {
            r.problem("missing command for raw_exec driver");
        }
        if !(0..=1000).contains(&out.oom_score_adj) {
            r.problem("oom_score_adj must not be negative or above 1000");
        }
        if !out.work_dir.is_empty() && !Path::new(&out.work_dir).is_absolute() {
            r.problem("work_dir must be an absolute path");
        }
        r.finish(out)
    }
}

impl RawExec {
    /// Keeps its run directories below `runs`.
    pub fn new(enabled: bool, launcher: Launcher, runs: PathBuf) -> Self {
        Self {
            enabled,
            launcher,
            runs,
        }
    }

    fn run_dir(&self, alloc: &str, task: &str, run: u64) -> RunDir {
        RunDir(self.runs.join(alloc).join(task).join(run.to_string()))
    }
}

fn spec(task: &TaskConfig) -> Result<ExecSpec, StartError> {
    let config = Config::read(&task.config).map_err(StartError::fatal)?;
    let denied = |name: &str| config.denied_envvars.iter().any(|d| glob(d, name));
    let cwd = if config.work_dir.is_empty() {
        task.paths.root.clone()
    } else {
        config.work_dir.into()
    };
    Ok(ExecSpec {
        command: find_command(&config.command, task),
        args: config.args,
        env: task
            .env
            .iter()
            .filter(|(name, _)| !denied(name))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        cwd,
        user: task.user.clone(),
        oom_score_adj: config.oom_score_adj,
        log_dir: task.log_dir.clone(),
        log_name: task.task.clone(),
        log_max_files: task.log_max_files,
        log_max_bytes: task.log_max_bytes,
        log_disabled: task.log_disabled,
    })
}

/// A command named without a directory is looked for in the task's own directories first.
fn find_command(command: &str, task: &TaskConfig) -> String {
    if !Path::new(command).is_absolute() {
        for dir in [&task.paths.local, &task.paths.root] {
            let path = dir.join(command);
            if path.is_file() {
                return path.display().to_string();
            }
        }
    }
    command.to_owned()
}

/// `*` stands for anything.
fn glob(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            let Some(rest) = name.strip_prefix(head) else {
                return false;
            };
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && glob(tail, &rest[at..]))
        }
    }
}

impl Driver for RawExec {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fingerprint(&self, now: i64) -> DriverInfo {
        super::registry::info(
            NAME,
            self.enabled,
            now,
            if self.enabled { "Healthy" } else { "disabled" },
        )
    }

    fn validate(&self, config: &BTreeMap<String, Value>) -> Result<(), String> {
        Config::read(config).map(|_| ())
    }

    fn start(
        &self,
        config: TaskConfig,
    ) -> BoxFuture<'static, Result<Arc<dyn RunningTask>, StartError>> {
        let dir = self.run_dir(&config.alloc_id, &config.task, config.run);
        let launcher = self.launcher.clone();
        let enabled = self.enabled;
        async move {
            if !enabled {
                return Err(StartError::fatal("raw_exec driver is disabled"));
            }
            let spec = spec(&config)?;
            let executor = launcher.launch(&dir, &spec).await.map_err(|e| StartError {
                recoverable: !matches!(e, LaunchError::NotStarted(_)),
                message: format!("failed to launch command with executor: {e}"),
            })?;
            Ok(Arc::new(Process::new(executor, config.run)) as Arc<dyn RunningTask>)
        }
        .boxed()
    }

    fn recover(
        &self,
        config: TaskConfig,
        _handle: Option<Handle>,
    ) -> BoxFuture<'static, Result<Recovered, StartError>> {
        let dir = self.run_dir(&config.alloc_id, &config.task, config.run);
        async move {
            match Executor::find(&dir).await {
                Ok(Found::Live(executor)) => Ok(Recovered::Live(Arc::new(Process::new(
                    executor, config.run,
                )))),
                Ok(Found::Exited(exit)) if exit.not_started => Err(StartError::fatal(exit.error)),
                Ok(Found::Exited(exit)) => Ok(Recovered::Exited(result(exit))),
                Ok(Found::NeverStarted) => Ok(Recovered::NeverStarted),
                Err(e) => Err(StartError {
                    message: e.to_string(),
                    recoverable: true,
                }),
            }
        }
        .boxed()
    }

    fn destroy(&self, alloc_id: &str, task: &str, run: u64) {
        let RunDir(path) = self.run_dir(alloc_id, task, run);
        if let Err(e) = std::fs::remove_dir_all(&path)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), "cannot remove a run directory: {e}");
        }
        // The directories above it go with the last run; otherwise they are not empty and stay.
        for parent in path.ancestors().skip(1).take(2) {
            let _ = std::fs::remove_dir(parent);
        }
    }
}

fn result(exit: ExitRecord) -> ExitResult {
    ExitResult {
        exit_code: exit.exit_code,
        signal: exit.signal,
        oom_killed: exit.oom_killed,
        error: exit.error,
        finished_at: exit.finished_at,
    }
}

struct Process {
    executor: Executor,
    run: u64,
    last: Mutex<(i64, TreeUsage)>,
}

impl Process {
    fn new(executor: Executor, run: u64) -> Self {
        Self {
            executor,
            run,
            last: Mutex::new((unix_nanos(), TreeUsage::default())),
        }
    }
}

impl RunningTask for Process {
    fn handle(&self) -> Handle {
        let state = self.executor.state();
        Handle {
            run: self.run,
            started_at: state.started_at,
            state: serde_json::json!({"ExecutorPid": state.executor_pid, "Pid": state.task_pid}),
        }
    }

    fn wait(&self) -> BoxFuture<'static, ExitResult> {
        let executor = self.executor.clone();
        async move { result(executor.wait().await) }.boxed()
    }

    fn stop(&self, signal: &str, grace: Duration) -> Result<(), TaskError> {
        let name = if signal.is_empty() {
            signals::DEFAULT_KILL_SIGNAL
        } else {
            signal
        };
        let number =
            signals::number(name).ok_or_else(|| TaskError::UnknownSignal(name.to_owned()))?;
        self.executor
            .stop(number, grace)
            .map_err(|e| TaskError::Driver(e.to_string()))
    }

    fn signal(&self, signal: &str) -> Result<(), TaskError> {
        let number =
            signals::number(signal).ok_or_else(|| TaskError::UnknownSignal(signal.to_owned()))?;
        self.executor.signal(number).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => TaskError::NotRunning,
            _ => TaskError::Driver(e.to_string()),
        })
    }

    fn stats(&self, now: i64) -> TaskResourceUsage {
        let usage = self.executor.usage();
        let mut last = self.last.lock();
        let out = task_usage(&last.1, last.0, &usage, now);
        *last = (now, usage);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drv_06_a_configuration_names_all_its_problems() {
        let config = [("comand", Value::from("x")), ("args", Value::from(3))]
            .map(|(k, v)| (k.to_owned(), v))
            .into();
        let text = Config::read(&config).unwrap_err();
        for part in ["missing command", "args: expected", "comand: unknown key"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn drv_06_denied_variables_are_matched_by_pattern() {
        assert!(glob("AWS_*", "AWS_KEY"));
        assert!(glob("*SECRET*", "MY_SECRET_X"));
        assert!(!glob("AWS_*", "XAWS_"));
        assert!(glob("A", "A") && !glob("A", "AB"));
    }
}
