//! Objects that were rendered lately, by table, key and modify index.
//!
//! A cache in front of decoding a row and encoding it again: right as long as an object's JSON
//! follows from its row alone, since a row with the same modify index is the same row. Bounded;
//! a shard that is full starts over.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::answer::{Answer, JSON};
use super::front::Read;
use super::gzip;
use crate::error::Refusal;

const SHARDS: usize = 16;
/// Bytes a shard holds at most.
const SHARD_BYTES: usize = 1 << 20;
/// Objects longer than this are not kept.
const LONGEST: usize = 64 << 10;

/// A table's number, and the key of a row as the API writes it.
type ObjectKey = (u16, Box<str>);

/// The cache.
#[derive(Default)]
pub struct Rendered {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    objects: HashMap<ObjectKey, Arc<Object>, FixedState>,
    bytes: usize,
}

struct Object {
    modified: u64,
    /// An index of the table at which the row was this one.
    seen: AtomicU64,
    json: Bytes,
    gzipped: OnceLock<Bytes>,
}

impl Rendered {
    /// The answer for an object; its index is that of the event that wrote its row last, which
    /// `modified` looks up. While its table is as it was then, nothing is looked up; `make` renders
    /// what is not known.
    ///
    /// # Errors
    /// Those of `modified` and `make`.
    pub(super) fn answer(
        &self,
        read: &Read<'_>,
        (table, key): (u16, &str),
        modified: impl FnOnce() -> Result<u64, Refusal>,
        make: impl FnOnce() -> Result<Vec<u8>, Refusal>,
    ) -> Result<Answer, Refusal> {
        let key: ObjectKey = (table, key.into());
        let hash = FixedState::default().hash_one(&key);
        let shard = &self.shards[hash as usize % SHARDS];
        let known = shard.lock().objects.get(&key).cloned();
        let table_index = read.view.last_changed_at(table);
        if let Some(known) = &known
            && known.seen.load(Ordering::Relaxed) == table_index
        {
            return Ok(known.answer(read).at(known.modified));
        }
        let modified = modified()?;
        let object = match known.filter(|o| o.modified == modified) {
            Some(object) => object,
            None => {
                let object = Arc::new(Object {
                    modified,
                    seen: AtomicU64::new(table_index),
                    json: make()?.into(),
                    gzipped: OnceLock::new(),
                });
                if object.json.len() <= LONGEST {
                    shard.lock().keep(key, Arc::clone(&object));
                }
                object
            }
        };
        // A view of another moment may say less than one before it: that costs a look-up.
        object.seen.store(table_index, Ordering::Relaxed);
        Ok(object.answer(read).at(modified))
    }
}

impl Shard {
    fn keep(&mut self, key: ObjectKey, object: Arc<Object>) {
        if self.bytes > SHARD_BYTES {
            self.objects.clear();
            self.bytes = 0;
        }
        // The compressed form comes on top, a fraction of the plain one.
        self.bytes += object.json.len() + object.json.len() / 4 + key.1.len();
        if let Some(old) = self.objects.insert(key, object) {
            self.bytes = self
                .bytes
                .saturating_sub(old.json.len() + old.json.len() / 4);
        }
    }
}

impl Object {
    fn answer(&self, read: &Read<'_>) -> Answer {
        if self.json.len() as u64 >= gzip::MINIMUM && read.wants_gzip() {
            let pack = || gzip::compress(std::slice::from_ref(&self.json)).into();
            let packed = self.gzipped.get_or_init(pack);
            let mut answer = Answer::of(JSON, packed.clone());
            answer.gzipped = true;
            return answer;
        }
        Answer::of(JSON, self.json.clone())
    }
}
