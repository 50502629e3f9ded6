//! What a task asks for.

use crate::gojson::List;
use crate::model::{Affinity, Constraint, NetworkResource};

crate::wire! {
    /// What a task asks for: MHz, cores, MiB.
    pub struct Resources {
        cpu: i64 = "CPU",
        cores: i64 = "Cores",
        memory_mb: i64 = "MemoryMB",
        memory_max_mb: i64 = "MemoryMaxMB",
        disk_mb: i64 = "DiskMB",
        iops: i64 = "IOPS",
        networks: List<NetworkResource> = "Networks",
        devices: List<RequestedDevice> = "Devices",
        numa: Option<Numa> = "NUMA",
        secrets_mb: i64 = "SecretsMB" (Public),
    }
}

crate::wire! {
    /// A device a task asks for.
    pub struct RequestedDevice {
        name: String = "Name",
        count: u64 = "Count",
        constraints: List<Constraint> = "Constraints",
        affinities: List<Affinity> = "Affinities",
    }
}

crate::wire! {
    /// How a task wants its cores placed.
    pub struct Numa {
        affinity: String = "Affinity",
        devices: List<String> = "Devices",
    }
}
