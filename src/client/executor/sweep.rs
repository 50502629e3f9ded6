//! Control groups that runs left behind which nobody knows any more: their directories are gone, so
//! nothing would ever find their processes again, or remove the groups.
//!
//! Several agents may keep their groups in one place. Each has a mark, made of where it keeps its
//! runs, in the names of its own, and touches no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::cgroup::{self, Parents};
use super::files::{ExecSpec, RunDir, read_json};
use super::tree::SWEEP;

/// How often a group is looked at that does not get empty.
const ATTEMPTS: usize = 250;

/// What the names of an agent's groups have in common: of the directory of its runs.
fn mark(runs: &Path) -> String {
    // FNV-1a: the same for the same directory, for ever.
    let path = runs.as_os_str().as_encoded_bytes();
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!(".{hash:016x}-")
}

/// A new name for the groups of a run.
pub(crate) fn name(runs: &Path, alloc: &str) -> String {
    let random = uuid::Uuid::new_v4();
    format!("{alloc}{}{}", mark(runs), random.simple())
}

/// Ends what runs in groups of this agent that no run has, and removes them; how many there were.
/// No run is in the way that begins meanwhile: its specification is there before its groups are.
pub(crate) fn sweep(runs: &Path, parents: &Parents) -> usize {
    let mark = mark(runs);
    let all = parents.unified.iter().chain(parents.v1.values());
    let found: Vec<PathBuf> = all.flat_map(|parent| ours(parent, &mark)).collect();
    let known = known(runs);
    let lost = found.into_iter().filter(|group| !known.contains(group));
    let lost: Vec<PathBuf> = lost.collect();
    for _ in 0..ATTEMPTS {
        for group in lost.iter().filter(|group| group.exists()) {
            cgroup::kill(group);
            cgroup::remove(group);
        }
        if lost.iter().all(|group| !group.exists()) {
            break;
        }
        std::thread::sleep(SWEEP);
    }
    lost.len()
}

/// The groups below a place whose names have the mark.
fn ours(parent: &Path, mark: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_ours = |entry: &fs::DirEntry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_dir && entry.file_name().to_string_lossy().contains(mark)
    };
    entries.filter(is_ours).map(|entry| entry.path()).collect()
}

/// The groups that runs have.
fn known(runs: &Path) -> BTreeSet<PathBuf> {
    let below = |path: PathBuf| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    };
    let dirs = below(runs.to_owned()).flat_map(below).flat_map(below);
    let specs = dirs.filter_map(|dir| read_json::<ExecSpec>(&RunDir(dir).spec()).ok().flatten());
    let groups = |spec: ExecSpec| spec.cgroup.into_iter().chain(spec.cgroups_v1.into_values());
    specs.flat_map(groups).collect()
}
