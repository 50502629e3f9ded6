//! Indenting JSON that is rendered already (`?pretty`): four spaces and a final line break.

/// Indents one JSON document; what is not JSON comes out in some other form, but comes out.
#[must_use]
pub(super) fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut bytes = json.iter().copied().peekable();
    let mut text = false;
    let mut escaped = false;
    while let Some(byte) = bytes.next() {
        if text {
            out.push(byte);
            text = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => {
                text = true;
                out.push(byte);
            }
            b'{' | b'[' => {
                out.push(byte);
                if let Some(end) = bytes.next_if(|b| matches!(b, b'}' | b']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b' ' | b'\n' | b'\r' | b'\t' => {}
            other => out.push(other),
        }
    }
    out.push(b'\n');
    out
}

fn line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + depth * 4, b' ');
}

#[cfg(test)]
mod tests {
    use super::indent;

    #[test]
    fn json_is_indented_by_four() {
        let json = br#"{"a":[1,{"b":"x:{,\"y\\"}],"c":[],"d":{}}"#;
        let want = [
            r#"{"#,
            r#"    "a": ["#,
            r#"        1,"#,
            r#"        {"#,
            r#"            "b": "x:{,\"y\\""#,
            r#"        }"#,
            r#"    ],"#,
            r#"    "c": [],"#,
            r#"    "d": {}"#,
            "}\n",
        ]
        .join("\n");
        assert_eq!(String::from_utf8(indent(json)).unwrap(), want);
        assert_eq!(indent(b"]"), b"\n]\n");
    }
}
