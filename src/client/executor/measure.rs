//! The agent's side of what the executor reports of its task: samples, as a stream.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::exec::{ExecError, ask};
use super::files::{ExecutorCall, ExecutorReply};
use super::launch::Executor;
use crate::proc::TreeUsage;

/// How long after its connection was lost an executor is waited for, that may be ending.
const END: Duration = Duration::from_secs(2);

/// What the executor says of its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// What it has used until then.
    Sample {
        /// When, unix nanoseconds.
        at: i64,
        /// By all of its processes.
        usage: TreeUsage,
    },
    /// The task ended; nothing follows.
    Ended,
    /// There are no samples; nothing follows.
    Failed {
        why: String,
        /// A later request may get some.
        recoverable: bool,
    },
    /// The executor is of a release that reports nothing of its task.
    Unknown,
}

/// What an executor reports, one after the other. It reports nothing more when this is dropped.
#[derive(Debug)]
pub struct Measures {
    executor: Executor,
    lines: Lines<BufReader<UnixStream>>,
}

impl Executor {
    /// What the task uses: now, and after every interval.
    ///
    /// # Errors
    /// The executor is gone, or cannot be called.
    pub async fn measure(&self, every: Duration) -> Result<Measures, ExecError> {
        let dir = self.dir().clone();
        let call = ExecutorCall {
            command: Vec::new(),
            measure_ms: Some(u64::try_from(every.as_millis()).unwrap_or(u64::MAX)),
        };
        let connected = tokio::task::spawn_blocking(move || ask(&dir, &call, &[])).await;
        let stream = UnixStream::from_std(connected.map_err(io::Error::other)??)?;
        Ok(Measures {
            executor: self.clone(),
            lines: BufReader::new(stream).lines(),
        })
    }
}

impl Measures {
    /// Waits for the next report. It may be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Measure {
        let Ok(Some(line)) = self.lines.next_line().await else {
            return self.closed().await;
        };
        match serde_json::from_str(&line) {
            Ok(ExecutorReply::Sample { at, usage }) => Measure::Sample { at, usage },
            Ok(ExecutorReply::NoSample { why, recoverable }) => {
                Measure::Failed { why, recoverable }
            }
            Ok(ExecutorReply::Ended(_)) => Measure::Ended,
            Ok(ExecutorReply::Failed(_)) => Measure::Unknown,
            Ok(ExecutorReply::Started { .. }) | Err(_) => failed("the executor talks nonsense"),
        }
    }

    /// The connection was closed without a word.
    async fn closed(&self) -> Measure {
        if timeout(END, self.executor.ended()).await.is_err() {
            return failed("the executor closed the connection");
        }
        let exit = self.executor.dir().exit();
        let written = tokio::task::spawn_blocking(move || exit.exists()).await;
        match written.unwrap_or_default() {
            // It was through before it could answer.
            true => Measure::Ended,
            false => failed("the executor was killed"),
        }
    }
}

fn failed(why: &str) -> Measure {
    Measure::Failed {
        why: why.to_owned(),
        recoverable: true,
    }
}
