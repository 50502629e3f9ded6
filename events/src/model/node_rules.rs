//! What follows from a node by itself, and its JSON form.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::model::status::{eligibility, node};
use crate::model::{DrainSpec, DrainStrategy, Node};

impl Node {
    /// Up, eligible and not draining: new allocations may come.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.status == node::READY
            && self.drain_strategy.is_none()
            && self.scheduling_eligibility == eligibility::ELIGIBLE
    }

    /// On its way out.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.drain_strategy.is_some()
    }

    /// In a pool, seen through the built-in pool of all nodes.
    #[must_use]
    pub fn in_pool(&self, pool: &str) -> bool {
        pool == crate::model::status::ALL_NODE_POOL || self.node_pool == pool
    }
}

impl DrainStrategy {
    /// How it was requested.
    #[must_use]
    pub fn spec(&self) -> DrainSpec {
        DrainSpec {
            deadline: self.deadline,
            ignore_system_jobs: self.ignore_system_jobs,
        }
    }
}

/// As it is serialised: with the computed `Drain`.
impl JsonSchema for Node {
    fn schema_name() -> Cow<'static, str> {
        "Node".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Self::fields_schema(generator);
        let drain = json_schema!({ "type": "boolean", "description": "Whether a drain is set." });
        if let Some(fields) = schema
            .get_mut("properties")
            .and_then(|fields| fields.as_object_mut())
        {
            fields.insert("Drain".to_owned(), drain.to_value());
        }
        schema
    }
}

/// JSON has every field in key order, the computed `Drain`, and never the secret.
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return self.serialize_fields(serializer);
        }
        let mut out = serializer.serialize_struct("Node", Self::FIELDS.len() + 1)?;
        out.serialize_field("Attributes", &self.attributes)?;
        out.serialize_field("CSIControllerPlugins", &self.csi_controller_plugins)?;
        out.serialize_field("CSINodePlugins", &self.csi_node_plugins)?;
        out.serialize_field("CgroupParent", &self.cgroup_parent)?;
        out.serialize_field("ComputedClass", &self.computed_class)?;
        out.serialize_field("CreateIndex", &self.create_index)?;
        out.serialize_field("Datacenter", &self.datacenter)?;
        out.serialize_field("Drain", &self.draining())?;
        out.serialize_field("DrainStrategy", &self.drain_strategy)?;
        out.serialize_field("Drivers", &self.drivers)?;
        out.serialize_field("Events", &self.events)?;
        out.serialize_field("GCVolumesOnNodeGC", &self.gc_volumes_on_node_gc)?;
        out.serialize_field("HTTPAddr", &self.http_addr)?;
        out.serialize_field("HostNetworks", &self.host_networks)?;
        out.serialize_field("HostVolumes", &self.host_volumes)?;
        out.serialize_field("ID", &self.id)?;
        out.serialize_field("IdentitySigningKeyID", &self.identity_signing_key_id)?;
        out.serialize_field("LastAllocUpdateIndex", &self.last_alloc_update_index)?;
        out.serialize_field("LastDrain", &self.last_drain)?;
        out.serialize_field(
            "LastMissedHeartbeatIndex",
            &self.last_missed_heartbeat_index,
        )?;
        out.serialize_field("Links", &self.links)?;
        out.serialize_field("Meta", &self.meta)?;
        out.serialize_field("ModifyIndex", &self.modify_index)?;
        out.serialize_field("Name", &self.name)?;
        out.serialize_field("NodeClass", &self.node_class)?;
        out.serialize_field("NodeMaxAllocs", &self.node_max_allocs)?;
        out.serialize_field("NodePool", &self.node_pool)?;
        out.serialize_field("NodeResources", &self.node_resources)?;
        out.serialize_field("ReservedResources", &self.reserved_resources)?;
        out.serialize_field("SchedulingEligibility", &self.scheduling_eligibility)?;
        out.serialize_field("SecretID", "")?;
        out.serialize_field("Status", &self.status)?;
        out.serialize_field("StatusDescription", &self.status_description)?;
        out.serialize_field("StatusUpdatedAt", &self.status_updated_at)?;
        out.serialize_field("TLSEnabled", &self.tls_enabled)?;
        out.end()
    }
}
