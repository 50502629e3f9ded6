//! Where a command writes, and from where it asks; a test takes both.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::{Arc, Mutex};

/// What a test sees of a command.
#[derive(Debug, Default)]
pub(super) struct Captured {
    /// Standard output.
    pub(super) stdout: String,
    /// Standard error.
    pub(super) stderr: String,
    /// What the user will answer, last first.
    pub(super) answers: Vec<String>,
}

/// The terminal, or a test's stand-in.
#[derive(Clone, Debug)]
pub(super) struct Out {
    captured: Option<Arc<Mutex<Captured>>>,
    color: bool,
}

impl Out {
    /// The real terminal. Colour only where nobody switched it off.
    pub(super) fn terminal() -> Out {
        let off = std::env::var_os("NOMAD_CLI_NO_COLOR").is_some()
            || std::env::var_os("NO_COLOR").is_some();
        let forced = std::env::var_os("NOMAD_CLI_FORCE_COLOR").is_some();
        Out {
            captured: None,
            color: forced || (!off && std::io::stdout().is_terminal()),
        }
    }

    /// A stand-in.
    #[cfg(test)]
    pub(super) fn capture(captured: Arc<Mutex<Captured>>) -> Out {
        Out {
            captured: Some(captured),
            color: false,
        }
    }

    fn with(&self, f: impl FnOnce(&mut Captured)) -> bool {
        let Some(captured) = &self.captured else {
            return false;
        };
        if let Ok(mut captured) = captured.lock() {
            f(&mut captured);
        }
        true
    }

    /// Prints a line. A reader that went away ends the process quietly, as pipes expect.
    pub(super) fn line(&self, text: &str) {
        self.raw(format!("{text}\n").as_bytes());
    }

    /// Prints bytes as they are.
    pub(super) fn raw(&self, bytes: &[u8]) {
        if self.with(|c| c.stdout.push_str(&String::from_utf8_lossy(bytes))) {
            return;
        }
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
        if self.with(|c| c.stderr.push_str(&format!("{text}\n"))) {
            return;
        }
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
            self.line(&format!("\n\u{1b}[1m{text}\u{1b}[0m"));
        } else {
            self.line(&format!("\n{text}"));
        }
    }

    /// Whether people read it; a test's stand-in counts as one.
    pub(super) fn is_terminal(&self) -> bool {
        self.captured.is_some() || std::io::stdout().is_terminal()
    }

    /// Whether progress may be drawn.
    pub(super) fn draws(&self) -> bool {
        self.captured.is_none() && std::io::stderr().is_terminal()
    }

    /// Asks a question; no answer (no terminal) counts as an empty one.
    pub(super) fn ask(&self, question: &str) -> String {
        self.raw(question.as_bytes());
        let mut answer = None;
        if self.with(|c| answer = c.answers.pop()) {
            self.line("");
            return answer.unwrap_or_default();
        }
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
        line.trim().to_owned()
    }
}
