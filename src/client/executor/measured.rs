//! What the executor reports of the task to a caller that measures it: a sample at once, and one
//! after every interval, for as long as the task runs.
//!
//! No caller that is slow to read holds up the executor: what does not fit waits until it fits,
//! and no sample is taken meanwhile.

use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::cgroup::Groups;
use super::files::ExecutorReply;
use super::spawn::SpawnTarget;
use crate::proc;
use drover_base::clock::unix_nanos;

/// A caller that measures.
pub(super) struct Measured {
    every: Duration,
    next: Instant,
    /// What was not taken yet.
    unsent: Vec<u8>,
    /// Nothing follows it.
    is_over: bool,
}

impl Measured {
    /// A caller that wants a sample after every so many milliseconds.
    pub(super) fn every(milliseconds: u64) -> Self {
        Self {
            every: Duration::from_millis(milliseconds),
            next: Instant::now(),
            unsent: Vec::new(),
            is_over: false,
        }
    }

    /// There is something that was not taken yet.
    pub(super) fn has_more(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// When the next sample is due.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// Sends what is due of the task that lives there; whether more follows.
    pub(super) fn go_on(&mut self, stream: &UnixStream, place: SpawnTarget<'_>) -> bool {
        let now = Instant::now();
        if self.next <= now {
            // One that is late is not made up for.
            self.next = now.checked_add(self.every).unwrap_or(now + FAR);
            if let (true, Some(reply)) = (self.unsent.is_empty(), sample(place)) {
                self.say(&reply);
            }
        }
        self.send(stream).is_ok() && (!self.is_over || self.has_more())
    }

    /// The task ended.
    pub(super) fn end(&mut self, stream: &UnixStream, code: i32) {
        self.say(&ExecutorReply::Ended(code));
        // A caller that has not read until now does not wait for this.
        let _ = self.send(stream);
    }

    fn say(&mut self, reply: &ExecutorReply) {
        self.is_over |= matches!(reply, ExecutorReply::NoSample { .. });
        if let Ok(line) = serde_json::to_vec(reply) {
            self.unsent.extend_from_slice(&line);
            self.unsent.push(b'\n');
        }
    }

    fn send(&mut self, mut stream: &UnixStream) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match stream.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// As good as never.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What the executor's own tree has used, without the init of the task's namespaces; nothing where
/// all of it has died a moment ago.
fn sample(place: SpawnTarget<'_>) -> Option<ExecutorReply> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut all = proc::descendants(own);
    let init = place.world.map(|world| world.init.as_raw());
    all.retain(|process| init != Some(process.pid));
    if all.is_empty() {
        // A process that died is seen until the executor has taken notice: the kernel's files are
        // not open to it.
        return Some(ExecutorReply::NoSample {
            why: "the processes of the task cannot be seen".to_owned(),
            recoverable: true,
        });
    }
    let mut usage = proc::used(all);
    usage.group = Groups::of(place.spec).usage();
    (!usage.pids.is_empty()).then(|| ExecutorReply::Sample {
        at: unix_nanos(),
        usage,
    })
}
