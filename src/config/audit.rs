//! The `audit` block: what becomes of requests that change nothing but matter.
//!
//! What changes the state is in the log of the cluster whatever stands here. Sinks and filters of
//! Nomad's block are read so that files carry over: the request log has one place, and holds what
//! matters in full. Only the guarantee of a sink counts.

use super::hcl1::Node;
use super::read::{FromNode, Reader, scalar};
use crate::requests::Guarantee;

/// What the request log was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// Whether such requests are written at all.
    pub enabled: bool,
    /// Whether one that cannot be written is refused (`enforced`), or answered and counted
    /// (`best-effort`).
    pub delivery_guarantee: Guarantee,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            delivery_guarantee: Guarantee::default(),
        }
    }
}

impl AuditConfig {
    /// Reads the block onto this.
    pub(crate) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("enabled", &mut self.enabled);
        r.set("delivery_guarantee", &mut self.delivery_guarantee);
        r.labelled("sink", |_, r| {
            r.set("delivery_guarantee", &mut self.delivery_guarantee);
            unused(
                r,
                &[
                    "type",
                    "format",
                    "path",
                    "mode",
                    "rotate_bytes",
                    "rotate_duration",
                    "rotate_max_files",
                ],
            );
        });
        r.labelled("filter", |_, r| {
            unused(r, &["type", "endpoints", "stages", "operations"]);
        });
    }
}

fn unused(r: &mut Reader<'_>, keys: &[&str]) {
    for key in keys {
        r.set(key, &mut serde_json::Value::Null);
    }
}

impl FromNode for Guarantee {
    fn read(&mut self, node: &Node) -> Result<(), String> {
        let name = scalar(node)?;
        let read = Guarantee::from_name(&name);
        *self = read.ok_or_else(|| format!("{name:?} is neither best-effort nor enforced"))?;
        Ok(())
    }
}
