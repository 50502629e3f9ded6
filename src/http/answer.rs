//! What a handler answers, before it becomes a response.

use std::borrow::Cow;

use bytes::Bytes;
use drover_events::gojson;
use drover_projections::watch::Waiter;
use serde::Serialize;

use super::body::Body;
use super::pieces::Pieces;
use crate::error::Refusal;
use crate::keyring::secret_json;

/// The type of JSON answers, without a charset as Nomad sends it.
pub(super) const JSON: &str = "application/json";
/// The type of errors and other texts.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Which headers of the state's position an answer carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Meta {
    /// None: it is not about replicated state.
    #[default]
    None,
    /// A read: index, last contact, known leader.
    Read(u64),
    /// A write: the index only.
    Write(u64),
}

/// An answer on its way out.
#[derive(Debug)]
pub(super) struct Answer {
    /// The status, 200 by default.
    pub(super) status: u16,
    /// The content type; none for an empty answer.
    pub(super) content_type: Option<Cow<'static, str>>,
    pub(super) body: Body,
    /// The headers of the state's position.
    pub(super) meta: Meta,
    /// Where the next page starts.
    pub(super) next_token: Option<String>,
    /// What the list goes on with, where only its beginning is here: the next part is requested
    /// with it as the token.
    pub(super) rest: Option<String>,
    /// There is no answer yet: the caller has to read again after this, and to hold nothing until
    /// then.
    pub(super) again: Option<Waiter>,
    /// A JSON document that comes as a stream, and may be changed on its way.
    pub(super) flows: bool,
    /// Further headers.
    pub(super) headers: Vec<(Cow<'static, str>, String)>,
    /// Already compressed with gzip.
    pub(super) gzipped: bool,
}

impl Answer {
    /// 200 without a body.
    #[must_use]
    pub(super) const fn nothing() -> Self {
        Self {
            status: 200,
            content_type: None,
            body: Body::empty(),
            meta: Meta::None,
            next_token: None,
            rest: None,
            again: None,
            flows: false,
            headers: Vec::new(),
            gzipped: false,
        }
    }

    /// None yet: what it is made of is being made.
    #[must_use]
    pub(super) fn later(again: Waiter) -> Self {
        Self {
            again: Some(again),
            ..Self::nothing()
        }
    }

    /// 200 with a body of some type.
    #[must_use]
    pub(super) fn of(content_type: &'static str, body: impl Into<Body>) -> Self {
        Self {
            content_type: Some(Cow::Borrowed(content_type)),
            body: body.into(),
            ..Self::nothing()
        }
    }

    /// 200 with a value as JSON.
    ///
    /// # Errors
    /// 500 when the value cannot be encoded.
    pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, Refusal> {
        let bytes = gojson::to_vec(value).map_err(|e| Refusal::internal(e.to_string()))?;
        Ok(Self::of(JSON, bytes))
    }

    /// 200 with a value as JSON, in memory that is cleared once it was sent. What compresses,
    /// encrypts and sends it has buffers of its own, which are not.
    ///
    /// # Errors
    /// 500 when the value cannot be encoded.
    pub(super) fn secret<T: Serialize>(value: &T) -> Result<Self, Refusal> {
        let bytes = secret_json(value).map_err(|e| Refusal::internal(e.to_string()))?;
        Ok(Self::of(JSON, Bytes::from_owner(bytes)))
    }

    /// 200 with pieces of JSON that are rendered already.
    #[must_use]
    pub(super) fn pieces(pieces: Vec<Bytes>) -> Self {
        Self {
            content_type: Some(Cow::Borrowed(JSON)),
            body: Body::pieces(pieces),
            ..Self::nothing()
        }
    }

    /// 200 with the beginning of a list, which goes on at `rest` while it is sent.
    #[must_use]
    pub(super) fn begun(pieces: Pieces, rest: String) -> Self {
        Self {
            rest: Some(rest),
            ..Self::pieces(pieces.part())
        }
    }

    /// The same answer, read at an index: 0 for tables that nothing wrote to.
    #[must_use]
    pub(super) fn at(mut self, index: u64) -> Self {
        self.meta = Meta::Read(index);
        self
    }

    /// The same answer; if it was read at an index, then at this one at least.
    #[must_use]
    pub(super) fn not_below(mut self, index: u64) -> Self {
        if let Meta::Read(at) = &mut self.meta {
            *at = index.max(*at);
        }
        self
    }

    /// The same answer to a write that was applied at an index.
    #[must_use]
    pub(super) fn written(mut self, index: u64) -> Self {
        self.meta = Meta::Write(index);
        self
    }

    /// The same answer with another status.
    #[must_use]
    pub(super) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// The same answer with a header.
    #[must_use]
    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((Cow::Borrowed(name), value.into()));
        self
    }

    /// The index it was read at, 0 for what is not about replicated state.
    #[must_use]
    pub(super) const fn index(&self) -> u64 {
        match self.meta {
            Meta::None => 0,
            Meta::Read(index) | Meta::Write(index) => index,
        }
    }
}

impl From<Refusal> for Answer {
    /// The bare message as text: Nomad's errors are no JSON. The status is that of the code,
    /// whatever the text says.
    fn from(error: Refusal) -> Self {
        let (status, after) = (crate::net::status(error.code), error.retry_after);
        let answer = Self::of(TEXT, error.message).status(status);
        match (status, after) {
            // A caller that has too much under way may try again as soon as some of it is done.
            (429, _) => answer.header("retry-after", after.max(1).to_string()),
            (_, 1..) => answer.header("retry-after", after.to_string()),
            _ => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_has_the_index_that_its_log_begins_at_or_a_later_one() {
        for (answer, index) in [
            (Answer::nothing().at(3), 7),
            (Answer::nothing().at(9), 9),
            (Answer::nothing().written(3), 3),
            (Answer::nothing(), 0),
        ] {
            assert_eq!(answer.not_below(7).index(), index);
        }
    }

    #[test]
    fn a_refusal_has_the_status_of_its_code_and_all_of_its_words() {
        for (refusal, status) in [
            (Refusal::permission_denied(), 403),
            (Refusal::not_found("eval not found"), 404),
            (Refusal::by_rule("a plugin says: Permission denied"), 500),
            (Refusal::by_rule("RPC Error:: 429,slow down, please"), 500),
            (Refusal::no_leader(), 500),
        ] {
            let text = refusal.message.clone();
            let answer = Answer::from(refusal);
            assert_eq!(answer.status, status, "{text}");
            let pieces = answer.body.into_pieces().expect("a whole body");
            assert_eq!(pieces.concat(), text.as_bytes());
        }
    }
}
