//! Consul Connect: sidecars and gateways of a service.

use crate::gojson::{Any, List, Map};
use crate::model::{ConsulGateway, LogConfig, Resources, VolumeMount, WorkloadIdentity};

crate::wire! {
    /// A service's part in the mesh.
    pub struct ConsulConnect {
        native: bool = "Native",
        sidecar_service: Option<ConsulSidecarService> = "SidecarService",
        sidecar_task: Option<SidecarTask> = "SidecarTask",
        gateway: Option<ConsulGateway> = "Gateway",
    }
}

crate::wire! {
    /// The sidecar's registration.
    pub struct ConsulSidecarService {
        tags: List<String> = "Tags",
        port: String = "Port",
        proxy: Option<ConsulProxy> = "Proxy",
        disable_default_tcp_check: bool = "DisableDefaultTCPCheck",
        meta: Map<String> = "Meta" (Configured),
    }
}

crate::wire! {
    /// Settings of the sidecar's task.
    pub struct SidecarTask {
        name: String = "Name",
        driver: String = "Driver",
        user: String = "User",
        config: Map<Any> = "Config" (Configured),
        env: Map<String> = "Env" (Sensitive),
        resources: Option<Resources> = "Resources",
        meta: Map<String> = "Meta" (Configured),
        kill_timeout: Option<i64> = "KillTimeout",
        log_config: Option<LogConfig> = "LogConfig",
        shutdown_delay: Option<i64> = "ShutdownDelay",
        kill_signal: String = "KillSignal",
        volume_mounts: List<VolumeMount> = "VolumeMounts",
        identities: List<WorkloadIdentity> = "Identities",
    }
}

crate::wire! {
    /// Settings of the sidecar's proxy.
    pub struct ConsulProxy {
        local_service_address: String = "LocalServiceAddress",
        local_service_port: i64 = "LocalServicePort",
        upstreams: List<ConsulUpstream> = "Upstreams",
        expose: Option<ConsulExposeConfig> = "Expose",
        transparent_proxy: Option<ConsulTransparentProxy> = "TransparentProxy",
        config: Map<Any> = "Config" (Configured),
    }
}

crate::wire! {
    /// A service the proxy reaches.
    pub struct ConsulUpstream {
        destination_name: String = "DestinationName",
        destination_namespace: String = "DestinationNamespace",
        destination_partition: String = "DestinationPartition",
        destination_peer: String = "DestinationPeer",
        destination_type: String = "DestinationType",
        local_bind_port: i64 = "LocalBindPort",
        datacenter: String = "Datacenter",
        local_bind_address: String = "LocalBindAddress",
        local_bind_socket_path: String = "LocalBindSocketPath",
        local_bind_socket_mode: String = "LocalBindSocketMode",
        mesh_gateway: ConsulMeshGateway = "MeshGateway",
        config: Map<Any> = "Config" (Configured),
    }
}

crate::wire! {
    /// How an upstream is reached through gateways.
    pub struct ConsulMeshGateway {
        mode: String = "Mode",
    }
}

crate::wire! {
    /// Paths exposed without the mesh.
    pub struct ConsulExposeConfig {
        paths: List<ConsulExposePath> = "Paths",
    }
}

crate::wire! {
    /// One exposed path.
    pub struct ConsulExposePath {
        path: String = "Path",
        protocol: String = "Protocol",
        local_path_port: i64 = "LocalPathPort",
        listener_port: String = "ListenerPort",
    }
}

crate::wire! {
    /// Redirection of a group's traffic into the proxy.
    pub struct ConsulTransparentProxy {
        uid: String = "UID",
        outbound_port: u16 = "OutboundPort",
        exclude_inbound_ports: List<String> = "ExcludeInboundPorts",
        exclude_outbound_ports: List<u16> = "ExcludeOutboundPorts",
        exclude_outbound_cidrs: List<String> = "ExcludeOutboundCIDRs",
        exclude_uids: List<String> = "ExcludeUIDs",
        no_dns: bool = "NoDNS",
    }
}
