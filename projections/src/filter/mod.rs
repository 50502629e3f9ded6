//! The filter language of lists and of rule-shaped events.
//!
//! A filter is a boolean expression over one row: `Status == "pending" and JobID contains "web"`.
//! Its grammar and meaning are those of go-bexpr 0.1.17, which Nomad's clients expect, quirks
//! included (a quoted value that looks like a JSON pointer loses its first slash, for one).
//!
//! What it must not know: tables, the API, the caller. It sees a row only through [`Fields`], which
//! every `Serialize` type has: a serializer walks to the selected field and to nothing else, so
//! that a row never becomes a tree of JSON first.
//!
//! Invariants:
//! - **Frozen.** Apply evaluates filters, so a version's meaning never changes. `golden_v1.json`
//!   holds expressions with the answers of the Go module; a changed meaning is a new version.
//! - **Total and bounded.** Nothing panics; length, depth, the size of a pattern and the steps
//!   spent on one row have limits, and every limit is an error text.
//! - **Deterministic.** No clock, no randomness, no map order: the same row and text give the same
//!   answer, or the same error, on every server.
//!
//! Known differences from the Go module, all of them refusals made earlier or panics avoided: a
//! malformed pattern is refused when the filter is compiled, not when it is first needed; an
//! operator that makes no sense for a missing value is an error; `\x80` and above in a quoted
//! value must form UTF-8; hexadecimal floats are refused; an empty list never complains about the
//! type of the value looked for in it.
//!
//! Start reading at [`compile`]; then `parse.rs`, `eval.rs`, `read.rs`.

mod ast;
mod coerce;
mod eval;
mod parse;
mod pattern;
mod quote;
mod read;

#[cfg(test)]
mod filter_test;
#[cfg(test)]
mod golden_test;

pub use pattern::compile as compile_pattern;
pub use read::{Fields, Lookup, ReadError, Value};

/// The version that new filters are compiled with and that rule-shaped events name.
pub const FILTER_VERSION: u16 = 1;

/// Longest expression, in bytes.
pub const MAX_LENGTH: usize = 16 * 1024;

/// Deepest nesting of parentheses and of `any`/`all`.
pub const MAX_DEPTH: usize = 64;

/// Largest compiled pattern of `matches`, in bytes.
pub const MAX_PATTERN_SIZE: usize = 1 << 20;

/// Most comparisons made for one row before the filter is given up as too costly.
pub const MAX_STEPS: u32 = 50_000;

/// Why a filter was refused, or why it has no answer for a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The version is not one this build knows.
    #[error("unknown filter version {0}")]
    Version(u16),
    /// The expression is longer than [`MAX_LENGTH`].
    #[error("filter expression is {length} bytes long, at most {MAX_LENGTH} are allowed")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The expression is nested deeper than [`MAX_DEPTH`].
    #[error("filter expression is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The expression does not follow the grammar.
    #[error("1:{column}: {reason}")]
    Syntax {
        /// Where, in characters from 1.
        column: usize,
        /// What was wrong there.
        reason: String,
    },
    /// The pattern of `matches` is malformed or too large.
    #[error("failed to compile regular expression {pattern:?}: {reason}")]
    Pattern {
        /// The pattern as it was written.
        pattern: String,
        /// What the engine says about it.
        reason: String,
    },
    /// A selector names nothing in the row, or goes through something that has no parts.
    #[error("error finding value in datum: /{path} at part {part}: {source}")]
    Selector {
        /// The selector, its parts joined by slashes.
        path: String,
        /// The part at which it went wrong, from 0.
        part: usize,
        /// What went wrong there.
        source: ReadError,
    },
    /// The operator cannot be used on a value of that kind.
    #[error("cannot perform {operation} on type {kind} for selector: {selector:?}")]
    Operand {
        /// The operation: `equality`, `in/contains operations`, …
        operation: &'static str,
        /// Kind of the value found.
        kind: &'static str,
        /// The selector as written.
        selector: String,
    },
    /// The value compared with cannot be read as the field's type.
    #[error("error getting match value in expression: cannot parse {value:?} as {kind}")]
    Literal {
        /// The value as written.
        value: String,
        /// The field's kind.
        kind: &'static str,
    },
    /// A placeholder of `any` or `all` is used in a way that makes no sense.
    #[error("{0}")]
    Placeholder(String),
    /// More than [`MAX_STEPS`] comparisons were needed for one row.
    #[error("filter expression is too costly: more than {MAX_STEPS} steps for one row")]
    TooCostly,
}

/// A compiled filter. Compile once per request or event, then match many rows.
#[derive(Debug, Clone)]
pub struct Filter {
    root: ast::Expr,
    text: String,
    version: u16,
}

/// Compiles `text` under the rules of `version` ([`FILTER_VERSION`] for new ones).
///
/// # Errors
/// Whatever makes the text no filter: see [`FilterError`]; the text of the error is for people.
pub fn compile(text: &str, version: u16) -> Result<Filter, FilterError> {
    if version != FILTER_VERSION {
        return Err(FilterError::Version(version));
    }
    let root = parse::parse(text)?;
    Ok(Filter {
        root,
        text: text.to_owned(),
        version,
    })
}

impl Filter {
    /// Whether the row passes.
    ///
    /// # Errors
    /// An unknown selector, an operator that does not fit the field, a value of the wrong type.
    pub fn matches<T: Fields + ?Sized>(&self, row: &T) -> Result<bool, FilterError> {
        self.matches_in_steps(row).map(|(passes, _)| passes)
    }

    /// Whether the row passes, and how many steps that took, at most [`MAX_STEPS`].
    ///
    /// # Errors
    /// As for [`Filter::matches`].
    pub fn matches_in_steps<T: Fields + ?Sized>(
        &self,
        row: &T,
    ) -> Result<(bool, u32), FilterError> {
        eval::matches(&self.root, row)
    }

    /// The expression as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The version it was compiled under.
    pub fn version(&self) -> u16 {
        self.version
    }
}
