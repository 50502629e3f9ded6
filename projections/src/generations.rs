//! A cache of two generations, bounded by bytes: what was used lately stays, and letting go costs
//! a little with each batch and never much at once.

use hashbrown::HashMap;
use hashbrown::hash_map::IntoIter;

use crate::layer::RowKey;

/// Entries of what is let go that are freed at the end of a batch: twice what a batch can bring.
const FREED: usize = 1_024;

type Map<V> = HashMap<RowKey, Kept<V>, foldhash::fast::FixedState>;

struct Kept<V> {
    value: V,
    weight: usize,
}

/// Values by key. Each half of the bound is one generation: when the young one is full it becomes
/// the old one, and of the former old one goes what nobody asked for meanwhile.
pub(crate) struct Generations<V> {
    young: Map<V>,
    old: Map<V>,
    going: Option<IntoIter<RowKey, Kept<V>>>,
    /// Bytes of the young generation.
    bytes: usize,
    bound: usize,
}

impl<V: Clone> Generations<V> {
    /// Nothing yet, and about `bound` bytes at most from one batch to the next.
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            young: Map::default(),
            old: Map::default(),
            going: None,
            bytes: 0,
            bound,
        }
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<V> {
        if let Some(kept) = self.young.get(key) {
            return Some(kept.value.clone());
        }
        let (key, kept) = self.old.remove_entry(key)?;
        let value = kept.value.clone();
        self.bytes += kept.weight;
        self.young.insert(key, kept);
        Some(value)
    }

    /// Keeps a value of so many bytes.
    pub(crate) fn put(&mut self, key: RowKey, value: V, weight: usize) {
        let weight = weight + key.len();
        self.old.remove(&key);
        self.bytes += weight;
        if let Some(former) = self.young.insert(key, Kept { value, weight }) {
            self.bytes -= former.weight;
        }
    }

    /// A batch has ended: nobody waits for what is let go now.
    pub(crate) fn settle(&mut self) {
        if self.bytes > self.bound / 2 {
            let young = std::mem::take(&mut self.young);
            self.going = Some(std::mem::replace(&mut self.old, young).into_iter());
            self.bytes = 0;
        }
        if let Some(going) = &mut self.going {
            let freed = going.take(FREED).map(drop).count();
            if freed < FREED {
                self.going = None;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.bound);
    }

    #[cfg(test)]
    fn weight(&self) -> usize {
        let maps = self.young.values().chain(self.old.values());
        maps.map(|kept| kept.weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHT: usize = 92;

    fn key(number: u64) -> RowKey {
        number.to_be_bytes().into()
    }

    /// Looks up, and reads where nothing is kept; answers whether it was.
    fn look(cache: &mut Generations<u64>, number: u64) -> bool {
        let found = cache.get(&key(number));
        assert!(found.is_none_or(|found| found == number));
        if found.is_none() {
            cache.put(key(number), number, WEIGHT);
        }
        found.is_some()
    }

    #[test]
    fn what_is_used_again_stays_however_much_passes_by() {
        let mut cache = Generations::new(100 * 20_000);
        let mut misses = 0;
        for round in 0..50_u64 {
            for hot in 0..6_000 {
                misses += u64::from(!look(&mut cache, hot));
                // Others come once and never again.
                if hot % 6 == 0 {
                    look(&mut cache, 1_000_000 + round * 6_000 + hot);
                }
                if hot % 300 == 0 {
                    cache.settle();
                }
            }
        }
        assert_eq!(misses, 6_000, "the first round alone");
    }

    #[test]
    fn bytes_are_bounded_and_what_is_replaced_counts_once() {
        let bound = 100 * 1_000;
        let mut cache = Generations::new(bound);
        for number in 0..100_000 {
            cache.put(key(number), number, WEIGHT);
            cache.put(key(number % 7), number % 7, WEIGHT);
            if number % 100 == 99 {
                cache.settle();
                // A batch may bring two hundred more than are kept.
                assert!(cache.weight() <= bound + 200 * 100, "{}", cache.weight());
            }
        }
        let going = cache.going.as_ref().map_or(0, ExactSizeIterator::len);
        assert!(going <= 1_000, "{going} wait to be freed");
        // One value is held to it as many are.
        cache.put(key(1), 1, 10 * bound);
        cache.settle();
        cache.put(key(2), 2, bound);
        cache.settle();
        assert_eq!(cache.get(&key(1)), None);
        cache.clear();
        assert_eq!((cache.get(&key(2)), cache.weight()), (None, 0));
    }
}
