//! What an expression is once it is parsed.

use regex::bytes::Regex;

/// One node. `And` and `Or` hold two or more operands, evaluated from the left.
#[derive(Debug, Clone)]
pub(super) enum Expr {
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Match(Match),
    Quantifier(Quantifier),
}

/// A comparison of one selected value.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) selector: Selector,
    pub(super) operator: Operator,
    pub(super) negated: bool,
    /// The value compared with, as text; empty for `is empty` and `is nil`.
    pub(super) value: String,
    /// The compiled value of `matches`.
    pub(super) pattern: Option<Regex>,
}

/// The operators without their negations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    /// `in` and `contains`: one meaning, two ways to write it.
    In,
    Matches,
    Empty,
    Nil,
}

/// `any` or `all` over a list or the keys of a map.
#[derive(Debug, Clone)]
pub(super) struct Quantifier {
    pub(super) all: bool,
    pub(super) selector: Selector,
    pub(super) binding: Binding,
    pub(super) inner: Box<Expr>,
}

/// The names that the inner expression may use. A single name (`default_name`) is the value of a
/// list and the key of a map.
#[derive(Debug, Clone, Default)]
pub(super) struct Binding {
    pub(super) default_name: Option<String>,
    pub(super) index: Option<String>,
    pub(super) value: Option<String>,
}

/// A path to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) path: Vec<String>,
    pub(super) pointer: bool,
}

impl Selector {
    /// The text it has where a selector stands for a plain value, as in `Status == pending`.
    pub(super) fn as_value(&self) -> String {
        self.path.join(if self.pointer { "/" } else { "." })
    }
}
