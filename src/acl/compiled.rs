//! What policies allow together.

use std::collections::{BTreeMap, HashMap};

use crate::capability::{
    Capability, HostVolumeCapability, NamespaceCapability, NodePoolCapability, OperatorCapability,
    Set, VariableCapability,
};
use crate::glob::Glob;
use crate::policy::{PluginLevel, Policy, PolicyLevel};

/// Stands between a namespace and a path; neither has it.
const BETWEEN: char = '\0';

/// What a caller may do: the union of policies, denials before everything else. It never changes;
/// share it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Acl {
    management: bool,
    namespaces: KindRules<NamespaceCapability>,
    /// By namespace and path in one text.
    variables: KindRules<VariableCapability>,
    node_pools: KindRules<NodePoolCapability>,
    host_volumes: KindRules<HostVolumeCapability>,
    agent: Option<PolicyLevel>,
    node: Option<PolicyLevel>,
    operator: Option<PolicyLevel>,
    operator_capabilities: Set<OperatorCapability>,
    plugin: Option<PluginLevel>,
}

impl Acl {
    /// Everything is allowed.
    pub fn management() -> Acl {
        Acl {
            management: true,
            ..Acl::default()
        }
    }

    /// Nothing is allowed.
    pub fn denied() -> Acl {
        Acl::default()
    }

    /// What these policies allow together, in whatever order they come.
    pub fn compile(policies: &[&Policy]) -> Acl {
        let all = || policies.iter();
        let namespaces = all().flat_map(|p| &p.namespaces);
        let variables = all().flat_map(|p| &p.variables);
        let node_pools = all().flat_map(|p| &p.node_pools);
        let host_volumes = all().flat_map(|p| &p.host_volumes);
        let mut operator_capabilities = Set::default();
        for policy in policies {
            operator_capabilities.merge(policy.operator_capabilities);
        }
        Acl {
            management: false,
            namespaces: KindRules::new(namespaces.map(|r| (r.name.clone(), r.capabilities))),
            variables: KindRules::new(
                variables.map(|r| (joined(&r.namespace, &r.path), r.capabilities)),
            ),
            node_pools: KindRules::new(node_pools.map(|r| (r.name.clone(), r.capabilities))),
            host_volumes: KindRules::new(host_volumes.map(|r| (r.name.clone(), r.capabilities))),
            agent: all().filter_map(|p| p.agent).max(),
            node: all().filter_map(|p| p.node).max(),
            operator: all().filter_map(|p| p.operator).max(),
            operator_capabilities,
            plugin: all().filter_map(|p| p.plugin).max(),
        }
    }

    /// What a workload may: what these policies allow, and to read the variables that lie under
    /// these paths of its namespace. A policy that names such a path itself counts instead; one
    /// that has a pattern does not (WI-08).
    pub fn of_workload(policies: &[&Policy], namespace: &str, own: &[String]) -> Acl {
        let mut acl = Acl::compile(policies);
        let mut reads = Set::default();
        reads.insert(VariableCapability::Read);
        for path in own {
            let exact = acl.variables.exact.entry(joined(namespace, path));
            exact.or_insert(reads);
        }
        acl
    }

    /// Whether everything is allowed.
    pub fn is_management(&self) -> bool {
        self.management
    }

    /// Whether nothing is allowed, nor could be.
    pub fn is_nothing(&self) -> bool {
        *self == Self::denied()
    }

    /// Whether this may be done in a namespace.
    pub fn namespace_allows(&self, ns: &str, capability: NamespaceCapability) -> bool {
        self.management || self.namespaces.of(ns).allows(capability)
    }

    /// Whether at least one of these may be done in a namespace.
    pub fn namespace_allows_any(&self, ns: &str, any: &[NamespaceCapability]) -> bool {
        let set = self.namespaces.of(ns);
        self.management || any.iter().any(|capability| set.allows(*capability))
    }

    /// Whether anything at all may be done in a namespace: then it may be known that it is there.
    pub fn namespace_visible(&self, ns: &str) -> bool {
        self.management || self.namespaces.of(ns).allows_something()
    }

    /// Whether there is a rule that allows this in some namespace; rows are then filtered one by
    /// one.
    pub fn any_namespace_allows(&self, capability: NamespaceCapability) -> bool {
        self.management || self.namespaces.all().any(|set| set.allows(capability))
    }

    /// Whether this may be done with a variable. Where the namespace is denied, so is all in it.
    pub fn variable_allows(&self, ns: &str, path: &str, capability: VariableCapability) -> bool {
        if self.management {
            return true;
        }
        let set = self.variables.of(&joined(ns, path));
        set.allows(capability) && !self.namespaces.of(ns).denies()
    }

    /// Whether there is a rule that allows something with some variable of a namespace.
    pub fn variable_any(&self, ns: &str) -> bool {
        if self.management {
            return true;
        }
        let here = |(name, set): (&str, Set<VariableCapability>)| {
            let pattern = name.split(BETWEEN).next().unwrap_or(name);
            set.allows_something() && Glob::new(pattern).matches(ns)
        };
        self.variables.named().any(here) && !self.namespaces.of(ns).denies()
    }

    /// Whether there is a rule that allows something with some variable of some namespace.
    pub fn variable_anywhere(&self) -> bool {
        self.management || self.variables.all().any(Set::allows_something)
    }

    /// Whether this may be done with a node pool.
    pub fn node_pool_allows(&self, pool: &str, capability: NodePoolCapability) -> bool {
        self.management || self.node_pools.of(pool).allows(capability)
    }

    /// Whether a host volume may be mounted so.
    pub fn host_volume_allows(&self, volume: &str, capability: HostVolumeCapability) -> bool {
        self.management || self.host_volumes.of(volume).allows(capability)
    }

    /// Whether CSI volumes of a namespace may be mounted: that, and their plugins be read. It is
    /// checked where a caller registers jobs that use them, and where one takes them off nodes
    /// (CSI-19).
    pub fn csi_mount_allows(&self, ns: &str) -> bool {
        self.namespace_allows(ns, NamespaceCapability::CsiMountVolume) && self.plugin_read()
    }

    /// Whether agents may be read.
    pub fn agent_read(&self) -> bool {
        self.management || reads(self.agent)
    }

    /// Whether agents may be changed.
    pub fn agent_write(&self) -> bool {
        self.management || self.agent == Some(PolicyLevel::Write)
    }

    /// Whether nodes may be read.
    pub fn node_read(&self) -> bool {
        self.management || reads(self.node)
    }

    /// Whether nodes may be changed.
    pub fn node_write(&self) -> bool {
        self.management || self.node == Some(PolicyLevel::Write)
    }

    /// Whether what operators see may be read.
    pub fn operator_read(&self) -> bool {
        self.management || reads(self.operator) && !self.operator_capabilities.denies()
    }

    /// Whether what operators change may be changed.
    pub fn operator_write(&self) -> bool {
        let write = self.operator == Some(PolicyLevel::Write);
        self.management || write && !self.operator_capabilities.denies()
    }

    /// Whether this part of what operators do may be done.
    pub fn operator_allows(&self, capability: OperatorCapability) -> bool {
        self.management || self.operator_capabilities.allows(capability)
    }

    /// Whether CSI plugins may be listed.
    pub fn plugin_list(&self) -> bool {
        let lists = matches!(self.plugin, Some(PluginLevel::List | PluginLevel::Read));
        self.management || lists
    }

    /// Whether CSI plugins may be read.
    pub fn plugin_read(&self) -> bool {
        self.management || self.plugin == Some(PluginLevel::Read)
    }
}

fn reads(level: Option<PolicyLevel>) -> bool {
    matches!(level, Some(PolicyLevel::Read | PolicyLevel::Write))
}

fn joined(ns: &str, path: &str) -> String {
    let mut text = String::with_capacity(ns.len() + path.len() + 1);
    text.push_str(ns);
    text.push(BETWEEN);
    text.push_str(path);
    text
}

/// Rules of one kind by name: exact names in a map, patterns in the order in which they count.
#[derive(Debug, PartialEq, Eq)]
struct KindRules<C: Capability> {
    exact: HashMap<String, Set<C>>,
    globs: Vec<(Glob, Set<C>)>,
}

impl<C: Capability> Default for KindRules<C> {
    fn default() -> Self {
        KindRules {
            exact: HashMap::new(),
            globs: Vec::new(),
        }
    }
}

impl<C: Capability> KindRules<C> {
    fn new(rules: impl Iterator<Item = (String, Set<C>)>) -> KindRules<C> {
        let mut merged: BTreeMap<String, Set<C>> = BTreeMap::new();
        for (name, set) in rules {
            merged.entry(name).or_default().merge(set);
        }
        let (globs, exact): (Vec<_>, Vec<_>) = merged
            .into_iter()
            .partition(|(name, _)| Glob::is_pattern(name));
        let mut globs: Vec<(Glob, Set<C>)> = globs
            .into_iter()
            .map(|(name, set)| (Glob::new(&name), set))
            .collect();
        globs.sort_by(|(a, _), (b, _)| a.rank().cmp(&b.rank()));
        KindRules {
            exact: exact.into_iter().collect(),
            globs,
        }
    }

    /// What the rule that counts for a name allows.
    fn of(&self, name: &str) -> Set<C> {
        if let Some(set) = self.exact.get(name) {
            return *set;
        }
        let found = self.globs.iter().find(|(glob, _)| glob.matches(name));
        found.map(|(_, set)| *set).unwrap_or_default()
    }

    fn all(&self) -> impl Iterator<Item = Set<C>> {
        let globs = self.globs.iter().map(|(_, set)| *set);
        self.exact.values().copied().chain(globs)
    }

    fn named(&self) -> impl Iterator<Item = (&str, Set<C>)> {
        let globs = self.globs.iter().map(|(glob, set)| (glob.as_str(), *set));
        let exact = self.exact.iter().map(|(name, set)| (name.as_str(), *set));
        exact.chain(globs)
    }
}
