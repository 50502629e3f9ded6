//! Reads a policy's rules.

use std::collections::BTreeSet;

use drover_hcl1::{HclNode, HclValue, Location, ObjectEntry};

use crate::capability::{Capability, OperatorCapability, Set, VariableCapability};
use crate::error::PolicyError;
use crate::policy::{PluginLevel, Policy, PolicyLevel, Rule, VariableRule};

/// The most bytes of rules that are taken on writing.
pub const MAX_RULES_BYTES: usize = 64 << 10;
/// The most rules that one policy has on writing, paths of variables among them.
pub const MAX_RULES: usize = 2000;
/// The longest name of a namespace, node pool or host volume.
const MAX_NAME: usize = 128;

/// Whether rules are about to be stored, or have been for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// On writing: whatever is not understood is refused.
    Strict,
    /// On reading: what is not understood allows nothing, and the rest still counts.
    Lenient,
}

/// Reads rules: HCL, or JSON, as their text is.
///
/// # Errors
/// The first thing that is wrong, with its line. Leniently, only what is neither HCL nor JSON.
pub fn parse(rules: &str, how: Strictness) -> Result<Policy, PolicyError> {
    let strict = how == Strictness::Strict;
    if strict && rules.len() > MAX_RULES_BYTES {
        return Err(PolicyError::whole(format!(
            "Invalid policy: rules are limited to {MAX_RULES_BYTES} bytes, got {}",
            rules.len()
        )));
    }
    if rules.trim().is_empty() {
        return Ok(Policy::default());
    }
    let root = drover_hcl1::parse(rules).map_err(|error| {
        let message = format!("Failed to parse ACL Policy: {}", error.message);
        PolicyError::at(rules, error.location, message)
    })?;
    let mut reader = PolicyReader {
        rules,
        strict,
        counted: 0,
    };
    reader.policy(&root)
}

struct PolicyReader<'a> {
    rules: &'a str,
    strict: bool,
    counted: usize,
}

type Read<T> = Result<T, PolicyError>;

impl PolicyReader<'_> {
    fn policy(&mut self, root: &HclNode) -> Read<Policy> {
        let mut policy = Policy::default();
        let entries: Vec<&ObjectEntry> = self.bodies(root, "policy")?.concat();
        self.known_keys(&entries, &TOP, false)?;
        let mut has_rule = false;
        for entry in &entries {
            if !TOP.contains(&entry.key.as_str()) {
                continue;
            }
            has_rule = true;
            let node = &entry.node;
            match entry.key.as_str() {
                "namespace" => self.namespaces(node, &mut policy)?,
                "node_pool" => {
                    let read = self.named(node, "node pool", node_pool_name, &mut |_, _| Ok(()))?;
                    policy.node_pools.extend(read);
                }
                "host_volume" => {
                    let read = self.named(node, "host volume", name, &mut |_, _| Ok(()))?;
                    policy.host_volumes.extend(read);
                }
                "agent" => self.level(node, "agent", &mut policy.agent, PolicyLevel::of)?,
                "node" => self.level(node, "node", &mut policy.node, PolicyLevel::of)?,
                "quota" => self.level(node, "quota", &mut policy.quota, PolicyLevel::of)?,
                "plugin" => self.level(node, "plugin", &mut policy.plugin, PluginLevel::of)?,
                "operator" => self.operator(node, &mut policy)?,
                // Sentinel has no rules here; a policy with such a block stays valid.
                _ => {}
            }
        }
        if self.strict && !has_rule {
            let shown: String = self.rules.trim().chars().take(200).collect();
            return Err(PolicyError::whole(format!("Invalid policy: {shown}")));
        }
        Ok(policy)
    }

    fn namespaces(&mut self, node: &HclNode, policy: &mut Policy) -> Read<()> {
        let mut variables = Vec::new();
        let rules = self.named(node, "namespace", name, &mut |reader, block| {
            let found = block.entries.iter().filter(|e| e.key == "variables");
            let nodes: Vec<&HclNode> = found.map(|entry| &entry.node).collect();
            for node in nodes {
                reader.variables(block.name, node, &mut variables)?;
            }
            Ok(())
        })?;
        policy.namespaces.extend(rules);
        policy.variables.extend(variables);
        Ok(())
    }

    /// The rules of a kind whose blocks have a name: `namespace "x" { … }`.
    fn named<C: Capability>(
        &mut self,
        node: &HclNode,
        kind: &str,
        valid: fn(&str) -> bool,
        also: &mut dyn FnMut(&mut Self, &Block<'_>) -> Read<()>,
    ) -> Read<Vec<Rule<C>>> {
        let mut rules = Vec::new();
        for entry in self.bodies(node, kind)?.concat() {
            self.count(entry.location)?;
            if !valid(&entry.key) {
                self.refuse(entry.location, || {
                    format!("Invalid {kind} name: {}", quoted(&entry.key))
                })?;
                continue;
            }
            for entries in self.bodies(&entry.node, kind)? {
                let block = Block {
                    name: &entry.key,
                    entries,
                };
                let keys: &[&str] = match kind {
                    "namespace" => &["policy", "capabilities", "variables"],
                    _ => &["policy", "capabilities"],
                };
                self.known_keys(&block.entries, keys, true)?;
                let mut set = self.capabilities(&block.entries, kind)?;
                if let Some((word, location)) = self.word(&block.entries, "policy")? {
                    match C::of_policy(word) {
                        Some(all) => set.merge(all.iter().copied().collect()),
                        None if word.is_empty() => {}
                        None => self.refuse(location, || {
                            format!("Invalid {kind} policy: {}", quoted(word))
                        })?,
                    }
                }
                rules.push(Rule {
                    name: entry.key.clone(),
                    capabilities: set,
                });
                also(self, &block)?;
            }
        }
        Ok(rules)
    }

    /// `variables { path "x" { capabilities = […] } }` of a namespace.
    fn variables(
        &mut self,
        namespace: &str,
        node: &HclNode,
        out: &mut Vec<VariableRule>,
    ) -> Read<()> {
        let entries = self.bodies(node, "variables")?.concat();
        self.known_keys(&entries, &["path"], false)?;
        let location = node.location;
        let paths: Vec<&ObjectEntry> = entries.into_iter().filter(|e| e.key == "path").collect();
        if paths.is_empty() {
            self.refuse(location, || {
                format!("Invalid variable policy: no variable paths in namespace {namespace}")
            })?;
        }
        for path in paths {
            for entry in self.bodies(&path.node, "path")?.concat() {
                self.count(entry.location)?;
                if entry.key.is_empty() {
                    self.refuse(entry.location, || {
                        format!("Invalid missing variable path in namespace {namespace}")
                    })?;
                    continue;
                }
                if entry.key.starts_with('/') {
                    self.refuse(entry.location, || {
                        format!(
                            "Invalid variable path {} in namespace {namespace}: cannot start \
                             with a leading '/'",
                            quoted(&entry.key)
                        )
                    })?;
                }
                for body in self.bodies(&entry.node, "path")? {
                    self.known_keys(&body, &["capabilities"], true)?;
                    let capabilities: Set<VariableCapability> =
                        self.capabilities(&body, "variable")?;
                    out.push(VariableRule {
                        namespace: namespace.to_owned(),
                        path: entry.key.clone(),
                        capabilities,
                    });
                }
            }
        }
        Ok(())
    }

    fn operator(&mut self, node: &HclNode, policy: &mut Policy) -> Read<()> {
        for body in self.bodies(node, "operator")? {
            self.known_keys(&body, &["policy", "capabilities"], true)?;
            let capabilities = self.capabilities(&body, "operator")?;
            policy.operator_capabilities.merge(capabilities);
            let Some((word, location)) = self.word(&body, "policy")? else {
                continue;
            };
            let of_word = OperatorCapability::of_policy(word).unwrap_or_default();
            policy
                .operator_capabilities
                .merge(of_word.iter().copied().collect());
            match PolicyLevel::of(word) {
                Some(level) => policy.operator = policy.operator.max(Some(level)),
                None if word.is_empty() => {}
                None => self.refuse(location, || {
                    format!("Invalid operator policy: {}", quoted(word))
                })?,
            }
        }
        Ok(())
    }

    /// A rule without names: `agent { policy = "read" }`.
    fn level<L: Ord + Copy>(
        &mut self,
        node: &HclNode,
        kind: &str,
        out: &mut Option<L>,
        of: fn(&str) -> Option<L>,
    ) -> Read<()> {
        for body in self.bodies(node, kind)? {
            self.known_keys(&body, &["policy"], true)?;
            let (word, location) = self.word(&body, "policy")?.unwrap_or(("", node.location));
            match of(word) {
                Some(level) => *out = (*out).max(Some(level)),
                None => self.refuse(location, || {
                    format!("Invalid {kind} policy: {}", quoted(word))
                })?,
            }
        }
        Ok(())
    }

    /// `capabilities = ["a", "b"]`.
    fn capabilities<C: Capability>(&self, entries: &[&ObjectEntry], kind: &str) -> Read<Set<C>> {
        let mut set = Set::default();
        for entry in entries.iter().filter(|e| e.key == "capabilities") {
            let items: &[HclNode] = match &entry.node.value {
                HclValue::List(items) => items,
                HclValue::Null => continue,
                HclValue::String(_) => std::slice::from_ref(&entry.node),
                other => {
                    self.refuse(entry.node.location, || {
                        format!(
                            "Failed to parse ACL Policy: capabilities must be a list of strings, \
                             found {}",
                            other.kind()
                        )
                    })?;
                    continue;
                }
            };
            for item in items {
                match &item.value {
                    HclValue::String(text) => match C::from_str(text) {
                        Ok(capability) => set.insert(capability),
                        Err(_) => self.refuse(item.location, || {
                            format!("Invalid {kind} capability '{}'", cut(text))
                        })?,
                    },
                    other => self.refuse(item.location, || {
                        format!("Invalid {kind} capability: {} is no name", other.kind())
                    })?,
                }
            }
        }
        Ok(set)
    }

    /// The text of an attribute, the last one where it stands twice, and where.
    fn word<'n>(
        &self,
        entries: &[&'n ObjectEntry],
        key: &str,
    ) -> Read<Option<(&'n str, Location)>> {
        let Some(entry) = entries.iter().rev().find(|e| e.key == key) else {
            return Ok(None);
        };
        match &entry.node.value {
            HclValue::String(text) => Ok(Some((text, entry.node.location))),
            HclValue::Null => Ok(None),
            other => {
                self.refuse(entry.node.location, || {
                    format!(
                        "Failed to parse ACL Policy: {key} must be a string, found {}",
                        other.kind()
                    )
                })?;
                Ok(None)
            }
        }
    }

    /// The bodies of a block: one object, or several in a list as JSON may write it.
    fn bodies<'n>(&self, node: &'n HclNode, kind: &str) -> Read<Vec<Vec<&'n ObjectEntry>>> {
        let items: &[HclNode] = match &node.value {
            HclValue::List(items) => items,
            HclValue::Null => &[],
            _ => std::slice::from_ref(node),
        };
        let mut bodies = Vec::new();
        for item in items {
            match &item.value {
                HclValue::Object(entries) => bodies.push(entries.iter().collect()),
                other => self.refuse(item.location, || {
                    format!(
                        "Failed to parse ACL Policy: {kind} must be a block, found {}",
                        other.kind()
                    )
                })?,
            }
        }
        Ok(bodies)
    }

    /// Refuses keys that mean nothing here, and where `once`, keys that stand twice.
    fn known_keys(&self, entries: &[&ObjectEntry], known: &[&str], once: bool) -> Read<()> {
        let mut seen = BTreeSet::new();
        let wrong: Vec<&&ObjectEntry> = entries
            .iter()
            .filter(|entry| {
                let repeated = !seen.insert(entry.key.as_str()) && once;
                repeated || !known.contains(&entry.key.as_str())
            })
            .collect();
        let Some(first) = wrong.first() else {
            return Ok(());
        };
        let names: Vec<String> = wrong.iter().take(20).map(|e| cut(&e.key)).collect();
        self.refuse(first.location, || {
            format!("Invalid or duplicate policy keys: {}", names.join(", "))
        })
    }

    fn count(&mut self, location: Location) -> Read<()> {
        self.counted += 1;
        if self.counted > MAX_RULES {
            return self.refuse(location, || {
                format!("Invalid policy: more than {MAX_RULES} rules")
            });
        }
        Ok(())
    }

    /// Refuses on writing; on reading goes on without what is wrong.
    fn refuse(&self, location: Location, message: impl FnOnce() -> String) -> Read<()> {
        match self.strict {
            true => Err(PolicyError::at(self.rules, location, message())),
            false => Ok(()),
        }
    }
}

/// One block with its name.
struct Block<'n> {
    name: &'n str,
    entries: Vec<&'n ObjectEntry>,
}

/// What rules may be about.
const TOP: [&str; 9] = [
    "namespace",
    "node_pool",
    "host_volume",
    "agent",
    "node",
    "operator",
    "quota",
    "plugin",
    "sentinel",
];

fn name(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'*';
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(letter)
}

fn node_pool_name(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'*');
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(letter)
}

fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

/// As much of a text as an error shows.
fn cut(text: &str) -> String {
    text.chars().take(MAX_NAME).collect()
}
