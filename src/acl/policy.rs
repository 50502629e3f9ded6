//! What one policy says, read and checked.

use crate::capability::{
    Capability, HostVolumeCapability, NamespaceCapability, NodePoolCapability, OperatorCapability,
    Set, VariableCapability,
};

/// One policy's rules. Words like `policy = "read"` are already the capabilities they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// By namespace or pattern of namespaces.
    pub namespaces: Vec<Rule<NamespaceCapability>>,
    /// By namespace and path, or patterns of them.
    pub variables: Vec<VariableRule>,
    /// By node pool or pattern of node pools.
    pub node_pools: Vec<Rule<NodePoolCapability>>,
    /// By host volume or pattern of host volumes.
    pub host_volumes: Vec<Rule<HostVolumeCapability>>,
    /// What agents report of themselves and take.
    pub agent: Option<PolicyLevel>,
    pub node: Option<PolicyLevel>,
    /// What operators do.
    pub operator: Option<PolicyLevel>,
    /// What operators do, in parts.
    pub operator_capabilities: Set<OperatorCapability>,
    pub quota: Option<PolicyLevel>,
    /// CSI plugins.
    pub plugin: Option<PluginLevel>,
}

/// A name or pattern, and what is allowed under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<C: Capability> {
    /// The name or pattern.
    pub name: String,
    /// What is allowed, or `deny`.
    pub capabilities: Set<C>,
}

/// What is allowed with variables of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableRule {
    /// The namespace or pattern of namespaces.
    pub namespace: String,
    /// The path or pattern of paths.
    pub path: String,
    /// What is allowed, or `deny`.
    pub capabilities: Set<VariableCapability>,
}

/// How far a rule without names goes. In order: what is greater goes before what is less when
/// policies are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyLevel {
    /// It may be read.
    Read,
    /// It may be changed, and read.
    Write,
    /// Nothing, whatever others say.
    Deny,
}

impl PolicyLevel {
    /// What this word of a policy means.
    pub fn of(word: &str) -> Option<PolicyLevel> {
        match word {
            "read" => Some(PolicyLevel::Read),
            "write" => Some(PolicyLevel::Write),
            "deny" => Some(PolicyLevel::Deny),
            _ => None,
        }
    }
}

/// How far a rule about plugins goes, in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginLevel {
    /// They may be listed.
    List,
    /// They may be read, and listed.
    Read,
    /// Nothing, whatever others say.
    Deny,
}

impl PluginLevel {
    /// What this word of a policy means.
    pub fn of(word: &str) -> Option<PluginLevel> {
        match word {
            "list" => Some(PluginLevel::List),
            "read" => Some(PluginLevel::Read),
            "deny" => Some(PluginLevel::Deny),
            _ => None,
        }
    }
}
