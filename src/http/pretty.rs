//! Indenting JSON that is rendered already (`?pretty`): four spaces and a final line break.

use super::body::BodyChange;

/// Indents one JSON document; what is not JSON comes out in some other form, but comes out.
#[must_use]
pub(super) fn indent(json: &[u8]) -> Vec<u8> {
    let mut indenter = Indenter::default();
    let mut out = indenter.piece(json);
    out.extend(indenter.end());
    out
}

/// Indents a JSON document that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Indenter {
    depth: usize,
    text: bool,
    escaped: bool,
    /// Something was opened, and whether it is empty is not known yet.
    opened: bool,
}

impl BodyChange for Indenter {
    fn piece(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len() * 2);
        for byte in piece {
            self.byte(*byte, &mut out);
        }
        out
    }

    fn end(&mut self) -> Vec<u8> {
        b"\n".to_vec()
    }
}

impl Indenter {
    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.text {
            out.push(byte);
            self.text = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return;
        }
        if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            return;
        }
        if std::mem::take(&mut self.opened) {
            if matches!(byte, b'}' | b']') {
                return out.push(byte);
            }
            self.depth += 1;
            line(out, self.depth);
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                self.opened = true;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                line(out, self.depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(out, self.depth);
            }
            b':' => out.extend_from_slice(b": "),
            b'"' => {
                self.text = true;
                out.push(byte);
            }
            other => out.push(other),
        }
    }
}

fn line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + depth * 4, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for size in [1, 2, 3, 7] {
            let mut indenter = Indenter::default();
            let mut out: Vec<u8> = json
                .chunks(size)
                .flat_map(|piece| indenter.piece(piece))
                .collect();
            out.extend(indenter.end());
            assert_eq!(String::from_utf8(out).unwrap(), want, "in pieces of {size}");
        }
    }
}
