//! Guards the parser against texts that would take it too long.
//!
//! The parser cannot be stopped once it has begun. So what a text will cost it is taken from the
//! budget first (`scan`), and once it is over the clock is looked at.

use super::budget::{Budget, Cost};
use super::diagnostic::{Diagnostic, SourceText};
use super::scan::{self, Form};
use hcl_edit::expr::Expression;
use hcl_edit::parser::{Error, parse_body, parse_expr, parse_template};
use hcl_edit::structure::Body;
use hcl_edit::template::Template;
use serde_json::{Map, Value as Json};
use std::ops::Range;

/// The longest text that is parsed, in bytes. What is longer could not become an event either.
const MAX_TEXT: usize = 4 << 20;

/// So many looks at what was looked at before, or bytes, are one step of the budget.
const PER_STEP: u64 = 16;

/// Why a text is not read.
enum Unread {
    /// It is no HCL.
    Invalid(Error),
    /// It is over a limit, at a location if there is one.
    Large(Option<usize>, String),
}

impl From<Unread> for String {
    fn from(unread: Unread) -> String {
        match unread {
            Unread::Invalid(error) => error.message().to_owned(),
            // It stands within a sentence.
            Unread::Large(_, why) => why.trim_end_matches('.').to_owned(),
        }
    }
}

/// Parses a native text.
///
/// # Errors
/// The location of the first thing that is not HCL, or a limit that it is over.
pub(super) fn parse(source: &SourceText, budget: &Budget) -> Result<Body, Diagnostic> {
    length(source)?;
    bounded(&source.text, Form::Body, budget, parse_body).map_err(|unread| match unread {
        Unread::Invalid(error) => invalid(source, &error),
        Unread::Large(at, why) => too_large(source, at.map(|at| at..at + 1), why),
    })
}

/// Parses an expression that stands alone, such as the value of a variable.
///
/// # Errors
/// Why it cannot, without a full stop.
pub(super) fn expression(text: &str, budget: &Budget) -> Result<Expression, String> {
    bounded(text, Form::Expression, budget, parse_expr).map_err(String::from)
}

/// Parses a template that stands alone, as a text of the JSON form does.
///
/// # Errors
/// Why it cannot, without a full stop.
pub(super) fn template(text: &str, budget: &Budget) -> Result<Template, String> {
    bounded(text, Form::Template, budget, parse_template).map_err(String::from)
}

/// Parses the object of a text in JSON. That takes as long as the text is.
///
/// # Errors
/// What is no JSON or no object, or a limit that it is over.
pub(super) fn json(source: &SourceText, budget: &Budget) -> Result<Map<String, Json>, Diagnostic> {
    length(source)?;
    let read = serde_json::from_str(&source.text);
    let in_time = budget.look();
    in_time.map_err(|why| too_large(source, None, why))?;
    read.map_err(|err| source.problem(None, "Invalid JSON", err.to_string()))
}

fn bounded<T>(
    text: &str,
    form: Form,
    budget: &Budget,
    parse: fn(&str) -> Result<T, Error>,
) -> Result<T, Unread> {
    let work = scan::work(text, form).map_err(|at| {
        let most = scan::MAX_KEYS;
        Unread::Large(Some(at), format!("One object has more than {most} keys."))
    })?;
    let cost = Cost {
        bytes: 0,
        steps: (work + text.len() as u64) / PER_STEP,
    };
    let large = |why| Unread::Large(None, why);
    budget.charge(cost).map_err(large)?;
    let parsed = parse(text);
    budget.look().map_err(large)?;
    parsed.map_err(Unread::Invalid)
}

fn too_large(source: &SourceText, location: Option<Range<usize>>, why: String) -> Diagnostic {
    source.problem(location, "Specification too large", why)
}

fn length(source: &SourceText) -> Result<(), Diagnostic> {
    let length = source.text.len();
    if length > MAX_TEXT {
        let detail = format!("The text is {length} bytes long; at most {MAX_TEXT} are read.");
        return Err(too_large(source, None, detail));
    }
    Ok(())
}

fn invalid(source: &SourceText, err: &Error) -> Diagnostic {
    // The grammar counts bytes, and may stop within a character.
    let at = source.text.floor_char_boundary(err.location().offset());
    if let Some(block) = single_line(&source.text, at) {
        let detail = "A block that is written on one line holds one argument and nothing else: \
            write several arguments, or a block within it, on lines of their own.";
        return source.problem(Some(block), "Invalid single-line block", detail);
    }
    let end = source.text[at..]
        .chars()
        .next()
        .map_or(at, |c| at + c.len_utf8());
    let mut detail = err.message().to_owned();
    if let Some(first) = detail.get(..1) {
        detail = first.to_uppercase() + &detail[1..] + ".";
    }
    source.problem(Some(at..end), "Invalid HCL", detail)
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn read(text: String) -> Result<Body, Diagnostic> {
        parse(&SourceText::new("t.hcl", text), &Budget::default())
    }

    #[test]
    fn objects_with_too_many_keys_are_refused_at_once() {
        let keys: String = (0..40_000).map(|n| format!("k{n} = 1, ")).collect();
        let err = read(format!("a = {{ {keys} }}\n")).expect_err("refused");
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
            let err = read(format!("{text}\n")).expect_err(text);
            assert_eq!(err.summary, "Invalid single-line block", "{text}: {err}");
            assert!(err.detail.contains("lines of their own"), "{text}: {err}");
            let location = err.location.expect("a location");
            assert_eq!(
                location.start.0,
                text.matches('\n').count().max(1),
                "{text}"
            );
        }
        for text in ["resources { cpu = 100 }", "meta { a = { b = 1, c = 2 } }"] {
            read(format!("{text}\n")).expect(text);
        }
        for text in [
            "meta { a = }",
            "meta { a = \"x\" ) }",
            "a = { b = 1 c = 2 }",
        ] {
            let err = read(format!("{text}\n")).expect_err(text);
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
        read(text).expect("parses");
    }

    #[test]
    fn too_long_is_said_before_parsing() {
        let err = read("a".repeat(MAX_TEXT + 1)).expect_err("refused");
        assert!(err.detail.contains("bytes long"), "{err}");
    }

    #[test]
    fn what_is_read_late_is_refused() {
        let late = || Budget::ending(Instant::now());
        let detail = |problem: Diagnostic| problem.detail;
        let (native, object) = (
            SourceText::new("t.hcl", "a = 1\n"),
            SourceText::new("t.json", "{}"),
        );
        for why in [
            parse(&native, &late()).map_err(detail).err(),
            json(&object, &late()).map_err(detail).err(),
            expression("1", &late()).err(),
            template("${a}", &late()).err(),
        ] {
            let why = why.expect("refused");
            assert!(why.contains("takes longer than"), "{why}");
        }
    }
}
