//! What reading a text costs beyond its length, by a scan that knows strings, heredocs and
//! comments.
//!
//! The parser bounds nesting and chains of operators itself. Two things grow faster than the text
//! all the same: it looks through all keys of an object for each new one, and it reads what lies
//! between an operand and what follows anew for each operator that is still open there.

use std::ops::Range;

/// How many keys an object may have.
pub(super) const MAX_KEYS: u64 = 20_000;
/// How many operators can be open at a place: the parser refuses deeper nesting.
const MAX_OPEN: u64 = 64;
/// What a comment costs beyond its length.
const COMMENT: u64 = 16;
/// Names are compared this many bytes at once.
const NAME: u64 = 64;

/// What a text is at its beginning.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Body,
    Expression,
    /// The inside of a string, as it is without one around it.
    Template,
}

/// The work that is left when a text's length is left out: looks at what was looked at before. An
/// error is the place where an object gets too many keys.
pub(super) fn work(text: &str, form: Form) -> Result<u64, usize> {
    let begin = match form {
        Form::Body => Mode::Code(BracketLevel::of_keys(0)),
        Form::Expression => Mode::Code(BracketLevel::default()),
        Form::Template => Mode::Template,
    };
    let mut scan = Scan {
        text: text.as_bytes(),
        stack: vec![begin],
        work: 0,
    };
    let mut at = 0;
    while at < scan.text.len() {
        at = scan.step(at)?;
    }
    Ok(scan.work)
}

#[derive(Clone, Copy)]
enum Mode {
    /// Code, up to the bracket that closes it.
    Code(BracketLevel),
    /// A quoted string.
    Quoted,
    /// A heredoc whose delimiter is the text of this range.
    Heredoc(usize, usize),
    /// A template that ends with the text.
    Template,
}

/// What was seen of the code between two brackets.
#[derive(Clone, Copy, Default)]
struct BracketLevel {
    /// Whether it has keys: braces.
    has_keys: bool,
    /// How many there were.
    keys: u64,
    /// Where the present item began.
    item: usize,
    /// Whether its key is over.
    keyed: bool,
    /// Operators that may still be open.
    open: u64,
}

impl BracketLevel {
    fn of_keys(item: usize) -> BracketLevel {
        BracketLevel {
            has_keys: true,
            item,
            ..BracketLevel::default()
        }
    }

    fn next_item(&mut self, at: usize) {
        self.item = at;
        self.keyed = false;
    }
}

struct Scan<'a> {
    text: &'a [u8],
    stack: Vec<Mode>,
    work: u64,
}

impl Scan<'_> {
    /// Takes what begins at a place, and says where the next thing does.
    fn step(&mut self, at: usize) -> Result<usize, usize> {
        match self.stack.last_mut() {
            Some(Mode::Code(level)) => match self.text[at] {
                b',' => {
                    level.next_item(at + 1);
                    level.open = 0;
                }
                b'\n' => {
                    level.next_item(at + 1);
                    self.work += level.open;
                }
                byte if byte.is_ascii_whitespace() => self.work += level.open,
                b'-' | b'!' | b'?' => level.open = (level.open + 1).min(MAX_OPEN),
                b'=' | b':' => self.key(at)?,
                _ => return Ok(self.code(at)),
            },
            Some(Mode::Quoted) => return Ok(self.quoted(at)),
            Some(Mode::Heredoc(start, end)) => {
                let delimiter = *start..*end;
                return Ok(self.heredoc(at, delimiter));
            }
            Some(Mode::Template) => return Ok(self.template(at)),
            None => return Ok(self.text.len()),
        }
        Ok(at + 1)
    }

    fn code(&mut self, at: usize) -> usize {
        match (self.text[at], self.byte(at + 1)) {
            (b'"', _) => self.stack.push(Mode::Quoted),
            (b'{', _) => self.stack.push(Mode::Code(BracketLevel::of_keys(at + 1))),
            (b'[' | b'(', _) => self.stack.push(Mode::Code(BracketLevel::default())),
            (b'}' | b']' | b')', _) => self.close(),
            (b'#', _) | (b'/', b'/') => return self.comment(at, line_end(self.text, at)),
            (b'/', b'*') => return self.comment(at, find(self.text, at + 2, b"*/") + 2),
            (b'<', b'<') => {
                let start = at + 2 + usize::from(self.byte(at + 2) == b'-');
                let end = line_end(self.text, start);
                if end > start {
                    // Trimmed once: each line of the text is compared with it.
                    let length = self.text[start..end].trim_ascii_end().len();
                    self.stack.push(Mode::Heredoc(start, start + length));
                    // What ends the line is looked at: the next one may be the last already.
                    return end;
                }
            }
            _ => {}
        }
        at + 1
    }

    /// The end of a key, or what only looks like it.
    fn key(&mut self, at: usize) -> Result<(), usize> {
        let before = at.checked_sub(1).map_or(0, |before| self.text[before]);
        let compares = matches!(before, b'=' | b'!' | b'<' | b'>');
        let assigns = self.text[at] == b'=' && self.byte(at + 1) != b'=' && !compares;
        let Some(Mode::Code(level)) = self.stack.last_mut() else {
            return Ok(());
        };
        if assigns {
            level.open = 0;
        }
        if !level.has_keys || level.keyed {
            return Ok(());
        }
        level.keyed = true;
        self.work += level.keys * comparison(&self.text[level.item..at]);
        level.keys += 1;
        if level.keys > MAX_KEYS {
            return Err(at);
        }
        Ok(())
    }

    fn comment(&mut self, at: usize, end: usize) -> usize {
        if let Some(Mode::Code(level)) = self.stack.last() {
            self.work += level.open * (COMMENT + (end - at) as u64);
        }
        end
    }

    fn quoted(&mut self, at: usize) -> usize {
        match self.text[at] {
            b'\\' => return at + 2,
            b'"' => self.close(),
            _ => return self.template(at),
        }
        at + 1
    }

    /// The delimiter ends a heredoc at the beginning of a line, whatever comes behind it.
    fn heredoc(&mut self, at: usize, delimiter: Range<usize>) -> usize {
        if self.text[at] != b'\n' {
            return self.template(at);
        }
        let blank = |byte: &&u8| matches!(**byte, b' ' | b'\t');
        let start = at + 1 + self.text[at + 1..].iter().take_while(blank).count();
        let delimiter = &self.text[delimiter];
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let goes_on = |byte: u8| in_name(byte) || !byte.is_ascii();
        if self.text[start..].starts_with(delimiter) && !goes_on(self.byte(start + delimiter.len()))
        {
            self.close();
            return start + delimiter.len();
        }
        at + 1
    }

    /// Text, up to where code begins in it.
    fn template(&mut self, at: usize) -> usize {
        let rest = &self.text[at..];
        if rest.starts_with(b"$${") || rest.starts_with(b"%%{") {
            return at + 3;
        }
        if rest.starts_with(b"${") || rest.starts_with(b"%{") {
            self.stack.push(Mode::Code(BracketLevel::default()));
            return at + 2;
        }
        at + 1
    }

    /// Ends the innermost mode; the outermost one lasts.
    fn close(&mut self) {
        if self.stack.len() > 1 {
            self.stack.pop();
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }
}

/// What it costs to compare a key with another one: names at once, expressions part by part.
fn comparison(key: &[u8]) -> u64 {
    let key = key.trim_ascii();
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let plain = |byte: &u8| !matches!(byte, b'"' | b'{');
    let is_name = key.iter().all(|byte| in_name(byte) || !byte.is_ascii());
    let quoted = key
        .strip_prefix(b"\"")
        .and_then(|key| key.strip_suffix(b"\""));
    let is_text = quoted.is_some_and(|text| text.iter().all(plain));
    let length = key.len() as u64;
    1 + if is_name || is_text {
        length / NAME
    } else {
        length
    }
}

fn line_end(text: &[u8], from: usize) -> usize {
    find(text, from, b"\n")
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

    /// So many items of an object.
    fn keys(number: usize) -> String {
        (0..number).map(|n| format!("k{n} = 1, ")).collect()
    }

    #[test]
    fn keys_are_found_wherever_the_parser_finds_them() {
        let many = keys(20_001);
        for text in [
            format!("a = {{ {many} }}\n"),
            format!("a = \"${{ {{ {many} }} }}\"\n"),
            // What only looks like the beginning of code, or like a heredoc that continues.
            format!("a = \"$${{\"\nb = {{ {many} }}\n"),
            format!("a = \"%%{{\"\nb = {{ {many} }}\n"),
            format!("a = <<E\nE\nb = {{ {many} }}\n"),
            format!("a = <<E\nx\n  E\nb = {{ {many} }}\n"),
            format!("a = trim(<<E\nx\nE)\nb = {{ {many} }}\n"),
            format!("a = [<<E\n$${{\nE\n]\nb = {{ {many} }}\n"),
            format!("a = <<E\r\nx\r\nE\r\nb = {{ {many} }}\n"),
            format!("a = \"\\\"\"\nb = {{ {many} }}\n"),
            format!("/* \" */ a = 1 // \"\nb = {{ {many} }} # \"\n"),
        ] {
            assert!(work(&text, Form::Body).is_err(), "{text:.60}");
        }
        for (text, form) in [
            (format!("a = \"{many}\"\n"), Form::Body),
            (format!("a = <<E\nE1\n{many}\nE\n"), Form::Body),
            (format!("# {many}\n/* {many} */ a = 1\n"), Form::Body),
            (many.clone(), Form::Template),
            (format!("$${{{{ {many} }}}}"), Form::Template),
            ("[a ? b : c], ".repeat(30_000), Form::Expression),
        ] {
            assert!(work(&text, form).is_ok(), "{text:.60}");
        }
        let template = format!("${{ {{ {many} }} }}");
        assert!(work(&template, Form::Template).is_err());
        assert!(work(&format!("{{ {many} }}"), Form::Expression).is_err());
    }

    #[test]
    fn what_the_parser_looks_at_again_is_work() {
        let cost = |text: &str| work(text, Form::Body).expect("few keys");
        assert_eq!(cost("a = 1\n  b = [2, 3]\n# c\n"), 1);
        let names = format!("a = {{ {} }}\n", keys(1_000));
        assert!(
            (499_000..520_000).contains(&cost(&names)),
            "{}",
            cost(&names)
        );
        let long = format!("[{}]", "1, ".repeat(100));
        let lists: String = (0..1_000).map(|n| format!("({long}[{n}]) = 1, ")).collect();
        assert!(cost(&format!("a = {{ {lists} }}\n")) > 100 * cost(&names));
        let comments = "/**/".repeat(1_000);
        let plain = cost(&format!("a = 1 {comments}\n"));
        let open = cost(&format!("a = {}1 {comments}\n", "!".repeat(60)));
        assert!(plain < 1_000 && open > 60 * 16_000, "{plain} {open}");
        let chain = cost(&format!("a = {}1 {comments}\n", "b ? c : ".repeat(60)));
        assert!(chain > 60 * 16_000, "{chain}");
    }
}
