//! The history of the language: what changed when, the old shapes, and the way up from each.
//!
//! A frozen struct is a copy that shares nothing with the model of today but values that are
//! frozen as well. It is written once and never edited.

pub mod changelog;
pub mod csi_v1;
pub mod csi_volume_v1;
pub mod evals_deleted_v1;
pub(crate) mod upcast;

pub use upcast::payload_schema;
