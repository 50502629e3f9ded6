//! drover-projections: everything derived from the log.

pub mod filter;
pub mod page;
