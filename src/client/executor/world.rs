//! The namespaces of a task, and the process that holds them.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rustix::process::{DumpableBehavior, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::files::{Capabilities, ExecSpec};
use super::mounts;

/// What an init says when all is made.
const READY: &str = "ready";
/// What it is called.
const NAME: &CStr = c"drover-init";
/// No right has a higher number.
const HIGHEST: u32 = 63;

/// The namespaces of a task.
#[derive(Debug)]
pub(super) struct World {
    /// The process that holds them.
    pub(super) init: Pid,
    spaces: Vec<(OwnedFd, CloneFlags)>,
}

impl World {
    /// Makes them. Every process that this one starts from then on is in the namespace of processes
    /// that it requested; the first of them is the init, and all die with it.
    ///
    /// # Errors
    /// What could not be made, in words; nothing is left of the rest.
    pub(super) fn make(spec: &ExecSpec) -> io::Result<Self> {
        // What we start is us until it becomes the task: no process in there may look into it
        // before.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let network = spec.namespaces.network.as_ref().map(File::open);
        let network: Option<OwnedFd> = network.transpose()?.map(OwnedFd::from);
        if spec.namespaces.pid {
            nix::sched::unshare(CloneFlags::CLONE_NEWPID)?;
        }
        let (mut reader, writer) = io::pipe()?;
        let init = start_init(spec, network.as_ref(), writer)?;
        let mut word = String::new();
        reader.read_to_string(&mut word)?;
        if word != READY {
            let silent = word.is_empty().then(|| "it says nothing".to_owned());
            let why = silent.unwrap_or(word);
            return Err(io::Error::other(format!("cannot isolate the task: {why}")));
        }
        let mut spaces = vec![(space(init, "mnt")?, CloneFlags::CLONE_NEWNS)];
        if spec.namespaces.ipc {
            spaces.push((space(init, "ipc")?, CloneFlags::CLONE_NEWIPC));
        }
        spaces.extend(network.map(|file| (file, CloneFlags::CLONE_NEWNET)));
        Ok(Self { init, spaces })
    }

    /// What is needed to enter it.
    pub(super) fn door(&self) -> io::Result<Vec<(OwnedFd, CloneFlags)>> {
        let spaces = self.spaces.iter();
        spaces
            .map(|(fd, kind)| Ok((fd.try_clone()?, *kind)))
            .collect()
    }
}

/// Enters namespaces; makes system calls only.
pub(super) fn enter(door: &[(OwnedFd, CloneFlags)]) -> io::Result<()> {
    // That of the mounts comes first in the list and is entered last: the others are files too.
    for (fd, kind) in door.iter().rev() {
        setns(fd, *kind)?;
    }
    Ok(())
}

fn space(init: Pid, kind: &str) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/{init}/ns/{kind}"))?.into())
}

#[expect(unsafe_code, reason = "no library forks in safe form")]
fn start_init(spec: &ExecSpec, network: Option<&OwnedFd>, writer: PipeWriter) -> io::Result<Pid> {
    // SAFETY: the executor has one thread, so its copy may do whatever it itself may.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let code = init(spec, network, writer);
            // SAFETY: ends this process without running what others registered for its end.
            unsafe { nix::libc::_exit(code) }
        }
    }
}

/// The life of an init; comes back only when it fails.
fn init(spec: &ExecSpec, network: Option<&OwnedFd>, mut writer: PipeWriter) -> i32 {
    let made = prepare(spec, network).and_then(|()| let_go(writer.as_fd()));
    let written = match &made {
        Ok(()) => writer.write_all(READY.as_bytes()),
        Err(e) => writer.write_all(e.to_string().as_bytes()),
    };
    drop(writer);
    // Without a reader the executor is gone, and we are not wanted.
    if made.is_err() || written.is_err() {
        return 1;
    }
    hold()
}

fn prepare(spec: &ExecSpec, network: Option<&OwnedFd>) -> io::Result<()> {
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    if let Some(network) = network {
        setns(network, CloneFlags::CLONE_NEWNET)?;
    }
    mounts::make(spec)
}

/// Closes everything but `kept`: the task's output ends when the task's own ends are closed.
fn let_go(kept: BorrowedFd<'_>) -> io::Result<()> {
    let _ = rustix::thread::set_name(NAME);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    drop(null);
    let kept = nix::libc::c_uint::try_from(kept.as_raw_fd()).map_err(io::Error::other)?;
    if kept > 3 {
        close_range(3, kept - 1);
    }
    close_range(kept + 1, nix::libc::c_uint::MAX);
    Ok(())
}

#[expect(unsafe_code, reason = "no library offers this call in safe form")]
fn close_range(first: nix::libc::c_uint, last: nix::libc::c_uint) {
    // SAFETY: this process ends without using any descriptor in that range again: an owner of one
    // in a copied value never drops it, for the process ends by `_exit`.
    unsafe { nix::libc::syscall(nix::libc::SYS_close_range, first, last, 0) };
}

/// Takes the statuses of what is left behind, for ever: it dies with the executor.
fn hold() -> i32 {
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    loop {
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            if status == WaitStatus::StillAlive {
                break;
            }
        }
        if child.wait().is_err() {
            return 1;
        }
    }
}

/// Gives up all rights but these; `as_root`: the process stays root. To be followed by
/// [`keep_rights`] when the user has changed; makes system calls only.
pub(super) fn limit_rights(rights: Capabilities, as_root: bool) -> io::Result<()> {
    for number in 0..=HIGHEST {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if rights.bounding & (1 << number) != 0 {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel has no more.
            Err(rustix::io::Errno::INVAL) => break,
            Err(e) => return Err(e.into()),
        }
    }
    if !as_root {
        rustix::thread::set_keep_capabilities(true)?;
    }
    Ok(())
}

/// Takes the rights that are left: those of root, or the ambient ones of another user. No program
/// that it starts can have more.
pub(super) fn keep_rights(rights: Capabilities, as_root: bool) -> io::Result<()> {
    let had = rustix::thread::capabilities(None)?.permitted.bits();
    let wanted = if as_root {
        rights.bounding
    } else {
        rights.ambient & rights.bounding
    };
    let inheritable = if as_root { 0 } else { wanted & had };
    let own = CapabilitySet::from_bits_retain(wanted & had);
    let sets = CapabilitySets {
        effective: own,
        permitted: own,
        inheritable: CapabilitySet::from_bits_retain(inheritable),
    };
    rustix::thread::set_capabilities(None, sets)?;
    for number in 0..=HIGHEST {
        if inheritable & (1 << number) != 0 {
            let one = CapabilitySet::from_bits_retain(1 << number);
            rustix::thread::configure_capability_in_ambient_set(one, true)?;
        }
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}
