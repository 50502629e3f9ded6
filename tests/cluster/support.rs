//! What the suite shares: variables that were acknowledged, and the log's own proof.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, Http, LONG, Response, Setup, skip};
use serde_json::json;

/// Stops an agent, however long it takes: a limit here would count what else the machine does
/// meanwhile.
pub(crate) fn stop(agent: Agent) -> Result<()> {
    agent.stop(LONG).map(drop)
}

/// Values by path.
pub(crate) type Known = BTreeMap<String, String>;

/// Writes a variable; remembers it if it was acknowledged.
pub(crate) fn put(http: &mut Http, known: &mut Known, path: &str, value: &str) -> Result<Response> {
    let body = json!({"Items": {"v": value}}).to_string();
    let answer = http.send("PUT", &format!("/v1/var/{path}"), body.as_bytes())?;
    if answer.status == 200 {
        known.insert(path.to_owned(), value.to_owned());
    }
    Ok(answer)
}

/// Everything that was acknowledged is there.
pub(crate) fn check(agent: &Agent, known: &Known) -> Result<()> {
    let mut http = agent.http();
    for (path, value) in known {
        let found = http.json(&format!("/v1/var/{path}"))?;
        ensure!(
            found["Items"]["v"] == **value,
            "{path} is not what was acknowledged"
        );
    }
    Ok(())
}

/// `drover log replay`, beside the agent if there is one.
pub(crate) fn replay(setup: &Setup, agent: Option<&Agent>) -> Result<Output> {
    let address = match agent {
        Some(agent) => agent.addr().to_string(),
        None => format!("127.0.0.1:{}", setup.http),
    };
    let mut command = Command::new(&setup.binary);
    command
        .args(["log", "replay", "-data-dir"])
        .arg(&setup.data_dir);
    command.args(["-address", &format!("http://{address}")]);
    command.output().context("drover log replay")
}

/// The log, folded from zero, gives what the agent holds.
pub(crate) fn check_replay(setup: &Setup, agent: &Agent) -> Result<()> {
    let output = replay(setup, Some(agent))?;
    ensure!(output.status.success(), "{}", words(&output));
    Ok(())
}

/// All that a command wrote.
pub(crate) fn words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    format!("{text}{}", String::from_utf8_lossy(&output.stderr))
}

/// Runs a command that must succeed; answers all that it wrote.
pub(crate) fn run(setup: &Setup, args: &[&str]) -> Result<String> {
    let output = Command::new(&setup.binary).args(args).output()?;
    ensure!(output.status.success(), "{args:?}: {}", words(&output));
    Ok(words(&output))
}

/// Saves a backup of a running agent.
pub(crate) fn save(setup: &Setup, agent: &Agent, path: &Path) -> Result<()> {
    let address = format!("-address=http://{}", agent.addr());
    let path = path.to_str().context("a path")?;
    run(setup, &["operator", "snapshot", "save", &address, path])?;
    Ok(())
}

/// A value that does not compress.
pub(crate) fn large(seed: u64) -> String {
    let mut state = seed | 1;
    let mut text = String::with_capacity(60 << 10);
    while text.len() < 60 << 10 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text
}

/// A small disk below a directory; none where disks cannot be mounted, and then that is said.
pub(crate) fn small_disk(below: &Path, megabytes: u32, what: &str) -> Option<SmallDisk> {
    let mounted = SmallDisk::mount(&below.join("disk"), megabytes);
    mounted.map_err(|why| skip(what, &why)).ok()
}

/// A small disk in memory, gone when this is.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    fn mount(at: &Path, megabytes: u32) -> Result<SmallDisk, String> {
        std::fs::create_dir_all(at).map_err(|e| e.to_string())?;
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(at)
            .output()
            .map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(SmallDisk(at.to_owned()));
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Takes so much space.
    pub(crate) fn fill_with(&self, bytes: usize) -> Result<PathBuf> {
        let path = self.0.join("filler");
        File::create(&path)?.write_all(&vec![7; bytes])?;
        Ok(path)
    }

    /// Takes all the space there is.
    pub(crate) fn fill(&self) -> Result<PathBuf> {
        let path = self.0.join("filler");
        let mut file = File::create(&path)?;
        for size in [1 << 20, 4 << 10, 1] {
            let block = vec![7; size];
            while file.write_all(&block).is_ok() {}
        }
        Ok(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What is still open keeps the disk; lazily, it goes with it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
