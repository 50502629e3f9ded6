//! A second tree beside the first, with the changes in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::crates;

const PROBE: &str = include_str!("probe.rs.in");

/// Brings the copy to what the tree holds now, with `changed` in place of some files, which are all
/// of one crate: the one whose root is among them has the probe. Files that say the same are left
/// alone, so that only what changed is compiled again.
pub(crate) fn write(
    root: &Path,
    copy: &Path,
    changed: &BTreeMap<String, String>,
    functions: usize,
) -> Result<()> {
    let own = changed.keys().find(|path| crates::is_root(path));
    let own = own.context("the root of the changed crate is not code")?;
    let folder = own.rsplit_once('/').map_or("", |(folder, _)| folder);
    let probe = format!("{folder}/mutants_probe.rs");
    let names = files(root)?;
    for name in &names {
        let from = root.join(name);
        if !from.is_file() {
            continue;
        }
        let to = copy.join(name);
        match changed.get(name) {
            Some(text) => update(&to, text.as_bytes())?,
            None => update(&to, &fs::read(&from)?)?,
        }
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
    }
    let text = PROBE.replace("FUNCTIONS", &functions.max(1).to_string());
    update(&copy.join(&probe), text.as_bytes())?;
    remove_others(copy, copy, &|name| names.contains(name) || name == probe)
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

fn remove_others(copy: &Path, folder: &Path, stays: &dyn Fn(&str) -> bool) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            remove_others(copy, &path, stays)?;
            continue;
        }
        let name = path.strip_prefix(copy)?.to_string_lossy().into_owned();
        if !stays(&name) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_changed_crate_has_the_probe() {
        let dir = tempfile::tempdir().expect("dir");
        let (root, copy) = (dir.path().join("root"), dir.path().join("copy"));
        let git = |words: &[&str]| {
            let status = Command::new("git").args(words).current_dir(&root).status();
            assert!(status.expect("git runs").success());
        };
        for path in ["src/lib.rs", "src/log/mod.rs"] {
            update(&root.join(path), b"as it is").expect("written");
        }
        fs::create_dir_all(&copy).expect("made");
        git(&["init", "--quiet"]);
        let all = || {
            let mut names = Vec::new();
            for name in [
                "src/lib.rs",
                "src/mutants_probe.rs",
                "src/log/mod.rs",
                "src/log/mutants_probe.rs",
            ] {
                let text = fs::read_to_string(copy.join(name)).unwrap_or_default();
                let is_probe = text.contains("[AtomicBool; 7]");
                names.push(if is_probe { "probe".to_owned() } else { text });
            }
            names
        };
        let changed = |path: &str| BTreeMap::from([(path.to_owned(), "changed".to_owned())]);
        write(&root, &copy, &changed("src/lib.rs"), 7).expect("written");
        assert_eq!(all(), ["changed", "probe", "as it is", ""]);
        write(&root, &copy, &changed("src/log/mod.rs"), 7).expect("written");
        assert_eq!(all(), ["as it is", "", "changed", "probe"]);
    }
}
