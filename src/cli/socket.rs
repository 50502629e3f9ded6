//! A connection to the agent that becomes a WebSocket.

use super::client::{Client, Query, refused};
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::Upgraded;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// The longest message that is taken, bytes.
const LONGEST: usize = 1 << 20;

/// What goes over it are frames of text.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

impl Client {
    /// GET of something that is talked to over a WebSocket.
    pub(super) async fn socket(&self, path: &str, query: Query<'_>) -> Result<Socket> {
        let request = self.request(Method::GET, path, query);
        let request = request
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        let body = Empty::<Bytes>::new().map_err(|never| match never {});
        let request = request.body(BodyExt::boxed_unsync(body));
        let request = request.context("building the request")?;
        let requested = format!("{} {}", request.method(), request.uri().path());
        let response = self.answer(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refused(response, requested).await);
        }
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = TokioIo::new(upgraded.context("the connection was lost")?);
        let config = WebSocketConfig::default()
            .max_message_size(Some(LONGEST))
            .max_frame_size(Some(LONGEST));
        Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
    }
}
