//! Consul Connect: sidecars and gateways of a service.

use crate::gojson::{Any, List, Map};
use crate::model::{ConsulGateway, LogConfig, Resources, VolumeMount, WorkloadIdentity};

crate::wire! {
    /// A service's part in the mesh.
    pub struct ConsulConnect = "connect" {
        native: bool = "Native" [hcl()],
        sidecar_service: Option<ConsulSidecarService> = "SidecarService" [hcl()],
        sidecar_task: Option<SidecarTask> = "SidecarTask" [hcl()],
        gateway: Option<ConsulGateway> = "Gateway" [hcl()],
    }
}

crate::wire! {
    /// The sidecar's registration.
    pub struct ConsulSidecarService = "sidecar_service" {
        tags: List<String> = "Tags" [hcl()],
        port: String = "Port" [hcl()],
        proxy: Option<ConsulProxy> = "Proxy" [hcl()],
        disable_default_tcp_check: bool = "DisableDefaultTCPCheck" [hcl()],
        meta: Map<String> = "Meta" (Configured) [hcl()],
    }
}

crate::wire! {
    /// Settings of the sidecar's task.
    pub struct SidecarTask = "sidecar_task" {
        name: String = "Name" [hcl()],
        driver: String = "Driver" [hcl()],
        user: String = "User" [hcl()],
        config: Map<Any> = "Config" (Configured) [hcl()],
        env: Map<String> = "Env" (Sensitive) [hcl()],
        resources: Option<Resources> = "Resources" [hcl()],
        meta: Map<String> = "Meta" (Configured) [hcl()],
        kill_timeout: Option<i64> = "KillTimeout" [hcl().duration()],
        log_config: Option<LogConfig> = "LogConfig" [hcl_as("logs")],
        shutdown_delay: Option<i64> = "ShutdownDelay" [hcl().duration()],
        kill_signal: String = "KillSignal" [hcl()],
        volume_mounts: List<VolumeMount> = "VolumeMounts" [hcl_as("volume_mount")],
        identities: List<WorkloadIdentity> = "Identities" [hcl_as("identity")],
    }
}

crate::wire! {
    /// Settings of the sidecar's proxy.
    pub struct ConsulProxy = "proxy" {
        local_service_address: String = "LocalServiceAddress" [hcl()],
        local_service_port: i64 = "LocalServicePort" [hcl()],
        upstreams: List<ConsulUpstream> = "Upstreams" [hcl()],
        expose: Option<ConsulExposeConfig> = "Expose" [hcl()],
        transparent_proxy: Option<ConsulTransparentProxy> = "TransparentProxy" [hcl()],
        config: Map<Any> = "Config" (Configured) [hcl()],
    }
}

crate::wire! {
    /// A service the proxy reaches.
    pub struct ConsulUpstream = "upstreams" {
        destination_name: String = "DestinationName" [hcl()],
        destination_namespace: String = "DestinationNamespace" [hcl()],
        destination_partition: String = "DestinationPartition" [hcl()],
        destination_peer: String = "DestinationPeer" [hcl()],
        destination_type: String = "DestinationType" [hcl()],
        local_bind_port: i64 = "LocalBindPort" [hcl()],
        datacenter: String = "Datacenter" [hcl()],
        local_bind_address: String = "LocalBindAddress" [hcl()],
        local_bind_socket_path: String = "LocalBindSocketPath" [hcl()],
        local_bind_socket_mode: String = "LocalBindSocketMode" [hcl()],
        mesh_gateway: ConsulMeshGateway = "MeshGateway" [hcl()],
        config: Map<Any> = "Config" (Configured) [hcl()],
    }
}

crate::wire! {
    /// How an upstream is reached through gateways.
    pub struct ConsulMeshGateway = "mesh_gateway" {
        mode: String = "Mode" [hcl()],
    }
}

crate::wire! {
    /// Paths exposed without the mesh.
    pub struct ConsulExposeConfig = "expose" {
        paths: List<ConsulExposePath> = "Paths" [hcl_as("path")],
    }
}

crate::wire! {
    /// One exposed path.
    pub struct ConsulExposePath = "path" {
        path: String = "Path" [hcl()],
        protocol: String = "Protocol" [hcl()],
        local_path_port: i64 = "LocalPathPort" [hcl()],
        listener_port: String = "ListenerPort" [hcl()],
    }
}

crate::wire! {
    /// Redirection of a group's traffic into the proxy.
    pub struct ConsulTransparentProxy = "transparent_proxy" {
        uid: String = "UID" [hcl()],
        outbound_port: u16 = "OutboundPort" [hcl()],
        exclude_inbound_ports: List<String> = "ExcludeInboundPorts" [hcl()],
        exclude_outbound_ports: List<u16> = "ExcludeOutboundPorts" [hcl()],
        exclude_outbound_cidrs: List<String> = "ExcludeOutboundCIDRs" [hcl()],
        exclude_uids: List<String> = "ExcludeUIDs" [hcl()],
        no_dns: bool = "NoDNS" [hcl()],
    }
}
