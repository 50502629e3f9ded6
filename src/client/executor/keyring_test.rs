//! Which keys a task finds: this test binary starts itself as the task, and prints them.

use std::ffi::CStr;
use std::io;
use std::process::Command;

use nix::libc;

use super::executor_test::{Run, launcher};
use super::files::ExecSpec;
use super::keyring;
use super::world_test::{Apart, can};

/// A process that has it prints its session keyring and ends.
pub(super) const ASK: &str = "DROVER_TEST_KEYS";
/// The key of the agent, and one that a task makes.
const SECRET: &CStr = c"drover-test-secret";
const MADE: &CStr = c"drover-test-made";
const KIND: &CStr = c"user";
/// The kernel's numbers.
const SESSION: libc::c_long = -3;
const SEARCH: libc::c_long = 10;
const READ: libc::c_long = 11;

fn done(answer: libc::c_long) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Makes a key in the session keyring.
#[expect(unsafe_code, reason = "no library offers these calls in safe form")]
fn make(name: &CStr) -> io::Result<usize> {
    let (kind, name) = (KIND.as_ptr(), name.as_ptr());
    // SAFETY: both texts end with a zero, and the payload is as long as its length argument.
    done(unsafe {
        libc::syscall(
            libc::SYS_add_key,
            kind,
            name,
            c"x".as_ptr(),
            1_usize,
            SESSION,
        )
    })
}

/// Whether a key is found from the session keyring.
#[expect(unsafe_code, reason = "no library offers these calls in safe form")]
fn finds(name: &CStr) -> bool {
    let (kind, name) = (KIND.as_ptr(), name.as_ptr());
    // SAFETY: both texts end with a zero.
    done(unsafe { libc::syscall(libc::SYS_keyctl, SEARCH, SESSION, kind, name, 0_usize) }).is_ok()
}

/// How many keys and keyrings are in the session keyring.
#[expect(unsafe_code, reason = "no library offers these calls in safe form")]
fn count() -> io::Result<usize> {
    let none = std::ptr::null::<u8>();
    // SAFETY: nothing is written where there is no space.
    let bytes = done(unsafe { libc::syscall(libc::SYS_keyctl, READ, SESSION, none, 0_usize) });
    Ok(bytes? / size_of::<i32>())
}

/// Prints what this process finds.
pub(super) fn report() -> ! {
    let before = count().map_err(|e| e.to_string());
    let made = make(MADE).is_ok();
    println!("{before:?}, the agent's: {}, makes: {made}", finds(SECRET));
    std::process::exit(0)
}

/// The environment with which this binary prints.
fn child_env() -> Vec<(String, String)> {
    let path = std::env::var("LD_LIBRARY_PATH").ok();
    let path = path.map(|path| ("LD_LIBRARY_PATH".to_owned(), path));
    let ask = (ASK.to_owned(), "1".to_owned());
    path.into_iter().chain([ask]).collect()
}

// The runtime's threads are made by this one, and have its keys: it is no test of tokio's.
#[test]
fn drv_06_a_task_has_an_empty_keyring_of_its_own_and_none_of_the_agents_keys() {
    let what = "keys of tasks";
    if !can(what) {
        return;
    }
    if let Err(e) = keyring::leave().and_then(|()| make(SECRET)) {
        return drover_testkit::skip(what, &format!("no keys can be made here: {e}"));
    }
    let exe = std::env::current_exe().unwrap();
    let own = Command::new(&exe).envs(child_env()).output().unwrap();
    let reported = String::from_utf8_lossy(&own.stdout).into_owned();
    let inherited = "Ok(1), the agent's: true, makes: true\n";
    assert_eq!(
        reported, inherited,
        "a process that is started plainly has them all"
    );

    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let apart = Apart::new();
    let plain = Run::new();
    let of_both = [
        (plain.shell(""), &plain),
        (
            ExecSpec {
                chroot: None,
                user: String::new(),
                ..apart.spec("")
            },
            &apart.run,
        ),
    ];
    for (spec, run) in of_both {
        let spec = ExecSpec {
            command: exe.display().to_string(),
            args: Vec::new(),
            env: child_env(),
            ..spec
        };
        let exit = runtime.block_on(async {
            let executor = launcher().launch(&run.dir, &spec).await.unwrap();
            executor.wait().await
        });
        assert_eq!((exit.exit_code, &*exit.error), (0, ""));
        let reported = run.out("stdout");
        assert_eq!(reported, "Ok(0), the agent's: false, makes: true\n");
    }
}
