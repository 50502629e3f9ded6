//! The version of a database's schema, and the header that keeps it.

use serde::{Deserialize, Serialize};

use super::STEPS;

/// The number of the last step a database has behind it; 0 for one from before there were any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SchemaVersion(pub u32);

/// The schema this binary reads and writes.
pub const LATEST: SchemaVersion = SchemaVersion(STEPS.len() as u32);

/// What a database says of its own schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchemaHeader {
    /// The last step that is done.
    pub version: SchemaVersion,
    /// The step that is under way, if one is.
    pub upgrading: Option<SchemaVersion>,
    /// Where that step continues.
    #[serde(with = "serde_bytes")]
    pub cursor: Vec<u8>,
}

impl SchemaHeader {
    /// A database with this step, and all before it, behind it.
    pub fn at(version: SchemaVersion) -> Self {
        Self {
            version,
            ..Self::default()
        }
    }

    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("a header holds only numbers and bytes")
    }

    /// Reads stored bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        rmp_serde::from_slice(bytes).ok()
    }
}
