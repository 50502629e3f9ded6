//! Regular expressions that callers write, bounded before they are compiled.
//!
//! The limit of the engine counts what is compiled. Before that it builds the expression, and two
//! letters (`\w`) may stand for six kilobytes of it: so the length of the text is bounded first.

use regex::{Regex, RegexBuilder};

/// The longest expression, bytes.
const LONGEST: usize = 4 << 10;
/// The most memory of a compiled one, as the engine has it by default.
const COMPILED: usize = 10 << 20;
/// The same where it is used on long texts.
const SMALL: usize = 256 << 10;

/// Compiles an expression that is held against short texts.
///
/// # Errors
/// Why it is none, or that it is too long.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    within(text, COMPILED)
}

/// Compiles an expression that is looked for in long texts.
///
/// # Errors
/// Why it is none, or that it is too long.
pub(super) fn compile_small(text: &str) -> Result<Regex, String> {
    within(text, SMALL)
}

fn within(text: &str, size: usize) -> Result<Regex, String> {
    if text.len() > LONGEST {
        return Err(format!(
            "a regular expression of {} bytes is too long, at most {LONGEST} are allowed",
            text.len()
        ));
    }
    let built = RegexBuilder::new(text).size_limit(size).build();
    built.map_err(|error| error.to_string())
}
