//! The service mesh: sidecars and gateways.

use super::task::{IDENTITY, LOGS, RESOURCES, VOLUME_MOUNT};
use super::{BOOL, INT, Kind, ODUR, OU32, STR, Shape, U16, f, j};

/// The `connect` block of a service.
pub(super) static CONNECT: Shape = Shape {
    name: "connect",
    fields: &[
        f("native", "Native", BOOL),
        f(
            "sidecar_service",
            "SidecarService",
            Kind::One(&SIDECAR_SERVICE),
        ),
        f("sidecar_task", "SidecarTask", Kind::One(&SIDECAR_TASK)),
        f("gateway", "Gateway", Kind::One(&GATEWAY)),
    ],
};

static SIDECAR_SERVICE: Shape = Shape {
    name: "sidecar_service",
    fields: &[
        f("tags", "Tags", Kind::Strs),
        f("port", "Port", STR),
        f("proxy", "Proxy", Kind::One(&PROXY)),
        f("disable_default_tcp_check", "DisableDefaultTCPCheck", BOOL),
        f("meta", "Meta", Kind::StrMap),
    ],
};

static SIDECAR_TASK: Shape = Shape {
    name: "sidecar_task",
    fields: &[
        f("name", "Name", STR),
        f("driver", "Driver", STR),
        f("user", "User", STR),
        f("config", "Config", Kind::AnyMap),
        f("env", "Env", Kind::StrMap),
        f("resources", "Resources", Kind::One(&RESOURCES)),
        f("meta", "Meta", Kind::StrMap),
        f("kill_timeout", "KillTimeout", ODUR),
        f("logs", "LogConfig", Kind::One(&LOGS)),
        f("shutdown_delay", "ShutdownDelay", ODUR),
        f("kill_signal", "KillSignal", STR),
        f("volume_mount", "VolumeMounts", Kind::Many(&VOLUME_MOUNT)),
        f("identity", "Identities", Kind::Many(&IDENTITY)),
    ],
};

static PROXY: Shape = Shape {
    name: "proxy",
    fields: &[
        f("local_service_address", "LocalServiceAddress", STR),
        f("local_service_port", "LocalServicePort", INT),
        f("upstreams", "Upstreams", Kind::Many(&UPSTREAM)),
        f("expose", "Expose", Kind::One(&EXPOSE)),
        f(
            "transparent_proxy",
            "TransparentProxy",
            Kind::One(&TRANSPARENT_PROXY),
        ),
        f("config", "Config", Kind::AnyMap),
    ],
};

static UPSTREAM: Shape = Shape {
    name: "upstreams",
    fields: &[
        f("destination_name", "DestinationName", STR),
        f("destination_namespace", "DestinationNamespace", STR),
        f("destination_peer", "DestinationPeer", STR),
        f("destination_partition", "DestinationPartition", STR),
        f("destination_type", "DestinationType", STR),
        f("local_bind_port", "LocalBindPort", INT),
        f("datacenter", "Datacenter", STR),
        f("local_bind_address", "LocalBindAddress", STR),
        f("local_bind_socket_path", "LocalBindSocketPath", STR),
        f("local_bind_socket_mode", "LocalBindSocketMode", STR),
        f("mesh_gateway", "MeshGateway", Kind::One(&MESH_GATEWAY)),
        f("config", "Config", Kind::AnyMap),
    ],
};

static MESH_GATEWAY: Shape = Shape {
    name: "mesh_gateway",
    fields: &[f("mode", "Mode", STR)],
};

static EXPOSE: Shape = Shape {
    name: "expose",
    fields: &[f("path", "Paths", Kind::Many(&EXPOSE_PATH))],
};

static EXPOSE_PATH: Shape = Shape {
    name: "path",
    fields: &[
        f("path", "Path", STR),
        f("protocol", "Protocol", STR),
        f("local_path_port", "LocalPathPort", INT),
        f("listener_port", "ListenerPort", STR),
    ],
};

static TRANSPARENT_PROXY: Shape = Shape {
    name: "transparent_proxy",
    fields: &[
        f("uid", "UID", STR),
        f("outbound_port", "OutboundPort", U16),
        f("exclude_inbound_ports", "ExcludeInboundPorts", Kind::Strs),
        f(
            "exclude_outbound_ports",
            "ExcludeOutboundPorts",
            Kind::Ports,
        ),
        f("exclude_outbound_cidrs", "ExcludeOutboundCIDRs", Kind::Strs),
        f("exclude_uids", "ExcludeUIDs", Kind::Strs),
        f("no_dns", "NoDNS", BOOL),
    ],
};

static GATEWAY: Shape = Shape {
    name: "gateway",
    fields: &[
        f("proxy", "Proxy", Kind::One(&GATEWAY_PROXY)),
        f("ingress", "Ingress", Kind::One(&INGRESS)),
        f("terminating", "Terminating", Kind::One(&TERMINATING)),
        f("mesh", "Mesh", Kind::One(&MESH)),
    ],
};

static MESH: Shape = Shape {
    name: "mesh",
    fields: &[],
};

static GATEWAY_PROXY: Shape = Shape {
    name: "proxy",
    fields: &[
        f("connect_timeout", "ConnectTimeout", ODUR),
        f(
            "envoy_gateway_bind_tagged_addresses",
            "EnvoyGatewayBindTaggedAddresses",
            BOOL,
        ),
        f(
            "envoy_gateway_bind_addresses",
            "EnvoyGatewayBindAddresses",
            Kind::ByLabel(&BIND_ADDRESS, "Name"),
        ),
        f(
            "envoy_gateway_no_default_bind",
            "EnvoyGatewayNoDefaultBind",
            BOOL,
        ),
        f("envoy_dns_discovery_type", "EnvoyDNSDiscoveryType", STR),
        f("config", "Config", Kind::AnyMap),
    ],
};

static BIND_ADDRESS: Shape = Shape {
    name: "envoy_gateway_bind_addresses",
    fields: &[
        j("Name", STR),
        f("address", "Address", STR),
        f("port", "Port", INT),
    ],
};

static INGRESS: Shape = Shape {
    name: "ingress",
    fields: &[
        f("tls", "TLS", Kind::One(&GATEWAY_TLS)),
        f("listener", "Listeners", Kind::Many(&LISTENER)),
    ],
};

static GATEWAY_TLS: Shape = Shape {
    name: "tls",
    fields: &[
        f("enabled", "Enabled", BOOL),
        f("tls_min_version", "TLSMinVersion", STR),
        f("tls_max_version", "TLSMaxVersion", STR),
        f("cipher_suites", "CipherSuites", Kind::Strs),
        f("sds", "SDS", Kind::One(&SDS)),
    ],
};

static SDS: Shape = Shape {
    name: "sds",
    fields: &[
        f("cluster_name", "ClusterName", STR),
        f("cert_resource", "CertResource", STR),
    ],
};

static LISTENER: Shape = Shape {
    name: "listener",
    fields: &[
        f("port", "Port", INT),
        f("protocol", "Protocol", STR),
        f("service", "Services", Kind::Many(&INGRESS_SERVICE)),
    ],
};

static INGRESS_SERVICE: Shape = Shape {
    name: "service",
    fields: &[
        f("name", "Name", STR),
        f("hosts", "Hosts", Kind::Strs),
        f("tls", "TLS", Kind::One(&GATEWAY_TLS)),
        f("request_headers", "RequestHeaders", Kind::One(&HEADERS)),
        f("response_headers", "ResponseHeaders", Kind::One(&HEADERS)),
        f("max_connections", "MaxConnections", OU32),
        f("max_pending_requests", "MaxPendingRequests", OU32),
        f("max_concurrent_requests", "MaxConcurrentRequests", OU32),
    ],
};

static HEADERS: Shape = Shape {
    name: "headers",
    fields: &[
        f("add", "Add", Kind::StrMap),
        f("set", "Set", Kind::StrMap),
        f("remove", "Remove", Kind::Strs),
    ],
};

static TERMINATING: Shape = Shape {
    name: "terminating",
    fields: &[f("service", "Services", Kind::Many(&LINKED_SERVICE))],
};

static LINKED_SERVICE: Shape = Shape {
    name: "service",
    fields: &[
        f("name", "Name", STR),
        f("ca_file", "CAFile", STR),
        f("cert_file", "CertFile", STR),
        f("key_file", "KeyFile", STR),
        f("sni", "SNI", STR),
    ],
};
