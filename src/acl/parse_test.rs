//! Rules as they are written, and what is refused in them.

use crate::{
    Acl, MAX_RULES, MAX_RULES_BYTES, NamespaceCapability as Ns, Policy, PolicyError, PolicyLevel,
    Strictness, VariableCapability, parse,
};
use crate::{HostVolumeCapability, NodePoolCapability, OperatorCapability, PluginLevel};

fn strict(rules: &str) -> Result<Policy, PolicyError> {
    parse(rules, Strictness::Strict)
}

fn acl(rules: &str) -> Acl {
    Acl::compile(&[&strict(rules).unwrap_or_else(|e| panic!("{e}"))])
}

const FULL: &str = r#"
namespace "default" {
  policy       = "read"
  capabilities = ["submit-job", "alloc-exec"]
  variables {
    path "project/*" { capabilities = ["read", "write"] }
    path "secret" { capabilities = ["deny"] }
  }
}
namespace "ops-*" { policy = "write" }
node_pool "gpu_*" { policy = "write" }
host_volume "data" { policy = "read" }
agent { policy = "read" }
node { policy = "write" }
operator { capabilities = ["snapshot-save"] }
quota { policy = "read" }
plugin { policy = "list" }
"#;

#[test]
fn every_kind_of_rule_is_read() {
    let policy = strict(FULL).expect("parses");
    assert_eq!(policy.agent, Some(PolicyLevel::Read));
    assert_eq!(policy.plugin, Some(PluginLevel::List));
    let acl = acl(FULL);
    assert!(acl.namespace_allows("default", Ns::SubmitJob));
    assert!(acl.namespace_allows("default", Ns::ReadJob));
    assert!(!acl.namespace_allows("default", Ns::ReadLogs));
    assert!(acl.namespace_allows("ops-1", Ns::ReadLogs));
    assert!(!acl.namespace_allows("ops", Ns::ReadLogs));
    assert!(acl.variable_allows("default", "project/a", VariableCapability::List));
    assert!(!acl.variable_allows("default", "secret", VariableCapability::List));
    assert!(!acl.variable_allows("ops-1", "project/a", VariableCapability::List));
    assert!(acl.variable_any("default") && !acl.variable_any("ops-1"));
    assert!(acl.node_pool_allows("gpu_a", NodePoolCapability::Delete));
    assert!(!acl.host_volume_allows("data", HostVolumeCapability::MountReadwrite));
    assert!(acl.host_volume_allows("data", HostVolumeCapability::MountReadonly));
    assert!(acl.agent_read() && !acl.agent_write());
    assert!(acl.node_read() && acl.node_write());
    assert!(!acl.operator_read() && acl.operator_allows(OperatorCapability::SnapshotSave));
    assert_eq!(policy.quota, Some(PolicyLevel::Read));
    assert!(acl.plugin_list() && !acl.plugin_read());
}

#[test]
fn json_says_the_same() {
    let json = r#"{
      "namespace": {
        "default": {
          "policy": "read", "capabilities": ["submit-job", "alloc-exec"],
          "variables": {"path": {
            "project/*": {"capabilities": ["read", "write"]},
            "secret": {"capabilities": ["deny"]}}}},
        "ops-*": {"policy": "write"}},
      "node_pool": [{"gpu_*": [{"policy": "write"}]}],
      "host_volume": {"data": {"policy": "read"}},
      "agent": {"policy": "read"}, "node": {"policy": "write"},
      "operator": {"capabilities": ["snapshot-save"]},
      "quota": {"policy": "read"}, "plugin": {"policy": "list"}
    }"#;
    assert_eq!(strict(json), strict(FULL));
}

#[test]
fn acl_20_volumes_and_plugins_are_capabilities() {
    let acl = acl(r#"
        namespace "a" { policy = "read" }
        namespace "b" { policy = "write" }
        namespace "c" { capabilities = ["csi-register-plugin", "host-volume-write"] }
        plugin { policy = "read" }
    "#);
    let volume = [Ns::CsiListVolume, Ns::CsiReadVolume];
    for ns in ["a", "b"] {
        assert!(volume.iter().all(|c| acl.namespace_allows(ns, *c)), "{ns}");
        assert!(acl.namespace_allows(ns, Ns::HostVolumeRead));
    }
    let write = [Ns::CsiWriteVolume, Ns::CsiMountVolume, Ns::HostVolumeCreate];
    for capability in write {
        assert!(!acl.namespace_allows("a", capability), "{capability}");
        assert!(acl.namespace_allows("b", capability), "{capability}");
    }
    assert!(!acl.namespace_allows("b", Ns::CsiRegisterPlugin));
    assert!(acl.namespace_allows("c", Ns::CsiRegisterPlugin));
    for implied in [
        Ns::HostVolumeRegister,
        Ns::HostVolumeCreate,
        Ns::HostVolumeDelete,
        Ns::HostVolumeRead,
    ] {
        assert!(acl.namespace_allows("c", implied), "{implied}");
    }
    assert!(acl.plugin_list() && acl.plugin_read());
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (rules, expected) in [
        (
            "namespace \"a\" {\n  policy =\n}",
            "Failed to parse ACL Policy: expected a value, found '}' (line 3, column 1)\n  }\n  ^",
        ),
        (
            "namespace \"a\" {\n  capabilities = [\"read-job\", \"fly\"]\n}",
            "Invalid namespace capability 'fly' (line 2, column 31)\n  \x20 capabilities = \
             [\"read-job\", \"fly\"]\n                                ^",
        ),
        (
            "namespace \"a b\" {}",
            "Invalid namespace name: \"a b\" (line 1, column 11)",
        ),
        (
            "namespace \"a\" { policy = \"x\" }",
            "Invalid namespace policy: \"x\"",
        ),
        ("node_pool \"a.b\" {}", "Invalid node pool name: \"a.b\""),
        (
            "host_volume \"a\" { policy = \"scale\" }",
            "Invalid host volume policy: \"scale\"",
        ),
        ("agent {}", "Invalid agent policy: \"\""),
        ("plugin { policy = \"write\" }", "Invalid plugin policy"),
        (
            "operator { capabilities = [1] }",
            "Invalid operator capability",
        ),
        (
            "namespace \"a\" { variables { path \"/x\" {} } }",
            "Invalid variable path \"/x\" in namespace a: cannot start with a leading '/'",
        ),
        (
            "namespace \"a\" { variables {} }",
            "Invalid variable policy: no variable paths in namespace a",
        ),
        (
            "namespace \"a\" { policy = \"read\"\n policy = \"write\"\n color = 1 }",
            "Invalid or duplicate policy keys: policy, color (line 2, column 2)",
        ),
        ("nothing { }", "Invalid or duplicate policy keys: nothing"),
        ("{}", "Invalid policy: {}"),
        ("agent = \"read\"", "agent must be a block, found a string"),
        ("[1]", "expected a key"),
    ] {
        let error = strict(rules).expect_err(rules).to_string();
        assert!(error.contains(expected), "{rules}\n{error}\n{expected}");
    }
}

#[test]
fn on_reading_what_is_unknown_allows_nothing_and_the_rest_counts() {
    let rules = r#"
        future { x = 1 }
        namespace "a b" { policy = "write" }
        namespace "a" { capabilities = ["read-job", "fly"] }
        agent { policy = "fly" }
    "#;
    assert!(strict(rules).is_err());
    let policy = parse(rules, Strictness::Lenient).expect("reads");
    let acl = Acl::compile(&[&policy]);
    assert!(acl.namespace_allows("a", Ns::ReadJob));
    assert!(!acl.namespace_visible("a b") && !acl.agent_read());
    assert!(parse("namespace {", Strictness::Lenient).is_err());
}

#[test]
fn rules_are_bounded() {
    let long = format!(
        "# {}\nagent {{ policy = \"read\" }}",
        "x".repeat(MAX_RULES_BYTES)
    );
    assert!(
        strict(&long)
            .expect_err("too long")
            .to_string()
            .contains("65536")
    );
    let rule = |n: usize| format!("node_pool \"a{n}\" {{}}\n");
    let fit: String = (0..MAX_RULES).map(rule).collect();
    assert!(strict(&fit).is_ok());
    let many: String = (0..=MAX_RULES).map(rule).collect();
    let error = strict(&many).expect_err("too many").to_string();
    assert!(error.contains("more than 2000 rules"), "{error}");
    assert!(strict(&"{".repeat(60_000)).is_err());
    assert!(strict("").is_ok_and(|policy| policy == Policy::default()));
}
