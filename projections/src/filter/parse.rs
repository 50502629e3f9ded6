//! The parser: text to [`Expr`].
//!
//! Operators bind as in a Pratt table: `or` weakest, then `and`, then `not`, then a comparison or
//! a parenthesis. The grammar that is followed is a parsing expression grammar, so a word is a
//! keyword only where a keyword fits (`not == 1` compares a field called `not`). Every `parse_*`
//! returns `None` and leaves the position alone when it does not apply; a `fail` is final, since
//! some mistakes there end the whole parse even where another reading might succeed.

use std::sync::LazyLock;

use regex::Regex;

use super::ast::{Binding, Expr, Match, Operator, Quantifier, Selector};
use super::{FilterError, MAX_DEPTH, MAX_LENGTH, pattern, quote};

/// Parses a whole expression.
pub(super) fn parse(text: &str) -> Result<Expr, FilterError> {
    if text.len() > MAX_LENGTH {
        return Err(FilterError::TooLong { length: text.len() });
    }
    let mut parser = Parser {
        text,
        at: 0,
        furthest: 0,
        depth: 0,
        failure: None,
    };
    parser.space();
    let expr = parser.parse_or();
    parser.space();
    if let Some(failure) = parser.failure {
        return Err(failure);
    }
    match expr {
        Some(expr) if parser.at == text.len() => Ok(expr),
        _ => {
            let at = parser.furthest.max(parser.at);
            let found = match text[at..].chars().next() {
                Some(next) => format!("no match found, unexpected {next:?}"),
                None => "no match found, unexpected end of expression".to_owned(),
            };
            Err(syntax(text, at, &found))
        }
    }
}

fn syntax(text: &str, at: usize, reason: &str) -> FilterError {
    let column = text[..at].chars().count() + 1;
    FilterError::Syntax {
        column,
        reason: reason.to_owned(),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// How far any attempt got: where the error message points.
    furthest: usize,
    depth: usize,
    failure: Option<FilterError>,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.furthest = self.furthest.max(self.at);
    }

    fn fail<T>(&mut self, at: usize, reason: &str) -> Option<T> {
        let error = syntax(self.text, at, reason);
        self.failure.get_or_insert(error);
        None
    }

    /// Runs `attempt` and goes back to where it began when it does not apply.
    fn attempt<T>(&mut self, attempt: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = self.at;
        let found = if self.failure.is_some() {
            None
        } else {
            attempt(self)
        };
        if found.is_none() {
            self.at = start;
        }
        found
    }

    /// Skips white space; whether there was any.
    fn space(&mut self) -> bool {
        let rest = self.rest();
        let count = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        self.advance(count);
        count > 0
    }

    fn eat(&mut self, token: &str) -> Option<()> {
        self.rest()
            .starts_with(token)
            .then(|| self.advance(token.len()))
    }

    /// White space, then words separated by white space.
    fn words(&mut self, words: &[&str]) -> Option<()> {
        self.attempt(|p| {
            for word in words {
                if !p.space() {
                    return None;
                }
                p.eat(word)?;
            }
            Some(())
        })
    }

    /// White space, the words, white space.
    fn spaced(&mut self, words: &[&str]) -> Option<()> {
        self.attempt(|p| {
            p.words(words)?;
            p.space().then_some(())
        })
    }

    /// Runs `inner` one level down.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MAX_DEPTH {
            self.failure.get_or_insert(FilterError::TooDeep);
            return None;
        }
        self.depth += 1;
        let found = inner(self);
        self.depth -= 1;
        found
    }

    fn parse_or(&mut self) -> Option<Expr> {
        self.nested(|p| {
            let Some(first) = p.parse_and() else {
                return p.parse_each();
            };
            let mut operands = vec![first];
            loop {
                let next = p.attempt(|p| {
                    p.spaced(&["or"])?;
                    p.parse_and()
                });
                if let Some(next) = next {
                    operands.push(next);
                    continue;
                }
                // `any` and `all` may only close a chain of `or`.
                let last = p.attempt(|p| {
                    p.spaced(&["or"])?;
                    p.parse_each()
                });
                operands.extend(last);
                return Some(single_or(operands, Expr::Or));
            }
        })
    }

    fn parse_and(&mut self) -> Option<Expr> {
        let mut operands = vec![self.parse_not()?];
        while let Some(next) = self.attempt(|p| {
            p.spaced(&["and"])?;
            p.parse_not()
        }) {
            operands.push(next);
        }
        Some(single_or(operands, Expr::And))
    }

    fn parse_not(&mut self) -> Option<Expr> {
        let mut starts = vec![self.at];
        while self
            .attempt(|p| {
                p.eat("not")?;
                p.space().then_some(())
            })
            .is_some()
        {
            starts.push(self.at);
        }
        // The last `not` may have been the name of a field.
        while let Some(start) = starts.pop() {
            self.at = start;
            if let Some(expr) = self.parse_operand() {
                let negated = starts.len() % 2 == 1;
                return Some(if negated {
                    Expr::Not(Box::new(expr))
                } else {
                    expr
                });
            }
        }
        None
    }

    fn parse_operand(&mut self) -> Option<Expr> {
        if !self.rest().starts_with('(') {
            return self.parse_match().map(Expr::Match);
        }
        self.attempt(|p| {
            let open = p.at;
            p.eat("(")?;
            p.space();
            let expr = p.parse_or()?;
            p.space();
            if p.eat(")").is_none() {
                return p.fail(open, "unmatched parentheses");
            }
            Some(expr)
        })
    }

    fn parse_each(&mut self) -> Option<Expr> {
        self.attempt(|p| {
            let all = p.eat("all").is_some();
            if !all {
                p.eat("any")?;
            }
            if !p.space() {
                return None;
            }
            let selector = p.parse_selector()?;
            p.spaced(&["as"])?;
            let binding = p.parse_binding()?;
            p.space();
            p.eat("{")?;
            p.space();
            let inner = Box::new(p.parse_or()?);
            p.space();
            p.eat("}")?;
            Some(Expr::Quantifier(Quantifier {
                all,
                selector,
                binding,
                inner,
            }))
        })
    }

    fn parse_binding(&mut self) -> Option<Binding> {
        let pair = self.attempt(|p| {
            let index = p.parse_placeholder()?;
            p.space();
            p.eat(",")?;
            p.space();
            let value = p.parse_placeholder()?;
            (index.is_some() || value.is_some()).then_some(Binding {
                default_name: None,
                index,
                value,
            })
        });
        if pair.is_some() {
            return pair;
        }
        let default_name = self.parse_identifier()?;
        Some(Binding {
            default_name: Some(default_name),
            ..Binding::default()
        })
    }

    /// A name, or `_` for one that is not wanted.
    fn parse_placeholder(&mut self) -> Option<Option<String>> {
        match self.parse_identifier() {
            Some(name) => Some(Some(name)),
            None => self.eat("_").map(|()| None),
        }
    }

    fn parse_match(&mut self) -> Option<Match> {
        let start = self.at;
        if let Some(selector) = self.attempt(Self::parse_selector) {
            let after = self.at;
            if let Some(found) = self.attempt(|p| p.parse_comparison(&selector)) {
                return Some(found);
            }
            self.at = after;
            if let Some(found) = self.parse_is(&selector) {
                return Some(found);
            }
            self.at = start;
        }
        self.attempt(Self::parse_membership)
    }

    /// What follows a selector where a value is compared with it.
    fn parse_comparison(&mut self, selector: &Selector) -> Option<Match> {
        let (operator, negated) = self.parse_operator()?;
        let at = self.at;
        let value = self.parse_value()?;
        let mut pattern = None;
        if operator == Operator::Matches {
            match pattern::compile(&value) {
                Ok(compiled) => pattern = Some(compiled),
                Err(reason) => {
                    self.at = at;
                    self.failure.get_or_insert(FilterError::Pattern {
                        pattern: value,
                        reason,
                    });
                    return None;
                }
            }
        }
        Some(Match {
            selector: selector.clone(),
            operator,
            negated,
            value,
            pattern,
        })
    }

    fn parse_operator(&mut self) -> Option<(Operator, bool)> {
        for (sign, negated) in [("==", false), ("!=", true)] {
            let found = self.attempt(|p| {
                p.space();
                p.eat(sign)?;
                p.space();
                Some((Operator::Equal, negated))
            });
            if found.is_some() {
                return found;
            }
        }
        for (word, operator) in [("contains", Operator::In), ("matches", Operator::Matches)] {
            if self.spaced(&[word]).is_some() {
                return Some((operator, false));
            }
            if self.spaced(&["not", word]).is_some() {
                return Some((operator, true));
            }
        }
        None
    }

    fn parse_is(&mut self, selector: &Selector) -> Option<Match> {
        for (word, operator) in [("empty", Operator::Empty), ("nil", Operator::Nil)] {
            for negated in [false, true] {
                let words: &[&str] = if negated {
                    &["is", "not", word]
                } else {
                    &["is", word]
                };
                if self.words(words).is_some() {
                    let selector = selector.clone();
                    let value = String::new();
                    return Some(Match {
                        selector,
                        operator,
                        negated,
                        value,
                        pattern: None,
                    });
                }
            }
        }
        None
    }

    /// A value, `in` or `not in`, a selector.
    fn parse_membership(&mut self) -> Option<Match> {
        let value = self.parse_value()?;
        let negated = if self.spaced(&["in"]).is_some() {
            false
        } else {
            self.spaced(&["not", "in"])?;
            true
        };
        let at = self.at;
        match self.parse_selector() {
            Some(selector) => Some(Match {
                selector,
                operator: Operator::In,
                negated,
                value,
                pattern: None,
            }),
            None => self.fail(at, "invalid selector"),
        }
    }

    fn parse_value(&mut self) -> Option<String> {
        if let Some(selector) = self.attempt(Self::parse_selector) {
            return Some(selector.as_value());
        }
        if let Some(number) = self.attempt(Self::parse_number) {
            return Some(number);
        }
        self.attempt(Self::parse_string)
    }

    fn parse_number(&mut self) -> Option<String> {
        let start = self.at;
        let _ = self.eat("-");
        let whole = self.digits()?;
        if whole.len() > 1 && whole.starts_with('0') {
            return self.fail(start, "invalid number literal");
        }
        let _ = self.attempt(|p| {
            p.eat(".")?;
            p.digits()
        });
        match self.rest().chars().next() {
            None | Some(' ' | '\t' | '\r' | '\n' | ')') => {
                Some(self.text[start..self.at].to_owned())
            }
            Some(_) => self.fail(start, "invalid number literal"),
        }
    }

    fn digits(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let count = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if count == 0 {
            return None;
        }
        self.advance(count);
        Some(&rest[..count])
    }

    fn parse_string(&mut self) -> Option<String> {
        let start = self.at;
        let quote = self
            .rest()
            .chars()
            .next()
            .filter(|c| matches!(c, '"' | '`'))?;
        let Some(length) = self.rest()[1..].find(quote) else {
            return self.fail(start, "unterminated string literal");
        };
        self.advance(length + 2);
        match quote::unquote(&self.text[start..self.at]) {
            Some(text) => Some(text),
            None => self.fail(start, "invalid string literal"),
        }
    }

    fn parse_selector(&mut self) -> Option<Selector> {
        let Some(first) = self.parse_identifier() else {
            return self.parse_pointer();
        };
        let mut path = vec![first];
        while let Some(part) = self.parse_part() {
            path.push(part);
        }
        Some(Selector {
            path,
            pointer: false,
        })
    }

    fn parse_part(&mut self) -> Option<String> {
        if self.rest().starts_with('[') {
            return self.attempt(Self::parse_index);
        }
        self.attempt(|p| {
            p.eat(".")?;
            match p.parse_identifier() {
                Some(name) => Some(name),
                None => p.digits().map(str::to_owned),
            }
        })
    }

    fn parse_index(&mut self) -> Option<String> {
        let open = self.at;
        self.eat("[")?;
        self.space();
        let Some(key) = self.attempt(Self::parse_string) else {
            return self.fail(open, "invalid index");
        };
        self.space();
        if self.eat("]").is_none() {
            return self.fail(open, "unclosed index expression");
        }
        Some(key)
    }

    /// A JSON pointer in double quotes.
    fn parse_pointer(&mut self) -> Option<Selector> {
        static POINTER: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r#"^"((?:/[\pL\pN\-_.~:|]+)*)""#).expect("the pattern is constant")
        });
        let found = POINTER.captures(self.rest())?;
        let (whole, inner) = (found.get(0)?.end(), found.get(1)?.as_str());
        self.advance(whole);
        let inner = inner.strip_prefix('/').unwrap_or(inner);
        let path = inner
            .split('/')
            .map(|p| p.replace("~1", "/").replace("~0", "~"))
            .collect();
        Some(Selector {
            path,
            pointer: true,
        })
    }

    fn parse_identifier(&mut self) -> Option<String> {
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        let tail =
            rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/');
        let name = &rest[..rest.len() - tail.len()];
        self.advance(name.len());
        Some(name.to_owned())
    }
}

fn single_or(mut operands: Vec<Expr>, many: fn(Vec<Expr>) -> Expr) -> Expr {
    match operands.pop() {
        Some(only) if operands.is_empty() => only,
        Some(last) => {
            operands.push(last);
            many(operands)
        }
        None => many(operands),
    }
}
