//! The tables' history: steps from each schema of the projections to the next.
//!
//! Schemas are a matter of one server: nothing of them is replicated. Steps are contiguous,
//! idempotent and resumable: each page of a step is one batch that carries the header, and the
//! last one of a step also says that it is done. A new database is born with the newest schema
//! and runs no step.
//!
//! **To add a step:** `mNNNN_<what>.rs`, its line in [`STEPS`], and a test that a migrated
//! database equals a fresh one.

mod m0001_name_the_schema;
mod run;
mod version;

#[cfg(test)]
mod schema_test;

pub use run::{SchemaError, Step, StepProgress, prepare, version_of};
pub use version::{LATEST, SchemaHeader, SchemaVersion};

/// Every step, in order; the first leads to version 1.
pub const STEPS: &[&dyn Step] = &[&m0001_name_the_schema::NameTheSchema];
