//! The one authentication step: every request passes it before anything else.

use super::request::Request;
use crate::error::ApiError;
use crate::identity::Identity;

/// Turns what a request carries into who it is from.
pub trait Authenticate: Send + Sync {
    /// The identity behind a token; none given means anonymous.
    ///
    /// # Errors
    /// 403 for a token that is unknown, expired or forged.
    fn authenticate(&self, token: Option<&str>, addr: &str) -> Result<Identity, ApiError>;
}

/// While ACLs are off: everybody is anonymous and may do everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Authenticate for Open {
    fn authenticate(&self, _token: Option<&str>, addr: &str) -> Result<Identity, ApiError> {
        Ok(Identity::anonymous(addr))
    }
}

/// The token of a request: Nomad's header, then the first word of a bearer authorisation.
#[must_use]
pub(super) fn token(request: &Request) -> Option<&str> {
    let own = request
        .header("x-nomad-token")
        .map(str::trim)
        .filter(|t| !t.is_empty());
    own.or_else(|| {
        let mut words = request.header("authorization")?.split_whitespace();
        let scheme = words.next()?;
        if scheme.eq_ignore_ascii_case("bearer") {
            words.next()
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Request {
        let (parts, ()) = hyper::Request::builder()
            .header(name, value)
            .body(())
            .unwrap()
            .into_parts();
        Request::head(parts).unwrap()
    }

    #[test]
    fn a_token_comes_from_either_header() {
        assert_eq!(token(&with("X-Nomad-Token", " a ")), Some("a"));
        assert_eq!(token(&with("Authorization", "bEaReR b c")), Some("b"));
        assert_eq!(token(&with("Authorization", "Basic b")), None);
        assert_eq!(token(&with("X-Nomad-Token", "")), None);
    }

    #[test]
    fn no_debug_output_shows_a_token() {
        let mut request = with("X-Nomad-Token", "canary-token-1");
        request.body = bytes::Bytes::from("canary-body-2");
        let call = crate::rpc::service::Call {
            addr: "10.0.0.7".into(),
            token: "canary-token-3".into(),
        };
        let ids = crate::client::ids::NodeIds {
            id: "n".into(),
            secret: "canary-secret-4".into(),
        };
        let text = format!("{request:?} {call:?} {ids:?}");
        assert!(
            text.contains("10.0.0.7") && !text.contains("canary"),
            "{text}"
        );
    }
}
