//! Where changed code runs: it may kill whoever it finds and remove whatever it names.
//!
//! Processes of their own, so that a signal to a wrong number meets none but its own; every
//! directory read-only except an own `/tmp`; bounds on memory and time; and when it is over,
//! nothing of it is left.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Mounts are made without a table of them, which would be written to the real `/run`. The shell
/// stays as the first process, as that one takes in and buries what lost its parent.
const SETUP: &str = r#"
set -e
mount -n -t proc proc /proc
mount -n -t tmpfs -o size=2g tmpfs /mnt
mkdir /mnt/out
mount -n --bind "$OUT" /mnt/out
mount -n -o remount,bind,ro /
if [ -w /sys ]; then mount -n -o remount,bind,ro /sys; fi
mount -n --move /mnt /tmp
chmod 1777 /tmp
ulimit -v 16000000
ulimit -c 0
set +e
"$@"
code=$?
echo done > /tmp/out/done
exit $code
"#;

const NO_JAIL: &str = "changed code kills and removes at random: it is only run where \
                       `unshare` (1) can give it processes and mounts of its own, as root";

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    TimedOut,
}

/// One place to run in; one run at a time.
pub(crate) struct Jail {
    out: PathBuf,
}

impl Jail {
    /// `out` is the one folder that stays, as `/tmp/out`.
    pub(crate) fn new(out: &Path) -> Result<Self> {
        std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        let jail = Self {
            out: out.to_owned(),
        };
        jail.run(&mut Command::new("true"), Duration::from_secs(60))?;
        Ok(jail)
    }

    /// Runs a command, with its environment and folder, until its end or the time is over.
    pub(crate) fn run(&self, command: &mut Command, limit: Duration) -> Result<End> {
        let mut inside = Command::new("unshare");
        inside
            .args([
                "--pid",
                "--fork",
                "--kill-child",
                "--mount",
                "--propagation",
                "private",
            ])
            .args(["sh", "-c", SETUP, "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .env("OUT", &self.out)
            .env("TMPDIR", "/tmp")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder);
        }
        let mut child = inside.spawn().context("unshare")?;
        let start = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(status) = child.try_wait()? {
                ensure!(!self.take("done")?.is_empty(), NO_JAIL);
                return Ok(if status.success() {
                    End::Passed
                } else {
                    End::Failed
                });
            }
            if start.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                return Ok(End::TimedOut);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// What a run wrote to `/tmp/out/NAME`, which is removed.
    pub(crate) fn take(&self, name: &str) -> Result<String> {
        let path = self.out.join(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
            text => text?,
        };
        std::fs::remove_file(path)?;
        Ok(text)
    }
}
