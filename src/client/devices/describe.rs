//! Devices as a part of the node: what servers know of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use drover_events::gojson::Time;
use drover_events::model::{
    Attribute, DeviceGroupStats, DeviceStats, NodeDevice, NodeDeviceLocality, NodeDeviceResource,
    NodeResources, StatObject, StatValue,
};
use drover_plugins::proto::device::{self as proto, attribute::Value};

use super::Devices;

/// Most devices that a plugin may report.
const MOST: usize = 4096;

/// The name of a group, as jobs name it.
pub(super) fn full_name(vendor: &str, kind: &str, name: &str) -> String {
    format!("{vendor}/{kind}/{name}")
}

impl Devices {
    /// Puts what is known of devices into the node; a change is reported to the servers.
    pub(super) fn describe(&self) {
        self.changed.send_replace(());
        {
            // Held from before it is collected: of two at once the later one knows no less.
            let mut node = self.node.lock();
            let all: Vec<NodeDeviceResource> = {
                let known = self.known.lock();
                let groups = known.values().flat_map(|one| one.kept.groups.clone());
                groups.collect()
            };
            let reported = node.node_resources.as_ref();
            if reported.map_or(&[][..], |reported| &reported.devices) == all.as_slice() {
                return;
            }
            let mut changed = (**node).clone();
            let resources = changed
                .node_resources
                .get_or_insert_with(NodeResources::default);
            resources.devices = all.into();
            *node = Arc::new(changed);
        }
        self.described.notify_one();
    }
}

/// The devices that a plugin reports, as the node says it.
///
/// # Errors
/// It reports something that is no device.
pub(super) fn groups(
    reported: proto::FingerprintResponse,
) -> Result<Vec<NodeDeviceResource>, String> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for group in reported.device_group {
        let name = full_name(&group.vendor, &group.device_type, &group.device_name);
        for part in [&group.vendor, &group.device_type, &group.device_name] {
            if part.is_empty() {
                return Err(format!("it reports {name:?}, a part of which is empty"));
            }
        }
        for device in &group.devices {
            if device.id.is_empty() || !seen.insert((name.clone(), device.id.clone())) {
                return Err(format!("it reports a device {:?} of {name}", device.id));
            }
        }
        if seen.len() > MOST {
            return Err(format!("it reports more than {MOST} devices"));
        }
        let attributes = group.attributes.into_iter();
        let attributes: BTreeMap<_, _> = attributes
            .map(|(name, value)| (name, attribute(value)))
            .collect();
        let instances: Vec<NodeDevice> = group.devices.into_iter().map(instance).collect();
        out.push(NodeDeviceResource {
            vendor: group.vendor,
            r#type: group.device_type,
            name: group.device_name,
            instances: instances.into(),
            attributes: attributes.into(),
        });
    }
    Ok(out)
}

fn instance(reported: proto::DetectedDevice) -> NodeDevice {
    NodeDevice {
        id: reported.id,
        healthy: reported.healthy,
        health_description: reported.health_description,
        locality: reported.hw_locality.map(|place| NodeDeviceLocality {
            pci_bus_id: place.pci_bus_id,
        }),
    }
}

fn attribute(reported: proto::Attribute) -> Attribute {
    let mut out = Attribute {
        unit: reported.unit,
        ..Attribute::default()
    };
    match reported.value {
        Some(Value::FloatVal(value)) => out.float = Some(value),
        Some(Value::IntVal(value)) => out.int = Some(value),
        Some(Value::StringVal(value)) => out.string = Some(value),
        Some(Value::BoolVal(value)) => out.bool = Some(value),
        None => {}
    }
    out
}

/// What a plugin measured, as statistics say it.
pub(super) fn figures(reported: proto::StatsResponse) -> Vec<DeviceGroupStats> {
    let group = |group: proto::DeviceGroupStats| DeviceGroupStats {
        vendor: group.vendor,
        r#type: group.r#type,
        name: group.name,
        instance_stats: group
            .instance_stats
            .into_iter()
            .map(|(id, reported)| (id, device(reported)))
            .collect(),
    };
    reported.groups.into_iter().map(group).collect()
}

fn device(reported: proto::DeviceStats) -> DeviceStats {
    let time = reported
        .timestamp
        .and_then(|time| SystemTime::try_from(time).ok());
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let nanos = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
    DeviceStats {
        summary: reported.summary.map(value),
        stats: reported.stats.map(object),
        timestamp: Time(nanos.unwrap_or_default()),
    }
}

fn object(reported: proto::StatObject) -> StatObject {
    let nested = reported.nested.into_iter();
    let attributes = reported.attributes.into_iter();
    StatObject {
        nested: nested.map(|(name, one)| (name, object(one))).collect(),
        attributes: attributes.map(|(name, one)| (name, value(one))).collect(),
    }
}

fn value(reported: proto::StatValue) -> StatValue {
    StatValue {
        float_numerator_val: reported.float_numerator_val,
        float_denominator_val: reported.float_denominator_val,
        int_numerator_val: reported.int_numerator_val,
        int_denominator_val: reported.int_denominator_val,
        string_val: reported.string_val,
        bool_val: reported.bool_val,
        unit: reported.unit,
        desc: reported.desc,
    }
}
