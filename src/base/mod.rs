//! What every part needs and none owns: the clock, chance from a seed, locks by key,
//! the versions.
//!
//! It must not know any other module but the language of events (how durations are written), nor
//! become the place for what has no home: whatever is of the wires is in `drover-net`, of errors in
//! `drover-error`.
//!
//! Invariant: nothing here keeps state of the process.

pub mod chance;
pub mod clock;
pub mod keyed_locks;
pub mod version;
