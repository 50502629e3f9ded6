//! Namespaces.

use crate::gojson::{Base64, List, Map};

crate::wire! {
    /// A namespace of jobs, variables and volumes.
    pub struct Namespace {
        name: String = "Name",
        description: String = "Description",
        quota: String = "Quota",
        capabilities: Option<NamespaceCapabilities> = "Capabilities",
        node_pool_configuration: Option<NamespaceNodePoolConfiguration> = "NodePoolConfiguration",
        vault_configuration: Option<NamespaceVaultConfiguration> = "VaultConfiguration",
        consul_configuration: Option<NamespaceConsulConfiguration> = "ConsulConfiguration",
        meta: Map<String> = "Meta" (Configured),
        hash: Base64 = "Hash",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        required_extra_claims: Map<String> = "RequiredExtraClaims",
        optional_extra_claims: Map<String> = "OptionalExtraClaims",
    }
}

crate::wire! {
    /// Drivers and network modes a namespace allows.
    pub struct NamespaceCapabilities {
        enabled_task_drivers: List<String> = "EnabledTaskDrivers",
        disabled_task_drivers: List<String> = "DisabledTaskDrivers",
        enabled_network_modes: List<String> = "EnabledNetworkModes",
        disabled_network_modes: List<String> = "DisabledNetworkModes",
    }
}

crate::wire! {
    /// Node pools a namespace allows.
    pub struct NamespaceNodePoolConfiguration {
        default: String = "Default",
        allowed: List<String> = "Allowed",
        denied: List<String> = "Denied",
    }
}

crate::wire! {
    /// Vault clusters a namespace allows.
    pub struct NamespaceVaultConfiguration {
        default: String = "Default",
        allowed: List<String> = "Allowed",
        denied: List<String> = "Denied",
    }
}

crate::wire! {
    /// Consul clusters a namespace allows.
    pub struct NamespaceConsulConfiguration {
        default: String = "Default",
        allowed: List<String> = "Allowed",
        denied: List<String> = "Denied",
    }
}
