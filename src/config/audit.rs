//! The `audit` block: what becomes of requests that change nothing but matter.
//!
//! What changes the state is in the log of the cluster whatever stands here. Sinks and filters of
//! Nomad's block are read so that files carry over: the request log has one place, and holds what
//! matters in full. Only the guarantee of a sink counts.

use super::hcl1::HclNode;
use super::kinds::set;
use super::read::{BodyReader, FromNode, scalar};
use super::settings::{overlay, settings};
use serde_json::{Value, json};

/// What happens where a request cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guarantee {
    /// It is answered, and counted as lost (`best-effort`).
    #[default]
    BestEffort,
    /// It is refused (`enforced`). Both records are on the disk before the answer goes out.
    Enforced,
}

impl Guarantee {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::Enforced => "enforced",
        }
    }
}

impl FromNode for Guarantee {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        let name = scalar(node)?;
        let mut all = [Self::BestEffort, Self::Enforced].into_iter();
        let read = all.find(|one| one.name() == name);
        *self = read.ok_or_else(|| format!("{name:?} is neither best-effort nor enforced"))?;
        Ok(())
    }
}

const REQUESTS: &str = "the request log has one place and all that matters: drover audit requests";

settings! {
/// The settings of the request log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// Whether such requests are written at all.
    pub enabled: bool = true => set shown "Enabled",
    /// Whether one that cannot be written is refused (`enforced`), or answered and counted
    /// (`best-effort`).
    pub delivery_guarantee: Guarantee => set shown "DeliveryGuarantee" by name,
} compat {
    /// Where Nomad writes requests down; its guarantee counts.
    sink = delivery_guarantee => sinks of Sink,
    /// Which requests Nomad leaves out.
    filter = delivery_guarantee => filters unsupported REQUESTS,
}
}

settings! {
/// A `sink` block.
struct Sink {
    /// As that of the block around it.
    delivery_guarantee: Option<Guarantee> => set,
} compat {
    /// What kind of place it is.
    kind: Value => set named "type" unsupported REQUESTS,
    /// How requests are written.
    format: Value => set unsupported REQUESTS,
    /// The file.
    path: Value => set unsupported REQUESTS,
    /// The file's permissions.
    mode: Value => set unsupported REQUESTS,
    /// How large the file may get.
    rotate_bytes: Value => set unsupported REQUESTS,
    /// How old it may get.
    rotate_duration: Value => set unsupported REQUESTS,
    /// How many old ones are kept.
    rotate_max_files: Value => set unsupported REQUESTS,
}
}

fn name(guarantee: &Guarantee) -> Value {
    json!(guarantee.name())
}

fn sinks(guarantee: &mut Guarantee, name: &str, r: &mut BodyReader<'_>) {
    r.labelled(name, |_, r| {
        let mut sink = Sink::default();
        overlay(&mut sink, r);
        if let Some(set) = sink.delivery_guarantee {
            *guarantee = set;
        }
    });
}

fn filters(_: &mut Guarantee, name: &str, r: &mut BodyReader<'_>) {
    r.labelled(name, |_, r| {
        for key in ["type", "endpoints", "stages", "operations"] {
            r.set(key, &mut Value::Null);
        }
    });
}
