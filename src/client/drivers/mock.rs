//! `mock_driver`: a task that only pretends, for tests and for measuring servers.
//!
//! A mock task ends with the agent; what it was to do is in its handle, so that a restarted agent
//! continues with the time that is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::DriverInfo;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;
use tokio::sync::watch;

use super::config::DriverConfigReader;
use super::exec::{ExecCommand, ExecOut, Wires};
use super::{
    Driver, ExitResult, Handle, Recovered, RunningTask, Samples, StartError, TaskConfig, TaskError,
    signals,
};
use crate::clock::nanos;
use crate::executor::rotate::Rotator;
use crate::stats::no_usage;
use drover_base::clock::unix_nanos;

/// The driver's name.
pub const NAME: &str = "mock_driver";
/// How a command ends that is killed.
const KILLED: i32 = 137;

/// Pretends to run tasks.
#[derive(Debug, Default)]
pub struct Mock;

/// The configuration of a task; durations in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MockConfig {
    run_for: i64,
    exit_code: i32,
    exit_signal: i32,
    exit_err_msg: String,
    start_error: String,
    start_error_recoverable: bool,
    start_block_for: i64,
    kill_after: i64,
    signal_error: String,
    stdout: Text,
    stderr: Text,
    exec: Pretended,
}

/// What a command beside the task pretends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pretended {
    run_for: i64,
    exit_code: i32,
    stdout: String,
    stderr: String,
}

/// What is written to a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Text {
    text: String,
    repeat: i64,
    every: i64,
}

impl MockConfig {
    fn read(config: &BTreeMap<String, Value>) -> Result<Self, String> {
        let mut r = DriverConfigReader::new(config);
        let out = Self {
            run_for: r.duration("run_for").unwrap_or(0),
            exit_code: int(r.number("exit_code")),
            exit_signal: int(r.number("exit_signal")),
            exit_err_msg: r.text("exit_err_msg").unwrap_or_default(),
            start_error: r.text("start_error").unwrap_or_default(),
            start_error_recoverable: r.flag("start_error_recoverable"),
            start_block_for: r.duration("start_block_for").unwrap_or(0),
            kill_after: r.duration("kill_after").unwrap_or(0),
            signal_error: r.text("signal_error").unwrap_or_default(),
            stdout: Text {
                text: r.text("stdout_string").unwrap_or_default(),
                repeat: r.number("stdout_repeat").unwrap_or(0),
                every: r.duration("stdout_repeat_duration").unwrap_or(0),
            },
            stderr: Text {
                text: r.text("stderr_string").unwrap_or_default(),
                repeat: r.number("stderr_repeat").unwrap_or(0),
                every: r.duration("stderr_repeat_duration").unwrap_or(0),
            },
            exec: Pretended::default(),
        };
        let exec = r.block("exec_command").unwrap_or_default();
        let exec = Pretended::read(&exec).unwrap_or_else(|problems| {
            r.problem(format!("exec_command: {problems}"));
            Pretended::default()
        });
        for known in [
            "plugin_exit_after",
            "driver_ip",
            "driver_advertise",
            "driver_port_map",
        ] {
            r.ignore(known);
        }
        r.finish(Self { exec, ..out })
    }
}

impl Pretended {
    fn read(config: &BTreeMap<String, Value>) -> Result<Self, String> {
        let mut r = DriverConfigReader::new(config);
        let out = Self {
            run_for: r.duration("run_for").unwrap_or(0),
            exit_code: int(r.number("exit_code")),
            stdout: r.text("stdout_string").unwrap_or_default(),
            stderr: r.text("stderr_string").unwrap_or_default(),
        };
        r.finish(out)
    }

    /// What it does until its time is over or the task's.
    async fn run(self, mut task: watch::Receiver<Option<ExitResult>>, wires: Wires) {
        let Wires { input, output } = wires;
        let code = tokio::select! {
            () = tokio::time::sleep(nanos(self.run_for)) => self.exit_code,
            _ = task.wait_for(Option::is_some) => KILLED,
            () = output.closed() => return,
        };
        drop(input);
        let frames = [
            ExecOut::Stdout(self.stdout.into_bytes()),
            ExecOut::StdoutClosed,
            ExecOut::Stderr(self.stderr.into_bytes()),
            ExecOut::StderrClosed,
            ExecOut::Exited { code },
        ];
        for one in frames {
            let says = !matches!(&one, ExecOut::Stdout(d) | ExecOut::Stderr(d) if d.is_empty());
            if says && output.send(one).await.is_err() {
                return;
            }
        }
    }
}

fn int(value: Option<i64>) -> i32 {
    value.and_then(|v| i32::try_from(v).ok()).unwrap_or(0)
}

impl Driver for Mock {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fingerprint(&self, now: i64) -> DriverInfo {
        super::registry::info(NAME, true, now, "Healthy")
    }

    fn validate(&self, config: &BTreeMap<String, Value>) -> Result<(), String> {
        MockConfig::read(config).map(|_| ())
    }

    fn start(
        &self,
        task: TaskConfig,
    ) -> BoxFuture<'static, Result<Arc<dyn RunningTask>, StartError>> {
        async move {
            let config = MockConfig::read(&task.config).map_err(StartError::fatal)?;
            if config.start_block_for > 0 {
                tokio::time::sleep(nanos(config.start_block_for)).await;
            }
            if !config.start_error.is_empty() {
                return Err(StartError {
                    message: config.start_error,
                    recoverable: config.start_error_recoverable,
                });
            }
            if !task.log_disabled {
                for (text, stream) in [(&config.stdout, "stdout"), (&config.stderr, "stderr")] {
                    tokio::spawn(write_log(text.clone(), task.clone(), stream));
                }
            }
            Ok(Arc::new(Pretence::new(config, task.run, unix_nanos())) as Arc<dyn RunningTask>)
        }
        .boxed()
    }

    fn recover(
        &self,
        task: TaskConfig,
        handle: Option<Handle>,
    ) -> BoxFuture<'static, Result<Recovered, StartError>> {
        async move {
            let Some(handle) = handle else {
                return Ok(Recovered::NeverStarted);
            };
            let config = MockConfig::read(&task.config).map_err(StartError::fatal)?;
            Ok(Recovered::Live(Arc::new(Pretence::new(
                config,
                handle.run,
                handle.started_at,
            ))))
        }
        .boxed()
    }

    fn destroy(&self, _alloc_id: &str, _task: &str, _run: u64) {}
}

async fn write_log(text: Text, task: TaskConfig, stream: &'static str) {
    let name = format!("{}.{stream}", task.task);
    let Ok(mut log) = Rotator::open(&task.log_dir, &name, task.log_max_files, task.log_max_bytes)
    else {
        return;
    };
    for round in 0..=text.repeat.max(0) {
        if round > 0 {
            tokio::time::sleep(nanos(text.every)).await;
        }
        if log.write(text.text.as_bytes()).is_err() {
            return;
        }
    }
}

struct Pretence {
    config: MockConfig,
    run: u64,
    started_at: i64,
    /// How it ended, once it has.
    end: watch::Sender<Option<ExitResult>>,
}

impl Pretence {
    fn new(config: MockConfig, run: u64, started_at: i64) -> Self {
        let out = Self {
            config,
            run,
            started_at,
            end: watch::Sender::new(None),
        };
        if out.config.run_for > 0 {
            let left = out.config.run_for - (unix_nanos() - started_at);
            out.end_later(left, out.natural_end());
        }
        out
    }

    fn natural_end(&self) -> ExitResult {
        ExitResult {
            exit_code: self.config.exit_code,
            signal: self.config.exit_signal,
            error: self.config.exit_err_msg.clone(),
            ..ExitResult::default()
        }
    }

    fn end_later(&self, delay: i64, result: ExitResult) {
        let end = self.end.clone();
        tokio::spawn(async move {
            let mut ended = end.subscribe();
            tokio::select! {
                () = tokio::time::sleep(nanos(delay)) => {}
                _ = ended.wait_for(Option::is_some) => return,
            }
            end.send_if_modified(|slot| {
                let first = slot.is_none();
                slot.get_or_insert(ExitResult {
                    finished_at: unix_nanos(),
                    ..result
                });
                first
            });
        });
    }
}

impl RunningTask for Pretence {
    fn handle(&self) -> Handle {
        Handle {
            run: self.run,
            started_at: self.started_at,
            state: Value::Null,
        }
    }

    fn wait(&self) -> BoxFuture<'static, ExitResult> {
        let mut end = self.end.subscribe();
        let keep = self.end.clone();
        async move {
            let result = end.wait_for(Option::is_some).await.map(|r| r.clone());
            drop(keep);
            result.ok().flatten().unwrap_or_default()
        }
        .boxed()
    }

    fn stop(&self, signal: &str, _grace: Duration) -> Result<(), TaskError> {
        let name = if signal.is_empty() {
            signals::DEFAULT_KILL_SIGNAL
        } else {
            signal
        };
        let signal =
            signals::number(name).ok_or_else(|| TaskError::UnknownSignal(name.to_owned()))?;
        self.end_later(
            self.config.kill_after,
            ExitResult {
                signal,
                ..ExitResult::default()
            },
        );
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<(), TaskError> {
        if !self.config.signal_error.is_empty() {
            return Err(TaskError::Driver(self.config.signal_error.clone()));
        }
        signals::number(signal)
            .map(|_| ())
            .ok_or_else(|| TaskError::UnknownSignal(signal.to_owned()))
    }

    fn exec(
        &self,
        _command: ExecCommand,
        wires: Wires,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        tokio::spawn(self.config.exec.clone().run(self.end.subscribe(), wires));
        std::future::ready(Ok(())).boxed()
    }

    fn stats(&self, interval: Duration) -> Samples {
        let ticks = tokio::time::interval(interval);
        let state = (ticks, self.end.subscribe());
        stream::unfold(state, |(mut ticks, mut end)| async move {
            tokio::select! {
                biased;
                _ = end.wait_for(Option::is_some) => return None,
                _ = ticks.tick() => {}
            }
            Some((Ok(no_usage(unix_nanos())), (ticks, end)))
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn ends(config: Value) -> (ExitResult, String) {
        let dir = tempfile::tempdir().expect("a directory");
        let Value::Object(config) = config else {
            panic!("a block")
        };
        let task = TaskConfig {
            task: "web".into(),
            run: 7,
            config: config.into_iter().collect(),
            log_dir: dir.path().to_owned(),
            log_max_files: 2,
            log_max_bytes: 1 << 20,
            ..TaskConfig::default()
        };
        let running = Mock.start(task).await.expect("it starts");
        assert_eq!(running.handle().run, 7);
        let ended = running.wait().await;
        let wanted = "out";
        let log = || std::fs::read_to_string(dir.path().join("web.stdout.0")).unwrap_or_default();
        let read = || drover_testkit::so(log() == wanted);
        let waited = drover_testkit::eventually("the log", drover_testkit::LONG, read).await;
        waited.expect("it is written");
        (ended, log())
    }

    #[tokio::test]
    async fn a_pretence_ends_and_says_what_it_was_told_to() {
        for (code, signal, error) in [(0, 0, ""), (3, 0, ""), (0, 9, ""), (1, 0, "gone")] {
            let (ended, log) = ends(json!({
                "run_for": "1ms",
                "stdout_string": "out",
                "exit_code": code,
                "exit_signal": signal,
                "exit_err_msg": error,
            }))
            .await;
            let reported = (ended.exit_code, ended.signal, ended.error.as_str());
            assert_eq!(reported, (code, signal, error));
            assert!(ended.finished_at > 0);
            assert_eq!(log, "out");
        }
    }
}
