//! How policies come together.

use crate::{Acl, NamespaceCapability as Ns, Policy, Strictness, VariableCapability, parse};

fn policy(rules: &str) -> Policy {
    parse(rules, Strictness::Strict).expect(rules)
}

fn both(a: &str, b: &str) -> [Acl; 2] {
    let (a, b) = (policy(a), policy(b));
    [Acl::compile(&[&a, &b]), Acl::compile(&[&b, &a])]
}

#[test]
fn a_denial_wins_whatever_the_order() {
    let write = r#"namespace "a" { policy = "write" } node { policy = "write" }
        operator { policy = "write" } plugin { policy = "read" }"#;
    let deny = r#"namespace "a" { policy = "deny" } node { policy = "deny" }
        operator { policy = "deny" } plugin { policy = "deny" }"#;
    for acl in both(write, deny) {
        assert!(!acl.namespace_allows("a", Ns::ReadJob) && !acl.namespace_visible("a"));
        assert!(!acl.namespace_allows("a", Ns::Deny));
        assert!(!acl.any_namespace_allows(Ns::ReadJob));
        assert!(!acl.node_read() && !acl.operator_read() && !acl.plugin_list());
        assert!(!acl.operator_allows(crate::OperatorCapability::SnapshotSave));
    }
}

#[test]
fn rights_add_up() {
    for acl in both(
        r#"namespace "a" { policy = "scale" } agent { policy = "read" }"#,
        r#"namespace "a" { capabilities = ["read-logs"] } agent { policy = "write" }"#,
    ) {
        assert!(acl.namespace_allows_any("a", &[Ns::SubmitJob, Ns::ScaleJob]));
        assert!(acl.namespace_allows("a", Ns::ReadLogs) && acl.agent_write());
    }
}

#[test]
fn the_most_specific_rule_counts_alone() {
    let policy = policy(
        r#"namespace "*" { policy = "write" }
        namespace "prod-*" { policy = "read" }
        namespace "prod-api" { capabilities = ["read-logs"] }
        namespace "prod-api-*" { policy = "deny" }"#,
    );
    let acl = Acl::compile(&[&policy]);
    assert!(acl.namespace_allows("dev", Ns::SubmitJob));
    assert!(acl.namespace_allows("prod-web", Ns::ReadJob));
    assert!(!acl.namespace_allows("prod-web", Ns::SubmitJob));
    assert!(acl.namespace_allows("prod-api", Ns::ReadLogs));
    assert!(!acl.namespace_allows("prod-api", Ns::ReadJob));
    assert!(!acl.namespace_visible("prod-api-2"));
}

#[test]
fn a_denied_namespace_denies_its_variables() {
    let rules = r#"namespace "*" { variables { path "*" { capabilities = ["read"] } } }
        namespace "prod" { policy = "deny" }"#;
    let acl = Acl::compile(&[&policy(rules)]);
    assert!(acl.variable_allows("dev", "x", VariableCapability::Read));
    assert!(!acl.variable_allows("prod", "x", VariableCapability::Read));
    assert!(acl.variable_any("dev") && !acl.variable_any("prod"));
}

#[test]
fn management_may_all_and_nobody_nothing() {
    let (all, none) = (Acl::management(), Acl::denied());
    assert!(all.is_management() && !none.is_management());
    assert!(all.namespace_allows("x", Ns::SentinelOverride) && all.operator_write());
    assert!(all.variable_allows("x", "y", VariableCapability::Destroy) && all.variable_any("x"));
    assert!(!none.namespace_visible("default") && !none.agent_read() && !none.plugin_list());
    assert!(!Acl::compile(&[]).namespace_visible("default"));
}
