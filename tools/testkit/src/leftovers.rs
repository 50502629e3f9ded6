//! Tasks outlive their agents, as they must; what a test left running ends with the test.

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use anyhow::ensure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{LONG, wait_for};

/// Ends what runs in a directory when it is dropped. It belongs behind the agent whose directory it
/// is, and before the directory itself: an agent starts again what was ended.
#[derive(Debug)]
pub struct Leftovers(pub PathBuf);

impl Drop for Leftovers {
    fn drop(&mut self) {
        let gone = wait_for("what runs in the directory to end", LONG, || {
            let left = within(&self.0);
            for pid in &left {
                // It may end by itself meanwhile.
                let _ = kill(*pid, Signal::SIGKILL);
            }
            ensure!(left.is_empty(), "{left:?} still run");
            Ok(())
        });
        if let Err(error) = gone {
            eprintln!("{error:#}");
        }
    }
}

/// The processes that work in a directory, or are named it in their arguments.
fn within(dir: &Path) -> Vec<Pid> {
    let real = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let own = Pid::this();
    let of = |pid: Pid| {
        let place = Path::new("/proc").join(pid.to_string());
        let works = fs::read_link(place.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&real));
        let named = fs::read(place.join("cmdline")).is_ok_and(|line| {
            line.split(|byte| *byte == 0).any(|word| {
                let word = Path::new(std::ffi::OsStr::from_bytes(word));
                word.starts_with(dir) || word.starts_with(&real)
            })
        });
        // A process that has ended and was not waited for has neither.
        pid != own && (works || named)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw).filter(|pid| of(*pid)).collect()
}

/// Reads directories until its input ends, which is when the tests' process does, however that
/// ends; then it ends what still works in one of them.
const GUARD: &str = r#"
while read -r dir; do set -- "$@" "$dir"; done
for place in /proc/[0-9]*; do
  pid=${place#/proc/}
  [ "$pid" = "$$" ] && continue
  cwd=$(readlink "$place/cwd" 2>/dev/null)
  words=$(tr '\0' ' ' 2>/dev/null <"$place/cmdline")
  for dir in "$@"; do
    case " $cwd $words" in
      *" $dir "*|*" $dir/"*) kill -KILL "$pid" 2>/dev/null; break;;
    esac
  done
done
"#;

/// Has what works in a directory ended with this process.
pub(crate) fn guard(dir: &Path) {
    static REPORTED: OnceLock<Option<Mutex<(Child, ChildStdin)>>> = OnceLock::new();
    let started = REPORTED.get_or_init(|| {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", GUARD, "guard"]);
        shell.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = shell.stderr(Stdio::null()).spawn().ok()?;
        let input = child.stdin.take()?;
        Some(Mutex::new((child, input)))
    });
    let Some(Ok(mut reported)) = started.as_ref().map(Mutex::lock) else {
        return;
    };
    let mut line = dir.as_os_str().as_bytes().to_vec();
    line.push(b'\n');
    // Without the guard a test does what it does.
    let _ = reported.1.write_all(&line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_in_a_directory_ends_with_the_guard() {
        let dir = std::env::temp_dir().join(format!("leftovers-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let mut inside = Command::new("/bin/sh")
            .args(["-c", "while :; do sleep 1; done"])
            .current_dir(&dir)
            .spawn()
            .expect("a shell");
        let mut outside = Command::new("/bin/sleep")
            .arg("1000")
            .spawn()
            .expect("sleeps");
        let pid = Pid::from_raw(inside.id().cast_signed());
        wait_for("it works there", LONG, || {
            ensure!(within(&dir).contains(&pid), "not yet");
            Ok(())
        })
        .expect("it is seen");
        // Waited for meanwhile: the dead are no longer there to be found.
        let waited = std::thread::spawn(move || inside.wait());
        drop(Leftovers(dir.clone()));
        assert!(within(&dir).is_empty());
        waited.join().expect("joins").expect("it ended");
        assert!(outside.try_wait().expect("asked").is_none());
        outside.kill().expect("ends");
        outside.wait().expect("ended");
        fs::remove_dir_all(&dir).expect("empty");
    }
}
