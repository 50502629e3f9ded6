//! A driver that is not in the tree: its author has what the drivers in the tree are made of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover::client::drivers::config::DriverConfigReader;
use drover::client::drivers::exec::{ExecCommand, Wires};
use drover::client::drivers::{
    Driver, ExitResult, Handle, Recovered, Registry, RunningTask, Samples, StartError, StatsError,
    TaskConfig, TaskError, signals,
};
use drover::client::executor::files::{ExecSpec, ExitRecord, RunDir};
use drover::client::executor::launch::{Executor, Launcher, RunStatus};
use drover_events::gojson::Map;
use drover_events::model::DriverInfo;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

/// Says something, as often as its configuration states.
struct Parrot {
    launcher: Launcher,
    runs: PathBuf,
}

/// One that speaks.
struct Speaking {
    executor: Executor,
    run: u64,
}

struct Config {
    says: String,
    times: i64,
}

fn read(config: &BTreeMap<String, Value>) -> Result<Config, String> {
    let mut reader = DriverConfigReader::new(config);
    let config = Config {
        says: reader.text("says").unwrap_or_default(),
        times: reader.number("times").unwrap_or(1),
    };
    if config.says.is_empty() {
        reader.problem("a parrot says something");
    }
    reader.finish(config)
}

fn result(exit: ExitRecord) -> ExitResult {
    ExitResult {
        exit_code: exit.exit_code,
        signal: exit.signal,
        error: exit.error,
        ..ExitResult::default()
    }
}

impl Parrot {
    fn dir(&self, config: &TaskConfig) -> RunDir {
        RunDir(self.runs.join(format!("{}-{}", config.task, config.run)))
    }
}

impl Driver for Parrot {
    fn name(&self) -> &'static str {
        "parrot"
    }

    fn fingerprint(&self, _now: i64) -> DriverInfo {
        DriverInfo {
            attributes: Map::from([("driver.parrot".to_owned(), "true".to_owned())]),
            detected: true,
            healthy: true,
            ..DriverInfo::default()
        }
    }

    fn validate(&self, config: &BTreeMap<String, Value>) -> Result<(), String> {
        read(config).map(|_| ())
    }

    fn start(
        &self,
        task: TaskConfig,
    ) -> BoxFuture<'static, Result<Arc<dyn RunningTask>, StartError>> {
        let (launcher, dir) = (self.launcher.clone(), self.dir(&task));
        async move {
            let config = read(&task.config).map_err(StartError::fatal)?;
            let script = "for i in $(seq $TIMES); do echo \"$SAYS\"; done; exec sleep 1000";
            let spec = ExecSpec {
                command: "/bin/sh".to_owned(),
                args: vec!["-c".to_owned(), script.to_owned()],
                env: vec![
                    ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
                    ("SAYS".to_owned(), config.says),
                    ("TIMES".to_owned(), config.times.to_string()),
                ],
                cwd: "/".into(),
                log_dir: task.log_dir.clone(),
                log_name: task.task.clone(),
                log_max_files: 2,
                log_max_bytes: 1 << 20,
                ..ExecSpec::default()
            };
            let started = launcher.launch(&dir, &spec).await;
            let executor = started.map_err(|e| StartError::fatal(e.to_string()))?;
            let run = task.run;
            Ok(Arc::new(Speaking { executor, run }) as Arc<dyn RunningTask>)
        }
        .boxed()
    }

    fn recover(
        &self,
        task: TaskConfig,
        _handle: Option<Handle>,
    ) -> BoxFuture<'static, Result<Recovered, StartError>> {
        let dir = self.dir(&task);
        async move {
            let found = Executor::find(&dir).await;
            let run = task.run;
            match found.map_err(|e| StartError::fatal(e.to_string()))? {
                RunStatus::Live(executor) => {
                    Ok(Recovered::Live(Arc::new(Speaking { executor, run })))
                }
                RunStatus::Exited(exit) => Ok(Recovered::Exited(result(exit))),
                RunStatus::NeverStarted => Ok(Recovered::NeverStarted),
            }
        }
        .boxed()
    }

    fn destroy(&self, _alloc: &str, task: &str, run: u64) {
        let _ = std::fs::remove_dir_all(self.runs.join(format!("{task}-{run}")));
    }
}

impl RunningTask for Speaking {
    fn handle(&self) -> Handle {
        Handle {
            run: self.run,
            started_at: self.executor.state().started_at,
            state: Value::Null,
        }
    }

    fn wait(&self) -> BoxFuture<'static, ExitResult> {
        let executor = self.executor.clone();
        async move { result(executor.wait().await) }.boxed()
    }

    fn stop(&self, signal: &str, grace: Duration) -> Result<(), TaskError> {
        let number = signals::number(signal).unwrap_or(15);
        let reported = self.executor.stop(number, grace);
        reported.map_err(|e| TaskError::Driver(e.to_string()))
    }

    fn signal(&self, signal: &str) -> Result<(), TaskError> {
        Err(TaskError::UnknownSignal(signal.to_owned()))
    }

    fn exec(&self, _: ExecCommand, _: Wires) -> BoxFuture<'static, Result<(), TaskError>> {
        let no = TaskError::Driver("a parrot takes no commands".to_owned());
        std::future::ready(Err(no)).boxed()
    }

    fn stats(&self, _interval: Duration) -> Samples {
        let none = std::future::ready(Err(StatsError::Unsupported));
        futures_util::stream::once(none).boxed()
    }
}

#[tokio::test]
async fn drv_07_a_driver_from_outside_is_made_of_the_same_pieces() {
    let tmp = tempfile::tempdir().expect("a directory");
    let parrot = || -> Arc<dyn Driver> {
        Arc::new(Parrot {
            launcher: Launcher {
                program: env!("CARGO_BIN_EXE_drover").into(),
                args: vec!["executor".into()],
                env: Vec::new(),
            },
            runs: tmp.path().join("runs"),
        })
    };
    let registry = Registry::new([parrot()], &BTreeMap::new());
    let driver = registry.get("parrot").expect("it is there");
    assert!(registry.fingerprint(7)["parrot"].healthy);
    let config = |value: Value| -> BTreeMap<String, Value> {
        let block = value.as_object().cloned().expect("a block");
        block.into_iter().collect()
    };
    let refused = driver.validate(&config(json!({"times": "many", "sings": 1})));
    let refused = refused.expect_err("refused");
    for part in [
        "times: expected a number",
        "says something",
        "sings: unknown key",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    let task = TaskConfig {
        task: "polly".to_owned(),
        run: 1,
        config: config(json!({"says": "ahoy", "times": 2})),
        log_dir: tmp.path().join("logs"),
        ..TaskConfig::default()
    };
    driver.start(task.clone()).await.expect("it starts");
    // As an agent that began again does.
    let found = parrot().recover(task.clone(), None).await.expect("found");
    let Recovered::Live(running) = found else {
        panic!("it lives")
    };
    let log = tmp.path().join("logs/polly.stdout.0");
    let speaks = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        drover_testkit::so(text == "ahoy\nahoy\n")
    };
    let heard = drover_testkit::eventually("it speaks", drover_testkit::LONG, speaks);
    heard.await.expect("it speaks");
    running.stop("SIGTERM", drover_testkit::LONG).expect("told");
    assert_eq!(running.wait().await.signal, 15);
    let found = parrot().recover(task, None).await.expect("found");
    assert!(matches!(found, Recovered::Exited(exit) if exit.signal == 15));
}
