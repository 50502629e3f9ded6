//! What a node has.

use crate::gojson::{Any, List, Map};
use crate::model::NetworkResource;

crate::wire! {
    /// What a node offers.
    pub struct NodeResources {
        cpu: LegacyNodeCpuResources = "Cpu",
        processors: NodeProcessorResources = "Processors",
        memory: NodeMemoryResources = "Memory",
        disk: NodeDiskResources = "Disk",
        devices: List<NodeDeviceResource> = "Devices",
        node_networks: List<NodeNetworkResource> = "NodeNetworks",
        networks: List<NetworkResource> = "Networks",
        min_dynamic_port: i64 = "MinDynamicPort",
        max_dynamic_port: i64 = "MaxDynamicPort",
    }
}

crate::wire! {
    /// MHz and cores of a node.
    pub struct LegacyNodeCpuResources {
        cpu_shares: i64 = "CpuShares",
        total_cpu_cores: u16 = "TotalCpuCores",
        reservable_cpu_cores: List<u16> = "ReservableCpuCores",
    }
}

crate::wire! {
    /// A node's processors.
    pub struct NodeProcessorResources {
        topology: Option<Topology> = "Topology",
    }
}

crate::wire! {
    /// Cores and how they lie together; keys in JSON are sorted.
    pub struct Topology {
        cores: List<Core> = "Cores",
        distances: List<Any> = "Distances",
        nodes: List<i64> = "Nodes",
        override_total_compute: u64 = "OverrideTotalCompute",
        override_withold_compute: u64 = "OverrideWitholdCompute",
    }
}

crate::wire! {
    /// One core of a processor; speeds in MHz.
    pub struct Core {
        base_speed: u64 = "BaseSpeed",
        disable: bool = "Disable",
        grade: bool = "Grade",
        guess_speed: u64 = "GuessSpeed",
        id: i64 = "ID",
        max_speed: u64 = "MaxSpeed",
        node_id: i64 = "NodeID",
        socket_id: i64 = "SocketID",
    }
}

crate::wire! {
    /// MiB of a node.
    pub struct NodeMemoryResources {
        memory_mb: i64 = "MemoryMB",
    }
}

crate::wire! {
    /// Disk of a node in MiB.
    pub struct NodeDiskResources {
        disk_mb: i64 = "DiskMB",
    }
}

crate::wire! {
    /// Devices of one kind on a node.
    pub struct NodeDeviceResource {
        vendor: String = "Vendor",
        r#type: String = "Type",
        name: String = "Name",
        instances: List<NodeDevice> = "Instances",
        attributes: Map<Attribute> = "Attributes",
    }
}

crate::wire! {
    /// One device.
    pub struct NodeDevice {
        id: String = "ID",
        healthy: bool = "Healthy",
        health_description: String = "HealthDescription",
        locality: Option<NodeDeviceLocality> = "Locality",
    }
}

crate::wire! {
    /// Where a device is attached.
    pub struct NodeDeviceLocality {
        pci_bus_id: String = "PciBusID",
    }
}

crate::wire! {
    /// A network interface of a node; speed in Mbit/s.
    pub struct NodeNetworkResource {
        mode: String = "Mode",
        device: String = "Device",
        mac_address: String = "MacAddress",
        speed: i64 = "Speed",
        addresses: List<NodeNetworkAddress> = "Addresses",
    }
}

crate::wire! {
    /// An address of an interface.
    pub struct NodeNetworkAddress {
        family: String = "Family",
        alias: String = "Alias",
        address: String = "Address",
        reserved_ports: String = "ReservedPorts",
        gateway: String = "Gateway",
    }
}

crate::wire! {
    /// What a node keeps for itself.
    pub struct NodeReservedResources {
        cpu: NodeReservedCpuResources = "Cpu",
        memory: NodeReservedMemoryResources = "Memory",
        disk: NodeReservedDiskResources = "Disk",
        networks: NodeReservedNetworkResources = "Networks",
    }
}

crate::wire! {
    /// MHz and cores kept.
    pub struct NodeReservedCpuResources {
        cpu_shares: i64 = "CpuShares",
        reserved_cpu_cores: List<u16> = "ReservedCpuCores",
    }
}

crate::wire! {
    /// MiB kept.
    pub struct NodeReservedMemoryResources {
        memory_mb: i64 = "MemoryMB",
    }
}

crate::wire! {
    /// Disk kept in MiB.
    pub struct NodeReservedDiskResources {
        disk_mb: i64 = "DiskMB",
    }
}

crate::wire! {
    /// Ports kept.
    pub struct NodeReservedNetworkResources {
        reserved_host_ports: String = "ReservedHostPorts",
    }
}

crate::wire! {
    /// A typed value with a unit.
    pub struct Attribute {
        float: Option<f64> = "Float",
        int: Option<i64> = "Int",
        string: Option<String> = "String",
        bool: Option<bool> = "Bool",
        unit: String = "Unit",
    }
}
