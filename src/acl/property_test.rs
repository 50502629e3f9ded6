//! The compiled rules against a second, slow reading of what the rules mean.

use proptest::prelude::*;

use crate::{
    Acl, Capability, NamespaceCapability as Ns, Policy, PolicyLevel, Rule, Set, VariableRule,
};
use crate::{Glob, VariableCapability as Var};

/// Matches by trying everything.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|n| matches(rest, &name[n..])),
        (Some((p, rest)), Some((n, tail))) => p == n && matches(rest, tail),
        _ => false,
    }
}

/// The name of the rule that counts, found by looking at all.
fn counts<'a>(patterns: &[&'a str], name: &str) -> Option<&'a str> {
    let found = patterns.iter().copied();
    let found = found.filter(|p| matches(p.as_bytes(), name.as_bytes()));
    found.min_by_key(|p| {
        let stars = p.matches('*').count() as i64;
        let difference = name.len() as i64 - p.len() as i64 + stars;
        (stars > 0, difference, *p)
    })
}

fn namespace_allowed(policies: &[Policy], ns: &str, capability: Ns) -> bool {
    let rules: Vec<&Rule<Ns>> = policies.iter().flat_map(|p| &p.namespaces).collect();
    let names: Vec<&str> = rules.iter().map(|r| r.name.as_str()).collect();
    let Some(best) = counts(&names, ns) else {
        return false;
    };
    let here: Vec<_> = rules.iter().filter(|r| r.name == best).collect();
    !here.iter().any(|r| r.capabilities.denies())
        && here.iter().any(|r| r.capabilities.allows(capability))
}

fn variable_allowed(policies: &[Policy], ns: &str, path: &str, capability: Var) -> bool {
    let rules: Vec<_> = policies.iter().flat_map(|p| &p.variables).collect();
    let names: Vec<String> = rules
        .iter()
        .map(|r| format!("{}\0{}", r.namespace, r.path))
        .collect();
    let texts: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(best) = counts(&texts, &format!("{ns}\0{path}")) else {
        return false;
    };
    let here = || rules.iter().zip(&texts).filter(|(_, t)| **t == best);
    let denied = namespace_denied(policies, ns) || here().any(|(r, _)| r.capabilities.denies());
    !denied && here().any(|(r, _)| r.capabilities.allows(capability))
}

fn namespace_denied(policies: &[Policy], ns: &str) -> bool {
    let rules: Vec<_> = policies.iter().flat_map(|p| &p.namespaces).collect();
    let names: Vec<&str> = rules.iter().map(|r| r.name.as_str()).collect();
    let best = counts(&names, ns);
    rules
        .iter()
        .any(|r| Some(r.name.as_str()) == best && r.capabilities.denies())
}

fn set<C: Capability>() -> impl Strategy<Value = Set<C>> {
    prop::collection::vec(prop::sample::select(C::ALL), 0..4).prop_map(|c| c.into_iter().collect())
}

fn policy() -> impl Strategy<Value = Policy> {
    let rule = ("[ab*]{1,4}", set()).prop_map(|(name, capabilities)| Rule { name, capabilities });
    let variable =
        ("[ab*]{1,2}", "[ab*]{1,3}", set()).prop_map(|(namespace, path, capabilities)| {
            VariableRule {
                namespace,
                path,
                capabilities,
            }
        });
    let level = prop::option::of(prop::sample::select(vec![
        PolicyLevel::Read,
        PolicyLevel::Write,
        PolicyLevel::Deny,
    ]));
    (
        prop::collection::vec(rule, 0..5),
        prop::collection::vec(variable, 0..5),
        level,
    )
        .prop_map(|(namespaces, variables, node)| Policy {
            namespaces,
            variables,
            node,
            ..Policy::default()
        })
}

proptest! {
    #[test]
    fn compiled_rules_mean_what_the_rules_mean(
        policies in prop::collection::vec(policy(), 0..4),
        ns in "[ab]{1,4}",
        path in "[ab]{1,4}",
        capability in prop::sample::select(Ns::ALL),
        variable in prop::sample::select(Var::ALL),
    ) {
        let acl = Acl::compile(&policies.iter().collect::<Vec<_>>());
        let allowed = namespace_allowed(&policies, &ns, capability);
        prop_assert_eq!(acl.namespace_allows(&ns, capability), allowed);
        prop_assert!(!allowed || acl.any_namespace_allows(capability));
        prop_assert!(!allowed || acl.namespace_visible(&ns));
        let may = variable_allowed(&policies, &ns, &path, variable);
        prop_assert_eq!(acl.variable_allows(&ns, &path, variable), may);
        prop_assert!(!may || acl.variable_any(&ns));
        let any_with = |level| policies.iter().any(|p| p.node == Some(level));
        let write = any_with(PolicyLevel::Write) && !any_with(PolicyLevel::Deny);
        prop_assert_eq!(acl.node_write(), write);
        let read = !any_with(PolicyLevel::Deny) && (any_with(PolicyLevel::Read) || write);
        prop_assert_eq!(acl.node_read(), read);
    }

    #[test]
    fn globs_match_as_when_everything_is_tried(pattern in "[ab*]{0,7}", name in "[ab]{0,8}") {
        let expected = matches(pattern.as_bytes(), name.as_bytes());
        prop_assert_eq!(Glob::new(&pattern).matches(&name), expected);
    }

    #[test]
    fn whatever_is_read_does_not_break(rules in ".{0,200}") {
        let _ = crate::parse(&rules, crate::Strictness::Strict);
        let _ = crate::parse(&rules, crate::Strictness::Lenient);
    }
}
