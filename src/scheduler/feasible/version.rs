//! Version constraints of the operands `version` (any number of segments, `~>`, relaxed prerelease
//! rule) and `semver` (three segments, strict prerelease rule). Facts: behaviour of go-version and
//! Semantic Versioning 2.0.0.

use std::cmp::Ordering;

/// A parsed version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    segments: Vec<u64>,
    given: usize,
    prerelease: String,
}

impl Version {
    /// Reads `v1.2.3-beta.1+meta`; segments may be fewer or more than three. None if it is not a
    /// version.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, meta) = text
            .split_once('+')
            .map_or((text, None), |(t, m)| (t, Some(m)));
        if meta.is_some_and(|m| m.is_empty() || !identifiers(m)) {
            return None;
        }
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (numbers, rest) = text.split_at(split);
        let prerelease = rest.strip_prefix('-').unwrap_or(rest);
        if (rest.starts_with('-') && prerelease.is_empty()) || !identifiers(prerelease) {
            return None;
        }
        let mut segments = Vec::with_capacity(3);
        for part in numbers.split('.') {
            segments.push(part.parse().ok()?);
        }
        let given = segments.len();
        while segments.len() < 3 {
            segments.push(0);
        }
        Some(Self {
            segments,
            given,
            prerelease: prerelease.to_owned(),
        })
    }

    /// Reads a version of exactly three segments, without a `v`, as Semantic Versioning has it.
    pub(super) fn parse_strict(text: &str) -> Option<Self> {
        let version = Self::parse(text)?;
        let plain = text.trim().starts_with(|c: char| c.is_ascii_digit());
        (version.given == 3 && plain).then_some(version)
    }
}

fn identifiers(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '~'))
}

fn compare_prerelease(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => match (x.parse::<u64>(), y.parse::<u64>()) {
                (Ok(x), Ok(y)) => x.cmp(&y),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => x.cmp(y),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let longest = self.segments.len().max(other.segments.len());
        for i in 0..longest {
            let (a, b) = (self.segments.get(i), other.segments.get(i));
            let order = a.unwrap_or(&0).cmp(b.unwrap_or(&0));
            if order != Ordering::Equal {
                return order;
            }
        }
        compare_prerelease(&self.prerelease, &other.prerelease)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Eq,
    Ne,
    Gt,
    Lt,
    Ge,
    Le,
    Pessimistic,
}

/// A list of comparisons that must all hold, such as `>= 1.2, < 2.0`.
#[derive(Clone, Debug)]
pub(super) struct VersionConstraints {
    parts: Vec<(Op, Version)>,
    strict: bool,
}

impl VersionConstraints {
    /// Reads the right side of a constraint; `strict` is the operand `semver`, which has no `~>`.
    pub(super) fn parse(text: &str, strict: bool) -> Option<Self> {
        let mut parts = Vec::new();
        for part in text.split(',') {
            let part = part.trim();
            let (op, rest) = operator(part)?;
            if strict && op == Op::Pessimistic {
                return None;
            }
            parts.push((op, Version::parse(rest)?));
        }
        Some(Self { parts, strict })
    }

    /// Whether a version satisfies every part.
    pub(super) fn check(&self, version: &Version) -> bool {
        self.parts
            .iter()
            .all(|(op, want)| self.holds(*op, version, want))
    }

    fn holds(&self, op: Op, version: &Version, want: &Version) -> bool {
        let order = version.cmp(want);
        match op {
            Op::Eq => order == Ordering::Equal,
            Op::Ne => order != Ordering::Equal,
            Op::Gt => self.prerelease_fits(version, want) && order == Ordering::Greater,
            Op::Lt => self.prerelease_fits(version, want) && order == Ordering::Less,
            Op::Ge => self.prerelease_fits(version, want) && order != Ordering::Less,
            Op::Le => self.prerelease_fits(version, want) && order != Ordering::Greater,
            Op::Pessimistic => pessimistic(version, want),
        }
    }

    /// The relaxed form refuses a prerelease unless the constraint names one of the same segments;
    /// the strict form compares by precedence alone.
    fn prerelease_fits(&self, version: &Version, want: &Version) -> bool {
        if self.strict {
            return true;
        }
        match (version.prerelease.is_empty(), want.prerelease.is_empty()) {
            (true, true) | (true, false) => true,
            (false, false) => version.segments == want.segments,
            (false, true) => false,
        }
    }
}

fn operator(part: &str) -> Option<(Op, &str)> {
    const OPS: [(&str, Op); 7] = [
        (">=", Op::Ge),
        ("<=", Op::Le),
        ("!=", Op::Ne),
        ("~>", Op::Pessimistic),
        ("=", Op::Eq),
        (">", Op::Gt),
        ("<", Op::Lt),
    ];
    for (text, op) in OPS {
        if let Some(rest) = part.strip_prefix(text) {
            return Some((op, rest));
        }
    }
    part.starts_with(|c: char| c.is_ascii_digit() || c == 'v')
        .then_some((Op::Eq, part))
}

/// `~> 1.2.3` is `>= 1.2.3` with the first two segments fixed.
fn pessimistic(version: &Version, want: &Version) -> bool {
    if (!version.prerelease.is_empty() || !want.prerelease.is_empty())
        && (version.prerelease.is_empty() != want.prerelease.is_empty()
            || version.segments != want.segments)
    {
        return false;
    }
    if version < want || want.segments.len() > version.segments.len() {
        return false;
    }
    let fixed = want.given.saturating_sub(1);
    version.segments[..fixed] == want.segments[..fixed]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: &str, constraint: &str, strict: bool) -> Option<bool> {
        let constraints = VersionConstraints::parse(constraint, strict)?;
        let version = if strict {
            Version::parse_strict(version)
        } else {
            Version::parse(version)
        };
        Some(constraints.check(&version?))
    }

    #[test]
    fn versions_are_compared_by_segment() {
        for (version, constraint, want) in [
            ("1.2.3", "= 1.2.3", true),
            ("1.2.3", "1.2.3", true),
            ("1.2", ">= 1.2.0", true),
            ("1.7.0-beta", ">= 1.6.0", false),
            ("1.7.0-beta", ">= 1.7.0-alpha", true),
            ("1.3.0-beta1", ">= 0.6.1", false),
            ("2.0", "~> 1.2", false),
            ("1.9.9", "~> 1.2", true),
            ("1.2.9", "~> 1.2.3", true),
            ("1.3.0", "~> 1.2.3", false),
            ("4.4.0-116", "> 3.2", false),
            ("6.18.44", "> 3.2, < 7", true),
            ("1.0.0", "!= 1.0.1", true),
            ("1.2.3.4", "> 1.2.3.3", true),
        ] {
            assert_eq!(
                check(version, constraint, false),
                Some(want),
                "{version} {constraint}"
            );
        }
        assert_eq!(check("x.y", ">= 1", false), None);
        assert_eq!(check("1.0", "abc", false), None);
    }

    #[test]
    fn semver_has_precedence_of_prereleases_and_no_pessimistic_operator() {
        for (version, constraint, want) in [
            ("1.7.0-beta", ">= 1.6.0", true),
            ("1.7.0-beta", ">= 1.7.0", false),
            ("1.7.0-beta.2", "> 1.7.0-beta.1", true),
            ("2.0.5", ">= 1.4.0", true),
        ] {
            assert_eq!(
                check(version, constraint, true),
                Some(want),
                "{version} {constraint}"
            );
        }
        assert_eq!(check("1.2.3", "~> 1.2", true), None);
        assert_eq!(check("1.2", ">= 1.2.0", true), None);
    }
}
