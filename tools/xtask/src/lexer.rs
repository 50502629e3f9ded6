//! Just enough of Rust's lexical structure to measure code.

/// The text with the inside of comments, strings and character literals replaced by spaces. Lines
/// and columns stay where they are.
pub(crate) fn blank(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    for (start, end, _) in no_code(text.as_bytes()) {
        clear(&mut out[start..end]);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The text with all but its comments replaced by spaces. Lines and columns stay where they are.
pub(crate) fn comments(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    let mut behind = 0;
    for (start, end, is_comment) in no_code(text.as_bytes()) {
        if is_comment {
            clear(&mut out[behind..start]);
            behind = end;
        }
    }
    clear(&mut out[behind..]);
    String::from_utf8_lossy(&out).into_owned()
}

fn clear(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// Where comments, strings and character literals begin and end, and whether each is a comment.
fn no_code(bytes: &[u8]) -> Vec<(usize, usize, bool)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' | b'b' | b'c' if starts_token(bytes, at) => raw_string_end(bytes, at),
            b'\'' => char_end(bytes, at),
            _ => None,
        };
        match end {
            Some(end) => {
                found.push((at, end, bytes[at] == b'/'));
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

fn starts_token(bytes: &[u8], at: usize) -> bool {
    at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn line_end(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes[at..].iter().position(|byte| *byte == b'\n');
    Some(length.map_or(bytes.len(), |length| at + length))
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0;
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                at += 2;
            }
            Some(b"*/") => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => at += 1,
        }
    }
    Some(at.min(bytes.len()))
}

fn string_end(bytes: &[u8], quote: usize) -> Option<usize> {
    let mut at = quote + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
    Some(bytes.len())
}

/// The end of `r"…"`, `r#"…"#`, `br"…"` or `b"…"`; `None` where `at` begins none of them.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    if matches!(bytes[at], b'b' | b'c') {
        at += 1;
    }
    let raw = bytes.get(at) == Some(&b'r');
    if !raw {
        return match bytes.get(at) {
            Some(b'"') if at > start => string_end(bytes, at),
            _ => None,
        };
    }
    at += 1;
    let hashes = bytes[at..].iter().take_while(|byte| **byte == b'#').count();
    at += hashes;
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.extend(std::iter::repeat_n(b'#', hashes));
    let rest = &bytes[at + 1..];
    let length = rest.windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| at + 1 + length + close.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let length = bytes[at + 3..].iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + length + 1);
    }
    let rest = std::str::from_utf8(&bytes[at + 1..(at + 6).min(bytes.len())]);
    let rest = match rest {
        Ok(rest) => rest,
        Err(error) => std::str::from_utf8(&bytes[at + 1..at + 1 + error.valid_up_to()]).ok()?,
    };
    let first = rest.chars().next()?;
    let end = at + 1 + first.len_utf8();
    (bytes.get(end) == Some(&b'\'')).then_some(end + 1)
}

/// The line (from 0) of the brace that closes the first one opened at or after `line`.
pub(crate) fn block_end(lines: &[&str], line: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (number, text) in lines.iter().enumerate().skip(line) {
        for byte in text.bytes() {
            match byte {
                b'{' => depth += 1,
                b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(number);
                    }
                }
                b';' if depth == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// A function: its name and the lines (from 0) of its signature and its closing brace.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The functions with a body, outermost and nested, of blanked lines.
pub(crate) fn functions(lines: &[&str]) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        // A signature may hold braces only in const generics, which do not occur before a body.
        if let Some(end) = block_end(lines, start) {
            found.push(Function {
                name: name.to_owned(),
                start,
                end,
            });
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let at = line.find("fn ")?;
    let before = line[..at].trim_end();
    let plain = before.is_empty()
        || before.ends_with(|c: char| c.is_ascii_lowercase() || matches!(c, ')' | '}' | '{'))
        || before.ends_with(' ');
    let name = line[at + 3..]
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .next()?;
    (plain && !name.is_empty()).then_some(name)
}

/// Which lines (from 0) belong to inline `#[cfg(test)]` items.
pub(crate) fn test_lines(lines: &[&str]) -> Vec<bool> {
    let mut test = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        if lines[at].trim_start().starts_with("#[cfg(test)]") {
            let end = block_end(lines, at + 1).unwrap_or(at + 1);
            let end = end.min(lines.len() - 1);
            test[at..=end].fill(true);
            at = end;
        }
        at += 1;
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_blank() {
        let text = "let a = \"{\"; // {\nlet b = '{'; let c: &'a str = r#\"}\"#; /* { */ f()";
        let blanked = blank(text);
        assert_eq!(blanked.len(), text.len());
        assert!(!blanked.contains(['{', '}']), "{blanked}");
        assert!(blanked.contains("let c: &'a str"), "{blanked}");
        assert!(blanked.ends_with("f()"));
    }

    #[test]
    fn comments_alone_are_left() {
        let text = "let a = \"// no\"; // yes\nlet b = '/'; /* and\nyes */ f() /// ü\n";
        let left = comments(text);
        assert_eq!(left.len(), text.len());
        let words: Vec<&str> = left.split_whitespace().collect();
        assert_eq!(words, ["//", "yes", "/*", "and", "yes", "*/", "///", "ü"]);
        assert_eq!(left.lines().count(), 3);
    }

    #[test]
    fn functions_have_an_extent() {
        let text = "impl A {\n    pub fn one(&self) -> u8 {\n        1\n    }\n    fn two();\n}\n";
        let lines: Vec<&str> = text.lines().collect();
        let found = functions(&lines);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].name.as_str(), found[0].start, found[0].end),
            ("one", 1, 3)
        );
    }

    #[test]
    fn inline_tests_are_not_counted() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}";
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(test_lines(&lines), [false, true, true, true, true, false]);
    }
}
