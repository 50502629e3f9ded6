//! Connections that become WebSockets: who may request one, how it is answered, and how it is ended
//! in words.
//!
//! Invariants:
//! 1. A connection that became one still counts as one of its caller's, and is waited for when the
//!    server stops.
//! 2. No page of another origin gets what a caller is allowed only because of where it is: without
//!    a token the page must be this agent's own.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::http::request::Parts;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{HeaderMap, Method, header};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::answer::Answer;
use crate::error::Refusal;

/// The longest message that is taken, bytes.
const LONGEST: usize = 256 << 10;
/// What is read at once, and gathered before it is written, bytes.
const BUFFER: usize = 16 << 10;
/// What waits to be written at most, bytes.
const UNWRITTEN: usize = 512 << 10;
/// The longest reason of a close frame, bytes (RFC 6455 section 5.5).
const REASON: usize = 123;
/// How long the other side has to say that it has read to the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// A connection, as what it becomes sees it.
#[derive(Clone)]
pub(super) struct SocketLine {
    became: TaskTracker,
    stop: CancellationToken,
}

impl SocketLine {
    /// One that ends when it is to stop.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            became: TaskTracker::new(),
            stop,
        }
    }

    /// Counts as one connection for as long as what is answered lives.
    pub(super) fn hold(&self) -> TaskTrackerToken {
        self.became.token()
    }

    /// Waits for the end of what it became, if it became anything.
    pub(super) async fn ended(&self) {
        self.became.close();
        self.became.wait().await;
    }
}

/// A request for a WebSocket.
pub(super) struct Upgrade {
    on: OnUpgrade,
    key: String,
    line: SocketLine,
}

/// The connection, upgraded.
pub(super) struct Socket {
    /// Its messages.
    pub(super) stream: WebSocketStream<TokioIo<Upgraded>>,
    /// Cancelled when the server stops.
    pub(super) stop: CancellationToken,
}

/// Whether one of the words of a header is this one.
fn says(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter();
    let mut words = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    words.any(|one| one.trim().eq_ignore_ascii_case(word))
}

impl Upgrade {
    /// The WebSocket that a request is for.
    ///
    /// # Errors
    /// 400: it requests no WebSocket, or not as it should.
    pub(super) fn of(parts: &mut Parts) -> Result<Self, Refusal> {
        let headers = &parts.headers;
        let is_requested = parts.method == Method::GET
            && says(headers, header::CONNECTION, "upgrade")
            && says(headers, header::UPGRADE, "websocket");
        let bad = |text: &str| Err(Refusal::bad_request(text));
        if !is_requested {
            return bad("this is answered over a WebSocket only: ask for an upgrade");
        }
        if !says(headers, header::SEC_WEBSOCKET_VERSION, "13") {
            return bad("the WebSocket version is not 13");
        }
        let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY) else {
            return bad("a WebSocket needs the header Sec-WebSocket-Key");
        };
        let key = derive_accept_key(key.as_bytes());
        let line = parts.extensions.remove::<SocketLine>();
        let line = line.unwrap_or_else(|| SocketLine::new(CancellationToken::new()));
        match parts.extensions.remove::<OnUpgrade>() {
            Some(on) => Ok(Self { on, key, line }),
            None => bad("this connection cannot become a WebSocket: use HTTP/1.1"),
        }
    }

    /// Agrees; what runs then has the connection.
    pub(super) fn accept<F, Fut>(self, run: F) -> Answer
    where
        F: FnOnce(Socket) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let Self { on, key, line } = self;
        let held = line.hold();
        tokio::spawn(async move {
            let _held = held;
            let upgraded = match on.await {
                Ok(upgraded) => TokioIo::new(upgraded),
                Err(error) => return tracing::debug!(%error, "no WebSocket came of it"),
            };
            let config = WebSocketConfig::default()
                .read_buffer_size(BUFFER)
                .write_buffer_size(BUFFER)
                .max_write_buffer_size(UNWRITTEN)
                .max_message_size(Some(LONGEST))
                .max_frame_size(Some(LONGEST));
            let stream =
                WebSocketStream::from_raw_socket(upgraded, Role::Server, Some(config)).await;
            let stop = line.stop;
            run(Socket { stream, stop }).await;
        });
        Answer::nothing()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", key)
    }
}

impl Socket {
    /// Ends it in words.
    pub(super) async fn refuse(self, error: &Refusal) {
        self.close(refusal(error)).await;
    }

    /// Ends it after everything was sent.
    pub(super) async fn done(self) {
        let (code, reason) = (CloseCode::Normal, "".into());
        self.close(CloseFrame { code, reason }).await;
    }

    /// Says the last word, and takes in what still comes, so that it is heard.
    async fn close(mut self, frame: CloseFrame) {
        let farewell = async {
            if self.stream.send(Message::Close(Some(frame))).await.is_err() {
                return;
            }
            while let Some(Ok(message)) = self.stream.next().await {
                if message.is_close() {
                    return;
                }
            }
            // Behind what was no message nothing is one.
            let _ = tokio::io::copy(self.stream.get_mut(), &mut tokio::io::sink()).await;
        };
        let _ = timeout(FAREWELL, farewell).await;
    }
}

/// The end with an error: 1011 for what HTTP calls the server's fault, 1008 for all others.
pub(super) fn refusal(error: &Refusal) -> CloseFrame {
    let code = match crate::net::status(error.code) {
        500.. => CloseCode::Error,
        _ => CloseCode::Policy,
    };
    let text = &error.message;
    let reason = match text.len() {
        ..=REASON => text.clone(),
        _ => format!(
            "{}…",
            &text[..text.floor_char_boundary(REASON - '…'.len_utf8())]
        ),
    };
    CloseFrame {
        code,
        reason: reason.into(),
    }
}

/// Refuses a page of another origin.
///
/// # Errors
/// 403 in words.
pub(super) fn same_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|v: &hyper::header::HeaderValue| v.to_str().ok())
    };
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or("?");
    if let (Some((scheme, place)), Some(host)) = (origin.split_once("://"), text(header::HOST)) {
        let usual = if scheme.eq_ignore_ascii_case("https") {
            ":443"
        } else {
            ":80"
        };
        let bare = |place: &str| {
            place
                .strip_suffix(usual)
                .unwrap_or(place)
                .to_ascii_lowercase()
        };
        if bare(place) == bare(host) {
            return Ok(());
        }
    }
    let text = format!("a page of another origin ({origin:?}) may do this with a token only");
    Err(Refusal::new(crate::error::Code::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgrade_request(headers: &[(&'static str, &str)]) -> Parts {
        let mut request = hyper::Request::get("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn what_is_no_request_for_a_websocket_is_told_why() {
        let whole = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        for (missing, text) in [
            (0, "ask for an upgrade"),
            (1, "ask for an upgrade"),
            (2, "version is not 13"),
            (3, "Sec-WebSocket-Key"),
            (9, "HTTP/1.1"),
        ] {
            let some = whole.iter().enumerate().filter(|(at, _)| *at != missing);
            let some: Vec<_> = some.map(|(_, pair)| *pair).collect();
            let refused = Upgrade::of(&mut upgrade_request(&some))
                .err()
                .expect("refused");
            assert_eq!(crate::net::status(refused.code), 400);
            assert!(refused.message.contains(text), "{}", refused.message);
        }
        let mut put = upgrade_request(&whole);
        put.method = Method::HEAD;
        assert!(Upgrade::of(&mut put).is_err());
    }

    #[test]
    fn a_page_of_another_origin_is_known() {
        for (origin, host, same) in [
            ("http://a.example:4646", "a.example:4646", true),
            ("http://A.example", "a.example", true),
            ("https://a.example", "a.example:443", true),
            ("http://a.example:80", "a.example", true),
            ("http://[::1]:4646", "[::1]:4646", true),
            ("http://b.example:4646", "a.example:4646", false),
            ("http://a.example", "a.example:4646", false),
            ("http://a.example.b.example", "a.example", false),
            ("http://a.example@b.example", "a.example", false),
            ("null", "a.example", false),
            ("", "", false),
        ] {
            let parts = upgrade_request(&[("origin", origin), ("host", host)]);
            assert_eq!(same_origin(&parts.headers).is_ok(), same, "{origin} {host}");
        }
        assert!(
            same_origin(&upgrade_request(&[("host", "a")]).headers).is_ok(),
            "no browser"
        );
        assert!(same_origin(&upgrade_request(&[("origin", "http://a")]).headers).is_err());
    }

    #[test]
    fn reasons_fit_into_a_close_frame() {
        let long = Refusal::bad_request("é".repeat(100));
        let frame = refusal(&long);
        assert!(frame.reason.len() <= REASON, "{}", frame.reason.len());
        assert!(frame.reason.ends_with("é…"));
        assert_eq!(frame.code, CloseCode::Policy);
        let frame = refusal(&Refusal::internal("x"));
        assert_eq!((frame.code, frame.reason.as_str()), (CloseCode::Error, "x"));
        assert_eq!(
            refusal(&Refusal::permission_denied()).code,
            CloseCode::Policy
        );
    }
}
