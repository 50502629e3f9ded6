//! The compiled rules against a second, slow reading of what the rules mean.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::{
    Acl, Capability, NamespaceCapability as Ns, Policy, PolicyLevel, Rule, Set, Strictness,
    VariableRule,
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
    fn whatever_is_read_is_answered(rules in "(?s).{0,200}") {
        answered(&rules)?;
    }
}

/// Reads rules in both ways, which agree; answers whether each of them takes the rules.
fn answered(rules: &str) -> Result<(bool, bool), TestCaseError> {
    let strict = crate::parse(rules, Strictness::Strict);
    let lenient = crate::parse(rules, Strictness::Lenient);
    if let Ok(policy) = &strict {
        let same = lenient.as_ref().ok();
        prop_assert_eq!(same, Some(policy), "what is understood means one thing");
    }
    if let Err(error) = &lenient {
        let same = strict.as_ref().err();
        prop_assert_eq!(same, Some(error), "what cannot be read cannot be read");
        prop_assert!(error.location.is_some(), "{}", error);
    }
    let errors = [strict.as_ref().err(), lenient.as_ref().err()];
    for error in errors.into_iter().flatten() {
        let text = error.to_string();
        let Some(location) = error.location else {
            prop_assert!(text.starts_with("Invalid policy: "), "{}", text);
            continue;
        };
        let lines = rules.split('\n').count();
        prop_assert!(
            (1..=lines).contains(&location.line),
            "{} of {}",
            text,
            lines
        );
        let named = format!(" (line {}, column {})", location.line, location.column);
        prop_assert!(text.contains(&named), "{}", text);
    }
    Ok((strict.is_ok(), lenient.is_ok()))
}

const KINDS: [&str; 3] = ["namespace", "node_pool", "host_volume"];
const LEVELS: [&str; 5] = ["agent", "node", "operator", "quota", "plugin"];
const WORDS: [&str; 7] = ["read", "write", "deny", "scale", "list", "", "fly"];
const CAPABILITIES: [&str; 6] = [
    "read-job",
    "submit-job",
    "deny",
    "write",
    "mount-readonly",
    "fly",
];
/// What is no rule, or no HCL.
const FAULTS: [&str; 10] = [
    "# a comment\n",
    "nobody {}\n",
    "namespace = 7\n",
    "agent { policy = [1] }\n",
    "agent { policy = \"read\" policy = \"read\" }\n",
    "namespace \"a\" {\n",
    "}\n",
    "\"\\ud800\\u0000\" {}\n",
    "= 1\n",
    "\u{feff}",
];

/// A rule, or something in its place.
fn rule_text() -> impl Strategy<Value = String> {
    use prop::sample::select;
    let capabilities = prop::collection::vec(select(&CAPABILITIES[..]), 0..3);
    let named = (
        select(&KINDS[..]),
        "[ab*_]{1,2}",
        select(&WORDS[..]),
        capabilities,
    )
        .prop_map(|(kind, name, word, capabilities)| {
            format!(
                "{kind} \"{name}\" {{\n  policy = \"{word}\"\n  \
                 capabilities = {capabilities:?}\n}}\n"
            )
        });
    let level = (select(&LEVELS[..]), select(&WORDS[..]))
        .prop_map(|(kind, word)| format!("{kind} {{ policy = \"{word}\" }}\n"));
    let path = ("[ab*/]{0,3}", select(&WORDS[..])).prop_map(|(path, word)| {
        format!(
            "namespace \"a\" {{\n  variables {{\n    path \"{path}\" \
             {{ capabilities = [\"{word}\"] }}\n  }}\n}}\n"
        )
    });
    let fault = select(&FAULTS[..]).prop_map(str::to_owned);
    prop_oneof![4 => named, 3 => level, 2 => path, 1 => fault, 1 => "(?s).{0,20}"]
}

#[test]
fn rules_are_taken_in_both_ways_or_leniently_or_not_at_all() {
    let rules = prop::collection::vec(rule_text(), 1..4).prop_map(|pieces| pieces.concat());
    let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let mut runner = TestRunner::new(Config::with_cases(400));
    let run = runner.run(&rules, |rules| {
        seen.borrow_mut().insert(answered(&rules)?);
        Ok(())
    });
    run.unwrap();
    // Each comes about once in ten times or more often.
    let all = [(false, false), (false, true), (true, true)];
    assert_eq!(seen.into_inner().into_iter().collect::<Vec<_>>(), all);
}
