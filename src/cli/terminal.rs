//! The terminal that a command is typed at, given to another while it lasts.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::IsTerminal;

/// Whether both input and output are a terminal.
pub(super) fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// The terminal without echo, lines or signals of its own; as it was before when this is dropped.
pub(super) struct Raw(Termios);

impl Raw {
    /// Takes it; none where the input is no terminal.
    pub(super) fn take() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Its lines and columns; none where the output is no terminal.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    Some((size.ws_row, size.ws_col))
}

/// Looks for the words by which a session is left, in what is typed: at the beginning of a line the
/// escape character, and a dot. Twice the character is one.
pub(super) struct Escape {
    character: Option<u8>,
    at: EscapeState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EscapeState {
    LineStart,
    Escaped,
    Inside,
}

impl Escape {
    /// With this character; none: nothing leaves the session.
    pub(super) fn new(character: Option<u8>) -> Self {
        Self {
            character,
            at: EscapeState::LineStart,
        }
    }

    /// The part of typed bytes that is to be sent, and whether the session is left after it.
    pub(super) fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let Some(character) = self.character else {
            return (typed.to_vec(), false);
        };
        let mut out = Vec::with_capacity(typed.len() + 1);
        for &byte in typed {
            match (self.at, byte) {
                (EscapeState::LineStart, byte) if byte == character => {
                    self.at = EscapeState::Escaped;
                    continue;
                }
                (EscapeState::Escaped, b'.') => return (out, true),
                (EscapeState::Escaped, byte) if byte != character => out.push(character),
                _ => {}
            }
            out.push(byte);
            self.at = match byte {
                b'\r' | b'\n' => EscapeState::LineStart,
                _ => EscapeState::Inside,
            };
        }
        (out, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_left_at_the_beginning_of_a_line_only() {
        for (pieces, sent, left) in [
            (&["ls\r", "~."][..], "ls\r", true),
            (&["~", "."], "", true),
            (&["a~.b"], "a~.b", false),
            (&["~~.\r"], "~.\r", false),
            (&["~a\r~."], "~a\r", true),
            (&["x\n~\r~."], "x\n~\r", true),
            (&["~", "~", "~"], "~~", false),
        ] {
            let mut escape = Escape::new(Some(b'~'));
            let mut out = Vec::new();
            let mut over = false;
            for piece in pieces {
                let (bytes, leaves) = escape.pass(piece.as_bytes());
                out.extend(bytes);
                over |= leaves;
            }
            assert_eq!(
                (out.as_slice(), over),
                (sent.as_bytes(), left),
                "{pieces:?}"
            );
        }
        let mut none = Escape::new(None);
        assert_eq!(none.pass(b"~."), (b"~.".to_vec(), false));
    }
}
