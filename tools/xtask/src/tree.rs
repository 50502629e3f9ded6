//! The files of the project.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// One text file, read once.
pub(crate) struct File {
    /// Path from the workspace's folder, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// Whether it is Rust.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether all of it is test code.
    pub(crate) fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.ends_with("_test.rs")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("/harness.rs")
            || self.path.ends_with("/testing.rs")
            || self.path.starts_with("tools/testkit/")
    }
}

/// Every text file below the root, sorted by path, without build output and hidden folders.
pub(crate) fn read(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, root, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(root: &Path, dir: &Path, files: &mut Vec<File>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if path.is_dir() {
            let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".github");
            // What a program wrote, from what others wrote, follows their rules.
            if !hidden && name != "target" && name != "generated" {
                walk(root, &path, files)?;
            }
        } else if name == ".git" {
            // In a second working tree this is a file that names a folder elsewhere.
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root)?.to_string_lossy().into_owned();
            files.push(File { path, text });
        }
    }
    Ok(())
}
