//! Datacenter names with `*`, the only wildcard of a job's `datacenters`.

/// Whether `text` matches `pattern`, where `*` stands for any run of characters.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, mut rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    while let Some((part, tail)) = rest.split_once('*') {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
        rest = tail;
    }
    text.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_run() {
        for (pattern, text, want) in [
            ("dc1", "dc1", true),
            ("dc1", "dc10", false),
            ("*", "", true),
            ("*", "dc1", true),
            ("dc*", "dc1", true),
            ("dc*", "xdc1", false),
            ("*-prod", "eu-prod", true),
            ("*-prod", "eu-prod-1", false),
            ("eu-*-a*", "eu-west-a2", true),
            ("a*a", "a", false),
            ("*ab*b", "ab", false),
            ("*ab*b", "abb", true),
            ("a**b", "ab", true),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} on {text}");
        }
    }
}
