//! What a plugin in memory knows of its volumes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::rpc::csi::{ControllerCreateVolumeRequest, NodeDetachVolumeRequest};

/// What the storage is like, as the plugin sees it.
#[derive(Debug, Default)]
pub(super) struct Storage {
    /// Volume, node; and how.
    pub(super) attached: BTreeMap<(String, String), String>,
    /// Volume, node and allocation; and whether it writes.
    pub(super) mounted: BTreeMap<(String, String, String), bool>,
    /// By allocation: what was requested when it let go of its volume last.
    pub(super) unmounted: BTreeMap<String, NodeDetachVolumeRequest>,
    /// With what was requested.
    pub(super) made: BTreeMap<String, ControllerCreateVolumeRequest>,
    pub(super) sizes: BTreeMap<String, i64>,
    pub(super) calls: Vec<String>,
    pub(super) wrong: Vec<String>,
    pub(super) gone: BTreeSet<String>,
    /// What is mounted on nodes from which the volume was taken while they were gone.
    pub(super) stale: BTreeSet<(String, String, String)>,
    /// What is done before the next call.
    pub(super) late: Vec<(&'static str, Bytes)>,
    /// What is done after the next detach, or before the next attach.
    pub(super) later: Vec<(&'static str, Bytes)>,
    /// It does what was requested long ago.
    pub(super) strays: bool,
    /// What was attached when no caller waited for it any more.
    pub(super) stray: BTreeSet<(String, String)>,
    /// Calls that take their time.
    pub(super) busy: usize,
}

impl Storage {
    /// A volume is as large as that, or larger: none is ever made smaller. How large it is.
    pub(super) fn at_least(&mut self, volume: &str, bytes: i64) -> i64 {
        let size = self.sizes.entry(volume.to_owned()).or_default();
        *size = bytes.max(*size);
        *size
    }
}
