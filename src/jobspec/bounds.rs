//! Guards the parser against texts that would take it too long.
//!
//! The parser bounds nesting itself, but looks through all keys of an object for each new one. So
//! the number of keys in any one object is bounded first, by a scan that knows strings, heredocs
//! and comments.

use super::diagnostic::{Diagnostic, Source};
use hcl_edit::structure::Body;
use std::ops::Range;

/// The longest text that is parsed, in bytes. What is longer could not become an event either.
pub(super) const MAX_TEXT: usize = 4 << 20;

/// How many keys an object may have.
const MAX_KEYS: usize = 20_000;

/// Parses a native text.
///
/// # Errors
/// The place of the first thing that is not HCL, or a limit that it is over.
pub(super) fn parse(source: &Source) -> Result<Body, Diagnostic> {
    check(source)?;
    hcl_edit::parser::parse_body(&source.text).map_err(|err| {
        let at = err.location().offset();
        if let Some(block) = single_line(&source.text, at) {
            let detail = "A block that is written on one line holds one argument and nothing else: \
                write several arguments, or a block within it, on lines of their own.";
            return source.problem(Some(block), "Invalid single-line block", detail);
        }
        let end = source.text[at.min(source.text.len())..]
            .chars()
            .next()
            .map_or(at, |c| at + c.len_utf8());
        let mut detail = err.message().to_owned();
        if let Some(first) = detail.get(..1) {
            detail = first.to_uppercase() + &detail[1..] + ".";
        }
        source.problem(Some(at..end), "Invalid HCL", detail)
    })
}

/// The block on the line of a fault that holds more than one argument, or a block: the grammar has
/// neither on one line, and many write it so.
fn single_line(text: &str, at: usize) -> Option<Range<usize>> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..];
    let line = &line[..line.find('\n').unwrap_or(line.len())];
    let (head, inner) = line.split_once('{')?;
    let label = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '"' | ' ' | '\t' | '.');
    let is_block = head.trim_start().starts_with(char::is_alphabetic) && head.chars().all(label);
    let begin = start + head.len() - head.trim_start().len();
    let end = start + head.len();
    (is_block && at > end && is_crowded(inner)).then_some(begin..end)
}

/// Whether more than one argument, or a block, stands before the brace that closes this.
fn is_crowded(inner: &str) -> bool {
    let (mut depth, mut arguments, mut quoted, mut last) = (0_usize, 0, false, ' ');
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted => drop(chars.next()),
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' if depth == 0 && last != '=' => return true,
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' if depth == 0 => break,
            '}' | ']' | ')' => depth -= 1,
            '=' if depth == 0 && !"=!<>".contains(last) && chars.peek() != Some(&'=') => {
                arguments += 1;
            }
            _ => {}
        }
        if !c.is_whitespace() {
            last = c;
        }
    }
    arguments > 1
}

fn check(source: &Source) -> Result<(), Diagnostic> {
    let text = &source.text;
    if text.len() > MAX_TEXT {
        let detail = format!(
            "The text is {} bytes long; at most {MAX_TEXT} are read.",
            text.len()
        );
        return Err(source.problem(None, "Specification too large", detail));
    }
    if text.len() < MAX_KEYS {
        return Ok(());
    }
    match crowded(text.as_bytes()) {
        None => Ok(()),
        Some(at) => {
            let detail = format!("One object has more than {MAX_KEYS} keys.");
            Err(source.problem(Some(at..at + 1), "Specification too large", detail))
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Code in braces; counts keys.
    Code(usize),
    /// A quoted string.
    Quoted,
    /// A heredoc whose mark is the text of this range.
    Heredoc(usize, usize),
}

/// The place where an object gets too many keys.
fn crowded(text: &[u8]) -> Option<usize> {
    let mut stack = vec![Mode::Code(0)];
    let mut i = 0;
    while i < text.len() {
        let depth = stack.len();
        let mode = stack.last_mut()?;
        let next = text.get(i + 1).copied().unwrap_or(0);
        let opens = matches!(text[i], b'$' | b'%') && next == b'{';
        match mode {
            Mode::Code(keys) => match text[i] {
                b'"' => stack.push(Mode::Quoted),
                b'{' => stack.push(Mode::Code(0)),
                b'}' if depth > 1 => {
                    stack.pop();
                }
                b'#' => i = line_end(text, i),
                b'/' if next == b'/' => i = line_end(text, i),
                b'/' if next == b'*' => i = find(text, i + 2, b"*/") + 1,
                b'<' if next == b'<' => {
                    let start = i + 2 + usize::from(text.get(i + 2) == Some(&b'-'));
                    let end = line_end(text, start);
                    if end > start {
                        stack.push(Mode::Heredoc(start, end));
                        i = end;
                    }
                }
                b'=' | b':' => {
                    *keys += 1;
                    // Attributes of a body are looked up by hash; objects begin one level deeper.
                    if *keys > MAX_KEYS {
                        return Some(i);
                    }
                }
                _ => {}
            },
            Mode::Quoted => match text[i] {
                b'\\' => i += 1,
                b'"' => {
                    stack.pop();
                }
                _ if opens => {
                    stack.push(Mode::Code(0));
                    i += 1;
                }
                _ => {}
            },
            Mode::Heredoc(start, end) => {
                if text[i] == b'\n' {
                    let mark = text[*start..*end].trim_ascii();
                    let line = text[i + 1..line_end(text, i + 1)].trim_ascii();
                    if line == mark {
                        i = line_end(text, i + 1);
                        stack.pop();
                        continue;
                    }
                } else if opens {
                    stack.push(Mode::Code(0));
                    i += 1;
                }
            }
        }
        i += 1;
    }
    None
}

fn line_end(text: &[u8], from: usize) -> usize {
    let from = from.min(text.len());
    text[from..]
        .iter()
        .position(|b| *b == b'\n')
        .map_or(text.len(), |n| from + n)
}

fn find(text: &[u8], from: usize, what: &[u8]) -> usize {
    let from = from.min(text.len());
    text[from..]
        .windows(what.len())
        .position(|w| w == what)
        .map_or(text.len(), |n| from + n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: String) -> Source {
        Source::new("t.hcl", text)
    }

    #[test]
    fn objects_with_too_many_keys_are_refused_at_once() {
        let keys: String = (0..40_000).map(|n| format!("k{n} = 1, ")).collect();
        let err = parse(&source(format!("a = {{ {keys} }}\n"))).expect_err("refused");
        assert_eq!(err.summary, "Specification too large");
    }

    #[test]
    fn blocks_on_one_line_with_several_arguments_are_explained() {
        for text in [
            "network { port \"http\" {} }",
            "network { port \"http\" { static = 80 } }",
            "group \"g\" {\n  resources { cpu = 100 memory = 200 }\n}",
            "resources { cpu = 100, memory = 200 }",
            "env { A = \"x = {\" B = \"y\" }",
        ] {
            let err = parse(&source(format!("{text}\n"))).expect_err(text);
            assert_eq!(err.summary, "Invalid single-line block", "{text}: {err}");
            assert!(err.detail.contains("lines of their own"), "{text}: {err}");
            let place = err.place.expect("a place");
            assert_eq!(place.start.0, text.matches('\n').count().max(1), "{text}");
        }
        for text in ["resources { cpu = 100 }", "meta { a = { b = 1, c = 2 } }"] {
            parse(&source(format!("{text}\n"))).expect(text);
        }
        for text in [
            "meta { a = }",
            "meta { a = \"x\" ) }",
            "a = { b = 1 c = 2 }",
        ] {
            let err = parse(&source(format!("{text}\n"))).expect_err(text);
            assert_eq!(err.summary, "Invalid HCL", "{text}");
        }
    }

    #[test]
    fn long_texts_in_strings_and_heredocs_are_not_keys() {
        let lines = "key = \"value\" : {\n".repeat(30_000);
        let text = format!(
            "# a = 1\na = <<EOF\n{lines}EOF\nb = \"{}\"\n",
            "x = 1 ".repeat(30_000)
        );
        parse(&source(text)).expect("parses");
    }

    #[test]
    fn too_long_is_said_before_parsing() {
        let err = parse(&source("a".repeat(MAX_TEXT + 1))).expect_err("refused");
        assert!(err.detail.contains("bytes long"), "{err}");
    }
}
