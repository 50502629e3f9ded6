//! Reads HCL1 as agents are configured with it and ACL policies are written in it: blocks and
//! attributes, or JSON, by one small parser.
//!
//! The two differ in little (`=` or `:`, quoted keys, commas), so the format is found by content
//! and never by a file's name. Labels nest: `host_volume "a" {}` reads as `host_volume = { a = {}
//! }`, which is what the JSON form says. Repeated keys are kept in order; the reader decides what
//! a repetition means.

use std::fmt;

/// How deep objects and lists may nest before the file is refused.
const MAX_DEPTH: usize = 64;

/// A location in a file, both counted from 1; the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value with the location where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct HclNode {
    /// Where the value begins.
    pub location: Location,
    pub value: HclValue,
}

/// What a configuration file can say.
#[derive(Clone, Debug, PartialEq)]
pub enum HclValue {
    /// JSON's null; an attribute with it counts as absent.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as it was written.
    Number(String),
    /// A quoted string or a heredoc, escapes resolved.
    String(String),
    List(Vec<HclNode>),
    /// A block's body or an object: keys in the order of the file, repeated ones too.
    Object(Vec<ObjectEntry>),
}

impl HclValue {
    /// The word used for this kind of value in error texts, with its article.
    pub fn kind(&self) -> &'static str {
        match self {
            HclValue::Null => "null",
            HclValue::Bool(_) => "a bool",
            HclValue::Number(_) => "a number",
            HclValue::String(_) => "a string",
            HclValue::List(_) => "a list",
            HclValue::Object(_) => "an object",
        }
    }
}

/// One key of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectEntry {
    /// The key, without quotes.
    pub key: String,
    /// Where the key stands.
    pub location: Location,
    /// Its value.
    pub node: HclNode,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{location}: {message}")]
pub struct SyntaxError {
    /// Where.
    pub location: Location,
    /// What is wrong.
    pub message: String,
}

/// Parses a whole file.
///
/// # Errors
/// The first location that is neither HCL nor JSON.
pub fn parse(text: &str) -> Result<HclNode, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser {
        rest: text.chars().peekable(),
        location: Location { line: 1, column: 1 },
        depth: 0,
    };
    parser.skip_space()?;
    let location = parser.location;
    let node = if parser.peek() == Some('{') {
        let node = parser.value()?;
        parser.skip_space()?;
        node
    } else {
        HclNode {
            location,
            value: HclValue::Object(parser.entries(None)?),
        }
    };
    match parser.peek() {
        None => Ok(node),
        Some(c) => parser.fail(format!(
            "unexpected {c:?} after the end of the configuration"
        )),
    }
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    location: Location,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.location = Location {
                line: self.location.line + 1,
                column: 1,
            };
        } else {
            self.location.column += 1;
        }
        Some(c)
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError {
            location: self.location,
            message: message.into(),
        })
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.next();
        }
    }

    /// Skips white space, commas between entries excluded, and comments.
    fn skip_space(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.peek() {
                Some(c) if c.is_whitespace() => {
                    self.next();
                }
                Some('#') => self.skip_line(),
                Some('/') => {
                    self.next();
                    match self.peek() {
                        Some('/') => self.skip_line(),
                        Some('*') => self.skip_block_comment()?,
                        _ => return self.fail("unexpected '/'"),
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    fn skip_block_comment(&mut self) -> Result<(), SyntaxError> {
        self.next();
        let mut last = ' ';
        while let Some(c) = self.next() {
            if last == '*' && c == '/' {
                return Ok(());
            }
            last = c;
        }
        self.fail("comment not terminated")
    }

    fn entries(&mut self, close: Option<char>) -> Result<Vec<ObjectEntry>, SyntaxError> {
        let mut entries = Vec::new();
        loop {
            self.skip_space()?;
            match self.peek() {
                Some(',') => {
                    self.next();
                }
                None if close.is_none() => return Ok(entries),
                None => return self.fail("object not terminated, expected '}'"),
                c if c == close => {
                    self.next();
                    return Ok(entries);
                }
                _ => entries.push(self.entry()?),
            }
        }
    }

    fn entry(&mut self) -> Result<ObjectEntry, SyntaxError> {
        let location = self.location;
        let key = self.key()?;
        let mut labels = Vec::new();
        loop {
            self.skip_space()?;
            let node = match self.peek() {
                Some('=' | ':') => {
                    self.next();
                    self.skip_space()?;
                    self.value()?
                }
                Some('{') => self.value()?,
                Some(_) => {
                    labels.push((self.location, self.key()?));
                    if labels.len() > 8 {
                        return self.fail("too many labels");
                    }
                    continue;
                }
                None => return self.fail(format!("key {key:?} has no value")),
            };
            let nested = labels
                .into_iter()
                .rev()
                .fold(node, |node, (location, key)| HclNode {
                    location,
                    value: HclValue::Object(vec![ObjectEntry {
                        key,
                        location,
                        node,
                    }]),
                });
            return Ok(ObjectEntry {
                key,
                location,
                node: nested,
            });
        }
    }

    fn key(&mut self) -> Result<String, SyntaxError> {
        match self.peek() {
            Some('"') => self.quoted(),
            Some(c) if c.is_alphanumeric() || c == '_' => {
                let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
                let mut key = String::new();
                while let Some(c) = self.peek().filter(|&c| word(c)) {
                    key.push(c);
                    self.next();
                }
                Ok(key)
            }
            Some(c) => self.fail(format!("expected a key, found {c:?}")),
            None => self.fail("expected a key, found the end of the file"),
        }
    }

    fn value(&mut self) -> Result<HclNode, SyntaxError> {
        let location = self.location;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let value = match self.peek() {
            Some('"') => HclValue::String(self.quoted()?),
            Some('<') => HclValue::String(self.heredoc()?),
            Some('{') => {
                self.next();
                HclValue::Object(self.entries(Some('}'))?)
            }
            Some('[') => {
                self.next();
                HclValue::List(self.list()?)
            }
            Some(c) if c.is_ascii_digit() || c == '-' || c == '+' || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() => self.word()?,
            Some(c) => return self.fail(format!("expected a value, found {c:?}")),
            None => return self.fail("expected a value, found the end of the file"),
        };
        self.depth -= 1;
        Ok(HclNode { location, value })
    }

    fn list(&mut self) -> Result<Vec<HclNode>, SyntaxError> {
        let mut items = Vec::new();
        loop {
            self.skip_space()?;
            match self.peek() {
                Some(',') => {
                    self.next();
                }
                Some(']') => {
                    self.next();
                    return Ok(items);
                }
                None => return self.fail("list not terminated, expected ']'"),
                _ => items.push(self.value()?),
            }
        }
    }

    fn number(&mut self) -> HclValue {
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_');
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|&c| part(c)) {
            text.push(c);
            self.next();
        }
        HclValue::Number(text)
    }

    fn word(&mut self) -> Result<HclValue, SyntaxError> {
        match self.key()?.as_str() {
            "true" => Ok(HclValue::Bool(true)),
            "false" => Ok(HclValue::Bool(false)),
            "null" => Ok(HclValue::Null),
            other => self.fail(format!(
                "unknown word {other:?}; strings are written in quotes"
            )),
        }
    }

    fn quoted(&mut self) -> Result<String, SyntaxError> {
        self.next();
        let mut text = String::new();
        let mut braces = 0usize;
        loop {
            match self.next() {
                None => return self.fail("string not terminated"),
                Some('"') if braces == 0 => return Ok(text),
                Some('\n') if braces == 0 => {
                    return self.fail("string not terminated at the line's end");
                }
                Some('\\') => text.push(self.escape()?),
                Some(c) => {
                    if text.ends_with('$') && c == '{' {
                        braces += 1;
                    } else if c == '}' && braces > 0 {
                        braces -= 1;
                    }
                    text.push(c);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        match self.next() {
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some('b') => Ok('\u{8}'),
            Some('f') => Ok('\u{c}'),
            Some(c @ ('"' | '\\' | '/')) => Ok(c),
            Some('u') => {
                let first = self.hex4()?;
                if (0xd800..0xdc00).contains(&first) {
                    if self.next() != Some('\\') || self.next() != Some('u') {
                        return self.fail("half of a surrogate pair");
                    }
                    let second = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return self.fail("bad surrogate pair");
                    }
                    let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    return char::from_u32(code)
                        .map_or_else(|| self.fail("bad surrogate pair"), Ok);
                }
                char::from_u32(first).map_or_else(|| self.fail("bad \\u escape"), Ok)
            }
            _ => self.fail("unknown escape in a string"),
        }
    }

    fn hex4(&mut self) -> Result<u32, SyntaxError> {
        let mut code = 0;
        for _ in 0..4 {
            match self.next().and_then(|c| c.to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None => return self.fail("\\u needs four hexadecimal digits"),
            }
        }
        Ok(code)
    }

    fn heredoc(&mut self) -> Result<String, SyntaxError> {
        self.next();
        if self.next() != Some('<') {
            return self.fail("expected a heredoc, `<<NAME`");
        }
        let indented = self.peek() == Some('-');
        if indented {
            self.next();
        }
        let delimiter = self.raw_line().trim().to_owned();
        if delimiter.is_empty() {
            return self.fail("a heredoc needs a name after `<<`");
        }
        let mut lines = Vec::new();
        loop {
            if self.peek().is_none() {
                return self.fail(format!("heredoc {delimiter} not terminated"));
            }
            let line = self.raw_line();
            if line.trim() == delimiter {
                break;
            }
            lines.push(line);
        }
        let indent = if indented { common_indent(&lines) } else { 0 };
        Ok(lines
            .iter()
            .map(|l| l.get(indent..).unwrap_or("").to_owned() + "\n")
            .collect())
    }

    fn raw_line(&mut self) -> String {
        let mut line = String::new();
        while let Some(c) = self.next() {
            if c == '\n' {
                break;
            }
            line.push(c);
        }
        line.trim_end_matches('\r').to_owned()
    }
}

fn common_indent(lines: &[String]) -> usize {
    lines
        .iter()
        .filter(|l| !l.trim().is_empty())
        .map(|l| l.len() - l.trim_start_matches([' ', '\t']).len())
        .min()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Vec<ObjectEntry> {
        match parse(text).expect("parses").value {
            HclValue::Object(entries) => entries,
            other => panic!("not an object: {other:?}"),
        }
    }

    #[test]
    fn json_and_hcl_read_alike() {
        let hcl = object("client {\n  enabled = true\n  meta { \"a.b\" = 1 }\n}\n");
        let json = object(r#"{"client": {"enabled": true, "meta": {"a.b": 1}}}"#);
        assert_eq!(strip(&hcl), strip(&json));
    }

    fn strip(entries: &[ObjectEntry]) -> String {
        entries
            .iter()
            .map(|e| match &e.node.value {
                HclValue::Object(inner) => format!("{}{{{}}}", e.key, strip(inner)),
                value => format!("{}={value:?};", e.key),
            })
            .collect()
    }

    #[test]
    fn labels_nest() {
        let entries = object("plugin \"raw_exec\" {\n config { enabled = true }\n}");
        let HclValue::Object(inner) = &entries[0].node.value else {
            panic!("no object")
        };
        assert_eq!(inner[0].key, "raw_exec");
    }

    #[test]
    fn broken_files_name_their_place() {
        for (text, location) in [
            ("a = ", "1:5"),
            ("a = \"x", "1:7"),
            ("\n  b {", "2:6"),
            ("a = nope", "1:9"),
            ("a = [1, 2", "1:10"),
            ("/* x", "1:5"),
            ("a = \"\\q\"", "1:8"),
            ("= 1", "1:1"),
        ] {
            let err = parse(text).expect_err(text);
            assert_eq!(err.location.to_string(), location, "{text:?}: {err}");
        }
        assert!(parse("a = ").is_err());
        assert!(parse(&format!("a = {}", "[".repeat(5000))).is_err());
    }

    #[test]
    fn comments_end_where_they_end() {
        for text in [
            "# before\na = 1",
            "// before\na = 1",
            "/* before\n * and **/ a = 1",
            "/*/ a = 2 */ a = 1",
            "/* / * */a = 1",
            "a = 1 # behind",
            "a = 1 // behind",
            "a = /* within */ 1 /* behind */",
            "# before\n{ \"a\": 1 } // behind",
        ] {
            let entries = object(text);
            assert_eq!(entries.len(), 1, "{text}");
            assert_eq!(entries[0].key, "a", "{text}");
            assert_eq!(
                entries[0].node.value,
                object("a = 1")[0].node.value,
                "{text}"
            );
        }
        for (text, why) in [
            ("a = 1 /* ", "comment not terminated"),
            ("a = 1 /*/", "comment not terminated"),
            ("/* * / a = 1", "comment not terminated"),
            ("/ a = 1", "unexpected '/'"),
            ("a { b = 1", "object not terminated"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(why), "{text}: {}", error.message);
        }
    }

    #[test]
    fn a_block_has_eight_labels_at_most() {
        let block = |labels: usize| format!("a {} {{}}", "\"b\" ".repeat(labels));
        assert_eq!(object(&block(8)).len(), 1);
        let error = parse(&block(9)).unwrap_err();
        assert_eq!(error.message, "too many labels");
    }

    #[test]
    fn half_of_a_surrogate_pair_is_no_character() {
        for second in [
            "\\u0000", "\\ud800", "\\udbff", "\\ue000", "\\uffff", "\\n", "x",
        ] {
            let text = format!("a = \"\\ud83d{second}\"");
            assert!(parse(&text).is_err(), "{text}");
        }
        let entries = object("a = \"\\ud83d\\ude00\"");
        assert_eq!(entries[0].node.value, HclValue::String("\u{1f600}".into()));
    }

    #[test]
    fn heredocs_and_escapes() {
        let entries = object(
            "a = <<EOF\n one\n two\nEOF\nb = <<-X\n  in\n   deeper\n  X\nc = \"\\u00e9\\n\"",
        );
        let texts: Vec<_> = entries.iter().map(|e| e.node.value.clone()).collect();
        assert_eq!(texts[0], HclValue::String(" one\n two\n".into()));
        assert_eq!(texts[1], HclValue::String("in\n deeper\n".into()));
        assert_eq!(texts[2], HclValue::String("é\n".into()));
    }
}
