//! The token of a request.

use super::request::Request;

/// What stands for a value that is no text: no token is it, and a caller that gives it has not
/// given none.
const NO_TEXT: &str = "\u{fffd}";

/// The token of a request: Nomad's header, then the first word of a bearer authorisation. The first
/// header of a name counts.
#[must_use]
pub(super) fn token(request: &Request) -> Option<&str> {
    let own = request.headers.get("x-nomad-token");
    let own = own.map(|value| value.to_str().map_or(NO_TEXT, str::trim));
    own.filter(|token| !token.is_empty())
        .or_else(|| bearer(request))
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers.get("authorization")?;
    let Ok(text) = value.to_str() else {
        let scheme = value.as_bytes().get(..b"bearer ".len());
        return scheme?.eq_ignore_ascii_case(b"bearer ").then_some(NO_TEXT);
    };
    let mut words = text.split_whitespace();
    let scheme = words.next()?;
    match scheme.eq_ignore_ascii_case("bearer") {
        true => words.next(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::Harness;
    use super::*;
    use crate::gate::Gate;
    use crate::identity::Identity;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_concerns_everything_is_for_managers() {
        let server = Harness::asking(Gate::fixed(|_, addr| Identity::node("n", addr))).await;
        for (method, target) in [
            ("GET", "/v1/audit"),
            ("GET", "/v1/audit/requests"),
            ("GET", "/v1/audit/trace?id=1"),
            ("GET", "/v1/state/diff?from=1"),
            ("GET", "/v1/log/entries?from=1"),
            ("GET", "/v1/operator/snapshot"),
            ("PUT", "/v1/operator/snapshot"),
            ("GET", "/v1/operator/projections"),
            ("GET", "/v1/operator/projections/rebuild"),
            ("PUT", "/v1/operator/projections/rebuild"),
            ("DELETE", "/v1/operator/projections/rebuild"),
            ("PUT", "/v1/operator/projections/verify"),
            ("DELETE", "/v1/operator/projections/kept"),
        ] {
            let reply = server.ask(method, target, "").await;
            assert_eq!(reply.status, 403, "{method} {target}: {}", reply.text());
        }
        assert_eq!(server.get("/v1/regions").await.status, 200);
        server.stop().await;
    }

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
        // What is no text is a token that does not exist, not a lack of one.
        let no_text = |name, value: &'static [u8]| {
            let (parts, ()) = hyper::Request::builder()
                .header(name, hyper::header::HeaderValue::from_bytes(value).unwrap())
                .body(())
                .unwrap()
                .into_parts();
            let request = Request::head(parts).unwrap();
            token(&request).map(str::to_owned)
        };
        let nobody = Some(NO_TEXT.to_owned());
        assert_eq!(no_text("X-Nomad-Token", b"\xff"), nobody);
        assert_eq!(no_text("Authorization", b"bearer \xff"), nobody);
        assert_eq!(no_text("Authorization", b"Basic \xff"), None);
    }

    #[test]
    fn no_debug_output_shows_a_token() {
        let mut request = with("X-Nomad-Token", "canary-token-1");
        request.body = bytes::Bytes::from("canary-body-2");
        let call = crate::rpc::service::Call {
            addr: "10.0.0.7".into(),
            token: "canary-token-3".into(),
            node: "n".into(),
            ..Default::default()
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
