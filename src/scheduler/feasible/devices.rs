//! Devices a task requests: `type`, `vendor/type` or `vendor/type/name`, with constraints.

use drover_events::model::{
    AllocatedDeviceResource, Attribute, Constraint, Node, NodeDeviceResource, RequestedDevice,
};

use super::OperandCache;
use crate::cluster::{Usage, device_key};

/// A request for devices.
#[derive(Clone, Debug)]
pub struct DeviceAsk {
    name: String,
    count: usize,
    constraints: Vec<Constraint>,
}

impl DeviceAsk {
    /// Takes what matters of a request.
    pub fn new(request: &RequestedDevice) -> Self {
        Self {
            name: request.name.clone(),
            count: usize::try_from(request.count).unwrap_or(usize::MAX),
            constraints: request.constraints.to_vec(),
        }
    }

    /// Whether it looks at what differs between nodes of a class: which instances there are.
    pub fn escapes_class(&self) -> bool {
        let targets = self
            .constraints
            .iter()
            .flat_map(|c| [&c.l_target, &c.r_target]);
        targets.into_iter().any(|target| target == "${device.ids}")
    }

    /// Whether the node has as many healthy devices as requested, in use or not.
    pub fn possible(&self, node: &Node, operands: &mut OperandCache) -> bool {
        groups(node).any(|group| {
            self.suits(group, operands)
                && group.instances.iter().filter(|i| i.healthy).count() >= self.count
        })
    }

    fn suits(&self, group: &NodeDeviceResource, operands: &mut OperandCache) -> bool {
        let parts: Vec<&str> = self.name.split('/').collect();
        let named = match parts.as_slice() {
            [kind] => group.r#type == *kind,
            [vendor, kind] => group.vendor == *vendor && group.r#type == *kind,
            [vendor, kind, name @ ..] => {
                group.vendor == *vendor && group.r#type == *kind && group.name == name.join("/")
            }
            [] => false,
        };
        named
            && self.constraints.iter().all(|c| {
                let left = resolve(&c.l_target, group);
                let right = resolve(&c.r_target, group);
                operands.check(&c.operand, left.as_deref(), right.as_deref())
            })
    }
}

fn groups(node: &Node) -> impl Iterator<Item = &NodeDeviceResource> {
    node.node_resources.iter().flat_map(|r| r.devices.iter())
}

/// Free instances for a request on a node, given what is used and what was just taken.
pub fn device_offer(
    ask: &DeviceAsk,
    node: &Node,
    used: &Usage,
    taken: &[u64],
    operands: &mut OperandCache,
) -> Option<AllocatedDeviceResource> {
    for group in groups(node) {
        if !ask.suits(group, operands) {
            continue;
        }
        let free = group.instances.iter().filter(|instance| {
            let key = device_key(&group.vendor, &group.r#type, &group.name, &instance.id);
            instance.healthy && !used.devices().contains(&key) && !taken.contains(&key)
        });
        let ids: Vec<String> = free.take(ask.count).map(|i| i.id.clone()).collect();
        if ids.len() == ask.count {
            return Some(AllocatedDeviceResource {
                vendor: group.vendor.clone(),
                r#type: group.r#type.clone(),
                name: group.name.clone(),
                device_ids: ids.into(),
            });
        }
    }
    None
}

fn resolve(target: &str, group: &NodeDeviceResource) -> Option<String> {
    let Some(name) = target.strip_prefix("${").and_then(|t| t.strip_suffix('}')) else {
        return Some(target.to_owned());
    };
    match name {
        "device.vendor" => Some(group.vendor.clone()),
        "device.type" => Some(group.r#type.clone()),
        "device.model" => Some(group.name.clone()),
        "device.ids" => {
            let ids: Vec<&str> = group.instances.iter().map(|i| i.id.as_str()).collect();
            Some(ids.join(","))
        }
        _ => group
            .attributes
            .get(name.strip_prefix("device.attr.")?)
            .map(text),
    }
}

/// An attribute as constraints see it.
pub(super) fn text(attribute: &Attribute) -> String {
    if let Some(text) = &attribute.string {
        return text.clone();
    }
    if let Some(number) = attribute.int {
        return number.to_string();
    }
    if let Some(number) = attribute.float {
        return number.to_string();
    }
    attribute.bool.map(|b| b.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use drover_events::model::NodeDevice;

    use super::*;

    fn group() -> NodeDeviceResource {
        let instances = ["a", "b"].map(|id| NodeDevice {
            id: id.into(),
            ..NodeDevice::default()
        });
        NodeDeviceResource {
            vendor: "acme".into(),
            r#type: "gpu".into(),
            name: "x/1".into(),
            instances: instances.to_vec().into(),
            ..NodeDeviceResource::default()
        }
    }

    #[test]
    fn a_device_is_asked_for_by_its_type_vendor_and_name() {
        let suits = |name: &str| {
            let ask = DeviceAsk::new(&RequestedDevice {
                name: name.into(),
                count: 1,
                ..RequestedDevice::default()
            });
            ask.suits(&group(), &mut OperandCache::default())
        };
        for name in ["gpu", "acme/gpu", "acme/gpu/x/1"] {
            assert!(suits(name), "{name}");
        }
        let others = ["fpga", "other/gpu", "acme/fpga"];
        for name in others
            .into_iter()
            .chain(["other/gpu/x/1", "acme/fpga/x/1", "acme/gpu/x"])
        {
            assert!(!suits(name), "{name}");
        }
    }

    #[test]
    fn targets_are_looked_up_on_the_device() {
        for (target, want) in [
            ("plain", Some("plain")),
            ("${device.vendor}", Some("acme")),
            ("${device.type}", Some("gpu")),
            ("${device.model}", Some("x/1")),
            ("${device.ids}", Some("a,b")),
            ("${device.attr.memory}", None),
            ("${other}", None),
        ] {
            assert_eq!(resolve(target, &group()).as_deref(), want, "{target}");
        }
    }
}
