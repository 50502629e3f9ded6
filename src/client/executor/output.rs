//! The reading end of a task's output: pipe to rotating file, never blocking the task.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};

use super::rotate::Rotator;

/// Bytes read from a pipe at once; a pipe's capacity on Linux.
const CHUNK: usize = 64 * 1024;

/// One stream; `pipe` is `None` after its end.
pub(super) struct Output {
    pipe: Option<PipeReader>,
    log: Option<Rotator>,
    /// Bytes that could not be written, to be reported once.
    lost: u64,
}

impl Output {
    pub(super) fn new(pipe: PipeReader, log: Option<Rotator>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self {
            pipe: Some(pipe),
            log,
            lost: 0,
        })
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Moves what is there; at most a few chunks, so that no stream starves the other.
    pub(super) fn pump(&mut self, buf: &mut Vec<u8>) {
        buf.resize(CHUNK, 0);
        for _ in 0..8 {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(buf) {
                Ok(0) => self.pipe = None,
                Ok(n) => self.keep(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.pipe = None,
            }
        }
    }

    /// A full disk costs output, never the task.
    fn keep(&mut self, bytes: &[u8]) {
        let Some(log) = &mut self.log else { return };
        match log.write(bytes) {
            Ok(()) => self.lost = 0,
            Err(e) => {
                if self.lost == 0 {
                    let _ = io::Write::write_all(
                        &mut io::stderr(),
                        format!("output lost: {e}\n").as_bytes(),
                    );
                }
                self.lost += bytes.len() as u64;
            }
        }
    }
}
