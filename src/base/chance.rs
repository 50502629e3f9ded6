//! Pseudo-random numbers from a seed: the same seed gives the same numbers on every machine.

/// The next number of the sequence whose state this is, which begins as the seed.
///
/// `SplitMix64` (Steele, Lea, Flood 2014). It is not for secrets.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::split_mix;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut state = 0;
        let drawn = [(); 3].map(|()| split_mix(&mut state));
        assert_eq!(
            drawn,
            [
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f
            ]
        );
    }
}
