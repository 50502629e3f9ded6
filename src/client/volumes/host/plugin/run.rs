//! A plugin as a process: what it is given, what it may say, and its end.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::{PluginError, Plugins, failed};
use crate::proc::Group;

/// How long its output is waited for once it has ended: other processes may hold its end open.
const REST: Duration = Duration::from_millis(500);
/// How long a plugin that is just being written is left alone.
const BUSY: Duration = Duration::from_millis(50);
/// The longest answer, bytes.
const ANSWER: usize = 64 << 10;
/// What is kept of what it complains of, bytes.
const COMPLAINT: usize = 2 << 10;
/// Where programs are, when the agent's environment does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Plugins {
    /// Runs an operation; what the plugin answered.
    pub(in crate::volumes::host) async fn run(
        &self,
        file: &Path,
        operation: &str,
        variables: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Vec<u8>, PluginError> {
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(PATH));
        let mut command = Command::new(file);
        command
            .arg(operation)
            .env_clear()
            .env("PATH", path)
            .env("DHV_OPERATION", operation)
            .env("DHV_VOLUMES_DIR", &self.volumes)
            .env("DHV_PLUGIN_DIR", &self.folder)
            .env("DHV_NODE_ID", &self.node.0)
            .env("DHV_NODE_POOL", &self.node.1)
            .envs(variables.iter().copied())
            .current_dir("/")
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let ended = timeout(limit, outcome(&mut command)).await;
        let late = |_| failed(file, format!("{operation} took longer than {limit:?}"));
        let broken = |error| failed(file, format!("{operation}: {error}"));
        let ended = ended.map_err(late)?.map_err(broken)?;
        if ended.status.success() && ended.is_whole {
            return Ok(ended.answer);
        }
        let what = match ended.is_whole {
            true => format!("{operation} ended with {}", ended.status),
            false => format!("{operation} answered with more than {ANSWER} bytes"),
        };
        let complaint = String::from_utf8_lossy(&ended.complaint);
        Err(failed(
            file,
            match complaint.trim() {
                "" => what,
                complaint => format!("{what}: {complaint}"),
            },
        ))
    }
}

/// What became of a plugin that ran.
struct PluginExit {
    status: ExitStatus,
    answer: Vec<u8>,
    is_whole: bool,
    complaint: Vec<u8>,
}

/// Runs a command to its end. Dropped, it kills what runs, and all that was started by it.
async fn outcome(command: &mut Command) -> std::io::Result<PluginExit> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = loop {
        match command.spawn() {
            // It is being replaced.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => sleep(BUSY).await,
            other => break other?,
        }
    };
    let mut group = Group::of(&child);
    let (answer, complaint) = (Arc::default(), Arc::default());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let heard = async {
        let (answered, _) = tokio::join!(
            hear(stdout, (&answer, ANSWER), true),
            hear(stderr, (&complaint, COMPLAINT), false),
        );
        answered
    };
    let mut heard = std::pin::pin!(heard);
    let is_whole = tokio::select! {
        whole = &mut heard => whole,
        ended = child.wait() => {
            // A daemon that it left behind is its own matter; it is not waited for.
            group.spare();
            let rest = timeout(REST, heard).await;
            return Ok(PluginExit {
                status: ended?,
                answer: taken(&answer),
                is_whole: rest.unwrap_or(true),
                complaint: taken(&complaint),
            });
        }
    };
    if !is_whole {
        group.kill();
    }
    let status = child.wait().await?;
    group.spare();
    Ok(PluginExit {
        status,
        answer: taken(&answer),
        is_whole,
        complaint: taken(&complaint),
    })
}

fn taken(heard: &Mutex<Vec<u8>>) -> Vec<u8> {
    std::mem::take(&mut *heard.lock())
}

/// Reads the output, up to so many bytes: the rest is dropped, or ends the reading where it
/// is `strict`. Whether all of it was read.
async fn hear(
    from: Option<impl AsyncRead + Unpin>,
    (into, most): (&Arc<Mutex<Vec<u8>>>, usize),
    strict: bool,
) -> bool {
    let Some(mut from) = from else { return true };
    let mut piece = [0; 4096];
    let mut is_whole = true;
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        let mut into = into.lock();
        let space = most - into.len();
        into.extend_from_slice(&piece[..read.min(space)]);
        is_whole &= read <= space;
        if strict && !is_whole {
            return false;
        }
    }
    is_whole
}
