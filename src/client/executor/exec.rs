//! The agent's side of commands that run beside the task.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Blocking;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::termios::{InputFlags, SetArg, tcgetattr, tcsetattr};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, BufReader, Interest, Lines};
use tokio::net::UnixStream;

use super::files::{ExecutorCall, ExecutorReply, RunDir, SIGNALLED};
use super::guests::{LONGEST, reach};
use super::launch::{Executor, watch};
use crate::proc;

/// How long an executor may take to start a command.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// No executor is there to start it.
    #[error("the task has ended")]
    Gone,
    /// The executor refused it.
    #[error("{0}")]
    NotStarted(String),
    /// The descriptors or the socket could not be made or used.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A command that runs beside the task.
#[derive(Debug)]
pub struct Guest {
    /// What it reads; the terminal, where it has one.
    pub input: Channel,
    /// What it writes; none where it has a terminal.
    pub outputs: Option<[Channel; 2]>,
    /// Its process.
    pub life: Life,
}

/// The process of a command. It is killed with all of its session when this is dropped.
#[derive(Debug)]
pub struct Life {
    lines: Lines<BufReader<UnixStream>>,
    process: (i32, u64),
}

/// One of our ends.
#[derive(Debug)]
pub struct Channel(AsyncFd<OwnedFd>);

impl Channel {
    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(watch(fd, interest)?))
    }

    /// Reads what is there, or waits for something; 0 at the end.
    ///
    /// # Errors
    /// The system's.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut *buf)?)) {
                // A terminal that no process has open any more.
                Ok(Err(e)) if e.raw_os_error() == Some(nix::libc::EIO) => return Ok(0),
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return read,
                Err(_would_wait) => {}
            }
        }
    }

    /// Writes everything, as fast as it is taken.
    ///
    /// # Errors
    /// No process reads it any more.
    pub async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), data)?)) {
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) => data = &data[written?..],
                Err(_would_wait) => {}
            }
        }
        Ok(())
    }

    /// Changes the size of a terminal; the programs that run on it get a signal.
    pub fn resize(&self, height: u16, width: u16) {
        let size = Winsize {
            ws_row: height,
            ws_col: width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let _ = tcsetwinsize(self.0.get_ref(), size);
    }
}

impl Life {
    /// Waits for its end; its exit code, or 128 and the number of the signal that ended it.
    pub async fn ended(&mut self) -> i32 {
        while let Ok(Some(line)) = self.lines.next_line().await {
            if let Ok(ExecutorReply::Ended(code)) = serde_json::from_str(&line) {
                return code;
            }
        }
        // The executor is gone without a word: what it would have killed is killed here.
        let (pid, start) = self.process;
        if proc::is_alive(pid, start)
            && let Some(group) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        SIGNALLED + nix::libc::SIGKILL
    }
}

impl Executor {
    /// Starts a command beside the task, as the task was started: with its user, environment,
    /// directory and limits. With `tty` on a terminal of its own, else on pipes.
    ///
    /// # Errors
    /// It could not be started, or the task has ended.
    pub async fn exec(&self, command: Vec<String>, tty: bool) -> Result<Guest, ExecError> {
        let dir = self.dir().clone();
        let call = ExecutorCall {
            command,
            measure_ms: None,
        };
        let begun = tokio::task::spawn_blocking(move || {
            let (ours, theirs) = if tty { terminal() } else { pipes() }?;
            Ok::<_, ExecError>((ask(&dir, &call, &theirs)?, ours))
        });
        let (stream, ours) = begun.await.map_err(io::Error::other)??;
        let mut lines = BufReader::new(UnixStream::from_std(stream)?).lines();
        let answer = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let silent = || ExecError::NotStarted("the executor does not answer".to_owned());
        let line = answer.map_err(|_| silent())?.map_err(gone)?;
        let line = line.ok_or(ExecError::Gone)?;
        let process = match serde_json::from_str(&line).map_err(io::Error::other)? {
            ExecutorReply::Started { pid, start } => (pid, start),
            ExecutorReply::Failed(why) => return Err(ExecError::NotStarted(why)),
            ExecutorReply::Ended(_)
            | ExecutorReply::Sample { .. }
            | ExecutorReply::NoSample { .. } => return Err(silent()),
        };
        let mut ours = ours.into_iter();
        let mut next = |interest| ours.next().map(|fd| Channel::new(fd, interest)).transpose();
        let of_input = match tty {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::WRITABLE,
        };
        let input = next(of_input)?.ok_or_else(silent)?;
        let (output, errors) = (next(Interest::READABLE)?, next(Interest::READABLE)?);
        Ok(Guest {
            input,
            outputs: output.zip(errors).map(<[Channel; 2]>::from),
            life: Life { lines, process },
        })
    }
}

/// Descriptors: ours, and those that the command gets.
type Ends = (Vec<OwnedFd>, Vec<OwnedFd>);

fn pipes() -> io::Result<Ends> {
    let (input, to_input) = io::pipe()?;
    let (from_output, output) = io::pipe()?;
    let (from_errors, errors) = io::pipe()?;
    let ours = vec![to_input.into(), from_output.into(), from_errors.into()];
    Ok((ours, vec![input.into(), output.into(), errors.into()]))
}

fn terminal() -> io::Result<Ends> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let ours = nix::pty::posix_openpt(flags)?;
    nix::pty::grantpt(&ours)?;
    nix::pty::unlockpt(&ours)?;
    let path = nix::pty::ptsname_r(&ours)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(path, flags, Mode::empty())?;
    let mut settings = tcgetattr(&theirs)?;
    // What is erased is a character, not a byte.
    settings.input_flags |= InputFlags::IUTF8;
    tcsetattr(&theirs, SetArg::TCSANOW, &settings)?;
    Ok((vec![ours.as_fd().try_clone_to_owned()?], vec![theirs]))
}

/// Sends the executor a request; the connection by which it answers, and which ends it.
pub(super) fn ask(
    dir: &RunDir,
    call: &ExecutorCall,
    ends: &[OwnedFd],
) -> Result<Blocking, ExecError> {
    let mut line = serde_json::to_vec(call).map_err(io::Error::other)?;
    line.push(b'\n');
    if line.len() > LONGEST {
        return Err(ExecError::NotStarted("the command is too long".to_owned()));
    }
    let (_held, path) = reach(dir).map_err(gone)?;
    let stream = Blocking::connect(path).map_err(gone)?;
    let ends: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !ends.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(&ends)) {
        return Err(io::Error::other("too many descriptors").into());
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    let sent = sendmsg(
        &stream,
        &[IoSlice::new(&line)],
        &mut rights,
        SendFlags::NOSIGNAL,
    );
    let sent = sent.map_err(io::Error::from);
    let sent = sent.and_then(|n| io::Write::write_all(&mut &stream, &line[n..]));
    match sent.map_err(gone) {
        // An executor at its limit says so and closes without reading: its answer is still to be
        // read.
        Ok(()) | Err(ExecError::Gone) => {}
        Err(e) => return Err(e),
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Where there is no socket, or no process behind it, there is no executor.
fn gone(error: io::Error) -> ExecError {
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => ExecError::Gone,
        _ => error.into(),
    }
}
