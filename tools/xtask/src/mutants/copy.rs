//! A second tree beside the first, with the changes in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::crates;

const PROBE: &str = include_str!("probe.rs.in");

/// Brings the copy to what the tree holds now, with `changed` in place of some files. Files that
/// say the same are left alone, so that only what changed is compiled again.
pub(crate) fn write(
    root: &Path,
    copy: &Path,
    changed: &BTreeMap<String, String>,
    functions: usize,
) -> Result<()> {
    let names = files(root)?;
    for name in &names {
        let from = root.join(name);
        if !from.is_file() {
            continue;
        }
        let to = copy.join(name);
        match changed.get(name) {
            Some(text) => update(&to, text.as_bytes())?,
            None if crates::is_root(name) => {
                let text = format!("{}{}", fs::read_to_string(&from)?, declaration());
                update(&to, text.as_bytes())?;
            }
            None => update(&to, &fs::read(&from)?)?,
        }
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
    }
    let probe = PROBE.replace("FUNCTIONS", &functions.max(1).to_string());
    for name in names.iter().filter(|name| crates::is_root(name)) {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        update(
            &copy.join(folder).join("mutants_probe.rs"),
            probe.as_bytes(),
        )?;
    }
    remove_others(copy, copy, &names)
}

/// What the root of a changed crate says of the probe.
pub(crate) fn declaration() -> &'static str {
    "\n#[doc(hidden)]\n#[allow(missing_docs, dead_code, unreachable_pub, unsafe_code)]\n\
     #[allow(clippy::all)]\npub mod mutants_probe;\n"
}

fn update(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Files that git has or would take.
fn files(root: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", output.status);
    let names = String::from_utf8(output.stdout)?;
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}

fn remove_others(copy: &Path, folder: &Path, names: &BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            remove_others(copy, &path, names)?;
            continue;
        }
        let name = path.strip_prefix(copy)?.to_string_lossy().into_owned();
        if !names.contains(&name) && !name.ends_with("mutants_probe.rs") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
