//! Networks and ports, asked for and given.

use crate::gojson::{List, Map};

crate::wire! { sparse:
    /// A network asked for, offered or given.
    pub struct NetworkResource {
        mode: String = "Mode",
        device: String = "Device",
        cidr: String = "CIDR",
        ip: String = "IP",
        hostname: String = "Hostname" omit,
        mbits: i64 = "MBits",
        dns: Option<DnsConfig> = "DNS",
        reserved_ports: List<Port> = "ReservedPorts",
        dynamic_ports: List<Port> = "DynamicPorts",
        cni: Option<CniConfig> = "CNI",
    }
}

crate::wire! { sparse:
    /// A port of a network, by label.
    pub struct Port {
        label: String = "Label",
        value: i64 = "Value",
        to: i64 = "To",
        host_network: String = "HostNetwork",
        ignore_collision: bool = "IgnoreCollision",
    }
}

crate::wire! {
    /// Name resolution inside a network.
    pub struct DnsConfig {
        servers: List<String> = "Servers",
        searches: List<String> = "Searches",
        options: List<String> = "Options",
    }
}

crate::wire! {
    /// Arguments for CNI plugins.
    pub struct CniConfig {
        args: Map<String> = "Args" (Configured),
    }
}
