//! Why a call failed, and whether the same call may succeed later.

use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};

/// Most bytes of a plugin's text that are kept.
const TEXT: usize = 2_048;
/// Secrets shorter than this are not looked for in texts: half of any text would be hidden.
const SHORTEST_SECRET: usize = 3;

/// What a failed call leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The same call may succeed later: the plugin was away, busy or in trouble of its own, or
    /// something else has to happen first.
    Again,
    /// The same call never succeeds: the plugin refuses what is requested.
    Refused,
    /// What was to be undone is not there: it is done.
    Done,
}

/// Where an error comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The plugin answered with this code.
    Answered(Code),
    /// There was no answer: no socket, a closed connection, bytes that are no answer.
    Unreachable,
    /// No answer came in this time.
    Late(Duration),
    /// The answer breaks the specification.
    Broken,
}

/// A call that failed.
#[derive(Debug, Clone)]
pub struct CallError {
    call: &'static str,
    cause: Cause,
    text: String,
}

impl CallError {
    /// What the plugin answered; `secrets` are those of the request, which its text may repeat.
    pub(crate) fn answered<'a>(
        call: &'static str,
        status: &Status,
        secrets: impl Iterator<Item = &'a String>,
    ) -> CallError {
        // A status of our own side of the connection has what broke as its source.
        let cause = match std::error::Error::source(status) {
            Some(_) => Cause::Unreachable,
            None => Cause::Answered(status.code()),
        };
        let text = match std::error::Error::source(status) {
            Some(source) => root(source),
            None => status.message().to_owned(),
        };
        let text = CallError::cleaned(text, secrets);
        CallError { call, cause, text }
    }

    /// A text of a plugin's, of bearable length and without secrets. Longer ones go first: what
    /// begins with another is not left half.
    pub(crate) fn cleaned<'a>(text: String, secrets: impl Iterator<Item = &'a String>) -> String {
        let mut text = text;
        let secrets = secrets.filter(|secret| secret.len() >= SHORTEST_SECRET);
        let mut secrets: Vec<&String> = secrets.collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets {
            text = text.replace(secret.as_str(), "[REDACTED]");
        }
        let mut end = text.len().min(TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }

    /// No answer came.
    pub(crate) fn late(call: &'static str, limit: Duration) -> CallError {
        let text = format!("no answer within {limit:?}");
        let cause = Cause::Late(limit);
        CallError { call, cause, text }
    }

    /// The specification knows no such answer.
    pub(crate) fn broken(call: &'static str, text: &str) -> CallError {
        let (cause, text) = (Cause::Broken, text.to_owned());
        CallError { call, cause, text }
    }

    /// The call that failed, by its name in the specification.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Where the error comes from.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The plugin's own text, or what happened instead of an answer.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the same call may succeed later.
    pub fn standing(&self) -> Standing {
        let code = match self.cause {
            Cause::Answered(code) => code,
            Cause::Unreachable | Cause::Late(_) => return Standing::Again,
            Cause::Broken => return Standing::Refused,
        };
        match code {
            Code::NotFound if self.undoes() => Standing::Done,
            // A node that is full may have space later, and a volume that is in use elsewhere may
            // be released.
            Code::ResourceExhausted | Code::FailedPrecondition => Standing::Again,
            Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled => {
                Standing::Again
            }
            // The specification gives these no meaning: trouble of the plugin's own.
            Code::Internal | Code::Unknown | Code::DataLoss | Code::Ok => Standing::Again,
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated => Standing::Refused,
        }
    }

    /// Whether it is certain that the call is not under way any more. A call without an answer may
    /// be done late, and so may the one that stood in its way.
    pub fn has_ended(&self) -> bool {
        match self.cause {
            Cause::Answered(code) => !matches!(
                code,
                Code::Aborted | Code::DeadlineExceeded | Code::Cancelled
            ),
            Cause::Unreachable | Cause::Late(_) => false,
            Cause::Broken => true,
        }
    }

    /// Whether the call undoes what another did.
    fn undoes(&self) -> bool {
        self.call.contains("Unpublish")
            || self.call.contains("Unstage")
            || self.call.contains("Delete")
    }
}

/// What a chain of errors begins with: the layers above say only that something failed.
fn root(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Answered(code) => write!(f, "{}: {code:?}: {}", self.call, self.text),
            Cause::Unreachable => write!(f, "{}: plugin unreachable: {}", self.call, self.text),
            Cause::Late(_) => write!(f, "{}: {}", self.call, self.text),
            Cause::Broken => write!(f, "{}: invalid answer: {}", self.call, self.text),
        }
    }
}

impl std::error::Error for CallError {}
