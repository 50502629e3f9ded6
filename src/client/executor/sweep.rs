//! Removes control groups that no run's spec names (a run: one start of a task; its directory is
//! gone, or has no spec), and ends what runs in them: nothing else would ever find those processes
//! again.
//!
//! Agents may share a parent group, and in containers even the path of their runs directory. Each
//! puts a tag into its groups' names, a hash of its runs directory's path and of a random id in
//! that directory, and touches no groups without it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::cgroup::{self, Parents};
use super::files::{ExecSpec, RunDir, read_json};
use super::tree::PAUSE;

/// How many times groups that do not get empty are killed and removed.
const ATTEMPTS: usize = 250;
/// The file with the random id of a runs directory, which another one of the same path has not.
const ID_FILE: &str = ".mark";

/// What the names of an agent's groups have in common, a hash of its runs directory's path and id.
fn name_tag(runs: &Path) -> io::Result<String> {
    // FNV-1a: the same for the same directory, for ever.
    let path = runs.as_os_str().as_encoded_bytes();
    let id = directory_id(runs)?;
    let bytes = path.iter().chain(id.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Ok(format!(".{hash:016x}-"))
}

/// The random id in a runs directory; made by the first caller that needs it.
fn directory_id(runs: &Path) -> io::Result<String> {
    let file = runs.join(ID_FILE);
    match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let random = uuid::Uuid::new_v4().simple().to_string();
    let draft = runs.join(format!("{ID_FILE}-{random}"));
    let mut written = File::create_new(&draft)?;
    written.write_all(random.as_bytes())?;
    written.sync_all()?;
    // Of two made at once the first one is used by both.
    let kept = fs::hard_link(&draft, &file);
    fs::remove_file(&draft)?;
    match kept {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::read_to_string(&file),
    }
}

/// A new name for the groups of a run.
pub(crate) fn name(runs: &Path, alloc: &str) -> String {
    let random = uuid::Uuid::new_v4();
    // Groups without the tag are not swept; the run can start all the same.
    let tag = name_tag(runs).unwrap_or_else(|error| {
        tracing::warn!(
            "control groups of {alloc} will not be removed if its run is lost: {}: {error}",
            runs.display()
        );
        ".".to_owned()
    });
    format!("{alloc}{tag}{}", random.simple())
}

/// Ends what runs in groups of this agent that no run has, and removes them; how many there were.
/// A run that starts meanwhile is safe: its spec is written before its groups exist, and groups are
/// listed before specs are read. A group of an allocation with a spec that cannot be read stays.
///
/// # Errors
/// It cannot be seen which runs there are.
pub(crate) fn sweep(runs: &Path, parents: &Parents) -> io::Result<usize> {
    let tag = name_tag(runs)?;
    let all = parents.unified.iter().chain(parents.v1.values());
    let found: Vec<PathBuf> = all.flat_map(|parent| ours(parent, &tag)).collect();
    let known = KnownRuns::of(runs)?;
    let lost = found.into_iter().filter(|group| !known.has(group, &tag));
    let lost: Vec<PathBuf> = lost.collect();
    for _ in 0..ATTEMPTS {
        for group in lost.iter().filter(|group| group.exists()) {
            cgroup::kill(group);
            cgroup::remove(group);
        }
        if lost.iter().all(|group| !group.exists()) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(lost.len())
}

/// The groups directly below a parent group whose names have the tag.
fn ours(parent: &Path, tag: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_ours = |entry: &fs::DirEntry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_dir && entry.file_name().to_string_lossy().contains(tag)
    };
    entries.filter(is_ours).map(|entry| entry.path()).collect()
}

/// The runs that there are.
#[derive(Default)]
struct KnownRuns {
    groups: BTreeSet<PathBuf>,
    /// Allocations of which something cannot be read.
    unread: BTreeSet<String>,
}

impl KnownRuns {
    fn of(runs: &Path) -> io::Result<Self> {
        let mut known = Self::default();
        for alloc in below(runs)? {
            if let Err(error) = known.add(&alloc) {
                let name = alloc.file_name().unwrap_or_default();
                tracing::warn!("groups of {name:?} are left as they are: {error}");
                known.unread.insert(name.to_string_lossy().into_owned());
            }
        }
        Ok(known)
    }

    fn add(&mut self, alloc: &Path) -> io::Result<()> {
        let groups = |spec: ExecSpec| {
            let v1 = spec.cgroups_v1.into_values();
            spec.cgroup.into_iter().chain(v1)
        };
        self.groups
            .extend(specs_of(alloc)?.into_iter().flat_map(groups));
        Ok(())
    }

    fn has(&self, group: &Path, tag: &str) -> bool {
        let name = group.file_name().unwrap_or_default().to_string_lossy();
        let alloc = name.split(tag).next().unwrap_or_default();
        self.groups.contains(group) || self.unread.contains(alloc)
    }
}

/// The specs of all runs that have a directory. One that cannot be read is left out, but not the
/// others of its allocation.
pub(crate) fn recorded(runs: &Path) -> Vec<ExecSpec> {
    let below = |path: PathBuf| below(&path).unwrap_or_default();
    let tasks = below(runs.to_owned()).into_iter().flat_map(below);
    let specs = tasks.flat_map(below).map(|run| RunDir(run).spec());
    specs
        .filter_map(|spec| read_json::<ExecSpec>(&spec).ok().flatten())
        .collect()
}

/// What the runs of an allocation were started with.
fn specs_of(alloc: &Path) -> io::Result<Vec<ExecSpec>> {
    let mut specs = Vec::new();
    for task in below(alloc)? {
        for run in below(&task)? {
            specs.extend(read_json::<ExecSpec>(&RunDir(run).spec())?);
        }
    }
    Ok(specs)
}

/// What lies in a directory; nothing where the path is no directory.
fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let none = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    let entries = match fs::read_dir(path) {
        Err(error) if none.contains(&error.kind()) => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::files::write_json;

    #[test]
    fn groups_of_runs_that_cannot_be_read_are_left_alone() {
        let tmp = tempfile::tempdir().unwrap();
        let (runs, place) = (tmp.path().join("tasks"), tmp.path().join("groups"));
        let spec = |alloc: &str| RunDir(runs.join(alloc).join("web/1")).spec();
        for alloc in ["lost", "known", "torn", "odd"] {
            fs::create_dir_all(spec(alloc).parent().unwrap()).unwrap();
        }
        let groups = ["lost", "known", "torn", "odd"].map(|alloc| place.join(name(&runs, alloc)));
        groups
            .iter()
            .for_each(|group| fs::create_dir_all(group).unwrap());
        let known = ExecSpec {
            cgroup: Some(groups[1].clone()),
            ..ExecSpec::default()
        };
        write_json(&spec("known"), &known).unwrap();
        fs::write(spec("torn"), "{").unwrap();
        // An error of the file system's.
        fs::create_dir(spec("odd")).unwrap();
        let parents = Parents {
            unified: Some(place),
            ..Parents::default()
        };
        assert_eq!(sweep(&runs, &parents).unwrap(), 1);
        let left = groups.map(|group| group.exists());
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn a_run_that_cannot_be_read_hides_no_other_of_its_allocation() {
        let tmp = tempfile::tempdir().unwrap();
        let spec = |run: &str| RunDir(tmp.path().join("a1").join(run)).spec();
        for run in ["db/1", "web/1", "web/2"] {
            fs::create_dir_all(spec(run).parent().unwrap()).unwrap();
            let whole = ExecSpec {
                command: run.to_owned(),
                ..ExecSpec::default()
            };
            write_json(&spec(run), &whole).unwrap();
        }
        fs::write(spec("web/1"), "{").unwrap();
        let mut found: Vec<String> = recorded(tmp.path())
            .into_iter()
            .map(|spec| spec.command)
            .collect();
        found.sort();
        assert_eq!(found, ["db/1", "web/2"]);
    }

    #[test]
    fn two_agents_with_one_path_have_tags_of_their_own() {
        let tmp = tempfile::tempdir().unwrap();
        let runs = tmp.path().join("tasks");
        fs::create_dir(&runs).unwrap();
        let first = name_tag(&runs).unwrap();
        assert_eq!(name_tag(&runs).unwrap(), first);
        assert!(name(&runs, "a1").starts_with(&format!("a1{first}")));
        fs::rename(&runs, tmp.path().join("elsewhere")).unwrap();
        fs::create_dir(&runs).unwrap();
        assert_ne!(name_tag(&runs).unwrap(), first);
        assert_eq!(fs::read_dir(&runs).unwrap().count(), 1);
    }
}
