//! Consul Connect: gateways of a service.

use serde::{Deserialize, Serialize};

use crate::gojson::{Any, List, Map};

crate::wire! {
    /// A gateway run as a service.
    pub struct ConsulGateway = "gateway" {
        proxy: Option<ConsulGatewayProxy> = "Proxy" [hcl()],
        ingress: Option<ConsulIngressConfigEntry> = "Ingress" [hcl()],
        terminating: Option<ConsulTerminatingConfigEntry> = "Terminating" [hcl()],
        mesh: Option<ConsulMeshConfigEntry> = "Mesh" [hcl()],
    }
}

crate::wire! {
    /// Settings of a gateway's proxy.
    pub struct ConsulGatewayProxy = "proxy" {
        connect_timeout: Option<i64> = "ConnectTimeout" [hcl().duration().default_seconds(5)],
        envoy_gateway_bind_tagged_addresses: bool = "EnvoyGatewayBindTaggedAddresses" [hcl()],
        envoy_gateway_bind_addresses: Map<ConsulGatewayBindAddress> = "EnvoyGatewayBindAddresses"
            [hcl()],
        envoy_gateway_no_default_bind: bool = "EnvoyGatewayNoDefaultBind" [hcl()],
        envoy_dns_discovery_type: String = "EnvoyDNSDiscoveryType" [hcl()],
        config: Map<Any> = "Config" (Configured) [hcl()],
    }
}

crate::wire! {
    /// An address a gateway listens on.
    pub struct ConsulGatewayBindAddress = "envoy_gateway_bind_addresses" {
        address: String = "Address" [hcl()],
        port: i64 = "Port" [hcl()],
    } + {
        name: String = "Name",
    }
}

crate::wire! {
    /// An ingress gateway.
    pub struct ConsulIngressConfigEntry = "ingress" {
        tls: Option<ConsulGatewayTlsConfig> = "TLS" [hcl()],
        listeners: List<ConsulIngressListener> = "Listeners" [hcl_as("listener")],
    }
}

crate::wire! {
    /// A listener of an ingress gateway.
    pub struct ConsulIngressListener = "listener" {
        port: i64 = "Port" [hcl()],
        protocol: String = "Protocol" [hcl().default_text("tcp").empty_is_unset()],
        services: List<ConsulIngressService> = "Services" [hcl_as("service")],
    }
}

crate::wire! {
    /// A service behind a listener.
    pub struct ConsulIngressService = "service" {
        name: String = "Name" [hcl()],
        hosts: List<String> = "Hosts" [hcl()],
        tls: Option<ConsulGatewayTlsConfig> = "TLS" [hcl()],
        request_headers: Option<ConsulHttpHeaderModifiers> = "RequestHeaders" (Public) [hcl()],
        response_headers: Option<ConsulHttpHeaderModifiers> = "ResponseHeaders" (Public) [hcl()],
        max_connections: Option<u32> = "MaxConnections" [hcl()],
        max_pending_requests: Option<u32> = "MaxPendingRequests" [hcl()],
        max_concurrent_requests: Option<u32> = "MaxConcurrentRequests" [hcl()],
    }
}

crate::wire! {
    /// Headers changed on the way.
    pub struct ConsulHttpHeaderModifiers = "headers" {
        add: Map<String> = "Add" (Sensitive) [hcl()],
        set: Map<String> = "Set" (Sensitive) [hcl()],
        remove: List<String> = "Remove" [hcl()],
    }
}

crate::wire! {
    /// TLS settings of a gateway.
    pub struct ConsulGatewayTlsConfig = "tls" {
        enabled: bool = "Enabled" [hcl()],
        tls_min_version: String = "TLSMinVersion" [hcl()],
        tls_max_version: String = "TLSMaxVersion" [hcl()],
        cipher_suites: List<String> = "CipherSuites" [hcl()],
        sds: Option<ConsulGatewayTlsSdsConfig> = "SDS" [hcl()],
    }
}

crate::wire! {
    /// Certificates from a discovery service.
    pub struct ConsulGatewayTlsSdsConfig = "sds" {
        cluster_name: String = "ClusterName" [hcl()],
        cert_resource: String = "CertResource" [hcl()],
    }
}

crate::wire! {
    /// A terminating gateway.
    pub struct ConsulTerminatingConfigEntry = "terminating" {
        services: List<ConsulLinkedService> = "Services" [hcl_as("service")],
    }
}

crate::wire! {
    /// A service behind a terminating gateway.
    pub struct ConsulLinkedService = "service" {
        name: String = "Name" [hcl()],
        ca_file: String = "CAFile" [hcl()],
        cert_file: String = "CertFile" [hcl()],
        key_file: String = "KeyFile" [hcl()],
        sni: String = "SNI" [hcl()],
    }
}

/// A mesh gateway; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConsulMeshConfigEntry {}

crate::impl_json_schema! {
    ConsulMeshConfigEntry: "A mesh gateway; it has no settings." {}
}

crate::jobspec_block! { ConsulMeshConfigEntry = "mesh" {} }
