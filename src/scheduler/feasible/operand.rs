//! What the operands of a constraint mean for two resolved values.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use drover_filter::compile_pattern;
use regex::bytes::Regex;

use super::version::{Version, VersionConstraints};

/// Compiled right sides of one evaluation, so that a pattern is compiled once and not for each
/// node.
#[derive(Default)]
pub struct OperandCache {
    patterns: BTreeMap<String, Option<Regex>>,
    versions: BTreeMap<(bool, String), Option<VersionConstraints>>,
}

impl OperandCache {
    fn pattern(&mut self, text: &str) -> Option<&Regex> {
        if !self.patterns.contains_key(text) {
            self.patterns
                .insert(text.to_owned(), compile_pattern(text).ok());
        }
        self.patterns.get(text).and_then(Option::as_ref)
    }

    fn version(&mut self, text: &str, strict: bool) -> Option<&VersionConstraints> {
        self.versions
            .entry((strict, text.to_owned()))
            .or_insert_with(|| VersionConstraints::parse(text, strict))
            .as_ref()
    }

    /// Whether a constraint holds; `None` stands for a value the node does not have. Operands that
    /// look at other allocations (`distinct_hosts`, `distinct_property`) always hold here.
    pub fn check(&mut self, operand: &str, left: Option<&str>, right: Option<&str>) -> bool {
        match operand {
            "distinct_hosts" | "distinct_property" => return true,
            "is_set" => return left.is_some(),
            "is_not_set" => return left.is_none(),
            "!=" | "not" => return left != right,
            _ => {}
        }
        let (Some(left), Some(right)) = (left, right) else {
            return false;
        };
        match operand {
            "=" | "==" | "is" => left == right,
            "<" => compare(left, right) == Ordering::Less,
            "<=" => compare(left, right) != Ordering::Greater,
            ">" => compare(left, right) == Ordering::Greater,
            ">=" => compare(left, right) != Ordering::Less,
            "version" => self.check_version(left, right, false),
            "semver" => self.check_version(left, right, true),
            "regexp" => self
                .pattern(right)
                .is_some_and(|p| p.is_match(left.as_bytes())),
            "set_contains" | "set_contains_all" => {
                let have: Vec<&str> = left.split(',').map(str::trim).collect();
                right.split(',').all(|want| have.contains(&want.trim()))
            }
            "set_contains_any" => {
                let have: Vec<&str> = left.split(',').map(str::trim).collect();
                right.split(',').any(|want| have.contains(&want.trim()))
            }
            _ => false,
        }
    }

    fn check_version(&mut self, left: &str, right: &str, strict: bool) -> bool {
        let version = if strict {
            Version::parse_strict(left)
        } else {
            Version::parse(left)
        };
        match (version, self.version(right, strict)) {
            (Some(version), Some(constraints)) => constraints.check(&version),
            _ => false,
        }
    }
}

/// By number if both sides are whole numbers, or both are numbers; otherwise by the order of their
/// bytes.
fn compare(left: &str, right: &str) -> Ordering {
    if let (Ok(a), Ok(b)) = (left.parse::<i64>(), right.parse::<i64>()) {
        return a.cmp(&b);
    }
    if let (Ok(a), Ok(b)) = (left.parse::<f64>(), right.parse::<f64>())
        && let Some(order) = a.partial_cmp(&b)
    {
        return order;
    }
    left.cmp(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operand_has_its_meaning() {
        let mut cache = OperandCache::default();
        let some = |text: &'static str| (text != "-").then_some(text);
        for (left, operand, right, want) in [
            ("a", "=", "a", true),
            ("a", "==", "b", false),
            ("a", "is", "a", true),
            ("-", "=", "a", false),
            ("a", "!=", "b", true),
            ("-", "!=", "b", true),
            ("-", "not", "b", true),
            ("10", ">", "9", true),
            ("1.5", "<", "1.25", false),
            ("abc", "<", "abd", true),
            ("10", "<", "9x", true),
            ("2", "<=", "2", true),
            ("2", ">=", "3", false),
            ("2", ">=", "2", true),
            ("3", ">=", "2", true),
            ("3", "<=", "2", false),
            ("2", ">", "2", false),
            ("2", "<", "2", false),
            ("-", "<", "3", false),
            ("1.2.3", "version", "> 1.2, < 2", true),
            ("bad", "version", "> 1.2", false),
            ("1.7.0-beta", "semver", ">= 1.6.0", true),
            ("linux-6", "regexp", "^linux-[0-9]$", true),
            ("linux", "regexp", "(", false),
            ("a, b,c", "set_contains", "c,a", true),
            ("a,b", "set_contains_all", "a,z", false),
            ("a,b", "set_contains_any", "z, b", true),
            ("-", "is_set", "", false),
            ("-", "is_not_set", "", true),
            ("x", "is_set", "", true),
            ("x", "nonsense", "x", false),
            ("-", "distinct_hosts", "true", true),
        ] {
            assert_eq!(
                cache.check(operand, some(left), some(right)),
                want,
                "{left} {operand} {right}"
            );
        }
    }
}
