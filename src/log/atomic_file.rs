//! Small files that are there whole or not at all, whatever happens while they are written.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::{FileLayer, LogFile, RealFiles, parent_dir};

/// What the name of a file that is being written ends with.
const DRAFT: &str = ".tmp";

/// Puts `content` in the place of the file at `path`, which may not exist yet. Once this returns it
/// is on the disk under its name; until then what was there before is. After an error it is either
/// of the two, whole.
///
/// # Errors
/// The file cannot be written, or its directory not be synced.
pub fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    put_on(&RealFiles, path, content)
}

/// As [`put`], over a file layer.
///
/// # Errors
/// As [`put`].
pub fn put_on(files: &dyn FileLayer, path: &Path, content: &[u8]) -> io::Result<()> {
    replace(files, path, content, |draft| {
        // One that a kill left may have another owner's mode.
        match files.remove(draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        files.create(draft, 0)
    })
}

/// As [`put_on`], readable by the owner only.
///
/// # Errors
/// As [`put`].
pub fn put_private_on(files: &dyn FileLayer, path: &Path, content: &[u8]) -> io::Result<()> {
    replace(files, path, content, |draft| files.create_private(draft))
}

/// As [`put`], readable by the owner only.
///
/// # Errors
/// As [`put`].
pub fn put_private(path: &Path, content: &[u8]) -> io::Result<()> {
    put_private_on(&RealFiles, path, content)
}

/// Reads a file whole, over a file layer.
///
/// # Errors
/// It is not there, or cannot be read.
pub fn read_on(files: &dyn FileLayer, path: &Path) -> io::Result<Vec<u8>> {
    read_open(&*files.open(path, false)?)
}

/// Reads a file whole that is open, whatever becomes of its name.
///
/// # Errors
/// It cannot be read.
pub fn read_open(file: &dyn LogFile) -> io::Result<Vec<u8>> {
    let size = usize::try_from(file.size()?).map_err(io::Error::other)?;
    let mut content = vec![0; size];
    let got = file.read_at(&mut content, 0)?;
    content.truncate(got);
    Ok(content)
}

/// Makes the names in a directory durable.
///
/// # Errors
/// It cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    RealFiles.sync_dir(dir)
}

fn replace(
    files: &dyn FileLayer,
    path: &Path,
    content: &[u8],
    create: impl Fn(&Path) -> io::Result<std::sync::Arc<dyn LogFile>>,
) -> io::Result<()> {
    let draft = draft(path);
    let written = || {
        let file = create(&draft)?;
        file.write_at(content, 0)?;
        file.sync()?;
        files.rename(&draft, path)
    };
    written().inspect_err(|_| {
        let _ = files.remove(&draft);
    })?;
    files.sync_dir(parent_dir(path))
}

fn draft(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(DRAFT);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;

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

    #[test]
    fn whenever_the_power_goes_one_of_the_two_is_there_whole() {
        use crate::fake::FakeDisk;
        let path = Path::new("/data/keystore/file");
        let (old, new) = (vec![1; 3000], vec![2; 5000]);
        for (private, seed) in (0..40).flat_map(|seed| [(false, seed), (true, seed)]) {
            let put = |files: &dyn FileLayer, content: &[u8]| match private {
                true => put_private_on(files, path, content),
                false => put_on(files, path, content),
            };
            let disk = FakeDisk::default();
            disk.create_dir(parent_dir(path)).unwrap();
            put(&disk, &old).unwrap();
            assert_eq!(read_on(&disk.power_cut(seed), path).unwrap(), old);
            // Between any two operations: each fails once, and what came before it may be lost.
            let mut at = 0;
            loop {
                assert!(at < 1_000, "operations without end");
                let all = OPS.iter().any(|op| {
                    let disk = disk.fork();
                    disk.fail(*op, at, 1);
                    let done = put(&disk, &new);
                    let cut = read_on(&disk.power_cut(seed), path).unwrap();
                    assert!(cut == new || (cut == old && done.is_err()), "{op:?} {at}");
                    disk.failed() > 0
                });
                if !all {
                    break;
                }
                at += 1;
            }
            let files: Arc<dyn FileLayer> = Arc::new(disk.fork());
            put(&*files, &new).unwrap();
            assert_eq!(read_on(&*files, path).unwrap(), new);
        }
    }

    const OPS: [crate::fake::Op; 5] = {
        use crate::fake::Op;
        [Op::Create, Op::Write, Op::Sync, Op::Rename, Op::SyncDir]
    };
}
