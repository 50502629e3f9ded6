//! The keys of a run: a session keyring of its own, with none of the agent's keys.
//!
//! An agent that a user started from a session, or a service manager from its own, holds the
//! keys of that session, and so would all that it starts: the kernel hands the keyring down as it
//! does a terminal. An executor lets go of it first of all; its task, and commands beside the task,
//! share the one that it has then. It is empty, and goes with the last of them.

use std::io;

use nix::libc;

/// The kernel's number for joining a session keyring; without a name it is a new one.
const JOIN: libc::c_long = 1;

/// Gives this process an empty session keyring. A kernel that has no keys, or refuses the call to
/// all that run here, keeps no keys from any process.
///
/// # Errors
/// The quota of keyrings is used up.
#[expect(unsafe_code, reason = "no library offers this call in safe form")]
pub(super) fn leave() -> io::Result<()> {
    let nameless = std::ptr::null::<libc::c_char>();
    // SAFETY: the kernel is given two numbers, of which the second stands for no text.
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, JOIN, nameless) };
    if joined >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => Ok(()),
        _ => Err(io::Error::new(
            error.kind(),
            format!("cannot give the task a keyring of its own: {error}"),
        )),
    }
}
