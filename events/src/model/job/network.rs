//! Networks and ports, requested and given.

use crate::gojson::{List, Map};

crate::wire! { sparse:
    /// A network that is requested, offered or given.
    pub struct NetworkResource = "network" {
        mode: String = "Mode" [hcl()],
        device: String = "Device" [hcl()],
        cidr: String = "CIDR" [hcl()],
        ip: String = "IP" [hcl()],
        hostname: String = "Hostname" omit [hcl()],
        mbits: i64 = "MBits" [hcl().optional()],
        dns: Option<DnsConfig> = "DNS" [hcl()],
        reserved_ports: List<Port> = "ReservedPorts",
        dynamic_ports: List<Port> = "DynamicPorts",
        cni: Option<CniConfig> = "CNI" [hcl()],
    } + {
        port: List<Port> = "@Ports" [hcl().labelled("Label")],
    }
}

crate::wire! { sparse:
    /// A port of a network, by label.
    pub struct Port = "port" {
        label: String = "Label",
        value: i64 = "Value" [hcl_as("static")],
        to: i64 = "To" [hcl()],
        host_network: String = "HostNetwork" [hcl()],
        ignore_collision: bool = "IgnoreCollision" [hcl()],
    }
}

crate::wire! {
    /// Name resolution inside a network.
    pub struct DnsConfig = "dns" {
        servers: List<String> = "Servers" [hcl()],
        searches: List<String> = "Searches" [hcl()],
        options: List<String> = "Options" [hcl()],
    }
}

crate::wire! {
    /// Arguments for CNI plugins.
    pub struct CniConfig = "cni" {
        args: Map<String> = "Args" (Configured) [hcl()],
    }
}
