//! One server, simulated: seeded commands, power cuts and restarts, and what must hold throughout.
//!
//! A seed decides what is written, when the power goes, what the disk keeps of what was not synced
//! and with which database the server comes back; it does not decide in which order threads run.
//! One file per invariant; each runs stories (`story.rs`) until its share of time is used up. A
//! failure ends with the one line that runs its seed again.

mod freed_memory;
mod lying_disk;
mod no_acknowledged_write_is_lost;
mod replay_equals_live_state;
mod story;
mod stream_has_no_gap;
mod the_applied_index_never_falls;
