//! What was logged before: the agent's own file, or the journal of a service of the machine.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use drover_events::gojson::parse_duration;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use crate::client::endpoints::FileFrame;
use crate::error::{Code, Refusal};

/// The longest piece, bytes.
const PIECE: usize = 64 << 10;
/// Pieces that wait to be sent.
const WINDOW: usize = 8;
/// How often a silent stream says that it is alive.
const ALIVE: Duration = Duration::from_secs(1);
/// How long what a journal says first is waited for before it counts as readable.
const PATIENCE: Duration = Duration::from_secs(2);
/// How far back a journal is read by default.
pub const USUAL_SINCE: &str = "72h";
/// The longest name of a service, as systemd has it.
const LONGEST_NAME: usize = 255;
/// What a name ends in.
const KINDS: [&str; 11] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "slice",
    "scope",
];
/// The journals that are exported: this agent's, and that of the peer it may stand beside.
const OWN: [&str; 2] = ["nomad", "drover"];

/// The request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExportRequest {
    /// How far back; 72 hours where it is empty.
    pub logs_since: String,
    /// The service whose journal it is.
    pub service_name: String,
    /// The agent's own file instead.
    pub on_disk: bool,
    /// Continue with what is written later.
    pub follow: bool,
    /// The lines alone, not wrapped in JSON.
    #[serde(rename = "PlainText")]
    pub plain: bool,
    /// The client whose log it is.
    #[serde(rename = "NodeID")]
    pub node_id: String,
    /// The server whose log it is.
    #[serde(rename = "ServerID")]
    pub server_id: String,
}

/// What was logged; `file` is where the agent writes its log. Must be called in a runtime.
///
/// # Errors
/// 400 for what cannot be meant; 404 where there is no such log; 501 where there is no journal.
pub async fn export(
    request: &ExportRequest,
    file: Option<&Path>,
) -> Result<mpsc::Receiver<FileFrame>, Refusal> {
    request.check()?;
    if request.on_disk {
        let none = "this agent writes its log to its standard error only: log_file is not set";
        let file = file.ok_or_else(|| Refusal::not_found(none))?;
        return on_disk(file).await;
    }
    let since = since(&request.logs_since)?;
    journal("journalctl", &request.service_name, since, request.follow).await
}

impl ExportRequest {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// 400.
    pub fn check(&self) -> Result<(), Refusal> {
        let bad = |text: &str| Err(Refusal::bad_request(text));
        match (self.on_disk, self.service_name.as_str()) {
            (false, "") => bad("Either -service-name or -on-disk must be set"),
            (true, name) if !name.is_empty() => {
                bad("Cannot target journald and nomad log file simultaneously")
            }
            (true, _) if self.follow => bad("Cannot follow log file"),
            (true, _) => Ok(()),
            (false, name) => {
                check_name(name)?;
                since(&self.logs_since).map(drop)
            }
        }
    }
}

/// How many may have something exported at a time.
const MOST: usize = 64;
static TURNS: Semaphore = Semaphore::const_new(MOST);

/// The agent's file as it is now.
async fn on_disk(path: &Path) -> Result<mpsc::Receiver<FileFrame>, Refusal> {
    let shown = path.display().to_string();
    let failed = |error: std::io::Error| {
        Refusal::not_found(format!("the log file {shown} cannot be read: {error}"))
    };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let length = file.metadata().await.map_err(failed)?.len();
    let name = path.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let mut file = file.take(length);
    let turn = turn()?;
    let (tx, rx) = mpsc::channel(WINDOW);
    // A slow reader holds no thread: only the reading of a piece does.
    tokio::spawn(async move {
        let _turn = turn;
        let mut offset = 0;
        loop {
            let mut data = vec![0; PIECE];
            let read = match file.read(&mut data).await {
                Ok(0) | Err(_) => return,
                Ok(read) => read,
            };
            data.truncate(read);
            offset += read as u64;
            let frame = FileFrame {
                offset,
                data,
                file: name.clone(),
                ..FileFrame::default()
            };
            if tx.send(frame).await.is_err() {
                return;
            }
        }
    });
    Ok(rx)
}

/// One of the exports that may run at once.
fn turn() -> Result<SemaphorePermit<'static>, Refusal> {
    TURNS.try_acquire().map_err(|_| {
        let text = format!("{MOST} have logs exported already, which is the most");
        Refusal::new(Code::TooManyRequests, text)
    })
}

/// A name is one of a unit of ours, and nothing that a command could take for anything else.
fn check_name(name: &str) -> Result<(), Refusal> {
    let bad = |text: String| Err(Refusal::bad_request(text));
    if name.len() > LONGEST_NAME {
        return bad("service name too long".to_owned());
    }
    if !OWN.iter().any(|own| name.contains(own)) {
        return bad("service name must include nomad or drover".to_owned());
    }
    let (prefix, kind) = match name.rsplit_once('.') {
        Some((prefix, kind)) => (prefix, Some(kind)),
        None => (name, None),
    };
    if kind.is_some_and(|kind| !KINDS.contains(&kind)) {
        return bad(format!("{name} does not end in the kind of a unit"));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '\\' | ':');
    let (unit, instance) = prefix.split_once('@').unwrap_or((prefix, ""));
    let fine = !unit.starts_with('-') && unit.chars().chain(instance.chars()).all(good);
    match fine {
        true => Ok(()),
        false => bad(format!("{name} does not meet systemd conventions")),
    }
}

/// The beginning as the journal's command takes it: seconds of the clock.
fn since(text: &str) -> Result<String, Refusal> {
    let text = if text.is_empty() { USUAL_SINCE } else { text };
    let back = parse_duration(text).filter(|nanos| *nanos >= 0);
    let back = back.ok_or_else(|| {
        Refusal::bad_request(format!("Unknown duration for logs_since: {text:?}"))
    })?;
    let begin = (crate::base::clock::unix_nanos() - back).max(0) / 1_000_000_000;
    Ok(format!("--since=@{begin}"))
}

/// What the journal's command says of a unit.
async fn journal(
    program: &str,
    name: &str,
    since: String,
    follow: bool,
) -> Result<mpsc::Receiver<FileFrame>, Refusal> {
    let mut command = Command::new(program);
    command
        .args(["--no-pager", "--quiet", "--output=short-iso"])
        .arg(format!("--unit={name}"))
        .arg(since)
        .args(follow.then_some("--follow"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let absent = |error: std::io::Error| {
        let text = format!(
            "the journal of a service is not supported by this version: {program} cannot be run on \
             this machine: {error}; on_disk reads the agent's own log_file"
        );
        Refusal::new(Code::NotImplemented, text)
    };
    let turn = turn()?;
    let mut child = command.spawn().map_err(absent)?;
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Refusal::internal("a command without its output"));
    };
    // One that cannot be read says so at once; a quiet one that is followed says nothing at all.
    let mut first = vec![0; PIECE];
    let read = tokio::time::timeout(PATIENCE, out.read(&mut first)).await;
    let read = read.unwrap_or(Ok(usize::MAX));
    if let Ok(0) = read {
        let mut stderr = String::new();
        let mut heard = (&mut err).take(PIECE as u64);
        let ended = async {
            let _ = heard.read_to_string(&mut stderr).await;
            child.wait().await.is_ok_and(|status| status.success())
        };
        if !tokio::time::timeout(PATIENCE, ended).await.unwrap_or(false) {
            let text = format!("the journal of {name} cannot be read: {}", stderr.trim());
            return Err(Refusal::not_found(text));
        }
    }
    match read {
        Ok(usize::MAX) | Err(_) => first.clear(),
        Ok(read) => first.truncate(read),
    }
    let (tx, rx) = mpsc::channel(WINDOW);
    tokio::spawn(async move {
        let _turn = turn;
        send(child, first, out, tx).await;
    });
    Ok(rx)
}

/// Sends what a command writes until the command ends or the receiver is gone; the command is ended
/// then.
async fn send(
    child: Child,
    first: Vec<u8>,
    mut out: impl AsyncRead + Unpin,
    tx: mpsc::Sender<FileFrame>,
) {
    let _child = child;
    let frame = |data| FileFrame {
        data,
        ..FileFrame::default()
    };
    if !first.is_empty() && tx.send(frame(first)).await.is_err() {
        return;
    }
    loop {
        let mut data = vec![0; PIECE];
        let read = tokio::select! {
            () = tx.closed() => return,
            read = tokio::time::timeout(ALIVE, out.read(&mut data)) => read,
        };
        let next = match read {
            Err(_) => Vec::new(),
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(read)) => {
                data.truncate(read);
                data
            }
        };
        if tx.send(frame(next)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use drover_testkit::until;

    async fn all(mut rx: mpsc::Receiver<FileFrame>) -> String {
        let mut bytes = Vec::new();
        while let Some(frame) = rx.recv().await {
            bytes.extend(frame.data);
        }
        String::from_utf8(bytes).expect("text")
    }

    #[tokio::test]
    async fn mod_23_the_agents_own_file_is_told_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("agent.log");
        let text = "a line\n".repeat(PIECE / 4);
        std::fs::write(&path, &text).expect("written");
        let mut request = ExportRequest {
            on_disk: true,
            ..ExportRequest::default()
        };
        let reported = export(&request, Some(&path)).await.expect("a log");
        assert_eq!(all(reported).await, text);
        let none = export(&request, None).await.expect_err("no file");
        assert!(none.message.contains("log_file is not set"), "{none}");
        let gone = export(&request, Some(&dir.path().join("x"))).await;
        assert_eq!(gone.expect_err("no file").code, Code::NotFound);
        request.follow = true;
        let error = export(&request, Some(&path)).await.expect_err("refused");
        assert_eq!(error.message, "Cannot follow log file");
        request.service_name = "nomad".to_owned();
        let error = export(&request, Some(&path)).await.expect_err("refused");
        let text = "Cannot target journald and nomad log file simultaneously";
        assert_eq!(error.message, text);
        let error = export(&ExportRequest::default(), None).await;
        let text = "Either -service-name or -on-disk must be set";
        assert_eq!(error.expect_err("refused").message, text);
    }

    #[test]
    fn mod_23_who_reads_an_export_slowly_holds_no_thread() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("agent.log");
        std::fs::write(&path, vec![b'x'; PIECE * (WINDOW + 4)]).expect("written");
        let few = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        few.block_on(async {
            let mut slow = Vec::new();
            for _ in 0..8 {
                slow.push(on_disk(&path).await.expect("a turn"));
            }
            for one in &slow {
                until("it is full", || one.len() == WINDOW).await;
            }
            // Whatever runs where it may wait runs all the same.
            let looked = tokio::task::spawn_blocking(|| 7);
            let looked = tokio::time::timeout(drover_testkit::LONG, looked).await;
            assert_eq!(looked.expect("in time").expect("it ran"), 7);
            for one in slow {
                assert_eq!(all(one).await.len(), PIECE * (WINDOW + 4));
            }
        });
    }

    #[test]
    fn mod_23_a_name_is_that_of_a_unit_and_no_option() {
        for name in [
            "nomad",
            "drover.service",
            "nomad-client@a1.service",
            "x_drover",
        ] {
            check_name(name).expect(name);
        }
        let long = format!("nomad{}", "x".repeat(255));
        for name in [
            "ssh",
            "-nomad",
            "--follow=nomad",
            "nomad --vacuum-size=1",
            "nomad;ls",
            "nomad\n",
            "nomad.exe",
            "nomad/../ssh",
            "nomad*",
            "-@nomad",
            &long,
        ] {
            let error = check_name(name).expect_err(name);
            assert_eq!(error.code, Code::BadRequest, "{name}");
        }
        assert!(since("").is_ok() && since("90m").is_ok());
        for text in ["x", "-1h", "--1h"] {
            assert!(since(text).is_err(), "{text}");
        }
    }

    /// A command in the journal's place.
    fn instead(dir: &Path, script: &str) -> String {
        let path = dir.join("journalctl");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("set");
        path.display().to_string()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mod_23_a_journal_is_told_and_one_that_cannot_be_read_is_said() {
        let dir = tempfile::tempdir().expect("a directory");
        let since = || "--since=@0".to_owned();
        let echo = instead(dir.path(), "echo \"$@\"");
        let reported = journal(&echo, "nomad", since(), false).await.expect("runs");
        let words = "--no-pager --quiet --output=short-iso --unit=nomad --since=@0\n";
        assert_eq!(all(reported).await, words);
        let quiet = instead(dir.path(), "exit 0");
        let reported = journal(&quiet, "nomad", since(), false)
            .await
            .expect("runs");
        assert_eq!(all(reported).await, "");
        let broken = instead(dir.path(), "echo no journal files >&2; exit 1");
        let error = journal(&broken, "nomad", since(), false).await;
        let error = error.expect_err("it failed");
        assert_eq!(
            error.message,
            "the journal of nomad cannot be read: no journal files"
        );
        let error = journal("/nowhere/journalctl", "nomad", since(), false).await;
        let error = error.expect_err("there is none");
        assert_eq!(error.code, Code::NotImplemented, "{error}");
        // An export that is followed ends with its receiver.
        let pid = dir.path().join("pid");
        let script = format!("echo $$ > {}; echo begun; exec sleep 1000", pid.display());
        let endless = instead(dir.path(), &script);
        let mut reported = journal(&endless, "nomad", since(), true)
            .await
            .expect("runs");
        assert_eq!(reported.recv().await.expect("a piece").data, b"begun\n");
        assert_eq!(reported.recv().await.expect("it lives").data, b"");
        drop(reported);
        let pid = std::fs::read_to_string(&pid).expect("a number");
        let path = format!("/proc/{}/cmdline", pid.trim());
        // What is left of it until it is waited for has no command line.
        until("it is gone", || {
            !std::fs::read(&path).is_ok_and(|line| !line.is_empty())
        })
        .await;
    }
}
