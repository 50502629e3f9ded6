//! A disk in memory that can be copied as a power cut would leave it: unsynced writes are kept,
//! dropped or torn by sector; of the changes of directories that were not synced the first ones
//! are kept, in their order, and the rest is lost. It can also run full, or fail: everything, or
//! one operation at a chosen moment. Tests and simulations use it in place of
//! [`RealFiles`](drover_log::RealFiles).
//!
//! It is a crate of its own, so that no program has it, and a module of the log's tests: a crate
//! that needs the log would bring another log into them.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use drover_log::{FileLayer, LogFile, parent_dir};

const SECTOR: usize = 512;
/// The node of the directory above all.
const ROOT: usize = 0;

/// An operation of the disk, which can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reading a file.
    Read,
    /// Writing to a file.
    Write,
    /// Making a file durable. After it failed what was written since the last time is in memory
    /// alone, and no later one makes it durable, as with Linux.
    Sync,
    /// Making a file or a directory.
    Create,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Making the names in a directory durable.
    SyncDir,
}

#[derive(Clone, Default)]
struct Content {
    data: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, usize)>,
}

/// The names in a directory: as they are seen, and as they are on the disk.
#[derive(Clone, Default)]
struct Dir {
    live: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
}

#[derive(Clone)]
enum DiskNode {
    File(Content),
    Dir(Dir),
}

/// A change of one name: the directory, the name, and what it means now.
type Change = (usize, String, Option<usize>);

#[derive(Clone)]
struct DiskInner {
    nodes: Vec<DiskNode>,
    /// Changes of names that are not durable, in order; what is in one element happens at once.
    changes: Vec<Vec<Change>>,
    capacity: Option<usize>,
    failing: bool,
    /// What fails: after so many that work, so many times.
    fault: Option<(Op, u64, u64)>,
    failed: u64,
    syncs: u64,
}

impl Default for DiskInner {
    fn default() -> DiskInner {
        DiskInner {
            nodes: vec![DiskNode::Dir(Dir::default())],
            changes: Vec::new(),
            capacity: None,
            failing: false,
            fault: None,
            failed: 0,
            syncs: 0,
        }
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl DiskInner {
    fn file(&mut self, id: usize) -> &mut Content {
        match &mut self.nodes[id] {
            DiskNode::File(content) => content,
            DiskNode::Dir(_) => unreachable!("a handle is of a file"),
        }
    }

    fn dir(&mut self, id: usize) -> io::Result<&mut Dir> {
        match &mut self.nodes[id] {
            DiskNode::Dir(dir) => Ok(dir),
            DiskNode::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn used(&self) -> usize {
        let files = self.walk().into_iter();
        files
            .map(|(_, id)| match &self.nodes[id] {
                DiskNode::File(content) => content.data.len(),
                DiskNode::Dir(_) => 0,
            })
            .sum()
    }

    /// Everything with a name, as it is seen.
    fn walk(&self) -> Vec<(PathBuf, usize)> {
        let mut found = Vec::new();
        let mut open = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, id)) = open.pop() {
            let DiskNode::Dir(dir) = &self.nodes[id] else {
                continue;
            };
            for (name, id) in &dir.live {
                found.push((path.join(name), *id));
                open.push((path.join(name), *id));
            }
        }
        found.sort();
        found
    }

    fn space(&self, more: usize) -> io::Result<()> {
        match self.capacity {
            Some(c) if self.used() + more > c => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    /// An error of the device, not of its space.
    fn works(&mut self, op: Op) -> io::Result<()> {
        let due = match &mut self.fault {
            Some((of, after, _)) if *of == op && *after > 0 => {
                *after -= 1;
                false
            }
            Some((of, _, times)) if *of == op && *times > 0 => {
                *times -= 1;
                true
            }
            _ => false,
        };
        if due || (self.failing && op != Op::Read) {
            self.failed += 1;
            return Err(io::Error::other("the device fails"));
        }
        Ok(())
    }

    fn find(&mut self, path: &Path) -> io::Result<usize> {
        let mut at = ROOT;
        for part in path.components() {
            if let Component::Normal(name) = part {
                let name = name.to_string_lossy();
                let dir = self.dir(at)?;
                at = *dir.live.get(&*name).ok_or_else(not_found)?;
            }
        }
        Ok(at)
    }

    /// The directory that a path lies in, and its name there.
    fn place(&mut self, path: &Path) -> io::Result<(usize, String)> {
        let dir = self.find(parent_dir(path))?;
        self.dir(dir)?;
        let name = path.file_name().ok_or_else(not_found)?;
        Ok((dir, name.to_string_lossy().into_owned()))
    }

    /// Changes names, all at once.
    fn change(&mut self, changes: Vec<Change>) -> io::Result<()> {
        for (dir, name, to) in &changes {
            set(&mut self.dir(*dir)?.live, name, *to);
        }
        self.changes.push(changes);
        Ok(())
    }

    fn make(&mut self, path: &Path, node: DiskNode) -> io::Result<usize> {
        let (dir, name) = self.place(path)?;
        let id = self.nodes.len();
        self.nodes.push(node);
        self.change(vec![(dir, name, Some(id))])?;
        Ok(id)
    }

    /// Brings changes of names to the disk.
    fn sync_names(&mut self, changes: Vec<Vec<Change>>) {
        for (dir, name, to) in changes.into_iter().flatten() {
            if let DiskNode::Dir(dir) = &mut self.nodes[dir] {
                set(&mut dir.durable, &name, to);
            }
        }
    }
}

fn set(names: &mut BTreeMap<String, usize>, name: &str, to: Option<usize>) {
    match to {
        Some(id) => names.insert(name.to_owned(), id),
        None => names.remove(name),
    };
}

#[derive(Clone, Default)]
pub struct FakeDisk(Arc<Mutex<DiskInner>>);

struct Handle {
    disk: FakeDisk,
    id: usize,
}

impl FakeDisk {
    /// The disk as it is after the power went at this moment.
    pub fn power_cut(&self, seed: u64) -> FakeDisk {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut copy = self.0.lock().clone();
        let keep = rng.random_range(0..=copy.changes.len());
        let mut kept = std::mem::take(&mut copy.changes);
        kept.truncate(keep);
        copy.sync_names(kept);
        (copy.fault, copy.failing) = (None, false);
        for node in &mut copy.nodes {
            match node {
                DiskNode::Dir(dir) => dir.live = dir.durable.clone(),
                DiskNode::File(file) => cut(file, &mut rng),
            }
        }
        FakeDisk(Arc::new(Mutex::new(copy)))
    }

    /// Another disk that is as this one is now.
    pub fn fork(&self) -> FakeDisk {
        FakeDisk(Arc::new(Mutex::new(self.0.lock().clone())))
    }

    /// Limits the bytes of all files; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.0.lock().capacity = bytes;
    }

    /// Lets every write, sync and change of names fail from now on, or work again.
    pub fn set_failing(&self, failing: bool) {
        self.0.lock().failing = failing;
    }

    /// Lets an operation fail: after `after` that work, `times` times. There is one such fault at
    /// a time.
    pub fn fail(&self, op: Op, after: u64, times: u64) {
        self.0.lock().fault = Some((op, after, times));
    }

    /// How many operations failed, but for those that had no space.
    pub fn failed(&self) -> u64 {
        self.0.lock().failed
    }

    /// The bytes of all files.
    pub fn used(&self) -> usize {
        self.0.lock().used()
    }

    /// How often a file was synced.
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// Flips one bit of a file, below all caches.
    pub fn flip(&self, path: &Path, bit: usize) {
        let mut inner = self.0.lock();
        let id = inner.find(path).expect("the disk has the file");
        let file = inner.file(id);
        file.data[bit / 8] ^= 1 << (bit % 8);
        file.durable = file.data.clone();
    }

    /// Every file.
    pub fn paths(&self) -> Vec<PathBuf> {
        let inner = self.0.lock();
        let files = inner.walk().into_iter();
        files
            .filter(|(_, id)| matches!(inner.nodes[*id], DiskNode::File(_)))
            .map(|(path, _)| path)
            .collect()
    }

    /// The bytes of a file.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let mut inner = self.0.lock();
        let id = inner.find(path).ok()?;
        match &inner.nodes[id] {
            DiskNode::File(content) => Some(content.data.clone()),
            DiskNode::Dir(_) => None,
        }
    }

    fn handle(&self, id: usize) -> Arc<dyn LogFile> {
        Arc::new(Handle {
            disk: self.clone(),
            id,
        })
    }
}

/// Some sectors of what was not synced are on the disk.
fn cut(file: &mut Content, rng: &mut StdRng) {
    let keep = rng.random_range(0.0..=1.0);
    for (from, to) in std::mem::take(&mut file.pending) {
        for sector in (from / SECTOR)..to.div_ceil(SECTOR) {
            let (a, b) = (from.max(sector * SECTOR), to.min((sector + 1) * SECTOR));
            if rng.random_bool(keep) {
                if file.durable.len() < b {
                    file.durable.resize(b, 0);
                }
                file.durable[a..b].copy_from_slice(&file.data[a..b]);
            }
        }
    }
    file.data = file.durable.clone();
}

impl LogFile for Handle {
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        inner.works(Op::Write)?;
        let (from, to) = (offset as usize, offset as usize + buf.len());
        let grow = to.saturating_sub(inner.file(self.id).data.len());
        // As on a real disk, part of the write may get through before the space ends.
        let full = if grow > 0 {
            inner.space(grow).err()
        } else {
            None
        };
        let file = inner.file(self.id);
        let to = if full.is_some() {
            to.min(file.data.len())
        } else {
            to
        };
        if to > from {
            if file.data.len() < to {
                file.data.resize(to, 0);
            }
            file.data[from..to].copy_from_slice(&buf[..to - from]);
            file.pending.push((from, to));
        }
        full.map_or(Ok(()), Err)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut inner = self.disk.0.lock();
        inner.works(Op::Read)?;
        let data = &inner.file(self.id).data;
        let from = (offset as usize).min(data.len());
        let n = buf.len().min(data.len() - from);
        buf[..n].copy_from_slice(&data[from..from + n]);
        Ok(n)
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        if let Err(e) = inner.works(Op::Sync) {
            inner.file(self.id).pending.clear();
            return Err(e);
        }
        inner.syncs += 1;
        let file = inner.file(self.id);
        let pending = std::mem::take(&mut file.pending);
        file.durable.resize(file.data.len(), 0);
        for (from, to) in pending {
            let (durable, data) = (&mut file.durable, &file.data);
            durable[from..to].copy_from_slice(&data[from..to]);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().file(self.id).data.len() as u64)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        inner.works(Op::Write)?;
        let file = inner.file(self.id);
        file.data.resize(size as usize, 0);
        for (from, to) in &mut file.pending {
            *to = (*to).min(size as usize).max(*from);
        }
        let whole = |(from, to): &(usize, usize)| from < to;
        file.pending.retain(whole);
        Ok(())
    }
}

impl FileLayer for FakeDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if parent_dir(dir) == dir || dir == Path::new(".") {
            return Ok(());
        }
        self.create_dir(parent_dir(dir))?;
        {
            let mut inner = self.0.lock();
            if inner.find(dir).is_ok() {
                return Ok(());
            }
            inner.works(Op::Create)?;
            inner.make(dir, DiskNode::Dir(Dir::default()))?;
        }
        self.sync_dir(parent_dir(dir))
    }

    fn create_private_dir(&self, dir: &Path) -> io::Result<()> {
        self.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut inner = self.0.lock();
        inner.works(Op::Read)?;
        let id = inner.find(dir)?;
        Ok(inner.dir(id)?.live.keys().cloned().collect())
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let mut inner = self.0.lock();
        inner.works(Op::Create)?;
        inner.space(size as usize)?;
        let data = vec![0; size as usize];
        let content = Content {
            data,
            ..Content::default()
        };
        let id = inner.make(path, DiskNode::File(content))?;
        Ok(self.handle(id))
    }

    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.create(path, 0)
    }

    fn open(&self, path: &Path, _: bool) -> io::Result<Arc<dyn LogFile>> {
        let mut inner = self.0.lock();
        let id = inner.find(path)?;
        match &inner.nodes[id] {
            DiskNode::File(_) => Ok(self.handle(id)),
            DiskNode::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.0.lock();
        let id = inner.find(from)?;
        inner.works(Op::Rename)?;
        let (from_dir, from) = inner.place(from)?;
        let (to_dir, to) = inner.place(to)?;
        inner.change(vec![(from_dir, from, None), (to_dir, to, Some(id))])
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.find(path)?;
        inner.works(Op::Remove)?;
        let (dir, name) = inner.place(path)?;
        inner.change(vec![(dir, name, None)])
    }

    fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        let within = {
            let mut inner = self.0.lock();
            inner.find(dir)?;
            let found = inner.walk().into_iter().map(|(path, _)| path);
            found
                .filter(|path| path.starts_with(dir))
                .collect::<Vec<_>>()
        };
        within.iter().rev().try_for_each(|path| self.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.works(Op::SyncDir)?;
        let id = inner.find(dir)?;
        let all = std::mem::take(&mut inner.changes);
        let (due, rest) = all
            .into_iter()
            .partition(|change: &Vec<Change>| change.iter().any(|(of, _, _)| *of == id));
        inner.changes = rest;
        inner.sync_names(due);
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(Some(Box::new(())))
    }
}
