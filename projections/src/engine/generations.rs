//! Caches of two generations, which share one bound of bytes: what was used lately stays, and
//! letting go costs a little with each batch and never much at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use hashbrown::hash_map::IntoIter;

use crate::engine::layer::RowKey;

/// Entries of what is let go that are freed at the end of a batch, per cache: twice what a batch
/// can bring.
const FREED: usize = 1_024;

type Map<V> = HashMap<RowKey, CachedValue<V>, foldhash::fast::FixedState>;

struct CachedValue<V> {
    value: V,
    weight: usize,
}

/// The bytes that all caches of a writer have together, and how they are used. A third is for each
/// generation, the last third for what is being let go.
#[derive(Debug)]
pub(crate) struct CacheBudget {
    bound: usize,
    /// Bytes of the young generations.
    young: AtomicUsize,
    /// Bytes of all that is kept, and of what is still to be freed.
    held: AtomicUsize,
}

impl CacheBudget {
    /// About `bound` bytes at most from one batch to the next.
    pub(crate) fn new(bound: usize) -> Arc<Self> {
        Arc::new(Self {
            bound,
            young: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
        })
    }

    /// At the end of a batch: whether what is young grows old now, in all caches.
    pub(crate) fn is_full(&self) -> bool {
        self.young.load(Ordering::Relaxed) > self.bound / 3
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// Values by key. When the young generations of all caches are full they become the old ones, and
/// values of the former old ones that were not read meanwhile go.
pub(crate) struct Generations<V> {
    young: Map<V>,
    old: Map<V>,
    going: Option<IntoIter<RowKey, CachedValue<V>>>,
    /// Bytes of the young ones, of the old ones, and of what is to be freed.
    bytes: [usize; 3],
    shared: Arc<CacheBudget>,
}

impl<V: Clone> Generations<V> {
    /// Nothing yet.
    pub(crate) fn new(shared: &Arc<CacheBudget>) -> Self {
        Self {
            young: Map::default(),
            old: Map::default(),
            going: None,
            bytes: [0; 3],
            shared: Arc::clone(shared),
        }
    }

    fn add_young(&mut self, weight: usize) {
        self.bytes[0] += weight;
        self.shared.young.fetch_add(weight, Ordering::Relaxed);
        self.shared.held.fetch_add(weight, Ordering::Relaxed);
    }

    fn sub_young(&mut self, weight: usize) {
        self.bytes[0] -= weight;
        self.shared.young.fetch_sub(weight, Ordering::Relaxed);
        self.shared.held.fetch_sub(weight, Ordering::Relaxed);
    }

    fn sub_old(&mut self, weight: usize) {
        self.bytes[1] -= weight;
        self.shared.held.fetch_sub(weight, Ordering::Relaxed);
    }

    fn sub_going(&mut self, weight: usize) {
        self.bytes[2] -= weight;
        self.shared.held.fetch_sub(weight, Ordering::Relaxed);
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<V> {
        if let Some(kept) = self.young.get(key) {
            return Some(kept.value.clone());
        }
        let (key, kept) = self.old.remove_entry(key)?;
        let value = kept.value.clone();
        self.sub_old(kept.weight);
        self.add_young(kept.weight);
        self.young.insert(key, kept);
        Some(value)
    }

    /// Keeps a value of so many bytes.
    pub(crate) fn put(&mut self, key: RowKey, value: V, weight: usize) {
        let weight = weight + key.len();
        if let Some(former) = self.old.remove(&key) {
            self.sub_old(former.weight);
        }
        self.add_young(weight);
        if let Some(former) = self.young.insert(key, CachedValue { value, weight }) {
            self.sub_young(former.weight);
        }
    }

    /// A batch has ended: no reader waits while values are let go now. With `turn` what is young
    /// grows old, which then is so in all caches that share a bound.
    pub(crate) fn end_batch(&mut self, turn: bool) {
        if turn {
            let [young, old, going] = self.bytes;
            self.going = None;
            self.sub_going(going);
            let aged = std::mem::take(&mut self.young);
            self.going = Some(std::mem::replace(&mut self.old, aged).into_iter());
            self.bytes = [0, young, old];
            self.shared.young.fetch_sub(young, Ordering::Relaxed);
        }
        if let Some(mut going) = self.going.take() {
            let (mut freed, mut bytes) = (0, 0);
            for (_, kept) in going.by_ref().take(FREED) {
                freed += 1;
                bytes += kept.weight;
            }
            self.sub_going(bytes);
            self.going = Some(going).filter(|_| freed == FREED);
        }
    }

    pub(crate) fn clear(&mut self) {
        let [young, old, going] = self.bytes;
        self.sub_young(young);
        self.sub_old(old);
        self.sub_going(going);
        (self.young, self.old, self.going) = (Map::default(), Map::default(), None);
    }

    #[cfg(test)]
    fn weight(&self) -> usize {
        let maps = self.young.values().chain(self.old.values());
        maps.map(|kept| kept.weight).sum::<usize>() + self.bytes[2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::engine_test::{Op, apply, step, thing, with};

    const WEIGHT: usize = 92;

    fn key(number: u64) -> RowKey {
        number.to_be_bytes().into()
    }

    /// Looks up, and reads where nothing is kept; returns whether it was.
    fn look(cache: &mut Generations<u64>, number: u64) -> bool {
        let found = cache.get(&key(number));
        assert!(found.is_none_or(|found| found == number));
        if found.is_none() {
            cache.put(key(number), number, WEIGHT);
        }
        found.is_some()
    }

    /// The end of a batch for all caches.
    fn end_batch(shared: &CacheBudget, caches: &mut [Generations<u64>]) {
        let turn = shared.is_full();
        caches.iter_mut().for_each(|cache| cache.end_batch(turn));
    }

    #[test]
    fn what_is_used_again_stays_however_much_passes_by() {
        let shared = CacheBudget::new(150 * 20_000);
        let mut caches = [Generations::new(&shared)];
        let mut misses = 0;
        for round in 0..50_u64 {
            for hot in 0..6_000 {
                misses += u64::from(!look(&mut caches[0], hot));
                // Others come once and never again.
                if hot % 6 == 0 {
                    look(&mut caches[0], 1_000_000 + round * 6_000 + hot);
                }
                if hot % 300 == 0 {
                    end_batch(&shared, &mut caches);
                }
            }
        }
        assert_eq!(misses, 6_000, "the first round alone");
    }

    /// However the rows lie over the tables, and with what is being let go.
    #[test]
    fn all_tables_have_one_bound_and_what_is_let_go_counts() {
        const TABLES: usize = 37;
        let bound = 300 * 1_000;
        let shared = CacheBudget::new(bound);
        let mut caches: Vec<Generations<u64>> =
            (0..TABLES).map(|_| Generations::new(&shared)).collect();
        let mut most = 0;
        for number in 0..200_000_u64 {
            // For a while one table alone, for a while each in its turn.
            let table = match number / 20_000 % 2 {
                0 => (number / 40_000) as usize % TABLES,
                _ => number as usize % TABLES,
            };
            caches[table].put(key(number), number, WEIGHT);
            caches[table].put(key(number % 7), number % 7, WEIGHT);
            if number % 100 == 99 {
                end_batch(&shared, &mut caches);
                let weight: usize = caches.iter().map(Generations::weight).sum();
                assert_eq!(shared.held(), weight, "what is replaced counts once");
                most = most.max(weight);
            }
        }
        // A batch may bring two hundred more than fit, into each generation.
        assert!(most <= bound + 3 * 200 * 100, "{most}");
        assert!(most > bound / 2, "it is used: {most}");
        // One value is held to it as many are.
        caches[0].put(key(1), 1, 10 * bound);
        for number in 2..5 {
            end_batch(&shared, &mut caches);
            caches[1].put(key(number), number, bound);
        }
        end_batch(&shared, &mut caches);
        assert_eq!(caches[0].get(&key(1)), None);
        caches.iter_mut().for_each(Generations::clear);
        assert_eq!((caches[1].get(&key(4)), shared.held()), (None, 0));
    }

    #[test]
    fn a_writer_keeps_rows_within_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let bound = 64 << 10;
        let (_projections, mut writer) = with(dir.path(), |options| options.kept_bytes = bound);
        let mut most = 0;
        for index in 1..=60 {
            let put = |n: u64| Op::Put(thing(&format!("{index}-{n}"), 1));
            apply(
                &mut writer,
                &[step(index, (0..40).map(put).collect())],
                &[1],
            );
            most = most.max(writer.kept().held());
        }
        assert!(most > bound / 2 && most < bound * 3 / 2, "{most}");
    }
}
