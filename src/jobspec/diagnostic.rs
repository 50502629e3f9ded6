//! What is wrong with a specification, and where. All of it at once.

use std::fmt;
use std::ops::Range;

/// One problem, printed as `file:line,col-col: Summary; Detail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// A few words.
    pub summary: String,
    /// A sentence or two.
    pub detail: String,
    /// Where, if it has a location.
    pub location: Option<SourceRange>,
}

/// A range in a named text; lines and columns count from 1, the end is exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// The text's name.
    pub file: String,
    /// Line and column of the first character.
    pub start: (usize, usize),
    /// Line and column after the last character.
    pub end: (usize, usize),
}

impl fmt::Display for SourceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((line, column), (last, end)) = (self.start, self.end);
        write!(f, "{}:{line},{column}-", self.file)?;
        if last == line {
            write!(f, "{end}")
        } else {
            write!(f, "{last},{end}")
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        write!(f, "{}; {}", self.summary, self.detail)
    }
}

/// How many problems are kept; more would not help.
const MAX_KEPT: usize = 100;

/// Every problem found, printed one to a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// In the order they were found; at most a hundred are kept.
    pub list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if !self.is_full() && !self.list.contains(&diagnostic) {
            self.list.push(diagnostic);
        }
    }

    /// Whether no more are kept.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= MAX_KEPT
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Just one problem that has no location.
    pub fn one(summary: impl Into<String>, detail: impl Into<String>) -> Diagnostics {
        let diagnostic = Diagnostic {
            summary: summary.into(),
            detail: detail.into(),
            location: None,
        };
        Diagnostics {
            list: vec![diagnostic],
        }
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        Diagnostics { list: vec![one] }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, one) in self.list.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{one}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// A text with a name, able to say where an offset is.
#[derive(Debug)]
pub struct SourceText {
    /// Its name in diagnostics.
    pub name: String,
    pub text: String,
    lines: Vec<usize>,
}

impl SourceText {
    /// Names a text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> SourceText {
        let text = text.into();
        let lines = std::iter::once(0)
            .chain(
                text.bytes()
                    .enumerate()
                    .filter(|(_, b)| *b == b'\n')
                    .map(|(i, _)| i + 1),
            )
            .collect();
        SourceText {
            name: name.into(),
            text,
            lines,
        }
    }

    /// The text of a range; empty where the range is not in this text.
    pub fn slice(&self, span: &Range<usize>) -> &str {
        self.text.get(span.clone()).unwrap_or("")
    }

    /// The location of a byte range.
    pub fn location(&self, span: Range<usize>) -> SourceRange {
        let end = span.end.max(span.start);
        SourceRange {
            file: self.name.clone(),
            start: self.position(span.start),
            end: self.position(end),
        }
    }

    fn position(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|&start| start <= offset).max(1) - 1;
        let start = self.lines.get(line).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        (line + 1, before.chars().count() + 1)
    }

    /// A problem at a byte range.
    pub fn problem(
        &self,
        span: Option<Range<usize>>,
        summary: impl Into<String>,
        detail: impl Into<String>,
    ) -> Diagnostic {
        let location = span.map(|span| self.location(span));
        Diagnostic {
            summary: summary.into(),
            detail: detail.into(),
            location,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let source = SourceText::new("input.hcl", "a\nü = x\n");
        let text = source.problem(Some(7..8), "Bad", "It is x.").to_string();
        assert_eq!(text, "input.hcl:2,5-6: Bad; It is x.");
        let two = source.problem(Some(0..8), "Bad", "Both.").to_string();
        assert_eq!(two, "input.hcl:1,1-2,6: Bad; Both.");
        assert_eq!(source.position(9999), (3, 1));
    }
}
