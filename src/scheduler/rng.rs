//! A small generator of pseudo-random numbers: the same seed gives the same decisions on every
//! machine. They are not for secrets.

use drover_base::chance::split_mix;
use uuid::Uuid;

/// A seeded sequence of numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// A number below `bound`; 0 for a bound of 0. The bias is below 2^-32 for the sizes used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Brings a slice into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }

    /// 128 random bits in the text form of a UUID, as Nomad makes its ids (no version bits).
    pub fn uuid(&mut self) -> String {
        let bits = u128::from(self.draw()) << 64 | u128::from(self.draw());
        Uuid::from_u128(bits).hyphenated().to_string()
    }
}

/// The seed of an evaluation: the last eight bytes of its id mixed with the snapshot's index.
pub fn seed_of(eval_id: &str, index: u64) -> u64 {
    let mut seed = 0_u64;
    for digit in eval_id.bytes().filter_map(|b| char::from(b).to_digit(16)) {
        seed = seed << 4 | u64::from(digit);
    }
    seed ^ index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_order_and_ids() {
        let run = |seed| {
            let mut rng = Rng::new(seed);
            let mut items: Vec<u32> = (0..100).collect();
            rng.shuffle(&mut items);
            (items, rng.uuid())
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let (mut items, id) = run(9);
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
        assert_eq!(id.len(), 36);
        assert_eq!(id.matches('-').count(), 4);
    }

    #[test]
    fn a_seed_depends_on_the_id_and_the_index() {
        let id = "42684cde-b7de-2635-c944-127df282f6e5";
        assert_eq!(seed_of(id, 0), 0xc944_127d_f282_f6e5);
        assert_ne!(seed_of(id, 1), seed_of(id, 2));
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert_eq!(rng.below(0), 0);
    }
}
