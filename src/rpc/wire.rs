//! The rules of the wire: headers, bodies, errors.

use bytes::Bytes;
use drover_events::codec::MAX_DEPTH;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::RpcError;
use drover_error::{Code, Refusal};

/// The version of these rules.
pub(super) const VERSION: &str = "1";
/// Carries [`VERSION`].
pub(super) const VERSION_HEADER: &str = "drover-rpc";
/// How long the caller waits, milliseconds.
pub(super) const TIMEOUT_HEADER: &str = "drover-timeout-ms";
/// Who calls.
pub(super) const TOKEN_HEADER: &str = "x-nomad-token";
/// Which node calls.
pub(super) const NODE_HEADER: &str = "drover-node";
/// The code of a refusal.
pub(super) const ERROR_HEADER: &str = "drover-error";
/// After how many seconds a refused call may be made again.
pub(super) const RETRY_HEADER: &str = "retry-after";
/// Paths begin so.
pub(super) const PATH: &str = "/rpc/";
/// The longest body, bytes: eight events of the greatest length.
pub(super) const MAX_BODY: usize = 32 << 20;

/// The longest body of a caller that proved nothing, bytes: a node that registers.
pub(super) const STRANGER_BODY: usize = 2 << 20;

/// Window of one stream, bytes: the default throttles large answers.
pub(super) const STREAM_WINDOW: u32 = 2 << 20;
/// Window of a connection, bytes.
pub(super) const CONNECTION_WINDOW: u32 = 8 << 20;

/// What a port says at the end of a connection that speaks clear text where TLS is spoken.
pub(super) const TLS_ONLY: &str = "this port takes TLS only";

pub fn encode<T: Serialize>(value: &T) -> Result<Bytes, RpcError> {
    rmp_serde::to_vec_named(value)
        .map(Bytes::from)
        .map_err(|e| RpcError::Malformed(format!("cannot encode: {e}")))
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RpcError> {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
    // Any caller that reaches the port may send it.
    decoder.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut decoder).map_err(|e| RpcError::Malformed(format!("cannot decode: {e}")))
}

/// A code's name on the wire.
pub(super) fn code_name(code: Code) -> String {
    serde_json::to_value(code)
        .ok()
        .and_then(|v| v.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// The refusal in an answer; one whose code this release does not know is what its status says, and
/// internal where that stands for several.
pub(super) fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Refusal {
    let code = headers
        .get(ERROR_HEADER)
        .and_then(|v| v.to_str().ok())
        .and_then(|name| serde_json::from_value(name.into()).ok())
        .or_else(|| drover_net::code(status.as_u16()))
        .unwrap_or(Code::Internal);
    let after = headers.get(RETRY_HEADER).and_then(|v| v.to_str().ok());
    let after = after.and_then(|seconds| seconds.parse().ok());
    Refusal::new(code, String::from_utf8_lossy(body)).after(after.unwrap_or_default())
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Api(e) => e,
            RpcError::Malformed(text) => Self::new(Code::BadRequest, text),
            RpcError::TimedOut(_) => Self::new(Code::Timeout, error.to_string()),
            RpcError::Unreachable(_) => Self::new(Code::Unavailable, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_30_codes_keep_their_names_over_the_wire() {
        for code in [
            Code::NotFound,
            Code::NoLeader,
            Code::PermissionDenied,
            Code::Refused,
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ERROR_HEADER, code_name(code).parse().unwrap());
            let error = refusal(StatusCode::BAD_REQUEST, &headers, b"why");
            assert_eq!(error, Refusal::new(code, "why"));
        }
        for (status, code) in [
            (StatusCode::NOT_FOUND, Code::NotFound),
            (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
            (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
            (StatusCode::IM_A_TEAPOT, Code::Internal),
        ] {
            let mut headers = HeaderMap::new();
            assert_eq!(refusal(status, &headers, b"?").code, code);
            headers.insert(ERROR_HEADER, "OfALaterRelease".parse().unwrap());
            assert_eq!(refusal(status, &headers, b"?").code, code);
        }
    }

    #[test]
    fn what_is_nested_without_end_is_refused_and_takes_no_stack() {
        let nested = |levels| {
            let mut bytes = vec![0x91; levels];
            bytes.push(0xc0);
            decode::<serde_json::Value>(&bytes)
        };
        assert!(nested(MAX_DEPTH - 1).is_ok());
        for levels in [MAX_DEPTH, 1_023, 1_000_000] {
            let refused = nested(levels).unwrap_err();
            assert!(matches!(refused, RpcError::Malformed(_)), "{refused}");
        }
    }
}
