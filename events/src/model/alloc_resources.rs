//! What an allocation was given.

use crate::gojson::{List, Map};
use crate::model::{NetworkResource, TaskLifecycleConfig};

crate::wire! {
    /// What an allocation was given, task by task.
    pub struct AllocatedResources {
        tasks: Map<AllocatedTaskResources> = "Tasks",
        task_lifecycles: Map<Option<TaskLifecycleConfig>> = "TaskLifecycles",
        shared: AllocatedSharedResources = "Shared",
    }
}

crate::wire! {
    /// What a task was given.
    pub struct AllocatedTaskResources {
        cpu: AllocatedCpuResources = "Cpu",
        memory: AllocatedMemoryResources = "Memory",
        networks: List<NetworkResource> = "Networks",
        devices: List<AllocatedDeviceResource> = "Devices",
    }
}

crate::wire! {
    /// What the tasks of an allocation share.
    pub struct AllocatedSharedResources {
        networks: List<NetworkResource> = "Networks",
        disk_mb: i64 = "DiskMB",
        ports: List<AllocatedPortMapping> = "Ports",
    }
}

crate::wire! {
    /// MHz and cores of a task.
    pub struct AllocatedCpuResources {
        cpu_shares: i64 = "CpuShares",
        reserved_cores: List<u16> = "ReservedCores",
    }
}

crate::wire! {
    /// MiB of a task.
    pub struct AllocatedMemoryResources {
        memory_mb: i64 = "MemoryMB",
        memory_max_mb: i64 = "MemoryMaxMB",
    }
}

crate::wire! {
    /// Devices of a task.
    pub struct AllocatedDeviceResource {
        vendor: String = "Vendor",
        r#type: String = "Type",
        name: String = "Name",
        device_ids: List<String> = "DeviceIDs",
    }
}

crate::wire! { sparse:
    /// A port of an allocation.
    pub struct AllocatedPortMapping {
        label: String = "Label",
        value: i64 = "Value",
        to: i64 = "To",
        host_ip: String = "HostIP",
        ignore_collision: bool = "IgnoreCollision",
    }
}
