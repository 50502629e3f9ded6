//! `${…}` in texts.

/// Replaces every `${name}` that `lookup` knows; what it does not know stays as it is.
///
/// `${env["NAME"]}` and `${env[NAME]}` stand for `NAME`. `$${` is a literal `${`.
pub fn interpolate(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(stem) = before.strip_suffix('$') {
            out.push_str(stem);
            out.push_str("${");
            rest = &from[2..];
            continue;
        }
        out.push_str(before);
        let Some(end) = from.find('}') else {
            out.push_str(from);
            return out;
        };
        let name = &from[2..end];
        match lookup(env_name(name)) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&from[..=end]),
        }
        rest = &from[end + 1..];
    }
    out.push_str(rest);
    out
}

fn env_name(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix("env[")
        .and_then(|inner| inner.strip_suffix(']'))
        .map_or(name, |inner| inner.trim_matches(|c| c == '"' || c == '\''))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".into()),
            "node.class" => Some("big".into()),
            _ => None,
        }
    }

    #[test]
    fn mod_19_known_names_are_replaced_and_others_stay() {
        let text = "x${A}-${node.class}-${env[\"A\"]}-${env[A]}-${B}";
        assert_eq!(interpolate(text, known), "x1-big-1-1-${B}");
    }

    #[test]
    fn mod_19_odd_texts_are_left_alone() {
        for text in ["", "$", "${", "${A", "$A", "}{", "日本${"] {
            assert_eq!(interpolate(text, known), text);
        }
        assert_eq!(interpolate("$${A}", known), "${A}");
    }
}
