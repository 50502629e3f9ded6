//! What knows all rooms: the writer, snapshots, and one database in the place of another.

#[cfg(test)]
mod damage_test;
#[cfg(test)]
pub(crate) mod engine_test;
#[cfg(test)]
mod flush_test;
mod horizon;
mod load;
pub(crate) mod projections;
pub mod snapshot;
#[cfg(test)]
mod stories_test;
pub(crate) mod switch;
#[cfg(test)]
mod switch_test;
#[cfg(test)]
pub(crate) mod things_test;
pub mod writer;
