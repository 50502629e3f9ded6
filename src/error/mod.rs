//! The one closed table of error codes that commands, HTTP and RPC share.
//!
//! A [`Code`] says what kind of refusal it is; the message is the text a Nomad client sees. Nothing
//! here knows HTTP, Raft or RocksDB: which status a code is answered with says one table of the
//! wires, `drover_net::status`.

use serde::{Deserialize, Serialize};

/// The kind of a refusal or failure.
///
/// To add one: its line here and in [`Code::ALL`], its status in the table of `drover_net::status`,
/// and whether it lasts ([`Code::lasts`]) or concerns all ([`Refusal::concerns_all`]).
/// Agents of earlier releases read it as the code they know its status by, or [`Code::Internal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Code {
    /// The request is malformed or names an impossible value; the message names the field.
    BadRequest,
    /// A token is needed and none was given.
    Unauthorized,
    /// The identity may not do this.
    PermissionDenied,
    /// The named object does not exist.
    NotFound,
    /// The method is not one of the route's.
    MethodNotAllowed,
    /// The object changed in the meantime (a check-and-set that lost).
    Conflict,
    /// The requested position lies below the horizon of the log.
    Gone,
    /// The body is longer than the limit.
    PayloadTooLarge,
    /// The requested form is not offered.
    UnsupportedMediaType,
    /// Too many requests from this caller.
    TooManyRequests,
    /// Validation and business rules, which Nomad does not distinguish from its own failures.
    Refused,
    /// A fault of this server (storage, a bug); the message is for an operator.
    Internal,
    /// The role is not enabled on this agent, or there is no such feature.
    NotImplemented,
    /// There is no leader, or this server is not ready; the caller tries again.
    NoLeader,
    /// The disk is full or proposals are held back; reads go on.
    Unavailable,
    /// A deadline passed.
    Timeout,
}

impl Code {
    /// Each of them, as they are declared.
    pub const ALL: [Code; 16] = [
        Code::BadRequest,
        Code::Unauthorized,
        Code::PermissionDenied,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::Conflict,
        Code::Gone,
        Code::PayloadTooLarge,
        Code::UnsupportedMediaType,
        Code::TooManyRequests,
        Code::Refused,
        Code::Internal,
        Code::NotImplemented,
        Code::NoLeader,
        Code::Unavailable,
        Code::Timeout,
    ];

    /// Whether the same request fails for ever: what is wrong is the request itself, or a rule.
    /// What is left passes by itself, such as a missing leader or something that others hold.
    pub const fn lasts(self) -> bool {
        matches!(
            self,
            Code::BadRequest
                | Code::Unauthorized
                | Code::PermissionDenied
                | Code::NotFound
                | Code::MethodNotAllowed
                | Code::Gone
                | Code::PayloadTooLarge
                | Code::UnsupportedMediaType
                | Code::Refused
                | Code::NotImplemented
        )
    }
}

/// A refusal or failure on its way to a client: a code and Nomad's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Refusal {
    /// What kind it is.
    pub code: Code,
    /// What the client reads.
    pub message: String,
    /// After how many seconds it may be tried again; 0 where that is not given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after: u32,
}

// Called by serde, which gives a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

impl Refusal {
    /// Whether nothing can be written now, whatever it is.
    pub fn concerns_all(&self) -> bool {
        matches!(
            self.code,
            Code::NoLeader | Code::Unavailable | Code::Timeout
        )
    }

    /// An error of `code` with `message`.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after: 0,
        }
    }

    /// The same, which may be tried again after some seconds.
    #[must_use]
    pub fn after(mut self, seconds: u32) -> Self {
        self.retry_after = seconds;
        self
    }

    /// The request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    /// The object does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// With Nomad's text: a rule refuses the request.
    pub fn by_rule(message: impl Into<String>) -> Self {
        Self::new(Code::Refused, message)
    }

    /// This server failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Who asks may not, in Nomad's text.
    pub fn permission_denied() -> Self {
        Self::new(Code::PermissionDenied, "Permission denied")
    }

    /// `No cluster leader`, as Nomad says it.
    pub fn no_leader() -> Self {
        Self::new(Code::NoLeader, "No cluster leader")
    }
}

/// An error with what it came from, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::Error;

    use super::*;

    #[test]
    fn none_is_missing_among_all_codes() {
        // Serde names each of them when it refuses a name.
        let unknown: Result<Code, Error> = Code::deserialize("none".into_deserializer());
        let refused = unknown.expect_err("no code").to_string();
        let named: Vec<&str> = refused.split('`').skip(3).step_by(2).collect();
        let all: Vec<String> = Code::ALL.iter().map(|code| format!("{code:?}")).collect();
        assert_eq!(named, all);
    }
}
