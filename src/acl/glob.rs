//! Patterns in which `*` stands for any characters, also none.

use std::cmp::Reverse;

/// A pattern, taken apart once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pattern: Box<str>,
    stars: usize,
}

impl Glob {
    /// Takes a pattern; every text is one.
    pub fn new(pattern: &str) -> Glob {
        Glob {
            pattern: pattern.into(),
            stars: stars(pattern),
        }
    }

    /// Whether a text has a `*` in it at all.
    pub fn is_pattern(text: &str) -> bool {
        text.contains('*')
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Whether the whole name matches. Each piece between stars is looked for once, from the left:
    /// the first place it fits in is as good as any later one, so nothing is ever tried again.
    pub fn matches(&self, name: &str) -> bool {
        let mut pieces = self.pattern.split('*');
        let Some(rest) = pieces.next().and_then(|first| name.strip_prefix(first)) else {
            return false;
        };
        if self.stars == 0 {
            return rest.is_empty();
        }
        let Some(last) = pieces.next_back() else {
            return rest.is_empty();
        };
        let Some(mut rest) = rest.strip_suffix(last) else {
            return false;
        };
        for piece in pieces {
            match rest.find(piece) {
                Some(at) => rest = rest.get(at + piece.len()..).unwrap_or(""),
                None => return false,
            }
        }
        true
    }

    /// Sorts the pattern that counts before others that match the same name: the difference between
    /// a name's length and that of the pattern without its stars is smallest for it.
    pub fn rank(&self) -> (Reverse<usize>, &str) {
        (Reverse(self.pattern.len() - self.stars), &self.pattern)
    }
}

fn stars(pattern: &str) -> usize {
    pattern.bytes().filter(|b| *b == b'*').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("prod-*", "prod-web", true),
            ("prod-*", "prod-", true),
            ("prod-*", "prod", false),
            ("*-web", "prod-web", true),
            ("*-web", "prod-web-2", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("**", "x", true),
            ("a**b", "ab", true),
            ("é*", "éa", true),
        ] {
            assert_eq!(
                Glob::new(pattern).matches(name),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn a_pattern_full_of_stars_is_matched_in_one_pass() {
        let pattern = format!("{}b", "*a".repeat(20_000));
        assert!(!Glob::new(&pattern).matches(&"a".repeat(40_000)));
    }
}
