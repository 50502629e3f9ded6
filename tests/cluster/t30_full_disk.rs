//! A disk that is full: writes are refused by name, reads go on, nothing acknowledged is lost, and
//! service resumes when there is space.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use drover_testkit::{LONG, Setup, skip, wait_for};

use crate::support::{Known, check, check_replay, put};

/// A small disk in memory, gone when this is.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    pub(crate) fn mount(at: &Path, megabytes: u32) -> Result<SmallDisk, String> {
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

/// A value that does not compress.
fn large(seed: u64) -> String {
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

#[test]
fn a_full_disk_refuses_writes_by_name_and_serves_again_with_space() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let disk = match SmallDisk::mount(&dir.path().join("disk"), 72) {
        Ok(disk) => disk,
        Err(why) => {
            skip("a full disk", &why);
            return Ok(());
        }
    };
    let data = disk.0.join("data");
    let setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &data)?;
    let agent = setup.start()?;
    let mut http = agent.http().timeout(Duration::from_secs(30));
    let mut known = Known::new();
    for number in 0..20 {
        let answer = put(&mut http, &mut known, &format!("before/{number}"), "small")?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    let filler = disk.fill()?;
    let deadline = Instant::now() + LONG * 2;
    let refusal = (0..)
        .find_map(|number| {
            if Instant::now() > deadline {
                return Some(Err(anyhow::anyhow!("never refused")));
            }
            let path = format!("full/{}", number % 400);
            match put(&mut http, &mut known, &path, &large(number + 1)) {
                Ok(answer) if answer.status == 200 => None,
                other => Some(other),
            }
        })
        .expect("the numbers do not end")?;
    let text = refusal.text();
    ensure!(refusal.status == 503, "{} {text}", refusal.status);
    ensure!(
        text.contains("no space left on the disk of") && text.contains(&*data.to_string_lossy()),
        "{text}"
    );
    check(&agent, &known)?;
    ensure!(
        http.json("/v1/vars")?
            .as_array()
            .is_some_and(|l| l.len() >= 20),
        "the list is short"
    );
    std::fs::remove_file(filler)?;
    wait_for("writes to be taken again", LONG, || {
        let answer = put(&mut http, &mut known, "after", "space")?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        Ok::<_, anyhow::Error>(())
    })
    .map_err(|error| anyhow::anyhow!("{error:#}\n{}", agent.log_tail(30)))?;
    // What was not acknowledged may have come after what was: only the other paths are certain.
    known.retain(|path, _| !path.starts_with("full/"));
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    agent.kill()?;
    let agent = setup.start()?;
    check(&agent, &known)?;
    check_replay(&setup, &agent)?;
    let status = agent.stop(Duration::from_secs(8))?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}
