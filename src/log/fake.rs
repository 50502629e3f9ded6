//! A disk in memory that can be copied as a power cut would leave it: unsynced writes are kept,
//! dropped or torn by sector, unsynced directory changes are kept or dropped. It can also run
//! full, or fail. Tests and simulations use it in place of [`RealFiles`](super::RealFiles).

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::file::{FileLayer, LogFile};

const SECTOR: usize = 512;

#[derive(Clone, Default)]
struct Content {
    data: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, usize)>,
}

#[derive(Clone, Default)]
struct Inner {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    capacity: Option<usize>,
    failing: bool,
    syncs: u64,
}

impl Inner {
    fn used(&self) -> usize {
        self.names
            .values()
            .map(|id| self.files[*id].data.len())
            .sum()
    }

    fn room(&self, more: usize) -> io::Result<()> {
        match self.capacity {
            Some(c) if self.used() + more > c => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    /// An error of the device, not of its space.
    fn works(&self) -> io::Result<()> {
        match self.failing {
            true => Err(io::Error::other("the device fails")),
            false => Ok(()),
        }
    }

    fn id(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The disk.
#[derive(Clone, Default)]
pub struct FakeDisk(Arc<Mutex<Inner>>);

struct Handle {
    disk: FakeDisk,
    id: usize,
}

impl FakeDisk {
    /// The disk as it is after the power went at this moment.
    pub fn power_cut(&self, seed: u64) -> FakeDisk {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut copy = self.0.lock().clone();
        if rng.random_bool(0.5) {
            copy.names = copy.durable_names.clone();
        }
        copy.durable_names = copy.names.clone();
        for file in &mut copy.files {
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
        FakeDisk(Arc::new(Mutex::new(copy)))
    }

    /// Limits the bytes of all files; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.0.lock().capacity = bytes;
    }

    /// Lets every write, sync and creation fail from now on, or work again.
    pub fn set_failing(&self, failing: bool) {
        self.0.lock().failing = failing;
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
        let id = inner.id(path).expect("the disk has the file");
        inner.files[id].data[bit / 8] ^= 1 << (bit % 8);
        inner.files[id].durable = inner.files[id].data.clone();
    }

    /// Every file.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.lock().names.keys().cloned().collect()
    }
}

impl LogFile for Handle {
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        inner.works()?;
        let (from, to) = (offset as usize, offset as usize + buf.len());
        let grow = to.saturating_sub(inner.files[self.id].data.len());
        // As on a real disk, part of the write may get through before the space ends.
        let full = if grow > 0 {
            inner.room(grow).err()
        } else {
            None
        };
        let file = &mut inner.files[self.id];
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
        let inner = self.disk.0.lock();
        let data = &inner.files[self.id].data;
        let from = (offset as usize).min(data.len());
        let n = buf.len().min(data.len() - from);
        buf[..n].copy_from_slice(&data[from..from + n]);
        Ok(n)
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        inner.works()?;
        inner.syncs += 1;
        let file = &mut inner.files[self.id];
        let pending = std::mem::take(&mut file.pending);
        file.durable.resize(file.data.len(), 0);
        for (from, to) in pending {
            let (durable, data) = (&mut file.durable, &file.data);
            durable[from..to].copy_from_slice(&data[from..to]);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[self.id].data.len() as u64)
    }
}

impl FileLayer for FakeDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let inner = self.0.lock();
        let names = inner.names.keys().filter(|p| p.parent() == Some(dir));
        Ok(names
            .map(|p| {
                p.file_name()
                    .expect("the disk has the file")
                    .to_string_lossy()
                    .into_owned()
            })
            .collect())
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let mut inner = self.0.lock();
        inner.works()?;
        inner.room(size as usize)?;
        let id = inner.files.len();
        inner.files.push(Content {
            data: vec![0; size as usize],
            ..Content::default()
        });
        inner.names.insert(path.to_owned(), id);
        Ok(Arc::new(Handle {
            disk: self.clone(),
            id,
        }))
    }

    fn open(&self, path: &Path, _: bool) -> io::Result<Arc<dyn LogFile>> {
        let id = self.0.lock().id(path)?;
        Ok(Arc::new(Handle {
            disk: self.clone(),
            id,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.0.lock();
        let id = inner.id(from)?;
        inner.names.remove(from);
        inner.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.id(path)?;
        inner.names.remove(path);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.durable_names = inner.names.clone();
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(Some(Box::new(())))
    }
}
