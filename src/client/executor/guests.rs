//! Commands that run beside the task: started by the executor, so that they are in the task's tree,
//! and end with it. And connections that measure what the task uses.
//!
//! A caller connects to a socket of the run directory, and holds the connection for as long as
//! the command is to run, or it is to be measured: when it is closed, the command's session is
//! killed.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::files::{ExecutorCall, ExecutorReply, RunDir};
use super::measured::Measured;
use super::spawn::{SpawnTarget, spawn_beside};
use super::tree;
use crate::proc;

/// How many may run at once.
const MOST: usize = 64;
/// How many may measure at once.
const MOST_MEASURED: usize = 8;
/// The longest request, bytes: a command line.
pub(super) const LONGEST: usize = 256 << 10;
/// How much of a request is read at once, bytes.
const PIECE: usize = 16 << 10;

/// The commands beside a task.
#[derive(Default)]
pub(super) struct Guests {
    /// `None` where it could not be made: then there is no way to run commands.
    door: Option<UnixListener>,
    all: Vec<Guest>,
}

/// A caller that requests a command, or whose command runs.
struct Guest {
    stream: UnixStream,
    received: Vec<u8>,
    ends: Vec<OwnedFd>,
    process: Option<Pid>,
    /// What it gets to know of the task.
    measured: Option<Measured>,
}

/// What a look at a caller's connection shows.
enum GuestPoll {
    /// Nothing to be done.
    Nothing,
    /// It requests this.
    Asks(ExecutorCall, Vec<OwnedFd>),
    /// It is gone, or talks nonsense.
    Gone,
}

impl Guests {
    /// Opens the door.
    ///
    /// # Errors
    /// An error of the system.
    pub(super) fn open(dir: &RunDir) -> io::Result<Self> {
        let (_held, path) = reach(dir)?;
        let door = UnixListener::bind(path)?;
        door.set_nonblocking(true)?;
        Ok(Self {
            door: Some(door),
            all: Vec::new(),
        })
    }

    /// What is to be waited for.
    pub(super) fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let guests = self.all.iter().map(|guest| {
            let more = guest.measured.as_ref().is_some_and(Measured::has_more);
            let write = if more {
                PollFlags::POLLOUT
            } else {
                PollFlags::empty()
            };
            PollFd::new(guest.stream.as_fd(), PollFlags::POLLIN | write)
        });
        let door = self.door.iter().map(AsFd::as_fd);
        door.map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .chain(guests)
    }

    /// When the next sample is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let all = self.all.iter().filter_map(|guest| guest.measured.as_ref());
        all.map(Measured::due).min()
    }

    /// Accepts callers that wait, starts what is requested, and kills what no caller waits for any
    /// more.
    pub(super) fn serve(&mut self, place: SpawnTarget<'_>, runs: bool) {
        while let Some(Ok((stream, _))) = self.door.as_ref().map(UnixListener::accept) {
            let commands = self.all.iter().filter(|guest| guest.measured.is_none());
            if commands.count() < MOST && stream.set_nonblocking(true).is_ok() {
                self.all.push(Guest {
                    stream,
                    received: Vec::new(),
                    ends: Vec::new(),
                    process: None,
                    measured: None,
                });
            } else {
                let text = format!("{MOST} commands run beside this task: no more are started");
                report(&stream, &ExecutorReply::Failed(text));
            }
        }
        let mut stay = Vec::with_capacity(self.all.len());
        let measured = self.all.iter().filter(|guest| guest.measured.is_some());
        let mut free = MOST_MEASURED.saturating_sub(measured.count());
        for mut guest in self.all.drain(..) {
            let stays = match guest.look() {
                GuestPoll::Nothing => guest.measure(place),
                GuestPoll::Asks(call, ends) => match call.measure_ms {
                    Some(every) => {
                        let begun = guest.begin_to_measure(every, free > 0, runs);
                        free = free.saturating_sub(usize::from(begun));
                        begun && guest.measure(place)
                    }
                    None => guest.start(&call, ends, place, runs),
                },
                GuestPoll::Gone => {
                    guest.kill();
                    false
                }
            };
            if stays {
                stay.push(guest);
            }
        }
        self.all = stay;
    }

    /// The task ended: callers that measure get that, after what was not sent to them yet.
    pub(super) fn task_ended(&mut self, code: i32) {
        self.all.retain_mut(|guest| {
            if let Some(measured) = &mut guest.measured {
                measured.end(&guest.stream, code);
            }
            guest.measured.is_none()
        });
    }

    /// A child ended: the caller that waits for it is notified.
    pub(super) fn ended(&mut self, pid: Pid, code: i32) {
        let place = self.all.iter().position(|guest| guest.process == Some(pid));
        if let Some(place) = place {
            let guest = self.all.swap_remove(place);
            report(&guest.stream, &ExecutorReply::Ended(code));
        }
    }
}

/// A path of the socket that is short enough for the system, for as long as the descriptor is held.
pub(super) fn reach(dir: &RunDir) -> io::Result<(OwnedFd, String)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(&dir.0, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{}", held.as_raw_fd(), RunDir::SOCKET);
    Ok((held, path))
}

/// One line, to a caller that may be gone; it always fits.
fn report(mut stream: &UnixStream, reply: &ExecutorReply) {
    if let Ok(mut line) = serde_json::to_vec(reply) {
        line.push(b'\n');
        let _ = stream.write_all(&line);
    }
}

impl Guest {
    fn look(&mut self) -> GuestPoll {
        let mut buf = vec![0; PIECE];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut rights = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut buf)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let n = match recvmsg(&self.stream, &mut into, &mut rights, flags) {
                Ok(read) => read.bytes,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return GuestPoll::Nothing,
                Err(_) => return GuestPoll::Gone,
            };
            for message in rights.drain() {
                if let RecvAncillaryMessage::ScmRights(ends) = message {
                    self.ends.extend(ends);
                }
            }
            if n == 0 {
                return GuestPoll::Gone;
            }
            if self.process.is_some() || self.measured.is_some() {
                continue;
            }
            self.received.extend_from_slice(&buf[..n]);
            if self.received.ends_with(b"\n") {
                let received = std::mem::take(&mut self.received);
                return match serde_json::from_slice(&received) {
                    Ok(call) => GuestPoll::Asks(call, std::mem::take(&mut self.ends)),
                    Err(_) => GuestPoll::Gone,
                };
            }
            if self.received.len() > LONGEST {
                return GuestPoll::Gone;
            }
        }
    }

    /// Starts what is requested; whether there is anything to wait for.
    fn start(
        &mut self,
        call: &ExecutorCall,
        ends: Vec<OwnedFd>,
        place: SpawnTarget<'_>,
        runs: bool,
    ) -> bool {
        if !runs {
            report(
                &self.stream,
                &ExecutorReply::Failed("the task has ended".to_owned()),
            );
            return false;
        }
        match spawn_beside(place, &call.command, ends) {
            Ok(process) => {
                self.process = Some(process);
                let pid = process.as_raw();
                let start = proc::stat(pid).map_or(0, |s| s.start);
                report(&self.stream, &ExecutorReply::Started { pid, start });
                true
            }
            Err(e) => {
                report(&self.stream, &ExecutorReply::Failed(e.to_string()));
                false
            }
        }
    }

    /// Measures from now on, if that can be; whether there is anything to wait for.
    fn begin_to_measure(&mut self, every_ms: u64, is_space: bool, runs: bool) -> bool {
        let refused = |why: &str, recoverable| ExecutorReply::NoSample {
            why: why.to_owned(),
            recoverable,
        };
        let reply = match (runs, every_ms, is_space) {
            // The code of the end is reported elsewhere.
            (false, _, _) => ExecutorReply::Ended(0),
            (true, 0, _) => refused("no time passes between two samples", false),
            (true, _, false) => refused("too many measure this task", true),
            (true, _, true) => {
                self.measured = Some(Measured::every(every_ms));
                return true;
            }
        };
        report(&self.stream, &reply);
        false
    }

    /// Sends what is due of the task; whether there is anything more to wait for.
    fn measure(&mut self, place: SpawnTarget<'_>) -> bool {
        let Some(measured) = &mut self.measured else {
            return true;
        };
        measured.go_on(&self.stream, place)
    }

    fn kill(&self) {
        if let Some(process) = self.process {
            let own = rustix::process::getpid().as_raw_nonzero().get();
            tree::kill_session(own, process.as_raw());
        }
    }
}
