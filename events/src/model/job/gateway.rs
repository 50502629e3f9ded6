//! Consul Connect: gateways of a service.

use serde::{Deserialize, Serialize};

use crate::gojson::{Any, List, Map};

crate::wire! {
    /// A gateway run as a service.
    pub struct ConsulGateway {
        proxy: Option<ConsulGatewayProxy> = "Proxy",
        ingress: Option<ConsulIngressConfigEntry> = "Ingress",
        terminating: Option<ConsulTerminatingConfigEntry> = "Terminating",
        mesh: Option<ConsulMeshConfigEntry> = "Mesh",
    }
}

crate::wire! {
    /// Settings of a gateway's proxy.
    pub struct ConsulGatewayProxy {
        connect_timeout: Option<i64> = "ConnectTimeout",
        envoy_gateway_bind_tagged_addresses: bool = "EnvoyGatewayBindTaggedAddresses",
        envoy_gateway_bind_addresses: Map<ConsulGatewayBindAddress> = "EnvoyGatewayBindAddresses",
        envoy_gateway_no_default_bind: bool = "EnvoyGatewayNoDefaultBind",
        envoy_dns_discovery_type: String = "EnvoyDNSDiscoveryType",
        config: Map<Any> = "Config" (Configured),
    }
}

crate::wire! {
    /// An address a gateway listens on.
    pub struct ConsulGatewayBindAddress {
        address: String = "Address",
        port: i64 = "Port",
    }
}

crate::wire! {
    /// An ingress gateway.
    pub struct ConsulIngressConfigEntry {
        tls: Option<ConsulGatewayTlsConfig> = "TLS",
        listeners: List<ConsulIngressListener> = "Listeners",
    }
}

crate::wire! {
    /// A listener of an ingress gateway.
    pub struct ConsulIngressListener {
        port: i64 = "Port",
        protocol: String = "Protocol",
        services: List<ConsulIngressService> = "Services",
    }
}

crate::wire! {
    /// A service behind a listener.
    pub struct ConsulIngressService {
        name: String = "Name",
        hosts: List<String> = "Hosts",
        tls: Option<ConsulGatewayTlsConfig> = "TLS",
        request_headers: Option<ConsulHttpHeaderModifiers> = "RequestHeaders" (Public),
        response_headers: Option<ConsulHttpHeaderModifiers> = "ResponseHeaders" (Public),
        max_connections: Option<u32> = "MaxConnections",
        max_pending_requests: Option<u32> = "MaxPendingRequests",
        max_concurrent_requests: Option<u32> = "MaxConcurrentRequests",
    }
}

crate::wire! {
    /// Headers changed on the way.
    pub struct ConsulHttpHeaderModifiers {
        add: Map<String> = "Add" (Sensitive),
        set: Map<String> = "Set" (Sensitive),
        remove: List<String> = "Remove",
    }
}

crate::wire! {
    /// TLS settings of a gateway.
    pub struct ConsulGatewayTlsConfig {
        enabled: bool = "Enabled",
        tls_min_version: String = "TLSMinVersion",
        tls_max_version: String = "TLSMaxVersion",
        cipher_suites: List<String> = "CipherSuites",
        sds: Option<ConsulGatewayTlsSdsConfig> = "SDS",
    }
}

crate::wire! {
    /// Certificates from a discovery service.
    pub struct ConsulGatewayTlsSdsConfig {
        cluster_name: String = "ClusterName",
        cert_resource: String = "CertResource",
    }
}

crate::wire! {
    /// A terminating gateway.
    pub struct ConsulTerminatingConfigEntry {
        services: List<ConsulLinkedService> = "Services",
    }
}

crate::wire! {
    /// A service behind a terminating gateway.
    pub struct ConsulLinkedService {
        name: String = "Name",
        ca_file: String = "CAFile",
        cert_file: String = "CertFile",
        key_file: String = "KeyFile",
        sni: String = "SNI",
    }
}

/// A mesh gateway; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConsulMeshConfigEntry {}

crate::described! {
    ConsulMeshConfigEntry: "A mesh gateway; it has no settings." {}
}
