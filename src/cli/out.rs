//! Where a command writes, and where it reads the user's answers.

use std::io::{BufRead, IsTerminal, Write};

/// The terminal, or whatever stands in its place.
#[derive(Clone, Debug)]
pub(super) struct Out {
    color: bool,
}

impl Out {
    /// The real terminal, with colours where it is one; the environment says otherwise.
    pub(super) fn terminal() -> Out {
        Self::wished(false, false)
    }

    /// The same, where flags switch colours off or on.
    pub(super) fn wished(off: bool, forced: bool) -> Out {
        let set = |name: &str| std::env::var_os(name).is_some();
        let off = off || (!forced && (set("NOMAD_CLI_NO_COLOR") || set("NO_COLOR")));
        let forced = forced || set("NOMAD_CLI_FORCE_COLOR");
        Out {
            color: !off && (forced || std::io::stdout().is_terminal()),
        }
    }

    /// Prints a line for people. What others wrote may be in it: no control character of theirs
    /// reaches the terminal.
    pub(super) fn line(&self, text: &str) {
        self.exact(&harmless(text));
    }

    /// Prints a line as it is: JSON, a file's text, what a template made.
    pub(super) fn exact(&self, text: &str) {
        self.raw(format!("{text}\n").as_bytes());
    }

    /// Prints bytes as they are. A reader that went away ends the process quietly, as pipes expect.
    pub(super) fn raw(&self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        if stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .is_err()
        {
            std::process::exit(0);
        }
    }

    /// Prints a line about what went wrong.
    pub(super) fn error(&self, text: &str) {
        let text = harmless(text);
        let mut stderr = std::io::stderr().lock();
        let red = self.color && std::io::stderr().is_terminal();
        let _ = if red {
            writeln!(stderr, "\u{1b}[31m{text}\u{1b}[0m")
        } else {
            writeln!(stderr, "{text}")
        };
    }

    /// A section's head, bold where colour is on.
    pub(super) fn head(&self, text: &str) {
        if self.color {
            let text = harmless(text);
            self.exact(&format!("\n\u{1b}[1m{text}\u{1b}[0m"));
        } else {
            self.line(&format!("\n{text}"));
        }
    }

    /// Whether people read it.
    pub(super) fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Whether progress may be drawn.
    pub(super) fn draws(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    /// Puts a question to the user; no answer (no terminal) counts as an empty one.
    pub(super) fn ask(&self, question: &str) -> String {
        self.raw(harmless(question).as_bytes());
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
        line.trim().to_owned()
    }
}

/// Text for people with its control characters spelled out, but for ends of lines and tabs.
fn harmless(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    spelled_out(&text, |c| !matches!(c, '\n' | '\t'))
}

/// The same where ends of lines and tabs are out of place too: what is one line stays one.
pub(super) fn one_line(text: &str) -> String {
    spelled_out(text, |_| true)
}

fn spelled_out(text: &str, is_harmful: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() && is_harmful(c) {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_others_do_not_reach_the_terminal() {
        let text = "größe\tA\r\nB\u{1b}]0;title\u{7}\r\u{9b}2J\u{7f}";
        assert_eq!(
            harmless(text),
            "größe\tA\nB\\u{1b}]0;title\\u{7}\\u{d}\\u{9b}2J\\u{7f}"
        );
        assert_eq!(one_line("a\nb\tc"), "a\\u{a}b\\u{9}c");
        assert_eq!(one_line("as it is"), "as it is");
    }
}
