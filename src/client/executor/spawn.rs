//! Starting the task's first process: with its user, its rights and nothing of ours.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, CpuSet};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{Gid, Pid, Uid, User};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};

use super::files::{Capabilities, ExecSpec};
use super::world::{self, World};

/// Hands an executor the limit of open files that its task gets: the agent's own is higher.
const OPEN_FILES: &str = "DROVER_OPEN_FILES";
/// What a task's files are made with; ours is stricter.
const TASK_UMASK: Mode = Mode::from_raw_mode(0o022);
/// What a terminal is to programs, unless the task says.
const TERM: &str = "xterm";

/// What an executor has to know of the limits that this process raised for itself.
pub(super) fn own_limits() -> Option<(&'static str, String)> {
    let files = drover_net::inherited_open_files()?;
    Some((OPEN_FILES, files.to_string()))
}

/// Where the task and what runs beside it live.
#[derive(Clone, Copy)]
pub(super) struct SpawnTarget<'a> {
    /// What is to be run, and how.
    pub spec: &'a ExecSpec,
    /// By these one enters its control groups.
    pub groups: &'a [File],
    /// Its namespaces, where they are not the host's.
    pub world: Option<&'a World>,
}

/// Starts the task; its output goes to `out` and `err`.
pub(super) fn spawn(place: SpawnTarget<'_>, (out, err): (OwnedFd, OwnedFd)) -> io::Result<Pid> {
    let spec = place.spec;
    let mut command = Command::new(&spec.command);
    command
        .args(&spec.args)
        .env_clear()
        .envs(spec.env.iter().map(|(k, v)| (k, v)))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0);
    begin(&mut command, place, None)
}

/// Starts a command beside the task, as the task was started, at the head of a session of its own.
/// One descriptor is a terminal, which becomes the session's; three are input, output and errors.
pub(super) fn spawn_beside(
    place: SpawnTarget<'_>,
    call: &[String],
    ends: Vec<OwnedFd>,
) -> io::Result<Pid> {
    let spec = place.spec;
    let none = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "no command, or nothing to talk by",
        )
    };
    let (program, args) = call.split_first().ok_or_else(none)?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(spec.env.iter().map(|(k, v)| (k, v)));
    let ends: Result<[OwnedFd; 3], Vec<OwnedFd>> = ends.try_into();
    let (input, output, errors, terminal) = match ends {
        Ok([input, output, errors]) => (input, output, errors, None),
        Err(one) => {
            let terminal = one.into_iter().next().ok_or_else(none)?;
            if let Some(account) = user(&spec.user)? {
                let owner = rustix::process::Uid::from_raw(account.uid.as_raw());
                rustix::fs::fchown(&terminal, Some(owner), None)?;
            }
            if !spec.env.iter().any(|(name, _)| name == "TERM") {
                command.env("TERM", TERM);
            }
            let of = || terminal.try_clone();
            (of()?, of()?, of()?, Some(terminal))
        }
    };
    command.stdin(input).stdout(output).stderr(errors);
    begin(&mut command, place, Some(terminal))
}

/// Starts a command with what the task's specification says; `session`: leading one, with the
/// terminal it has.
fn begin(
    command: &mut Command,
    place: SpawnTarget<'_>,
    session: Option<Option<OwnedFd>>,
) -> io::Result<Pid> {
    let spec = place.spec;
    let groups = place.groups.iter().map(|file| file.as_fd());
    let program = command.get_program().to_owned();
    let rights = Rights {
        session,
        user: user(&spec.user)?,
        cwd: CString::new(spec.cwd.as_os_str().as_bytes())?,
        cores: cores(&spec.cores)?,
        oom: (spec.oom_score_adj != 0).then(|| spec.oom_score_adj.to_string()),
        groups: groups
            .map(|file| file.try_clone_to_owned())
            .collect::<io::Result<_>>()?,
        door: place.world.map_or_else(|| Ok(Vec::new()), World::door)?,
        capabilities: spec.capabilities,
        files: std::env::var(OPEN_FILES)
            .ok()
            .and_then(|files| files.parse().ok()),
    };
    rights.apply_to(command);
    let child = command
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("failed to start {program:?}: {e}")))?;
    Ok(Pid::from_raw(
        i32::try_from(child.id()).map_err(io::Error::other)?,
    ))
}

/// Cores as the kernel needs them; `None` where it may run on all.
fn cores(list: &[u16]) -> io::Result<Option<CpuSet>> {
    if list.is_empty() {
        return Ok(None);
    }
    let mut set = CpuSet::new();
    for core in list {
        set.set(usize::from(*core))?;
    }
    Ok(Some(set))
}

/// A user as the kernel needs it.
struct Account {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// The named user; `None` when we are that user already, or none is named.
fn user(name: &str) -> io::Result<Option<Account>> {
    if name.is_empty() {
        return Ok(None);
    }
    let user = User::from_name(name)?;
    let user = user.ok_or_else(|| io::Error::other(format!("unknown user {name}")))?;
    if user.uid == nix::unistd::geteuid() {
        return Ok(None);
    }
    Ok(Some(Account {
        uid: user.uid,
        gid: user.gid,
        groups: nix::unistd::getgrouplist(&CString::new(name)?, user.gid)?,
    }))
}

/// What the new process does about itself before it becomes the task.
struct Rights {
    /// It leads a session, with this terminal if there is one.
    session: Option<Option<OwnedFd>>,
    user: Option<Account>,
    cwd: CString,
    cores: Option<CpuSet>,
    oom: Option<String>,
    groups: Vec<OwnedFd>,
    door: Vec<(OwnedFd, CloneFlags)>,
    capabilities: Option<Capabilities>,
    files: Option<u64>,
}

impl Rights {
    #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
    fn apply_to(self, command: &mut Command) {
        // SAFETY: the closure makes async-signal-safe system calls only and allocates nothing: all
        // texts and lists were made before the fork.
        unsafe { command.pre_exec(move || self.take()) };
    }

    fn take(&self) -> io::Result<()> {
        if let Some(terminal) = &self.session {
            rustix::process::setsid()?;
            if let Some(terminal) = terminal {
                rustix::process::ioctl_tiocsctty(terminal)?;
            }
        }
        for group in &self.groups {
            rustix::io::write(group, b"0")?;
        }
        if let Some(cores) = &self.cores {
            nix::sched::sched_setaffinity(Pid::from_raw(0), cores)?;
        }
        if let Some(oom) = &self.oom {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty())?;
            rustix::io::write(file, oom.as_bytes())?;
        }
        if let Some(files) = self.files {
            let limit = rustix::process::getrlimit(Resource::Nofile);
            let lowered = Rlimit {
                current: Some(files),
                maximum: limit.maximum,
            };
            rustix::process::setrlimit(Resource::Nofile, lowered)?;
        }
        world::enter(&self.door)?;
        if let Some(rights) = self.capabilities {
            world::limit_rights(rights, self.user.is_none())?;
        }
        if let Some(user) = &self.user {
            nix::unistd::setgroups(&user.groups)?;
            nix::unistd::setgid(user.gid)?;
            nix::unistd::setuid(user.uid)?;
        }
        if let Some(rights) = self.capabilities {
            world::keep_rights(rights, self.user.is_none())?;
        }
        rustix::process::umask(TASK_UMASK);
        keep_nothing_open();
        nix::unistd::chdir(self.cwd.as_c_str())?;
        reset_signals()
    }
}

/// The task gets no descriptor but its three, whatever the agent was started with or some library
/// opened; a kernel that is too old for it leaves those that nothing closes.
#[expect(unsafe_code, reason = "no library offers this call in safe form")]
fn keep_nothing_open() {
    const FIRST: nix::libc::c_uint = 3;
    const FLAGS: nix::libc::c_uint = nix::libc::CLOSE_RANGE_CLOEXEC;
    let call = nix::libc::SYS_close_range;
    // SAFETY: the call takes numbers only and touches no memory; nothing is closed before the exec,
    // which closes what this process still uses.
    unsafe { nix::libc::syscall(call, FIRST, nix::libc::c_uint::MAX, FLAGS) };
}

/// The task starts with no signal blocked or ignored, whatever the agent was started with.
#[expect(unsafe_code, reason = "handlers are set by an unsafe call")]
fn reset_signals() -> io::Result<()> {
    for signal in Signal::iterator() {
        // SAFETY: the default handler is no code of ours; the call is async-signal-safe.
        // It is refused for the two signals that cannot be caught, which have it anyway.
        let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}
