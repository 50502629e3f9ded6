//! What a task requests.

use crate::gojson::List;
use crate::model::{Affinity, Constraint, NetworkResource};

crate::wire! {
    /// What a task requests: MHz, cores, MiB.
    pub struct Resources = "resources" {
        cpu: i64 = "CPU" [hcl().optional()],
        cores: i64 = "Cores" [hcl().optional().default_int(0)],
        memory_mb: i64 = "MemoryMB" [hcl_as("memory").optional().default_int(300)],
        memory_max_mb: i64 = "MemoryMaxMB" [hcl_as("memory_max").optional()],
        disk_mb: i64 = "DiskMB" [hcl_as("disk").optional()],
        iops: i64 = "IOPS" [hcl().optional()],
        networks: List<NetworkResource> = "Networks" [hcl_as("network")],
        devices: List<RequestedDevice> = "Devices" [hcl_as("device").labelled("Name")],
        numa: Option<Numa> = "NUMA" [hcl()],
        secrets_mb: i64 = "SecretsMB" (Public) [hcl_as("secrets").optional()],
    }
}

crate::wire! {
    /// A device that a task requests.
    pub struct RequestedDevice = "device" {
        name: String = "Name",
        count: u64 = "Count" [hcl().optional().default_int(1)],
        constraints: List<Constraint> = "Constraints" [hcl_as("constraint")],
        affinities: List<Affinity> = "Affinities" [hcl_as("affinity")],
    }
}

crate::wire! {
    /// How a task wants its cores placed.
    pub struct Numa = "numa" {
        affinity: String = "Affinity" [hcl().default_text("none").empty_is_unset()],
        devices: List<String> = "Devices" [hcl()],
    }
}
