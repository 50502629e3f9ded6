//! Why rules are refused, with the line it is about.

use std::fmt;

use drover_hcl1::Location;

/// How much of a line is shown around the location.
const SHOWN: usize = 100;

/// What is wrong with rules, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// What is wrong, in one line.
    pub message: String,
    /// Where, if it has a location.
    pub location: Option<Location>,
    /// The line, and the one with the caret below it.
    excerpt: String,
}

impl PolicyError {
    /// One about a location of the rules.
    pub(crate) fn at(rules: &str, location: Location, message: impl Into<String>) -> PolicyError {
        PolicyError {
            message: message.into(),
            location: Some(location),
            excerpt: excerpt(rules, location),
        }
    }

    /// One about the rules as a whole.
    pub(crate) fn whole(message: impl Into<String>) -> PolicyError {
        PolicyError {
            message: message.into(),
            location: None,
            excerpt: String::new(),
        }
    }
}

impl std::error::Error for PolicyError {}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(location) = self.location {
            write!(f, " (line {}, column {})", location.line, location.column)?;
        }
        if !self.excerpt.is_empty() {
            write!(f, "\n{}", self.excerpt)?;
        }
        Ok(())
    }
}

/// The line of a location with a caret under its column; a long line is cut around it.
fn excerpt(rules: &str, location: Location) -> String {
    let Some(line) = rules.lines().nth(location.line.saturating_sub(1)) else {
        return String::new();
    };
    let column = location.column.saturating_sub(1);
    let from = column.saturating_sub(SHOWN / 2);
    let shown: String = line.chars().skip(from).take(SHOWN).map(visible).collect();
    if shown.trim().is_empty() {
        return String::new();
    }
    format!("  {shown}\n  {}^", " ".repeat(column - from))
}

/// As many columns wide as it is counted, and harmless on a terminal.
fn visible(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}
