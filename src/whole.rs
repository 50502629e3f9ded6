//! Small files that are there whole or not at all, whatever happens while they are written.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What the name of a file that is being written ends with.
const DRAFT: &str = ".tmp";

/// Puts `content` in the place of the file at `path`, which may not exist yet. Once this returns it
/// is on the disk under its name; until then, or after an error, what was there before is.
///
/// # Errors
/// The file cannot be written, or its directory not be synced.
pub fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, 0o666)
}

/// As [`put`], readable by the owner only.
///
/// # Errors
/// As [`put`].
pub fn put_private(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, 0o600)
}

/// Makes the names in a directory durable.
///
/// # Errors
/// It cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let draft = draft(path);
    let written = || {
        // One that a kill left may have another owner's mode.
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    sync_dir(dir.unwrap_or(Path::new(".")))
}

fn draft(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(DRAFT);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_draft_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        for (text, private) in [("one", false), ("two", true), ("three", true)] {
            // What a kill left.
            fs::write(draft(&path), "half of something longer than that").unwrap();
            match private {
                true => put_private(&path, text.as_bytes()).unwrap(),
                false => put(&path, text.as_bytes()).unwrap(),
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert!(!private || mode & 0o077 == 0, "{mode:o}");
            assert!(!draft(&path).exists());
        }
    }

    #[test]
    fn after_an_error_the_former_file_is_there_and_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir_all(path.join("inner")).unwrap();
        put(&path, b"x").unwrap_err();
        assert!(path.join("inner").is_dir() && !draft(&path).exists());
        put(&dir.path().join("no").join("dir"), b"x").unwrap_err();
    }
}
