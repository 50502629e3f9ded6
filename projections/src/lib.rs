//! drover-projections: everything derived from the log.
