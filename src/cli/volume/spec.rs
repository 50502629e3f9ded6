//! Volume specifications, HCL or JSON, as the API takes them.

use super::super::spec::first;
use anyhow::{Context, Result, bail};
use drover_events::model::status::VolumeType;
use serde_json::{Map, Value as Json, json};

/// A specification, and the type of volume that it is about.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) kind: VolumeType,
    /// The volume, with the API's names.
    pub(super) volume: Json,
}

/// Reads a specification.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(name: &str, text: &str) -> Result<Spec> {
    let fields: Json = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).context("Error decoding the volume definition")?,
        false => crate::jobspec::parse_other_spec(name, text)
            .map_err(|err| anyhow::anyhow!("Error decoding the volume definition: {err}"))?,
    };
    let Some(fields) = fields.as_object() else {
        bail!("Error decoding the volume definition: it is no object");
    };
    let kind = match fields.get("type").and_then(Json::as_str) {
        None => VolumeType::Csi,
        Some(kind) => match VolumeType::of(kind) {
            Some(kind) => kind,
            None => bail!("Error unknown volume type: {kind}"),
        },
    };
    let volume = match kind {
        VolumeType::Host => host(fields)?,
        VolumeType::Csi => csi(fields)?,
    };
    Ok(Spec { kind, volume })
}

fn csi(fields: &Map<String, Json>) -> Result<Json> {
    let mut volume = json!({});
    for (key, value) in fields {
        match key.as_str() {
            "type" => {}
            "id" => volume["ID"] = word(key, value)?,
            "name" => volume["Name"] = word(key, value)?,
            "namespace" => volume["Namespace"] = word(key, value)?,
            "plugin_id" => volume["PluginID"] = word(key, value)?,
            "external_id" => volume["ExternalID"] = word(key, value)?,
            "snapshot_id" => volume["SnapshotID"] = word(key, value)?,
            "clone_id" => volume["CloneID"] = word(key, value)?,
            "capacity_min" => volume["RequestedCapacityMin"] = bytes(key, value)?,
            "capacity_max" => volume["RequestedCapacityMax"] = bytes(key, value)?,
            "capability" => volume["RequestedCapabilities"] = capabilities(value)?,
            "mount_options" => volume["MountOptions"] = mount_options(&first(value))?,
            "topology_request" => volume["RequestedTopologies"] = topologies(&first(value))?,
            "secrets" => volume["Secrets"] = words(key, &first(value))?,
            "parameters" => volume["Parameters"] = words(key, &first(value))?,
            "context" => volume["Context"] = words(key, &first(value))?,
            other => bail!("Error decoding the volume definition: unexpected key {other:?}"),
        }
    }
    Ok(volume)
}

fn host(fields: &Map<String, Json>) -> Result<Json> {
    let mut volume = json!({});
    for (key, value) in fields {
        match key.as_str() {
            "type" => {}
            "id" => volume["ID"] = word(key, value)?,
            "name" => volume["Name"] = word(key, value)?,
            "namespace" => volume["Namespace"] = word(key, value)?,
            "plugin_id" => volume["PluginID"] = word(key, value)?,
            "node_pool" => volume["NodePool"] = word(key, value)?,
            "node_id" => volume["NodeID"] = word(key, value)?,
            "host_path" => volume["HostPath"] = word(key, value)?,
            "capacity" => volume["CapacityBytes"] = bytes(key, value)?,
            "capacity_min" => volume["RequestedCapacityMinBytes"] = bytes(key, value)?,
            "capacity_max" => volume["RequestedCapacityMaxBytes"] = bytes(key, value)?,
            "capability" => volume["RequestedCapabilities"] = capabilities(value)?,
            "constraint" => volume["Constraints"] = constraints(value)?,
            "parameters" => volume["Parameters"] = words(key, &first(value))?,
            other => bail!("Error decoding the volume definition: unexpected key {other:?}"),
        }
    }
    Ok(volume)
}

fn word(key: &str, value: &Json) -> Result<Json> {
    match value {
        Json::String(_) => Ok(value.clone()),
        _ => bail!("Error decoding the volume definition: {key} is no text"),
    }
}

/// A block, or several; a JSON file may give the one without a list around it.
fn blocks(value: &Json) -> Vec<Json> {
    match value {
        Json::Array(all) => all.clone(),
        one => vec![one.clone()],
    }
}

fn words(key: &str, value: &Json) -> Result<Json> {
    let Some(fields) = value.as_object() else {
        bail!("Error decoding the volume definition: {key} is no block");
    };
    let mut words = Map::new();
    for (name, value) in fields {
        let text = match value {
            Json::String(text) => text.clone(),
            Json::Bool(_) | Json::Number(_) => value.to_string(),
            _ => bail!("Error decoding the volume definition: {key}.{name} is no text"),
        };
        words.insert(name.clone(), Json::String(text));
    }
    Ok(Json::Object(words))
}

fn capabilities(value: &Json) -> Result<Json> {
    let mut all = Vec::new();
    for block in blocks(value) {
        let mut capability = json!({});
        for (key, value) in block.as_object().into_iter().flatten() {
            match key.as_str() {
                "access_mode" => capability["AccessMode"] = word(key, value)?,
                "attachment_mode" => capability["AttachmentMode"] = word(key, value)?,
                other => bail!("Error decoding the volume definition: capability has no {other:?}"),
            }
        }
        all.push(capability);
    }
    Ok(Json::Array(all))
}

fn mount_options(block: &Json) -> Result<Json> {
    let mut options = json!({});
    for (key, value) in block.as_object().into_iter().flatten() {
        match key.as_str() {
            "fs_type" => options["FSType"] = word(key, value)?,
            "mount_flags" => options["MountFlags"] = value.clone(),
            other => bail!("Error decoding the volume definition: mount_options has no {other:?}"),
        }
    }
    Ok(options)
}

fn topologies(block: &Json) -> Result<Json> {
    let mut request = json!({});
    for (key, value) in block.as_object().into_iter().flatten() {
        let name = match key.as_str() {
            "required" => "Required",
            "preferred" => "Preferred",
            other => {
                bail!("Error decoding the volume definition: topology_request has no {other:?}")
            }
        };
        let mut all = Vec::new();
        for topology in blocks(&first(value)["topology"]) {
            let segments = words("segments", &first(&topology["segments"]))?;
            all.push(json!({ "Segments": segments }));
        }
        request[name] = Json::Array(all);
    }
    Ok(request)
}

fn constraints(value: &Json) -> Result<Json> {
    let mut all = Vec::new();
    for block in blocks(value) {
        let mut constraint = json!({ "Operand": "=" });
        for (key, value) in block.as_object().into_iter().flatten() {
            match key.as_str() {
                "attribute" => constraint["LTarget"] = word(key, value)?,
                "value" => constraint["RTarget"] = word(key, value)?,
                "operator" => constraint["Operand"] = word(key, value)?,
                other => bail!("Error decoding the volume definition: constraint has no {other:?}"),
            }
        }
        all.push(constraint);
    }
    Ok(Json::Array(all))
}

/// A size: bytes as a number, or with a unit, as 10GiB and 20G.
fn bytes(key: &str, value: &Json) -> Result<Json> {
    let wrong = || anyhow::anyhow!("Error decoding the volume definition: {key} is no size");
    match value {
        Json::Number(number) if number.is_u64() => Ok(value.clone()),
        Json::String(text) => Ok(json!(size(text).ok_or_else(wrong)?)),
        _ => Err(wrong()),
    }
}

fn size(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let (letter, base) = match unit.strip_suffix("ib") {
        Some(letter) => (letter, 1024_i64),
        None => (unit.strip_suffix('b').unwrap_or(&unit), 1000),
    };
    let power = match letter {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    number
        .parse::<i64>()
        .ok()?
        .checked_mul(base.checked_pow(power)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use drover_events::model::{CsiVolume, HostVolume};

    use super::super::super::spec::unread_of;
    use super::*;

    #[test]
    fn examples_are_what_the_api_takes() {
        let spec = parse("volume.hcl", super::super::init::CSI_HCL).unwrap();
        assert_eq!(spec.kind, VolumeType::Csi);
        let volume = spec.volume;
        assert_eq!(volume["ID"], "ebs_prod_db1");
        assert_eq!(volume["RequestedCapacityMin"], 10_i64 << 30);
        assert_eq!(volume["RequestedCapacityMax"], 20_000_000_000_i64);
        assert_eq!(
            volume["RequestedCapabilities"],
            json!([{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}])
        );
        assert_eq!(
            volume["MountOptions"],
            json!({"FSType": "ext4", "MountFlags": ["noatime"]})
        );
        assert_eq!(volume["Secrets"], json!({"example_secret": "xyzzy"}));
        assert_eq!(volume["Context"], json!({}));
    }

    /// Fields of a specification that hold a text.
    fn texts(names: &[&'static str]) -> BTreeMap<&'static str, Json> {
        names.iter().map(|name| (*name, json!("text"))).collect()
    }

    #[test]
    fn specifications_say_what_volumes_have() {
        let capability = json!([{"access_mode": "a", "attachment_mode": "b"}]);
        let topology = json!({"topology": [{"segments": {"rack": "R1"}}]});
        let mut csi = texts(&[
            "id",
            "name",
            "namespace",
            "plugin_id",
            "external_id",
            "snapshot_id",
            "clone_id",
        ]);
        csi.extend([
            ("capacity_min", json!(1)),
            ("capacity_max", json!("1GiB")),
            ("capability", capability.clone()),
            (
                "mount_options",
                json!({"fs_type": "ext4", "mount_flags": ["noatime"]}),
            ),
            (
                "topology_request",
                json!({"required": topology, "preferred": topology}),
            ),
            ("secrets", json!({"a": "b"})),
            ("parameters", json!({"a": "b"})),
            ("context", json!({"a": "b"})),
        ]);
        let spec = parse("csi.json", &json!(csi).to_string()).unwrap();
        assert_eq!(unread_of::<CsiVolume>(&spec.volume), [""; 0]);
        let mut host = texts(&[
            "id",
            "name",
            "namespace",
            "plugin_id",
            "node_pool",
            "node_id",
            "host_path",
        ]);
        let constraint = json!({"attribute": "a", "value": "b", "operator": "!="});
        host.extend([
            ("type", json!("host")),
            ("capacity", json!(1)),
            ("capacity_min", json!(1)),
            ("capacity_max", json!(1)),
            ("capability", capability),
            ("constraint", constraint),
            ("parameters", json!({"a": "b"})),
        ]);
        let spec = parse("host.json", &json!(host).to_string()).unwrap();
        assert_eq!(unread_of::<HostVolume>(&spec.volume), [""; 0]);
    }

    #[test]
    fn hcl_and_json_mean_the_same() {
        let hcl = r#"
id = "a"
plugin_id = "p"
capability {
  access_mode = "single-node-writer"
  attachment_mode = "file-system"
}
capability {
  access_mode = "multi-node-multi-writer"
  attachment_mode = "file-system"
}
topology_request {
  required {
    topology {
      segments {
        rack = "R1"
      }
    }
    topology {
      segments {
        rack = "R2"
      }
    }
  }
}
"#;
        let json_text = r#"{"id": "a", "plugin_id": "p", "capability": [
{"access_mode": "single-node-writer", "attachment_mode": "file-system"},
{"access_mode": "multi-node-multi-writer", "attachment_mode": "file-system"}],
"topology_request": {"required": {"topology": [
{"segments": {"rack": "R1"}}, {"segments": {"rack": "R2"}}]}}}"#;
        let (one, other) = (parse("a", hcl).unwrap(), parse("b", json_text).unwrap());
        assert_eq!(one.volume, other.volume);
        assert_eq!(
            one.volume["RequestedTopologies"]["Required"][1],
            json!({"Segments": {"rack": "R2"}})
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("type = \"nfs\"", "unknown volume type: nfs"),
            ("idd = \"a\"", "unexpected key \"idd\""),
            ("capacity_min = \"much\"", "capacity_min is no size"),
            ("id = 3", "id is no text"),
        ] {
            let err = parse("v.hcl", text).unwrap_err();
            assert!(format!("{err:#}").contains(expected), "{err:#}");
        }
        let host = parse("v.hcl", "type = \"host\"\nname = \"a\"\ncapacity_min = 5").unwrap();
        assert_eq!(
            (
                host.kind.as_str(),
                &host.volume["RequestedCapacityMinBytes"]
            ),
            ("host", &json!(5))
        );
    }
}
