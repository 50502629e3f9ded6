//! `raw_exec`: a process of the host, without isolation, under an executor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{DriverInfo, TaskResourceUsage};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::config::DriverConfigReader;
use super::exec::{ExecCommand, Wires, attend};
use super::{
    Driver, ExitResult, Handle, Namespaces, Recovered, RunningTask, Samples, StartError,
    StatsError, TaskConfig, TaskError, signals,
};
use crate::env::matches;
use crate::executor::cgroup::Parents;
use crate::executor::exec::ExecError;
use crate::executor::files::{ExecSpec, ExitRecord, RunDir, read_json};
use crate::executor::launch::{Executor, LaunchError, Launcher, RunStatus};
use crate::executor::measure::{Measure, Measures};
use crate::executor::sweep;
use crate::proc::{Processes, TreeUsage};
use crate::stats::task_usage;

/// The driver's name.
pub const NAME: &str = "raw_exec";
/// How long after the grace an executor may take before its task is ended without it: it may have
/// been stopped, or hang.
const STUCK: Duration = Duration::from_secs(5);
/// How long an executor that cannot be reached may take to be seen to have ended.
const GONE: Duration = Duration::from_millis(500);

/// Runs commands of the host.
pub struct RawExec {
    enabled: bool,
    runs: Runs,
}

/// Where executors keep what they know of their runs, and how they are started.
#[derive(Clone, Debug)]
pub struct Runs {
    /// Starts them.
    pub launcher: Launcher,
    /// Each has a directory below this one.
    pub dir: PathBuf,
    /// Below these every run gets control groups.
    pub cgroups: Parents,
}

/// The configuration of a task.
#[derive(Debug, Default, PartialEq, Eq)]
struct RawExecConfig {
    command: String,
    args: Vec<String>,
    oom_score_adj: i32,
    work_dir: String,
    denied_envvars: Vec<String>,
}

impl RawExecConfig {
    fn read(config: &BTreeMap<String, Value>) -> Result<Self, String> {
        let mut r = DriverConfigReader::new(config);
        let out = Self {
            command: r.text("command").unwrap_or_default(),
            args: r.texts("args"),
            oom_score_adj: i32::try_from(r.number("oom_score_adj").unwrap_or(0)).unwrap_or(-1),
            work_dir: r.text("work_dir").unwrap_or_default(),
            denied_envvars: r.texts("denied_envvars"),
        };
        for key in ["cgroup_v1_override", "cgroup_v2_override"] {
            if r.is_set(key) {
                r.problem(format!("{key} is not supported by this client"));
            }
        }
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
    pub fn new(enabled: bool, launcher: Launcher, dir: PathBuf) -> Self {
        let cgroups = Parents::default();
        let runs = Runs {
            launcher,
            dir,
            cgroups,
        };
        Self { enabled, runs }
    }

    /// Puts every run into control groups of its own below these.
    #[must_use]
    pub fn in_cgroups(mut self, cgroups: &Parents) -> Self {
        self.runs.cgroups = cgroups.holding();
        self
    }
}

impl Runs {
    /// Gives a run control groups of its own.
    pub(super) fn group(&self, alloc: &str, spec: &mut ExecSpec) {
        self.cgroups.run(&sweep::name(&self.dir, alloc), spec);
    }

    /// What a run was started with, if it has its directory still.
    pub(super) fn spec_of(&self, (alloc, task, run): (&str, &str, u64)) -> Option<ExecSpec> {
        read_json(&self.run_dir(alloc, task, run).spec())
            .ok()
            .flatten()
    }

    /// What all runs were started with that have their directories still.
    pub(super) fn recorded(&self) -> Vec<ExecSpec> {
        sweep::recorded(&self.dir)
    }

    /// Ends and removes what is left of runs that no task has any more.
    pub fn sweep(&self) {
        match sweep::sweep(&self.dir, &self.cgroups) {
            Ok(0) => {}
            Err(error) => tracing::warn!("control groups of lost runs are left: {error}"),
            Ok(count) => tracing::warn!(count, "removed control groups of lost runs"),
        }
    }

    fn run_dir(&self, alloc: &str, task: &str, run: u64) -> RunDir {
        RunDir(self.dir.join(alloc).join(task).join(run.to_string()))
    }
}

fn spec(task: &TaskConfig, runs: &Runs) -> Result<ExecSpec, StartError> {
    let config = RawExecConfig::read(&task.config).map_err(StartError::fatal)?;
    let denied = |name: &str| config.denied_envvars.iter().any(|d| matches(d, name));
    let cwd = if config.work_dir.is_empty() {
        task.paths.root.clone()
    } else {
        config.work_dir.into()
    };
    // An agent that is not root mounts nothing: such a task finds it by its environment.
    let mounts = match rustix::process::geteuid().is_root() {
        true => task.mounts.clone(),
        false => Vec::new(),
    };
    let mut spec = ExecSpec {
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
        cores: task.cores.clone(),
        log_dir: task.log_dir.clone(),
        log_name: task.task.clone(),
        log_max_files: task.log_max_files,
        log_max_bytes: task.log_max_bytes,
        log_disabled: task.log_disabled,
        namespaces: Namespaces {
            mount: !mounts.is_empty(),
            ..Namespaces::default()
        },
        root: task.paths.root.clone(),
        mounts,
        ..ExecSpec::default()
    };
    runs.group(&task.alloc_id, &mut spec);
    Ok(spec)
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
        RawExecConfig::read(config).map(|_| ())
    }

    fn start(
        &self,
        config: TaskConfig,
    ) -> BoxFuture<'static, Result<Arc<dyn RunningTask>, StartError>> {
        if !self.enabled {
            let error = StartError::fatal("raw_exec driver is disabled");
            return std::future::ready(Err(error)).boxed();
        }
        let runs = self.runs.clone();
        self.runs
            .start(config, move |task: &TaskConfig| spec(task, &runs))
    }

    fn recover(
        &self,
        config: TaskConfig,
        _handle: Option<Handle>,
    ) -> BoxFuture<'static, Result<Recovered, StartError>> {
        self.runs.recover(&config)
    }

    fn destroy(&self, alloc_id: &str, task: &str, run: u64) {
        self.runs.destroy(alloc_id, task, run);
    }
}

impl Runs {
    /// Starts a task as its specification says.
    pub(super) fn start(
        &self,
        config: TaskConfig,
        spec: impl FnOnce(&TaskConfig) -> Result<ExecSpec, StartError> + Send + 'static,
    ) -> BoxFuture<'static, Result<Arc<dyn RunningTask>, StartError>> {
        let dir = self.run_dir(&config.alloc_id, &config.task, config.run);
        let launcher = self.launcher.clone();
        async move {
            let run = config.run;
            // It looks for the command where the task may have put something.
            let spec = tokio::task::spawn_blocking(move || spec(&config)).await;
            let spec = spec.map_err(|e| StartError::fatal(e.to_string()))??;
            let executor = launcher.launch(&dir, &spec).await.map_err(|e| StartError {
                recoverable: !matches!(e, LaunchError::NotStarted(_)),
                message: format!("failed to launch command with executor: {e}"),
            })?;
            Ok(Arc::new(Process::new(executor, run)) as Arc<dyn RunningTask>)
        }
        .boxed()
    }

    /// Finds a run again.
    pub(super) fn recover(
        &self,
        config: &TaskConfig,
    ) -> BoxFuture<'static, Result<Recovered, StartError>> {
        let dir = self.run_dir(&config.alloc_id, &config.task, config.run);
        let run = config.run;
        async move {
            match Executor::find(&dir).await {
                Ok(RunStatus::Live(executor)) => {
                    Ok(Recovered::Live(Arc::new(Process::new(executor, run))))
                }
                Ok(RunStatus::Exited(exit)) if exit.not_started => {
                    Err(StartError::fatal(exit.error))
                }
                Ok(RunStatus::Exited(exit)) => Ok(Recovered::Exited(result(exit))),
                Ok(RunStatus::NeverStarted) => Ok(Recovered::NeverStarted),
                Err(e) => Err(StartError {
                    message: e.to_string(),
                    recoverable: true,
                }),
            }
        }
        .boxed()
    }

    /// Removes what a run left behind.
    pub(super) fn destroy(&self, alloc_id: &str, task: &str, run: u64) {
        let dir = self.run_dir(alloc_id, task, run);
        crate::executor::launch::clear(&dir);
        let RunDir(path) = dir;
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
    /// How long after the grace the executor may take before it is ended.
    stuck: Duration,
    /// Where its streams of samples continue.
    meter: Arc<Mutex<Meter>>,
}

/// What a task used when it was last looked at.
struct Meter {
    /// When, unix nanoseconds; its start before the first look.
    at: i64,
    usage: TreeUsage,
}

impl Meter {
    /// What was used since the last look.
    fn take(&mut self, at: i64, usage: TreeUsage) -> TaskResourceUsage {
        let reported = task_usage(&self.usage, self.at, &usage, at);
        (self.at, self.usage) = (at, usage);
        reported
    }
}

/// A stream of samples.
struct Sampled {
    executor: Executor,
    meter: Arc<Mutex<Meter>>,
    interval: Duration,
    source: SampleSource,
}

/// Where samples come from.
enum SampleSource {
    /// The executor was not called yet.
    New,
    /// The executor.
    Reported(Measures),
    /// Looks of the agent's own: the executor is of a release that reports nothing of its task.
    Looks(tokio::time::Interval),
    /// Nothing follows.
    Over,
}

impl Sampled {
    async fn next(mut self) -> Option<(Result<TaskResourceUsage, StatsError>, Self)> {
        loop {
            match &mut self.source {
                SampleSource::Over => return None,
                SampleSource::New => match self.executor.measure(self.interval).await {
                    Ok(measures) => self.source = SampleSource::Reported(measures),
                    Err(ExecError::Gone) => {
                        let ended = tokio::time::timeout(GONE, self.executor.ended()).await;
                        self.source = match ended {
                            Ok(()) => SampleSource::Over,
                            Err(_) => self.looks(),
                        };
                    }
                    Err(error) => return Some(self.failed(error.to_string(), true)),
                },
                SampleSource::Reported(measures) => match measures.next().await {
                    Measure::Sample { at, usage } => {
                        let reported = self.meter.lock().take(at, usage);
                        return Some((Ok(reported), self));
                    }
                    Measure::Failed { why, recoverable } => {
                        return Some(self.failed(why, recoverable));
                    }
                    Measure::Ended => self.source = SampleSource::Over,
                    Measure::Unknown => self.source = self.looks(),
                },
                SampleSource::Looks(ticks) => {
                    tokio::select! {
                        biased;
                        () = self.executor.ended() => return None,
                        _ = ticks.tick() => {}
                    }
                    return Some((self.look().await, self));
                }
            }
        }
    }

    fn failed(
        mut self,
        why: String,
        recoverable: bool,
    ) -> (Result<TaskResourceUsage, StatsError>, Self) {
        self.source = SampleSource::Over;
        let error = match recoverable {
            true => StatsError::Failed(why),
            false => StatsError::Unsupported,
        };
        (Err(error), self)
    }

    fn looks(&self) -> SampleSource {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        SampleSource::Looks(ticks)
    }

    async fn look(&self) -> Result<TaskResourceUsage, StatsError> {
        let (meter, executor) = (Arc::clone(&self.meter), self.executor.clone());
        let age = self.interval / 2;
        // It reads as many files as there are processes.
        let looked = tokio::task::spawn_blocking(move || {
            let mut meter = meter.lock();
            // As old as a look at all processes may be that another caller took.
            let all = Processes::lately(age, meter.at);
            let usage = executor.usage(&all);
            meter.take(all.at(), usage)
        });
        looked.await.map_err(|e| StatsError::Failed(e.to_string()))
    }
}

impl Process {
    fn new(executor: Executor, run: u64) -> Self {
        let meter = Meter {
            at: executor.state().started_at,
            usage: TreeUsage::default(),
        };
        Self {
            executor,
            run,
            stuck: STUCK,
            meter: Arc::new(Mutex::new(meter)),
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
        // An unknown signal is no reason to let the task run on.
        let known =
            signals::number(signal).or_else(|| signals::number(signals::DEFAULT_KILL_SIGNAL));
        let number = known.unwrap_or(nix::sys::signal::Signal::SIGKILL as i32);
        let reported = self.executor.stop(number, grace);
        let patience = match &reported {
            Ok(()) => grace + self.stuck,
            Err(e) => {
                tracing::warn!("a task is killed, for its stop cannot be delivered: {e}");
                Duration::ZERO
            }
        };
        let executor = self.executor.clone();
        tokio::spawn(async move {
            if tokio::time::timeout(patience, executor.ended())
                .await
                .is_err()
            {
                let _ = tokio::task::spawn_blocking(move || executor.end()).await;
            }
        });
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<(), TaskError> {
        let number =
            signals::number(signal).ok_or_else(|| TaskError::UnknownSignal(signal.to_owned()))?;
        self.executor.signal(number).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => TaskError::NotRunning,
            _ => TaskError::Driver(e.to_string()),
        })
    }

    fn exec(
        &self,
        command: ExecCommand,
        wires: Wires,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        let executor = self.executor.clone();
        async move {
            let guest = executor.exec(command.command, command.tty).await;
            let guest = guest.map_err(|e| match e {
                ExecError::Gone => TaskError::NotRunning,
                other => TaskError::Driver(other.to_string()),
            })?;
            tokio::spawn(attend(guest, wires));
            Ok(())
        }
        .boxed()
    }

    fn stats(&self, interval: Duration) -> Samples {
        let sampled = Sampled {
            executor: self.executor.clone(),
            meter: Arc::clone(&self.meter),
            interval,
            source: SampleSource::New,
        };
        stream::unfold(sampled, Sampled::next).boxed()
    }
}

#[cfg(test)]
#[path = "raw_exec_test.rs"]
mod tests;
