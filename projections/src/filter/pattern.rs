//! Patterns of `matches`: the syntax of Go's `regexp`, carried over to the engine used here.
//!
//! The two syntaxes share an ancestor and differ at the edges: Go's `\d`, `\s`, `\w` and `\b` know
//! ASCII only, an escaped punctuation mark is that mark, a brace that starts no count is a brace,
//! and classes have no set operations. The pattern is rewritten so that it means here what it
//! means there; what Go refuses is refused.

use std::fmt::Write;

use regex::bytes::{Regex, RegexBuilder};

use super::MAX_PATTERN_SIZE;

/// Largest count in a repetition.
const MAX_REPEAT: u32 = 1000;

/// Compiles a pattern as Go means it; the error is a sentence for people.
///
/// # Errors
/// Why it is no pattern, or that it is too large.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let rewritten = Rewriter {
        chars: pattern.chars().collect(),
        at: 0,
        out: String::new(),
    }
    .run()?;
    RegexBuilder::new(&rewritten)
        .size_limit(MAX_PATTERN_SIZE)
        .dfa_size_limit(MAX_PATTERN_SIZE)
        .nest_limit(100)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "expression too large".to_owned(),
            other => last_line(&other.to_string()),
        })
}

fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

struct Rewriter {
    chars: Vec<char>,
    at: usize,
    out: String,
}

impl Rewriter {
    fn run(mut self) -> Result<String, String> {
        // Whether the last thing written was a repetition: two in a row are refused.
        let mut repeated = false;
        while let Some(c) = self.next() {
            let mut repetition = false;
            match c {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '(' if self.peek() == Some('?') => self.group()?,
                '*' | '+' | '?' => {
                    repetition = true;
                    self.out.push(c);
                }
                '{' => match self.count()? {
                    Some(count) => {
                        repetition = true;
                        self.out.push_str(&count);
                    }
                    None => self.out.push_str("\\{"),
                },
                '}' => self.out.push_str("\\}"),
                ']' => self.out.push_str("\\]"),
                _ => self.out.push(c),
            }
            if repetition {
                if repeated {
                    return Err("invalid nested repetition operator".to_owned());
                }
                if self.peek() == Some('?') {
                    self.at += 1;
                    self.out.push('?');
                }
            }
            repeated = repetition;
        }
        Ok(self.out)
    }

    fn next(&mut self) -> Option<char> {
        let found = self.peek();
        self.at += 1;
        found
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    /// What follows a backslash.
    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let c = self
            .next()
            .ok_or("trailing backslash at end of expression")?;
        match c {
            'd' if in_class => self.out.push_str("0-9"),
            'd' => self.out.push_str("[0-9]"),
            'w' if in_class => self.out.push_str("0-9A-Za-z_"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            's' if in_class => self.out.push_str("\\t\\n\\x0c\\r "),
            's' => self.out.push_str("[\\t\\n\\x0c\\r ]"),
            'D' => self.out.push_str("[^0-9]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            'S' => self.out.push_str("[^\\t\\n\\x0c\\r ]"),
            'b' | 'B' if !in_class => write!(self.out, "(?-u:\\{c})").unwrap_or_default(),
            'A' | 'z' if !in_class => write!(self.out, "\\{c}").unwrap_or_default(),
            'Q' if !in_class => self.literal(),
            'a' | 'f' | 'n' | 'r' | 't' | 'v' | 'p' | 'P' | 'x' => {
                write!(self.out, "\\{c}").unwrap_or_default();
            }
            '0'..='7' => return self.octal(c),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => self.punctuation(c),
            c => return Err(format!("invalid escape sequence: `\\{c}`")),
        }
        Ok(())
    }

    /// An octal escape; one digit from 1 to 7 alone would be a back reference, which Go has not.
    fn octal(&mut self, first: char) -> Result<(), String> {
        let following = self.peek().is_some_and(|c| c.is_digit(8));
        if first != '0' && !following {
            return Err(format!("invalid escape sequence: `\\{first}`"));
        }
        let mut code = first.to_digit(8).unwrap_or_default();
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            code = code * 8 + digit;
            self.at += 1;
        }
        write!(self.out, "\\x{{{code:x}}}").unwrap_or_default();
        Ok(())
    }

    /// A character that stands for itself.
    fn punctuation(&mut self, c: char) {
        if c.is_ascii_punctuation() {
            self.out.push_str(&regex::escape(&c.to_string()));
        } else {
            write!(self.out, "\\x{{{:x}}}", u32::from(c)).unwrap_or_default();
        }
    }

    /// `\Q…\E`, or to the end of the pattern.
    fn literal(&mut self) {
        while let Some(c) = self.next() {
            if c == '\\' && self.peek() == Some('E') {
                self.at += 1;
                return;
            }
            self.out.push_str(&regex::escape(&c.to_string()));
        }
    }

    /// What follows `(`: flags or a name. Flags that Go does not know are refused.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        let head: String = self.chars[self.at..].iter().take(3).collect();
        if head.starts_with("?P<") || head.starts_with("?<") {
            return Ok(());
        }
        let mut flags = self.at + 1;
        while let Some(c) = self.chars.get(flags) {
            match c {
                'i' | 'm' | 's' | 'U' | '-' => flags += 1,
                ':' | ')' => break,
                _ => return Err("invalid or unsupported Perl syntax".to_owned()),
            }
        }
        self.out.extend(&self.chars[self.at..flags]);
        self.at = flags;
        Ok(())
    }

    /// A counted repetition, or `None` where the brace is only a brace.
    fn count(&mut self) -> Result<Option<String>, String> {
        let tail: String = self.chars[self.at..].iter().take(16).collect();
        let Some((inner, _)) = tail.split_once('}') else {
            return Ok(None);
        };
        let (low, high) = match inner.split_once(',') {
            Some((low, high)) => (low, Some(high)),
            None => (inner, None),
        };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(low) || !high.is_none_or(|high| high.is_empty() || digits(high)) {
            return Ok(None);
        }
        let fits = |text: &str| text.parse::<u32>().is_ok_and(|count| count <= MAX_REPEAT);
        if !fits(low) || !high.is_none_or(|high| high.is_empty() || fits(high)) {
            return Err("invalid repeat count".to_owned());
        }
        self.at += inner.chars().count() + 1;
        Ok(Some(format!("{{{inner}}}")))
    }

    /// A class: `[` has been read.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.peek() == Some('^') {
            self.at += 1;
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.next().ok_or("missing closing ]")?;
            match c {
                ']' if !first => break,
                ']' => self.out.push_str("\\]"),
                '\\' => self.escape(true)?,
                '[' if self.peek() == Some(':') => self.named_class(),
                '[' => self.out.push_str("\\["),
                '&' | '~' => self.punctuation(c),
                '-' if first || self.peek() == Some(']') => self.out.push_str("\\-"),
                '-' if self.peek() == Some('-') => {
                    return Err("invalid character class range".to_owned());
                }
                _ => self.out.push(c),
            }
            first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// `[:alpha:]` and its like; without an end it is a plain bracket.
    fn named_class(&mut self) {
        let tail: String = self.chars[self.at..].iter().take(16).collect();
        match tail.find(":]") {
            Some(end) => {
                self.out.push('[');
                self.out.push_str(&tail[..end + 2]);
                self.at += tail[..end + 2].chars().count();
            }
            None => self.out.push_str("\\["),
        }
    }
}
