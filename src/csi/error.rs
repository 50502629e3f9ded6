//! Why a call failed, and whether the same call may succeed later.

use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};

/// The most bytes of a plugin's text that are kept.
const MAX_TEXT_BYTES: usize = 2_048;
/// Secrets shorter than this are not looked for in texts: half of any text would be hidden.
const SHORTEST_SECRET: usize = 3;

/// What to do after a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// The same call may succeed later: the plugin was away, busy or in trouble of its own, or
    /// something else has to happen first.
    Retry,
    /// The same call never succeeds: the plugin refused it, or its answer breaks the specification.
    Permanent,
    /// What was to be undone is not there: nothing is left to do.
    AlreadyDone,
}

/// Where an error comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The plugin answered with this code.
    Answered(Code),
    /// There was no answer: no socket, a closed connection, bytes that are no answer.
    Unreachable,
    /// No answer came in this time.
    TimedOut(Duration),
    /// The answer breaks the specification.
    InvalidResponse,
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

    /// A text of a plugin's without secrets, of [`MAX_TEXT_BYTES`] at most. Longer secrets are
    /// replaced first: one that contains another would else be left in part.
    pub(crate) fn cleaned<'a>(text: String, secrets: impl Iterator<Item = &'a String>) -> String {
        let mut text = text;
        let secrets = secrets.filter(|secret| secret.len() >= SHORTEST_SECRET);
        let mut secrets: Vec<&String> = secrets.collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets {
            text = text.replace(secret.as_str(), "[REDACTED]");
        }
        let mut end = text.len().min(MAX_TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }

    /// No answer came.
    pub(crate) fn timed_out(call: &'static str, limit: Duration) -> CallError {
        let text = format!("no answer within {limit:?}");
        let cause = Cause::TimedOut(limit);
        CallError { call, cause, text }
    }

    /// The answer breaks the specification.
    pub(crate) fn invalid_response(call: &'static str, text: &str) -> CallError {
        let (cause, text) = (Cause::InvalidResponse, text.to_owned());
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

    /// Whether the call is to be made again, never can succeed, or has nothing left to do.
    pub fn retry_decision(&self) -> RetryDecision {
        let code = match self.cause {
            Cause::Answered(code) => code,
            Cause::Unreachable | Cause::TimedOut(_) => return RetryDecision::Retry,
            Cause::InvalidResponse => return RetryDecision::Permanent,
        };
        match code {
            Code::NotFound if self.undoes() => RetryDecision::AlreadyDone,
            // A node that is full may have space later, and a volume that is in use elsewhere may
            // be released.
            Code::ResourceExhausted | Code::FailedPrecondition => RetryDecision::Retry,
            Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled => {
                RetryDecision::Retry
            }
            // The specification gives these no meaning: trouble of the plugin's own.
            Code::Internal | Code::Unknown | Code::DataLoss | Code::Ok => RetryDecision::Retry,
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated => RetryDecision::Permanent,
        }
    }

    /// Whether it is certain that the call is not under way any more. A call without an answer may
    /// still be carried out. So may one that was answered with ABORTED: another call for the volume
    /// is pending, which may be the same one, made before.
    pub fn has_ended(&self) -> bool {
        match self.cause {
            Cause::Answered(code) => !matches!(
                code,
                Code::Aborted | Code::DeadlineExceeded | Code::Cancelled
            ),
            Cause::Unreachable | Cause::TimedOut(_) => false,
            Cause::InvalidResponse => true,
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
            Cause::TimedOut(_) => write!(f, "{}: {}", self.call, self.text),
            Cause::InvalidResponse => write!(f, "{}: invalid answer: {}", self.call, self.text),
        }
    }
}

impl std::error::Error for CallError {}
